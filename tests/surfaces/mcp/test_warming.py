"""The surfaces let an embedder read a query first, and the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from anyio import fail_after
from tests.embeddings.polyglot import QUERY, TOOLS, Held, Polyglot

from portico.gateway import Gateway
from portico.search.embeddings.cache import Meanings
from portico.storage.memory import MemoryDefinitions
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import Search
from portico.testing import AGENT, make_test_app

SURFACES = {"discover": Discover, "search": lambda gateway: Search(gateway, "meaning")}


@pytest.fixture
def embedder() -> Held:
    return Held()


@pytest.fixture
def meanings(embedder: Held) -> Iterator[Meanings]:
    made = Meanings(embedder, MemoryDefinitions(), timeout=5)
    yield made
    embedder.released.set()
    made.close()


async def found(gateway: Gateway, surface: str, query: str) -> str:
    """What the surface's search says."""
    made = SURFACES[surface](gateway)
    search = made.meta_tool("search_tools" if surface == "discover" else "search_tool")
    assert search is not None
    result = await search(AGENT, {"query": query}, Envelope())
    return str(result["content"][0]["text"])


@pytest.mark.requirement("P-SEMANTIC", "P-EMBEDDER-AWAY")
@pytest.mark.parametrize("surface", SURFACES)
async def test_the_loop_goes_on_while_an_embedder_thinks(surface: str, embedder: Held, meanings: Meanings) -> None:
    embedder.released.set()
    gateway = make_test_app({"s": TOOLS}, meanings=meanings).gateway
    await anyio.to_thread.run_sync(meanings.check)
    embedder.released.clear()
    embedder.arrived.clear()
    events = []

    async def search() -> None:
        events.append("forecast" in await found(gateway, surface, QUERY))

    with fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(search)
            await anyio.to_thread.run_sync(embedder.arrived.wait)
            events.append("meanwhile")
            embedder.released.set()
    assert events == ["meanwhile", True]


@pytest.mark.requirement("P-EMBEDDER-AWAY")
@pytest.mark.parametrize("surface", SURFACES)
async def test_a_search_gives_up_on_an_embedder_that_hangs(surface: str, embedder: Held) -> None:
    impatient = Meanings(embedder, MemoryDefinitions(), timeout=0.02)
    gateway, plain = make_test_app({"s": TOOLS}, meanings=impatient).gateway, make_test_app({"s": TOOLS}).gateway
    with fail_after(10):
        for query in ("send an invoice", QUERY):
            assert await found(gateway, surface, query) == await found(plain, surface, query)
    embedder.released.set()
    impatient.close()


async def test_a_name_and_a_search_for_keywords_are_not_read() -> None:
    embedder = Polyglot()
    meanings = Meanings(embedder, MemoryDefinitions(), timeout=5)
    gateway = make_test_app({"s": TOOLS}, meanings=meanings).gateway
    await anyio.to_thread.run_sync(meanings.check)
    before = list(embedder.asked)
    assert "forecast" in await found(gateway, "discover", "s.forecast")
    search = Search(gateway).meta_tool("search_tool")
    assert search is not None
    await search(AGENT, {"query": "weather please"}, Envelope())
    assert embedder.asked == before
    meanings.close()
