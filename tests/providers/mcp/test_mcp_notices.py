"""What servers say by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from upstream_world import Upstreams, said, use

from portico.providers.mcp import server_questions as inbox

pytestmark = pytest.mark.anyio

CHANGES = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


@pytest.mark.parametrize("method", CHANGES)
async def test_list_change_is_reported(upstreams: Upstreams, method: str) -> None:
    await use(upstreams.stdio(), "send", notifications=[[method, {}]])
    await upstreams.news.wait_for(changes=1)
    assert upstreams.news.changes == ["s"]


@pytest.mark.requirement("T51")
async def test_flood_of_changes_is_one_report_a_second(upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inbox.CHANGE_INTERVAL >= 1
    monkeypatch.setattr(inbox, "CHANGE_INTERVAL", 600.0)
    received = count_by_turn(monkeypatch)
    provider = upstreams.stdio()
    await provider.offer()
    await use(provider, "flood", method=CHANGES[0], count=100_000)
    await upstreams.news.wait_for(changes=1)
    assert upstreams.news.changes == ["s"]
    assert sum(received) == 100_000
    assert max(received) <= 10_000, "others on the loop get their turn during a flood"


def count_by_turn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many changes are received in each turn of the loop that brings any."""
    counts: list[int] = []
    changed, is_same_turn = inbox.Notifications.changed, False

    def end_turn() -> None:
        nonlocal is_same_turn
        is_same_turn = False

    def counted(self: inbox.Notifications) -> None:
        nonlocal is_same_turn
        if not is_same_turn:
            is_same_turn = True
            asyncio.get_running_loop().call_soon(end_turn)
            counts.append(0)
        counts[-1] += 1
        changed(self)

    monkeypatch.setattr(inbox.Notifications, "changed", counted)
    return counts


async def test_change_soon_after_a_report_is_reported_later(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox, "CHANGE_INTERVAL", 0.5)
    provider = upstreams.stdio()
    await provider.offer()
    for count in (1, 2):
        await use(provider, "send", notifications=[[CHANGES[0], {}]])
        await upstreams.news.wait_for(changes=count)
    assert upstreams.news.changes == ["s", "s"]


@pytest.mark.requirement("T51")
async def test_flood_of_notices_is_dropped_beyond_a_bound(upstreams: Upstreams) -> None:
    await use(upstreams.stdio(), "flood", method="notifications/message", count=5_000, params={"level": "info"})
    await upstreams.news.wait_for(notices=inbox.NOTICES_PER_SECOND)
    assert len(upstreams.news.notices) <= 3 * inbox.NOTICES_PER_SECOND


async def test_log_messages_and_resource_updates_are_passed_on(upstreams: Upstreams) -> None:
    sent = [
        ["notifications/message", {"level": "info", "data": 1}],
        ["notifications/resources/updated", {"uri": "x://1"}],
    ]
    await use(upstreams.stdio(), "send", notifications=[*sent, ["notifications/unheard", {}]])
    await upstreams.news.wait_for(notices=2)
    assert [[method, params] for _, method, params in upstreams.news.notices] == sent


async def test_modern_server_is_listened_to_for_list_changes(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="modern", tells_change=True)
    await provider.offer()
    await upstreams.news.wait_for(changes=1)
    listen = next(m for m in upstreams.logged() if m.get("method") == "subscriptions/listen")
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
    assert listen["params"]["notifications"] == wanted


async def test_modern_server_without_changes_is_not_listened_to(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="modern", capabilities={"tools": {}})
    await use(provider, "echo")
    assert "subscriptions/listen" not in [m.get("method") for m in said(await use(provider, "seen"))]


async def test_subscribing_to_a_resource_of_a_modern_server_renews_the_listening(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="modern")
    await use(provider, "echo")
    assert await provider.request("resources/subscribe", {"uri": "x://1"}) == {}
    listens: list[dict[str, Any]] = []
    with anyio.fail_after(5):
        while not listens or "resourceSubscriptions" not in listens[-1]["params"]["notifications"]:
            listens = [m for m in said(await use(provider, "seen")) if m.get("method") == "subscriptions/listen"]
    assert listens[-1]["params"]["notifications"]["resourceSubscriptions"] == ["x://1"]


async def test_log_level_of_a_modern_server_travels_with_each_request(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(era="modern")
    assert await provider.request("logging/setLevel", {"level": "debug"}) == {}
    assert await provider.request("ping", {}) == {}
    meta = said(await use(provider, "seen"))[-1]["params"]["_meta"]
    assert meta["io.modelcontextprotocol/logLevel"] == "debug"


async def test_subscriptions_and_log_level_outlive_a_death(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await provider.request("resources/subscribe", {"uri": "x://1"})
    await provider.request("logging/setLevel", {"level": "debug"})
    with pytest.raises(Exception, match="SIGKILL"):
        await use(provider, "kill")
    seen: list[str] = []
    with anyio.fail_after(5):
        while not {"resources/subscribe", "logging/setLevel"} <= set(seen):
            seen = [m.get("method", "") for m in said(await use(provider, "seen"))]
