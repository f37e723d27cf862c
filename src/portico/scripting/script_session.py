"""Runs agents' scripts: what one script can reach for its caller, what it has done, and the record of its run."""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from os import urandom
from time import perf_counter, time
from typing import Any

import anyio.to_thread
from anyio.abc import TaskGroup

from portico.catalog.naming import LUA_KEYWORDS
from portico.domain.call import Call, Caller, Invocation, Outcome, Ran, Result, Sandbox, Script, ScriptLimits
from portico.domain.journal_entries import Look
from portico.domain.search_answers import AnswerSize, Query
from portico.domain.tool import Tool
from portico.errors import (
    CallError,
    InvalidArguments,
    ScriptError,
    Sent,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.execution.executor import FairLimiter, outcome_of
from portico.gateway import SEARCH_CARDS_LIMIT, Gateway
from portico.rendering.cards import example_arguments, signature
from portico.results.preview import read_value
from portico.results.truncate import estimate_tokens

from .engine import LuaEngine
from .hints import QUESTIONS, hints
from .protocol import dump_json

SPELLED = "script"  # the name of a run in the journal, where a call has its tool's name
HINTS = 3  # hints that an error gives
CALLS_NAMED = 20  # calls that an error names
DESCRIBED = 50  # tools that one question describes
ERROR_CHARACTERS = 2_000  # of a tool's own error that a script is told
LARGE = 1_000_000  # letters of a text that is read piece by piece: that takes longer, but holds nobody up
MISSING_CAPABILITY = -32021
ASKS = "it asks its client something, which a script cannot answer: call it on its own, outside of a script"
FAULT = "its server failed; `portico doctor` tells the operator more"
NO_RESULT = (
    "No result returned\n"
    "hint: end the script with result(value), as in: result(calculator.add({ a = 5, b = 3 }):await())"
)
SENT, DONE, FAILED = "sent, outcome unknown", "done", "failed"

_INSIDE = re.compile(r"""(?:^|[\s'"(=:])(?:~?/|[A-Za-z]:\\)[\w.]|://|\b\d+(?:\.\d+){3}\b|\blocalhost\b|\bstderr\b""")
"""Signs of where and how the gateway runs: paths, addresses, and what a process wrote for its operator."""


@dataclass(slots=True, kw_only=True)
class ScriptRunner:
    """Runs scripts for callers, each once, and records every run."""

    gateway: Gateway
    engine: LuaEngine
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    """The limits of a run; `seconds` unless the caller asks for other ones."""
    max_seconds: float = 120.0
    """The most seconds that a caller may ask for."""
    limiter: FairLimiter = field(default_factory=lambda: FairLimiter(8, queue=32))
    """Whose script runs next."""
    _sandbox: Sandbox | None = None
    _tasks: TaskGroup | None = None
    _is_examining: bool = False

    async def run(
        self,
        caller: Caller,
        source: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = None,
        whole: bool = False,
    ) -> Result:
        """Run a script to its end, and return its value as a tool result; it fits the caller unless `whole`.

        Raises:
            ScriptError: it did not come to its end; the calls that it had made by then are told.
        """
        at, started = time(), perf_counter()
        await self.gateway.wait_until_ready()
        session = self._open_session(caller)
        asked = self.limits.seconds if seconds is None or isnan(seconds) else seconds
        limits = replace(self.limits, seconds=min(max(asked, 0.0), self.max_seconds))
        script = Script(source=source, arguments=arguments or {}, limits=limits)
        result: Result | None = None
        outcome, code = Outcome.FAILED, ""
        try:
            async with self.limiter.turn(caller.client, "the script", seconds=limits.seconds):
                result = answer_of(await self.engine.run(script, session))
            result = await self.gateway.truncate(caller, Call(tool=SPELLED, arguments={}, whole=whole), result)
            outcome = Outcome.DONE
        except CallError as error:
            outcome, code = outcome_of(error), error.code
            if isinstance(error, ScriptError):
                session.explain(error, source)
            raise
        except CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            entry = Invocation(
                tool=None,
                spelled=SPELLED,
                caller=caller.name,
                surface=caller.surface,
                outcome=outcome,
                seconds=perf_counter() - started,
                code=code,
                at=at,
                tokens_in=estimate_tokens(source, self.gateway.counter),
                tokens_out=estimate_tokens(result.text, self.gateway.counter) if result else 0,
                parent=session.id,
            )
            note = await self.gateway.executor.record_call(entry)
        return replace(result, notes=(*result.notes, note)) if note else result

    @property
    def state(self) -> str:
        """The state of the sandbox, as far as it is known; never waits."""
        return self._sandbox.state if self._sandbox is not None else "not examined yet"

    @property
    def is_degraded(self) -> bool:
        """Whether scripts are known to be confined by less than we want."""
        return self._sandbox is not None and self._sandbox.is_degraded

    async def examine(self) -> Sandbox:
        """Examine the sandbox; starts what is needed to know it."""
        self._sandbox = await self.engine.sandbox()
        return self._sandbox

    def watch(self, tasks: TaskGroup) -> None:
        """Let examinations run in the background of this group."""
        self._tasks = tasks

    def examine_soon(self) -> None:
        """Begin to find out, once; does not wait."""
        if self._tasks is not None and not self._is_examining:
            self._is_examining = True
            self._tasks.start_soon(self.examine)

    async def aclose(self) -> None:
        """Stop all scripts and their processes."""
        await self.engine.aclose()

    def _open_session(self, caller: Caller) -> ScriptSession:
        view = self.gateway.view(caller)
        servers = tuple(
            server.identifier for name, server in view.snapshot.servers.items() if name in view.facets.servers
        )
        return ScriptSession(gateway=self.gateway, caller=caller, id=f"script-{urandom(8).hex()}", servers=servers)


@dataclass(slots=True)
class CallRecord:
    """A call that a script has made: the tool, what it does to the world, and how it ended."""

    handle: str
    effect: str
    outcome: str = SENT

    def __str__(self) -> str:
        return f"{self.handle} [{self.effect}] {self.outcome}"


@dataclass(slots=True, kw_only=True)
class ScriptSession:
    """Answers the calls of one script through the gateway, as its caller and as nobody else, and remembers them."""

    gateway: Gateway
    caller: Caller
    id: str
    """The parent of every call in the journal."""
    servers: Sequence[str] = ()
    calls: list[CallRecord] = field(default_factory=list)

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Call a tool through the one executor; what it returned is the value, what it refused is an error.

        Raises:
            CallError: no such tool for this caller, arguments that do not fit, or a tool that failed.
        """
        spelling = f"{server}.{tool}"
        given = {} if arguments is None or arguments == [] else arguments  # an empty table may be either
        if not isinstance(given, Mapping):
            wanted = "one table of named arguments, as in: server.tool({ name = value })"
            raise InvalidArguments(spelling, details=(wanted,))
        view = await self.gateway.wait_for_tool(self.caller, spelling)
        known = view.find(spelling)
        record = CallRecord(known.handle, str(known.effect)) if known else CallRecord(spelling, "write")
        self.calls.append(record)
        try:
            call = Call(tool=spelling, arguments=given, parent=self.id, whole=True)
            value = await _value_of(record.handle, await self.gateway.call(view, call))
        except CallError as error:
            _hide_machine(error)
            record.outcome = SENT if error.sent is Sent.UNKNOWN else FAILED
            if error.sent is Sent.NOTHING:
                self.calls.remove(record)
            if isinstance(error, UpstreamError) and error.rpc_code == MISSING_CAPABILITY:
                error.add(ASKS)
            raise
        record.outcome = DONE
        return value

    async def ask(self, question: str, arguments: Any) -> Any:
        """Answer a question of the script's global `_gateway`.

        Raises:
            CallError: there is no such question, or it has no answer.
        """
        if question not in QUESTIONS:
            raise InvalidArguments(f"_gateway.{question}", details=(f"there is: {', '.join(sorted(QUESTIONS))}",))
        return await getattr(self, f"_{question}")(arguments)

    def explain(self, error: ScriptError, source: str) -> None:
        """Add to an error what had been done by then, and what the author may have meant."""
        is_unknown = any(call.outcome == SENT for call in self.calls)
        error.sent = Sent.UNKNOWN if is_unknown else Sent.ANSWERED if self.calls else Sent.NOTHING
        for hint in hints(source, error.reason, self.servers)[:HINTS]:
            error.add(f"hint: {hint}")
        counted = Counter(map(str, self.calls))  # in the order in which they were made
        lines = [text if count == 1 else f"{text} ({count} times)" for text, count in counted.items()]
        more = [f"and {len(lines) - CALLS_NAMED} more"] if len(lines) > CALLS_NAMED else []
        if lines:
            error.add("made before it failed: " + "; ".join([*lines[:CALLS_NAMED], *more]))

    async def _search(self, asked: Any) -> list[dict[str, Any]]:
        given = _named(asked, "query")
        limit = given.get("limit")
        query = Query(
            text=str(given.get("query") or ""),
            server=str(given.get("server") or ""),
            category=str(given.get("category") or ""),
            limit=max(1, min(SEARCH_CARDS_LIMIT, int(limit))) if isinstance(limit, int | float) else 0,
        )
        await self.gateway.prefetch_embedding(query.text)
        hits = self.gateway.search_hits(self.caller, query, nearest=False).hits
        return [
            {
                **_place(hit.tool),
                "effect": str(hit.tool.effect),
                "signature": signature(hit.tool),
                **({"also": list(hit.also)} if hit.copies else {}),
            }
            for hit in hits
        ]

    async def _describe(self, asked: Any) -> Any:
        given = _named(asked, "names").get("names")
        names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        if not 0 < len(names) <= DESCRIBED or not all(isinstance(name, str) for name in names):
            wanted = f'a name, or a list of up to {DESCRIBED}, as in: _gateway.describe("server.tool"):await()'
            raise InvalidArguments("_gateway.describe", details=(wanted,))
        since, view = perf_counter(), self.gateway.view(self.caller)
        tools = [view.tool(name) for name in names]
        answer = AnswerSize(shown=len(tools), total=len(names))
        self.gateway.record_lookup(view, Look.DESCRIBE, " ".join(names), answer, since=since)
        cards = [_card(tool) for tool in tools]
        return cards[0] if isinstance(given, str) else cards

    async def _read_result(self, asked: Any) -> Any:
        named = _named(asked, "id")
        given = {key: str(named[key]) for key in ("id", "cursor", "grep", "path") if named.get(key) is not None}
        if not given.get("id"):
            wanted = 'the id of a result, as in: _gateway.read_result("r_..."):await()'
            raise InvalidArguments("_gateway.read_result", details=(wanted,))
        answer = await self.gateway.read_result(self.caller, **given)
        return {"part": as_value(answer.text), "next": answer.next}

    async def _list_resources(self, asked: Any) -> list[dict[str, Any]]:
        wanted = _named(asked, "server").get("server")
        snapshot = self.gateway.snapshot
        rows = [(snapshot.servers[item.server].identifier, item) for item in self.gateway.items.resources]
        return [{**item.definition, "server": server} for server, item in rows if wanted in (None, server, item.server)]

    async def _read_resource(self, asked: Any) -> Any:
        uri = _named(asked, "uri").get("uri")
        if not isinstance(uri, str) or not uri:
            wanted = 'its URI, as in: _gateway.read_resource("file:///notes.txt"):await()'
            raise InvalidArguments("_gateway.read_resource", details=(wanted,))
        item = self.gateway.item_search.resource(self.gateway.snapshot, uri)
        answer = await self.gateway.forward(item, "resources/read", {"uri": item.original}, self.caller)
        contents = answer.get("contents")
        only = contents[0] if isinstance(contents, list) and len(contents) == 1 else {}
        text = only.get("text") if isinstance(only, Mapping) else None
        return as_value(text) if isinstance(text, str) else contents


def as_value(text: str) -> Any:
    """A text, or what it says where it is a JSON object or array."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return read_value(text) if len(text) > LARGE else json.loads(text)
    except (ValueError, RecursionError):
        return text


def as_text(value: Any) -> str:
    """A value as JSON."""
    return dump_json(value).decode("utf-8", "surrogatepass")


def answer_of(ran: Ran) -> Result:
    """A script's value as a tool result: text always, structured content for an object, then what it printed."""
    text = as_text(ran.value) if ran.has_value else NO_RESULT
    blocks = [ran.value if isinstance(ran.value, str) else text]
    if ran.printed:
        cut = f"\n({ran.printed_cut:,} bytes more were printed)" if ran.printed_cut else ""
        blocks.append(f"printed:\n{ran.printed.rstrip()}{cut}")
    # No message can carry halves of surrogate pairs.
    sendable = [block.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for block in blocks]
    raw: dict[str, Any] = {"content": [{"type": "text", "text": block} for block in sendable]}
    if isinstance(ran.value, dict) and sendable[0] == text:
        raw["structuredContent"] = ran.value
    return Result(raw, tuple(f"not awaited, and failed: {line}" for line in ran.unawaited))


async def _value_of(handle: str, result: Result) -> Any:
    """The value of a result for a script: structured content, else one text, read when it is JSON, else the blocks."""
    if result.raw.get("resultType") == "input_required":
        raise CallError(handle, details=(ASKS,), sent=Sent.ANSWERED)
    if result.is_error:
        reason = result.text[:ERROR_CHARACTERS] or "the tool failed"
        raise CallError(handle, details=(reason,), sent=Sent.ANSWERED)
    if result.structured is not None:
        return result.structured
    only = result.content[0] if len(result.content) == 1 else {}
    text = only.get("text") if isinstance(only, Mapping) and only.get("type") == "text" else None
    if not isinstance(text, str):
        return result.content
    return await anyio.to_thread.run_sync(as_value, text) if len(text) > LARGE else as_value(text)


def _hide_machine(error: CallError) -> None:
    """Tell a script that a server has failed, and nothing of the machine that it runs on."""
    if isinstance(error, UpstreamGone | UpstreamTimeout):
        shown = tuple(line for line in error.details if not _INSIDE.search(line))
        error.details = shown if len(shown) == len(error.details) else (*shown, FAULT)


def _named(asked: Any, name: str) -> Mapping[str, Any]:
    """The parameters of a question: a table of them, or the first one alone."""
    if isinstance(asked, Mapping):
        return asked
    return {name: asked} if asked not in (None, []) else {}


def _place(tool: Tool) -> dict[str, Any]:
    return {"handle": tool.handle, "server": tool.handle.partition(".")[0], "tool": lua_name(tool)}


def _card(tool: Tool) -> dict[str, Any]:
    card: dict[str, Any] = {
        **_place(tool),
        "effect": str(tool.effect),
        "description": tool.description,
        "inputSchema": tool.input_schema,
    }
    if (arguments := example_arguments(tool)) is not None:
        card["example"] = lua_call(tool.handle, arguments)
    return {**card, "outputSchema": tool.output_schema} if tool.output_schema else card


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def as_lua(value: Any) -> str:
    """A value of JSON as a Lua expression that gives the same value."""
    if value is None:
        return "null"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        return quote_lua(value)
    if isinstance(value, Mapping):
        parts = [f"{lua_key(str(key))} = {as_lua(item)}" for key, item in value.items()]
        return "{ " + ", ".join(parts) + " }" if parts else "{}"
    return "{ " + ", ".join(map(as_lua, value)) + " }" if value else "array({})"


def quote_lua(text: str) -> str:
    """A text in quotes, with everything that is not a plain letter spelled out."""
    letters = (_ESCAPES.get(letter, letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}") for letter in text)
    return f'"{"".join(letters)}"'


def lua_key(name: str) -> str:
    """A name as the key of a table: a word as it is, anything else in brackets."""
    return name if _WORD.fullmatch(name) and name not in LUA_KEYWORDS else f"[{quote_lua(name)}]"


def lua_call(handle: str, arguments: Mapping[str, Any]) -> str:
    """One call on one line: `calculator.add({ a = 5, b = 3 }):await()`."""
    return f"{handle}({as_lua(arguments) if arguments else '{}'}):await()"


def lua_name(tool: Tool) -> str:
    """What a tool is called in scripts, after its server."""
    return tool.handle.partition(".")[2]
