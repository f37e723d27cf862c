"""The catalog follows its providers: from the store at start, from the source when needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import cast

import pytest
from anyio import create_task_group, fail_after

from portico.domain.search_answers import Query
from portico.domain.server import Offering
from portico.errors import CallError, StoreError, UnknownServer, UpstreamGone
from portico.storage.memory import MemoryDefinitions
from portico.storage.storage import Storage
from portico.testing import AGENT, FakeProvider, definition, fake_application, make_test_app

GONE = UpstreamGone("fake", details=("it died",))


class BrokenStore(MemoryDefinitions):
    """A disk that neither reads nor writes."""

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        raise StoreError("unreadable")

    def save(self, offering: Offering, fingerprint: str) -> None:
        raise StoreError("full")

    def forget(self, servers: Iterable[str]) -> None:
        raise StoreError("full")


async def test_a_new_offering_is_found_by_the_next_search() -> None:
    async with fake_application({"fake": [definition("weather")]}) as application:
        application.provider().offers(definition("weather"), definition("forecast"))
        with fail_after(5):
            await application.snapshot(2)
        found = application.gateway.search(AGENT, Query(text="forecast please"))
        assert found.cards[0].handle == "fake.forecast"


async def test_a_change_while_being_asked_is_not_missed() -> None:
    async with fake_application({"fake": []}) as application:
        provider = application.provider()
        provider.hold()
        provider.offers(definition("old"))
        with fail_after(5):
            await provider.arrived()
            provider.offers(definition("new"))
            provider.release()
            while "fake.new" not in [tool.handle for tool in application.gateway.view(AGENT).tools]:
                await application.snapshot(application.gateway.snapshot.number + 1)
        assert provider.offered == 2


async def test_what_was_offered_is_remembered_and_nothing_is_asked_at_the_next_start() -> None:
    store = MemoryDefinitions()
    first = make_test_app({"fake": [definition("weather")]}, storage=Storage(definitions=store))
    await first.admin.refresh()
    second = make_test_app({"fake": []}, storage=Storage(definitions=store))
    second.admin.refresher.load()
    assert second.admin.refresher.unknown == set()
    assert second.provider().offered == 0
    assert [tool.handle for tool in second.gateway.view(AGENT).tools] == ["fake.weather"]


@pytest.mark.requirement("P-STORE-OPTIONAL")
async def test_a_broken_store_costs_memory_and_nothing_else() -> None:
    application = make_test_app({"fake": [definition("weather")]}, storage=Storage(definitions=BrokenStore()))
    application.admin.refresher.load()
    assert application.admin.refresher.unknown == {"fake"}
    await application.admin.refresh()
    assert [tool.handle for tool in application.gateway.view(AGENT).tools] == ["fake.weather"]


async def test_a_server_that_cannot_be_asked_keeps_its_tools_and_stops_nobody() -> None:
    application = make_test_app({"fake": [definition("weather")], "other": []})
    application.provider().fails(GONE)
    application.provider("other").tools = [definition("new")]
    outcomes: dict[str, CallError | None] = {}
    await application.admin.refresh(on_done=lambda server, failure: outcomes.__setitem__(server, failure))
    assert outcomes == {"fake": GONE, "other": None}
    assert [tool.handle for tool in application.gateway.view(AGENT).tools] == ["fake.weather", "other.new"]
    assert application.admin.refresher.failures == {"fake": "it died"}
    application.provider().fails(None)
    await application.admin.refresh({"fake"})
    assert application.admin.refresher.failures == {}


async def test_an_unknown_server_is_named_with_the_known_ones() -> None:
    with pytest.raises(UnknownServer, match="configured: fake"):
        await make_test_app({"fake": []}).admin.refresher.refresh("nobody")


@pytest.mark.requirement("F01")
async def test_settling_waits_for_first_offers_and_names_those_that_are_late() -> None:
    application = make_test_app({"fake": []})
    refresher = application.admin.refresher
    application.gateway.publisher.withdraw("fake")
    application.provider().hold()
    async with create_task_group() as tasks:
        refresher.watch(tasks)
        refresher.begin("fake")
        with fail_after(5):
            await application.provider().arrived()
            assert refresher.is_starting
            assert await refresher.wait_until_ready(0) == {"fake"}
            application.provider().release()
            assert await refresher.wait_until_ready(5) == set()
        assert not refresher.is_starting


@pytest.mark.requirement("F01")
async def test_once_anything_is_known_one_that_hangs_is_not_waited_for() -> None:
    application = make_test_app({"fake": [], "hangs": []})
    refresher, slow = application.admin.refresher, cast(FakeProvider, application.admin.providers["hangs"])
    for server in ("fake", "hangs"):
        application.gateway.publisher.withdraw(server)
    slow.hold()
    application.provider().hold()
    async with create_task_group() as tasks:
        refresher.watch(tasks)
        refresher.begin("fake")
        refresher.begin("hangs")
        with fail_after(5):
            await slow.arrived()
            assert await refresher.wait_until_ready(0.01, quiet=0) == {"fake", "hangs"}, "nothing is known yet"
            application.provider().release()
            assert await refresher.wait_until_ready(inf, quiet=0.01) == {"hangs"}
            slow.release()
            assert await refresher.wait_until_ready(5) == set()


async def test_a_server_that_fails_at_first_is_no_longer_waited_for() -> None:
    application = make_test_app({"fake": []})
    application.gateway.publisher.withdraw("fake")
    application.provider().fails(GONE)
    async with create_task_group() as tasks:
        application.admin.refresher.watch(tasks)
        application.admin.refresher.begin("fake")
        with fail_after(5):
            assert await application.admin.refresher.wait_until_ready(5) == set()
        tasks.cancel_scope.cancel()  # it would be asked again, later


async def test_many_servers_that_answer_at_once_cost_few_snapshots() -> None:
    application = make_test_app({f"server{place}": [] for place in range(120)})
    for place in range(120):
        application.provider(f"server{place}").tools = [definition("weather")]
    before = application.gateway.snapshot.number
    await application.admin.refresh()
    assert len(application.gateway.snapshot.tools) == 120
    assert application.gateway.snapshot.number - before <= 40
