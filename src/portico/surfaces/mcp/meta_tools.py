"""A surface's own tools: their arguments, answers and errors, `read_result` and `run_script`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from difflib import get_close_matches
from math import isfinite
from typing import Any

import mcp_types as types

from portico.domain.call import Caller, Result
from portico.domain.disclosure import FILTERS, Query
from portico.domain.foreign_text import attributed, one_line, own_block, told_apart
from portico.errors import CallError, InvalidArguments, NextCall, Refused, UpstreamError
from portico.execution.arguments import ARGUMENT_KEYS, NAME_KEYS
from portico.gateway import Gateway
from portico.rendering.cards import as_meta_tool
from portico.scripting.session import ScriptRunner

from .surface import EXAMPLE, Envelope, JsonObject

MISSING_CAPABILITY = -32021
ADDRESS_FIRST = -32042
"""The code of a server that wants an address visited before it goes on."""


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text block of ours."""
    result: dict[str, Any] = {"content": [own_block(text, marked=False)]}
    if is_error:
        result["isError"] = True
    return result


def error_text(error: CallError, spell: Callable[[NextCall], str]) -> str:
    """What failed, whether anything was sent, and the exact next call."""
    lines = [f"error {error}"]
    if error.next_call is not None:
        lines.append(f"next: {spell(error.next_call)}")
    return "\n".join(lines)


def error_result(error: CallError, spell: Callable[[NextCall], str], notes: Sequence[str] = ()) -> dict[str, Any]:
    """An error as a tool result, never as a protocol error."""
    return text_result("\n".join([error_text(error, spell), *_lines(notes)]), is_error=True)


def must_stay_protocol_error(error: CallError, envelope: Envelope) -> bool:
    """Whether a server's own protocol error is part of a conversation with the client, not an answer to the model.

    A client reads its missing capability, the address to visit first, or a refused answer from the error's code.
    """
    if not isinstance(error, UpstreamError):
        return False
    if error.rpc_code == ADDRESS_FIRST:
        return _takes_addresses(envelope)
    return error.rpc_code == MISSING_CAPABILITY or envelope.answers is not None


def _takes_addresses(envelope: Envelope) -> bool:
    declared = envelope.meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    elicitation = declared.get("elicitation") if isinstance(declared, Mapping) else None
    return isinstance(elicitation, Mapping) and "url" in elicitation


def with_notes(result: Result, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A tool's own result, unchanged but for one marked block at the end when something had to be repaired."""
    lines = _lines([*notes, *result.notes])
    content = [*result.content, own_block("\n".join(lines))] if lines else result.content
    return attributed(result.raw, content)


def _lines(notes: Sequence[str]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(notes)]


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


READ = "read_result"
_ID = ("id", "handle", "result_id", "result")
"""Where models write the handle."""


async def read_result(gateway: Gateway, caller: Caller, arguments: JsonObject) -> dict[str, Any]:
    """The part in a block of its own, so that JSON stays JSON, and what it is and the way on in another."""
    id = next((str(arguments[name]) for name in _ID if arguments.get(name)), "")
    given = {name: str(arguments[name]) for name in ("cursor", "grep", "path") if arguments.get(name) is not None}
    try:
        answer = await gateway.read_result(caller, id, **given)
    except CallError as error:
        return error_result(error, as_meta_tool)
    if not answer.text:
        return text_result(answer.next)
    return {"content": told_apart([{"type": "text", "text": answer.text}, own_block(answer.next)])}


SCRIPT_TOOLS = frozenset({"run_script", "execute", "inspect-tool-response"})
"""The tools of all surfaces that run a script."""
SCRIPT_KEYS = ("script", "code", "source", "lua")
"""Where models write the script."""
OFF = "scripts are switched off here; call tools one by one, or set `scripts: {enabled: true}` in the config"


async def run_script(
    scripts: ScriptRunner | None, caller: Caller, tool: str, arguments: JsonObject, spell: Callable[[NextCall], str]
) -> dict[str, Any]:
    """Run the script in the arguments of one of a surface's own tools; an error is a result too."""
    try:
        source, seconds = _source(tool, arguments), _seconds(arguments.get("timeout_s"))
        return with_notes(await switched_on(scripts, tool).run(caller, source, seconds=seconds))
    except CallError as error:
        return error_result(error, spell)


def switched_on(scripts: ScriptRunner | None, tool: str) -> ScriptRunner:
    """What runs scripts.

    Raises:
        Refused: the config has switched them off.
    """
    if scripts is None:
        raise Refused(tool, details=(OFF,))
    return scripts


def _source(tool: str, arguments: JsonObject) -> str:
    found = next((arguments[key] for key in SCRIPT_KEYS if arguments.get(key)), None)
    if not isinstance(found, str):
        raise InvalidArguments(
            tool, details=("missing: script (string)",), next_call=NextCall("run", {"script": EXAMPLE})
        )
    return found


def _seconds(value: object) -> float | None:
    """The seconds that a client asks for; what is no number is as good as nothing."""
    try:
        found = float(str(value)) if value is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) and found > 0 else None
