"""One shell with a server that is already known, shared by the tests that only look."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shell import Shell


@pytest.fixture(scope="session")
def known(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    shell = Shell(tmp_path_factory.mktemp("known"))
    shell.serve_tiny(off={"command": "nothing", "enabled": False})
    assert shell.run("refresh").code == 0
    return shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
