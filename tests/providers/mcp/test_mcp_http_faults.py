"""What goes wrong over HTTP, and what the caller is told."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from aiohttp import web
from upstream_world import Upstreams, until, use
from web_world import RawServer, answer, free_socket

from portico.config import GatewaySettings, InstallationPaths
from portico.domain.server import ServerSpec, State, Timeouts
from portico.errors import Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.protocols import Provider
from portico.providers.mcp import lifecycle as backoff
from portico.providers.mcp import message_limits_and_errors as protocol
from portico.server.background import Reloader
from portico.wiring import open_app

pytestmark = pytest.mark.anyio
PATIENT = Timeouts(start=60, call=60, total=60, idle=0)
HASTY = Timeouts(start=5, call=0.5, total=60, idle=0)


def always(**fields: Any) -> Any:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(**fields)

    return handler


@pytest.mark.requirement("F19")
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"text": "<html>hi</html>", "content_type": "text/html"},
            "text/html instead of JSON: it is not an MCP endpoint",
        ),
        ({"body": b""}, "an empty body: it is not an MCP endpoint"),
        ({"text": "hello", "content_type": "text/plain"}, "text/plain instead of JSON"),
        ({"text": "", "content_type": "application/json"}, "an empty body"),
        ({"text": "{oops", "content_type": "application/json"}, "not valid JSON"),
        ({"status": 404, "text": "nope"}, "HTTP 404: nope"),
        ({"status": 404}, "check the `url`: there is no MCP endpoint at that path"),
        ({"status": 500, "text": "<h1>trace</h1>"}, "HTTP 500\n"),
        ({"status": 503}, "the server or a proxy before it has failed"),
        ({"status": 429, "headers": {"Retry-After": "7"}}, "try again after 7"),
        (
            {"status": 302, "headers": {"Location": "https://elsewhere.example/x?token=1"}},
            "redirects to https://elsewhere.example/x,",
        ),
        ({"status": 307, "headers": {"Location": "http://127.0.0.2:1/x"}}, "which is not followed"),
    ],
)
async def test_what_is_not_mcp_is_said_at_once(
    raw: RawServer, upstreams: Upstreams, fields: dict[str, Any], words: str
) -> None:
    raw.on["*"] = always(**fields)
    provider = upstreams.http(raw.url, timeouts=PATIENT)
    with anyio.fail_after(10), pytest.raises(UpstreamGone) as caught:
        await provider.offer()
    assert words in str(caught.value) + "\n"
    assert caught.value.sent is Sent.NOTHING
    assert provider.health().state is State.FAILED
    assert words.strip() in provider.health().reason


@pytest.mark.requirement("F07")
@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_name_the_header_and_are_parked(
    raw: RawServer, upstreams: Upstreams, status: int
) -> None:
    raw.on["*"] = always(status=status)
    provider = upstreams.http(raw.url)
    for _ in range(10):
        with pytest.raises(UpstreamGone, match="set the `Authorization` header"):
            await provider.offer()
    assert len(raw.requests) == 1
    assert backoff.PARKED >= 1800
    provider.retry_now()
    with pytest.raises(UpstreamGone):
        await provider.offer()
    assert len(raw.requests) == 2


async def test_bad_token_is_named_as_such_without_its_value(raw: RawServer, upstreams: Upstreams) -> None:
    raw.on["*"] = always(status=401, text="Bearer canary-token is bad")
    with pytest.raises(UpstreamGone) as caught:
        await upstreams.http(raw.url, headers={"Authorization": "Bearer canary-token"}).offer()
    assert "is set but not accepted" in str(caught.value)
    assert "canary" not in str(caught.value)


async def test_credentials_that_expire_later_park_the_server(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.on["tools/call"] = always(status=401)
    for _ in range(5):
        with pytest.raises(UpstreamGone, match="HTTP 401"):
            await use(provider, "x")
    assert raw.methods().count("tools/call") == 2


@pytest.mark.requirement("P-PARKED", "F07")
async def test_a_parked_server_is_tried_when_the_config_is_read_again_or_it_is_refreshed(
    raw: RawServer, tmp_path: Path
) -> None:
    raw.on["*"] = always(status=401)
    file = tmp_path / "portico.yaml"
    file.write_text("servers: {}\n")
    spec = ServerSpec(name="one", transport="http", url=raw.url)
    paths = InstallationPaths(config=tmp_path, data=tmp_path, file=file)
    settings = GatewaySettings(home=paths, servers=(spec,))

    async def asked(provider: Provider) -> int:
        before = len(raw.requests)
        with pytest.raises(UpstreamGone, match="HTTP 401"):
            await provider.offer()
        return len(raw.requests) - before

    async with open_app(settings) as application, anyio.create_task_group() as tasks:
        provider = application.admin.providers["one"]
        assert [await asked(provider) for _ in range(20)] == [1] + [0] * 19
        await Reloader(application=application, settings=settings, read=lambda: settings, tasks=tasks).reload()
        assert [await asked(provider), await asked(provider)] == [1, 0]
        before = len(raw.requests)
        await application.admin.refresh({"one"})
        assert len(raw.requests) == before + 1


@pytest.mark.requirement("P-PARKED")
async def test_a_call_that_is_forbidden_does_not_park_the_server(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.on["tools/call"] = always(status=403)
    for _ in range(8):
        with pytest.raises(UpstreamGone, match="HTTP 403") as caught:
            await use(provider, "x")
        assert caught.value.sent is Sent.ANSWERED
    del raw.on["tools/call"]
    assert "ok" in await use(provider, "x")
    assert upstreams.told() == ["started"]


async def test_configured_headers_and_protocol_headers_are_sent(raw: RawServer, upstreams: Upstreams) -> None:
    await use(upstreams.http(raw.url, headers={"X-Key": "k1"}), "x")
    name, _, headers = raw.requests[-1]
    assert name == "tools/call"
    assert headers["X-Key"] == "k1"
    assert headers["Mcp-Session-Id"] == "s-1"
    assert headers["MCP-Protocol-Version"] == "2025-11-25"
    initialize = next(headers for name, _, headers in raw.requests if name == "initialize")
    assert "Mcp-Session-Id" not in initialize
    assert "MCP-Protocol-Version" not in initialize


@pytest.mark.requirement("F22")
async def test_connection_refused(upstreams: Upstreams) -> None:
    sock = free_socket()
    port = sock.getsockname()[1]
    sock.close()
    with pytest.raises(UpstreamGone, match="refused the connection") as caught:
        await upstreams.http(f"http://127.0.0.1:{port}/mcp?key=canary").offer()
    assert caught.value.sent is Sent.NOTHING
    assert "canary" not in str(caught.value)


@pytest.mark.requirement("F22")
async def test_unknown_host(upstreams: Upstreams) -> None:
    with pytest.raises(UpstreamGone, match=r"host name of http://no-such-host\.invalid/mcp cannot be found"):
        await upstreams.http("http://no-such-host.invalid/mcp").offer()


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://x/y"])
async def test_unusable_address(upstreams: Upstreams, url: str) -> None:
    with pytest.raises(UpstreamGone, match="check the `url`"):
        await upstreams.http(url).offer()


@pytest.mark.requirement("F22")
async def test_untrusted_certificate(upstreams: Upstreams, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    await anyio.run_process([*make, "-keyout", str(key), "-out", str(certificate)])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    runner = web.AppRunner(web.Application())
    await runner.setup()
    sock = free_socket()
    await web.SockSite(runner, sock, ssl_context=context).start()
    try:
        with pytest.raises(UpstreamGone, match="TLS certificate or handshake"):
            await upstreams.http(f"https://127.0.0.1:{sock.getsockname()[1]}/mcp").offer()
    finally:
        await runner.cleanup()


@pytest.mark.requirement("F13")
async def test_lost_session_is_renewed_and_the_call_replayed_once(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    for number in range(2, 12):
        raw.session = f"s-{number}"
        assert await use(provider, "x", n=number) == {"ok": {"name": "x", "arguments": {"n": number}}}
    assert raw.methods().count("initialize") == 11
    await upstreams.news.wait_for(changes=1)


async def test_concurrent_calls_renew_a_lost_session_once(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.session = "s-2"
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(use, provider, "x")
    assert raw.methods().count("initialize") == 2


async def test_session_refused_with_400_is_renewed_too(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")

    async def picky(request: web.Request) -> web.Response:
        if request.headers["Mcp-Session-Id"] == "s-1":
            error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
            return web.json_response({"jsonrpc": "2.0", "id": None, "error": error}, status=400)
        return answer(request, {"fine": True})

    raw.session, raw.on["tools/call"] = "s-2", picky
    assert await use(provider, "x") == {"fine": True}


async def test_session_that_is_lost_again_and_again_is_an_error(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.on["tools/call"] = always(status=404)
    with pytest.raises(UpstreamGone, match="HTTP 404"):
        await use(provider, "x")
    assert raw.methods().count("tools/call") == 3


async def test_session_is_deleted_at_close(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    await provider.aclose()
    assert raw.methods()[-1] == "DELETE"
    assert raw.requests[-1][2]["Mcp-Session-Id"] == "s-1"


async def test_json_rpc_error_with_an_error_status_is_kept(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")

    async def refuse(request: web.Request) -> web.Response:
        error = {"code": -32602, "message": "bad", "data": [1]}
        return web.json_response({"jsonrpc": "2.0", "id": 1, "error": error}, status=400)

    raw.on["tools/call"] = refuse
    with pytest.raises(UpstreamError) as caught:
        await use(provider, "x")
    assert (caught.value.rpc_code, caught.value.message, caught.value.data) == (-32602, "bad", [1])


@pytest.mark.requirement("F14")
@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_server_failure_is_never_repeated(raw: RawServer, upstreams: Upstreams, status: int) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.on["tools/call"] = always(status=status)
    with pytest.raises(UpstreamGone) as caught:
        await use(provider, "x")
    assert caught.value.sent is Sent.UNKNOWN
    assert raw.methods().count("tools/call") == 2


def cut(*, events: bytes = b"", kind: str = "text/event-stream", end: bool = False) -> Any:
    """A response that breaks off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(events)
        if end:
            await response.write_eof()
        elif request.transport is not None:
            request.transport.abort()
        return response

    return handler


@pytest.mark.requirement("F15")
@pytest.mark.parametrize(
    "handler",
    [
        cut(events=b'data: {"jsonrpc":"2.0"'),
        cut(events=b": hi\n\n", end=True),
        cut(events=b'{"jsonrpc":"2.0","id":', kind="application/json"),
        cut(events=b"data: {oops\n\n", end=True),
    ],
)
async def test_answer_that_is_cut_off_is_an_error_at_once(raw: RawServer, upstreams: Upstreams, handler: Any) -> None:
    provider = upstreams.http(raw.url, timeouts=PATIENT)
    await use(provider, "x")
    raw.on["tools/call"] = handler
    with anyio.fail_after(10), pytest.raises(UpstreamGone) as caught:
        await use(provider, "x")
    assert caught.value.sent is Sent.UNKNOWN
    assert raw.methods().count("tools/call") == 2


async def test_legacy_answer_is_fetched_when_the_server_closed_a_resumable_stream(
    raw: RawServer, upstreams: Upstreams
) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    raw.on["tools/call"] = cut(events=b"id: e1\nretry: 10\ndata: \n\n", end=True)

    async def resumed(request: web.Request) -> web.StreamResponse:
        assert request.headers["Last-Event-ID"] == "e1"
        body = {"jsonrpc": "2.0", "id": 99, "result": {"late": True}}
        return await cut(events=b"id: e2\ndata: " + orjson.dumps(body) + b"\n\n", end=True)(request)

    raw.on["GET"] = resumed
    assert await use(provider, "x") == {"late": True}
    assert raw.methods().count("tools/call") == 2


@pytest.mark.requirement("F16")
async def test_black_hole_ends_at_the_deadline_and_the_next_call_works(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url, timeouts=HASTY)
    await use(provider, "x")

    async def swallow(request: web.Request) -> web.Response:
        await anyio.sleep_forever()
        raise AssertionError

    raw.on["tools/call"] = swallow
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match=r"timeouts\.call"):
        await use(provider, "x")
    del raw.on["tools/call"]
    assert "ok" in await use(provider, "x")


@pytest.mark.requirement("F17")
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_drip_feed_ends_at_the_deadline(raw: RawServer, upstreams: Upstreams, kind: str) -> None:
    provider = upstreams.http(raw.url, timeouts=HASTY)
    await use(provider, "x")

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        while True:
            await response.write(b" " if kind == "application/json" else b": keep\n\n")
            await anyio.sleep(0.05)

    raw.on["tools/call"] = drip
    with anyio.fail_after(10), pytest.raises(UpstreamTimeout, match=r"timeouts\.call"):
        await use(provider, "x")


@pytest.mark.requirement("T50")
async def test_oversized_answers_are_refused(
    raw: RawServer, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    size = protocol.MESSAGE_LIMIT + 2**21
    for kind in ("application/json", "text/event-stream"):
        raw.on["tools/call"] = cut(events=b"data: " + b"x" * size, kind=kind)
        with pytest.raises(UpstreamGone, match="64 MiB"):
            await use(provider, "x")


async def test_redirect_within_the_server_is_followed_and_remembered(raw: RawServer, upstreams: Upstreams) -> None:
    paths: list[str] = []

    async def move(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        if request.path == "/mcp":
            return web.Response(status=307, headers={"Location": "/mcp/"})
        return await raw._default(request)

    raw.on["*"] = move
    provider = upstreams.http(raw.url)
    await use(provider, "x")
    await use(provider, "y")
    assert paths.count("/mcp") == 1


async def test_redirect_loop_ends(raw: RawServer, upstreams: Upstreams) -> None:
    raw.on["*"] = always(status=308, headers={"Location": "/mcp"})
    with pytest.raises(UpstreamGone, match="redirects in circles"):
        await upstreams.http(raw.url).offer()


@pytest.mark.requirement("T52")
async def test_servers_requests_on_a_stream_are_answered(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    await use(provider, "x")

    async def asking(request: web.Request) -> web.StreamResponse:
        id = request["body"]["id"]
        events = b'data: {"jsonrpc":"2.0","id":"q","method":"roots/list"}\n\n'
        events += b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}\n\n'
        events += b'data: {"jsonrpc":"2.0","id":%d,"result":{"done":1}}\n\n' % id
        return await cut(events=events, end=True)(request)

    raw.on["tools/call"] = asking
    assert await use(provider, "x") == {"done": 1}
    await upstreams.news.wait_for(notices=1)
    await until(lambda: "reply" in raw.methods())
    reply = next(body for name, body, _ in raw.requests if name == "reply")
    assert (reply["id"], reply["error"]["code"]) == ("q", -32601)


async def test_standing_stream_of_a_legacy_session_is_read_and_reopened(raw: RawServer, upstreams: Upstreams) -> None:
    change = b'retry: 10\nid: e1\ndata: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n'
    raw.on["GET"] = cut(events=change, end=True)
    await use(upstreams.http(raw.url), "x")
    await upstreams.news.wait_for(changes=1)
    await until(lambda: raw.methods().count("GET") == 2)
    again = [headers for name, _, headers in raw.requests if name == "GET"][1]
    assert again["Last-Event-ID"] == "e1"


@pytest.mark.requirement("T10")
async def test_endpoint_event_to_another_origin_is_refused(raw: RawServer, upstreams: Upstreams) -> None:
    raw.on["GET"] = cut(events=b"event: endpoint\ndata: http://evil.example/post\n\n", end=True)
    spec = ServerSpec(name="h", transport="sse", url=raw.url)
    with pytest.raises(UpstreamGone, match=r"another origin, http://evil\.example/post"):
        await upstreams.provide(spec).offer()


async def test_sse_stream_that_ends_fails_the_call_in_flight(raw: RawServer, upstreams: Upstreams) -> None:
    greeted, posted = anyio.Event(), anyio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: endpoint\r\ndata: /post?id=1\r\n\r\n")
        result = b'{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"old"}}'
        await greeted.wait()
        await response.write(b'data: {"jsonrpc":"2.0","id":1,"result":%s}\r\n\r\n' % result)
        await posted.wait()
        return response

    async def call(request: web.Request) -> web.Response:
        posted.set()
        return web.Response(status=202)

    async def greet(request: web.Request) -> web.Response:
        greeted.set()
        return web.Response(status=202)

    raw.on |= {"GET": stream, "initialize": greet, "tools/call": call}
    provider = upstreams.provide(ServerSpec(name="h", transport="sse", url=raw.url))
    with pytest.raises(UpstreamGone, match="ended its event stream") as caught:
        await use(provider, "x")
    assert caught.value.sent is Sent.UNKNOWN


async def test_server_that_only_resets_connections(upstreams: Upstreams) -> None:
    sock = free_socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")

    async def reset() -> None:
        while True:
            try:
                other, _ = sock.accept()
                other.close()
            except BlockingIOError:
                await anyio.sleep(0.01)

    sock.setblocking(False)
    async with anyio.create_task_group() as group:
        group.start_soon(reset)
        with pytest.raises(UpstreamGone, match=r"broke off|cannot be reached"):
            await upstreams.http(f"http://127.0.0.1:{sock.getsockname()[1]}/mcp").offer()
        group.cancel_scope.cancel()
    sock.close()


async def test_close_with_a_call_in_flight_is_bounded(
    raw: RawServer, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.providers.mcp.lifecycle.DRAIN", 0.2)
    provider = upstreams.http(raw.url)
    arrived, caught = anyio.Event(), []

    async def swallow(request: web.Request) -> web.Response:
        arrived.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def endless() -> None:
        with pytest.raises(UpstreamGone) as error:
            await use(provider, "x")
        caught.append(error.value.sent)

    raw.on["tools/call"] = swallow
    async with anyio.create_task_group() as group:
        group.start_soon(endless)
        with anyio.fail_after(5):
            await arrived.wait()
            await provider.aclose()
    assert caught == [Sent.UNKNOWN]


async def test_refused_connection_does_not_end_other_calls_in_flight(raw: RawServer, upstreams: Upstreams) -> None:
    provider = upstreams.http(raw.url)
    arrived, go_on, results = anyio.Semaphore(0), anyio.Event(), []

    async def slow(request: web.Request) -> web.Response:
        arrived.release()
        await go_on.wait()
        return answer(request, {"slow": True})

    async def one() -> None:
        results.append(await use(provider, "slow"))

    await use(provider, "first")
    await until(lambda: "GET" in raw.methods())
    await use(provider, "second")
    raw.on["tools/call"] = slow
    async with anyio.create_task_group() as group:
        # So many that no connection of the pool is left unused.
        for _ in range(8):
            group.start_soon(one)
        with anyio.fail_after(5):
            for _ in range(8):
                await arrived.acquire()
        raw.stop_listening()
        with pytest.raises(UpstreamGone, match="refused the connection"):
            await use(provider, "other")
        go_on.set()
    assert results == [{"slow": True}] * 8


async def test_credentials_refused_by_an_sse_endpoint_park_the_server(raw: RawServer, upstreams: Upstreams) -> None:
    raw.on["GET"] = always(status=401)
    provider = upstreams.provide(ServerSpec(name="h", transport="sse", url=raw.url))
    for _ in range(3):
        with pytest.raises(UpstreamGone, match="set the `Authorization` header"):
            await use(provider, "x")
    assert raw.methods() == ["GET"]
