"""Streamable HTTP and SSE against servers of the MCP SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from upstream_world import QUICK, Upstreams, said, until, use
from web_world import SdkServer

from portico.domain.server import ServerSpec, State, Timeouts
from portico.errors import Sent, UpstreamTimeout
from portico.providers.mcp import UpstreamProvider

pytestmark = pytest.mark.anyio
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ways = pytest.mark.parametrize("way", ["modern", "modern-stream", "legacy", "legacy-stream", "sse"])
both_eras = pytest.mark.parametrize("way", ["modern-stream", "legacy-stream", "sse"])


@pytest.fixture
async def sdk(upstreams: Upstreams) -> AsyncIterator[SdkServer]:
    server = SdkServer()
    yield server
    await upstreams.aclose()
    await server.stop()


async def reach(way: str, sdk: SdkServer, upstreams: Upstreams, timeouts: Timeouts = QUICK) -> UpstreamProvider:
    """A provider for the SDK server in one of the ways it can be reached."""
    await sdk.start(json_response=not way.endswith("-stream"), sse=way == "sse")
    if way == "sse":
        return upstreams.provide(ServerSpec(name="h", transport="sse", url=f"{sdk.url}/sse", timeouts=timeouts))
    spec = ServerSpec(name="h", transport="http", url=f"{sdk.url}/mcp", timeouts=timeouts)
    return upstreams.provide(spec, protocol=LEGACY if way.startswith("legacy") else "")


@ways
async def test_offering_and_calls(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams)
    with anyio.fail_after(10):
        offering = await provider.offer()
    assert offering.protocol == (MODERN if way.startswith("modern") else LEGACY)
    assert (offering.title, offering.version, offering.instructions) == ("The SDK", "3.1", "be kind")
    assert len(offering.tools) == 6
    assert said(await use(provider, "echo", text="héllo")) == "héllo"
    assert provider.health().state is State.RUNNING


@pytest.mark.requirement("T16")
@ways
async def test_hundred_concurrent_calls(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams)
    found: dict[int, Any] = {}

    async def one(number: int) -> None:
        found[number] = said(await use(provider, "echo", text=str(number)))

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, number)
    assert found == {number: number for number in range(100)}


@pytest.mark.requirement("F18")
@both_eras
async def test_progress_is_forwarded_and_starts_the_idle_timer_again(
    way: str, sdk: SdkServer, upstreams: Upstreams
) -> None:
    provider = await reach(way, sdk, upstreams, Timeouts(start=10, call=0.6, total=20, idle=0))
    heard: list[Any] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    with anyio.fail_after(10):
        await provider.call("progress", {"steps": 4, "gap": 0.25}, meta={}, on_progress=on_progress)
    assert heard == [(float(n), 4.0, f"step {n}") for n in (1, 2, 3, 4)]


@both_eras
async def test_timed_out_call_is_cancelled_at_the_server(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams, Timeouts(start=10, call=0.4, total=60, idle=0))
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match=r"timeouts\.call") as caught:
        await use(provider, "hang")
    assert caught.value.sent is Sent.UNKNOWN
    with anyio.fail_after(5):
        await sdk.cancelled.wait()
    assert said(await use(provider, "echo", text="on")) == "on"


@pytest.mark.requirement("F45")
@both_eras
async def test_cancelled_caller_cancels_at_the_server(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams)
    async with anyio.create_task_group() as group:
        group.start_soon(use, provider, "hang")
        with anyio.fail_after(5):
            await sdk.started.wait()
        group.cancel_scope.cancel()
    with anyio.fail_after(1):
        await sdk.cancelled.wait()
    assert said(await use(provider, "echo", text="on")) == "on"


@both_eras
async def test_list_change_is_reported(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams)
    await provider.offer()
    with anyio.fail_after(5):
        while not upstreams.news.changes:
            await use(provider, "change")
            with anyio.move_on_after(0.1):
                await upstreams.news.wait_for(changes=1)
    assert set(upstreams.news.changes) == {"h"}


async def test_declared_arguments_are_mirrored_into_headers(sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach("modern", sdk, upstreams)
    await provider.offer()
    assert said(await use(provider, "mirror", region="größe", text="ok")) == "ok"


async def test_headers_are_learned_when_the_server_asks_for_them(sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach("modern", sdk, upstreams)
    assert said(await use(provider, "mirror", region="eu-1", text="ok")) == "ok"
    assert sdk.calls == 1


@pytest.mark.requirement("F49")
async def test_http_url_of_an_sse_server_falls_back_and_is_remembered(sdk: SdkServer, upstreams: Upstreams) -> None:
    await sdk.start(sse=True)
    provider = upstreams.http(f"{sdk.url}/sse", timeouts=Timeouts(start=10, call=10, total=20, idle=0.2))
    assert said(await use(provider, "echo", text="old")) == "old"
    await until(lambda: provider.health().state is not State.RUNNING)
    assert said(await use(provider, "echo", text="again")) == "again"


@pytest.mark.requirement("F13")
@pytest.mark.parametrize("way", ["modern", "legacy", "sse"])
async def test_restarted_server_is_reached_again(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams)
    assert said(await use(provider, "echo", text="1")) == 1
    await sdk.stop()
    await sdk.start(sse=way == "sse")
    assert said(await use(provider, "echo", text="2")) == 2


@ways
async def test_idle_close_and_new_start(way: str, sdk: SdkServer, upstreams: Upstreams) -> None:
    provider = await reach(way, sdk, upstreams, Timeouts(start=10, call=10, total=20, idle=0.2))
    await provider.offer()
    await until(lambda: provider.health().state is State.READY)
    assert said(await use(provider, "echo", text="2")) == 2
