"""One MCP surface: the tools that it lists, and how its own tools read arguments and write answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import mcp_types as types

from portico.catalog.view import CatalogView
from portico.domain.call import Call, Caller, OnProgress, Result
from portico.domain.search_answers import FILTERS, Query
from portico.domain.suggestions import nearest_names
from portico.errors import CallError, InvalidArguments, NextCall, Refused, UpstreamError
from portico.execution.arguments import ARGUMENT_KEYS, NAME_KEYS, unwrap
from portico.gateway import Gateway
from portico.rendering.cards import as_meta_tool
from portico.results.own_blocks import attributed, own_block, told_apart
from portico.scripting.script_session import ScriptRunner
from portico.text.untrusted import one_line

from .instructions import EXAMPLE

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The parts of a call beside its arguments."""

    meta: JsonObject = field(default_factory=dict)
    on_progress: OnProgress | None = None
    answers: JsonObject | None = None

    def around(self, tool: str, arguments: JsonObject, *, needs_structured: bool = False) -> Call:
        """The call with all of it."""
        return Call(
            tool=tool,
            arguments=arguments,
            meta=self.meta,
            on_progress=self.on_progress,
            answers=self.answers,
            needs_structured=needs_structured,
        )


def own_meta(meta: object) -> dict[str, Any]:
    """The caller's own part of a request's `_meta`; what belongs to its connection with us stays here."""
    if not isinstance(meta, Mapping):
        return {}
    return {k: v for k, v in meta.items() if k != "progressToken" and not k.startswith("io.modelcontextprotocol/")}


MetaTool = Callable[[Caller, JsonObject, Envelope], Awaitable[JsonObject]]
"""Caller, arguments and what travels beside them -> a tool result."""


@dataclass(slots=True)
class Surface(ABC):
    """One way in over MCP; unless it says otherwise, it lists tools of its own and then the pins."""

    gateway: Gateway

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in paths and options."""

    @property
    def own(self) -> Sequence[JsonObject]:
        """The definitions of the surface's own tools."""
        return ()

    @abstractmethod
    def instructions(self, caller: Caller) -> str:
        """The text that a client reads first; its first 512 characters stand alone."""

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The definitions that are listed, in a fixed order; waits for the first start of a pin's server."""
        await self.gateway.wait_for_pins()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same for the snapshot of this moment, without waiting for servers that have not been asked yet."""
        return [*self.own, *(tool.definition for tool in self.gateway.view(caller).pinned)]

    def meta_tool(self, name: str) -> MetaTool | None:
        """The surface's own tool of that name; all other names are tools of the catalog."""
        return None

    def schema_of(self, name: str) -> JsonObject | None:
        """The input schema of one of the surface's own tools."""
        return next((definition["inputSchema"] for definition in self.own if definition["name"] == name), None)

    @abstractmethod
    def spell(self, call: NextCall) -> str:
        """The next call in the words of this surface."""


MISSING_CAPABILITY = -32021
OUTCOME = "portico/outcome"
"""The key in the `_meta` of a result that says what became of a call, for programs."""
ADDRESS_FIRST = -32042
"""The code of a server that wants an address visited before it goes on."""


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text block of ours."""
    return {"content": [own_block(text, marked=False)], **({"isError": True} if is_error else {})}


def error_text(error: CallError, spell: Callable[[NextCall], str]) -> str:
    """The error, whether anything was sent, and the exact next call."""
    return f"error {error}" + (f"\nnext: {spell(error.next_call)}" if error.next_call is not None else "")


def error_result(error: CallError, spell: Callable[[NextCall], str], notes: Sequence[str] = ()) -> dict[str, Any]:
    """An error as a tool result, never as a protocol error."""
    result = text_result("\n".join([error_text(error, spell), *_note_lines(notes)]), is_error=True)
    # Not as structured content, which some clients check against the schema of the tool that was called.
    return {**result, "_meta": {OUTCOME: error.outcome}} if error.outcome else result


def must_stay_protocol_error(error: CallError, envelope: Envelope) -> bool:
    """Whether a server's own protocol error is part of a conversation with the client, not an answer to the model.

    A client reads its missing capability, the address to visit first, or a refused answer from the error's code.
    """
    if not isinstance(error, UpstreamError):
        return False
    if error.rpc_code == ADDRESS_FIRST:
        declared = envelope.meta.get(types.CLIENT_CAPABILITIES_META_KEY)
        elicitation = declared.get("elicitation") if isinstance(declared, Mapping) else None
        return isinstance(elicitation, Mapping) and "url" in elicitation
    return error.rpc_code == MISSING_CAPABILITY or envelope.answers is not None


def with_notes(result: Result, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A tool's own result, unchanged but for one marked block at the end when something had to be repaired."""
    lines = _note_lines([*notes, *result.notes])
    content = [*result.content, own_block("\n".join(lines))] if lines else result.content
    return attributed(result.raw, content)


def _note_lines(notes: Sequence[str]) -> list[str]:
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
"""Arguments that are understood beside those that are listed, by tool."""
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
    note = _note_on(arguments.keys() - known, known, is_filtered=name in _FILTERED)
    return {**result, "content": [*result.get("content", ()), own_block(f"note: {note}")]} if note else result


def unread_beside(raw: JsonObject, own: Callable[[], Mapping[str, Any] | None]) -> list[str]:
    """The note on what stands beside the arguments of a call and is none of them, nor one of the tool's own."""
    if raw.keys() <= _CALL_KEYS or not any(raw.get(key) for key in ARGUMENT_KEYS):
        return []  # in the latter case they are taken as the arguments
    note = _note_on(raw.keys() - _CALL_KEYS - (own() or {}).keys(), frozenset({"name", "arguments"}))
    return [note] if note else []


def _note_on(strange: Set[str], known: Set[str], *, is_filtered: bool = False) -> str:
    """The note on arguments that are not known; empty where all are."""
    if not strange:
        return ""
    named = []
    for name in [name[:LENGTH] for name in sorted(map(str, strange))[:NAMED]]:
        near = nearest_names(name, sorted(known), 1)
        named.append(f"{one_line(name)} (did you mean {near[0]}?)" if near else one_line(name))
    more = f" and {len(strange) - NAMED} more" if len(strange) > NAMED else ""
    filters = f"; filters are {', '.join(FILTERS)}" if is_filtered else ""
    return f"unknown and not used: {', '.join(named)}{more}{filters}"


def read_filters(arguments: JsonObject) -> Query:
    """The filters of a search, however loosely they were written."""
    read_only = arguments.get("read_only")
    return Query(
        server=as_words(arguments.get("server")),
        category=as_words(arguments.get("category")),
        tag=as_words(arguments.get("tag")),
        source=as_words(arguments.get("source")),
        read_only=read_only is True or str(read_only).casefold() in ("true", "1", "yes"),
        max_latency_ms=_number(arguments.get("max_latency_ms")),
        min_success=_number(arguments.get("min_success")),
    )


def as_words(value: object) -> str:
    """Text, however loosely it was written."""
    if isinstance(value, list):
        return ", ".join(str(part) for part in value)
    return "" if value is None else str(value)


def _number(value: object) -> float:
    """A number, however loosely it was written; what is none is 0."""
    try:
        found = float(str(value))
    except ValueError:
        return 0.0
    return found if isfinite(found) else 0.0


READ = "read_result"
_ID = ("id", "handle", "result_id", "result")
"""Arguments in which models write the handle."""


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


async def call_tool(
    gateway: Gateway,
    caller: Caller,
    arguments: JsonObject,
    envelope: Envelope,
    spell: Callable[[NextCall], str],
    *,
    tool: str,
    key: str,
    example: str,
    notes_on: Callable[[CatalogView, str], list[str]] = lambda view, name: [],
) -> JsonObject:
    """Call a tool through one of a surface's own, in whose arguments the name stands under `key`.

    Raises:
        CallError: an error that is part of a conversation with the client, not an answer to the model.
    """
    # What is malformed can only be told with the tool's own parameters.
    view = await gateway.wait_for_tool(caller, str(arguments.get(key)))
    request = unwrap(arguments, lambda name: gateway.parameters_of(view, name), named=key)
    if not request.name:
        call = NextCall("call", {"name": example, "arguments": {}})
        return error_result(InvalidArguments(tool, details=(f"missing: {key} (string)",), next_call=call), spell)
    unread = unread_beside(arguments, lambda: gateway.parameters_of(view, request.name))
    notes = [*request.notes, *notes_on(view, request.name), *unread]
    try:
        return with_notes(await gateway.call(view, envelope.around(request.name, request.arguments)), notes)
    except CallError as error:
        if must_stay_protocol_error(error, envelope):
            raise
        return error_result(error, spell, notes)


SCRIPT_TOOLS = frozenset({"run_script", "execute", "inspect-tool-response"})
"""The tools of all surfaces that run a script."""
SCRIPT_KEYS = ("script", "code", "source", "lua")
"""Arguments in which models write the script."""
OFF = "scripts are switched off here; call tools one by one, or set `scripts: {enabled: true}` in the config"


async def run_script(
    scripts: ScriptRunner | None, caller: Caller, tool: str, arguments: JsonObject, spell: Callable[[NextCall], str]
) -> dict[str, Any]:
    """Run the script in the arguments of one of a surface's own tools; an error is a result too."""
    try:
        source = next((arguments[key] for key in SCRIPT_KEYS if arguments.get(key)), None)
        if not isinstance(source, str):
            next_call = NextCall("run", {"script": EXAMPLE})
            raise InvalidArguments(tool, details=("missing: script (string)",), next_call=next_call)
        seconds = _number(arguments.get("timeout_s"))
        return with_notes(
            await switched_on(scripts, tool).run(caller, source, seconds=seconds if seconds > 0 else None)
        )
    except CallError as error:
        return error_result(error, spell)


def switched_on(scripts: ScriptRunner | None, tool: str) -> ScriptRunner:
    """The runner of scripts.

    Raises:
        Refused: the config has switched them off.
    """
    if scripts is None:
        raise Refused(tool, details=(OFF,))
    return scripts
