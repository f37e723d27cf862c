"""What a client may use before anybody has asked who it is: heads, bodies, time, connections and requests."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import suppress

import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from tests.surfaces.mcp.listening import Listening, Reply, hello, listening, mcp_headers, read_reply

from portico.domain.server import MEGABYTE
from portico.surfaces.mcp import http_checks
from portico.surfaces.mcp.http_checks import MOST_VALUES, has_too_many_values

SLOW = pytest.mark.requirement("P-HTTP-TIME")
SIZE = pytest.mark.requirement("P-HTTP-SIZE")


def error_of(reply: Reply) -> str:
    error = reply.json["error"]
    return str(error.get("data", error)["code"])


async def post(gateway: Listening, body: bytes, path: str = "/mcp", **headers: str) -> Reply:
    return await gateway.ask(path, method="POST", body=body, headers=mcp_headers(**headers))


@SIZE
async def test_a_head_has_a_largest_size():
    async with listening(max_head=4_096) as gateway:
        for headers in ({"X": "y" * 5_000}, {f"X-{n}": "y" for n in range(1_000)}, {"Cookie": "y" * 3_900_000}):
            reply = await gateway.ask("/livez", headers=headers)
            assert (reply.status, error_of(reply)) == (431, "too_large")
        assert (await gateway.ask("/" + "x" * 5_000)).status == 431
        assert (await gateway.ask("/livez", headers={"X": "y" * 3_000})).status == 200


@SIZE
async def test_a_head_that_does_not_end_is_refused_before_it_is_complete():
    async with listening(max_head=4_096) as gateway:
        for begun in (b"GET /", b"GET /livez HTTP/1.1\r\nX: ", b"GET /livez HTTP/1.1\r\n", b"\r\n\r\n"):
            reader, writer = await gateway.connect()
            writer.write(begun)
            more = b"X: y\r\n" * 1_000 if begun.endswith(b"1.1\r\n") else b"\r\n" * 4_000
            writer.write(more if begun.endswith(b"\n") else b"y" * 8_000)
            with anyio.fail_after(5):
                assert (await read_reply(reader)).status == 431
            writer.close()


@SIZE
async def test_trailers_and_chunk_extensions_have_the_size_of_a_head():
    head = "POST /mcp HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with listening(max_head=4_096) as gateway:
        for rest in (b"0\r\nX: " + b"y" * 600_000, b"1;" + b"x" * 600_000, b"0\r\n" + b"X: y\r\n" * 2_000):
            reader, writer = await gateway.connect()
            writer.write(head.format(gateway.host).encode())
            writer.write(rest)
            with anyio.fail_after(5):
                assert (await read_reply(reader)).status == 431
            writer.close()


@SIZE
@pytest.mark.parametrize("path", ["/mcp", "/mcp/static", "/api/v1/servers", "/nothing", "/api/v1/cache"])
async def test_a_body_has_a_largest_size_and_the_answer_says_which(path: str):
    async with listening(max_body=100_000) as gateway:
        declared = await post(gateway, b"x" * 100_001, path)
        assert (declared.status, error_of(declared)) == (413, "too_large")
        assert b"100,000" in declared.body
        assert b"http.max_body" in declared.body
        chunked = f"POST {path} HTTP/1.1\r\nHost: {gateway.host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        reply = await gateway.send(chunked + (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 4 + b"0\r\n\r\n")
        assert (reply.status, error_of(reply)) == (413, "too_large")


@SIZE
async def test_a_hundred_megabytes_are_refused_at_once_and_the_client_reads_why():
    async with listening() as gateway:
        reader, writer = await gateway.connect()
        writer.write(f"POST /mcp HTTP/1.1\r\nHost: {gateway.host}\r\nContent-Length: 104857600\r\n\r\n".encode())
        for _ in range(1_600):
            writer.write(b"x" * 65_536)
            await writer.drain()
        with anyio.fail_after(10):
            assert (await read_reply(reader)).status == 413
        writer.close()


@SIZE
async def test_compressed_bodies_are_not_read():
    async with listening() as gateway:
        for path in ("/mcp", "/api/v1/cache"):
            reply = await post(gateway, gzip.compress(b"0" * 3_000_000), path, Content_Encoding="gzip")
            assert (reply.status, error_of(reply)) == (400, "encoded_body")


@SIZE
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b'{"a":' * 60_000, 400),
        (b"[" + b"{}," * 1_300_000 + b"{}]", 413),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[' + b"1," * 1_900_000 + b"1]}}", 413),
        (b'{"a":"' + b'\\",' * 10 + b'","b":[' + b"[]," * 1_000_000 + b"[]]}", 413),
    ],
)
async def test_json_that_costs_too_much_to_read_is_refused(body: bytes, status: int, era: str):
    async with listening() as gateway:
        session = await gateway.open_session()
        for headers in ({}, {"mcp_session_id": session}):
            reply = await post(gateway, body, MCP_Protocol_Version=era, **headers)
            assert reply.status == status or (not headers and reply.status == 413)


def test_signs_inside_of_strings_are_no_values():
    text = json.dumps({"csv": ",".join(["a"] * (MOST_VALUES * 2)), "quoted": '\\",{[' * MOST_VALUES}).encode()
    assert not has_too_many_values(text)
    assert has_too_many_values(text[:-1] + b',"x":[' + b"1," * MOST_VALUES + b"1]}")


@SLOW
async def test_a_head_has_to_come_in_time():
    async with listening(head_s=0.3) as gateway:
        reader, writer = await gateway.connect()
        writer.write(b"GET /livez HTTP/1.1\r\nHo")
        with anyio.fail_after(5):
            reply = await read_reply(reader)
        assert (reply.status, error_of(reply)) == (408, "too_slow")
        writer.close()


@SLOW
async def test_one_byte_after_another_does_not_make_more_time():
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1_000
    async with listening(head_s=0.3) as gateway:
        reader, writer = await gateway.connect()
        with anyio.fail_after(5):
            sending = asyncio.create_task(drip(writer, head))
            assert (await read_reply(reader)).status == 408
            sending.cancel()
        writer.close()


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    for number in range(len(data)):
        writer.write(data[number : number + 1])
        await asyncio.sleep(0.02)


@SLOW
@pytest.mark.parametrize("path", ["/mcp", "/nothing", "/api/v1/cache"])
@pytest.mark.parametrize("limits", [{"body_idle_s": 0.3}, {"body_s": 0.3}])
async def test_a_body_has_to_come_in_time(path: str, limits: dict[str, float]):
    async with listening(**limits) as gateway:
        reader, writer = await gateway.connect()
        writer.write(f"POST {path} HTTP/1.1\r\nHost: {gateway.host}\r\nContent-Length: 1000\r\n\r\n".encode())
        with anyio.fail_after(5):
            sending = asyncio.create_task(drip(writer, b"x" * 900)) if "body_s" in limits else None
            reply = await read_reply(reader)
            if sending:
                sending.cancel()
        assert (reply.status, error_of(reply)) == (408, "too_slow")
        writer.close()


@SLOW
async def test_a_connection_without_a_request_is_closed():
    async with listening(head_s=0.3) as gateway:
        for sent in (b"", b"\r\n"):
            reader, writer = await gateway.connect()
            writer.write(sent)
            with anyio.fail_after(5):
                await reader.read()
            writer.close()


@SLOW
async def test_a_call_may_take_longer_than_its_request():
    async with listening(head_s=0.2, body_s=0.2, body_idle_s=0.2, api=_slow) as gateway:
        with anyio.fail_after(10):
            reply = await gateway.ask("/nothing", method="POST", body=b"{}")
        assert reply.status == 204


async def _slow(scope, receive, send):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0.6)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.requirement("P-HTTP-COUNT")
async def test_a_new_connection_takes_the_place_of_one_that_waits_for_its_client():
    async with listening(connections=4) as gateway:
        waiting = [await gateway.connect() for _ in range(12)]
        for number, (_, writer) in enumerate(waiting):
            writer.write(b"GET /livez HTTP/1.1\r\nX: " if number % 2 else b"")
        with anyio.fail_after(5):
            assert (await gateway.ask("/livez")).status == 200
            for reader, _ in waiting[:8]:
                assert (await read_reply(reader)).status in (0, 503)
        for _, writer in waiting:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@pytest.mark.requirement("P-HTTP-COUNT")
async def test_requests_at_once_are_bounded_and_health_is_answered_all_the_same():
    begun, go = anyio.Event(), anyio.Event()

    async def api(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope["path"] == "/slow":
            begun.set()
            await go.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with listening(requests=1, api=api) as gateway, anyio.create_task_group() as tasks:
        tasks.start_soon(gateway.ask, "/slow")
        with anyio.fail_after(5):
            await begun.wait()
            reply = await gateway.ask("/other")
            assert (reply.status, reply.headers["retry-after"], error_of(reply)) == (503, "1", "busy")
            assert (await gateway.rpc("initialize", hello())).status == 503
            assert (await gateway.ask("/livez")).status == 204
        go.set()


@pytest.mark.requirement("P-HTTP-COUNT")
async def test_event_streams_are_bounded():
    async with listening(streams=1) as gateway:
        sessions = [await gateway.open_session() for _ in range(2)]
        head = "GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nmcp-session-id: {}\r\n\r\n"
        reader, writer = await gateway.connect()
        writer.write(head.format(gateway.host, sessions[0]).encode())
        with anyio.fail_after(5):
            assert b" 200 " in await reader.readline()
            second = await gateway.send(head.format(gateway.host, sessions[1]).encode())
            assert (second.status, error_of(second)) == (503, "busy")
        writer.close()


@SIZE
async def test_unfinished_bodies_share_a_memory_and_the_oldest_gives_way():
    async with listening(body_memory_mb=1, max_body=1_000_000, body_s=20, body_idle_s=20) as gateway:
        head = f"POST /nothing HTTP/1.1\r\nHost: {gateway.host}\r\nContent-Length: 900000\r\n\r\n".encode()
        reader, writer = await gateway.connect()
        writer.write(head + b"x" * 600_000)
        await writer.drain()
        others = [await gateway.connect() for _ in range(3)]
        for _, other in others:
            other.write(head + b"x" * 600_000)
            await other.drain()
        with anyio.fail_after(5):
            assert (await post(gateway, b" " * 900_000, "/nothing")).status == 404
            writer.write(b"x" * 1_000)
            reply = await read_reply(reader)
        assert (reply.status, error_of(reply)) == (503, "busy")
        for _, closing in [(reader, writer), *others]:
            closing.close()


@pytest.mark.requirement("P-SLOW-READER")
async def test_those_who_leave_the_most_unread_for_longest_give_way_and_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(http_checks, "UNREAD", 50 * MEGABYTE)
    monkeypatch.setattr(http_checks, "UNREAD_S", 0.0)

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(b"x" * 30 * MEGABYTE)(scope, receive, send)

    async with listening(api=large) as gateway:
        clients = [await gateway.connect() for _ in range(3)]
        for reader, writer in clients:
            writer.write(f"GET /x HTTP/1.1\r\nHost: {gateway.host}\r\n\r\n".encode())
            with anyio.fail_after(10):
                assert b" 200 " in await reader.readline()
        with anyio.fail_after(30):
            assert await _is_whole(clients[2][0], 30 * MEGABYTE)
            assert not await _is_whole(clients[0][0], 30 * MEGABYTE)
        for _, writer in clients:
            writer.transport.abort()
    assert "closed a connection" in caplog.text


async def _is_whole(reader: asyncio.StreamReader, size: int) -> bool:
    """Whether an answer of this size comes to its end."""
    try:
        await reader.readuntil(b"\r\n\r\n")
        return len(await reader.readexactly(size)) == size
    except (asyncio.IncompleteReadError, ConnectionError):
        return False
