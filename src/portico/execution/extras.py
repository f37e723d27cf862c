"""What a result has beside texts and structured content: links, `_meta`, annotations, fields that nobody knows.

All of it reaches the client, and much of it the model, so that it counts like everything else. What is too much is left
out, with a note that says what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from portico.domain.call import Result

from .previews import dumps

LETTERS_PER_TOKEN = 3
"""Letters that a token of JSON has, on average."""
SHARE = 2
"""Extras may take one part in so many of what a result may cost."""
BINARY_LETTERS = 16_000_000
"""Letters of one image, sound or file that is passed on."""

_PLAIN = frozenset({"content", "structuredContent", "isError", "resultType"})
_PLAIN_BLOCK = frozenset({"type", "text"})
_BINARY = frozenset({"data", "blob"})
_CORE = frozenset({"type", "text", "data", "mimeType", "resource"})
"""What a block keeps when its extras are left out."""


def extras_of(raw: Mapping[str, Any]) -> list[Any]:
    """Everything in a result but its texts, its structured content and its binary data; mostly nothing."""
    found, content = _besides(raw), raw.get("content", [])
    return (
        found if _is_plain(content) else [*found, *(map(_beside, content) if isinstance(content, list) else [content])]
    )


def without_excess(result: Result, tokens: int) -> Result:
    """The result with as many of its extras as have room beside what it says; a note tells what was left out."""
    room = max(tokens * LETTERS_PER_TOKEN // SHARE, 200)
    if _is_plain(result.raw.get("content", [])) and _letters(_besides(result.raw)) <= room:
        return result
    gone = Counter[str]()
    raw = dict(result.raw)
    content = raw.get("content")
    if isinstance(content, list):
        raw["content"], room = _blocks(content, room, gone)
    elif content is not None:
        raw["content"] = []
        gone["content that is no list"] += 1
    for key in [key for key in raw if key not in _PLAIN]:
        room -= (letters := _letters(raw[key]))
        if room < 0:
            room += letters
            del raw[key]
            gone[f"`{key[:60]}`"] += 1
    if not gone:
        return result
    named = [f"{what} ({count:,} times)" if count > 1 else what for what, count in gone.items()]
    more = f" and {len(named) - 10} more" if len(named) > 10 else ""
    note = f"left out of the result, which was too large: {', '.join(named[:10])}{more}"
    return replace(result, raw=raw, notes=(*result.notes, note))


def _besides(raw: Mapping[str, Any]) -> list[Any]:
    """What a result has beside its content."""
    return [] if raw.keys() <= _PLAIN else [value for key, value in raw.items() if key not in _PLAIN]


def _is_plain(content: Any) -> bool:
    """Whether content is a list of texts, as nearly always."""
    if not isinstance(content, list):
        return False
    return all(isinstance(block, dict) and block.keys() <= _PLAIN_BLOCK for block in content)


def _blocks(content: list[Any], room: int, gone: Counter[str]) -> tuple[list[Any], int]:
    """The blocks that have room, without what has none."""
    kept: list[Any] = []
    for block in content:
        if not isinstance(block, dict):
            gone["a block that is no object"] += 1
            continue
        room -= (letters := _letters(_beside(block)))
        if room < 0:
            room += letters
            core = _core(block)
            gone[_kind(block) if core is None else f"fields of a {_kind(block)} block"] += 1
            block = core
        if block is not None and _is_too_large(block):
            gone[f"the data of one block: {_kind(block)}"] += 1
            block = None
        if block is not None:
            kept.append(block)
    return kept, room


def _core(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A block with what it is about alone, where that is text or binary data; None where its fields are all it is."""
    resource = block.get("resource")
    if isinstance(resource, dict):
        short = {key: str(resource[key])[:500] for key in ("uri", "mimeType") if key in resource}
        said = {key: resource[key] for key in ("text", "blob") if isinstance(resource.get(key), str)}
        return {"type": "resource", "resource": {**short, **said}} if said else None
    if not isinstance(block.get("text"), str) and not isinstance(block.get("data"), str):
        return None
    return {key: value for key, value in block.items() if key in _CORE and isinstance(value, str)}


def _beside(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    rest = {key: value for key, value in block.items() if key not in _PLAIN_BLOCK and key not in _BINARY}
    if isinstance(inner := rest.get("resource"), dict):
        rest["resource"] = {key: value for key, value in inner.items() if key not in _PLAIN_BLOCK | _BINARY}
    return rest


def _is_too_large(block: Mapping[str, Any]) -> bool:
    inner = block.get("resource")
    given = (block.get("data"), inner.get("blob") if isinstance(inner, dict) else None)
    return any(isinstance(data, str) and len(data) > BINARY_LETTERS for data in given)


def _kind(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    return kind[:40] if isinstance(kind, str) else "unknown"


def _letters(value: Any) -> int:
    if not value:
        return 0
    try:
        return len(dumps(value))
    except (RecursionError, ValueError):
        return 1 << 40  # nested too deeply for anybody
