"""What a script sees of a tool's result, and what a caller sees of a script's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from portico.domain.call import Result
from portico.domain.script import Ran

from .outlines import read_value

LARGE = 1_000_000
"""Letters of a text that is read piece by piece: that takes longer, but holds nobody up."""
NO_RESULT = "No result returned"
HINT = "hint: end the script with result(value), as in: result(calculator.add({ a = 5, b = 3 }):await())"


def value_of(result: Result) -> Any:
    """The structured content; else the text of a single text block, read when it is JSON; else the blocks."""
    if result.structured is not None:
        return result.structured
    blocks = result.content
    only = blocks[0] if len(blocks) == 1 and isinstance(blocks[0], Mapping) else {}
    text = only.get("text") if only.get("type") == "text" else None
    return as_value(text) if isinstance(text, str) else blocks


def takes_long(result: Result) -> bool:
    """Whether so much has to be read for the value that others should not wait meanwhile."""
    return result.structured is None and len(result.text) > LARGE


def as_value(text: str) -> Any:
    """A text, or what it says where it is a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return read_value(text) if len(text) > LARGE else json.loads(text)
    except (ValueError, RecursionError):
        return text


def answer_of(ran: Ran) -> Result:
    """A script's value as a tool result: text always, structured content for an object, then what it printed."""
    text = as_text(ran.value) if ran.has_value else f"{NO_RESULT}\n{HINT}"
    blocks = [ran.value if isinstance(ran.value, str) else text]
    if ran.printed:
        cut = f"\n({ran.printed_cut:,} bytes more were printed)" if ran.printed_cut else ""
        blocks.append(f"printed:\n{ran.printed.rstrip()}{cut}")
    raw: dict[str, Any] = {"content": [{"type": "text", "text": _whole_letters(block)} for block in blocks]}
    if isinstance(ran.value, dict) and raw["content"][0]["text"] == text:  # else no message could carry it
        raw["structuredContent"] = ran.value
    return Result(raw, tuple(f"not awaited, and failed: {line}" for line in ran.unawaited))


def as_text(value: Any) -> str:
    """A value as JSON."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # integers beyond 64 bits, and halves of surrogate pairs
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _whole_letters(text: str) -> str:
    """A text without halves of surrogate pairs, which no message can carry."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
