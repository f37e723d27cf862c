"""The upstream of the benchmark: one echo tool, as cheap as the SDK can serve it, over HTTP or stdio.

The echo comes back reversed: a gateway's error message may well repeat the arguments, but never this.
"""

from __future__ import annotations

import argparse
from typing import Any

import anyio
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

Context = ServerRequestContext[Any, Any]
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
_TOOL = Tool(name="echo", description="Return the text, last letter first", input_schema=_SCHEMA)


async def _list_tools(_ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[_TOOL])


async def _call_tool(_ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=str((params.arguments or {})["text"])[::-1])])


async def _serve_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve on stdio, or on HTTP when a port is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int)
    port = parser.parse_args().port
    # Without the schema at hand the SDK lists all tools on every call.
    server: Server[Any] = Server(
        "echo",
        version="1.0.0",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        get_tool_input_schema=lambda name: _SCHEMA if name == "echo" else None,
    )
    if port is None:
        anyio.run(_serve_stdio, server)
    else:
        app = server.streamable_http_app(json_response=True, stateless_http=True)
        uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
