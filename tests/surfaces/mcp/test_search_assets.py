"""`search_tool` finds prompts, resources and documents beside tools, and says how to read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.search.test_item_search import house_with, offering

from portico.domain.call import Caller
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import Search

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("S0-P1")]


async def ask(name: str, **arguments: Any) -> dict[str, Any]:
    surface = Search(house_with(offering()).gateway)
    meta: Any = surface.meta_tool(name)
    found: dict[str, Any] = await meta(Caller(), arguments, Envelope())
    return found


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("review a change of code", "prompt"),
        ("holidays and sick leave", "resource"),
        ("customer number before an invoice", "document"),
        ("columns of a table", "template"),
    ],
)
async def test_assets_are_found_by_words_and_can_be_read(query: str, kind: str):
    answer = json.loads((await ask("search_tool", query=query))["content"][0]["text"])
    assert answer["match_type"] == "approximate"
    assert kind in [asset["kind"] for asset in answer["assets"]]
    assert answer["assets"][0]["read"]["tool_name"] in ("read_resource", "get_prompt")


async def test_an_asset_is_told_whole_by_its_name():
    answer = json.loads((await ask("search_tool", query="docs://handbook"))["content"][0]["text"])
    assert answer["match_type"] == "exact"
    assert answer["asset"]["kind"] == "resource"
    assert "sick leave" in answer["asset"]["full_documentation"]
    read = await ask("execute_tool", **answer["asset"]["read"])
    assert "resources/read" not in str(read.get("isError"))


async def test_what_no_asset_answers_has_no_such_field():
    answer = json.loads((await ask("search_tool", query="zzqx"))["content"][0]["text"])
    assert "assets" not in answer
