"""The walk from the hot list to a call, over real HTTP and as resources of a real MCP client."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, Gateway, client, gateway, text_of, write_config

pytestmark = pytest.mark.timeout(90)

TOOLS = "/api/v1/tools"
CODE = [
    definition("find_symbol", "Find a symbol in the code base.", name_path="string"),
    definition("read/file", "Read a file of the project.", path="string"),
    *(definition(f"inspect_{n:02}", f"Inspect part {n} of the code base.", path="string") for n in range(40)),
]
WEB = [definition("browser_snapshot", "Take a snapshot of the page."), definition("secret_page", "Is hidden.")]
HOSTILE = (
    b"/../../../../etc/passwd",
    b"/%2e%2e/%2e%2e/%2e%2e",
    b"/%00/%00",
    b"/x/%0d%0aSet-Cookie:%20a=b",
    b"/%ed%a0%80/%ff",
    b"/%F0%9F%A6%84/%22%27",
    b"/a/" + b"b" * 10_240,
    b"//",
)


def config(home: Path) -> None:
    servers: dict[str, Any] = {
        "serena-mcp-server": {**serving(home / "code.json", CODE), "alias": "serena", "category": "code_analysis"},
        "playwright": {
            **serving(home / "web.json", WEB),
            "category": "web_automation",
            "tools": {"deny": ["secret_*"]},
            "env": {"TOKEN": "hunter2"},
        },
    }
    write_config(home, servers)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("rest")
    config(home)
    with gateway(home) as found:
        yield found


@pytest.fixture
def http(running: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=running.url.removesuffix("/mcp"), timeout=40) as made:
        yield made


@pytest.mark.requirement("S1-3", "S1-8", "S1-53", "S1-54", "S1-55", "S1-56", "S1-57")
@pytest.mark.requirement("S1-58", "S1-59", "S1-60", "S1-61", "S1-62", "S1-63")
@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_walks_from_the_hot_list_to_a_call(era: str, running: Gateway, http: httpx2.Client):
    hot = http.get(f"{TOOLS}/hot").raise_for_status()
    categories = http.get(f"{TOOLS}/categories").raise_for_status()
    if http.get(f"{TOOLS}/hot").json() != hot.json():  # the tiers of a start were updated in between, once
        hot, categories = http.get(f"{TOOLS}/hot"), http.get(f"{TOOLS}/categories")
    names = [line["category"] for line in categories.json()["categories"] if line["tool_count"]]
    assert sorted(names) == ["code_analysis", "web_automation"]
    page = http.get(f"{TOOLS}/category/code_analysis").raise_for_status()
    assert page.json()["pagination"] == {"page": 1, "page_size": 20, "total_count": 42, "total_pages": 3}
    found = next(tool for tool in page.json()["tools"] if tool["tool"] == "serena::find_symbol")
    tool = http.get(f"{TOOLS}/{found['server']}/find_symbol").raise_for_status()
    assert tool.json()["parameters"]["required"] == ["name_path"]

    walked = [answer.json() for answer in (hot, categories, page, tool)]
    assert [step["tier"] for step in walked] == ["hot", "category_overview", "tool_summaries", "full_schema"]
    spent = [step["budget"]["cumulative"] for step in walked]
    assert spent[0] == walked[0]["tokens"]
    assert spent[1] == walked[0]["tokens"] + walked[1]["tokens"]
    assert spent == sorted(spent)
    assert all(cost <= limit for cost, limit in zip(spent, (2_000, 4_000, 8_000, 12_000), strict=True))

    async with client("http", era, surface="discover", running=running) as connected:
        arguments = {"name": tool.json()["handle"], "arguments": {"name_path": "main"}}
        result = await connected.call_tool("call_tool", arguments)
    assert not result.is_error
    assert "find_symbol" in text_of(result)


@pytest.mark.requirement("P-RESOURCES-CATALOG")
@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("era", ERAS)
async def test_the_tiers_are_resources_of_every_client(transport: str, era: str, running: Gateway):
    async with client(transport, era, surface="discover", running=running, home=running.home) as connected:
        listed = [str(resource.uri) for resource in (await connected.list_resources()).resources]
        assert listed == ["catalog://hot", "catalog://categories"]
        templates = (await connected.list_resource_templates()).resource_templates
        ways = {"catalog://category/{name}", "catalog://tool/{server}/{tool}", "catalog://guide/{server}"}
        assert ways == {t.uri_template for t in templates}
        read = {}
        for uri in (*listed, "catalog://category/code_analysis", "catalog://tool/serena-mcp-server/read%2Ffile"):
            (content,) = (await connected.read_resource(uri)).contents
            assert content.mime_type == "application/json"
            read[uri] = json.loads(content.text)  # type: ignore[union-attr]
    tiers = [body["tier"] for body in read.values()]
    assert tiers == ["hot", "category_overview", "tool_summaries", "full_schema"]
    assert read["catalog://tool/serena-mcp-server/read%2Ffile"]["tool"] == "serena::read/file"
    assert [body["next"] for body in read.values()][:3] == [
        "catalog://categories",
        "catalog://category/{name}",
        "catalog://category/code_analysis?page=2",
    ]


@pytest.mark.requirement("S1-92", "S1-94")
def test_a_search_by_intent_goes_to_the_summaries(http: httpx2.Client):
    wanted = {"text": "find a symbol", "category": "code_analysis", "max_latency_ms": 60_000}
    told = http.get(f"{TOOLS}/search", params=wanted).raise_for_status().json()
    assert told["tier"] == "tool_summaries"
    assert told["tools"][0]["tool"] == "serena::find_symbol"


def test_a_kept_body_is_not_sent_again(http: httpx2.Client):
    first = http.get(f"{TOOLS}/hot").raise_for_status()
    again = http.get(f"{TOOLS}/hot", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    head = http.head(f"{TOOLS}/hot")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(first.content))


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING")
def test_operators_read_servers_usage_and_budgets_without_secrets(http: httpx2.Client):
    servers = http.get("/api/v1/servers").raise_for_status()
    assert {line["name"]: (line["tools"], line["hidden"]) for line in servers.json()["servers"]} == {
        "playwright": (1, 1),
        "serena-mcp-server": (42, 0),
    }
    assert "hunter2" not in servers.text
    assert http.get("/api/v1/budget").raise_for_status().json()["ok"]
    assert len(http.get("/api/v1/stats", params={"days": 3}).raise_for_status().json()["by_day"]) == 3
    assert http.get(f"{TOOLS}/playwright/secret_page").status_code == 404
    assert http.get("/openapi.json").raise_for_status().json()["openapi"].startswith("3.")


@pytest.mark.requirement("S1-85")
async def test_figures_grow_with_calls(running: Gateway, http: httpx2.Client):
    def figure(name: str) -> float:
        lines = http.get("/metrics").raise_for_status().text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    done = 'portico_calls_total{outcome="done",server="playwright"}'
    before = figure(done), figure("portico_cache_hits_total"), figure("portico_lookups_total")
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        await connected.call_tool("playwright__browser_snapshot", {})
    http.get(f"{TOOLS}/hot")
    http.get(f"{TOOLS}/hot")
    after = figure(done), figure("portico_cache_hits_total"), figure("portico_lookups_total")
    assert after[0] == before[0] + 1
    assert after[1] > before[1]
    assert after[2] >= before[2] + 2
    assert figure("process_resident_memory_bytes") > 0
    ready = http.get("/readyz").raise_for_status().json()
    assert (ready["ready"], ready["store"], ready["degraded"]) == (True, "ok", False)


@pytest.mark.requirement("P-DOOR-ORIGIN", "T01")
@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_web_page_cannot_read_the_api(headers: dict[str, str], http: httpx2.Client):
    for path in (f"{TOOLS}/hot", "/api/v1/servers", "/metrics", "/openapi.json", "/readyz"):
        answer = http.get(path, headers=headers)
        assert answer.status_code in (403, 421)
        assert answer.json()["error"]["code"] == "refused"


@pytest.mark.requirement("S1-E12")
@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_paths_are_answered_with_json(path: bytes, running: Gateway):
    for prefix in (b"/api/v1/tools", b"/api/v1/tools/category"):
        status, head, body = raw_get(running, prefix + path)
        assert status in (404, 414, 422), (path, status)
        assert b"set-cookie" not in head.lower()
        assert set(json.loads(body)["error"]) == {"code", "message", "details", "next"}


def raw_get(running: Gateway, target: bytes) -> tuple[int, bytes, bytes]:
    """Send a path as no client would."""
    address = urlsplit(running.url)
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(
            b"GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % (target, address.netloc.encode())
        )
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body
