"""The tests' own PostgreSQL leaves the machine as it was, also when the tests run as root."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.databases import OUTSIDE, postgres_server
from tests.postgres import installed_package, running_postgres

pytestmark = pytest.mark.requirement("P-TESTS-TRACELESS")


def traces(package: Path) -> dict[str, object]:
    """What the wheel's own start code would change: the users, and the permissions of its files and all parents."""
    users = {name: Path(name).read_bytes() for name in ("/etc/passwd", "/etc/group")}
    paths = [*package.parents, package, *package.rglob("*"), Path("/tmp")]
    permissions = {str(path): stat.filemode(path.lstat().st_mode) for path in paths if "__pycache__" not in path.parts}
    return {**users, **permissions}


def ask_version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.execute("SHOW server_version").fetchall()[0][0])


@pytest.fixture
def unreachable_package(tmp_path: Path) -> Iterator[Path]:
    """A copy of the wheel where only its owner may go, as in an environment below the home of root."""
    installed, hidden = installed_package(), tmp_path / "hidden"
    unused = shutil.ignore_patterns("pginstall", "include", "__pycache__")
    shutil.copytree(installed, hidden / installed.name, ignore=unused)
    if (libraries := installed.with_name(f"{installed.name}.libs")).is_dir():
        shutil.copytree(libraries, hidden / libraries.name)
    hidden.chmod(0o700)
    yield hidden / installed.name
    shutil.rmtree(hidden)


def test_a_server_changes_no_user_and_no_permission():
    package = installed_package()
    before = traces(package)
    with running_postgres() as url:
        assert ask_version(url).startswith("18")
        assert traces(package) == before
    assert traces(package) == before


def test_a_server_leaves_no_folder_and_no_process():
    with running_postgres() as url:
        folder = Path(url.partition("host=")[2])
        pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, 0)
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_package_that_only_root_can_reach_stays_so(unreachable_package: Path):
    before = traces(unreachable_package)
    with running_postgres(unreachable_package) as url:
        assert ask_version(url).startswith("18")
        assert traces(unreachable_package) == before


def test_a_server_that_does_not_start_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "server"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **_: str(folder))
    with pytest.raises(OSError, match="initdb"), running_postgres(tmp_path / "nothing"):
        pass
    assert not folder.exists()


def test_a_server_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch):
    with running_postgres() as url:
        monkeypatch.setenv(OUTSIDE, url.replace("postgres:@", "postgres@"))
        for _ in range(2):  # the second run finds the role of the first
            with postgres_server() as server:
                fresh = server.fresh()
            assert fresh.partition("?")[2] == url.partition("?")[2]
            assert ask_version(fresh)


def test_a_server_is_named_by_its_socket(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(OUTSIDE, "postgresql://postgres@127.0.0.1:5432/postgres")
    with pytest.raises(AssertionError, match="folder of a socket"), postgres_server():
        pass
