"""The four tiers over REST: their bodies, their parameters, and what spares a caller a body that it has."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from portico.domain.call import Caller
from portico.surfaces.rest.tier_routes import (
    CategoryOverviewResponse,
    FullToolSchemaResponse,
    HotToolsResponse,
    ToolSummariesResponse,
    ToolSummary,
)
from portico.testing import definition
from tests.surfaces.rest.rest_app import SERVERS, TOOLS, open_rest

PATHS: dict[str, type[BaseModel]] = {
    f"{TOOLS}/hot": HotToolsResponse,
    f"{TOOLS}/categories": CategoryOverviewResponse,
    f"{TOOLS}/category/code_analysis": ToolSummariesResponse,
    f"{TOOLS}/category/code_analysis?page=2&page_size=2": ToolSummariesResponse,
    f"{TOOLS}/category/code_analysis?page=99": ToolSummariesResponse,
    f"{TOOLS}/search?text=find%20a%20symbol": ToolSummariesResponse,
    f"{TOOLS}/search?category=code_analysis": ToolSummariesResponse,
    f"{TOOLS}/search?text=zzzz%20qqqq": ToolSummariesResponse,
    f"{TOOLS}/serena-mcp-server/find_symbol": FullToolSchemaResponse,
    f"{TOOLS}/playwright/browser_snapshot": FullToolSchemaResponse,
}


MODELS: dict[str, type[BaseModel]] = {
    "hot": HotToolsResponse,
    "tool_summaries": ToolSummariesResponse,
    "full_schema": FullToolSchemaResponse,
}


@pytest.mark.requirement("S1-58", "S1-59", "S1-60", "S1-61", "S1-64")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("budget", ["", "50", "60", "100", "200", "400", "1000000"])
async def test_every_body_is_what_the_model_says(path: str, budget: str):
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 10, failed=1)
    joint = "&" if "?" in path else "?"
    answer = await rest.get(f"{path}{joint}budget={budget}" if budget else path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    PATHS[path].model_validate_json(answer.body, strict=True)


@pytest.mark.requirement("S1-E17", "S1-E18", "S1-64")
@pytest.mark.parametrize("budget", [50, 80, 150, 1_000, 5_000])
async def test_monstrous_tools_fit_a_small_budget_and_the_model(budget: int):
    monster = definition("m" * 500, "word " * 3_000, **{f"parameter_{n}": "string" for n in range(300)})
    rest = open_rest({"playwright": [monster]})
    for path in ("hot", "category/web_automation", "search?text=word", f"playwright/{'m' * 500}"):
        answer = await rest.get(f"{TOOLS}/{path}{'&' if '?' in path else '?'}budget={budget}")
        assert answer.status == 200, answer.body
        MODELS[answer.json["tier"]].model_validate_json(answer.body, strict=True)
        assert answer.json["tokens"] <= budget


@pytest.mark.requirement("S1-57", "S1-E16")
async def test_bodies_are_the_bytes_that_were_counted():
    rest = open_rest()
    body = (await rest.get(f"{TOOLS}/hot")).body
    view = await rest.application.tier_answers.hot(Caller(surface="rest"))
    assert body == view.body
    told = HotToolsResponse.model_validate_json(body)
    assert told.tokens == rest.application.gateway.counter.count(body.decode()) == view.tokens
    assert told.budget is not None
    assert told.budget.counter == rest.application.gateway.counter.name


@pytest.mark.requirement("S1-12", "S1-13", "S1-14", "S1-15", "S1-16", "S1-17", "S1-18", "S1-58")
async def test_the_hot_list_tells_alias_server_parameters_latency_and_success():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 75, failed=1)
    told = (await rest.get(f"{TOOLS}/hot")).json
    assert told["tier"] == "hot"
    assert told["tools"][0] == {
        "tool": "serena::find_symbol",
        "server": "serena-mcp-server",
        "description": told["tools"][0]["description"],
        "params": ["name_path", "relative_path", "options"],
        "avg_latency": "47ms",
        "success_rate": "98.7%",
    }
    assert told["tools"][0]["description"].startswith("Find a symbol")
    unused = next(tool for tool in told["tools"] if tool["tool"] == "playwright::browser_snapshot")
    assert (unused["params"], unused["avg_latency"], unused["success_rate"]) == ([], None, None)


@pytest.mark.requirement("S1-22", "S1-23", "S1-24", "S1-25", "S1-26", "S1-27", "S1-28", "S1-59", "S1-E7")
async def test_the_overview_counts_tools_and_servers_and_names_two():
    rest = open_rest()
    rest.used("serena-mcp-server", "replace_body", 5)
    told = (await rest.get(f"{TOOLS}/categories")).json
    assert told["tier"] == "category_overview"
    line = next(line for line in told["categories"] if line["category"] == "code_analysis")
    assert line.keys() == {"category", "display_name", "description", "tool_count", "server_count", "popular_tools"}
    assert (line["tool_count"], line["server_count"]) == (3, 1)
    assert len(line["popular_tools"]) == 2
    assert line["popular_tools"][0] == "serena::replace_body"


@pytest.mark.requirement("S1-34", "S1-35", "S1-36", "S1-37", "S1-38", "S1-60")
async def test_summaries_tell_the_filter_types_and_what_comes_back():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 10)
    told = (await rest.get(f"{TOOLS}/category/code_analysis")).json
    assert (told["tier"], told["filter"]) == ("tool_summaries", "category=code_analysis")
    assert told["tools"][0] == {
        "tool": "serena::find_symbol",
        "server": "serena-mcp-server",
        "description": "Find a symbol in the code base",
        "params": {
            "name_path": "string (required)",
            "relative_path": "string (optional)",
            "options": "object (required)",
        },
        "returns": "a list of symbols with locations",
        "avg_latency": "47ms",
    }


@pytest.mark.requirement("S1-62", "S1-63", "S1-E13", "S1-E14")
async def test_pages_are_counted_and_one_beyond_the_last_is_empty():
    many = [definition(f"tool_{n:03}", "Does something.") for n in range(45)]
    rest = open_rest({"playwright": many})
    path = f"{TOOLS}/category/web_automation"
    first = (await rest.get(path)).json
    assert first["pagination"] == {"page": 1, "page_size": 20, "total_count": 45, "total_pages": 3}
    pages = [(await rest.get(f"{path}?page={page}")).json for page in (1, 2, 3)]
    names = [tool["tool"] for page in pages for tool in page["tools"]]
    assert len(names) == len(set(names)) == 45
    assert len((await rest.get(f"{path}?page_size=50")).json["tools"]) == 45
    beyond = await rest.get(f"{path}?page=4")
    assert (beyond.status, beyond.json["tools"]) == (200, [])
    assert beyond.json["pagination"] == {"page": 4, "page_size": 20, "total_count": 45, "total_pages": 3}
    far = await rest.get(f"{path}?page={10**9}&page_size=50")
    assert (far.status, far.json["tools"]) == (200, [])


@pytest.mark.requirement("S1-42", "S1-43", "S1-44", "S1-45", "S1-46", "S1-47", "S1-48", "S1-61")
async def test_a_tool_is_told_in_full():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 75, failed=1)
    told = (await rest.get(f"{TOOLS}/serena-mcp-server/find_symbol")).json
    assert (told["tier"], told["tool"], told["server"]) == ("full_schema", "serena::find_symbol", "serena-mcp-server")
    assert told["description"].endswith("with locations.")
    assert told["parameters"]["properties"]["options"]["properties"]["depth"] == {"type": "integer", "minimum": 0}
    assert told["parameters"]["required"][0] == "name_path"
    assert told["returns"]["properties"]["symbols"]["type"] == "array"
    assert told["examples"][0].keys() == {"query", "description"}
    assert told["performance"] | {"p50_latency_ms": 0, "p95_latency_ms": 0} == {
        "avg_latency_ms": 47,
        "p50_latency_ms": 0,
        "p95_latency_ms": 0,
        "success_rate": 98.7,
        "total_invocations": 75,
    }
    assert 44 <= told["performance"]["p50_latency_ms"] <= told["performance"]["p95_latency_ms"] <= 50
    assert {"server_display_name", "docker_image", "network_mode"} <= told.keys()


@pytest.mark.requirement("S1-64")
async def test_a_summary_gives_back_what_stood_in_the_answer():
    rest = open_rest()
    told = (await rest.get(f"{TOOLS}/category/code_analysis")).json
    assert [ToolSummary.model_validate(tool).to_summary() for tool in told["tools"]] == told["tools"]


@pytest.mark.requirement("S1-E12", "S1-47", "S1-61")
@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("serena-mcp-server/read%2Ffile", "serena::read/file"),
        ("serena-mcp-server/read/file", "serena::read/file"),
        ("playwright/%E6%97%A5%E6%9C%AC%20tool%3F", "playwright::日本 tool?"),
        ("a%2Fb/c%2Fd", "a/b::c/d"),
        ("hot/categories", "hot::categories"),
        ("search/hot", "search::hot"),
        ("categories/category", "categories::category"),
    ],
)
async def test_names_with_slashes_and_of_routes_lead_to_their_tools(path: str, tool: str):
    odd = {
        "a/b": [definition("c/d", "Has slashes.")],
        "hot": [definition("categories", "Looks like a route.")],
        "search": [definition("hot", "Looks like a route.")],
        "categories": [definition("category", "Looks like a route.")],
    }
    rest = open_rest({**SERVERS, **odd})
    answer = await rest.get(f"{TOOLS}/{path}")
    assert (answer.status, answer.json["tool"]) == (200, tool)
    assert (await rest.get(f"{TOOLS}/hot")).json["tier"] == "hot"
    assert (await rest.get(f"{TOOLS}/categories")).json["tier"] == "category_overview"
    assert (await rest.get(f"{TOOLS}/category/web_automation")).json["tier"] == "tool_summaries"


@pytest.mark.requirement("S1-92", "S1-93", "S1-94", "S1-60")
async def test_a_search_goes_to_the_summaries_at_once():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 10, seconds=0.047)
    rest.used("serena-mcp-server", "replace_body", 10, seconds=0.9)
    query = "text=symbol&category=code_analysis&max_latency_ms=100&min_success=0.9"
    told = (await rest.get(f"{TOOLS}/search?{query}")).json
    assert told["tier"] == "tool_summaries"
    names = [tool["tool"] for tool in told["tools"]]
    assert names[0] == "serena::find_symbol"
    assert "serena::replace_body" not in names
    assert "max_latency_ms=100" in told["filter"]
    same = (await rest.get(f"{TOOLS}/search?{query.replace('text=', 'q=')}")).json
    assert same["tools"] == told["tools"]
    assert (await rest.get(f"{TOOLS}/serena/find_symbol")).json["tier"] == "full_schema"


async def test_a_body_that_the_caller_has_is_not_sent_again():
    rest = open_rest()
    first = await rest.get(f"{TOOLS}/hot")
    tag = first.headers["etag"]
    for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        again = await rest.get(f"{TOOLS}/hot", if_none_match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag), known
    assert (await rest.get(f"{TOOLS}/hot", if_none_match='"other"')).status == 200
    assert (await rest.get(f"{TOOLS}/categories")).headers["etag"] != tag
    assert "no-cache" in first.headers["cache-control"]


async def test_head_is_get_without_the_body():
    rest = open_rest()
    for path in (*PATHS, "/api/v1/servers", "/livez", "/metrics", f"{TOOLS}/no/such"):
        got, head = await rest.get(path), await rest.get(path, method="HEAD")
        assert (head.status, head.body) == (got.status, b""), path
        if path != "/metrics":
            assert head.headers == got.headers
