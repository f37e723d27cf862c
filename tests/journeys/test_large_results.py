"""Large results through a real gateway: they fit, nothing is lost, and memory is given back."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from mcp import Client

from portico.rendering.budget import TokenEstimate
from tests.journeys.large_server import rows
from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config
from tests.journeys.test_store_away import refusing

pytestmark = [pytest.mark.timeout(180), pytest.mark.anyio]

LARGE = {"command": sys.executable, "args": [str(Path(__file__).with_name("large_server.py"))]}
LIMIT = 1_500
COUNT = 5_000
COUNTER = TokenEstimate()
MEGABYTE = 1_000_000


def home_with_large_server(home: Path, **rest: Any) -> Path:
    write_config(home, {"large": {**LARGE, "result_tokens": LIMIT}}, **rest)
    asked = portico(home, "refresh")
    assert asked.returncode == 0, asked.stderr
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_large_server(tmp_path_factory.mktemp("large"), pins=["large.typed"])


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as found:
        yield found


def handle(text: str) -> str:
    found = re.search(r'read_result\(\{"id": "(r_[\w-]+)"\}\)', text)
    assert found, text
    return found[1]


async def rows_of(connected: Client, count: int = COUNT) -> Any:
    return await connected.call_tool("call_tool", {"name": "large.rows", "arguments": {"count": count}})


@pytest.mark.requirement("P-RESULTS-FIT", "P-RESULTS-READ")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_a_large_result_is_shortened_and_read_to_its_end(
    running: Gateway, home: Path, transport: str, era: str
) -> None:
    async with client(transport, era, surface="discover", running=running, home=home) as connected:
        result = await rows_of(connected)
        assert COUNTER.count(text_of(result)) <= LIMIT
        found = json.loads(result.content[0].text)["rows"]
        notice = result.content[-1].text
        assert f"of {COUNT:,} items" in notice
        assert "narrow with offset, fields" in notice
        assert "shape: {rows: [{n: integer, mail: string, text: string}], total: integer}" in notice
        arguments: dict[str, str] | None = {"id": handle(notice)}
        while arguments:
            page = await connected.call_tool("read_result", arguments)
            assert COUNTER.count(text_of(page)) <= LIMIT
            value = json.loads(page.content[0].text)
            found += value if isinstance(value, list) else []
            on = re.search(r"read_result\((\{.*\})\)", page.content[1].text)
            arguments = json.loads(on[1]) if on else None
        assert found == rows(COUNT)["rows"]


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize("era", ERAS)
async def test_a_result_is_searched_selected_from_and_refused_with_advice(running: Gateway, era: str) -> None:
    async with client("http", era, surface="discover", running=running) as connected:
        id = handle(text_of(await rows_of(connected)))

        async def read(**asked: str) -> tuple[str, bool]:
            result = await connected.call_tool("read_result", {"id": id, **asked})
            return text_of(result), bool(result.is_error)

        found, _ = await read(grep="USER4321@")
        assert found.startswith('4321: {"n":4321,"mail":"user4321@example.com"')
        assert (await read(path="rows[4999].mail"))[0].startswith("user4999@example.com")
        text, is_error = await read(path="rows[")
        assert is_error
        assert "path: Invalid jmespath expression" in text
        assert f'next: read_result({{"id": "{id}"}})' in text
        unknown = await connected.call_tool("read_result", {"id": "r_AAAAAAAAAAAAAAAA"})
        assert unknown.is_error
        assert "error unknown_result" in text_of(unknown)


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("surface", "name"), [("static", "large__typed"), ("discover", "large__typed")])
async def test_a_client_that_checks_structured_content_accepts_the_preview(
    running: Gateway, era: str, surface: str, name: str
) -> None:
    async with client("http", era, surface=surface, running=running) as connected:
        await connected.list_tools()  # from now on the client holds us to the output schema
        result = await connected.call_tool(name, {"count": COUNT})
        shown = result.structured_content
        assert shown["total"] == COUNT
        assert shown["rows"] == rows(len(shown["rows"]))["rows"]
        assert COUNTER.count(json.dumps(shown, separators=(",", ":"))) <= LIMIT
        page = await connected.call_tool("read_result", {"id": handle(text_of(result)), "cursor": "4999"})
        assert json.loads(page.content[0].text) == rows(COUNT)["rows"][-1:]


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("era", ERAS)
async def test_a_picture_passes_beside_a_text_that_is_cut(running: Gateway, era: str) -> None:
    async with client("http", era, surface="search", running=running) as connected:
        asked = {"tool_name": "large__scan", "arguments": {"count": COUNT}}
        result = await connected.call_tool("execute_tool", asked)
        assert [block.type for block in result.content] == ["image", "text", "text"]
        lines = result.content[1].text.split("\n")
        assert lines == [f"line {n} of the log" for n in range(len(lines))]
        assert f"shortened: {len(lines)} of {COUNT:,} lines" in result.content[2].text


@pytest.mark.requirement("P-RESULTS-WHOLE")
def test_the_command_line_prints_the_whole(home: Path) -> None:
    called = portico(home, "call", "large.rows", f"count={COUNT}")
    assert json.loads(called.stdout) == rows(COUNT)


@pytest.mark.requirement("P-SHAPES")
async def test_a_shape_is_known_after_a_restart(tmp_path: Path) -> None:
    home = home_with_large_server(tmp_path)
    called = portico(home, "call", "large.rows", "count=3")
    assert called.returncode == 0, called.stderr
    described = portico(home, "describe", "large.rows").stdout
    line = "returns: {rows: [{n: integer, mail: string, text: string}], total: integer} (learned from 1 call)"
    assert line in " ".join(described.split())
    assert "example.com" not in described


@pytest.mark.requirement("P-RESULTS-HANDLES")
async def test_a_result_in_the_store_outlasts_the_gateway(tmp_path: Path) -> None:
    home = home_with_large_server(tmp_path, results={"memory_mb": 0})
    with gateway(home) as first:
        async with client("http", "2026-07-28", surface="discover", running=first) as connected:
            id = handle(text_of(await rows_of(connected)))
    with gateway(home) as second:
        async with client("http", "2025-11-25", surface="discover", running=second) as connected:
            page = await connected.call_tool("read_result", {"id": id, "grep": "user4999@"})
            assert text_of(page).startswith('4999: {"n":4999')


@pytest.mark.requirement("P-RESULTS-HANDLES")
async def test_while_the_store_is_away_the_call_is_answered_and_the_loss_is_told(
    tmp_path: Path, migrated_url: str
) -> None:
    home = home_with_large_server(tmp_path, store=migrated_url, results={"memory_mb": 0})
    with gateway(home) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            assert "read_result" in text_of(await rows_of(connected))
            with refusing(migrated_url):
                result = await rows_of(connected)
                assert not result.is_error
                assert len(json.loads(result.content[0].text)["rows"]) > 10
                assert "the rest is lost" in result.content[-1].text


@pytest.mark.requirement("P-RESULTS-FIT", "P-RESULTS-HANDLES")
async def test_fifty_megabytes_fit_and_their_memory_is_given_back(tmp_path: Path) -> None:
    home = home_with_large_server(tmp_path, results={"memory_mb": 1})
    with gateway(home) as running:
        async with client("http", "2026-07-28", surface="discover", running=running) as connected:
            await rows_of(connected, 1_000)
            before = await to_thread.run_sync(memory, running.process.pid)
            result = await rows_of(connected, 630_000)
            after = await to_thread.run_sync(memory, running.process.pid)
            assert COUNTER.count(text_of(result)) <= LIMIT
            json.loads(result.content[0].text)
            assert "of 630,000 items" in text_of(result)
            assert after["VmHWM"] - before["VmRSS"] <= 4 * 50 * MEGABYTE
            assert after["VmRSS"] - before["VmRSS"] <= 50 * MEGABYTE
            page = await connected.call_tool("read_result", {"id": handle(text_of(result)), "cursor": "629999"})
            assert json.loads(page.content[0].text)[0]["n"] == 629_999


def memory(pid: int) -> dict[str, int]:
    """Bytes that a process holds, and the most that it held since it was last asked."""
    status = Path(f"/proc/{pid}/status").read_text()
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return {name: int(re.findall(rf"{name}:\s+(\d+)", status)[0]) * 1024 for name in ("VmRSS", "VmHWM")}
