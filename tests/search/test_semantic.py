"""An embedder is a third signal of search: it finds what no word tells, and search is as before when it is away."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
from tests.catalogue import generate
from tests.embeddings import embedding_server as serving
from tests.embeddings.embedding_server import EmbeddingServer
from tests.embeddings.polyglot import QUERY, TEXTS, TOOLS, Held, Polyglot, speaks

from portico.domain.search_answers import Findings, Query
from portico.domain.server import Offering, ServerSpec, ToolFilter
from portico.errors import EmbedderAway
from portico.protocols import Embedder
from portico.search.embeddings.cache import Meanings, Pause
from portico.search.embeddings.endpoint import Endpoint
from portico.search.index import build_index
from portico.search.word_vectors import NAMED, SAID, text_of
from portico.storage.memory import MemoryDefinitions
from portico.testing import AGENT, FakeApplication, definition, make_test_app, tool

QUERIES = ["send an invoice", "resize", "make a picture smaller", "bill the customer, then shrink a picture", QUERY]


class Clock:
    """Time that passes when it is told to."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = EmbeddingServer()
    made.behaviour = speaks
    yield made
    made.close()


@pytest.fixture
def opened() -> Iterator[Callable[..., Meanings]]:
    """Makes sources and closes them."""
    made: list[Meanings] = []

    def open_(embedder: Embedder, *, timeout: float = 5.0, clock: Clock | None = None) -> Meanings:
        pauses = {"pause": Pause(clock=clock), "slow": Pause(clock=clock)} if clock else {}
        made.append(Meanings(embedder, MemoryDefinitions(), timeout=timeout, **pauses))
        return made[-1]

    yield open_
    for source in made:
        source.close()


def asked(application: FakeApplication, text: str, meanings: Meanings | None = None) -> Findings:
    """What is found after the embedder had its moment."""
    if meanings is not None:
        meanings.ask(text)
    return application.gateway.hits(AGENT, Query(text=text))


def names(found: Findings) -> list[str]:
    return [hit.name for hit in found.hits]


def offer(application: FakeApplication, *tools: dict[str, object]) -> None:
    application.gateway.publisher.accept([(Offering(server="s", tools=tools), "upstream")])


@pytest.mark.requirement("P-SEMANTIC")
def test_a_query_without_a_shared_word_finds_its_tool(opened: Callable[..., Meanings]) -> None:
    meanings = opened(Polyglot())
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    assert meanings.check() == "ready 3/3"
    found = asked(application, QUERY, meanings)
    assert (names(found), found.fits) == (["forecast"], True)
    assert list(found.hits[0].why) == ["semantic"]
    assert "s.forecast" in application.gateway.search(AGENT, Query(text=QUERY)).text
    assert not asked(make_test_app({"s": TOOLS}), QUERY).hits


@pytest.mark.requirement("P-SEMANTIC")
def test_so_it_does_through_an_endpoint(server: EmbeddingServer, opened: Callable[..., Meanings]) -> None:
    meanings = opened(Endpoint(server.url, "m"))
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    assert meanings.check() == "ready 3/3"
    assert names(asked(application, QUERY, meanings)) == ["forecast"]
    assert sorted(server.texts) == sorted(["search", *TEXTS, QUERY])


@pytest.mark.requirement("P-SEMANTIC")
def test_a_large_catalog_is_searched_by_it_as_well(opened: Callable[..., Meanings]) -> None:
    meanings = opened(Polyglot())
    application = make_test_app({**generate(10, 1_200), "s": TOOLS}, meanings=meanings)
    assert meanings.check(60).startswith("ready")
    assert names(asked(application, QUERY, meanings))[0] == "forecast"


@pytest.mark.requirement("P-SEMANTIC")
@pytest.mark.parametrize("text", QUERIES)
def test_the_parts_of_a_score_still_add_up(text: str, opened: Callable[..., Meanings]) -> None:
    meanings = opened(Polyglot())
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    meanings.check()
    found = asked(application, text, meanings).hits
    assert found[0].why["semantic"] > 0
    assert ("several needs" in found[0].why) == (", then" in text)
    for hit in found:
        assert hit.score == pytest.approx(sum(hit.why.values()), abs=0.001)


@pytest.mark.requirement("P-EMBEDDER-AWAY")
@pytest.mark.parametrize(
    "behaviour",
    [
        serving.hangs,
        serving.hangs_up,
        serving.says(401, "no"),
        serving.says(500, "no"),
        serving.says(200, "[]"),
        serving.says(200, '{"data": [{"index": 0, "embedding": [0, 0]}]}'),
        None,
    ],
    ids=["hangs", "hangs up", "refuses", "fails", "no vectors", "vectors of nothing", "not there"],
)
def test_an_embedder_that_is_away_changes_no_hit(
    behaviour: Callable[..., None] | None,
    server: EmbeddingServer,
    opened: Callable[..., Meanings],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    server.behaviour = behaviour or serving.well
    if behaviour is None:
        server.close()
    meanings = opened(Endpoint(server.url, "m", seconds=0.2), timeout=0.1)
    application, plain = make_test_app({"s": TOOLS}, meanings=meanings), make_test_app({"s": TOOLS})
    for text in QUERIES * 2:
        one, other = asked(application, text, meanings), asked(plain, text)
        assert (one.fits, [(h.name, h.score) for h in one.hits]) == (
            other.fits,
            [(h.name, h.score) for h in other.hits],
        )
    assert len([record for record in caplog.records if record.name.startswith("portico")]) <= 1


@pytest.mark.requirement("P-EMBEDDER-AWAY")
def test_an_embedder_that_comes_back_is_used(opened: Callable[..., Meanings]) -> None:
    embedder, clock = Polyglot(), Clock()
    embedder.fails(EmbedderAway("gone"))
    meanings = opened(embedder, clock=clock)
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    assert not asked(application, QUERY, meanings).hits
    embedder.fails(None)
    clock.now += 1_000
    meanings.check()
    assert names(asked(application, QUERY, meanings)) == ["forecast"]
    embedder.fails(EmbedderAway("gone"))
    assert names(asked(application, QUERY, meanings)) == ["forecast"], "what is known stays known"


@pytest.mark.requirement("P-EMBEDDER-ONCE")
def test_the_next_edition_has_the_vectors_of_the_last(opened: Callable[..., Meanings]) -> None:
    embedder = Polyglot()
    meanings = opened(embedder)
    application = make_test_app({"s": TOOLS, "t": [definition("other", "tool")]}, meanings=meanings)
    meanings.check()
    meanings.ask(QUERY)
    embedder.fails(EmbedderAway("gone"))
    for tools in ([TOOLS[1], TOOLS[0]], [TOOLS[0]], [], TOOLS):
        offer(application, *tools)
        assert names(asked(application, QUERY)) == (["forecast"] if tools else [])
    read = [text for text in embedder.asked if ":" in text]
    assert sorted(read) == sorted([*TEXTS, "other: tool"])


def test_a_tool_that_is_described_anew_is_read_anew(opened: Callable[..., Meanings]) -> None:
    meanings = opened(Polyglot())
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    meanings.check()
    offer(application, definition("forecast", "stock prices"), definition("resize", "weather tomorrow"))
    meanings.check()
    assert names(asked(application, QUERY, meanings)) == ["resize"]


def test_tools_are_found_by_it_as_soon_as_it_has_read_them(opened: Callable[..., Meanings]) -> None:
    embedder = Held()
    meanings = opened(embedder)
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    assert embedder.arrived.wait(10)
    assert not asked(application, QUERY).hits
    embedder.released.set()
    meanings.check()
    assert names(asked(application, QUERY, meanings)) == ["forecast"]


def test_a_search_alone_neither_asks_nor_waits(opened: Callable[..., Meanings]) -> None:
    embedder = Polyglot()
    meanings = opened(embedder)
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    meanings.check()
    assert not application.gateway.search(AGENT, Query(text=QUERY)).fits
    assert QUERY not in embedder.asked


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING")
@pytest.mark.parametrize("others", [0, 1_200])
def test_a_hidden_tool_is_not_found_by_it(others: int, opened: Callable[..., Meanings]) -> None:
    meanings = opened(Polyglot())
    hidden = ServerSpec(name="s", transport="stdio", tools=ToolFilter(deny=("forecast",)))
    servers = {**(generate(10, others) if others else {}), "s": TOOLS}
    application = make_test_app(servers, specs=[hidden], meanings=meanings)
    meanings.check(60)
    assert "forecast" not in names(asked(application, QUERY, meanings))
    assert "forecast" not in application.gateway.search(AGENT, Query(text=QUERY)).text


def test_a_model_with_longer_vectors_takes_over(opened: Callable[..., Meanings]) -> None:
    embedder = Polyglot()
    meanings = opened(embedder)
    application = make_test_app({"s": TOOLS}, meanings=meanings)
    meanings.check()
    embedder.dimensions = 768
    meanings.ask(QUERY)
    meanings.check()
    assert names(asked(application, QUERY, meanings)) == ["forecast"]


@pytest.mark.requirement("P-SEARCH-BOMBS")
def test_of_a_monstrous_definition_little_is_sent() -> None:
    wide = tool(definition("wide", "x" * 8_000, **{f"parameter{n}": "string?" for n in range(6_000)}))
    assert len(text_of(wide)) == SAID + NAMED + 1
    assert [text_of(tool(raw)) for raw in TOOLS] == TEXTS


def test_without_a_source_there_is_nothing_of_it() -> None:
    snapshot = make_test_app({"s": TOOLS}).gateway.snapshot
    index = build_index(snapshot, None)
    assert index.semantics is None
    assert all("semantic" not in hit.why for hit in index.query("weather", within=snapshot.tools.keys(), limit=5).hits)
