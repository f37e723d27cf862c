"""Errors over REST: one shape, a status that says whose fault it is, and never a traceback."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest

from portico.domain.tool import ToolId
from portico.errors import StoreError
from portico.rendering.cache import AnswerCache
from portico.testing import definition
from tests.surfaces.rest.rest_app import SERVERS, TOOLS, Rest, open_rest

BAD_VALUES = {
    "page=0": "page",
    "page=-1": "page",
    "page=one": "page",
    "page=1.5": "page",
    "page=": "page",
    "page=9" + "9" * 5_000: "page",
    "page=1000000001": "page",
    "page=18446744073709551616": "page",
    "page_size=0": "page_size",
    "page_size=51": "page_size",
    "budget=49": "budget",
    "budget=1000001": "budget",
    "pagesize=5": "pagesize",
}
BAD_FILTERS = {
    "min_success=1.1": "min_success",
    "min_success=-0.1": "min_success",
    "min_success=nan": "min_success",
    "max_latency_ms=-1": "max_latency_ms",
    "max_latency_ms=inf": "max_latency_ms",
    "read_only=perhaps": "read_only",
}
HOSTILE = (
    "../../etc/passwd",
    "%2e%2e/%2e%2e",
    "..%2f..%2f",
    "%00/%00",
    "x/%00",
    "%0d%0aSet-Cookie:%20a=b/x",
    "x/%0d%0a%0d%0a",
    "%ed%a0%80/%ed%a0%80",
    "%ff%fe/%80",
    "%F0%9F%A6%84/%F0%9F%A6%84",
    "'%22%3B--/%27%20OR%20%271%27=%271",
    "<script>/alert(1)",
    "%/%zz",
    "a/" + "b/" * 500,
    "a/" + "x" * 4_000,
    "::/::",
    "serena-mcp-server/",
    "/x",
    "//",
)


@pytest.mark.requirement("S1-E14", "S1-62", "P-REST-ERRORS")
@pytest.mark.parametrize("query", BAD_VALUES)
async def test_a_value_that_cannot_be_is_named(query: str):
    rest = open_rest()
    for path in (f"{TOOLS}/category/code_analysis", f"{TOOLS}/search"):
        answer = await rest.get(f"{path}?{query}")
        assert answer.status == 422
        assert answer.error["code"] == "invalid_arguments"
        assert BAD_VALUES[query] in answer.error["message"]
        assert answer.error["details"][0].startswith(f"{BAD_VALUES[query]}: ")
        assert answer.error["next"] == f"GET {path}"
        assert len(answer.body) < 1_500


@pytest.mark.requirement("S1-92")
@pytest.mark.parametrize("query", BAD_FILTERS)
async def test_a_filter_that_cannot_be_is_named(query: str):
    answer = await open_rest().get(f"{TOOLS}/search?{query}")
    assert (answer.status, answer.error["code"]) == (422, "invalid_arguments")
    assert BAD_FILTERS[query] in answer.error["message"]


@pytest.mark.requirement("P-REST-ERRORS")
@pytest.mark.parametrize(
    ("target", "says"),
    [
        (f"{TOOLS}/search?text=a&q=b", "q: the same as text; give one of the two"),
        (f"{TOOLS}/search?tag=a&tag=b", "tag: given 2 times; give it once"),
        (f"{TOOLS}/category/code_analysis?page=1&page=2", "page: given 2 times; give it once"),
        (f"{TOOLS}/hot?budget=100&budget=100", "budget: given 2 times; give it once"),
        ("/api/v1/stats?days=1&days=2&days=3", "days: given 3 times; give it once"),
    ],
)
async def test_what_is_said_twice_is_not_guessed(target: str, says: str):
    answer = await open_rest().get(target)
    assert (answer.status, answer.error["code"], answer.error["details"]) == (422, "invalid_arguments", [says])


@pytest.mark.requirement("S1-E12")
async def test_a_tool_of_a_server_named_like_a_path_is_told_where_it_is():
    rest = open_rest({"category": [definition("change_case", "Change the case.", text="string")]}, specs=())
    answer = await rest.get(f"{TOOLS}/category/change_case")
    assert (answer.status, answer.error["code"]) == (404, "unknown_filter")
    assert answer.error["next"] == f"GET {TOOLS}/_category/change_case"
    assert (await rest.get(answer.error["next"].split(" ")[1])).json["tool"] == "category::change_case"
    near = await rest.get(f"{TOOLS}/_category/change_cas")
    assert near.error["next"] == f"GET {TOOLS}/_category/change_case"


async def test_an_unknown_tool_is_answered_with_near_ones_and_the_next_request():
    rest = open_rest()
    answer = await rest.get(f"{TOOLS}/serena-mcp-server/find_symbl")
    assert (answer.status, answer.error["code"]) == (404, "unknown_tool")
    assert "find_symbol" in " ".join(answer.error["details"])
    method, path = answer.error["next"].split(" ", 1)
    assert method == "GET"
    assert (await rest.get(path)).status == 200


async def test_an_unknown_category_is_answered_with_near_ones():
    rest = open_rest()
    answer = await rest.get(f"{TOOLS}/category/code_analisys")
    assert (answer.status, answer.error["code"]) == (404, "unknown_filter")
    assert "code_analysis" in " ".join(answer.error["details"])
    assert answer.error["next"].startswith("GET /api/v1/tools/")
    search = await rest.get(f"{TOOLS}/search?category=code_analisys")
    assert (search.status, search.error["code"]) == (404, "unknown_filter")


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING")
async def test_a_hidden_tool_looks_missing():
    rest = open_rest()
    assert ToolId("serena-mcp-server", "secret_tool") in rest.application.gateway.snapshot.tools
    hidden = await rest.get(f"{TOOLS}/serena-mcp-server/secret_tool")
    assert (hidden.status, hidden.error["code"]) == (404, "unknown_tool")
    known = {name: [tool for tool in tools if tool["name"] != "secret_tool"] for name, tools in SERVERS.items()}
    missing = await open_rest(known).get(f"{TOOLS}/serena-mcp-server/secret_tool")
    assert (missing.status, missing.body) == (404, hidden.body)
    for path in ("hot", "categories", "category/code_analysis?page_size=50", "search?text=secret"):
        assert b"secret_tool" not in (await rest.get(f"{TOOLS}/{path}")).body


@pytest.mark.requirement("S1-E12", "P-REST-ERRORS")
@pytest.mark.parametrize("path", HOSTILE)
async def test_hostile_names_are_unknown_and_nothing_else(path: str):
    rest = open_rest()
    for target in (f"{TOOLS}/{path}", f"{TOOLS}/category/{path}", f"{TOOLS}/search?server={path}&text={path}"):
        for method in ("GET", "HEAD"):
            answer = await rest.get(target.encode(), method=method)
            assert answer.status in (404, 422), target
        assert (await rest.get(target.encode())).error["code"] in ("unknown_tool", "unknown_filter", "not_found")
        assert all("\n" not in value and "\r" not in value for value in answer.headers.values())


@pytest.mark.parametrize("raw", [bytes(range(128, 256)), b"\xed\xa0\x80/x", b"\x01/\x7f"])
async def test_bytes_that_are_no_text_are_unknown(raw: bytes):
    rest = open_rest()
    for target in (f"{TOOLS}/x/".encode() + raw, f"{TOOLS}/category/".encode() + raw):
        answer = await rest.get(target)
        assert answer.status == 404
        assert answer.error["code"] in ("unknown_tool", "unknown_filter")


@pytest.mark.requirement("T20")
async def test_what_is_too_long_is_refused_before_it_is_read():
    rest = open_rest()
    for target in (f"{TOOLS}/x/{'y' * 10_240}", f"{TOOLS}/search?text={'y' * 10_240}", "/" + "z" * 100_000):
        answer = await rest.get(target)
        assert (answer.status, answer.error["code"]) == (414, "too_long")
        assert len(answer.body) < 500


@pytest.mark.requirement("P-REST-ERRORS", "T47")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "WHATEVER"])
async def test_nothing_can_be_changed(method: str):
    rest = open_rest()
    for path in (f"{TOOLS}/hot", f"{TOOLS}/a/b", "/api/v1/servers", "/metrics", "/livez"):
        answer = await rest.get(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert answer.error["code"] == "method_not_allowed"
    if method != "DELETE":
        refused = await rest.get("/api/v1/cache", method=method)
        assert (refused.status, refused.headers["allow"]) == (405, "DELETE")
        assert refused.error["message"].endswith("is not possible on '/api/v1/cache': use DELETE")


@pytest.mark.parametrize("path", ["/nothing", "/api", "/api/v1/tools", "/docs", "/redoc", f"{TOOLS}/hot/"])
async def test_what_is_not_there_is_answered_with_the_document(path: str):
    answer = await open_rest().get(path)
    assert (answer.status, answer.error["code"]) in ((404, "not_found"), (404, "unknown_tool"))
    assert answer.error["next"].startswith("GET /")


class Failing(AnswerCache):
    """A cache that fails as no one foresaw, or as a store does."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def get(self, *args: object, **options: object) -> None:  # type: ignore[override]
        raise self.error


def broken(error: Exception) -> Rest:
    rest = open_rest()
    rest.application.tier_answers.cache = Failing(error)
    return rest


@pytest.mark.requirement("P-REST-ERRORS")
async def test_no_traceback_reaches_a_caller(caplog: pytest.LogCaptureFixture):
    rest = broken(RuntimeError("the password is hunter2"))
    with caplog.at_level(logging.ERROR):
        answer = await rest.get(f"{TOOLS}/hot")
    assert (answer.status, answer.error["code"]) == (500, "internal")
    assert b"hunter2" not in answer.body
    assert b"Traceback" not in answer.body
    assert "hunter2" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_a_store_that_is_away_is_our_trouble_and_not_the_callers():
    answer = await broken(StoreError("the database does not answer")).get(f"{TOOLS}/hot")
    assert (answer.status, answer.error["code"]) == (503, "store_error")


async def test_every_answer_keeps_browsers_from_guessing_and_embedding():
    rest = open_rest()
    for path in (f"{TOOLS}/hot", "/metrics", "/livez", "/openapi.json", "/nothing", f"{TOOLS}/a/{quote('é')}"):
        headers = (await rest.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
