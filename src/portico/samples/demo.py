"""The demo: sample servers behind the gateway, and the calls of an agent, made with a real MCP client."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import orjson
from mcp import Client
from mcp_types import TextContent

from portico.config import GatewaySettings, find_paths
from portico.domain.server import ServerLabels, ServerSpec
from portico.samples import SAMPLES
from portico.server.run import Serving, serve_over_http, surface_tokens
from portico.surfaces.cli.output_and_logs import say
from portico.surfaces.cli.tool_commands import print_bill

SCRIPT = "local s = calculator.add({ a = 10, b = 20 }):await() result(calculator.sqrt({ x = s.result + 6 }):await())"
STEPS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("search_tools", {"query": "add two numbers"}),
    ("describe_tools", {"names": ["calculator.add"]}),
    ("call_tool", {"name": "calculator.add", "arguments": {"a": 5, "b": 3}}),
    ("search_tools", {"query": "list the datasets", "limit": 2}),
    ("call_tool", {"name": "data_server.list_datasets", "arguments": {}}),
    ("run_script", {"script": SCRIPT}),
    ("call_tool", {"name": "calculator.divide", "arguments": {"a": 1}}),
)


def run_demo(*, once: bool, port: int | None) -> None:
    """Show the gateway in some calls, then keep serving unless `once`."""
    settings = demo_settings()
    chosen = port if port is not None else (0 if once else settings.http.port)
    anyio.run(partial(_serve_and_show, settings, once=once, port=chosen), backend_options={"use_uvloop": True})


def demo_settings() -> GatewaySettings:
    """The sample servers, with a state folder of their own so that nobody's real servers are touched."""
    home = find_paths(os.environ, Path.cwd())
    folder = home.data / "demo"
    specs = tuple(
        ServerSpec(
            name=name,
            transport="stdio",
            command=sys.executable,
            args=("-P", "-m", module),
            labels=ServerLabels(description=about),
        )
        for name, (module, about) in SAMPLES.items()
    )
    return GatewaySettings(home=type(home)(config=folder, data=folder), servers=specs)


async def _serve_and_show(settings: GatewaySettings, *, once: bool, port: int) -> None:
    ready = anyio.Event()
    found: list[Serving] = []

    def on_ready(serving: Serving) -> None:
        found.append(serving)
        ready.set()

    async with anyio.create_task_group() as tasks:
        serve = partial(
            serve_over_http, settings, surface="discover", host=settings.http.host, port=port, on_ready=on_ready
        )
        tasks.start_soon(serve)
        await ready.wait()
        await _show(found[0])
        if once:
            found[0].stop()
        else:
            _say_how_to_connect(found[0].url)


async def _show(serving: Serving) -> None:
    say(f"Portico stands in front of {len(SAMPLES)} sample servers: {', '.join(SAMPLES)}.")
    say("Starting them once to learn their tools ...")
    await serving.application.gateway.wait_until_ready()
    for server, reason in serving.application.admin.refresher.failures.items():
        say(f"  {server} did not start: {reason}")
    say("\nThe token bill, before the first question:\n")
    print_bill(
        serving.application.admin.bill(surface_tokens(serving.application.gateway, scripts=serving.application.scripts))
    )
    async with Client(serving.url) as client:
        tools = (await client.list_tools()).tools
        say(f"\nAn agent connects to {serving.url} and sees {len(tools)} tools: {', '.join(t.name for t in tools)}.")
        for tool, arguments in STEPS:
            await _step(client, tool, arguments)


async def _step(client: Client, tool: str, arguments: Mapping[str, Any]) -> None:
    say(f"\n> {tool}({orjson.dumps(arguments).decode()})")
    result = await client.call_tool(tool, dict(arguments))
    for block in result.content:
        if isinstance(block, TextContent):
            say(block.text)


def _say_how_to_connect(url: str) -> None:
    say(f"\nThe gateway is serving at {url} (stop with Ctrl-C). Paste one of these to connect a client:")
    say(f"  Claude Code:      claude mcp add --transport http portico {url}")
    say(f'  Cursor:           {{"mcpServers": {{"portico": {{"url": "{url}"}}}}}}')
    say(f'  VS Code:          {{"servers": {{"portico": {{"type": "http", "url": "{url}"}}}}}}')
    say("Your own servers:   portico import claude-code --write && portico serve")
    sys.stdout.flush()
