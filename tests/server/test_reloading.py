"""Files of local tools are watched, and tools are loaded again when they change."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio import fail_after

from portico.config import GatewaySettings, InstallationPaths
from portico.domain.server import ConfigChange, ServerSpec
from portico.providers.local_sources import LocalSources
from portico.providers.python.loading import ToolModules
from portico.server.background import Reloader, reload_on_change, watch
from portico.wiring import Parts, assemble

GOOD = 'def handle_{}(x: int) -> int:\n    """Good."""\n    return x\n'


async def test_files_that_change_come_or_go_are_told(tmp_path: Path) -> None:
    path, other, told = tmp_path / "a.py", tmp_path / "deep" / "b.py", set[Path]()
    path.write_text("one")
    modules = ToolModules(["a.py", "**/b*.py"], tmp_path)

    async def on_change(changed: set[Path]) -> None:
        told.update(changed)

    async def told_after(change: Callable[[], object]) -> None:
        """Make the change again until it is told: the watcher may begin only after it."""
        told.clear()
        with fail_after(10):
            while not told:
                change()
                await anyio.sleep(0.1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, modules.files, modules.folders, on_change)
        await told_after(lambda: path.write_text(f"{path.read_text()}1"))
        assert told == {path}
        other.parent.mkdir()
        await told_after(lambda: other.write_text("two"))
        assert told == {other}
        await told_after(lambda: path.unlink(missing_ok=True))
        assert told == {path}
        tasks.cancel_scope.cancel()


@pytest.mark.requirement("S0-2", "S0-77")
async def test_a_saved_file_changes_what_is_offered_while_everything_runs(tmp_path: Path) -> None:
    path, loaded = tmp_path / "tools.py", anyio.Event()
    path.write_text(GOOD.format("before"))
    sources = LocalSources(python=("tools.py",), folder=tmp_path)
    sources.load()
    provider = sources.providers["local"]
    first = provider.fingerprint
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reload_on_change, sources, lambda server: loaded.set())
        with fail_after(10):
            while not loaded.is_set():  # the watcher may begin only after the change
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
    sources.close()


@pytest.mark.requirement("P-RELOAD")
async def test_a_config_that_is_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text("servers: {}\n")
    one = ServerSpec(name="one", transport="stdio", command="one")
    whole = GatewaySettings(home=InstallationPaths(config=tmp_path, data=tmp_path, file=file), servers=(one,))
    readings = [replace(whole, servers=()), whole]

    def read() -> GatewaySettings:
        """What a reader sees of a file of which the first half is there, and then the rest."""
        found = readings.pop(0)
        if readings:
            file.write_text("servers: {one: {command: one}}\n")
        return found

    async with anyio.create_task_group() as tasks:
        reloader = Reloader(application=assemble(Parts(settings=whole)), settings=whole, read=read, tasks=tasks)
        with fail_after(10):
            assert await reloader.reload() == ConfigChange()
    assert readings == []
