"""A registry is followed whatever its database says: floods are read together, and silence is waited out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import psycopg
import pytest
from tests.registries import Shop

from portico.domain.server import pause_after
from portico.providers.sql.registry import configured_registries as refreshing
from portico.providers.sql.registry.configured_registries import Following
from portico.providers.sql.registry.provider import RegistryProvider

NOTIFICATIONS = 2_000


class Followed:
    """A registry that is followed, and how often it was asked for."""

    def __init__(self, shop: Shop) -> None:
        self.provider = RegistryProvider(shop.spec(refresh_s=3_600))
        self.refreshed = 0

    async def refresh(self) -> None:
        self.refreshed += 1
        await self.provider.offer()

    async def until(self, tool: str) -> None:
        """Wait until a tool is loaded."""
        with anyio.fail_after(20):
            while tool not in (await self.provider.registered()).tools:  # noqa: ASYNC110  a thread loads it
                await anyio.sleep(0.02)


@asynccontextmanager
async def followed(shop: Shop) -> AsyncIterator[Followed]:
    """A registry that is followed while the context is open."""
    made = Followed(shop)
    await made.provider.offer()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Following(provider=made.provider, refresh=made.refresh).run)
        yield made
        tasks.cancel_scope.cancel()
    await made.provider.aclose()


async def listeners(shop: Shop) -> None:
    """Wait until somebody listens."""
    asked = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
    with anyio.fail_after(20):
        while not await anyio.to_thread.run_sync(shop.rows, asked):
            continue


def flood(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        for number in range(NOTIFICATIONS):
            connection.execute("SELECT pg_notify('portico_registry', %s)", ("mcp" if number % 2 else "x" * 7_000,))


@pytest.mark.requirement("P-REGISTRY-REFRESH")
async def test_a_flood_of_notifications_is_read_in_a_few_looks(pg: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async with followed(pg) as registry:
        await listeners(pg)
        looks, look = 0, registry.provider.has_changed

        async def counted() -> bool:
            nonlocal looks
            looks += 1
            return await look()

        monkeypatch.setattr(registry.provider, "has_changed", counted)
        await anyio.to_thread.run_sync(flood, pg)
        pg.register("fresh", "sample_sales", "T", "region CV?")
        await registry.until("fresh")
    assert 0 < looks < NOTIFICATIONS // 10
    assert registry.refreshed < 5


@pytest.mark.requirement("P-REGISTRY-REFRESH")
async def test_a_database_that_takes_no_listeners_is_followed_by_looking(
    pg: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = anyio.Event()
    monkeypatch.setattr(refreshing, "CHANNEL", "1 is no name")
    monkeypatch.setattr(refreshing.logger, "debug", lambda *_: refused.set())
    async with followed(pg) as registry:
        with anyio.fail_after(20):
            await refused.wait()
        pg.register("fresh", "sample_sales", "T", "region CV?")
        registry.provider.on_suspicion()
        await registry.until("fresh")


def test_the_pause_before_the_next_question_doubles_and_has_an_end() -> None:
    bounds = refreshing.FIRST_PAUSE, refreshing.LONGEST_PAUSE
    pauses = [pause_after(tries, *bounds) for tries in range(1, 2_000)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == refreshing.LONGEST_PAUSE
