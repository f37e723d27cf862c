"""Whatever the gateway has started ends with it, however it ended."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from upstream_world import Upstreams, said, until, use

from portico.errors import UpstreamGone
from portico.providers import processes as spawning
from portico.providers.processes import PROGRAM

FAMILY = str(Path(__file__).with_name("family.py"))
SECONDS = 20.0
KINDS = ("group", "session", "daemon", "command")


@contextmanager
def family(kind: str, file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is about to start others."""
    with subprocess.Popen([sys.executable, FAMILY, kind, str(file), *options], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def members(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def await_that(holds: Callable[[], bool]) -> bool:
    """Wait for other processes, which send no events."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.requirement("F09", "F10")
@pytest.mark.requirement("P-DIE-WITH-GATEWAY")
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_gateway_takes_its_family_along(kind: str, loop: str, tmp_path: Path) -> None:
    file = tmp_path / "members"
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"]) as bystander:
        with family(kind, file, loop) as gateway:
            assert await_that(lambda: len(members(file)) == 3)
            gateway.send_signal(signal.SIGKILL)
            gateway.wait()
            assert await_that(lambda: not any(map(is_running, members(file))))
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.requirement("F09")
@pytest.mark.requirement("P-DIE-WITH-GATEWAY")
def test_gateways_killed_at_any_moment_leave_nobody(tmp_path: Path) -> None:
    moments = random.Random(7)
    killed = []
    for number in range(20):
        with family(KINDS[number % 4], tmp_path / f"members-{number}") as gateway:
            time.sleep(moments.uniform(0.0, 0.15))
            gateway.send_signal(signal.SIGKILL)
            killed.append(gateway.pid)
    assert await_that(lambda: not any(map(_supervisors, killed)))
    found = [pid for number in range(20) for pid in members(tmp_path / f"members-{number}")]
    assert found
    assert not any(map(is_running, found))


def _supervisors(gateway: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if PROGRAM.encode() in words and str(gateway).encode() in words:
            found.append(path.parent.name)
    return found


@pytest.mark.anyio
@pytest.mark.requirement("P-DIE-WITH-GATEWAY")
async def test_killed_supervisor_takes_its_children_along_and_is_replaced(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(ignore_eof=True)
    await use(provider, "echo")
    (supervisor,) = _supervisors(os.getpid())
    os.kill(int(supervisor), signal.SIGKILL)
    await until(lambda: not any(map(is_running, upstreams.spawned())))
    with suppress(UpstreamGone):  # the news may come while the call is on its way
        await use(provider, "echo")
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "value"), [("PROGRAM", "/missing.py"), ("IS_SUPERVISED", False)])
async def test_servers_start_where_there_can_be_no_supervisor(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    alone = spawning._Supervisor()
    monkeypatch.setattr(spawning, "_supervisor", alone)
    monkeypatch.setattr(spawning, name, value)
    assert said(await use(upstreams.stdio(), "echo", a=1)) == {"a": 1}
    alone.close()


@pytest.mark.requirement("P-DIE-WITH-GATEWAY")
def test_worker_of_a_local_model_leaves_with_the_gateway(tmp_path: Path) -> None:
    file = tmp_path / "members"
    worker = (
        "import os, sys, time; from portico.search.embeddings import local; local.LOOKING = 0.01;"
        " open(sys.argv[1], 'w').write(str(os.getpid())); local.leave_with(int(sys.argv[2]))"
    )
    gateway = (
        "import os, subprocess, sys, time;"
        f" subprocess.Popen([sys.executable, '-c', {worker!r}, sys.argv[1], str(os.getpid())]); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", gateway, str(file)]) as process:
        assert await_that(lambda: bool(members(file)))
        process.kill()
    assert await_that(lambda: not any(map(is_running, members(file))))
