"""One surface over stdin and stdout."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from .server import SurfaceServer


async def serve_stdio(server: SurfaceServer) -> None:
    """Serve one client until it closes our stdin; nothing but protocol goes to stdout."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
