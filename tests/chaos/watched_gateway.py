"""`portico serve` that tells on SIGUSR2 what it holds: `python watched_gateway.py FILE serve ...`.

It writes one line of JSON for each signal: tasks, descriptors, threads, sessions, memory, and the objects that the
garbage collector knows, after it has collected. `TRACED` in the environment counts what Python allocates, `FILES`
says how many descriptors it may have.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import uvicorn

from portico.__main__ import main
from portico.surfaces.mcp import http

KINDS = 12
"""Kinds of objects that are named, the most frequent first."""
OPEN: list[http.OpenSessions] = []


def holdings() -> dict[str, Any]:
    """What this process holds now."""
    gc.collect()
    found = gc.get_objects()
    kinds = Counter(type(one).__name__ for one in found)
    lines = Path("/proc/self/status").read_text().splitlines()
    return {
        "tasks": len(asyncio.all_tasks()),
        "fds": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "sessions": sum(len(one.by_use) for one in OPEN),
        "rss": next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS")),
        "traced": tracemalloc.get_traced_memory()[0],
        "objects": len(found),
        "kinds": dict(kinds.most_common(KINDS)),
    }


def serve_watched(file: Path) -> None:
    """Run the command of this process, with an ear for the signal beside its web server."""
    plain, open_sessions = uvicorn.Server.startup, http.OpenSessions

    def kept(most: int) -> http.OpenSessions:
        OPEN.append(open_sessions(most))  # the collector does not tell of what was there at the start
        return OPEN[-1]

    def tell() -> None:
        with file.open("a") as told:
            told.write(json.dumps(holdings()) + "\n")

    async def startup(self: uvicorn.Server, *args: Any, **options: Any) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, tell)
        await plain(self, *args, **options)

    uvicorn.Server.startup = startup  # type: ignore[method-assign]
    http.OpenSessions = kept  # type: ignore[assignment, misc]
    if files := os.environ.get("FILES"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    if "TRACED" in os.environ:
        tracemalloc.start()
    main()


if __name__ == "__main__":
    holdings_file = Path(sys.argv.pop(1))
    sys.argv[0] = "portico"
    serve_watched(holdings_file)
