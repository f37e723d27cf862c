"""The stored journal over a fake ledger: nobody waits, nothing is stored twice, and every loss is counted."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest
from tests.storage.fake_ledger import FakeLedger

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Entry, JournalState, Look, Lookup
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage
from portico.errors import StoreError, StoreRefused
from portico.storage.journal import LARGEST, URGENT, Pace, StoredJournal, WriterCounter

NEVER = 3_600.0
QUICK = Pace(write=0.001, first_pause=0.001, longest_pause=0.01, close=10.0)
TOOL = ToolId("s", "a")

Open = Callable[..., StoredJournal]


def invocation(number: int = 0, *, tool: str | None = "a", outcome: Outcome = Outcome.DONE) -> Invocation:
    id = ToolId("s", tool) if tool else None
    return Invocation(tool=id, spelled=str(number), caller="c", surface="t", outcome=outcome, seconds=0.25, at=9e8)


def spelled(entries: list[Entry]) -> list[int]:
    return [int(entry.spelled) for entry in entries if isinstance(entry, Invocation)]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "portico.storage.journal"]


def ended_writer(folder: Path, recorded: int) -> str:
    """The name of a writer that was killed before it stored anything."""
    tally = WriterCounter(folder)
    tally.numbers[0] += recorded
    tally.close(keep=True)
    return tally.writer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "portico-journal"]


@pytest.fixture
def ledger() -> FakeLedger:
    return FakeLedger()


@pytest.fixture
def journal(ledger: FakeLedger) -> Iterator[Open]:
    """Opens journals over the ledger, and closes them at the end."""
    with ExitStack() as closing:

        def opened(**parts: object) -> StoredJournal:
            found = StoredJournal(ledger, **{"pace": QUICK, **parts})  # type: ignore[arg-type]
            closing.callback(found.close)
            return found

        yield opened
        ledger.away = ""
        ledger.gate.set()


def test_a_process_that_only_reads_starts_no_thread_and_leaves_no_file(
    ledger: FakeLedger, tmp_path: Path, journal: Open
) -> None:
    ledger.known[TOOL] = Usage(calls=3)
    reader = journal(folder=tmp_path / "writers")
    assert reader.usage()[TOOL].calls == 3
    assert reader.state == JournalState()
    reader.close()
    assert not threads()
    assert not ledger.tries
    assert not list(tmp_path.iterdir())


@pytest.mark.requirement("P-JOURNAL-ONCE")
def test_entries_are_written_in_their_order_a_batch_at_a_time(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(pace=Pace(write=NEVER))
    entries: list[Entry] = [invocation(number) for number in range(100)]
    entries.append(Lookup(look=Look.SEARCH, caller="c", surface="t", text="a query", at=9e8))
    for entry in entries:
        writer.record(entry)
    assert writer.flush(20)
    assert ledger.entries == entries
    assert len(ledger.batches) <= 2  # the thread may have begun before the last was recorded
    assert writer.state == JournalState(recorded=101, stored=101)


def test_many_entries_are_written_without_waiting_for_the_end_of_the_moment(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(pace=Pace(write=NEVER))
    for number in range(URGENT):
        writer.record(invocation(number))
    ledger.until(lambda: sum(len(batch.entries) for batch in ledger.batches) == URGENT)


def test_no_batch_is_larger_than_a_transaction_should_be(ledger: FakeLedger, journal: Open) -> None:
    ledger.gate.clear()
    writer = journal()
    for number in range(2 * LARGEST + 500):
        writer.record(invocation(number))
    ledger.gate.set()
    assert writer.flush(20)
    assert max(len(batch.entries) for batch in ledger.batches) <= LARGEST
    assert spelled(ledger.entries) == list(range(2 * LARGEST + 500))


@pytest.mark.requirement("P-JOURNAL-ONCE")
def test_a_batch_whose_answer_got_lost_is_stored_once(ledger: FakeLedger, journal: Open) -> None:
    ledger.swallows = 3
    writer = journal()
    for number in range(1_000):
        writer.record(invocation(number))
    assert writer.flush(20)
    assert spelled(ledger.entries) == list(range(1_000))
    assert writer.state == JournalState(recorded=1_000, stored=1_000)


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-STORE-OPTIONAL")
def test_while_the_store_is_away_entries_wait_and_then_all_are_there(
    ledger: FakeLedger, journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.away = "the disk is full"
    writer = journal()
    with caplog.at_level(logging.INFO, "portico.storage.journal"):
        writer.record(invocation(0))
        ledger.until(lambda: len(ledger.tries) >= 5)
        for number in range(1, 500):
            writer.record(invocation(number))
        assert writer.state.waiting == 500
        assert writer.state.trouble == "the disk is full"
        ledger.away = ""
        writer.close()
    assert spelled(ledger.entries) == list(range(500))
    assert writer.state == JournalState(recorded=500, stored=500)
    begun, ended = said(caplog)
    assert begun.startswith("the journal cannot be written: the disk is full")
    assert ended == "the journal is written again; 0 entries were dropped meanwhile"


@pytest.mark.requirement("F31")
def test_what_finds_no_room_is_left_out_and_counted_exactly(
    ledger: FakeLedger, journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.away = "gone"
    writer = journal(buffer=100)
    with caplog.at_level(logging.INFO, "portico.storage.journal"):
        for number in range(350):
            writer.record(invocation(number))
        ledger.until(lambda: len(ledger.tries) >= 3)
        assert writer.state == JournalState(waiting=100, recorded=350, dropped=250, trouble="gone")
        ledger.away = ""
        assert writer.flush(20)
    assert spelled(ledger.entries) == list(range(100))  # what came first is kept
    assert ledger.report(days=1, limit=1).losses.dropped == 250
    assert ledger.stored(writer.writer) == 350
    assert writer.state == JournalState(recorded=350, stored=100, dropped=250)
    writer.record(invocation(350))
    writer.close()
    assert spelled(ledger.entries)[-1] == 350
    assert said(caplog)[1:] == ["the journal is written again; 250 entries were dropped meanwhile"]


@pytest.mark.parametrize("refusal", [TypeError("of the wrong kind"), StoreRefused("the database does not take it")])
@pytest.mark.parametrize("bad", [[0], [777], [999], [3, 4, 500], list(range(10, 20))])
def test_an_entry_that_cannot_be_written_is_left_out_and_holds_nothing_up(
    ledger: FakeLedger, journal: Open, bad: list[int], refusal: Exception
) -> None:
    ledger.refusal = refusal
    ledger.hates = lambda entry: isinstance(entry, Invocation) and int(entry.spelled) in bad
    writer = journal(caches=lambda: {"hot": (5, 1)})
    for number in range(1_000):
        writer.record(invocation(number))
    assert writer.flush(20)
    assert spelled(ledger.entries) == [number for number in range(1_000) if number not in bad]
    assert ledger.stored(writer.writer) == 1_000
    assert writer.state == JournalState(recorded=1_000, stored=1_000 - len(bad), dropped=len(bad))
    assert sum(batch.caches.get("hot", (0, 0))[0] for batch in ledger.batches) == 5


def test_entries_that_make_no_sense_are_stored_or_counted_and_nothing_stops(ledger: FakeLedger, journal: Open) -> None:
    writer = journal()
    strange = [
        Invocation(tool=TOOL, spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=float("inf")),
        Invocation(tool=TOOL, spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=0.0, at=float("nan")),
        Invocation(tool=["no id"], spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=1.0),  # type: ignore[arg-type]
        "not an entry at all",
    ]
    for entry in strange:
        writer.record(entry)  # type: ignore[arg-type]
    writer.record(invocation(1))
    assert writer.flush(20)
    assert writer.usage()[TOOL].calls == 3  # those with numbers out of bounds are calls all the same


@pytest.mark.requirement("P-USAGE")
def test_usage_counts_what_is_not_stored_yet(ledger: FakeLedger, journal: Open) -> None:
    ledger.known[TOOL] = Usage(calls=10, done=10, seconds=1.0)
    writer = journal()
    assert writer.usage()[TOOL].calls == 10
    ledger.away = "gone"
    for outcome in (Outcome.DONE, Outcome.FAILED, Outcome.REFUSED):
        writer.record(invocation(tool=None, outcome=outcome))
        writer.record(invocation(outcome=outcome))
        writer.record(invocation(tool="b", outcome=outcome))
    ledger.until(lambda: len(ledger.tries) > 1 and writer.usage().get(ToolId("s", "b"), Usage()).calls == 2)
    assert {id.name: (use.calls, use.done) for id, use in writer.usage().items()} == {"a": (12, 11), "b": (2, 1)}
    assert not ledger.batches


@pytest.mark.requirement("P-USAGE")
def test_usage_of_other_processes_joins_and_nothing_is_counted_twice(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(pace=Pace(write=0.001, reload=0.0))
    for number in range(300):
        writer.record(invocation(number))
        if number % 10 == 0:
            ledger.known[TOOL] = Usage(calls=number)
    assert writer.flush(20)
    writer.record(invocation(300))
    assert writer.flush(20)
    writer.close()
    assert writer.usage()[TOOL].calls == 290 + 301


def test_a_reload_while_entries_wait_neither_loses_nor_doubles_them(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(pace=Pace(write=0.001, reload=0.0))
    ledger.gate.clear()
    writer.record(invocation(0))
    ledger.until(lambda: len(ledger.tries) == 1)
    for number in range(1, 2 * LARGEST):
        writer.record(invocation(number))
    ledger.gate.set()
    seen: list[int] = []
    while not writer.flush(0.001):
        seen.append(writer.usage()[TOOL].calls)
    writer.close()
    assert seen == sorted(seen)
    assert writer.usage()[TOOL].calls == 2 * LARGEST


def test_who_reads_usage_is_not_disturbed_by_who_writes(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(pace=Pace(write=0.0))
    is_over = threading.Event()

    def write() -> None:
        for number in range(3_000):
            writer.record(invocation(number, tool=str(number)))
        is_over.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not is_over.is_set():
        for id, use in writer.usage().items():
            assert (id.server, use.calls) == ("s", 1)
        list(writer.usage().items())
    thread.join()
    assert writer.flush(20)
    assert len(writer.usage()) == 3_000


def test_a_usage_that_cannot_be_read_is_said_once_and_read_later(
    ledger: FakeLedger, journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.known[TOOL] = Usage(calls=7)
    ledger.away = "gone"
    writer = journal()
    for _ in range(5):
        assert not writer.usage()
    ledger.away = ""
    writer.record(invocation())
    assert writer.flush(20)
    writer.close()
    assert writer.usage()[TOOL].calls == 8
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "usage cannot be read, so tools count as never called until it can: gone"
    ]


def test_usage_that_cannot_be_read_is_not_tried_after_every_batch(ledger: FakeLedger, journal: Open) -> None:
    ledger.unreadable = "statement timeout"
    writer = journal(durable=True, pace=Pace(write=0.001, retry=NEVER))
    for number in range(20):
        writer.record(invocation(number))
        assert writer.flush(20)
    assert ledger.reads == 1


@pytest.mark.requirement("P-USAGE")
def test_usage_that_could_not_be_read_is_read_when_it_can_be(ledger: FakeLedger, journal: Open) -> None:
    ledger.unreadable = "statement timeout"
    ledger.known[TOOL] = Usage(calls=7)
    writer = journal(pace=Pace(write=0.001, retry=0.001, quiet=0.001))
    writer.record(invocation())
    ledger.until(lambda: ledger.reads > 2)
    ledger.unreadable = ""
    reads = ledger.reads
    ledger.until(lambda: ledger.reads > reads)
    writer.close()
    assert writer.usage()[TOOL].calls == 8


def test_usage_is_read_again_when_nobody_records_anything(ledger: FakeLedger, journal: Open) -> None:
    busy = journal(durable=True, pace=Pace(write=0.001, reload=1e-9, overdue=1e18, quiet=NEVER))
    for number in range(20):
        busy.record(invocation(number))
        assert busy.flush(20)
    assert ledger.reads == 1
    quiet = journal(durable=True, pace=Pace(write=0.001, reload=1e-9, overdue=1e18, quiet=0.001))
    quiet.record(invocation(20))
    ledger.until(lambda: ledger.reads > 3)


def test_threads_record_at_once_and_every_entry_is_there(ledger: FakeLedger, journal: Open) -> None:
    writer = journal()

    def record(start: int) -> None:
        for number in range(start, start + 2_000):
            writer.record(invocation(number))

    workers = [threading.Thread(target=record, args=(2_000 * turn,)) for turn in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert writer.flush(20)
    assert sorted(spelled(ledger.entries)) == list(range(12_000))
    assert writer.state == JournalState(recorded=12_000, stored=12_000)
    assert writer.usage()[TOOL].calls == 12_000


async def test_a_batched_journal_never_makes_a_call_wait(ledger: FakeLedger, journal: Open) -> None:
    ledger.gate.clear()
    writer = journal()
    writer.record(invocation())
    assert await writer.written() == ""
    ledger.gate.set()


@pytest.mark.requirement("P-JOURNAL-DURABLE")
async def test_a_durable_journal_answers_when_the_entry_is_stored(ledger: FakeLedger, journal: Open) -> None:
    ledger.gate.clear()
    writer = journal(durable=True)
    answers: list[str] = []

    async def call(number: int) -> None:
        writer.record(invocation(number))
        answers.append(await writer.written())
        assert number in spelled(ledger.entries)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for number in range(500):
                tasks.start_soon(call, number)
            await anyio.to_thread.run_sync(ledger.until, lambda: len(ledger.tries) == 1)
            assert not answers
            ledger.gate.set()
    assert answers == [""] * 500
    assert len(ledger.batches) <= 5  # what waits is committed together
    assert await writer.written() == ""


@pytest.mark.requirement("P-JOURNAL-DURABLE")
async def test_a_durable_journal_waits_no_longer_than_it_may_and_says_why(ledger: FakeLedger, journal: Open) -> None:
    ledger.away = "the disk is full"
    writer = journal(durable=True, wait_seconds=0.05)
    writer.record(invocation())
    await anyio.to_thread.run_sync(ledger.until, lambda: len(ledger.tries) > 1)
    note = await writer.written()
    assert note == "not in the journal yet: the disk is full; it is tried until the end"
    writer.start()
    note = await writer.written()
    assert note == "not in the journal yet: the disk is full; it is written when the store is back"
    ledger.away = ""
    assert await anyio.to_thread.run_sync(writer.flush)
    assert len(ledger.entries) == 1
    ledger.gate.clear()
    writer.record(invocation())
    note = await writer.written()
    assert note.startswith("not in the journal yet: the store has not answered within 0.05 s;")
    ledger.gate.set()


async def test_a_durable_journal_says_what_was_left_out(ledger: FakeLedger, journal: Open) -> None:
    ledger.away = "gone"
    writer = journal(durable=True, buffer=1, wait_seconds=0.01)
    writer.record(invocation(0))
    writer.record(invocation(1))
    assert (await writer.written()).startswith("not in the journal: 1 entry waits for the store already")
    ledger.away = ""
    assert await anyio.to_thread.run_sync(writer.flush)
    ledger.hates = lambda entry: True
    writer.record(invocation(2))
    assert (await writer.written()).startswith("not in the journal: ")
    ledger.hates = lambda entry: False
    writer.record(invocation(3))
    assert await writer.written() == ""
    await anyio.to_thread.run_sync(writer.close)
    writer.record(invocation(4))
    assert await writer.written() == "not in the journal: it is closed"
    assert spelled(ledger.entries) == [0, 3]


async def test_a_call_that_is_given_up_stops_waiting_and_disturbs_nobody(ledger: FakeLedger, journal: Open) -> None:
    ledger.gate.clear()
    writer = journal(durable=True)
    writer.record(invocation(0))
    given_up = asyncio.ensure_future(writer.written())
    patient = asyncio.ensure_future(writer.written())
    await anyio.to_thread.run_sync(ledger.until, lambda: len(ledger.tries) == 1)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    ledger.gate.set()
    with anyio.fail_after(20):
        assert await patient == ""


def test_loops_of_several_threads_wait_at_once(ledger: FakeLedger, journal: Open) -> None:
    writer = journal(durable=True)
    answers: list[str] = []

    async def calls() -> None:
        for number in range(100):
            writer.record(invocation(number))
            answers.append(await writer.written())

    workers = [threading.Thread(target=asyncio.run, args=(calls(),)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert answers == [""] * 400
    assert len(ledger.entries) == 400


def test_a_loop_that_ended_before_its_answer_does_not_end_the_journal(ledger: FakeLedger, journal: Open) -> None:
    ledger.gate.clear()
    writer = journal(durable=True, wait_seconds=NEVER)

    async def leave() -> None:
        writer.record(invocation(0))
        asyncio.ensure_future(writer.written()).add_done_callback(lambda _: None)
        await asyncio.sleep(0)

    asyncio.run(leave())
    ledger.gate.set()
    writer.record(invocation(1))
    assert writer.flush(20)
    assert spelled(ledger.entries) == [0, 1]


async def test_a_call_under_way_at_the_end_is_answered_whether_it_was_stored_or_not(
    ledger: FakeLedger, journal: Open
) -> None:
    ledger.gate.clear()
    writer = journal(durable=True, pace=Pace(close=0.01))
    writer.record(invocation(0))
    await anyio.to_thread.run_sync(ledger.until, lambda: len(ledger.tries) == 1)
    waiting = asyncio.ensure_future(writer.written())
    await anyio.to_thread.run_sync(writer.close)
    ledger.gate.set()
    with anyio.fail_after(20):
        assert await waiting == ""
        assert await writer.written() == ""
    ledger.away = "gone"
    other = journal(durable=True, pace=Pace(first_pause=0.001, close=0.01))
    other.record(invocation(1))
    waiting = asyncio.ensure_future(other.written())
    await anyio.to_thread.run_sync(other.close)
    with anyio.fail_after(20):
        assert await waiting == "not in the journal: it was closed before the store was back"
        assert await other.written() == "not in the journal: it was closed before the store was back"


def test_closing_writes_what_is_left(ledger: FakeLedger, tmp_path: Path, journal: Open) -> None:
    writer = journal(folder=tmp_path, pace=Pace(write=NEVER), caches=lambda: {"hot": (1, 2)})
    for number in range(50):
        writer.record(invocation(number))
    writer.close()
    writer.close()
    assert spelled(ledger.entries) == list(range(50))
    assert ledger.batches[-1].caches or ledger.batches[0].caches
    assert not list(tmp_path.iterdir())
    assert not threads()
    writer.record(invocation(50))
    assert writer.state == JournalState(recorded=51, stored=50, dropped=1)


def test_what_cannot_be_written_at_the_end_is_counted_by_the_next_start(
    ledger: FakeLedger, tmp_path: Path, journal: Open
) -> None:
    ledger.away = "gone"
    first = journal(folder=tmp_path, pace=Pace(write=0.001, close=0.05), buffer=20)
    for number in range(30):
        first.record(invocation(number))
    first.close()
    for thread in threads():
        thread.join(20)
    assert [path.stem for path in tmp_path.iterdir()] == [first.writer]
    ledger.away = ""
    second = journal(folder=tmp_path)
    second.record(invocation(100))
    ledger.until(lambda: bool(ledger.lost))
    second.close()
    assert ledger.lost[first.writer] == 30
    assert second.state.lost == 30
    assert not list(tmp_path.iterdir())


@pytest.mark.requirement("S1-85")
def test_counts_of_caches_are_written_as_what_came_since(ledger: FakeLedger, journal: Open) -> None:
    totals = {"hot": (1, 1)}
    writer = journal(caches=lambda: totals, pace=Pace(write=0.001, caches=0.01))
    writer.record(invocation())
    assert writer.flush(20)
    totals = {"hot": (4, 1), "tool": (0, 2)}
    ledger.until(lambda: len(ledger.batches) == 2)  # without another entry
    totals = {"hot": (5, 1), "tool": (0, 2)}
    writer.close()
    assert [batch.caches for batch in ledger.batches] == [
        {"hot": (1, 1)},
        {"hot": (3, 0), "tool": (0, 2)},
        {"hot": (1, 0)},
    ]
    assert ledger.batches[-1].end == 1


def test_a_cache_that_cannot_be_counted_disturbs_nothing(ledger: FakeLedger, journal: Open) -> None:
    def counts() -> dict[str, tuple[int, int]]:
        raise RuntimeError("dictionary changed size during iteration")

    writer = journal(caches=counts)
    writer.record(invocation())
    assert writer.flush(20)
    assert writer.state.stored == 1


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_a_process_that_serves_counts_losses_before_its_first_entry(
    ledger: FakeLedger, tmp_path: Path, journal: Open
) -> None:
    dead = ended_writer(tmp_path, 7)
    serving = journal(folder=tmp_path, pace=Pace(settle=NEVER))
    serving.start()
    serving.start()
    ledger.until(lambda: ledger.lost == {dead: 7})
    assert len(threads()) == 1
    serving.close()
    assert serving.state == JournalState(lost=7)
    assert ledger.lost == {dead: 7}
    assert not list(tmp_path.iterdir())


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_a_process_that_serves_looks_for_losses_again_and_again_even_when_nothing_is_recorded(
    ledger: FakeLedger, tmp_path: Path, journal: Open
) -> None:
    serving = journal(folder=tmp_path, pace=Pace(settle=0.01, retry=0.01))
    serving.start()
    first = ended_writer(tmp_path, 1)
    ledger.until(lambda: first in ledger.lost)
    ledger.away = "gone"
    second = ended_writer(tmp_path, 2)
    ledger.until(lambda: any(batch.writer == second for batch in ledger.tries))
    assert second not in ledger.lost
    ledger.away = ""
    ledger.until(lambda: second in ledger.lost)
    serving.close()
    assert serving.state.lost == 3


@pytest.mark.requirement("P-JOURNAL-LOSSES")
def test_whoever_is_about_to_read_losses_counts_them_without_a_thread_or_a_file(
    ledger: FakeLedger, tmp_path: Path, journal: Open
) -> None:
    dead = ended_writer(tmp_path, 3)
    reader = journal(folder=tmp_path)
    ledger.away = "gone"
    with pytest.raises(StoreError, match="gone"):
        reader.settle_now()
    ledger.away = ""
    assert reader.settle_now() == 3
    assert reader.settle_now() == 0
    assert ledger.lost == {dead: 3}
    assert reader.state == JournalState(lost=3)
    assert journal().settle_now() == 0
    assert not threads()
    assert not list(tmp_path.iterdir())


def test_usage_is_read_anew_when_somebody_asks_for_it(ledger: FakeLedger, journal: Open) -> None:
    ledger.known[TOOL] = Usage(calls=3)
    writer = journal(pace=Pace(write=NEVER))
    assert writer.usage()[TOOL].calls == 3
    ledger.known[TOOL] = Usage(calls=5)
    assert writer.reread(20)
    assert writer.usage()[TOOL].calls == 5
    assert not threads()
    writer.record(invocation())
    ledger.known[TOOL] = Usage(calls=50)
    assert writer.reread(20)
    assert writer.usage()[TOOL].calls == 51
    assert writer.state.stored == 1
    writer.start()
    ledger.known[TOOL] = Usage(calls=100)
    assert writer.reread(20)
    assert writer.usage()[TOOL].calls == 101


def test_usage_that_cannot_be_read_anew_stays_as_it_was(ledger: FakeLedger, journal: Open) -> None:
    ledger.known[TOOL] = Usage(calls=3)
    writer = journal()
    assert writer.usage()[TOOL].calls == 3
    ledger.unreadable = "a broken page"
    assert not writer.reread(20)
    writer.start()
    assert not writer.reread(20)
    assert writer.usage()[TOOL].calls == 3
    ledger.unreadable = ""
    ledger.away = "gone"
    writer.record(invocation())
    ledger.until(lambda: len(ledger.tries) > 1)
    assert not writer.reread(0.01)
    assert writer.usage()[TOOL].calls == 4
    ledger.away = ""
    assert writer.flush(20)
    writer.close()
    assert not writer.reread(20)


def test_what_a_command_could_not_write_is_told_at_its_end_and_not_promised(
    ledger: FakeLedger, journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.away = "gone"
    command = journal(pace=Pace(write=0.001, first_pause=0.001, close=0.05))
    command.record(invocation())
    ledger.until(lambda: len(ledger.tries) > 1)
    command.close()
    for thread in threads():
        thread.join(20)
    assert said(caplog) == [
        "the journal cannot be written: gone",
        "1 entry is not in the journal: the store could not be written at the end",
    ]


def test_a_process_that_serves_says_how_much_it_keeps_for_later(
    ledger: FakeLedger, journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.away = "gone"
    serving = journal()
    serving.start()
    serving.record(invocation())
    ledger.until(lambda: len(ledger.tries) > 1)
    assert said(caplog) == ["the journal cannot be written: gone. Up to 50,000 entries wait until the store is back"]
