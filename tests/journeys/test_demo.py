"""The demo is what a newcomer sees first: it shows the bill and the walk, and ends well however it is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.running import environment, portico

pytestmark = [pytest.mark.timeout(120), pytest.mark.requirement("P-DEMO")]


def test_the_demo_shows_the_bill_and_the_walk(tmp_path: Path):
    shown = portico(tmp_path, "demo", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "calculator, data-server" in shown.stdout
    assert "before, all together" in shown.stdout
    assert "sees 5 tools: search_tools, describe_tools, call_tool, read_result, run_script" in shown.stdout
    assert "calculator.add(a: number, b: number) [read] Add two numbers" in shown.stdout
    assert '> call_tool({"name":"calculator.add","arguments":{"a":5,"b":3}})\n8\n' in shown.stdout
    assert "error invalid_arguments for calculator.divide; nothing was sent" in shown.stdout


@pytest.mark.parametrize("command", [["demo", "--once"], ["list"], ["list", "--json"]])
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, command: list[str]):
    line = [sys.executable, "-m", "portico", *command]
    with subprocess.Popen(
        line, env=environment(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, words = process.communicate(timeout=60)
    assert words == b""
    assert process.returncode == 0
