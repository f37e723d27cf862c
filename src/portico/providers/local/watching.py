"""Follows files by looking at them, and loads tools again when their files change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import anyio
import anyio.to_thread

from .modules import Loaded, ToolModules

Mark = tuple[int, int]
"""When a file was changed, and its size; (0, 0) when it is not there."""


async def watch(
    paths: Callable[[], Iterable[Path]], on_change: Callable[[set[Path]], Awaitable[None]], every: float = 1.0
) -> None:
    """Look at the files again and again, and tell which have changed, come or gone; runs until it is cancelled."""
    known = await anyio.to_thread.run_sync(_look, paths)
    while True:
        await anyio.sleep(every)
        now = await anyio.to_thread.run_sync(_look, paths)
        changed = {path for path in known.keys() | now.keys() if known.get(path) != now.get(path)}
        known = now
        if changed:
            await on_change(changed)


async def follow(modules: ToolModules, on_loaded: Callable[[Loaded], None], every: float = 1.0) -> None:
    """Load tools again whenever their files change, in a thread; runs until it is cancelled."""

    async def load(changed: set[Path]) -> None:
        on_loaded(await anyio.to_thread.run_sync(modules.reload, changed))

    await watch(modules.files, load, every)


def _look(paths: Callable[[], Iterable[Path]]) -> dict[Path, Mark]:
    return {path: _mark(path) for path in paths()}


def _mark(path: Path) -> Mark:
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)
