"""A gateway's part in small: starts a server or a command, says so, and stays until it is killed; for the supervisor.

`family.py KIND FILE [DELAY]`: each process of the family writes its id to FILE, one line each.
"""

from __future__ import annotations

import asyncio
import sys

from portico.domain.server import ServerSpec, Timeouts
from portico.providers.mcp import UpstreamProvider
from portico.providers.processes import run_program

MEMBER = """
import os, signal, sys, time
file, depth, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open(file, "a") as log:
    log.write(f"{os.getpid()}\\n")
if depth and os.fork() == 0:
    if kind == "session":
        os.setsid()
    if kind == "daemon":
        os.setsid()
        if os.fork():
            os._exit(0)
    os.execv(sys.executable, [sys.executable, "-S", "-c", sys.orig_argv[3], file, str(depth - 1), kind])
time.sleep(600)
"""
"""Ignores the end of its input and every polite request."""


async def main() -> None:
    """Start the family, whose server never answers."""
    kind, file = sys.argv[1:3]
    argv = [sys.executable, "-S", "-c", MEMBER, file, "2", kind]
    print("starting", flush=True)
    if kind == "command":
        await run_program(argv, environment={}, folder=None, seconds=600)
        return
    spec = ServerSpec(
        name="s", transport="stdio", command=argv[0], args=tuple(argv[1:]), timeouts=Timeouts(start=600, idle=0)
    )
    await UpstreamProvider(spec, on_change=print, on_notice=lambda *_: None, client_version="1").offer()


if __name__ == "__main__":
    if sys.argv[3:] == ["uvloop"]:
        import uvloop

        uvloop.run(main())
    else:
        asyncio.run(main())
