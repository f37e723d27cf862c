"""`portico calls`: single calls out of the journal, and those to come."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.running import environment, portico, write_config

pytestmark = pytest.mark.requirement("P-CALLS-LISTED")
TOOLS = """
def handle_add(a: int, b: int) -> int:
    'Add two numbers.'
    return a + b

def handle_fail(secret: str) -> int:
    'Fail.'
    raise ValueError("no")
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("calls")
    (home / "tools.py").write_text(TOOLS)
    write_config(home, {}, python=["tools.py"])
    assert portico(home, "call", "add", '{"a": 1, "b": 2}').returncode == 0
    portico(home, "call", "fail", '{"secret": "hunter2"}')
    portico(home, "call", "no_such_tool")
    return home


def test_calls_are_shown_newest_last_without_their_values(home: Path):
    shown = portico(home, "calls")
    assert shown.returncode == 0, shown.stderr
    heading, *lines = shown.stdout.splitlines()
    assert heading.split()[:3] == ["time", "tool", "outcome"]
    assert [line.split()[2] for line in lines] == ["done", "failed", "invalid"]
    assert "hunter2" not in shown.stdout
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)


@pytest.mark.parametrize(
    ("options", "outcomes"),
    [
        (["-n", "1"], ["invalid"]),
        (["--limit", "2"], ["failed", "invalid"]),
        (["--tool", "add"], ["done"]),
        (["--outcome", "failed"], ["failed"]),
        (["--server", "local"], None),
        (["--caller", "nobody"], []),
        (["--since", "1h"], ["done", "failed", "invalid"]),
        (["--since", "2200-01-01"], []),
    ],
)
def test_calls_are_filtered(home: Path, options: list[str], outcomes: list[str] | None):
    shown = portico(home, "calls", "--json", *options)
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)["calls"]
    assert outcomes is None or [call["outcome"] for call in told] == outcomes


def test_nothing_found_is_said(home: Path):
    shown = portico(home, "calls", "--caller", "nobody")
    assert (shown.returncode, shown.stdout) == (0, "No call in the journal is so.\n")


@pytest.mark.parametrize("options", [["--outcome", "odd"], ["--since", "soon"]])
def test_a_filter_that_cannot_be_is_named(home: Path, options: list[str]):
    shown = portico(home, "calls", *options)
    assert shown.returncode == 3
    assert options[0] in shown.stderr


@pytest.mark.timeout(60)
def test_calls_are_followed_each_once(home: Path):
    command = [sys.executable, "-m", "portico", "calls", "--follow", "--json", "-n", "1"]
    env = {**environment(home), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        for number in range(2):
            assert portico(home, "call", "add", json.dumps({"a": number, "b": 2})).returncode == 0
        later = [json.loads(process.stdout.readline()) for _ in range(2)]
    finally:
        process.send_signal(2)
        process.wait(20)
        if process.stdout:
            process.stdout.close()
    assert process.returncode == 0
    assert [call["outcome"] for call in later] == ["done", "done"]
    assert first["id"] < later[0]["id"] < later[1]["id"]
