"""The vectors of questions: asked once, waited for a moment, never a reason to fail."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import anyio
import numpy as np
import pytest

from portico.errors import EmbedderAway
from portico.search.embeddings.cache import AT_ONCE, KEPT, Meanings, Pause
from portico.storage.memory import MemoryDefinitions
from portico.testing import FakeEmbedder

from .polyglot import Held
from .test_meanings import Clock, wait

pytestmark = pytest.mark.anyio


@pytest.fixture
def held() -> Held:
    return Held()


def over(embedder: FakeEmbedder, timeout: float, clock: Clock | None = None) -> Meanings:
    return Meanings(embedder, MemoryDefinitions(), timeout=timeout, slow=Pause(clock=clock or Clock()))


def until_answered(meanings: Meanings, text: str) -> None:
    """Asks until the late answer is there; a test that waits for ever is ended by its timeout."""
    while meanings.ask(text) is None:
        threading.Event().wait(0.001)


async def test_a_warmed_question_is_not_asked_again() -> None:
    embedder = FakeEmbedder()
    meanings = over(embedder, 5)
    warmed = await meanings.warm("list issues")
    assert warmed is not None
    assert np.array_equal(warmed, meanings.ask("list issues"))
    assert warmed is await meanings.warm("list issues")
    assert embedder.asked == ["list issues"]


async def test_the_event_loop_goes_on_while_a_question_waits(held: Held) -> None:
    meanings = over(held, 10)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meanings.warm, "slow")
            tasks.start_soon(meanings.warm, "slow")
            await anyio.to_thread.run_sync(wait, held.arrived)
            held.released.set()
    assert held.asked == ["slow"]


async def test_a_question_that_takes_too_long_is_none_and_its_late_answer_is_kept(held: Held) -> None:
    clock = Clock()
    meanings = over(held, 0.02, clock)
    assert await meanings.warm("one") is None
    assert meanings.state.endswith("but slow: no answer within 0.02 s")
    assert meanings.ask("two") is None, "nobody waits in vain twice in a row"
    held.released.set()
    await anyio.to_thread.run_sync(until_answered, meanings, "one")
    assert held.asked == ["one"]
    assert meanings.state == "ready 0/0", "a model that had to be loaded is forgiven"


async def test_an_embedder_that_is_always_late_is_asked_rarely(held: Held) -> None:
    clock = Clock()
    meanings = over(held, 0.02, clock)
    for text, state in (("one", "ready 0/0"), ("two", "ready 0/0, but slow: no answer within 0.02 s")):
        held.released.clear()
        assert await meanings.warm(text) is None
        held.released.set()
        await anyio.to_thread.run_sync(until_answered, meanings, text)
        assert meanings.state == state
    assert meanings.ask("three") is None
    clock.now += 30
    assert meanings.ask("three") is not None
    assert held.asked == ["one", "two", "three"]


def test_waking_does_not_wait_and_makes_a_question_late_no_reproach(held: Held) -> None:
    meanings = over(held, 0.02)
    meanings.wake()
    wait(held.arrived)
    assert meanings.ask("one") is None
    held.released.set()
    until_answered(meanings, "one")
    assert meanings.state == "ready 0/0"


async def test_whoever_gives_up_does_not_take_the_answer_from_others(held: Held) -> None:
    meanings = over(held, 10)
    found = []

    async def other() -> None:
        found.append(await meanings.warm("shared"))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other)
            await anyio.to_thread.run_sync(wait, held.arrived)
            with anyio.move_on_after(0.01):
                await meanings.warm("shared")
            held.released.set()
    assert found[0] is not None


def test_a_loop_that_is_closed_before_the_answer_comes_does_no_harm(held: Held) -> None:
    meanings = over(held, 0.01)
    assert anyio.run(meanings.warm, "one") is None
    held.released.set()
    until_answered(meanings, "one")


def test_only_so_many_questions_wait_at_once(held: Held) -> None:
    meanings = over(held, 10)
    asking = [threading.Thread(target=meanings.ask, args=(str(n),)) for n in range(AT_ONCE)]
    for thread in asking:
        thread.start()
    while [t.name for t in threading.enumerate()].count("portico-question") < AT_ONCE:
        threading.Event().wait(0.001)
    assert meanings.ask("one too many") is None
    held.released.set()
    for thread in asking:
        thread.join(10)
    assert meanings.ask("one too many") is not None


def test_the_newest_questions_are_kept() -> None:
    embedder = FakeEmbedder()
    meanings = over(embedder, 5)
    for n in range(KEPT):
        meanings.ask(str(n))
    meanings.ask("0")
    meanings.ask("new")
    meanings.ask("0")
    assert embedder.asked == [*map(str, range(KEPT)), "new"]
    meanings.ask("1")
    assert embedder.asked[-1] == "1"


async def test_known_questions_are_answered_while_the_embedder_is_away() -> None:
    embedder = FakeEmbedder()
    meanings = over(embedder, 5)
    await meanings.warm("known")
    embedder.fails(EmbedderAway("gone"))
    assert await meanings.warm("new") is None
    assert meanings.is_away
    assert meanings.ask("known") is not None


def test_an_embedder_that_breaks_its_promise_is_away() -> None:
    class Broken(FakeEmbedder):
        def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
            raise RuntimeError("unforeseen")

    meanings = over(Broken(), 5)
    assert meanings.ask("x") is None
    assert meanings.state.startswith("away: it failed with RuntimeError")
