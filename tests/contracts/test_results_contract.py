"""Results and shapes in a database: whole or not at all, read in parts, and never more than there is room for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from portico.domain.call import Caller, Kept, ResultLimits
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Learned
from portico.errors import StoreError, StoreRefused, UnknownResult
from portico.rendering.budget import TokenEstimate
from portico.results.kept import Results
from portico.results.preview import read_outline
from portico.results.read_kept_result import ReadRequest, ResultReader
from portico.results.result_schema import shape_of
from portico.results.truncate import Truncator
from portico.storage.database_interface import Binds, Database, Row
from portico.storage.remembered_offerings import LearnedSchemas
from portico.storage.results import ResultStore

ROOM = 100_000_000
TEXT = "".join(f"line {n} with ümläut and 漢字 and \x00 and \ud800\n" for n in range(30_000))
ROWS = json.dumps({"rows": [{"n": n, "mail": f"user{n}@example.com"} for n in range(100_000)], "total": 100_000})


@pytest.fixture
def store(database: Database) -> ResultStore:
    return ResultStore(database)


@pytest.fixture
def shapes(database: Database) -> LearnedSchemas:
    return LearnedSchemas(database)


def kept(id: str, *texts: str, expires_at: float = 2_000.0) -> Kept:
    parts = tuple(read_outline(text, 100).part for text in texts)
    return Kept(id=id, caller="anna", tool="a.b", parts=parts, seen=3, tokens=700, expires_at=expires_at)


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_a_result_comes_back_as_it_was(store: ResultStore) -> None:
    before = kept("r_1", TEXT, ROWS, "")
    store.save(before, room=ROOM, now=1_000.0)
    after = store.load("r_1")
    assert after is not None
    assert (after.id, after.caller, after.tool) == ("r_1", "anna", "a.b")
    assert (after.seen, after.tokens, after.expires_at) == (3, 700, 2_000.0)
    assert after.total == before.total
    for old, new in zip(before.parts, after.parts, strict=True):
        assert new.is_json == old.is_json
        assert new.text[0 : len(new.text)] == old.text[0 : len(old.text)]
        assert len(new.text) == len(old.text)
        for one, other in zip(old.segments, new.segments, strict=True):
            assert (other.unit, other.end, other.place, len(other.starts)) == (
                one.unit,
                one.end,
                one.place,
                len(one.starts),
            )
            numbers = range(0, len(one.starts), 7_919)
            assert [other.span(n) for n in numbers] == [one.span(n) for n in numbers]
            assert [other.holding(one.starts[n]) for n in numbers] == [*numbers]


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_a_store_that_replicas_share_lets_each_find_what_another_has_kept(database: Database) -> None:
    here, there = Results(store=ResultStore(database)), Results(store=ResultStore(database))
    anna = Caller(name="anna")
    id = here.keep(anna, "a.b", kept("r_x", ROWS).parts)
    if database.dialect == "sqlite":
        assert database.rows("SELECT id FROM results") == []
    else:
        assert there.find(anna, id).parts[0].text[0:20] == ROWS[:20]


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_an_unknown_handle_is_nothing(store: ResultStore) -> None:
    assert store.load("r_nothing") is None


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_expired_results_go_with_all_their_pieces(store: ResultStore, database: Database) -> None:
    store.save(kept("r_1", TEXT, expires_at=1_500.0), room=ROOM, now=1_000.0)
    store.save(kept("r_2", TEXT, expires_at=2_500.0), room=ROOM, now=1_000.0)
    store.sweep(1_500.0)
    assert store.load("r_1") is None
    assert store.load("r_2") is not None
    assert {id for (id,) in database.rows("SELECT DISTINCT id FROM result_pieces")} == {"r_2"}
    store.save(kept("r_3", "x", expires_at=3_000.0), room=ROOM, now=2_500.0)
    assert store.load("r_2") is None


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_the_oldest_make_room_and_what_is_larger_than_all_room_is_refused(store: ResultStore) -> None:
    for number in range(4):
        store.save(kept(f"r_{number}", "x" * 400_000), room=1_000_000, now=1_000.0 + number)
    assert [store.load(f"r_{number}") is not None for number in range(4)] == [False, False, True, True]
    with pytest.raises(StoreRefused, match="larger than all results"):
        store.save(kept("r_9", "x" * 2_000_000), room=1_000_000, now=1_010.0)
    assert store.load("r_3") is not None


class Counting:
    """A database that counts the bytes it gives."""

    def __init__(self, database: Database) -> None:
        self._database, self.given = database, 0

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        found = self._database.rows(sql, binds)
        self.given += sum(len(value) for row in found for value in row if isinstance(value, bytes | memoryview))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_page_of_a_large_result_reads_little_of_it(database: Database) -> None:
    counting = Counting(database)
    limits = ResultLimits(memory_mb=0)
    truncator = Truncator(
        counter=TokenEstimate(),
        results=Results(limits=limits, store=ResultStore(counting)),
    )
    caller = Caller(name="anna", result_tokens=2_000)
    id = truncator.results.keep(caller, "a.b", (read_outline(ROWS * 1, 100).part,), 0)
    counting.given = 0
    page = await ResultReader(truncator).read(caller, ReadRequest(id=id, cursor="90000"))
    assert json.loads(page.text)[0] == {"n": 90_000, "mail": "user90000@example.com"}
    assert counting.given < 1_500_000 < len(ROWS)
    found = await ResultReader(truncator).read(caller, ReadRequest(id=id, grep="user99999@"))
    assert found.text.startswith("99999: ")
    selected = await ResultReader(truncator).read(caller, ReadRequest(id=id, path="rows[-1].n"))
    assert selected.text == "99999"


@pytest.mark.requirement("P-RESULTS-READ")
async def test_a_result_that_goes_while_it_is_read_is_told_as_such(store: ResultStore) -> None:
    truncator = Truncator(counter=TokenEstimate(), results=Results(limits=ResultLimits(memory_mb=0), store=store))
    caller = Caller(name="anna")
    id = truncator.results.keep(caller, "a.b", (read_outline(TEXT, 100).part,))
    found = store.load(id)
    assert found is not None
    store.sweep(1e12)
    with pytest.raises(StoreError, match="has expired"):
        found.parts[0].text[0:10]
    with pytest.raises(UnknownResult):
        await ResultReader(truncator).read(caller, ReadRequest(id=id))


@pytest.mark.requirement("P-SHAPES")
def test_shapes_come_back_and_the_newest_counts(shapes: LearnedSchemas) -> None:
    values: Sequence[Any] = [{"a": 1}, [{"b\x00\ud800": None}], {"ü": {"x" * 60: 1.5}}]
    learned = {
        ToolId("server", f"tool {n}"): Learned(fingerprint=f"f{n}", shape=shape_of(value), results=n)
        for n, value in enumerate(values)
    }
    shapes.save_shapes(learned)
    shapes.save_shapes({})
    assert shapes.shapes() == learned
    newer = {ToolId("server", "tool 0"): Learned(fingerprint="g", shape=shape_of(1), results=9)}
    shapes.save_shapes(newer)
    assert shapes.shapes() == {**learned, **newer}
