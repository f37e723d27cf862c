"""Each server of the fleet starts from its entry and lists the tools that we count on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TextIO

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.fleet.install import FLEET
from tests.fleet.packages import FleetUnavailable

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("name", FLEET)
def test_server_starts_and_lists_its_tools(name: str, tmp_path: Path) -> None:
    try:
        FLEET[name].install()
    except FleetUnavailable as reason:
        pytest.skip(f"fleet server {name} is not available: {reason}")
    with Path(os.devnull).open("w") as quiet:
        listed = anyio.run(_listed, FLEET[name].entry(tmp_path), quiet)
    assert listed >= FLEET[name].tools


async def _listed(entry: dict[str, object], log: TextIO) -> set[str]:
    transport = stdio_client(StdioServerParameters.model_validate(entry), errlog=log)
    with anyio.fail_after(60):
        async with Client(transport, mode="legacy") as client:
            return {tool.name for tool in (await client.list_tools()).tools}
