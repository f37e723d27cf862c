"""Every change of a list reaches every client, whoever asked for the list in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from tests.surfaces.mcp.listening import Listening, listening

from portico.domain.server import Offering
from portico.gateway import Gateway
from portico.surfaces.mcp.server import SurfaceServer
from portico.testing import definition

pytestmark = pytest.mark.requirement("P-LIST-CHANGED")
Offer = Callable[..., None]


@asynccontextmanager
async def following(gateway: Gateway, servers: list[SurfaceServer]) -> AsyncIterator[Offer]:
    """Servers that follow the editions as those of a running gateway do, and the way to make the next edition."""
    last = [gateway.snapshot]
    for server in servers:
        server.begin()
    async with anyio.create_task_group() as tasks:

        def published(snapshot: Any) -> None:
            before, last[0] = last[0], snapshot
            for server in servers:
                tasks.start_soon(server.tell, server.publish(before, snapshot))

        gateway.publisher.subscribe(published)

        def offer(*names: str) -> None:
            tools = tuple(definition(name) for name in names)
            gateway.publisher.accept([(Offering(server="playwright", tools=tools), "upstream")])

        yield offer
        tasks.cancel_scope.cancel()


class Ears:
    """Counts what a client of the handshake era is told."""

    def __init__(self) -> None:
        self.heard = 0
        self._more = anyio.Event()

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.heard += 1
            self._more.set()

    async def until(self, number: int) -> None:
        """Wait until so many changes were heard."""
        while self.heard < number:
            await self._more.wait()
            self._more = anyio.Event()


def client(gateway: Listening, **options: Any) -> Client:
    return Client(f"http://{gateway.host}/mcp/static", **options)


@pytest.mark.timeout(60)
async def test_no_change_is_lost_while_two_clients_poll():
    ears = [Ears(), Ears()]
    async with (
        listening() as gateway,
        following(gateway.rest.application.gateway, [*gateway.servers.values()]) as offer,
        client(gateway, mode="legacy", message_handler=ears[0]) as first,
        client(gateway, mode="legacy", message_handler=ears[1]) as second,
        client(gateway, mode="2026-07-28") as modern,
        modern.listen(tools_list_changed=True) as changes,
    ):
        clients = (first, second, modern)
        for number in range(20):
            for one in clients:
                await one.list_tools(cache_mode="refresh")
            offer("one", f"tool_{number}")
            for one in clients:
                await one.list_tools(cache_mode="refresh")
            for ear in ears:
                await ear.until(number + 1)
            await anext(aiter(changes))


async def test_a_list_that_changes_and_changes_back_is_told_twice():
    ears = Ears()
    async with (
        listening() as gateway,
        following(gateway.rest.application.gateway, [*gateway.servers.values()]) as offer,
    ):
        offer("one")
        with anyio.fail_after(10):
            async with client(gateway, mode="legacy", message_handler=ears) as connected:
                await connected.list_tools()
                offer("one", "two")
                offer("one")
                await ears.until(2)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_that_never_listed_is_told(mode: str):
    ears = Ears()
    async with (
        listening() as gateway,
        following(gateway.rest.application.gateway, [*gateway.servers.values()]) as offer,
    ):
        for target in (f"http://{gateway.host}/mcp/static", gateway.servers["static"]):
            ears.heard = 0
            with anyio.fail_after(10):
                async with Client(target, mode=mode, message_handler=ears) as connected:
                    if mode == "legacy":
                        await connected.list_prompts()
                        offer("one", f"tool_{mode}_{target}"[:40])
                        await ears.until(1)
                    else:
                        async with connected.listen(tools_list_changed=True) as changes:
                            offer("one", f"tool_{mode}_{target}"[:40])
                            await anext(aiter(changes))


async def test_a_snapshot_that_lists_the_same_is_not_told():
    ears = Ears()
    async with (
        listening() as gateway,
        following(gateway.rest.application.gateway, [*gateway.servers.values()]) as offer,
    ):
        offer("one")
        with anyio.fail_after(10):
            async with Client(gateway.servers["discover"], mode="legacy", message_handler=ears) as connected:
                offer("one", "two")
                await connected.list_prompts()
                assert ears.heard == 0


async def test_who_opens_its_stream_late_is_told_what_it_missed():
    async with (
        listening() as gateway,
        following(gateway.rest.application.gateway, [*gateway.servers.values()]) as offer,
    ):
        session = await gateway.open_session(path="/mcp/static")
        await gateway.rpc("tools/list", path="/mcp/static", mcp_session_id=session)
        offer("one", "two")
        head = f"GET /mcp/static HTTP/1.1\r\nHost: {gateway.host}\r\nAccept: text/event-stream\r\n"
        reader, writer = await gateway.connect()
        writer.write(f"{head}mcp-session-id: {session}\r\n\r\n".encode())
        with anyio.fail_after(10):
            while b"notifications/tools/list_changed" not in await reader.readline():
                pass
        writer.close()
