"""Recording what happens: a flood becomes a few rows, nothing waits, and what is lost is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from portico.domain.journal_entries import EventQuery, FleetEvent, RecordedEvent
from portico.errors import StoreError, StoreRefused
from portico.storage.events import BUFFER, MEMORY_KEPT, STDERR, TEXT, EventLog, MemoryEvents
from portico.storage.storage import open_storage

pytestmark = pytest.mark.requirement("P-EVENTS")
ALL = EventQuery(limit=100_000)


class Unreliable(MemoryEvents):
    """Rows that cannot be written for as long as there is an error."""

    error: Exception | None = None

    def add(self, events: Sequence[FleetEvent]) -> None:
        if self.error is not None:
            raise self.error
        super().add(events)


def exited(server: str = "a", text: str = "", stderr: str = "") -> FleetEvent:
    return FleetEvent(kind="exited", server=server, text=text, stderr=stderr)


def told(log: EventLog) -> list[FleetEvent]:
    """What is recorded, oldest first, without the start of the gateway."""
    return [kept.event for kept in log.find(ALL) if kept.event.kind != "gateway_started"][::-1]


@pytest.fixture
def log() -> EventLog:
    """One that writes when it is asked only."""
    found = EventLog(rows=Unreliable(), together=3_600.0)
    found.start()
    return found


@pytest.mark.requirement("F07")
def test_a_flood_of_one_kind_from_one_server_is_one_row(log: EventLog):
    for number in range(1_000):
        log.record(exited("a", f"time {number}", stderr="last words" if number == 5 else ""))
        log.record(FleetEvent(kind="restarted", server="a"))
    log.record(exited("b"))
    flood, again, other = told(log)
    assert (flood.kind, flood.times, flood.text, flood.stderr) == ("exited", 1_000, "time 999", "last words")
    assert (again.kind, again.times, other.server, other.times) == ("restarted", 1_000, "b", 1)
    log.record(exited("a"))
    assert [event.times for event in told(log)] == [1_000, 1_000, 1, 1]


def test_texts_are_short_and_show_what_they_say(log: EventLog):
    log.record(exited(text="\x1b[31mred\nforged " + "x" * TEXT, stderr="x" * STDERR + "\r\n\x1b]0;title\x07end\n"))
    (event,) = told(log)
    assert event.text.startswith("\ufffd[31mred\\nforged xx")
    assert len(event.text) <= TEXT + 1
    assert event.stderr.endswith("\n\ufffd]0;title\ufffdend\n")
    assert len(event.stderr) == STDERR
    assert event.gateway == log.gateway


def test_memory_is_bounded_and_what_has_no_room_is_counted(log: EventLog):
    log.rows.error = StoreError("away")  # type: ignore[attr-defined]
    for number in range(BUFFER + 10):
        log.record(exited(f"server {number}"))
    told(log)
    assert log.dropped == 11, "the start of the gateway waits as well"
    log.rows.error = None  # type: ignore[attr-defined]
    last = told(log)[-1]
    assert (last.kind, last.times) == ("dropped", 11)
    assert log.dropped == 0
    assert len(log.rows.find(ALL)) == MEMORY_KEPT


def test_what_a_store_never_takes_is_counted_and_holds_nothing_up(log: EventLog):
    told(log)
    log.rows.error = StoreRefused("no such table")  # type: ignore[attr-defined]
    log.record(exited())
    assert told(log) == []
    log.rows.error = None  # type: ignore[attr-defined]
    assert [event.kind for event in told(log)] == ["dropped"]


def test_events_are_written_by_themselves_and_wait_while_the_store_is_away():
    written = threading.Event()

    class Rows(Unreliable):
        def add(self, events: Sequence[FleetEvent]) -> None:
            if (error := self.error) is not None:
                self.error = None
                raise error
            super().add(events)
            if any(event.kind == "exited" for event in events):
                written.set()

    rows = Rows()
    rows.error = StoreError("away")
    log = EventLog(rows=rows, together=0.01)
    log.start()
    log.record(exited())
    assert written.wait(20)
    log.close()
    assert [kept.event.kind for kept in rows.find(ALL)] == ["gateway_stopped", "exited", "gateway_started"]


def test_nothing_is_recorded_before_the_start_or_after_the_end():
    log = EventLog()
    log.record(exited())
    log.start()
    log.close()
    log.record(exited())
    assert [kept.event.kind for kept in log.find(ALL)] == ["gateway_stopped", "gateway_started"]


def test_what_happened_is_there_after_a_restart(tmp_path: Path):
    for _ in range(2):
        storage = open_storage(
            "sqlite", tmp_path, name="", journal_mode="batched", keep_days=9, buffer=9, wait_seconds=1, caches=dict
        )
        storage.start()
        storage.events.record(exited())
        for close in storage.closing:
            close()
    kinds = [kept.event.kind for kept in storage_events(tmp_path)]
    assert kinds == ["gateway_stopped", "exited", "gateway_started"] * 2


def storage_events(folder: Path) -> list[RecordedEvent]:
    """What a process that only looks finds."""
    storage = open_storage(
        "sqlite", folder, name="", journal_mode="batched", keep_days=9, buffer=9, wait_seconds=1, caches=dict
    )
    found = storage.events.find(ALL)
    for close in storage.closing:
        close()
    return found
