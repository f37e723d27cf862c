"""Results that are kept: for their caller, for a while, in memory or in the store; no handle ever lies."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from portico.domain.call import Caller, Kept, Part, ResultLimits
from portico.errors import StoreError, UnknownResult
from portico.results.kept import Results
from portico.results.preview import read_outline

ANNA, BEN = Caller(name="anna"), Caller(name="ben")


@dataclass
class Clock:
    """A clock that shows the given time."""

    at: float = 1_000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Shelf:
    """A store in memory that can be away."""

    kept: dict[str, Kept] = field(default_factory=dict)
    is_away: bool = False
    is_shared: bool = False

    def save(self, kept: Kept, *, room: int, now: float) -> None:
        self._ask()
        self.kept[kept.id] = kept

    def load(self, id: str) -> Kept | None:
        self._ask()
        return self.kept.get(id)

    def sweep(self, now: float) -> None:
        self.kept = {id: kept for id, kept in self.kept.items() if kept.expires_at > now}

    def _ask(self) -> None:
        if self.is_away:
            raise StoreError("the store is away")


def parts(letters: int = 10) -> tuple[Part, ...]:
    return (read_outline("x" * letters, 100).part,)


def said(results: Results, caller: Caller, id: str) -> str:
    with pytest.raises(UnknownResult) as caught:
        results.find(caller, id)
    assert caught.value.next_call is not None
    return str(caught.value).replace(id, "ID")


@pytest.mark.requirement("P-RESULTS-HANDLES", "T15")
def test_a_result_is_found_by_its_caller_alone() -> None:
    results = Results()
    id = results.keep(ANNA, "a.b", parts(), 0)
    assert results.find(ANNA, id).tool == "a.b"
    assert said(results, BEN, id) == said(results, ANNA, "r_AAAAAAAAAAAAAAAA")


@pytest.mark.requirement("P-RESULTS-HANDLES")
@pytest.mark.parametrize("memory_mb", [64, 0])
def test_a_result_expires_and_then_looks_as_if_it_had_never_been(memory_mb: int) -> None:
    clock = Clock()
    limits = ResultLimits(memory_mb=memory_mb, expire_s=60)
    results = Results(limits=limits, store=Shelf(), clock=clock, now=clock)
    id = results.keep(ANNA, "a.b", parts(), 0)
    clock.at += 59
    assert results.find(ANNA, id)
    clock.at += 1
    assert said(results, ANNA, id) == said(results, ANNA, "r_AAAAAAAAAAAAAAAA")


@pytest.mark.requirement("P-RESULTS-HANDLES", "T15")
def test_handles_are_never_alike_and_long_enough_not_to_be_guessed() -> None:
    results = Results()
    found = {results.keep(ANNA, "a.b", parts(), 0) for _ in range(1_000)}
    assert len(found) == 1_000
    assert all(id.startswith("r_") and len(id) == 18 for id in found)


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_what_has_no_room_in_memory_is_in_the_store_before_its_handle_is_known() -> None:
    store = Shelf()
    results = Results(limits=ResultLimits(memory_mb=1), store=store)
    first = results.keep(ANNA, "a.b", parts(600_000), 0)
    second = results.keep(ANNA, "a.b", parts(600_000), 0)
    assert list(store.kept) == [second]
    assert results.find(ANNA, first).id == first
    assert results.find(ANNA, second).id == second
    assert said(results, BEN, second) == said(results, BEN, "r_AAAAAAAAAAAAAAAA")


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_expired_results_give_their_room_back() -> None:
    clock = Clock()
    results = Results(limits=ResultLimits(memory_mb=1, expire_s=60), clock=clock, now=clock)
    assert results.keep(ANNA, "a.b", parts(600_000), 0)
    assert results.keep(ANNA, "a.b", parts(600_000), 0) == ""
    clock.at += 60
    assert results.keep(ANNA, "a.b", parts(600_000), 0)


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_while_the_store_is_away_memory_serves_and_what_has_no_room_gets_no_handle() -> None:
    store = Shelf(is_away=True)
    results = Results(limits=ResultLimits(memory_mb=1), store=store)
    first = results.keep(ANNA, "a.b", parts(600_000), 0)
    assert results.keep(ANNA, "a.b", parts(600_000), 0) == ""
    assert results.find(ANNA, first)
    assert "the store cannot be read now" in said(results, ANNA, "r_AAAAAAAAAAAAAAAA")
    store.is_away = False
    assert results.keep(ANNA, "a.b", parts(600_000), 0) in store.kept


def test_expired_results_are_swept_from_the_store() -> None:
    clock, store = Clock(), Shelf()
    results = Results(limits=ResultLimits(memory_mb=0, expire_s=60), store=store, clock=clock, now=clock)
    results.keep(ANNA, "a.b", parts(), 0)
    clock.at += 60
    results.sweep_store()
    assert not store.kept
    Results().sweep_store()


@pytest.mark.parametrize("id", ["", "x" * 10_000, "r_\0", "r_../../etc/passwd", "r_ÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄÄ"])
def test_whatever_is_no_handle_never_reaches_the_store(id: str) -> None:
    results = Results(store=Shelf(is_away=True))
    with pytest.raises(UnknownResult):
        results.find(ANNA, id)


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_where_replicas_share_the_store_any_of_them_knows_a_handle_once_it_is_given_out() -> None:
    store = Shelf(is_shared=True)
    here, there = Results(store=store), Results(store=store)
    id = here.keep(ANNA, "a.b", parts())
    assert there.find(ANNA, id).parts == here.find(ANNA, id).parts
    said(there, BEN, id)
    store.is_away = True
    assert here.find(ANNA, here.keep(ANNA, "a.b", parts()))


@pytest.mark.requirement("P-RESULTS-HANDLES")
def test_a_result_of_one_gateway_alone_is_not_written_while_memory_has_room() -> None:
    store = Shelf()
    assert Results(store=store).keep(ANNA, "a.b", parts())
    assert not store.kept
