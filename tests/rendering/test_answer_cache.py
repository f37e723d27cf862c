"""The one cache: one making for all who ask, nothing for ever, and no task left behind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from dataclasses import dataclass, field

import anyio
import pytest

from portico.rendering.cache import AnswerCache
from portico.testing import definition, make_test_app

TTL = 10.0


@dataclass
class Clock:
    """A clock that stands still until it is moved."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Maker:
    """Makes answers as told, and counts; `gate` holds a making back."""

    made: int = 0
    failure: Exception | None = None
    gate: anyio.Event | None = None
    begun: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self) -> int:
        self.made += 1
        number = self.made
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return number


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> AnswerCache:
    return AnswerCache(clock=clock, entries=3)


@pytest.mark.requirement("S1-E1")
async def test_an_answer_can_be_had_many_times(cache: AnswerCache):
    maker = Maker()
    assert [await cache.get("hot", 1, maker, TTL) for _ in range(3)] == [1, 1, 1]
    assert maker.made == 1


@pytest.mark.requirement("S1-E2")
async def test_an_answer_is_made_again_when_its_time_is_over(cache: AnswerCache, clock: Clock):
    maker = Maker()
    await cache.get("hot", 1, maker, TTL)
    clock.now = TTL - 0.1
    assert await cache.get("hot", 1, maker, TTL) == 1
    clock.now = TTL
    assert await cache.get("hot", 1, maker, TTL) == 2


@pytest.mark.requirement("S1-E2")
async def test_no_task_is_left_behind(cache: AnswerCache):
    before = asyncio.all_tasks()
    await cache.get("hot", 1, Maker(), TTL)
    assert asyncio.all_tasks() == before


@pytest.mark.requirement("S1-E1", "S1-E22")
async def test_all_who_ask_at_once_wait_for_one_making(cache: AnswerCache):
    maker = Maker(gate=anyio.Event())
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await cache.get("hot", 1, maker, TTL))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
            await maker.begun.wait()
            await anyio.wait_all_tasks_blocked()
            maker.gate.set()
    assert answers == [1] * 20
    assert maker.made == 1
    assert cache.counts() == {"hot": (19, 1)}


@pytest.mark.requirement("S1-E1")
async def test_a_maker_that_is_cancelled_leaves_its_place_to_one_who_waits(cache: AnswerCache):
    maker = Maker(gate=anyio.Event())
    answers: list[int] = []
    first = anyio.CancelScope()

    async def begin() -> None:
        with first:
            answers.append(await cache.get("hot", 1, maker, TTL))

    async def ask() -> None:
        answers.append(await cache.get("hot", 1, maker, TTL))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            await maker.begun.wait()
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            first.cancel()
            await anyio.wait_all_tasks_blocked()
            maker.gate.set()
    assert answers == [2, 2]


@pytest.mark.requirement("S1-E1")
async def test_one_who_waits_and_is_cancelled_disturbs_nobody(cache: AnswerCache):
    maker = Maker(gate=anyio.Event())
    answers: list[int] = []
    waiting = anyio.CancelScope()

    async def ask(scope: anyio.CancelScope) -> None:
        with scope:
            answers.append(await cache.get("hot", 1, maker, TTL))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, anyio.CancelScope())
            await maker.begun.wait()
            tasks.start_soon(ask, waiting)
            await anyio.wait_all_tasks_blocked()
            waiting.cancel()
            await anyio.wait_all_tasks_blocked()
            maker.gate.set()
    assert answers == [1]


@pytest.mark.requirement("S1-E1")
async def test_what_goes_wrong_reaches_all_and_is_not_kept(cache: AnswerCache):
    maker = Maker(gate=anyio.Event(), failure=ValueError("no"))
    errors: list[str] = []

    async def ask() -> None:
        with pytest.raises(ValueError, match="no") as caught:
            await cache.get("hot", 1, maker, TTL)
        errors.append(str(caught.value))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await maker.begun.wait()
            await anyio.wait_all_tasks_blocked()
            maker.gate.set()
    assert errors == ["no"] * 3
    maker.failure = None
    assert await cache.get("hot", 1, maker, TTL) == 2


@pytest.mark.requirement("S1-E1")
async def test_an_older_answer_stands_in_for_one_that_cannot_be_made(cache: AnswerCache, clock: Clock):
    maker = Maker()
    await cache.get("hot", 1, maker, TTL)
    maker.failure = ValueError("no")
    clock.now = 2 * TTL - 0.1
    assert await cache.get("hot", 1, maker, TTL) == 1
    clock.now = 2 * TTL
    with pytest.raises(ValueError, match="no"):
        await cache.get("hot", 1, maker, TTL)


@pytest.mark.requirement("S1-E22")
async def test_the_answer_that_was_not_asked_for_longest_makes_room(cache: AnswerCache):
    maker = Maker()
    for key in (1, 2, 3, 1, 4):
        await cache.get("hot", key, maker, TTL)
    assert len(cache) == 3
    assert maker.made == 4
    await cache.get("hot", 1, maker, TTL)
    assert maker.made == 4
    await cache.get("hot", 2, maker, TTL)
    assert maker.made == 5


@pytest.mark.requirement("S1-E2")
async def test_what_was_begun_before_it_was_cleared_is_given_and_not_kept(cache: AnswerCache):
    maker = Maker(gate=anyio.Event())
    answers: list[int] = []

    async def ask() -> None:
        answers.append(await cache.get("hot", 1, maker, TTL))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await maker.begun.wait()
            cache.clear()
            maker.gate.set()
    assert answers == [1]
    assert await cache.get("hot", 1, maker, TTL) == 2


@pytest.mark.requirement("S1-85")
async def test_hits_and_misses_are_counted_for_each_kind(cache: AnswerCache):
    maker = Maker()
    for kind, key in [("hot", 1), ("hot", 1), ("hot", 2), ("tool", 1)]:
        await cache.get(kind, key, maker, TTL)
    await cache.get("hot", 1, maker, TTL, counted=False)
    assert cache.counts() == {"hot": (1, 2), "tool": (0, 1)}


@dataclass
class Letter:
    """An answer with a body."""

    body: bytes


@pytest.mark.requirement("S1-E22")
async def test_answers_take_no_more_bytes_than_there_are():
    cache = AnswerCache(room=100)

    async def ask(key: int, size: int) -> None:
        async def make() -> Letter:
            return Letter(b"x" * size)

        await cache.get("hot", key, make, TTL)

    for key, size in ((1, 40), (2, 40), (3, 40)):
        await ask(key, size)
    assert len(cache) == 2
    await ask(4, 101)
    assert len(cache) == 2
    await ask(5, 100)
    assert len(cache) == 1
    cache.clear()
    for key in (1, 2):
        await ask(key, 50)
    assert len(cache) == 2


@pytest.mark.requirement("S1-E2", "S1-E22")
async def test_an_answer_of_another_version_takes_the_place_of_the_kept_one(cache: AnswerCache):
    maker = Maker()
    made = [await cache.get("tool", 1, maker, TTL, version=version) for version in (1, 1, 2, 2, 1)]
    assert (made, len(cache)) == ([1, 1, 2, 2, 3], 1)
    assert cache.counts() == {"tool": (2, 3)}


@pytest.mark.requirement("S1-E1")
async def test_who_wants_another_version_than_the_one_in_the_making_is_not_given_it(cache: AnswerCache):
    maker = Maker(gate=anyio.Event())
    answers: dict[int, int] = {}

    async def ask(version: int) -> None:
        answers[version] = await cache.get("tool", 1, maker, TTL, version=version)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, 1)
            await maker.begun.wait()
            tasks.start_soon(ask, 2)
            await anyio.wait_all_tasks_blocked()
            maker.gate.set()
    assert answers == {1: 1, 2: 2}


def test_the_items_of_a_snapshot_are_sorted_out_once_and_go_with_it():
    application = make_test_app({"a": [definition("b")]})
    items = application.gateway.items
    assert application.gateway.items is items
    alive = weakref.ref(application.gateway.snapshot)
    del application
    gc.collect()
    assert alive() is None


def test_an_answer_that_waits_for_nobody_lasts_as_long_as_its_version(cache: AnswerCache, clock: Clock):
    made = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [cache.get_now("x", "a", make, version=1) for _ in range(2)] == [1, 1]
    clock.now += 1_000 * TTL
    assert cache.get_now("x", "a", make, version=1) == 1
    assert [cache.get_now("x", "a", make, version=2) for _ in range(2)] == [2, 2]
    assert (cache.counts(), len(cache)) == ({"x": (3, 2)}, 1), "the new version is in the place of the old"
    with pytest.raises(ZeroDivisionError):
        cache.get_now("x", "b", lambda: 1 // 0)
    assert cache.get_now("x", "b", make) == 3, "an error is not kept"
    assert cache.clear() == 2
    assert cache.clear() == 0


async def test_answers_that_are_waited_for_and_others_share_the_room(cache: AnswerCache):
    for number in range(3):
        await cache.get("slow", number, Maker(), TTL)
        cache.get_now("quick", number, lambda: "made")
    assert len(cache) == cache.entries
