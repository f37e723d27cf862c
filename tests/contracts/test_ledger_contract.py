"""What every ledger promises: each entry once, usage that adds up, and reports that say what happened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.domain.call import Invocation, Outcome
from portico.domain.journal import Batch, Entry, Look, Lookup, Losses
from portico.domain.report import DayLine
from portico.domain.tool import ToolId
from portico.domain.usage import DAY_SECONDS, Usage
from portico.errors import StoreError
from portico.ports import Ledger
from portico.stores.database import Database
from portico.stores.ledger import DatabaseLedger
from portico.stores.opening import open_database

NOW = 20_000 * DAY_SECONDS + 3_600.0
FIND = ToolId("serena", "find_symbol")
SNAP = ToolId("playwright", "browser_snapshot")
HOSTILE = [
    ToolId("'; DROP TABLE invocations; --", '"; --'),
    ToolId("100%", ":server %(tool)s {x}"),
    ToolId("данные", "🚪" * 512),
    ToolId("данные", "🚪" * 513),
    ToolId("", ""),
    ToolId("s" * 512, "t" * 512),
    ToolId("a\0b", "c\ud800d"),
]


class Clock:
    """A clock that stands still until it is set."""

    at = NOW

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(database: Database, clock: Clock) -> DatabaseLedger:
    return DatabaseLedger(database, now=clock)


def called(tool: ToolId | None = FIND, **more: object) -> Invocation:
    given = {"outcome": Outcome.DONE, "seconds": 0.05, "at": NOW, "tokens_in": 10, "tokens_out": 100, **more}
    return Invocation(tool=tool, spelled="x", caller="ana", surface="discover", **given)  # type: ignore[arg-type]


def looked(look: Look = Look.SEARCH, **more: object) -> Lookup:
    return Lookup(look=look, caller="ana", surface="discover", **{"at": NOW, **more})  # type: ignore[arg-type]


def batch(*entries: Entry, first: int = 0, writer: str = "w", **more: object) -> Batch:
    return Batch(writer=writer, first=first, entries=entries, **more)  # type: ignore[arg-type]


def rows(database: Database, table: str) -> int:
    return int(database.rows(f"SELECT COUNT(*) FROM {table}")[0][0])


@pytest.mark.requirement("S1-52")
def test_usage_is_the_fold_of_what_was_appended(ledger: Ledger) -> None:
    entries = [
        called(seconds=0.047),
        called(seconds=0.2, outcome=Outcome.FAILED),
        called(seconds=9.0, outcome=Outcome.TIMED_OUT, at=NOW - 8 * DAY_SECONDS),
        called(SNAP, seconds=0.0),
    ]
    ledger.append(batch(*entries[:2]))
    ledger.append(batch(*entries[2:], first=2))
    expected: dict[ToolId, Usage] = {}
    for entry in entries:
        assert entry.tool is not None
        expected[entry.tool] = expected.get(entry.tool, Usage()) + entry
    assert ledger.usage().keys() == expected.keys()
    for tool, usage in ledger.usage().items():
        assert replace(usage, seconds=0.0) == replace(expected[tool], seconds=0.0)
        assert usage.seconds == pytest.approx(expected[tool].seconds)
        assert usage.p95_ms == expected[tool].p95_ms


@pytest.mark.requirement("S1-71")
def test_calls_of_the_last_days_are_counted(ledger: Ledger) -> None:
    days = [0, 0, 1, 6, 7, 29, 30]
    ledger.append(batch(*(called(at=NOW - day * DAY_SECONDS) for day in days)))
    assert [ledger.usage_count(FIND, count) for count in (1, 7, 8, 30, 365)] == [2, 4, 5, 6, 7]
    assert ledger.usage_count(SNAP, 30) == 0
    assert ledger.usage()[FIND].within(7, NOW) == 4
    assert ledger.usage()[FIND].within(30, NOW) == 6


@pytest.mark.requirement("S1-49", "S1-51")
def test_totals_stand_beside_the_tool_even_before_the_catalog_tells_of_it(ledger: Ledger, database: Database) -> None:
    ledger.append(batch(called(seconds=0.04), called(seconds=0.06, outcome=Outcome.FAILED)))
    ledger.append(batch(called(seconds=0.08), first=2))
    found = database.rows(
        "SELECT server_name, tool_name, total_invocations, success_count, avg_latency_ms, mcp_tools.is_active"
        " FROM mcp_tools JOIN mcp_servers ON mcp_servers.id = server_id"
    )
    assert found == [("serena", "find_symbol", 3, 2, pytest.approx(60.0), True)]


def test_what_says_nothing_about_a_tool_is_kept_but_not_counted(ledger: Ledger, database: Database) -> None:
    outcomes = [Outcome.REFUSED, Outcome.INVALID, Outcome.CANCELLED]
    ledger.append(batch(*(called(outcome=outcome) for outcome in outcomes), called(None, outcome=Outcome.FAILED)))
    assert ledger.usage() == {}
    assert rows(database, "invocations") == 4
    assert rows(database, "mcp_tools") == 0


def test_every_field_of_an_entry_is_written(ledger: Ledger, database: Database) -> None:
    ledger.append(
        batch(
            called(None, outcome=Outcome.INVALID, code="unknown_tool", seconds=0.5, parent="script-1", rank=3),
            looked(Look.LIST, seconds=0.25, text="query", shown=3, found=5, fits=False, tokens=600, instead=9_000),
        )
    )
    assert database.rows(
        "SELECT at, server, tool, spelled, caller, surface, outcome, seconds, code, tokens_in, tokens_out, parent, rank"
        " FROM invocations"
    ) == [(NOW, "", None, "x", "ana", "discover", "invalid", 0.5, "unknown_tool", 10, 100, "script-1", 3)]
    assert database.rows(
        "SELECT at, look, caller, surface, seconds, text, shown, found, fits, tokens, instead FROM lookups"
    ) == [(NOW, "list", "ana", "discover", 0.25, "query", 3, 5, False, 600, 9_000)]


def test_a_batch_that_is_sent_twice_is_written_once(ledger: Ledger, database: Database) -> None:
    first = batch(called(), called(SNAP), looked(), caches={"hot": (3, 1)}, dropped=2)
    second = batch(called(), first=first.end)
    for sent in (first, first, second, first, second):
        ledger.append(sent)
    assert (rows(database, "invocations"), rows(database, "lookups")) == (3, 1)
    assert ledger.usage()[FIND].calls == 2
    assert ledger.stored("w") == 6
    report = ledger.report(days=1, limit=5)
    assert (report.caches, report.losses) == ({"hot": (3, 1)}, Losses(dropped=2))


def test_a_batch_sent_twice_at_the_same_time_is_written_once(ledger: Ledger, database: Database) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ledger.append, [batch(*[called()] * 50)] * 8))
    assert rows(database, "invocations") == 50
    assert ledger.usage()[FIND].calls == 50


def test_a_writer_goes_on_in_a_database_that_has_never_heard_of_it(ledger: Ledger) -> None:
    ledger.append(batch(called(), first=1_000))
    assert ledger.stored("w") == 1_001
    assert ledger.usage()[FIND].calls == 1


def test_a_batch_that_cannot_be_written_leaves_nothing_behind(ledger: Ledger, database: Database) -> None:
    broken = replace(called(), seconds="long")  # type: ignore[arg-type]
    with pytest.raises((StoreError, TypeError)):
        ledger.append(batch(called(), broken))
    database.run("DROP TABLE cache_counts")
    with pytest.raises(StoreError, match="cache_counts"):
        ledger.append(batch(called(), looked(), caches={"hot": (1, 1)}))
    assert (rows(database, "invocations"), rows(database, "lookups"), rows(database, "usage_days")) == (0, 0, 0)
    assert ledger.stored("w") == 0
    ledger.append(batch(called()))
    assert ledger.usage()[FIND].calls == 1


def test_many_writers_at_once_lose_nothing_and_never_wait_for_each_other_for_ever(ledger: Ledger) -> None:
    tools = [ToolId(f"s{n % 5}", f"t{n}") for n in range(20)]

    def write(writer: int) -> None:
        for step in range(10):
            order = tools[writer:] + tools[:writer]
            entries = [called(tool) for tool in order]
            ledger.append(
                batch(*entries, first=step * len(tools), writer=f"w{writer}", caches={"a": (1, 0), "b": (0, 1)})
            )

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert {usage.calls for usage in ledger.usage().values()} == {60}
    assert ledger.report(days=1, limit=1).caches == {"a": (60, 0), "b": (0, 60)}


@pytest.mark.requirement("S1-E9")
def test_hostile_names_are_data_and_stay_apart(ledger: Ledger, database: Database) -> None:
    ledger.append(batch(*(called(tool) for tool in HOSTILE)))
    assert [ledger.usage_count(tool, 1) for tool in HOSTILE] == [1] * len(HOSTILE)
    assert len(ledger.usage()) == len(HOSTILE)
    assert set(HOSTILE) - ledger.usage().keys() == {HOSTILE[2], HOSTILE[3], HOSTILE[6]}
    assert rows(database, "invocations") == len(HOSTILE)


def test_texts_that_databases_refuse_are_cleaned_and_shortened(ledger: Ledger, database: Database) -> None:
    odd = "a\0b\ud83d" + "ü" * 1_000
    ledger.append(batch(replace(called(), spelled=odd, caller=odd, code=odd, parent=odd), looked(text=odd)))
    ((spelled, caller, code),) = database.rows("SELECT spelled, caller, code FROM invocations")
    assert (len(spelled), len(caller), len(code)) == (200, 500, 500)
    assert spelled.startswith("a\ufffdb?üü")
    assert spelled.endswith("ü…")


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    entry=st.builds(
        Invocation,
        tool=st.none() | st.builds(ToolId, st.text(), st.text()),
        spelled=st.text(st.characters()),
        caller=st.text(st.characters()),
        surface=st.text(),
        outcome=st.sampled_from(Outcome),
        seconds=st.floats(),
        code=st.text(),
        at=st.floats(),
        tokens_in=st.integers(),
        tokens_out=st.integers(),
        parent=st.text(st.characters()),
        rank=st.integers(),
    )
)
def test_no_entry_can_stop_the_ledger(database: Database, entry: Invocation) -> None:
    ledger = DatabaseLedger(database, now=lambda: NOW)
    before = ledger.stored("odd")
    ledger.append(batch(entry, first=before, writer="odd"))
    assert ledger.stored("odd") == before + 1
    assert all(usage.calls > 0 for usage in ledger.usage().values())


def test_what_a_dead_writer_lost_is_counted_once(ledger: Ledger) -> None:
    ledger.append(batch(called(), writer="dead", dropped=4))
    ledger.count_lost("dead", 7)
    ledger.count_lost("dead", 7)
    ledger.count_lost("never wrote", 2)
    assert ledger.report(days=1, limit=1).losses == Losses(dropped=4, lost=9)


def test_a_writer_that_was_only_thought_dead_has_lost_nothing(ledger: Ledger) -> None:
    ledger.append(batch(called()))
    ledger.count_lost("w", 1)
    ledger.append(batch(called(), first=1))
    assert ledger.report(days=1, limit=1).losses == Losses()
    assert ledger.stored("w") == 2


def test_a_report_sums_up_the_days(ledger: Ledger) -> None:
    yesterday = NOW - DAY_SECONDS
    ledger.append(
        batch(
            *[called(seconds=0.05, rank=1)] * 3,
            called(seconds=0.05, outcome=Outcome.FAILED, rank=2),
            called(SNAP, seconds=3.0, at=yesterday),
            called(None, outcome=Outcome.INVALID, at=yesterday),
            called(at=NOW - 5 * DAY_SECONDS),
            looked(tokens=50),
            looked(tokens=70, fits=False, at=yesterday),
            looked(Look.LIST, tokens=600, instead=10_000),
            looked(Look.LIST, tokens=600, instead=100),
            looked(Look.DESCRIBE, tokens=30),
            caches={"hot": (9, 1), "idle": (0, 0)},
        )
    )
    report = ledger.report(days=3, limit=1)
    assert (report.days, report.calls) == (3, 6)
    assert report.outcomes == {"done": 4, "failed": 1, "invalid": 1}
    assert [(line.tool, line.calls, line.done, line.tokens_out) for line in report.top] == [(FIND, 4, 3, 400)]
    assert [(line.tool, line.success) for line in report.failing] == [(FIND, 0.75)]
    assert [(line.tool, line.mean_ms) for line in report.slow] == [(SNAP, pytest.approx(3_000))]
    assert report.slow[0].p95_ms == pytest.approx(3_000, rel=0.06)
    assert report.by_day == (
        DayLine(day="2024-10-02"),
        DayLine(day="2024-10-03", calls=2, searches=1, tokens_saved=-70),
        DayLine(day="2024-10-04", calls=4, failed=1, searches=1, tokens_saved=9_400 - 50 - 30),
    )
    assert (report.searches, report.unanswered) == (2, 1)
    assert report.ranks == {0: 1, 1: 3, 2: 1}
    assert report.caches == {"hot": (9, 1)}


def test_a_report_of_an_empty_ledger_is_empty(ledger: Ledger) -> None:
    report = ledger.report(days=2, limit=5)
    assert (report.calls, report.top, report.caches, report.losses) == (0, (), {}, Losses())
    assert [line.calls for line in report.by_day] == [0, 0]


def test_pruning_drops_old_entries_and_keeps_every_total(ledger: Ledger, database: Database, clock: Clock) -> None:
    days = [0, 20, 40, 401, 402, 500]
    ledger.append(batch(*(called(seconds=0.01 * (n + 1), at=NOW - day * DAY_SECONDS) for n, day in enumerate(days))))
    ledger.append(batch(looked(at=NOW - 50 * DAY_SECONDS), looked(), first=6, dropped=1))
    ledger.append(batch(called(SNAP, at=NOW - 450 * DAY_SECONDS), writer="dead"))
    ledger.count_lost("dead", 3)
    before = ledger.usage()
    assert ledger.prune(keep_days=30) == 6
    assert (rows(database, "invocations"), rows(database, "lookups")) == (2, 1)
    after = ledger.usage()
    assert {tool: replace(usage, seconds=0) for tool, usage in after.items()} == {
        tool: replace(usage, seconds=0) for tool, usage in before.items()
    }
    assert database.rows("SELECT day, calls FROM usage_days WHERE tool = 'find_symbol' ORDER BY day") == [
        (0, 3),
        *((20_000 - day, 1) for day in (40, 20, 0)),
    ]
    assert ledger.prune(keep_days=30) == 0
    clock.at += 2 * DAY_SECONDS
    ledger.prune(keep_days=30)
    assert database.rows("SELECT writer FROM writers ORDER BY writer") == [("",), ("w",)]
    assert ledger.report(days=1, limit=1).losses == Losses(dropped=1, lost=3)
    assert ledger.usage()[FIND].calls == 6
    assert ledger.usage()[FIND].p95_ms == before[FIND].p95_ms


def test_pruning_goes_through_more_entries_than_fit_one_transaction(ledger: Ledger, database: Database) -> None:
    ledger.append(batch(*[called(at=1.0)] * 5_500, called()))
    assert ledger.prune(keep_days=1) == 5_500
    assert rows(database, "invocations") == 1
    assert ledger.usage()[FIND].calls == 5_501


def test_a_ledger_finds_everything_again_when_it_is_opened_again(tmp_path: Path, migrated_url: str) -> None:
    for store in ("sqlite", migrated_url):
        for step in range(2):
            database = open_database(store, tmp_path, durable=True)
            DatabaseLedger(database, now=lambda: NOW).append(batch(called(), first=step))
            database.close()
        database = open_database(store, tmp_path)
        assert DatabaseLedger(database, now=lambda: NOW).usage()[FIND].calls == 2
        database.close()
