"""Arguments of a surface's own tools: filters that are understood unlisted, and what is unknown, which is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from difflib import get_close_matches
from math import isfinite
from typing import Any

from portico.domain.provenance import own_block
from portico.domain.query import FILTERS, Query
from portico.execution.leniency import ARGUMENT_KEYS, NAME_KEYS
from portico.fencing import one_line

from .surface import JsonObject

NAMED, LENGTH = 5, 40
"""Arguments that are named, and characters of each."""
_SPARE = {
    "search_tools": frozenset({"q", *FILTERS}),
    "search_tool": frozenset({"q", *FILTERS}),
    "describe_tools": frozenset({"name", "tools", "tool"}),
    "read_result": frozenset({"handle", "result_id", "result"}),
    "run_script": frozenset({"code", "source", "lua"}),
    "execute": frozenset({"code", "source", "lua", "timeout_s"}),
    "tool_schema": frozenset({"name", "tool_name"}),
}
"""What is understood beside what is listed, by tool."""
_SERVERS = frozenset({"luaServerName", "serverName", "server", "luaToolName", "toolName", "tool", "name"})
_FILTERED = frozenset({"search_tools", "search_tool"})
_CALLING = frozenset({"call_tool", "execute_tool"})
_CALL_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS})


def with_unread(
    name: str, schema_of: Callable[[str], JsonObject | None], arguments: JsonObject, result: JsonObject
) -> JsonObject:
    """The result of a surface's own tool, with a note on arguments that it does not know."""
    if not arguments or name in _CALLING:
        return result
    listed = frozenset((schema_of(name) or {}).get("properties", {}))
    if arguments.keys() <= listed:
        return result
    known = listed | _SPARE.get(name, frozenset()) | (_SERVERS if "-" in name else frozenset())
    return _noted(result, note_on(arguments.keys() - known, known, is_filtered=name in _FILTERED))


def unread_beside(raw: JsonObject, own: Callable[[], Mapping[str, Any] | None]) -> list[str]:
    """The note on what stands beside the arguments of a call and is none of them, nor one of the tool's own."""
    if raw.keys() <= _CALL_KEYS or not any(raw.get(key) for key in ARGUMENT_KEYS):
        return []  # in the latter case they are taken as the arguments
    strange = raw.keys() - _CALL_KEYS - (own() or {}).keys()
    note = note_on(strange, frozenset({"name", "arguments"}))
    return [note] if note else []


def read_filters(arguments: JsonObject) -> Query:
    """The filters of a search, however loosely they were written."""
    return Query(
        server=as_words(arguments.get("server")),
        category=as_words(arguments.get("category")),
        tag=as_words(arguments.get("tag")),
        source=as_words(arguments.get("source")),
        read_only=_switch(arguments.get("read_only")),
        max_latency_ms=_number(arguments.get("max_latency_ms")),
        min_success=_number(arguments.get("min_success")),
    )


def as_words(value: object) -> str:
    """Text, however loosely it was written."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return value if isinstance(value, str) else str(value)


def note_on(strange: Set[str], known: Set[str], *, is_filtered: bool = False) -> str:
    """What is said of arguments that are not known; nothing where all are."""
    if not strange:
        return ""
    told = ", ".join(_told(name, known) for name in sorted(map(str, strange))[:NAMED])
    more = f" and {len(strange) - NAMED} more" if len(strange) > NAMED else ""
    filters = f"; filters are {', '.join(FILTERS)}" if is_filtered else ""
    return f"unknown and not used: {told}{more}{filters}"


def _told(name: str, known: Set[str]) -> str:
    near = get_close_matches(name[:LENGTH].casefold(), sorted(known), n=1, cutoff=0.6)
    shown = one_line(name[:LENGTH])
    return f"{shown} (did you mean {near[0]}?)" if near else shown


def _noted(result: JsonObject, note: str) -> JsonObject:
    return {**result, "content": [*result.get("content", ()), own_block(f"note: {note}")]} if note else result


def _switch(value: object) -> bool:
    return value is True or str(value).casefold() in ("true", "1", "yes")


def _number(value: object) -> float:
    try:
        found = float(str(value)) if value is not None and not isinstance(value, bool) else 0.0
    except ValueError:
        return 0.0
    return found if isfinite(found) else 0.0
