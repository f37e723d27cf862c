"""Files are followed, and tools are loaded again when they change."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import anyio
import pytest
from anyio import fail_after

from portico.providers.python.loading import LoadedTools, ToolModules, follow, watch
from portico.providers.python.provider import LocalProvider

GOOD = 'def handle_{}(x: int) -> int:\n    """Good."""\n    return x\n'


class Changes:
    """What was told, and a way to wait for the next."""

    def __init__(self) -> None:
        self.told: list[set[Path]] = []
        self._event = anyio.Event()

    async def add(self, changed: set[Path]) -> None:
        self.told.append(changed)
        self._event.set()

    async def next(self) -> set[Path]:
        with fail_after(10):
            await self._event.wait()
        self._event = anyio.Event()
        return self.told[-1]


async def test_files_that_change_come_or_go_are_told(tmp_path: Path) -> None:
    path, has_looked, changes = tmp_path / "a.py", anyio.Event(), Changes()
    path.write_text("one")
    looks = count()

    def paths() -> list[Path]:
        if next(looks):  # whoever looks for the second time has seen the files once
            anyio.from_thread.run_sync(has_looked.set)
        return [path, *tmp_path.glob("b*.py")]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, paths, changes.add, 0.01)
        with fail_after(10):
            await has_looked.wait()
        os.utime(path, ns=(1, 1))
        assert await changes.next() == {path}
        other = tmp_path / "b.py"
        other.write_text("two")
        assert await changes.next() == {other}
        path.unlink()
        assert path in await changes.next()
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("S0-2", "S0-77")
async def test_a_saved_file_changes_what_is_offered_while_everything_runs(tmp_path: Path) -> None:
    path, provider, loaded = tmp_path / "tools.py", LocalProvider(), anyio.Event()
    path.write_text(GOOD.format("before"))
    modules = ToolModules(["tools.py"], tmp_path)
    provider.take(modules.load().tools)
    first = provider.fingerprint

    def on_loaded(found: LoadedTools) -> None:
        provider.take(found.tools)
        loaded.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow, modules, on_loaded, 0.01)
        with fail_after(10):
            while not loaded.is_set():  # the follower may look for the first time only after the change
                path.write_text(GOOD.format("after"))
                os.utime(path)
                with anyio.move_on_after(0.2):
                    await loaded.wait()
        tasks.cancel_scope.cancel()
    assert [tool["name"] for tool in provider.offering().tools] == ["after"]
    assert provider.fingerprint != first
    with fail_after(10):
        result = await provider.call("after", {"x": 3}, meta={}, on_progress=None)
    assert result["structuredContent"] == {"result": 3}
