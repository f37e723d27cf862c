"""What every embedder promises."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.embeddings.embedding_server import EmbeddingServer

from portico.errors import EmbedderAway
from portico.protocols import Embedder
from portico.search.embeddings.endpoint import Endpoint
from portico.search.embeddings.local import LocalModel
from portico.testing import FakeEmbedder

WORKER = """
import json, sys
print(json.dumps({"loaded": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"vectors": [[len(t), sum(map(ord, t)), 1.0] for t in json.loads(line)]}), flush=True)
"""
TEXTS = ["one", "two words", "", "données ✓", "one", *(f"tool {n}" for n in range(150))]


@pytest.fixture
def fake() -> Embedder:
    return FakeEmbedder()


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Embedder]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = EmbeddingServer()
    yield Endpoint(server.url, "m", seconds=10)
    server.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Embedder]:
    (tmp_path / "worker.py").write_text(WORKER)
    made = LocalModel("small", worker=(sys.executable, str(tmp_path / "worker.py")))
    yield made
    made.close()


@pytest.fixture(params=["fake", "endpoint", "local"])
def embedder(request: pytest.FixtureRequest) -> Embedder:
    found: Embedder = request.getfixturevalue(request.param)
    return found


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
def test_each_text_has_its_vector_in_its_place(embedder: Embedder) -> None:
    found = [list(numbers) for numbers in embedder.embed(TEXTS)]
    assert len(found) == len(TEXTS)
    assert found == [list(embedder.embed([text])[0]) for text in TEXTS]
    assert found[0] == found[4] != found[1]
    assert len({len(numbers) for numbers in found}) == 1


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
def test_no_texts_have_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]) == []
    assert embedder.name


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
def test_threads_may_ask_at_once(embedder: Embedder) -> None:
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda text: list(embedder.embed([text])[0]), TEXTS))
    assert found == [list(numbers) for numbers in embedder.embed(TEXTS)]


AWAY: dict[str, Callable[[], Embedder]] = {
    "endpoint": lambda: Endpoint("http://127.0.0.1:1/v1", "m"),
    "local": lambda: LocalModel("small", worker=(sys.executable, "-c", "")),
}


@pytest.mark.requirement("P-EMBEDDER-CONTRACT")
@pytest.mark.parametrize("kind", AWAY)
def test_one_that_cannot_be_asked_is_away_with_a_reason(kind: str) -> None:
    with pytest.raises(EmbedderAway, match=r"\w"):
        AWAY[kind]().embed(["x"])
