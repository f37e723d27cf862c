"""One surface over stdin and stdout."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

from .early_start import EarlyPipe
from .server import SurfaceServer

_CHANGED = {"tools": "notifications/tools/list_changed"}
"""What a client is told when a list that it was given early is not what it is now."""


async def serve_stdio(server: SurfaceServer, pipe: EarlyPipe | None = None) -> None:
    """Serve one client until it closes our stdin; nothing but protocol goes to stdout.

    A `pipe` that has answered opening messages already is taken over, with all that the client has sent.
    """
    options = server.create_initialization_options()
    if pipe is None:
        async with stdio_server() as (read, write):
            await server.run(read, write, options)
        return
    stdin, stdout = await anyio.to_thread.run_sync(pipe.hand_over)
    async with stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as (read, write):
        await server.run(read, Unanswered(write, pipe.answers.given), options)


class _Stream(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Unanswered:
    """A stream to the client that leaves out the answers which it has got already."""

    stream: _Stream
    given: dict[int | str, dict[str, Any]]

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message, unless it answers a request for the second time."""
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id not in self.given:
            await self.stream.send(item)
            return
        early = self.given.pop(message.id)
        now = message.result if isinstance(message, JSONRPCResponse) else {}
        for key, method in _CHANGED.items():
            if key in early and early[key] != now.get(key):
                await self.stream.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method)))

    async def aclose(self) -> None:
        """Close the stream."""
        await self.stream.aclose()

    async def __aenter__(self) -> Self:
        """Use the stream."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the stream."""
        await self.aclose()
