"""The workshop: tools of our own are loaded, and loaded again while everything else goes on."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import anyio
import pytest

from portico.providers.database_tools.demo_database import demo_url
from portico.providers.local_sources import LocalSources
from portico.providers.sql import DatabaseSource
from portico.server.background import reload_on_change

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
    local_sources = LocalSources(python=("tools.py",), folder=tmp_path)
    local_sources.load()
    provider = local_sources.providers["local"]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload_on_change, local_sources, lambda server: changed.set())
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
    local_sources.close()


def test_tools_of_every_server_share_what_runs_async_functions(tmp_path: Path) -> None:
    marked = GOOD.replace("async def", "from portico import tool\n@tool(server='other')\nasync def")
    (tmp_path / "tools.py").write_text(GOOD.format("a") + marked.format("b"))
    local_sources = LocalSources(python=("tools.py",), folder=tmp_path)
    local_sources.load()
    assert set(local_sources.providers) == {"local", "other"}
    assert all(provider.loops is local_sources.loops for provider in local_sources.providers.values())


def test_an_entry_takes_the_place_of_a_packaged_tool_of_its_name(tmp_path: Path) -> None:
    says = "type: tool\n  description: Our own list.\n  example: which tables are there"
    entry = f"base_tableList:\n  {says}\n  command: [echo, own]\n"
    (tmp_path / "own.yml").write_text(entry)
    local_sources = LocalSources(
        yaml=("own.yml",), folder=tmp_path, packaged=True, database=DatabaseSource(demo_url(tmp_path))
    )
    local_sources.load()
    (own,) = (tool for tool in local_sources.providers["local"].offering().tools if tool["name"] == "base_tableList")
    assert own["description"] == "Our own list."
    assert own["_meta"] == {"example": "which tables are there"}
    assert not [problem for problem in local_sources.problems if "base_tableList" in str(problem)]
    local_sources.close()


def test_an_entry_and_a_function_of_ones_own_still_clash(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(GOOD.format("mine"))
    (tmp_path / "own.yml").write_text("mine:\n  type: tool\n  description: Other.\n  command: [echo, own]\n")
    local_sources = LocalSources(python=("tools.py",), yaml=("own.yml",), folder=tmp_path)
    local_sources.load()
    assert [problem for problem in local_sources.problems if "is a Python function too" in str(problem)]
    local_sources.close()
