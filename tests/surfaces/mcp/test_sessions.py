"""Sessions over HTTP: whose they are, how many there are, and what is kept of those who open them."""

from __future__ import annotations

import gc
import time
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_types import Implementation
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.surfaces.mcp.listening import Listening, hello, listening, mcp_headers

from portico.catalog.view import CatalogView
from portico.domain.call import Call, Result
from portico.execution.executor import Executor

OWNER = pytest.mark.requirement("P-SESSION-OWNER")
CALL = {"name": "search_tools", "arguments": {"query": "symbol"}}


def authenticated(app: ASGIApp) -> ASGIApp:
    """Sets the user of a request as the SDK's authentication does, from a header."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        name = dict(scope.get("headers", ())).get(b"x-user", b"").decode()
        if name:
            token = AccessToken(token=f"token-of-{name}", client_id="app", scopes=[], subject=name)
            scope["user"] = AuthenticatedUser(token)
        await app(scope, receive, send)

    return wrapped


@pytest.mark.requirement("T14")
@OWNER
@pytest.mark.parametrize("other", [{"x_user": "bob"}, {}])
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", CALL), ("tools/list", {}), ("ping", {}), ("resources/list", {}), ("initialize", hello())],
)
async def test_a_session_answers_its_owner_alone(method: str, params: Any, other: dict[str, str]):
    async with listening(wrap=authenticated) as gateway:
        session = await gateway.open_session(x_user="alice")
        stolen = await gateway.rpc(method, params, mcp_session_id=session, **other)
        assert stolen.status == 404
        own = await gateway.rpc("tools/call", CALL, mcp_session_id=session, x_user="alice")
        assert (own.status, own.headers["content-type"]) == (200, "application/json")


@OWNER
async def test_a_session_without_a_user_is_not_one_of_a_user():
    async with listening(wrap=authenticated) as gateway:
        session = await gateway.open_session()
        assert (await gateway.rpc("tools/call", CALL, mcp_session_id=session, x_user="bob")).status == 404
        assert (await gateway.rpc("tools/call", CALL, mcp_session_id=session)).status == 200


@OWNER
async def test_nobody_else_can_listen_to_or_end_a_session():
    async with listening(wrap=authenticated) as gateway:
        session = await gateway.open_session(x_user="alice")
        for method in ("GET", "DELETE"):
            headers = mcp_headers(mcp_session_id=session, x_user="bob")
            assert (await gateway.ask("/mcp", method=method, headers=headers)).status == 404
        assert session in gateway.servers["discover"].sessions
        own = await gateway.rpc("tools/call", CALL, mcp_session_id=session, x_user="alice")
        assert own.headers["content-type"] == "application/json", "the fast path still knows the session"


@OWNER
async def test_nobody_else_can_cancel_a_call_of_a_session():
    async with listening(wrap=authenticated) as gateway:
        session = await gateway.open_session(x_user="alice")
        cancel = {"requestId": 1}
        reply = await gateway.rpc("notifications/cancelled", cancel, id=None, mcp_session_id=session, x_user="bob")
        assert reply.status == 404


async def test_an_ended_session_is_gone_on_every_path():
    async with listening() as gateway:
        session = await gateway.open_session()
        ended = await gateway.ask("/mcp", method="DELETE", headers=mcp_headers(mcp_session_id=session))
        assert ended.status == 200
        for method, params in (("tools/call", CALL), ("tools/list", {})):
            assert (await gateway.rpc(method, params, mcp_session_id=session)).status == 404


async def test_a_session_of_one_surface_is_unknown_to_another():
    async with listening() as gateway:
        session = await gateway.open_session()
        reply = await gateway.rpc("tools/call", CALL, path="/mcp/static", mcp_session_id=session)
        assert reply.status == 404


@pytest.mark.requirement("P-SESSION-COUNT")
async def test_a_new_session_takes_the_place_of_the_one_unused_longest():
    async with listening(sessions=3) as gateway:
        first, second = await gateway.open_session(), await gateway.open_session(path="/mcp/static")
        third = await gateway.open_session()
        assert await _is_open(gateway, first)
        fourth = await gateway.open_session()
        assert not await _is_open(gateway, second, path="/mcp/static"), "it was unused longest, on another surface"
        for session in (first, third, fourth):
            assert await _is_open(gateway, session)
        assert sum(len(server.sessions) for server in gateway.servers.values()) == 3


@pytest.mark.requirement("F28")
@pytest.mark.requirement("P-SESSION-COUNT")
async def test_many_sessions_leave_no_more_than_there_may_be():
    async with listening(sessions=5) as gateway:
        for _ in range(40):
            await gateway.open_session()
        with anyio.fail_after(5):
            while len(gateway.servers["discover"].sessions) > 5:
                await anyio.lowlevel.checkpoint()
        gc.collect()
        assert len(gateway.servers["discover"]._connections) <= 6


@pytest.mark.requirement("P-SESSION-IDLE")
async def test_a_session_in_use_stays_open_and_an_unused_one_ends_by_the_clock():
    async with listening(session_idle_s=1.0) as gateway:
        session, opened = await gateway.open_session(), time.monotonic()
        while time.monotonic() < opened + 2.5:
            assert await _is_open(gateway, session)
        assert session in gateway.servers["discover"].sessions
        with anyio.fail_after(10):
            while gateway.servers["discover"].sessions:  # noqa: ASYNC110  the clock ends them
                await anyio.sleep(0.01)


@pytest.mark.requirement("P-SESSION-COUNT")
async def test_a_session_with_an_open_stream_keeps_its_place():
    async with listening(sessions=1) as gateway:
        session = await gateway.open_session()
        reader, writer = await gateway.connect()
        head = f"GET /mcp HTTP/1.1\r\nHost: {gateway.host}\r\nAccept: text/event-stream\r\n"
        writer.write(f"{head}mcp-session-id: {session}\r\n\r\n".encode())
        with anyio.fail_after(5):
            assert b" 200 " in await reader.readline()
            assert (await gateway.rpc("initialize", hello())).status == 503
        writer.close()


@pytest.mark.requirement("P-SESSION-COUNT")
async def test_a_session_with_a_call_under_way_keeps_its_place(monkeypatch: pytest.MonkeyPatch):
    began, go_on, whole = anyio.Event(), anyio.Event(), Executor.run

    async def waiting(self: Executor, view: CatalogView, call: Call) -> Result:
        began.set()
        await go_on.wait()
        return await whole(self, view, call)

    monkeypatch.setattr(Executor, "run", waiting)
    async with listening(sessions=1) as gateway:
        session, answers = await gateway.open_session(), []

        async def call() -> None:
            given = {"name": "playwright.browser_snapshot", "arguments": {}}
            answers.append(await gateway.rpc("tools/call", given, mcp_session_id=session))

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await began.wait()
                assert (await gateway.rpc("initialize", hello())).status == 503
                go_on.set()
        assert answers[0].status == 200
        assert (await gateway.rpc("initialize", hello())).status == 200


async def _is_open(gateway: Listening, session: str, path: str = "/mcp") -> bool:
    return (await gateway.rpc("tools/call", CALL, path=path, mcp_session_id=session)).status == 200


@pytest.mark.requirement("P-SESSION-SIZE")
async def test_what_opens_a_session_is_bounded():
    async with listening() as gateway:
        large: list[dict[str, Any]] = [
            hello(clientInfo={"name": "x" * 100_000, "version": "1"}),
            hello(capabilities={"experimental": {"x": {"y": [{}] * 4_000}}}),
            hello(capabilities={"extensions": {f"x/{n}": {} for n in range(500)}}),
            hello(more=["x"] * 30_000),
        ]
        for params in large:
            assert (await gateway.rpc("initialize", params)).status == 413
        assert (await gateway.rpc("tools/list", {"x": "y" * 100_000})).status == 413


@pytest.mark.requirement("P-SESSION-SIZE")
async def test_a_session_keeps_the_name_and_the_capabilities_of_its_client():
    async with listening() as gateway:
        info = {"name": "n" * 5_000, "title": "t", "version": "1", "icons": [{"src": "data:" + "x" * 9_000}]}
        params = hello(
            clientInfo=info, capabilities={"sampling": {}, "roots": {"listChanged": True}}, extra="y" * 9_000
        )
        reply = await gateway.rpc("initialize", params)
        assert reply.status == 200
        session = reply.headers["mcp-session-id"]
        await gateway.rpc("notifications/initialized", id=None, mcp_session_id=session)
        await gateway.rpc("ping", mcp_session_id=session)  # is answered after the notification
        connection = gateway.servers["discover"].sessions[session]
        assert connection.client_params is not None
        info_kept = connection.client_params.client_info
        assert (info_kept.name, info_kept.icons) == ("n" * 200, None)
        assert connection.client_capabilities is not None
        assert connection.client_capabilities.roots is not None
        assert len(repr(vars(connection))) < 10_000


@pytest.mark.requirement("P-SESSION-SIZE")
async def test_an_open_session_cannot_be_made_larger_by_opening_it_again():
    async with listening() as gateway:
        session = await gateway.open_session()
        params = hello(capabilities={"experimental": {"x": {"y": [{}] * 20_000}}})
        assert (await gateway.rpc("initialize", params, mcp_session_id=session)).status == 413


@pytest.mark.requirement("P-FAIR-SHARES")
async def test_clients_are_told_apart_by_session_and_later_by_what_they_call_themselves(
    monkeypatch: pytest.MonkeyPatch,
):
    seen: list[str] = []
    whole = Executor.run

    async def noted(self: Executor, view: CatalogView, call: Call) -> Result:
        seen.append(view.caller.client)
        return await whole(self, view, call)

    monkeypatch.setattr(Executor, "run", noted)
    call = {"name": "playwright.browser_snapshot", "arguments": {}}
    async with listening() as gateway:
        first, second = await gateway.open_session(), await gateway.open_session()
        for session in (first, second, first):
            assert (await gateway.rpc("tools/call", call, mcp_session_id=session)).status == 200
        slow = {**call, "_meta": {"progressToken": 1}}  # is answered by the SDK
        assert (await gateway.rpc("tools/call", slow, mcp_session_id=second)).status == 200
        for name in ("ann", "ben"):
            async with Client(
                f"http://{gateway.host}/mcp", mode="2026-07-28", client_info=Implementation(name=name, version="2")
            ) as client:
                await client.call_tool("playwright.browser_snapshot", {})
    assert seen == [first, second, first, second, "127.0.0.1 ann 2", "127.0.0.1 ben 2"]
