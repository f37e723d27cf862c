"""An upstream server with everything that the conformance suite's server scenarios ask for, in both eras.

`python tests/conformance/fixture_server.py` speaks stdio, `... --port 3001` streamable HTTP.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    JSONRPCMessage,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.conformance import content
from tests.conformance.asking import Context
from tests.conformance.asking_tools import ASKING
from tests.conformance.tools import BUS, PLAIN, SCHEMAS

_HANDLERS = {**PLAIN, **ASKING}
_CACHED = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")


def _schema(name: str) -> dict[str, Any] | None:
    return SCHEMAS.get(name, {"type": "object", "properties": {}}) if name in _HANDLERS else None


_TOOLS = [
    Tool(name=name, description=handler.__doc__, input_schema=_schema(name) or {})
    for name, handler in _HANDLERS.items()
]


async def _list_tools(_ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=_TOOLS)


async def _call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
    if params.name not in _HANDLERS:
        raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {params.name}")
    return await _HANDLERS[params.name](ctx, params)


class Events(EventStore):
    """Keeps every event of a stream in memory, so that a client that lost its stream can have the rest."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Remember one event under the next number."""
        self._events.append((stream_id, message))
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send again what came after an event in the same stream."""
        last = int(last_event_id)
        if not 0 < last <= len(self._events):
            return None
        stream_id = self._events[last - 1][0]
        for number, (stream, message) in enumerate(self._events[last:], start=last + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


def build() -> Server[Any]:
    """The server with all its handlers."""
    server: Server[Any] = Server(
        "conformance-fixture",
        version="1.0.0",
        description="Everything that the conformance suite asks for",
        cache_hints={method: CacheHint(ttl_ms=60_000, scope="public") for method in _CACHED},
        get_tool_input_schema=_schema,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=content.list_resources,
        on_list_resource_templates=content.list_templates,
        on_read_resource=content.read_resource,
        on_subscribe_resource=content.accept,
        on_unsubscribe_resource=content.accept,
        on_subscriptions_listen=ListenHandler(BUS),
        on_list_prompts=content.list_prompts,
        on_get_prompt=content.get_prompt,
        on_completion=content.complete,
        on_set_logging_level=content.accept,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    return server


async def _serve_stdio(server: Server[Any]) -> None:
    changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options(changes))


def main() -> None:
    """Serve on stdio, or on HTTP when a port is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, help="serve streamable HTTP on this port of 127.0.0.1, at /mcp")
    port = parser.parse_args().port
    # Logging and its relatives are deprecated, and the suite tests them for the older clients.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    server = build()
    if port is None:
        anyio.run(_serve_stdio, server)
    else:
        app = server.streamable_http_app(event_store=Events(), retry_interval=100)
        # h11 and not httptools, which leaves the blanks after a header value that HTTP says are not part of it.
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", http="h11")


if __name__ == "__main__":
    main()
