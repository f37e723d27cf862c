"""Commands for whoever runs the house, in this process: tiers, categories, budget, stats, doctor."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import time
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from portico.application import Application
from portico.config import ScriptSettings
from portico.domain.call import Caller
from portico.domain.journal_entries import DayLine, Losses, Report, SearchLine, ToolLine
from portico.domain.server import Offering
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import Usage, day_of
from portico.storage.storage import Storage
from portico.surfaces.cli.app import app
from portico.surfaces.cli.context import CliContext, Exit, Options
from portico.testing import FakeProvider, definition, parts_of
from portico.tiers.tier_requests import TierAnswers
from portico.tiers.token_budgets import BudgetReport, report
from portico.wiring import assemble
from tests.fake_ledger import FakeLedger, FakeUsageJournal

from .shell import HOSTILE

TODAY = day_of(time())
BUSY = Usage(
    calls=12_453, done=12_291, seconds=585.0, days={TODAY - back: 100 for back in range(30)}, latencies={65: 12_453}
)
SYMBOL, RENAME, READ = ToolId("serena-mcp", "find_symbol"), ToolId("serena-mcp", "rename"), ToolId("files", "read-file")


@dataclass
class Office:
    """A command line over a house whose database is in memory, and stays between two commands."""

    kept: FakeLedger = field(default_factory=FakeLedger)
    told: FakeUsageJournal = field(default_factory=FakeUsageJournal)
    store_name: str = "sqlite"
    budget: Sequence[int] = ()
    """What the tiers cost, where that is not measured."""

    def run(self, *arguments: str) -> Any:
        cli_context = CliContext(open_app=self._open, serve=_no, demo=_no, version="0", surface_tokens=lambda *_: 0)
        return CliRunner().invoke(app, list(arguments), obj=Options(cli_context=cli_context))

    def json(self, *arguments: str) -> Any:
        ended = self.run(*arguments, "--json")
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    @asynccontextmanager
    async def _open(self, config: str | None) -> AsyncIterator[Application]:
        tools = {
            "serena-mcp": [definition("find_symbol", HOSTILE), definition("rename")],
            "files": [definition("read-file")],
        }
        providers = {name: FakeProvider(server=name, tools=list(own)) for name, own in tools.items()}
        storage = Storage(
            journal=self.told,
            ledger=self.kept,
            tiers=self.kept,
            changes=self.kept,
            name=self.store_name,
            journal_mode="batched",
        )
        parts = parts_of(
            providers={**providers},
            storage=storage,
            categories={"files": "files"},
            scripts=ScriptSettings(enabled=False),  # nobody here would stop what runs them
        )
        application = assemble(parts)
        application.gateway.publisher.accept(
            (Offering(server=n, tools=tuple(own)), "upstream") for n, own in tools.items()
        )
        if self.budget:
            application = replace(application, tier_answers=cast(TierAnswers, Dear(self.budget)))
        yield application


@dataclass
class Dear:
    """A walk that costs what it is told; a real one never costs too much."""

    costs: Sequence[int]

    async def verify(self, caller: Caller) -> BudgetReport:
        return report(self.costs, counter="told", category="files", tools=[READ])


def _no(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing is served here")


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path))
    monkeypatch.delenv("PORTICO_CONFIG", raising=False)
    (tmp_path / "portico.yaml").write_text("# mine\nservers: {}\n")
    return Office()


@pytest.mark.requirement("S1-74")
def test_tiers_are_updated_on_demand_and_shown_from_then_on(office: Office) -> None:
    office.told.used = office.kept.used = {SYMBOL: BUSY}
    ended = office.run("tiers", "update")
    assert (ended.exit_code, ended.stdout) == (0, "Updated tier scores for 3 tools\n")
    assert office.json("tiers", "update") == {"updated": 3}
    lines = office.run("tiers").stdout.splitlines()
    assert lines[0].split() == "TOOL TIER SCORE CALLS SUCCESS MEAN 7 DAYS 30 DAYS".split()
    assert lines[1].split() == "serena_mcp.find_symbol hot 0.91 12,453 98.7% 47 ms 700 3,000".split()
    assert lines[2].split() == "files.read_file cold 0.25 0".split()


def test_tiers_can_be_narrowed_and_shortened(office: Office) -> None:
    office.told.used = {SYMBOL: BUSY}
    assert [line["handle"] for line in office.json("tiers", "--tier", "hot")] == ["serena_mcp.find_symbol"]
    assert office.run("tiers", "--tier", "warm").stdout == "No tool is warm.\n"
    assert len(office.json("tiers", "--limit", "2")) == 2
    assert office.run("tiers", "--limit", "1").stdout.endswith("2 more: portico tiers --limit 3\n")
    assert office.run("tiers", "--tier", "lukewarm").exit_code == Exit.USAGE
    first = office.json("tiers")[0]
    assert (first["calls_7d"], first["calls_30d"], first["tier"], first["pinned"]) == (700, 3_000, "hot", False)


@pytest.mark.requirement("P-CLI-EXIT-CODES")
def test_a_database_that_is_away_ends_a_command_with_its_reason(office: Office) -> None:
    office.kept.away = "the database does not answer"
    for command in (["tiers"], ["tiers", "update"], ["categories"], ["stats"], ["categories", "reset", "files"]):
        ended = office.run(*command)
        assert (ended.exit_code, ended.stdout) == (Exit.CONFIG, "")
        assert "the database does not answer" in ended.stderr
        assert json.loads(office.run(*command, "--json").stdout)["error"]["code"] == "store_error"


def test_categories_are_shown_with_what_stands_on_them(office: Office) -> None:
    listed = {line["name"]: line for line in office.json("categories")}
    assert (listed["files"]["tools"], listed["files"]["servers"], listed["files"]["from"]) == (1, 1, "shipped")
    assert listed["databases"]["tools"] == 0
    shown = office.run("categories").stdout
    assert shown.splitlines()[0].split() == "CATEGORY DISPLAY NAME ORDER TOOLS SERVERS FROM DESCRIPTION".split()
    assert "Files & Documents" in shown


def test_a_category_is_set_part_by_part_and_put_back(office: Office) -> None:
    assert office.run("categories", "set", "files", "--display-name", "Papers").exit_code == 0
    assert office.run("categories", "set", "files", "--order", "1").stdout == "files: Papers, place 1\n"
    files = office.json("categories")[0]
    assert (files["name"], files["display_name"], files["from"]) == ("files", "Papers", "edited")
    assert files["description"]
    assert office.run("categories", "reset", "files").stdout == "files is as it was\n"
    assert office.json("categories", "reset", "files") == {"category": "files", "reset": False}
    assert office.kept.written == {}


def test_a_new_category_is_told_how_to_be_filled(office: Office) -> None:
    ended = office.run("categories", "set", "filez", "--description", "Typing is hard")
    assert office.kept.written == {"filez": Category(name="filez", description="Typing is hard")}
    assert "no tool stands on 'filez' (files are known)" in ended.stderr
    assert "next: portico categories assign SERVER filez" in ended.stderr


def test_a_category_that_cannot_last_says_so(office: Office) -> None:
    office.store_name = "memory"
    assert "has forgotten this by now" in office.run("categories", "set", "files", "--order", "1").stderr


@pytest.mark.requirement("P-CLI-EXIT-CODES", "P-CLI-NO-CONTROL")
def test_a_wrong_category_is_refused_with_what_to_do(office: Office) -> None:
    assert office.run("categories", "set", "files").exit_code == Exit.USAGE
    for name in ("", "a\x1b[31mb", "x" * 65):
        ended = office.run("categories", "set", name, "--order", "1")
        assert ended.exit_code == Exit.CONFIG
        assert "such as code_analysis" in ended.stderr
        assert "\x1b" not in ended.output
        assert office.run("categories", "assign", "files", name).exit_code == Exit.CONFIG
    unknown = office.run("categories", "reset", "databasis")
    assert unknown.exit_code == Exit.UNKNOWN
    assert "categories, nearest first: databases" in unknown.stderr


@pytest.mark.parametrize(
    ("what", "key", "tools"),
    [
        ("files", "files", 1),
        ("serena_mcp", "serena-mcp", 2),
        ("files.read_file", "files.read-file", 1),
        ("serena-mcp::rename", "serena-mcp.rename", 1),
        ("re*", "re*", 2),
        ("zzz_*", "zzz_*", 0),
    ],
)
def test_a_server_a_tool_or_a_prefix_is_put_on_a_shelf_in_the_config(
    office: Office, what: str, key: str, tools: int
) -> None:
    file = Path.cwd() / "portico.yaml"
    assert office.json("categories", "assign", what, "desk") == {
        "assigned": key,
        "category": "desk",
        "tools": tools,
        "file": str(file),
    }
    assert file.read_text().startswith("# mine\nservers: {}\ncategories:\n")
    again = office.run("categories", "assign", what, "shelf")
    assert again.stdout.startswith(f"{key} stands on shelf now, in {file}")
    assert ("no tool that is known today" in again.stderr) == (tools == 0)


@pytest.mark.parametrize(("what", "words"), [("fils", "did you mean files?"), ("files.raed_file", "files.read_file")])
def test_what_nobody_has_is_not_put_anywhere(office: Office, what: str, words: str) -> None:
    ended = office.run("categories", "assign", what, "desk")
    assert ended.exit_code == Exit.UNKNOWN
    assert words in ended.stderr
    assert (Path.cwd() / "portico.yaml").read_text() == "# mine\nservers: {}\n"


@pytest.mark.requirement("S1-76", "S1-77", "S1-78", "S1-79", "S1-81")
def test_the_budget_is_verified_as_it_is_served(office: Office) -> None:
    ended = office.run("budget", "verify")
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert lines[0].split() == ["TIER", "TOKENS", "TOGETHER", "LIMIT"]
    assert [(row[0], row[3], row[4]) for row in map(str.split, lines[1:5])] == [
        ("T0", "2,000", "ok"),
        ("T1", "4,000", "ok"),
        ("T2", "8,000", "ok"),
        ("T3", "12,000", "ok"),
    ]
    assert lines[5].startswith("measured: category ")
    found = office.json("budget", "verify")
    sums = [row["cumulative"] for row in found["tiers"]]
    assert lines[6] == found["text"] == "Budget verification: " + ", ".join(f"T{n}={sum}" for n, sum in enumerate(sums))
    assert found["ok"]
    assert office.json("budget") == found


@pytest.mark.requirement("S1-80", "S1-E15", "P-CLI-EXIT-CODES")
def test_a_tier_above_its_budget_is_named_and_ends_the_command(office: Office) -> None:
    office.budget = (2_100, 1_000, 4_000, 5_000)
    ended = office.run("budget", "verify")
    assert ended.exit_code == Exit.FAILED
    assert ended.stderr.splitlines() == ["T0 exceeds budget: 2100 tokens", "T3 exceeds budget: 12100 tokens"]
    assert ended.stdout.endswith("Budget verification: T0=2100, T1=3100, T2=7100, T3=12100\n")
    as_data = office.run("budget", "--json")
    assert (as_data.exit_code, json.loads(as_data.stdout)["ok"]) == (Exit.FAILED, False)


REPORT = Report(
    days=3,
    calls=100,
    outcomes={"done": 90, "failed": 6, "timed_out": 4},
    top=(
        ToolLine(tool=SYMBOL, calls=80, done=79, mean_ms=47.4, p95_ms=120.0),
        ToolLine(tool=ToolId("gone", "tool"), calls=20, done=11, mean_ms=900.0, p95_ms=2_000.0),
    ),
    failing=(ToolLine(tool=ToolId("gone", "tool"), calls=20, done=11, mean_ms=900.0, p95_ms=2_000.0),),
    by_day=(
        DayLine(day="2026-11-13", calls=10, tokens_saved=-40),
        DayLine(day="2026-11-14"),
        DayLine(day="2026-11-15", calls=90, tokens_saved=150_040),
    ),
    searches=60,
    unanswered=6,
    unanswered_searches=(
        SearchLine(query="send a fax", count=5, last="2026-11-15T09:30:00Z"),
        SearchLine(query="fly", count=1, last="2026-11-13T00:00:00Z"),
    ),
    ranks={0: 40, 1: 30, 2: 6, 4: 12, 11: 12},
    caches={"hot": (95, 5), "tool": (0, 0)},
    losses=Losses(dropped=3, lost=1),
)

SHARES = "60 calls came after a search that showed the tool: " + ", ".join(
    ("50% at the first place", "60% among the first 3", "80% among the first 5")
)


@pytest.mark.requirement("S1-85")
def test_stats_show_use_errors_savings_ranks_caches_and_losses(office: Office) -> None:
    office.kept.summed = REPORT
    ended = office.run("stats", "--days", "3")
    assert ended.exit_code == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == "Last 3 days: 100 calls, 90.0% of them ended well."
    assert lines[1] == "not well: 6 failed, 4 timed out"
    for words in (
        "CALLED MOST             CALLS  ERRORS    MEAN       P95",
        "serena_mcp.find_symbol     80    1.2%   47 ms    120 ms  ████████████████████",
        "gone::tool                 20   45.0%  900 ms  2,000 ms  █████",
        "calls by day         ▂▁█  2026-11-13 to 2026-11-15",
        "tokens saved by day  ▁▁█  150,000 together",
        "60 searches, 6 of them without a tool that fits",
        SHARES,
        "SEARCHED AND NOT FOUND  TIMES  LAST",
        "send a fax                  5  2026-11-15T09:30:00Z",
        "    1  ████████████████████ 30",
        "later  ████████ 12",
        "hot      100  95.0%  ███████████████████",
    ):
        assert words in lines, ended.stdout
    assert "3 entries were dropped" in ended.stderr
    assert "1 entry was lost with a process that was killed" in ended.stderr
    assert "SLOWEST" not in ended.stdout


@pytest.mark.requirement("P-CLI-JSON")
def test_stats_as_data(office: Office) -> None:
    office.kept.summed = REPORT
    found = office.json("stats")
    assert (found["top"][1]["tool"], found["top"][1]["success_rate"]) == ("gone::tool", 55.0)
    assert found["ranks"] == {"0": 40, "1": 30, "2": 6, "4": 12, "11": 12}
    assert found["caches"]["hot"] == {"hits": 95, "misses": 5}
    assert found["unanswered_searches"][1] == {"query": "fly", "count": 1, "last": "2026-11-13T00:00:00Z"}
    assert found["losses"] == {"dropped": 3, "lost": 1}
    assert found["by_day"][2]["tokens_saved"] == 150_040


def test_an_empty_journal_says_so_and_what_to_do(office: Office) -> None:
    ended = office.run("stats", "--days", "1")
    assert (ended.exit_code, ended.stdout.splitlines()[0]) == (0, "The journal of the last 7 days is empty.")
    assert "next: portico serve" in ended.stdout
    office.store_name = "memory"
    assert "set `store` in the config" in office.run("stats").stdout
    assert office.json("stats")["calls"] == 0


def test_doctor_looks_at_the_store(office: Office) -> None:
    office.kept.summed = Report(days=1, losses=Losses(dropped=3))
    ended = office.run("doctor")
    assert ended.exit_code == 0
    assert "ok  store sqlite: journal batched\n      not in the journal: 3 entries dropped" in ended.stdout
    assert "store" not in office.run("doctor", "files").stdout
    office.told.trouble = "not in the journal yet: the disk is full"
    ended = office.run("doctor")
    assert ended.exit_code == Exit.CONFIG
    assert " x  store sqlite: journal batched\n      not in the journal yet: the disk is full\n" in ended.stdout
    assert office.run("doctor", "--json").exit_code == Exit.CONFIG
