"""What every ledger promises: each entry once, usage that adds up, and reports that say what happened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch, CallQuery, DayLine, Entry, Look, Lookup, Losses
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import (
    CALLER_WORDS_KEPT,
    DAY_SECONDS,
    HALF_LIFE,
    TIDIED_AFTER,
    TOOL_WORDS_KEPT,
    LearnedWords,
    Usage,
    words_learned,
)
from portico.errors import StoreError
from portico.storage.database_interface import Database
from portico.storage.journal_tables import Ledger
from portico.storage.journal_tables import fold_usage as fold
from portico.storage.storage import open_database

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
def ledger(database: Database, clock: Clock) -> Ledger:
    return Ledger(database, now=clock)


def called(tool: ToolId | None = FIND, **more: object) -> Invocation:
    given = {"outcome": Outcome.DONE, "seconds": 0.05, "at": NOW, "tokens_in": 10, "tokens_out": 100, **more}
    return Invocation(tool=tool, spelled="x", caller="ana", surface="discover", **given)  # type: ignore[arg-type]


def lookup(look: Look = Look.SEARCH, **more: object) -> Lookup:
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
            lookup(Look.LIST, seconds=0.25, text="query", shown=3, found=5, fits=False, tokens=600, instead=9_000),
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
    first = batch(called(), called(SNAP), lookup(), caches={"hot": (3, 1)}, dropped=2)
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


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_what_a_writer_stored_in_a_database_that_is_no_longer_there_is_lost(ledger: Ledger) -> None:
    assert ledger.append(batch(called(), first=1_000)) == 1_000
    assert ledger.append(batch(called(), first=1_000)) == 0  # the same again
    assert ledger.append(batch(called(), first=1_001)) == 1_000
    assert ledger.append(batch(called(), first=1_007)) == 1_005
    assert ledger.stored("w") == 1_008
    assert ledger.usage()[FIND].calls == 3
    ledger.count_lost("w", 2)
    assert ledger.report(days=1, limit=1).losses == Losses(lost=1_007)


def test_a_batch_that_cannot_be_written_leaves_nothing_behind(ledger: Ledger, database: Database) -> None:
    broken = replace(called(), seconds="long")  # type: ignore[arg-type]
    with pytest.raises((StoreError, TypeError)):
        ledger.append(batch(called(), broken))
    database.run("DROP TABLE cache_counts")
    with pytest.raises(StoreError, match="cache_counts"):
        ledger.append(batch(called(), lookup(), caches={"hot": (1, 1)}))
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
    ledger.append(batch(replace(called(), spelled=odd, caller=odd, code=odd, parent=odd), lookup(text=odd)))
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
    ledger = Ledger(database, now=lambda: NOW)
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


@pytest.mark.requirement("P-REPORT-ADDS-UP")
def test_a_report_sums_up_the_days(ledger: Ledger) -> None:
    yesterday = NOW - DAY_SECONDS
    ledger.append(
        batch(
            *[called(seconds=0.05, rank=1)] * 3,
            called(seconds=0.05, outcome=Outcome.FAILED, rank=2),
            called(SNAP, seconds=3.0, at=yesterday),
            called(None, outcome=Outcome.INVALID, at=yesterday),
            called(at=NOW - 5 * DAY_SECONDS),
            lookup(tokens=50),
            lookup(tokens=70, fits=False, at=yesterday),
            lookup(Look.LIST, tokens=600, instead=10_000),
            lookup(Look.LIST, tokens=600, instead=100),
            lookup(Look.DESCRIBE, tokens=30),
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
        DayLine(day="2024-10-03", calls=2, searches=1),
        DayLine(day="2024-10-04", calls=4, failed=1, searches=1, tokens_saved=9_400 - 50 - 30),
    )
    assert (report.searches, report.unanswered) == (2, 1)
    assert report.ranks == {0: 1, 1: 3, 2: 1}
    assert report.caches == {"hot": (9, 1)}


@pytest.mark.requirement("P-UNANSWERED")
def test_a_report_names_the_searches_that_found_nothing(ledger: Ledger) -> None:
    ledger.append(
        batch(
            lookup(text="send a fax", fits=False, at=NOW - 60),
            lookup(text="Send a FAX", fits=False),
            lookup(text="send a fax"),
            lookup(Look.BROWSE, text="faxes", fits=False),
            lookup(text="\x1b[31mred\x07\nline \u202eback", fits=False, at=NOW - 5),
            lookup(text="long ago", fits=False, at=NOW - 5 * DAY_SECONDS),
            lookup(text="once", fits=False, at=NOW - 9),
        )
    )
    found = ledger.report(days=3, limit=2).unanswered_searches
    assert [(line.query.lower(), line.count, line.last) for line in found] == [
        ("send a fax", 2, "2024-10-04T01:00:00Z"),
        ("\ufffd[31mred\ufffd\ufffdline \ufffdback", 1, "2024-10-04T00:59:55Z"),
    ]
    assert [line.query for line in ledger.report(days=3, limit=9).unanswered_searches][2:] == ["once"]
    assert ledger.report(days=3, limit=2).unanswered == 4


def test_a_look_costs_only_those_who_list_through_the_same_surface_that_day(ledger: Ledger) -> None:
    ledger.append(
        batch(
            replace(lookup(Look.LIST, tokens=600, instead=9_600), surface="mcp"),
            replace(lookup(tokens=50), surface="mcp"),
            replace(lookup(tokens=70), surface="mcp", at=NOW - DAY_SECONDS),
            *(replace(lookup(look, tokens=400), surface="rest") for look in (Look.SEARCH, Look.BROWSE, Look.DESCRIBE)),
        )
    )
    assert [line.tokens_saved for line in ledger.report(days=2, limit=1).by_day] == [0, 9_000 - 50]


@pytest.mark.requirement("P-REPORT-ADDS-UP")
def test_a_report_of_more_days_than_entries_are_kept_adds_up(ledger: Ledger) -> None:
    old = NOW - 100 * DAY_SECONDS
    ledger.append(
        batch(
            called(),
            called(outcome=Outcome.INVALID),
            called(None, outcome=Outcome.FAILED),
            *(called(outcome=outcome, at=old) for outcome in (Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT)),
            called(outcome=Outcome.REFUSED, at=old),
        )
    )
    whole = ledger.report(days=365, limit=5)
    assert whole.outcomes == {"done": 2, "failed": 2, "invalid": 1, "refused": 1, "timed_out": 1}
    assert ledger.prune(keep_days=90) == 4
    report = ledger.report(days=365, limit=5)
    assert report.outcomes == {"done": 2, "failed": 3, "invalid": 1}
    assert (report.days, report.calls, sum(line.calls for line in report.by_day)) == (365, 6, 6)
    assert [(line.calls, line.failed) for line in report.by_day if line.calls] == [(3, 2), (3, 1)]
    assert [(line.calls, line.done) for line in report.top] == [(4, 2)]


def test_a_report_says_how_many_days_it_can_tell_of(ledger: Ledger) -> None:
    report = ledger.report(days=1_000, limit=1)
    assert (report.days, len(report.by_day)) == (400, 400)


def test_a_report_of_an_empty_ledger_is_empty(ledger: Ledger) -> None:
    report = ledger.report(days=2, limit=5)
    assert (report.calls, report.top, report.caches, report.losses) == (0, (), {}, Losses())
    assert [line.calls for line in report.by_day] == [0, 0]


def test_pruning_drops_old_entries_and_keeps_every_total(ledger: Ledger, database: Database, clock: Clock) -> None:
    days = [0, 20, 40, 401, 402, 500]
    ledger.append(batch(*(called(seconds=0.01 * (n + 1), at=NOW - day * DAY_SECONDS) for n, day in enumerate(days))))
    ledger.append(batch(lookup(at=NOW - 50 * DAY_SECONDS), lookup(), first=6, dropped=1))
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


def test_old_days_are_folded_a_part_at_a_time_and_by_one_process(ledger: Ledger, database: Database) -> None:
    tools = [ToolId(f"s{n % 7}", f"t{n}") for n in range(700)]
    entries = [
        called(tool, seconds=0.01 * bucket, at=NOW - (410 + day) * DAY_SECONDS)
        for tool in tools
        for day in range(3)
        for bucket in (1, 2, 3, 4)
    ]
    ledger.append(batch(*entries))
    before = ledger.usage()
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: ledger.prune(keep_days=1_000), range(3)))
    assert {day for (day,) in database.rows("SELECT DISTINCT day FROM usage_days")} == {0}
    assert {day for (day,) in database.rows("SELECT DISTINCT day FROM usage_latencies")} == {0}
    assert rows(database, "usage_latencies") == len(tools) * 4
    assert {tool: usage.latencies for tool, usage in ledger.usage().items()} == {
        tool: usage.latencies for tool, usage in before.items()
    }
    assert database.rows("SELECT SUM(calls), SUM(tokens_out) FROM usage_days") == [(8_400, 840_000)]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    entries=st.lists(
        st.builds(
            called,
            tool=st.none() | st.sampled_from([FIND, SNAP]),
            outcome=st.sampled_from(Outcome),
            seconds=st.floats(0, 5_000) | st.floats(),
            at=st.floats(NOW - 20 * DAY_SECONDS, NOW) | st.floats(),
            tokens_in=st.integers(0, 10_000) | st.integers(),
            tokens_out=st.integers(0, 10_000) | st.integers(),
            rank=st.integers(),
        ),
        max_size=8,
    )
)
def test_whoever_counts_the_same_calls_counts_the_same(database: Database, entries: list[Invocation]) -> None:
    for table in ("usage_days", "usage_latencies", "mcp_tools", "writers"):
        database.run(f"DELETE FROM {table}")
    ledger = Ledger(database, now=lambda: NOW)
    ledger.append(batch(*entries))
    one_by_one: dict[ToolId, Usage] = {}
    for entry in entries:
        if entry.tool is not None and (usage := one_by_one.get(entry.tool, Usage()) + entry).calls:
            one_by_one[entry.tool] = usage
    assert _figures(ledger.usage()) == _figures(fold(entries)) == _figures(one_by_one)


def _figures(usage: dict[ToolId, Usage]) -> dict[ToolId, tuple[object, ...]]:
    """All that usage says, without the days that only some know one by one."""
    return {
        tool: (
            one.calls,
            one.done,
            pytest.approx(one.seconds),
            one.tokens_in,
            one.tokens_out,
            one.latencies,
            {day: calls for day, calls in one.days.items() if NOW / DAY_SECONDS - 30 < day <= NOW / DAY_SECONDS},
        )
        for tool, one in usage.items()
    }


def test_a_sound_ledger_passes_its_check(ledger: Ledger, database: Database) -> None:
    ledger.check()
    database.close()
    with pytest.raises(StoreError, match="it is closed"):
        ledger.check()


def test_a_ledger_finds_everything_again_when_it_is_opened_again(tmp_path: Path, migrated_url: str) -> None:
    for store in ("sqlite", migrated_url):
        for step in range(2):
            database = open_database(store, tmp_path, durable=True)
            Ledger(database, now=lambda: NOW).append(batch(called(), first=step))
            database.close()
        database = open_database(store, tmp_path)
        assert Ledger(database, now=lambda: NOW).usage()[FIND].calls == 2
        database.close()


@pytest.mark.requirement("P-CALLS-LISTED")
def test_single_calls_are_listed_newest_first_and_filtered(ledger: Ledger):
    entries = [
        called(FIND, at=NOW + 1),
        called(SNAP, at=NOW + 2, outcome=Outcome.TIMED_OUT, code="timed_out", seconds=1.5, parent="script-1", rank=3),
        replace(called(None, at=NOW + 3, outcome=Outcome.INVALID), spelled="no.such", caller="ben"),
        called(FIND, at=NOW + 4, outcome=Outcome.FAILED),
    ]
    ledger.append(Batch(writer="w", first=0, entries=tuple(entries)))
    listed = ledger.calls(CallQuery())
    assert [call.entry for call in listed] == entries[::-1]
    assert [call.number for call in listed] == sorted((call.number for call in listed), reverse=True)

    def lookup(**asked: object) -> list[Entry]:
        return [call.entry for call in ledger.calls(CallQuery(**asked))]  # type: ignore[arg-type]

    assert lookup(limit=1) == [entries[3]]
    for spelled in (FIND.name, "serena.find_symbol", "serena::find_symbol"):
        assert lookup(tool=spelled) == [entries[3], entries[0]]
    assert lookup(tool="no.such") == [entries[2]]
    assert lookup(server="playwright") == [entries[1]]
    assert lookup(outcome="timed_out") == [entries[1]]
    assert lookup(caller="ben") == [entries[2]]
    assert lookup(since=NOW + 3) == [entries[3], entries[2]]
    assert lookup(after=listed[1].number) == [entries[3]]
    assert lookup(tool="find_symbol", outcome="failed", server="serena", caller="ana") == [entries[3]]
    for hostile in ("' OR 1=1 --", "%", "a\0b", ":after"):
        assert lookup(tool=hostile) == lookup(server=hostile) == lookup(caller=hostile) == []


@pytest.mark.requirement("P-CALLS-LISTED")
def test_calls_of_tools_with_odd_names_can_be_read(ledger: Ledger):
    ledger.append(Batch(writer="w", first=0, entries=tuple(called(tool) for tool in HOSTILE)))
    assert len(ledger.calls(CallQuery(limit=100))) == len(HOSTILE)
    assert len(ledger.calls(CallQuery(server=HOSTILE[0].server, tool=HOSTILE[0].name))) == 1


def taught(caller: str, *words: str, tool: ToolId = FIND, **more: object) -> Invocation:
    return replace(called(tool, **more), caller=caller, words=tuple((word, f"{word}s") for word in words))


def known(words: LearnedWords, *callers: str) -> dict[str, dict[str, float]]:
    """What each caller finds under the words of these tests."""
    return {
        caller: {word: round(found[FIND], 3) for word in ("alpha", "beta") if (found := words.of(word, caller, NOW))}
        for caller in callers
    }


@pytest.mark.requirement("P-LEARNED-STORED", "P-LEARNED-PRIVATE")
def test_learned_words_are_stored_once_by_caller_and_add_up(ledger: Ledger, database: Database) -> None:
    first = batch(taught("ana", "alpha", "beta"), taught("ana", "alpha"), taught("ben", "alpha"), called())
    second = batch(taught("ana", "alpha"), taught("ben", "beta", outcome=Outcome.FAILED), first=first.end)
    for sent in (first, first, second, second):
        ledger.append(sent)
    assert known(ledger.learned(), "ana", "ben", "cleo") == {
        "ana": {"alpha": 3.0, "beta": 1.0},
        "ben": {"alpha": 1.0},
        "cleo": {},
    }
    assert database.rows("SELECT word, spelled, uses FROM learned_words ORDER BY uses DESC LIMIT 1") == [
        ("alpha", "alphas", 3)
    ]
    assert not database.rows("SELECT caller FROM learned_words WHERE caller IN ('ana', 'ben')"), "a digest is enough"
    ledger.append(batch(taught("cleo", "alpha"), first=second.end))
    assert known(ledger.learned(), "dan") == {"dan": {"alpha": 5.0}}
    assert [(line.word, line.uses, line.callers) for line in ledger.learned().lines("dan", 9, NOW)] == [
        ("alphas", 5, 3)
    ]


@pytest.mark.requirement("P-LEARNED-STORED")
def test_the_ledger_and_the_memory_learn_the_same(ledger: Ledger) -> None:
    entries = [taught("ana", "alpha", at=NOW - days * DAY_SECONDS) for days in range(0, 200, 7)]
    entries += [taught("ben", "beta", at=at) for at in (0.0, NOW + 9 * HALF_LIFE, float("inf"))]
    ledger.append(batch(*entries))
    memory = LearnedWords()
    sound = [entry if entry.at < NOW * 9 else replace(entry, at=0.0) for entry in entries]
    memory.add(words_learned(sound, NOW), NOW)
    assert known(ledger.learned(), "ana", "ben") == known(memory, "ana", "ben")
    assert known(memory, "ben") == {"ben": {"beta": 1.0}}, "a clock that goes wrong teaches no more than others"


@pytest.mark.requirement("P-LEARNED-BOUNDED")
def test_stored_words_stay_within_their_bounds_and_fade(ledger: Ledger, database: Database, clock: Clock) -> None:
    ledger.append(batch(taught("ana", "alpha"), taught("ana", "alpha")))
    flood = [
        taught("mallory", *(f"w{n}x{tool}" for n in range(12)), tool=ToolId("s", f"t{tool}")) for tool in range(300)
    ]
    ledger.append(batch(*flood, first=2))
    assert rows(database, "learned_words") <= CALLER_WORDS_KEPT + 1
    many = [taught("bo", *(f"w{n}x{part}" for n in range(12))) for part in range(TIDIED_AFTER // 12 + 1)]
    ledger.append(batch(*many, first=2 + len(flood)))
    assert rows(database, "learned_words") <= CALLER_WORDS_KEPT + TOOL_WORDS_KEPT + 1
    assert known(ledger.learned(), "ana") == {"ana": {"alpha": 2.0}}
    clock.at = NOW + 10 * HALF_LIFE
    assert known(ledger.learned(), "ana") == {"ana": {}}
    ledger.prune(keep_days=1)
    assert rows(database, "learned_words") == 0


@pytest.mark.requirement("P-LEARNED-STORED", "P-LEARNED-BOUNDED")
def test_learned_words_of_tools_and_callers_with_any_name_are_kept(ledger: Ledger) -> None:
    for number, tool in enumerate(HOSTILE):
        ledger.append(batch(taught(tool.name, "x" * 24, "\u00fcber", tool=tool), first=number))
    for tool in HOSTILE:
        assert len(ledger.learned().of("x" * 24, tool.name, NOW)) == 1
    assert ledger.forget_learned() == 2 * len(HOSTILE)
    assert len(ledger.learned()) == 0


@pytest.mark.requirement("P-LEARNED-STORED")
def test_writers_of_the_same_words_at_once_lose_none(ledger: Ledger) -> None:
    def write(writer: int) -> None:
        for number in range(10):
            entry = taught("ana", "alpha", *(f"w{writer}x{number}x{n}" for n in range(10)))
            ledger.append(batch(entry, first=number, writer=f"w{writer}"))
            ledger.drop_words()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert known(ledger.learned(), "ana") == {"ana": {"alpha": 40.0}}
