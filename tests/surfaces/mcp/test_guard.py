"""Who is let in: names are checked before anything else, on every path."""

from __future__ import annotations

import pytest
from starlette.types import Message
from tests.surfaces.mcp.listening import Counting, hello, listening

from portico.domain.server import HttpSettings
from portico.surfaces.mcp.http_checks import HostCheck

PATHS = (
    "/",
    "/mcp",
    "/mcp/",
    "/mcp/static",
    "/mcp/discover/",
    "/mcp/none",
    "/api/v1/tools/hot",
    "/api/v1/tools/a/b",
    "/api/v1/servers",
    "/api/v1/budget",
    "/api/v1/stats",
    "/api/v1/cache",
    "/livez",
    "/readyz",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/nothing",
)
METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT")
OWN = b"127.0.0.1:8421"
Headers = list[tuple[bytes, bytes]]
EVIL: dict[str, tuple[Headers, int]] = {
    "host": ([(b"host", b"evil.example")], 421),
    "host with our port": ([(b"host", b"evil.example:8421")], 421),
    "wrong port": ([(b"host", b"127.0.0.1:1")], 421),
    "no port": ([(b"host", b"127.0.0.1")], 421),
    "look-alike host": ([(b"host", b"127.0.0.1.evil.example:8421")], 421),
    "trailing dot": ([(b"host", b"localhost.:8421")], 421),
    "credentials": ([(b"host", b"127.0.0.1:8421@evil.example")], 421),
    "empty host": ([(b"host", b"")], 421),
    "no host": ([], 421),
    "two hosts": ([(b"host", OWN), (b"host", b"evil.example")], 421),
    "the same host twice": ([(b"host", OWN), (b"host", OWN)], 421),
    "forwarded host": ([(b"host", OWN), (b"x-forwarded-host", b"evil.example")], 421),
    "forwarded hosts": ([(b"host", OWN), (b"x-forwarded-host", OWN + b", evil.example")], 421),
    "forwarded": ([(b"host", OWN), (b"forwarded", b'for=1.2.3.4;Host="evil.example"')], 421),
    "origin": ([(b"host", OWN), (b"origin", b"http://evil.example")], 403),
    "null origin": ([(b"host", OWN), (b"origin", b"null")], 403),
    "empty origin": ([(b"host", OWN), (b"origin", b"")], 403),
    "look-alike origin": ([(b"host", OWN), (b"origin", b"http://127.0.0.1.evil.example:8421")], 403),
    "prefixed origin": ([(b"host", OWN), (b"origin", b"http://evil-127.0.0.1:8421")], 403),
    "origin of another port": ([(b"host", OWN), (b"origin", b"http://127.0.0.1:3000")], 403),
    "second origin": ([(b"host", OWN), (b"origin", b"http://" + OWN), (b"origin", b"http://evil.example")], 403),
    "cross-site": ([(b"host", OWN), (b"sec-fetch-site", b"cross-site")], 403),
    "same-site": ([(b"host", OWN), (b"sec-fetch-site", b"same-site")], 403),
    "unknown site": ([(b"host", OWN), (b"sec-fetch-site", b"elsewhere")], 403),
    "second site": ([(b"host", OWN), (b"sec-fetch-site", b"none"), (b"sec-fetch-site", b"cross-site")], 403),
}


async def asked(guard: HostCheck, path: str, headers: Headers, *, method: str = "GET", kind: str = "http") -> int:
    """The status of one request; nothing of its body may be read."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the body was read")

    async def collect(message: Message) -> None:
        sent.append(message)

    await guard({"type": kind, "method": method, "path": path, "headers": headers}, receive, collect)
    return int(sent[0].get("status", 0)) if kind == "http" else int(sent[0]["code"])


def guarded(settings: HttpSettings | None = None) -> tuple[HostCheck, Counting]:
    inner = Counting()
    return HostCheck(inner, settings or HttpSettings(), 8421), inner


@pytest.mark.requirement("T01")
@pytest.mark.requirement("P-DOOR-ORIGIN")
@pytest.mark.parametrize("name", EVIL)
async def test_no_path_is_reached_under_another_name_or_from_another_page(name: str):
    guard, inner = guarded()
    headers, status = EVIL[name]
    for path in PATHS:
        for method in METHODS:
            assert await asked(guard, path, headers, method=method) == status
            assert await asked(guard, path, [(b"accept", b"*/*"), *headers], method=method) == status
    assert inner.reached == []


@pytest.mark.requirement("P-DOOR-ORIGIN")
@pytest.mark.parametrize(
    "headers",
    [
        [(b"host", OWN)],
        [(b"host", b"LOCALHOST:8421")],
        [(b"host", b"[::1]:8421")],
        [(b"host", OWN), (b"origin", b"http://127.0.0.1:8421")],
        [(b"host", OWN), (b"origin", b"http://localhost:8421"), (b"sec-fetch-site", b"cross-site")],
        [(b"host", OWN), (b"sec-fetch-site", b"same-origin")],
        [(b"host", OWN), (b"sec-fetch-site", b"none")],
        [(b"host", OWN), (b"x-forwarded-host", b"localhost:8421")],
        [(b"host", OWN + b" \t")],
    ],
)
async def test_own_names_and_pages_pass_every_time(headers: Headers):
    guard, inner = guarded()
    for _ in range(2):
        for path in PATHS:
            assert await asked(guard, path, headers) == 204
    assert inner.reached == [*PATHS, *PATHS]


async def test_websockets_are_refused():
    guard, inner = guarded()
    for headers, _ in EVIL.values():
        assert await asked(guard, "/mcp", headers, kind="websocket") == 1008
    assert await asked(guard, "/mcp", [(b"host", OWN)], kind="websocket") == 1008
    assert inner.reached == []


@pytest.mark.requirement("P-DOOR-ALLOWED")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("portico.example.com", 204),
        ("Portico.Example.Com:443", 204),
        ("other.example.com:8443", 204),
        ("other.example.com", 421),
        ("portico.example.com.evil", 421),
        ("evil-portico.example.com", 421),
    ],
)
async def test_hosts_of_the_config_are_names_of_this_endpoint(host: str, status: int):
    settings = HttpSettings(allowed_hosts=("portico.example.com", "other.example.com:8443"))
    guard, _ = guarded(settings)
    assert await asked(guard, "/mcp", [(b"host", host.encode())]) == status
    origin = f"https://{host}".encode()
    assert await asked(guard, "/mcp", [(b"host", host.encode()), (b"origin", origin)]) == status


@pytest.mark.requirement("P-DOOR-ALLOWED")
async def test_our_own_loopback_address_has_no_pages_over_https():
    guard, inner = guarded(HttpSettings(allowed_hosts=("portico.example.com",)))
    assert await asked(guard, "/mcp", [(b"host", OWN)]) == 204
    inner.reached.clear()
    assert await asked(guard, "/mcp", [(b"host", OWN), (b"origin", b"https://" + OWN)]) == 403
    assert inner.reached == []


@pytest.mark.requirement("P-DOOR-ALLOWED")
async def test_pages_of_the_config_may_ask_from_another_site():
    guard, _ = guarded(HttpSettings(allowed_origins=("https://app.example.com",)))
    site = (b"sec-fetch-site", b"cross-site")
    assert await asked(guard, "/mcp", [(b"host", OWN), (b"origin", b"https://app.example.com"), site]) == 204
    assert await asked(guard, "/mcp", [(b"host", OWN), site]) == 403
    assert await asked(guard, "/mcp", [(b"host", OWN), (b"origin", b"https://evil.example.com"), site]) == 403


@pytest.mark.requirement("P-DOOR-ALLOWED")
async def test_a_page_of_the_config_may_read_its_answers_and_others_may_not():
    async with listening(HttpSettings(allowed_origins=("https://app.example.com",))) as gateway:
        page = {"Origin": "https://app.example.com", "Sec-Fetch-Site": "cross-site"}
        wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-session-id,x"}
        asked = await gateway.ask("/mcp", method="OPTIONS", headers={**page, **wanted})
        assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "https://app.example.com")
        assert asked.headers["access-control-allow-headers"] == "mcp-session-id,x"
        opened = await gateway.rpc("initialize", hello(), **page)
        assert (opened.status, opened.headers["access-control-allow-origin"]) == (200, "https://app.example.com")
        assert "Mcp-Session-Id" in opened.headers["access-control-expose-headers"]
        evil = await gateway.ask("/mcp", method="OPTIONS", headers={**wanted, "Origin": "https://evil.example"})
        assert (evil.status, "access-control-allow-origin" in evil.headers) == (403, False)
        assert "access-control-allow-origin" not in (await gateway.ask("/livez")).headers


@pytest.mark.requirement("P-DOOR-ALLOWED")
async def test_a_refusal_says_which_setting_to_change():
    async with listening() as gateway:
        rest = await gateway.ask("/livez", headers={"Host": "portico.example.com"})
        assert rest.status == 421
        assert "http.allowed_hosts" in " ".join(rest.json["error"]["details"])
        mcp = await gateway.ask("/mcp", method="POST", body=b"{}", headers={"Host": "portico.example.com"})
        assert (mcp.status, mcp.json["jsonrpc"], mcp.json["id"]) == (421, "2.0", None)
        assert "http.allowed_hosts" in mcp.json["error"]["message"]
        page = await gateway.ask("/livez", headers={"Origin": "https://app.example.com"})
        assert page.status == 403
        assert "http.allowed_origins" in " ".join(page.json["error"]["details"])


@pytest.mark.requirement("P-DOOR-ORIGIN")
@pytest.mark.parametrize(
    "target",
    ["http://evil.example/livez", "http://evil.example:{port}/livez", "http://127.0.0.1:1/livez", "//evil.example/"],
)
async def test_a_target_with_another_host_is_refused_on_the_wire(target: str):
    inner = Counting()
    async with listening(api=inner) as gateway:
        reply = await gateway.ask(target.format(port=gateway.port))
        assert reply.status in (400, 421) or target.startswith("//")
        own = await gateway.ask(f"http://{gateway.host}/nothing")
        assert own.status == 204
    assert "/livez" not in inner.reached


@pytest.mark.requirement("T01", "T20")
@pytest.mark.requirement("P-DOOR-ORIGIN")
async def test_names_are_checked_before_a_body_is_awaited():
    async with listening() as gateway:
        for path in ("/mcp", "/mcp/static", "/api/v1/cache", "/nothing"):
            head = f"POST {path} HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000000\r\n\r\n"
            assert (await gateway.send(head.encode())).status == 421


async def test_a_request_to_upgrade_is_answered_as_any_other():
    async with listening() as gateway:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        assert (await gateway.ask("/livez", headers=upgrade)).status == 200
        refused = await gateway.ask("/livez", headers={**upgrade, "Origin": "http://evil.example"})
        assert refused.status == 403


@pytest.mark.requirement("P-DOOR-NO-TRACES")
async def test_a_page_of_another_site_leaves_nothing_in_the_journal():
    async with listening() as gateway:
        executor = gateway.rest.application.gateway.executor
        for path in ("/api/v1/tools/hot", "/api/v1/tools/search?text=symbol", "/api/v1/budget", "/api/v1/stats"):
            for site in ("cross-site", "same-site"):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
                assert (await gateway.ask(path, headers=headers)).status == 403
        assert not executor.counts.lookups
        assert (await gateway.ask("/api/v1/tools/hot", headers={"Sec-Fetch-Site": "none"})).status == 200
        assert executor.counts.lookups.total() == 1
