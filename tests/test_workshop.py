"""The workshop: tools of our own are loaded, and loaded again while everything else goes on."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import anyio
import pytest

from portico.workshop import Workshop

GOOD = '''
async def handle_{0}(x: int) -> int:
    """Good."""
    return x
'''
HELD = """
import sys
sys.arrived.set()
assert sys.gate.wait(20)
"""


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_a_module_that_takes_long_to_load_again_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, gate, changed = threading.Event(), threading.Event(), anyio.Event()
    monkeypatch.setattr(sys, "arrived", arrived, raising=False)
    monkeypatch.setattr(sys, "gate", gate, raising=False)
    path = tmp_path / "tools.py"
    path.write_text(GOOD.format("before"))
    workshop = Workshop(python=("tools.py",), folder=tmp_path)
    workshop.load()
    provider = workshop.providers["local"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workshop.follow, lambda server: changed.set(), 0.01)
        with anyio.fail_after(20):
            while not arrived.is_set():  # the follower may look for the first time only after the change
                path.write_text(HELD + GOOD.format("after"))
                os.utime(path)
                await anyio.to_thread.run_sync(arrived.wait, 0.2)
            result = await provider.call("before", {"x": 3}, meta={}, on_progress=None)
            assert result["structuredContent"] == {"result": 3}
            assert not changed.is_set()
            gate.set()
            await changed.wait()
        tasks.cancel_scope.cancel()
    assert [tool["name"] for tool in provider.offering().tools] == ["after"]
    workshop.close()


def test_tools_of_every_server_share_what_runs_async_functions(tmp_path: Path) -> None:
    marked = GOOD.replace("async def", "from portico import tool\n@tool(server='other')\nasync def")
    (tmp_path / "tools.py").write_text(GOOD.format("a") + marked.format("b"))
    workshop = Workshop(python=("tools.py",), folder=tmp_path)
    workshop.load()
    assert set(workshop.providers) == {"local", "other"}
    assert all(provider.loops is workshop.loops for provider in workshop.providers.values())
