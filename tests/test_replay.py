"""The replay of recorded runs: what is read, what is counted, and what an operator's own journal gives."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.definitions import beside, read_definitions
from bench.made_trace import made_rows
from bench.recorded_runs import Trace, read_trace
from bench.replay import Replay, report

from portico.testing import definition
from tests.house.source import ROOT
from tests.journeys.kit import serving
from tests.journeys.running import ERAS, client, environment, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.requirement("P-REPLAY"), pytest.mark.timeout(120)]

GUIDE = (ROOT / "docs" / "guides" / "replay.md").read_text(encoding="utf-8")
TICKETS = [
    definition("create_ticket", "Create a ticket in the tracker.", title="string"),
    definition("close_ticket", "Close a ticket.", number="integer"),
]
WEATHER = [definition("forecast", "Tell the weather of the next days.", city="string")]
SERVERS = {"tracker": TICKETS, "weather": WEATHER}


def replay(*arguments: str, folder: Path = ROOT, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the bench as `make bench` does."""
    command = [sys.executable, str(ROOT / "bench" / "run.py"), "replay", *arguments]
    return subprocess.run(
        command,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        input=stdin,
        check=False,
    )


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def trace(*rows: Any) -> Trace:
    return read_trace([row if isinstance(row, str) else json.dumps(row) for row in rows], "run.jsonl")


def replayed(*rows: Any, servers: dict[str, Any] = SERVERS, limit: int = 5) -> dict[str, Any]:
    found = Replay(servers, limit)
    return report(found, [found.run(task) for task in trace(*rows).tasks])


def entry(kind: str, second: float, **more: Any) -> dict[str, Any]:
    at = f"2026-01-31T12:{int(second) // 60:02}:{second % 60:06.3f}Z"
    return {"kind": kind, "time": at, "caller": "local", "surface": "discover", **more}


def call(second: float, tool: str | None, outcome: str = "done", rank: int = 1) -> dict[str, Any]:
    return entry("call", second, tool=tool, outcome=outcome, rank=rank)


def test_the_shipped_trace_is_replayed_within_seconds_and_is_not_too_easy():
    found = figures(replay())
    assert (found["tasks"], found["searches"], found["wanted"], found["unknown"]) == (60, 150, 120, {})
    assert 0.85 <= found["wanted_shown"]["with also"]["5"] < 1
    assert found["tokens"]["saved"] > 0.9
    assert 0 < found["failed"] < 20


def test_a_trace_that_is_written_is_the_one_that_is_replayed(tmp_path: Path):
    assert replay("--write", "made.jsonl", folder=tmp_path).returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "made.jsonl").read_text().splitlines()]
    assert rows == list(made_rows())
    given, made = figures(replay("--trace", "made.jsonl", folder=tmp_path)), figures(replay())
    assert {**given, "trace": "made"} == made


def test_figures_are_those_that_one_counts_by_hand():
    found = replayed(
        {
            "task": "a",
            "searches": ["create ticket", "weather forecast"],
            "wanted": ["tracker.create_ticket", "forecast"],
        },
        {"task": "b", "searches": [{"query": "weather forecast", "wanted": ["close_ticket"]}]},
        limit=1,
    )
    assert (found["tasks"], found["searches"], found["wanted"]) == (2, 3, 3)
    assert (found["complete"], found["tasks_judged"], found["failed"]) == (1, 2, 1)


def test_a_tool_that_a_line_names_behind_also_counts_and_is_told_apart():
    servers = {**SERVERS, "desk": TICKETS}
    both = [replayed({"searches": [{"query": "create ticket", "wanted": [f"{one}.create_ticket"]}]}, servers=servers)
            for one in ("tracker", "desk")]  # fmt: skip
    assert [one["searches_hit"]["with also"]["3"] for one in both] == [1, 1]
    assert sorted(one["searches_hit"]["without"]["3"] for one in both) == [0, 1]


def test_any_of_several_tools_meets_a_need():
    found = replayed({"searches": ["weather forecast"], "wanted": [["tracker.close_ticket", "weather.forecast"]]})
    assert (found["wanted"], found["complete"]) == (1, 1)


def test_tools_that_the_catalog_has_not_are_named_and_in_no_share():
    found = replayed(
        {"searches": [{"query": "weather forecast", "wanted": ["forecast", "moon.phase"]}]},
        {"searches": [{"query": "phase of the moon", "wanted": ["moon.phase"]}]},
    )
    assert found["unknown"] == {"moon.phase": 2}
    assert (found["wanted"], found["wanted_shown"]["with also"]["5"]) == (1, 1)
    assert (found["searches_hit"]["with also"]["5"], found["only_unknown"]) == (1, 1)
    assert found["tasks_judged"] == 0, "whether they would have been complete cannot be told"


def test_tokens_are_those_of_the_meta_tools_the_answers_and_the_cards():
    silent = {"searches": ["weather forecast"], "wanted": ["forecast"], "described": []}
    bare, one = replayed(silent)["tokens"], replayed({**silent, "described": ["forecast"]})["tokens"]
    assert bare["with"] == bare["meta_tools"] + bare["searches"]
    assert one["with"] == bare["with"] + one["described"] > bare["with"]
    unsaid = replayed({name: value for name, value in silent.items() if name != "described"})["tokens"]
    assert unsaid == one, "what was read is not recorded: the cards of what is wanted are counted"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"searches": [', "no JSON"),
        ("[1]", "a line is an object"),
        ('{"task": "a"}', "`searches` is missing"),
        ('{"searches": "create"}', "`searches` is a list"),
        ('{"searches": [{"text": "create"}]}', "with a `query`"),
        ('{"searches": ["create"], "wanted": "x"}', "`wanted` is a list"),
        ('{"searches": ["create"], "wanted": [[]]}', "a list of names of tools"),
        ('{"searches": ["create"], "described": [1]}', "`described` is a list of names"),
        ('{"kind": "search", "time": "noon", "caller": "a", "surface": "b", "query": "x"}', "no usable `time`"),
        ('{"kind": "search", "time": "2026-01-31", "caller": "a", "surface": "b"}', "no usable `query`"),
        ('{"kind": "call", "time": "2026-01-31", "caller": "a", "surface": "b", "tool": 1}', "no usable `tool`"),
        ('{"kind": "sarch", "time": "2026-01-31", "caller": "a", "surface": "b"}', "is no kind of entry"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_number(line: str, reason: str):
    good = {"searches": ["create ticket"]}
    (problem,) = trace(good, "", line, good).problems
    assert problem.startswith("run.jsonl:3: ")
    assert reason in problem


def test_nothing_is_replayed_of_a_trace_with_a_bad_line_unless_it_is_left_out(tmp_path: Path):
    (tmp_path / "run.jsonl").write_bytes(b'{"searches": ["export invoice"], "wanted": []}\n{broken\n\xff\n')
    refused = replay("--trace", "run.jsonl", folder=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "run.jsonl:2: " in refused.stderr
    assert "run.jsonl:3: " in refused.stderr
    found = figures(replay("--trace", "run.jsonl", "--skip-bad-lines", folder=tmp_path))
    assert (found["bad_lines"], found["searches"], found["without_wanted"]) == (2, 1, 1)


def test_what_was_called_well_after_a_search_is_what_it_was_for():
    (task,) = trace(
        call(0, "tracker::create_ticket"),
        entry("search", 1, query="create a ticket"),
        call(2, "tracker::close_ticket", "failed"),
        call(3, "tracker::create_ticket", rank=2),
        call(4, None, "invalid"),
        entry("search", 5, query="nothing that is called"),
    ).tasks
    assert [search.wanted for search in task.searches] == [(("tracker::create_ticket",),), ()]
    assert task.searches[0].places == {("tracker::create_ticket",): 2}
    assert task.wanted == (("tracker::create_ticket",),)


def test_silence_a_new_list_and_another_caller_begin_another_task():
    rows = [entry("search", at, query=str(at)) for at in (0, 599, 1300)]
    other = {**entry("search", 600, query="other"), "caller": "b"}
    found = trace(*rows, other, entry("list", 1301), entry("search", 1302, query="1302")).tasks
    assert sorted([search.query for search in task.searches] for task in found) == [
        ["0", "599"],
        ["1300"],
        ["1302"],
        ["other"],
    ]


def test_filters_that_a_journal_has_behind_the_words_are_asked_for_again():
    (task,) = trace(entry("search", 0, query="create a ticket server=tracker&read_only=True&max_latency_ms=5.0")).tasks
    (search,) = task.searches
    assert search.query == "create a ticket"
    assert search.filters == {"server": "tracker", "read_only": True, "max_latency_ms": 5.0}


def test_a_filter_that_names_nothing_here_is_left_out_and_counted():
    found = Replay(SERVERS)
    (task,) = trace({"searches": [{"query": "weather", "server": "gone"}], "wanted": ["forecast"]}).tasks
    assert found.run(task).searches[0].is_hit(3)
    assert found.dropped_filters == 1


def test_definitions_are_read_in_each_form_and_no_server_is_lost(tmp_path: Path):
    file = tmp_path / "definitions.json"
    rows = [{"server": "a", "tools": TICKETS}, {"server": "a", "tools": WEATHER}]
    file.write_text(json.dumps(rows))
    assert read_definitions(file) == {"a": TICKETS, "a 2": WEATHER}
    file.write_text(json.dumps({"a": {"tools": TICKETS}, "b": WEATHER}))
    assert read_definitions(file) == {"a": TICKETS, "b": WEATHER}
    assert beside({"a": TICKETS}, {"a": WEATHER, "b": WEATHER}) == {"a 2": WEATHER, "b": WEATHER}
    file.write_text(json.dumps([{"name": "a"}]))
    with pytest.raises(SystemExit, match="needs a"):
        read_definitions(file)


def test_the_examples_of_the_guide_are_read():
    rows = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)]
    found = trace(*(row for row in rows if isinstance(row, dict)))
    assert found.problems == ()
    assert [len(task.searches) for task in found.tasks] == [2, 1]
    assert found.tasks[0].searches[0].places == {("tracker.search_issues",): 2}


@pytest.mark.anyio
@pytest.mark.requirement("P-JOURNAL-EXPORT")
async def test_what_agents_did_through_the_gateway_is_exported_and_replayed(tmp_path: Path):
    write_config(tmp_path, {name: serving(tmp_path / f"{name}.json", own) for name, own in SERVERS.items()})
    with gateway(tmp_path) as running:
        for era in ERAS:
            async with client("http", era, surface="discover", running=running) as connected:
                await connected.list_tools()
                shown = text_of(await connected.call_tool("search_tools", {"query": "create a ticket"}))
                assert "tracker.create_ticket" in shown
                called = {"name": "tracker.create_ticket", "arguments": {"title": "hunter2"}}
                await connected.call_tool("call_tool", called)
                await connected.call_tool("search_tools", {"query": "weather of tomorrow"})
    exported = portico(tmp_path, "stats", "--export", "run.jsonl")
    assert exported.returncode == 0, exported.stderr
    text = (tmp_path / "run.jsonl").read_text()
    assert "hunter2" not in text
    (tmp_path / "fleet.json").write_text(json.dumps([{"server": name, "tools": own} for name, own in SERVERS.items()]))
    for source in (["--config", "portico.yaml"], ["--fleet", "fleet.json"]):
        found = figures(replay("--trace", "run.jsonl", *source, folder=tmp_path))
        assert (found["tools"], found["tasks"], found["searches"], found["wanted"]) == (3, 2, 4, 2)
        assert (found["complete"], found["failed"], found["without_wanted"]) == (2, 0, 2)
        assert found["recorded"]["3"] == 1
        assert found["unknown"] == {}


def test_what_is_missing_is_said_and_nothing_is_replayed(tmp_path: Path):
    write_config(tmp_path, {"tracker": serving(tmp_path / "tracker.json", TICKETS)})
    (tmp_path / "bad.json").write_text("{")
    for arguments, said in {
        ("--trace", "none.jsonl"): "there is no file none.jsonl",
        ("--config", "portico.yaml"): "next: portico --config portico.yaml refresh",
        ("--fleet", "bad.json"): "bad.json: this is no JSON",
    }.items():
        done = replay(*arguments, folder=tmp_path)
        assert (done.returncode, done.stdout) == (1, ""), arguments
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_the_commands_of_the_guide_work(tmp_path: Path):
    write_config(tmp_path, {"tracker": serving(tmp_path / "tracker.json", TICKETS)})
    assert portico(tmp_path, "refresh").returncode == 0
    (tmp_path / "run.jsonl").write_text(json.dumps({"searches": ["create ticket"], "wanted": ["create_ticket"]}))
    (tmp_path / "definitions.json").write_text(json.dumps([{"server": "tracker", "tools": TICKETS}]))
    commands = [shlex.split(line) for line in re.findall(r'make bench ARGS="(replay .*?)"', GUIDE)]
    assert len(commands) == 2
    for _, *arguments in commands:
        assert figures(replay(*arguments, folder=tmp_path))["complete"] == 1
