"""Tools of one's own: a file with functions and one with definitions, behind a real gateway."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from tests.journeys.running import client, gateway, portico, text_of, write_config

PYTHON = '''
def handle_sales_total(region: str, year: int = 2026) -> dict:
    """Add up the sales of a region.

    Args:
        region: where
        year: when
    """
    return {"region": region, "year": year, "total": 12}
'''
REPORT = '''
def handle_sales_report(
    region: str, year: int = 2026, currency: str = "EUR", include_returns: bool = False, limit: int = 50
) -> dict:
    """Report the sales of a region by product, with totals and the change against the year before.

    Arguments:
      region          - the region as it is spelled in the table of regions, or "all" for every one of them
      year            - the calendar year to report; years before 2015 are not available
      currency        - the currency that amounts are converted to, at the average rate of the year
      include_returns - whether returned goods are taken off the amounts of the month in which they were sold
      limit           - the most products to list; the others are added up under "other"

    Returns:
      rows with product, amount, share and change, the totals, and the notes that the finance team has left
    """
    return {}
'''
YAML = "sales_top: {type: tool, description: The best, sql: SELECT name FROM customers ORDER BY name LIMIT 1}\n"


def furnished(home: Path) -> Path:
    write_config(home, {}, python=["tools.py"], yaml=["*.tools.yml"], surface="search", pins=["sales_total"])
    (home / "tools.py").write_text(PYTHON)
    (home / "own.tools.yml").write_text(YAML)
    return home


@pytest.mark.requirement("S0-1", "S0-48", "S0-67")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_functions_and_definitions_are_found_and_called_like_any_tool(tmp_path: Path, era: str) -> None:
    with gateway(furnished(tmp_path), "--profile", "all") as running:
        async with client("http", era, surface="search", running=running) as connected:
            listed = [tool.name for tool in (await connected.list_tools()).tools]
            assert listed == ["search_tool", "execute_tool", "sales_total"]
            found = json.loads(text_of(await connected.call_tool("search_tool", {"query": "sales"})))
            assert {tool["name"] for tool in found["tools"]} >= {"sales_total", "sales_top"}
            total = await connected.call_tool("sales_total", {"region": "north"})
            assert json.loads(text_of(total)) == {"region": "north", "year": 2026, "total": 12}
            top = await connected.call_tool("execute_tool", {"tool_name": "sales_top", "arguments": {}})
            assert len(json.loads(text_of(top))["rows"]) == 1


@pytest.mark.requirement("S0-2", "S0-77", "F39")
async def test_a_changed_file_is_loaded_again_and_a_broken_one_keeps_what_was_there(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    with gateway(home, "--reload") as running:
        async with client("http", "2025-11-25", surface="search", running=running) as connected:

            async def names() -> set[str]:
                return set(json.loads(text_of(await connected.call_tool("search_tool", {"query": ""})))["tools"])

            assert "sales_total" in await names()
            (home / "tools.py").write_text(PYTHON.replace("sales_total", "sales_sum"))
            with anyio.fail_after(20):
                while "sales_sum" not in await names():  # noqa: ASYNC110  another process reads the file
                    await anyio.sleep(0.1)
            assert "sales_total" not in await names()
            (home / "tools.py").write_text("def handle_(:")
            with anyio.fail_after(20):
                while not any("tools.py" in line for line in running.said):  # noqa: ASYNC110  another process says it
                    await anyio.sleep(0.05)
            assert "sales_sum" in await names()


def test_what_is_wrong_with_a_file_is_named_and_the_rest_works(tmp_path: Path) -> None:
    write_config(tmp_path, {}, python=["tools.py", "broken.py", "gone.py"], yaml=["bad.yml"])
    (tmp_path / "tools.py").write_text(PYTHON)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "bad.yml").write_text("x: [")
    called = portico(tmp_path, "call", "sales_total", "region=north")
    assert called.returncode == 0, called.stderr
    checked = portico(tmp_path, "doctor")
    said = checked.stdout + checked.stderr
    for words in ("broken.py", "nothing_of_that_name", "gone.py", "bad.yml"):
        assert words in said
    assert "Traceback" not in said


@pytest.mark.requirement("S0-72", "S0-79")
def test_a_hundred_and_twenty_functions_cost_a_hundredth_of_listing_them(tmp_path: Path) -> None:
    text = "\n".join(REPORT.replace("sales_report", f"sales_report_{n}") for n in range(120))
    write_config(tmp_path, {}, python=["tools.py"], surface="search")
    (tmp_path / "tools.py").write_text(text)
    bill = json.loads(portico(tmp_path, "tokens", "--json").stdout)
    assert bill["servers"][0]["tools"] == 120
    assert bill["after"] <= 0.01 * bill["before"], (bill["after"], bill["before"])
    assert bill["saved"] >= 0.99, "which is told"


HOSTILE = '''
import os, pathlib, subprocess, time

os.write(1, b"raw words on stdout\\n")
subprocess.run(["echo", "words of a child"], check=True)

async def handle_block(until: pathlib.Path) -> str:
    """Block without awaiting, until there is a file."""
    while not until.exists():
        time.sleep(0.01)
    return "blocked"
'''


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_an_async_function_that_blocks_and_a_broken_module_leave_the_gateway_as_it_is(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    write_config(home, {}, python=["tools.py", "hostile.py", "broken.py"], surface="static")
    (home / "hostile.py").write_text(HOSTILE)
    (home / "broken.py").write_text("raise BaseException('no')\n")
    with gateway(home) as running:
        assert any("broken.py" in line and "BaseException: no" in line for line in running.said), running.said
        async with (
            client("http", "2025-11-25", surface="static", running=running) as first,
            client("http", "2025-11-25", surface="static", running=running) as second,
            anyio.create_task_group() as tasks,
        ):
            answers: list[str] = []

            async def block() -> None:
                answers.append(text_of(await first.call_tool("block", {"until": str(home / "end")})))

            tasks.start_soon(block)
            with anyio.fail_after(30):
                total = await second.call_tool("sales_total", {"region": "north"})
                while not any("'block' blocks its event loop" in line for line in running.said):
                    await second.call_tool("block", {"until": str(home)})
            assert json.loads(text_of(total))["total"] == 12
            assert answers == []
            (home / "end").touch()
        assert answers == ["blocked"]


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_what_an_import_writes_to_stdout_does_not_disturb_a_client_over_stdio(tmp_path: Path) -> None:
    write_config(tmp_path, {}, python=["hostile.py"], surface="static")
    (tmp_path / "hostile.py").write_text(HOSTILE)
    with anyio.fail_after(60):
        async with client("stdio", "2025-11-25", surface="static", home=tmp_path) as connected:
            assert text_of(await connected.call_tool("block", {"until": str(tmp_path)})) == "blocked"
    listed = portico(tmp_path, "list", "--json")
    assert json.loads(listed.stdout), listed.stdout
