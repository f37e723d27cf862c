"""Logs of a gateway that is served: time, level and one line each, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portico.config import load_settings
from portico.surfaces.cli.output_and_logs import JsonLines, TextLines, begin_logs, set_level
from tests.journeys.running import gateway, portico, write_config

LOGS = pytest.mark.requirement("P-LOG-FORMAT")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
TEXT = re.compile(rf"{TIME} (DEBUG|INFO|WARNING|ERROR) [\w.]+: .+")


@pytest.fixture
def untouched() -> Iterator[None]:
    """The loggers as they were, afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("portico")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:], root.level, ours.level = before


def record(message: str, *args: object, error: bool = False) -> logging.LogRecord:
    found = None
    if error:
        try:
            raise ValueError("no")
        except ValueError:
            found = sys.exc_info()
    made = logging.LogRecord("portico.x", logging.WARNING, __file__, 1, message, args, found)
    made.created = 1_700_000_000.5
    return made


@LOGS
def test_a_line_of_text_has_time_level_and_logger():
    assert TextLines().format(record("it is %s", "away")) == "2023-11-14T22:13:20.500Z WARNING portico.x: it is away"
    assert "ValueError: no" in TextLines().format(record("x", error=True))
    forged = TextLines().format(record("it said: %s", "x\n2023-11-14T22:13:20.500Z ERROR portico.y: forged"))
    assert [line.startswith("2023") for line in forged.splitlines()] == [True, False]


@LOGS
def test_a_json_line_is_one_object_whatever_is_said():
    line = JsonLines().format(record('two\nlines of "%s" \x1b[31m', "ü", error=True))
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("error").endswith("ValueError: no")
    assert told == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "logger": "portico.x",
        "message": 'two\nlines of "ü" \x1b[31m',
    }


@LOGS
@pytest.mark.parametrize(
    ("level", "ours", "others"),
    [("debug", 10, 20), ("info", 20, 30), ("warning", 30, 30), ("error", 40, 40), ("", 30, 30)],
)
def test_what_other_libraries_say_below_a_warning_is_for_debug_alone(
    untouched: None, level: str, ours: int, others: int
):
    begin_logs()
    set_level(level)
    assert logging.getLogger("portico.wiring").getEffectiveLevel() == ours
    assert logging.getLogger("mcp.server").getEffectiveLevel() == others


@LOGS
def test_the_config_may_say_it(tmp_path: Path):
    file = tmp_path / "portico.yaml"
    file.write_text("log: {level: info, format: json}")
    settings = load_settings(str(file), {"PORTICO_HOME": str(tmp_path)}, tmp_path)
    assert (settings.problems, settings.log.level, settings.log.format) == ((), "info", "json")
    file.write_text("log: {level: loud, format: xml, colour: red}")
    problems = load_settings(str(file), {"PORTICO_HOME": str(tmp_path)}, tmp_path).problems
    assert sorted(str(problem.where) for problem in problems) == ["log.colour", "log.format", "log.level"]


BROKEN = {"missing": {"command": "no-such-command-anywhere"}, "odd": {"nothing": 1}}


@LOGS
def test_a_served_gateway_logs_lines_with_time_and_level(tmp_path: Path):
    write_config(tmp_path, BROKEN, store="memory")
    with gateway(tmp_path, "--log-level", "info") as running:
        pass
    lines = [line.rstrip("\n") for line in running.said if not line.startswith("portico: serving ")]
    assert lines
    assert [line for line in lines if not TEXT.fullmatch(line) and not line.startswith("    ")] == []


@LOGS
@pytest.mark.parametrize("how", ["option", "config"])
def test_a_served_gateway_logs_json(tmp_path: Path, how: str):
    write_config(tmp_path, BROKEN, store="memory", log={"format": "json"} if how == "config" else {})
    with gateway(tmp_path, *(["--log-format", "json"] if how == "option" else [])) as running:
        pass
    told = [json.loads(line) for line in running.said]
    assert {"serving"} <= {line["message"].split()[0] for line in told}
    assert any(line["level"] == "warning" and "odd" in line["message"] for line in told)
    assert all(re.fullmatch(TIME, line["time"]) for line in told)


@LOGS
def test_a_word_that_is_not_known_ends_the_start(tmp_path: Path):
    write_config(tmp_path, {}, store="memory")
    for options in (["--log-level", "loud"], ["--log-format", "xml"]):
        done = portico(tmp_path, "serve", "--port", "0", *options)
        assert done.returncode == 3
        assert options[0] in done.stderr
        assert "Choose one of" in done.stderr


@LOGS
def test_commands_speak_to_people(tmp_path: Path):
    write_config(tmp_path, BROKEN, store="memory")
    listed = portico(tmp_path, "list")
    assert not re.search(TIME, listed.stderr)
