"""Answers that are nested too deeply, through a real gateway: each is answered, and each is in the journal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.deep_server import PLACES
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.timeout(120), pytest.mark.anyio]

DEEP = {"command": sys.executable, "args": [str(Path(__file__).with_name("deep_server.py"))]}
DEPTHS = (200, 600, 1_000, 100_000)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("deep")
    write_config(home, {"deep": {**DEEP, "timeouts": {"call": 2}}}, journal="durable")
    asked = portico(home, "refresh")
    assert asked.returncode == 0, asked.stderr
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as found:
        yield found


def calls_recorded(home: Path) -> int:
    told: dict[str, Any] = json.loads(portico(home, "stats", "--json").stdout)
    return int(told["calls"])


@pytest.mark.requirement("P-EXECUTED-IS-RECORDED")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("where", PLACES)
async def test_a_deep_answer_is_answered_and_recorded(home: Path, running: Gateway, era: Any, where: str) -> None:
    before = calls_recorded(home)
    async with client("http", era, surface="discover", running=running) as connected:
        for depth in DEPTHS:
            arguments = {"name": "deep.dig", "arguments": {"depth": depth, "where": where}}
            result = await connected.call_tool("call_tool", arguments)
            assert result.content or text_of(result) == ""
        script = f'local r = deep.dig({{depth=600, where="{where}"}}) return "passed"'
        await connected.call_tool("run_script", {"script": script})
    assert calls_recorded(home) == before + len(DEPTHS) + 2  # the script is an entry of its own
