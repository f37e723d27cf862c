"""What every record of events promises: the newest first, filtered, read on from a number, and bounded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from portico.domain.journal_entries import EventQuery, FleetEvent
from portico.domain.usage_and_tiers import DAY_SECONDS
from portico.storage.database_interface import Database
from portico.storage.events import DatabaseEvents, EventRows, MemoryEvents

pytestmark = pytest.mark.requirement("P-EVENTS")
NOW = 20_000 * DAY_SECONDS + 3_600.0
HOSTILE = "'; DROP TABLE events; --\0\ud800🚪" * 30


def happened(kind: str, server: str = "", at: float = NOW, **more: object) -> FleetEvent:
    return FleetEvent(kind=kind, server=server, at=at, gateway="here:1", **more)  # type: ignore[arg-type]


def kinds(rows: EventRows, **query: object) -> Sequence[str]:
    return [kept.event.kind for kept in rows.find(EventQuery(**query))]  # type: ignore[arg-type]


def test_events_in_memory_are_told_newest_first_and_filtered():
    check(MemoryEvents())


def test_events_in_a_database_are_told_newest_first_and_filtered(database: Database):
    check(DatabaseEvents(database, now=lambda: NOW))


def check(rows: EventRows) -> None:
    exited = happened("exited", "b", stderr="no\nmore", text="it ended", times=3)
    rows.add([happened("started", "a", at=NOW - 100), happened("started", "b"), exited])
    assert kinds(rows) == ["exited", "started", "started"]
    assert kinds(rows, limit=1) == ["exited"]
    assert kinds(rows, server="a") == ["started"]
    assert kinds(rows, kind="exited") == ["exited"]
    assert kinds(rows, since=NOW - 1, server="a") == []
    newest, *_ = found = rows.find(EventQuery())
    assert newest.event == exited
    assert newest.as_data()["time"] == "2024-10-04T01:00:00.000Z"
    rows.add([happened("stopped", "a")])
    assert kinds(rows, after=found[0].number) == ["stopped"], "whoever read until a number reads on from there"


def test_old_events_and_too_many_are_dropped(database: Database):
    rows = DatabaseEvents(database, keep_days=3, most=5, now=lambda: NOW)
    rows.add([happened("old", at=NOW - 4 * DAY_SECONDS), happened("new", at=NOW - 2 * DAY_SECONDS)])
    rows.prune()
    assert kinds(rows) == ["new"]
    rows.add([happened(f"number {number}") for number in range(10)])
    rows.prune()
    assert kinds(rows) == [f"number {number}" for number in (9, 8, 7, 6, 5)]


def test_whoever_writes_much_makes_room_by_himself(database: Database):
    rows = DatabaseEvents(database, most=50, now=lambda: NOW)
    for _ in range(20):
        rows.add([happened("exited", "a")] * 100)
    assert len(rows.find(EventQuery(limit=10_000))) == 50


def test_any_name_can_be_kept_and_asked_for(database: Database):
    rows = DatabaseEvents(database, now=lambda: NOW)
    rows.add([happened("exited", HOSTILE)])
    assert kinds(rows, server=HOSTILE) == ["exited"]
