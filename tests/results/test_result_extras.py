"""Everything in a result counts: links, `_meta`, annotations and fields that nobody knows."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from portico.domain.call import Call, Result
from portico.rendering.budget import TokenEstimate
from portico.results.kept import Results
from portico.results.truncate import BINARY_LETTERS, Truncator
from portico.testing import AGENT, tool

LIMIT = 500
COUNTER = TokenEstimate()
TEXT = {"type": "text", "text": "done"}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def shaped(raw: dict[str, Any], **options: Any) -> Result:
    truncator = Truncator(counter=COUNTER, results=Results(), servers={"fake": LIMIT})
    checked = tool({"name": "t", "description": "", "inputSchema": {"type": "object"}})
    return await truncator.truncate(AGENT, Call(tool="fake.t", arguments={}, **options), checked, Result(raw))


LINKS = [{"type": "resource_link", "uri": f"a:b/{n}", "name": "x"} for n in range(9_000)]
RESOURCE = {"uri": "a:b", "text": "x", "_meta": {"y": "word " * 50_000}}
LARGE: dict[str, dict[str, Any]] = {
    "meta": {"content": [TEXT], "_meta": {"x": "word " * 50_000}},
    "an unknown field": {"content": [TEXT], "surprise": ["word"] * 50_000},
    "many unknown fields": {"content": [TEXT], **{f"field{n}": "word " * 20 for n in range(3_000)}},
    "annotations": {"content": [{**TEXT, "annotations": {"x": "word " * 50_000}}]},
    "the meta of a block": {"content": [{**TEXT, "_meta": {"x": "word " * 50_000}}]},
    "one large link": {"content": [TEXT, {"type": "resource_link", "uri": "a:b", "description": "word " * 50_000}]},
    "many links": {"content": [TEXT, *LINKS]},
    "an unknown kind of block": {"content": [TEXT, {"type": "novel", "words": "word " * 50_000}]},
    "the fields of a resource": {
        "content": [
            TEXT,
            {"type": "resource", "resource": {"uri": "a:b", "text": "x", "_meta": {"y": "word " * 50_000}}},
        ]
    },
    "blocks that are none": {"content": [TEXT, *(["word"] * 50_000)]},
    "content that is no list": {"content": {"x": "word " * 50_000}},
    "deep meta": {"content": [TEXT], "_meta": {"x": deep(100_000)}},
    "deep annotations": {"content": [{**TEXT, "annotations": deep(100_000)}]},
}


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("kind", LARGE)
async def test_what_is_too_much_is_left_out_with_a_note(kind: str) -> None:
    result = await shaped(LARGE[kind])
    text = orjson.dumps(result.raw).decode()
    assert COUNTER.count(text) <= 2 * LIMIT
    assert any(note.startswith("left out of the result") for note in result.notes)
    assert "done" in text or kind == "content that is no list"
    assert len(result.notes[-1]) < 1_000


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize(
    "raw",
    [
        {"content": [TEXT], "_meta": {"trace": "abc"}},
        {"content": [TEXT, {"type": "resource_link", "uri": "a:b", "name": "x"}]},
        {"content": [{**TEXT, "annotations": {"audience": ["user"]}}], "structuredContent": {"a": 1}, "extra": True},
        {"content": [{"type": "image", "data": "iVBO" * 100_000, "mimeType": "image/png"}]},
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "iVBO" * 100_000}}]},
    ],
)
async def test_what_fits_stays_as_it_is(raw: dict[str, Any]) -> None:
    result = await shaped(raw)
    assert result.raw is raw
    assert result.notes == ()


async def test_an_image_that_no_client_would_take_is_left_out() -> None:
    result = await shaped({"content": [TEXT, {"type": "image", "data": "A" * (BINARY_LETTERS + 1), "mimeType": "x/y"}]})
    assert result.content == [TEXT]
    assert "the data of one block: image" in result.notes[0]


async def test_a_script_sees_everything() -> None:
    raw = LARGE["meta"]
    assert (await shaped(raw, whole=True)).raw is raw


async def test_as_many_links_as_fit_are_kept_in_their_order() -> None:
    result = await shaped(LARGE["many links"])
    links = [block["uri"] for block in result.content if block["type"] == "resource_link"]
    assert links[:3] == ["a:b/0", "a:b/1", "a:b/2"]
    assert "resource_link (8," in result.notes[0]
