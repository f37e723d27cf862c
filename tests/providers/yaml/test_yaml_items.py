"""Prompts and glossaries: listed, got, read and completed like those of any server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from anyio import fail_after
from mcp import Client, MCPError

from portico.errors import UnknownItem, UpstreamError
from portico.providers.python import LocalProvider
from portico.providers.yaml import LoadedYaml
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.static import Static
from portico.testing import FakeApplication

Load = Callable[..., LoadedYaml]
Provide = Callable[..., LocalProvider]

ITEMS = """
explain_table:
  type: prompt
  title: Explain
  description: Explain a table
  parameters:
    table: {description: The table}
    depth: {enum: [short, long], default: short}
    note: {required: false}
  prompt: "Explain {table} in a {depth} way. {note}Answer as {{json}} like {\\"a\\": 1}."

business_terms:
  type: glossary
  terms:
    churn: {definition: Customers who leave in a month, synonyms: [attrition, "loss rate"]}
    Net/Gross: "Without and with tax"
    ARR: {definition: Yearly recurring revenue}
"""


async def request(provider: LocalProvider, method: str, **params: Any) -> Any:
    with fail_after(10):
        return await provider.request(method, params)


async def read(provider: LocalProvider, uri: str) -> Any:
    (found,) = (await request(provider, "resources/read", uri=uri))["contents"]
    assert (found["uri"], found["mimeType"]) == (uri, "application/json")
    return json.loads(found["text"])


def test_prompts_resources_and_templates_are_listed(load: Load, provide: Provide) -> None:
    loaded = load(ITEMS)
    assert loaded.problems == ()
    offered = provide(loaded).offering()
    assert offered.tools == ()
    (prompt,) = offered.prompts
    assert (prompt["name"], prompt["title"], prompt["description"]) == ("explain_table", "Explain", "Explain a table")
    assert prompt["arguments"][0] == {"name": "table", "description": "The table", "required": True}
    assert [argument["required"] for argument in prompt["arguments"]] == [True, False, False]
    assert [resource["uri"] for resource in offered.resources] == ["glossary://all"]
    assert [template["uriTemplate"] for template in offered.templates] == ["glossary://term/{name}"]


async def test_a_prompt_is_filled_in_once(load: Load, provide: Provide) -> None:
    provider = provide(load(ITEMS))
    got = await request(provider, "prompts/get", name="explain_table", arguments={"table": "{depth} {{x}}"})
    (message,) = got["messages"]
    assert message["role"] == "user"
    expected = 'Explain {depth} {{x}} in a short way. Answer as {json} like {"a": 1}.'
    assert message["content"] == {"type": "text", "text": expected}


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"name": "explain_table"}, "missing: table"),
        ({"name": "explain_table", "arguments": {"table": "x", "depth": "deep"}}, "must be one of short, long"),
        ({"name": "explain_table", "arguments": {"table": 5}}, "table: must be text"),
        ({"name": "explain_table", "arguments": {"table": "x", "tabel": "y"}}, "unknown: tabel; did you mean table?"),
        ({"name": "explain_table", "arguments": ["x"]}, "`arguments` must be an object"),
        ({"name": "explain_tabel"}, "no prompt is called 'explain_tabel'; there are: explain_table"),
        ({}, "no prompt is called 'None'"),
    ],
)
async def test_a_prompt_that_cannot_be_got_says_why(
    load: Load, provide: Provide, params: dict[str, Any], said: str
) -> None:
    with pytest.raises(UpstreamError) as caught:
        await request(provide(load(ITEMS)), "prompts/get", **params)
    assert caught.value.rpc_code == -32602
    assert said in caught.value.message


async def test_all_terms_and_each_of_them_can_be_read(load: Load, provide: Provide) -> None:
    provider = provide(load(ITEMS))
    churn = {"term": "churn", "definition": "Customers who leave in a month", "synonyms": ["attrition", "loss rate"]}
    gross = {"term": "Net/Gross", "definition": "Without and with tax"}
    listed = (await read(provider, "glossary://all"))["terms"]
    assert listed == [churn, gross, {"term": "ARR", "definition": "Yearly recurring revenue"}]
    for uri in ("churn", "CHURN", "attrition", "Loss%20Rate", "%63hurn"):
        assert await read(provider, f"glossary://term/{uri}") == churn
    assert await read(provider, "glossary://term/net%2Fgross") == gross


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("glossary://term/chrun", "did you mean: churn"),
        ("glossary://term/zzzz", "see glossary://all"),
        ("glossary://term/", "no term is called ''"),
        ("glossary://nothing", "there is glossary://all"),
        ("file:///etc/passwd", "there is glossary://all"),
    ],
)
async def test_a_term_that_is_not_there_is_answered_with_the_nearest(
    load: Load, provide: Provide, uri: str, said: str
) -> None:
    with pytest.raises(UnknownItem) as caught:
        await request(provide(load(ITEMS)), "resources/read", uri=uri)
    assert said in str(caught.value)


async def test_names_of_terms_and_choices_of_prompts_are_completed(load: Load, provide: Provide) -> None:
    provider = provide(load(ITEMS))

    async def completed(ref: dict[str, str], name: str, value: str) -> list[str]:
        argument = {"name": name, "value": value}
        return list(
            (await request(provider, "completion/complete", ref=ref, argument=argument))["completion"]["values"]
        )

    term = {"type": "ref/resource", "uri": "glossary://term/{name}"}
    assert await completed(term, "name", "") == ["churn", "Net/Gross", "ARR"]
    assert await completed(term, "name", "A") == ["ARR", "churn"]
    prompt = {"type": "ref/prompt", "name": "explain_table"}
    assert await completed(prompt, "depth", "L") == ["long"]
    assert await completed(prompt, "table", "") == []
    with pytest.raises(UpstreamError):
        await request(provider, "completion/complete", ref="x")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_client_lists_gets_reads_and_completes_them(
    load: Load, make_test_app: Callable[..., FakeApplication], mode: Any
) -> None:
    gateway = make_test_app(load(ITEMS)).gateway
    with fail_after(20):
        async with Client(SurfaceServer(gateway, Static(gateway), "1"), mode=mode) as client:
            (prompt,) = (await client.list_prompts()).prompts
            got = await client.get_prompt(prompt.name, {"table": "orders"})
            assert got.messages[0].content.text.startswith("Explain orders in a short way.")  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="missing: table") as caught:
                await client.get_prompt(prompt.name, {})
            assert caught.value.error.code == -32602
            assert "glossary://all" in [str(one.uri) for one in (await client.list_resources()).resources]
            term = await client.read_resource("glossary://term/Attrition")
            assert json.loads(term.contents[0].text)["term"] == "churn"  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="did you mean: churn"):
                await client.read_resource("glossary://term/churm")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("{type: prompt, description: d}", "it has no 'prompt'"),
        ("{type: prompt, description: d, prompt: [x]}", "'prompt' is a list, not a text"),
        ("{type: glossary}", "it has no terms"),
        ("{type: glossary, terms: [x]}", "this is a list, not a table"),
        ("{type: glossary, terms: {x: {synonyms: [y]}}}", "it has no 'definition'"),
        ("{type: glossary, terms: {x: {definition: y, synonyms: [[z]]}}}", "'synonyms' holds a list"),
        ("{type: glossary, terms: {x: }}", "this is nothing, not a table"),
        ("{type: glossary, terms: {'': y}}", "a term cannot be called ''"),
    ],
)
def test_what_cannot_be_used_is_named_and_the_rest_is_offered(load: Load, entry: str, said: str) -> None:
    loaded = load(f"good: {{type: prompt, description: d, prompt: p}}\nbad: {entry}")
    assert [prompt.name for prompt in loaded.prompts] == ["good"]
    (problem,) = loaded.problems
    assert said in str(problem)
    assert (problem.line, bool(problem.fix)) == (2, True)


def test_a_place_that_is_no_parameter_is_noted(load: Load) -> None:
    loaded = load("p: {type: prompt, description: d, prompt: 'see {x}', parameters: {y: {}}}")
    assert len(loaded.prompts) == 1
    said = "\n".join(map(str, loaded.problems))
    assert "{x} is no parameter and stays as it is" in said
    assert "its parameter 'y' stands nowhere in its text" in said
