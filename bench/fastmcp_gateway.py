"""A FastMCP proxy in front of one upstream, for comparison; run with the Python of FastMCP's own environment."""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvicorn
from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
from fastmcp.server.providers.proxy import FastMCPProxy


async def _serve(proxy: FastMCP, port: int) -> None:
    # Everything that makes it fast, as for the others: no event streams, no sessions, uvloop and httptools.
    app = proxy.http_app(path="/mcp", json_response=True, stateless_http=True)
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")).serve()


async def _shared(target: str | StdioTransport, port: int) -> None:
    async with Client(target) as client:
        await _serve(FastMCPProxy(client_factory=lambda: client), port)


def main() -> None:
    """Serve in front of an address, or of a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--url", help="address of the upstream")
    parser.add_argument("--shared", action="store_true", help="one client for all calls, and not the default")
    parser.add_argument("command", nargs="*", help="command of a stdio upstream")
    options = parser.parse_args()
    target = options.url or StdioTransport(options.command[0], options.command[1:])
    run = _shared(target, options.port) if options.shared else _serve(create_proxy(target), options.port)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        print("uvloop is missing: the comparison would not be fair", file=sys.stderr)
        return None
    return uvloop.Loop


if __name__ == "__main__":
    main()
