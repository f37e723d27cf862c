"""What holds a worker in, tried from within."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from portico.domain.call import Script
from portico.errors import ScriptError
from portico.scripting import hardening as seccomp
from portico.scripting.engine import LuaEngine
from tests.scripting.fake_api import FakeApi

PROBES = Path(__file__).with_name("sandbox_probes.py")


PRIVILEGED = {"mount", "setuid", "unshare", "a priority", "more memory", "ptrace", "read another process"}
"""Probes that fail where the tests have no privileges, whether or not anything holds them in."""


@pytest.mark.requirement("T63")
def test_no_probe_gets_out_of_a_worker(tmp_path: Path):
    told = _probed(tmp_path)
    assert told["succeeded"] == []
    assert len(told["tried"]) >= 30
    assert (tmp_path / "there").read_text() == "x"


def test_every_probe_gets_out_of_a_process_that_nothing_holds_in(tmp_path: Path):
    """Otherwise its failure in a worker would show nothing."""
    told = _probed(tmp_path, "open")
    assert set(told["tried"]) - set(told["succeeded"]) <= PRIVILEGED
    assert not (tmp_path / "there").exists()


async def test_nothing_is_missing_on_this_machine(engine: LuaEngine):
    assert (await engine.sandbox()).missing == ()


async def test_the_fork_server_has_no_environment_and_no_folder(engine: LuaEngine):
    await engine.wake()
    assert engine.pool.fork_server is not None
    process = Path(f"/proc/{engine.pool.fork_server.pid}")
    assert (process / "environ").read_bytes() == b""
    assert (process / "cwd").readlink() == Path("/")


async def test_scripts_are_refused_where_hardening_is_required_and_missing(monkeypatch: pytest.MonkeyPatch):
    engine = LuaEngine(require_hardening=True)
    await engine.wake()
    assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1
    monkeypatch.setattr(engine.pool, "missing", ("a filter for system calls (seccomp)",))
    fake = FakeApi()
    with pytest.raises(ScriptError, match="this machine lacks a filter for system calls"):
        await engine.run(Script(source="calculator.echo()"), fake)
    assert fake.calls == []
    assert (await engine.sandbox()).is_degraded
    await engine.aclose()


async def test_scripts_run_where_hardening_is_missing_and_not_required(monkeypatch: pytest.MonkeyPatch):
    engine = LuaEngine()
    await engine.wake()
    monkeypatch.setattr(engine.pool, "missing", ("a filter for system calls (seccomp)",))
    assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1
    await engine.aclose()


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
def test_a_filter_is_made_for_every_machine_that_we_know(machine: str):
    program = seccomp.program(machine)
    assert len(program) % 8 == 0
    assert program[-8:-4] == b"\x06\x00\x00\x00"


def _probed(folder: Path, *how: str) -> dict[str, list[str]]:
    for name in ("there", "spare"):
        (folder / name).write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, str(PROBES), str(folder), str(server.getsockname()[1]), *how]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told
