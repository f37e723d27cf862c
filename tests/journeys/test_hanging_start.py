"""One of fifty servers hangs at its start: everything else goes on without it."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.journeys.running import Gateway, client, gateway, write_config
from tests.journeys.test_reload import telling, until_so

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
HANGING = {"command": sys.executable, "args": ["-S", "-c", "import time; time.sleep(600)"], "timeouts": {"start": 12}}


def asked(running: Gateway, path: str) -> tuple[int, Any]:
    """The status and the JSON of a page."""
    try:
        with urllib.request.urlopen(running.url.replace("/mcp", path), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.requirement("F01")
async def test_a_server_that_hangs_holds_up_neither_readiness_nor_lists_and_fails_alone(tmp_path: Path):
    names = [f"s{number}" for number in range(49)]
    write_config(tmp_path, {"hanging": HANGING, **{name: telling(name) for name in names}})
    with gateway(tmp_path) as running:

        async def ready() -> bool:
            status, told = await anyio.to_thread.run_sync(asked, running, "/readyz")
            assert status == 200 or told["starting"], told
            assert "hanging" in told["starting"]
            return bool(status == 200)

        def states() -> dict[str, str]:
            return {server["name"]: server["state"] for server in asked(running, "/api/v1/servers")[1]["servers"]}

        await until_so(ready)
        async with client("http", "2025-11-25", surface="static", running=running) as agent:
            await agent.list_tools()
            assert states()["hanging"] != "failed", "the list has not waited for it"

            async def all_others_are_listed() -> bool:
                return len((await agent.list_tools()).tools) == 2 * len(names)

            await until_so(all_others_are_listed)

        async def has_failed() -> bool:
            return (await anyio.to_thread.run_sync(states))["hanging"] == "failed"

        with anyio.fail_after(60):
            while not await has_failed():  # noqa: ASYNC110  its own time is up then
                await anyio.sleep(0.1)
        assert {name for name, state in states().items() if state == "failed"} == {"hanging"}
