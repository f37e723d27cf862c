"""What texts mean, remembered: nothing embedded twice, nobody waiting, nothing lost when an embedder goes away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from portico.errors import EmbedderAway, StoreError
from portico.search.embeddings.cache import Meanings, Pause
from portico.search.embeddings.endpoint import Endpoint
from portico.storage.memory import MemoryDefinitions
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_file
from portico.testing import FakeEmbedder

from . import embedding_server as serving
from .embedding_server import EmbeddingServer, says
from .polyglot import Held

TEXTS = [f"tool number {n}" for n in range(150)]
KEY = "sk-very-secret-12345"


class Clock:
    """Time that passes when it is told to."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meanings(embedder: FakeEmbedder, clock: Clock) -> Iterator[Meanings]:
    made = Meanings(embedder, MemoryDefinitions(), timeout=5, pause=Pause(clock=clock), slow=Pause(clock=clock))
    yield made
    made.close()


def wait(event: threading.Event) -> None:
    assert event.wait(10)


def test_what_is_prepared_is_recalled_as_unit_vectors(meanings: Meanings, embedder: FakeEmbedder) -> None:
    assert meanings.recall(TEXTS[0]) is None
    assert meanings.prepare(TEXTS) == 150
    vectors = [meanings.recall(text) for text in TEXTS]
    assert all(v is not None and v.dtype == np.float32 and not v.flags.writeable for v in vectors)
    assert np.allclose([np.linalg.norm(v) for v in vectors if v is not None], 1, atol=1e-6)
    assert meanings.recall("another") is None
    assert meanings.state == "ready 150/150"


@pytest.mark.requirement("P-EMBEDDER-ONCE")
def test_nothing_is_embedded_twice(meanings: Meanings, embedder: FakeEmbedder) -> None:
    meanings.prepare([*TEXTS, *TEXTS])
    meanings.prepare([*TEXTS, "new"])
    meanings.ask("a question")
    meanings.ask("a question")
    assert embedder.asked == [*TEXTS, "new", "a question"]


@pytest.mark.requirement("P-EMBEDDER-ONCE")
def test_a_restart_finds_the_same_vectors_in_the_store(server: EmbeddingServer, tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        store = DatabaseDefinitions(open_file(tmp_path / "portico.db"))
        meanings = Meanings(Endpoint(server.url, "m"), store)
        assert meanings.prepare(TEXTS) == 150
        found.append(np.stack([v for text in TEXTS if (v := meanings.recall(text)) is not None]))
        meanings.close()
        store.close()
    assert np.array_equal(*found)
    assert server.texts == TEXTS


@pytest.mark.requirement("P-EMBEDDER-ONCE")
def test_what_is_stored_is_there_although_the_endpoint_is_not(server: EmbeddingServer, tmp_path: Path) -> None:
    store = DatabaseDefinitions(open_file(tmp_path / "portico.db"))
    Meanings(Endpoint(server.url, "m"), store).prepare(TEXTS)
    server.close()
    meanings = Meanings(Endpoint(server.url, "m"), store)
    assert meanings.prepare([*TEXTS, "new"]) == 150
    assert meanings.is_away
    store.close()


def test_another_model_has_vectors_of_its_own() -> None:
    store = MemoryDefinitions()
    one, two = FakeEmbedder(name="one"), FakeEmbedder(name="two")
    Meanings(one, store).prepare(["x"])
    Meanings(two, store).prepare(["x"])
    assert (one.asked, two.asked) == (["x"], ["x"])


FAILURES = {
    "refuses": says(503, ""),
    "401": says(401, KEY),
    "500": says(500, ""),
    "hangs": serving.hangs,
    "wrong JSON": says(200, "{"),
    "NaN": says(200, '{"data": [{"index": 0, "embedding": [NaN]}]}'),
    "nowhere": says(200, '{"data": [{"index": 0, "embedding": [0, 0]}]}'),
    "lengths": says(200, '{"data": [{"index": 0, "embedding": []}]}'),
    "flood": serving.floods,
    "hangs up": serving.hangs_up,
}


@pytest.mark.requirement("P-EMBEDDER-AWAY", "P-EMBEDDER-SECRET")
@pytest.mark.parametrize("failure", FAILURES)
def test_search_goes_on_whatever_the_endpoint_does_and_comes_back_when_it_does(
    server: EmbeddingServer, clock: Clock, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    caplog.set_level(logging.DEBUG)
    endpoint = Endpoint(server.url, "m", key=KEY, seconds=0.3 if failure == "hangs" else 5)
    meanings = Meanings(endpoint, MemoryDefinitions(), timeout=5, pause=Pause(clock=clock))
    server.behaviour = FAILURES[failure]
    assert meanings.prepare(["x"]) == 0
    assert meanings.recall("x") is meanings.ask("x") is None
    assert meanings.state.startswith("away: ")
    assert meanings.state.endswith(", next try in 30 s")
    asked = len(server.requests)
    assert meanings.prepare(["x"]) == 0
    assert meanings.ask("x") is None
    assert len(server.requests) == asked, "it is left alone until the pause is over"
    server.behaviour = serving.well
    clock.now += 30
    assert meanings.prepare(["x"]) == 1
    assert meanings.ask("x") is not None
    assert meanings.state == "ready 1/1"
    infos = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert [record.levelname for record in infos] == ["INFO"]
    assert KEY not in caplog.text


def test_the_pause_doubles_up_to_ten_minutes_and_is_logged_once(
    meanings: Meanings, embedder: FakeEmbedder, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    embedder.fails(EmbedderAway("gone fishing"))
    waits = []
    for _ in range(7):
        meanings.prepare(["x"])
        waits.append(meanings.state)
        clock.now += 3_600
    assert waits == [f"away: gone fishing, next try in {s} s" for s in (30, 60, 120, 240, 480, 600, 600)]
    assert meanings.state == "away: gone fishing, next try at the next search"
    assert caplog.text.count("gone fishing") == 1


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_an_endpoint_that_goes_in_the_middle_keeps_what_it_gave(server: EmbeddingServer, clock: Clock) -> None:
    def goes(handler: serving.Handler, texts: list[str]) -> None:
        serving.well(handler, texts) if len(server.requests) == 1 else serving.hangs_up(handler, texts)

    server.behaviour = goes
    meanings = Meanings(Endpoint(server.url, "m", seconds=5), MemoryDefinitions(), pause=Pause(clock=clock))
    assert meanings.prepare(TEXTS) == 64
    server.behaviour = serving.well
    clock.now += 30
    assert meanings.prepare(TEXTS) == 150
    given = [*server.requests[0]["input"], *(t for request in server.requests[2:] for t in request["input"])]
    assert given == TEXTS


@pytest.mark.requirement("P-EMBEDDER-AWAY")
@pytest.mark.parametrize("status", [400, 500])
def test_one_text_that_is_refused_does_not_cost_the_others_their_vectors(server: EmbeddingServer, status: int) -> None:
    server.behaviour = serving.stumbles_over("number 77", status)
    meanings = Meanings(Endpoint(server.url, "m"), MemoryDefinitions(), timeout=5)
    assert meanings.prepare(TEXTS) == 149
    assert meanings.recall("tool number 77") is None
    assert meanings.state == "ready 149/150"
    asked = len(server.requests)
    assert meanings.prepare(TEXTS) == 149
    assert meanings.ask("number 77") is None
    assert meanings.ask("number 78") is not None
    assert len(server.requests) == asked + 3, "the refused question, a plain word, and the other question"


def test_a_model_that_was_replaced_under_its_name_is_embedded_anew(
    meanings: Meanings, embedder: FakeEmbedder, clock: Clock
) -> None:
    meanings.prepare(["a", "b"])
    embedder.dimensions = 32
    assert meanings.prepare(["a", "b", "c"]) == 3
    assert {v.size for text in "abc" if (v := meanings.recall(text)) is not None} == {32}


def test_a_question_finds_out_that_the_model_was_replaced() -> None:
    embedder, store, ready = FakeEmbedder(), MemoryDefinitions(), threading.Event()
    Meanings(embedder, store).prepare(["a", "b"])
    embedder.dimensions = 32
    meanings = Meanings(embedder, store, timeout=5)
    meanings.start(["a", "b"], ready.set)
    wait(ready)
    ready.clear()
    question = meanings.ask("what")
    assert question is not None
    wait(ready)
    assert {v.size for text in "ab" if (v := meanings.recall(text)) is not None} == {question.size}
    meanings.close()


def test_a_length_that_keeps_changing_is_no_endless_loop() -> None:
    class Fickle(FakeEmbedder):
        def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
            self.dimensions += 1
            return FakeEmbedder.embed(self, texts)

    meanings = Meanings(Fickle(), MemoryDefinitions())
    assert meanings.prepare(TEXTS) < 150
    assert meanings.state.startswith("away: its vectors change their length")


def test_memory_is_bounded_and_what_is_wanted_stays(embedder: FakeEmbedder) -> None:
    meanings = Meanings(embedder, MemoryDefinitions(), capacity=10)
    meanings.prepare(TEXTS[:10])
    assert meanings.prepare(TEXTS[5:12]) == 7
    assert meanings.prepare(TEXTS[20:]) == 10
    assert meanings.recall(TEXTS[0]) is None
    assert meanings.recall(TEXTS[20]) is not None


def test_long_texts_are_cut_and_odd_ones_do_no_harm(meanings: Meanings, embedder: FakeEmbedder) -> None:
    texts = ["x" * 1_000_000, "half a pair \ud83d", "\0", "", "   "]
    assert meanings.prepare(texts) == 3
    assert all(meanings.recall(text) is not None for text in texts[:3])
    assert max(map(len, embedder.asked)) == 4_000
    assert meanings.recall("") is meanings.ask("") is meanings.ask(" \n") is None


def test_a_store_that_fails_costs_memory_only(embedder: FakeEmbedder) -> None:
    class Broken(MemoryDefinitions):
        def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
            raise StoreError("no")

        def save_vectors(self, model: str, rows: object) -> None:
            raise StoreError("no")

    assert Meanings(embedder, Broken()).prepare(["x"]) == 1


@pytest.mark.parametrize("blob", [b"", b"x", b"\0\0" * 64, b"\x00\x7c" * 64, b"\x00\x7e" * 64])
def test_a_stored_vector_that_is_none_is_embedded_again(embedder: FakeEmbedder, blob: bytes) -> None:
    class Damaged(MemoryDefinitions):
        def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
            return dict.fromkeys(hashes, blob)

    assert Meanings(embedder, Damaged()).prepare(["x"]) == 1
    assert embedder.asked == ["x"]


def test_the_background_says_when_more_is_known(meanings: Meanings, embedder: FakeEmbedder) -> None:
    ready = threading.Event()
    meanings.start(TEXTS, ready.set)
    wait(ready)
    assert all(meanings.recall(text) is not None for text in TEXTS)
    ready.clear()
    meanings.start(TEXTS, ready.set)
    assert not ready.is_set()
    assert embedder.asked == TEXTS


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "portico-meanings"}


def test_texts_that_come_while_it_works_join_the_next_round() -> None:
    embedder, ready = Held(), threading.Event()
    others = workers()
    meanings = Meanings(embedder, MemoryDefinitions())
    meanings.start(["a"])
    wait(embedder.arrived)
    assert meanings.state == "preparing 0/1"
    for n in range(20):
        meanings.start(
            ["a", *map(str, range(n + 1))], lambda: ready.set() if meanings.recall("19") is not None else None
        )
    assert len(workers() - others) == 1
    embedder.released.set()
    wait(ready)
    assert embedder.asked == ["a", *map(str, range(20))]
    meanings.close()


@pytest.mark.parametrize("rouse", [Meanings.wake, Meanings.check, lambda meanings: meanings.ask("what")])
def test_a_lazy_source_loads_at_once_and_embeds_when_it_is_needed(rouse: Callable[[Meanings], object]) -> None:
    embedder, store, ready = FakeEmbedder(), MemoryDefinitions(), threading.Event()
    Meanings(embedder, store).prepare(["stored"])
    meanings = Meanings(embedder, store, lazy=True, timeout=5)
    meanings.start(["stored", "new"], ready.set)
    wait(ready)
    assert meanings.recall("stored") is not None
    assert embedder.asked == ["stored"]
    assert meanings.state == "ready 1/2"
    ready.clear()
    rouse(meanings)
    wait(ready)
    assert meanings.recall("new") is not None
    meanings.close()


def test_the_background_tries_again_by_itself() -> None:
    embedder, ready = FakeEmbedder(), threading.Event()
    embedder.fails(EmbedderAway("gone"))
    meanings = Meanings(embedder, MemoryDefinitions(), pause=Pause(first=0.01, longest=0.01))
    meanings.start(["a"], ready.set)
    while not meanings.is_away:
        threading.Event().wait(0.005)
    embedder.fails(None)
    wait(ready)
    assert meanings.recall("a") is not None
    meanings.close()


def test_a_question_that_is_answered_ends_the_pause_for_the_background(
    meanings: Meanings, embedder: FakeEmbedder, clock: Clock
) -> None:
    ready = threading.Event()
    embedder.fails(EmbedderAway("gone"))
    meanings.start(["a"], ready.set)
    assert meanings.check().startswith("away: gone")
    embedder.fails(None)
    clock.now += 30
    assert meanings.ask("anything") is not None
    wait(ready)


def test_closing_ends_the_thread_and_nothing_is_asked_afterwards() -> None:
    embedder = Held()
    meanings = Meanings(embedder, MemoryDefinitions())
    meanings.start(TEXTS)
    wait(embedder.arrived)
    closing = threading.Thread(target=meanings.close)
    closing.start()
    embedder.released.set()
    closing.join(10)
    assert len(embedder.asked) <= 64
    meanings.start(["late"])
    assert meanings.ask("late") is None
    assert "late" not in embedder.asked


def test_a_check_asks_at_once_and_says_the_state(meanings: Meanings, embedder: FakeEmbedder, clock: Clock) -> None:
    embedder.fails(EmbedderAway("gone"))
    assert meanings.check() == "away: gone, next try in 30 s"
    embedder.fails(None)
    meanings.start(TEXTS)
    assert meanings.check() == "ready 150/150"
