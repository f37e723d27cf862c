"""`portico trust`: a config in the working directory is used as it was trusted, and not after a change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .test_hostile_folder import Hostile

CONFIG = (
    "python: [tools.py]\nyaml: [defs/*.yml]\nservers: {s: {command: ./run.sh, args: [server.py], enabled: false}}\n"
)


@pytest.fixture
def clone(tmp_path: Path) -> Hostile:
    """A folder of one's own making, in the place of the hostile one."""
    hostile = Hostile(tmp_path)
    for path in sorted(hostile.folder.iterdir()):
        path.unlink()
    folder = hostile.folder
    (folder / "portico.yaml").write_text(CONFIG)
    (folder / "tools.py").write_text(
        'import helper\n\n\ndef handle_hello():\n    """Say hello."""\n    return "hello"\n'
    )
    (folder / "helper.py").write_text("WORD = 1\n")
    (folder / "server.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "defs").mkdir()
    (folder / "defs" / "a.yml").write_text(
        "shout: {type: command, description: Shout., command: [./shout.sh], parameters: {}}\n"
    )
    (folder / "defs" / "shout.sh").write_text("#!/bin/sh\n")
    return hostile


def is_used(clone: Hostile) -> bool:
    done = clone.run("list", "--json")
    assert done.returncode == 0, done.stderr
    return "local" in [server["name"] for server in json.loads(done.stdout)]


@pytest.mark.requirement("P-TRUST")
def test_a_trusted_config_is_used_until_trust_is_taken_back(clone: Hostile) -> None:
    assert not is_used(clone)
    done = clone.run("trust")
    assert done.returncode == 0
    assert f"trusted {clone.folder / 'portico.yaml'}" in done.stdout
    assert is_used(clone)
    assert clone.run("trust", "--remove", str(clone.folder)).returncode == 0
    assert not is_used(clone)
    assert clone.run("trust", "--remove").returncode == 4


@pytest.mark.requirement("P-TRUST")
@pytest.mark.parametrize(
    "name", ["portico.yaml", "tools.py", "helper.py", "server.py", "run.sh", "defs/a.yml", "defs/shout.sh"]
)
def test_a_change_of_anything_that_it_names_has_to_be_trusted_again(clone: Hostile, name: str) -> None:
    clone.run("trust", ".")
    file = clone.folder / name
    file.write_bytes(file.read_bytes() + b"\n")
    done = clone.run("list")
    assert "has changed since it was trusted and is ignored" in done.stderr
    assert not is_used(clone)
    assert clone.run("trust").returncode == 0
    assert is_used(clone)


@pytest.mark.requirement("P-TRUST")
@pytest.mark.parametrize("name", ["profiles.yml", "defs/b.yml", "other.py"])
def test_a_file_that_joins_has_to_be_trusted_too(clone: Hostile, name: str) -> None:
    clone.run("trust")
    (clone.folder / name).write_text("{}\n")
    assert not is_used(clone)


@pytest.mark.requirement("P-TRUST")
def test_trust_is_listed_with_what_became_of_each_file(clone: Hostile) -> None:
    assert "nothing is trusted yet" in clone.run("trust", "--list").stdout
    clone.run("trust")
    listed = json.loads(clone.run("trust", "--list", "--json").stdout)
    assert [(row["path"], row["standing"]) for row in listed] == [(str(clone.folder / "portico.yaml"), "trusted")]
    assert set(listed[0]["files"]) == {
        "portico.yaml", "tools.py", "helper.py", "server.py", "run.sh", "defs/a.yml", "defs/shout.sh",
    }  # fmt: skip
    (clone.folder / "tools.py").write_text("")
    assert "changed" in clone.run("trust", "--list").stdout
    (clone.folder / "portico.yaml").unlink()
    assert "missing" in clone.run("trust", "--list").stdout


@pytest.mark.requirement("P-TRUST")
def test_what_portico_itself_writes_stays_trusted_and_an_untrusted_file_never_becomes_so(clone: Hostile) -> None:
    clone.run("trust")
    clone.run("add", "docs", "http://127.0.0.1:9/mcp")
    assert "docs" in (clone.folder / "portico.yaml").read_text()
    assert is_used(clone)
    clone.run("remove", "docs")
    assert is_used(clone)
    clone.run("trust", "--remove")
    clone.run("--config", "portico.yaml", "add", "docs", "http://127.0.0.1:9/mcp")
    assert "docs" in (clone.folder / "portico.yaml").read_text()
    assert not is_used(clone)


@pytest.mark.requirement("P-TRUST")
def test_a_config_that_is_named_is_used_without_trust(clone: Hostile) -> None:
    done = clone.run("--config", "portico.yaml", "list", "--json")
    assert "local" in done.stdout
    assert "trust" not in done.stderr


@pytest.mark.requirement("P-TRUST", "F37")
@pytest.mark.parametrize("written", ["", "{", "[]", '{"version": 1, "trusted": {"a": []}}', '{"version": 2}'])
def test_a_damaged_trust_file_trusts_nothing(clone: Hostile, written: str) -> None:
    clone.run("trust")
    file = clone.home / ".local/share/portico/trusted.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(written)
    assert not is_used(clone)
    assert clone.run("trust").returncode == 3


@pytest.mark.requirement("P-TRUST")
@pytest.mark.skipif(os.name != "posix", reason="only here files have such modes")
def test_a_trust_file_that_others_may_write_trusts_nothing(clone: Hostile) -> None:
    clone.run("trust")
    (clone.home / ".local/share/portico/trusted.json").chmod(0o666)
    assert not is_used(clone)


@pytest.mark.requirement("P-TRUST")
def test_a_link_to_a_trusted_config_is_not_trusted_where_it_lies(clone: Hostile, tmp_path: Path) -> None:
    clone.run("trust")
    other = tmp_path / "other"
    other.mkdir()
    (other / "portico.yaml").symlink_to(clone.folder / "portico.yaml")
    (other / "tools.py").write_text(clone.code("linked"))
    clone.folder, before = other, clone.folder
    assert not is_used(clone)
    assert not (clone.marks / "linked").exists()
    clone.folder = before
    assert is_used(clone)
