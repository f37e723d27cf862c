"""Scripts of agents: what one run can reach for its caller, and what it has done so far."""

from __future__ import annotations

import json
import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from os import urandom
from time import perf_counter, time
from typing import Any

import anyio.to_thread
import orjson
from anyio.abc import TaskGroup

from portico.domain.call import Call, Caller, Invocation, Outcome, Ran, Result, Sandbox, Script, ScriptLimits
from portico.domain.disclosure import Disclosure, Query
from portico.domain.journal import Look
from portico.domain.tool import Tool
from portico.errors import (
    Busy,
    CallError,
    InvalidArguments,
    ScriptError,
    Sent,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.execution.executor import FairLimiter
from portico.execution.learning import sampled
from portico.gateway import SEARCH_CARDS_LIMIT, Gateway
from portico.protocols import ScriptEngine
from portico.rendering.cards import example_arguments, signature
from portico.rendering.lua import call as lua_call
from portico.rendering.lua import lua_name
from portico.results.preview import read_value

from .hints import hints

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


TOLD = 20
"""Calls that an error names."""
DESCRIBED = 50
"""Tools that one question describes."""
SAID = 2_000
"""Characters of a tool's own error that a script is told."""
MISSING_CAPABILITY = -32021
ASKS = "it asks its client something, which a script cannot answer: call it on its own, outside of a script"
FAULT = "its server failed; `portico doctor` tells the operator more"
SENT, DONE, FAILED = "sent, outcome unknown", "done", "failed"


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
    """Implements what a script can reach with the gateway's own doors, as the caller and as nobody else."""

    gateway: Gateway
    caller: Caller
    id: str
    """The parent of every call in the journal."""
    servers: Sequence[str] = ()
    deeds: list[CallRecord] = field(default_factory=list)

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Call a tool through the one executor; what it returned is the value, what it refused is an error.

        Raises:
            CallError: no such tool for this caller, arguments that do not fit, or a tool that failed.
        """
        spelling = f"{server}.{tool}"
        given = _arguments(spelling, arguments)
        known = self.gateway.find(self.caller, spelling)
        deed = CallRecord(known.handle, str(known.effect)) if known else CallRecord(spelling, "write")
        self.deeds.append(deed)
        try:
            call = Call(tool=spelling, arguments=given, parent=self.id, whole=True)
            result = await self.gateway.call(self.caller, call)
            value = await self._checked(deed.handle, result)
        except CallError as error:
            _keep_inside(error)
            deed.outcome = SENT if error.sent is Sent.UNKNOWN else FAILED
            if error.sent is Sent.NOTHING:
                self.deeds.remove(deed)
            if isinstance(error, UpstreamError) and error.rpc_code == MISSING_CAPABILITY:
                error.add(ASKS)
            raise
        except CancelledError:
            deed.outcome = SENT
            raise
        deed.outcome = DONE
        return value

    async def ask(self, question: str, arguments: Any) -> Any:
        """Answer a question of the script's global `_gateway`.

        Raises:
            CallError: there is no such question, or it has no answer.
        """
        answers: Mapping[str, Callable[[Any], Awaitable[Any]]] = {
            "search": self._search,
            "describe": self._describe,
            "read_result": self._read_result,
            "list_resources": self._list_resources,
            "read_resource": self._read_resource,
        }
        if question not in answers:
            raise InvalidArguments(f"_gateway.{question}", details=(f"there is: {', '.join(sorted(answers))}",))
        return await answers[question](arguments)

    @property
    def sent(self) -> Sent:
        """What had left the gateway by now."""
        if any(deed.outcome == SENT for deed in self.deeds):
            return Sent.UNKNOWN
        return Sent.ANSWERED if self.deeds else Sent.NOTHING

    def told(self) -> str:
        """The calls made so far, each kind once, in the order in which they were made; empty when there were none."""
        counted: dict[str, int] = {}
        for deed in self.deeds:
            counted[str(deed)] = counted.get(str(deed), 0) + 1
        lines = [text if count == 1 else f"{text} ({count} times)" for text, count in counted.items()]
        more = [f"and {len(lines) - TOLD} more"] if len(lines) > TOLD else []
        return "made before it failed: " + "; ".join([*lines[:TOLD], *more]) if lines else ""

    async def _checked(self, handle: str, result: Result) -> Any:
        if result.raw.get("resultType") == "input_required":
            raise CallError(handle, details=(ASKS,), sent=Sent.ANSWERED)
        if result.is_error:
            raise CallError(handle, details=(result.text[:SAID] or "the tool failed",), sent=Sent.ANSWERED)
        return await anyio.to_thread.run_sync(value_of, result) if takes_long(result) else value_of(result)

    async def _search(self, asked: Any) -> list[dict[str, Any]]:
        given = _named(asked, "query")
        query = Query(
            text=str(given.get("query") or ""),
            server=str(given.get("server") or ""),
            category=str(given.get("category") or ""),
            limit=_limit(given.get("limit")),
        )
        since = perf_counter()
        await self.gateway.warm(query.text)
        found = self.gateway.best(self.caller, query)
        tools = [hit.tool for hit in found.hits] if found.fits else []
        told = Disclosure(text="", tokens=0, shown=len(tools), total=len(tools), fits=found.fits)
        look = Look.SEARCH if query.text.strip() else Look.BROWSE
        self.gateway.record_lookup(self.caller, look, query.text, told, since=since)
        if (hooks := self.gateway.executor.hooks) is not None and look is Look.SEARCH:
            hooks.searched(self.caller, query.text, found)
        return [{**_place(tool), "effect": str(tool.effect), "signature": signature(tool)} for tool in tools]

    async def _describe(self, asked: Any) -> Any:
        given = _named(asked, "names").get("names")
        names = _names(given)
        snapshot = self.gateway.snapshot
        visible = self.gateway.policy.visible(self.caller, snapshot)
        since = perf_counter()
        tools = [snapshot.resolver.resolve(name, visible) for name in names]
        told = Disclosure(text="", tokens=0, shown=len(tools), total=len(names))
        self.gateway.record_lookup(self.caller, Look.DESCRIBE, " ".join(names), told, since=since)
        cards = [_card(tool) for tool in tools]
        return cards[0] if isinstance(given, str) else cards

    async def _read_result(self, asked: Any) -> Any:
        given = {key: str(value) for key, value in _named(asked, "id").items() if key in _READING and value is not None}
        if not given.get("id"):
            wanted = ('the id of a result, as in: _gateway.read_result("r_..."):await()',)
            raise InvalidArguments("_gateway.read_result", details=wanted)
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
            wanted = ('its URI, as in: _gateway.read_resource("file:///notes.txt"):await()',)
            raise InvalidArguments("_gateway.read_resource", details=wanted)
        item = self.gateway.item_search.resource(self.gateway.snapshot, uri)
        answer = await self.gateway.pass_on(item, "resources/read", {"uri": item.original})
        contents = answer.get("contents")
        only = contents[0] if isinstance(contents, list) and len(contents) == 1 else {}
        text = only.get("text") if isinstance(only, Mapping) else None
        return as_value(text) if isinstance(text, str) else contents


_READING = ("id", "cursor", "grep", "path")


_INSIDE = re.compile(r"""(?:^|[\s'"(=:])(?:~?/|[A-Za-z]:\\)[\w.]|://|\b\d+(?:\.\d+){3}\b|\blocalhost\b|\bstderr\b""")
"""What tells where and how the gateway runs: paths, addresses, and what a process wrote for its operator."""


def _keep_inside(error: CallError) -> None:
    """Tell a script that a server has failed, and nothing of the machine that it runs on."""
    if not isinstance(error, UpstreamGone | UpstreamTimeout):
        return
    told = tuple(line for line in error.details if not _INSIDE.search(line))
    error.details = told if len(told) == len(error.details) else (*told, FAULT)
    error.about(error.subject)


def _arguments(subject: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    if given is None or given == []:  # an empty table may be either
        return {}
    raise InvalidArguments(subject, details=("one table of named arguments, as in: server.tool({ name = value })",))


def _names(given: Any) -> list[str]:
    names = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if not 0 < len(names) <= DESCRIBED or not all(isinstance(name, str) for name in names):
        wanted = (f'a name, or a list of up to {DESCRIBED}, as in: _gateway.describe("server.tool"):await()',)
        raise InvalidArguments("_gateway.describe", details=wanted)
    return names


def _named(asked: Any, name: str) -> Mapping[str, Any]:
    """The parameters of a question: a table of them, or the first one alone."""
    if isinstance(asked, Mapping):
        return asked
    return {name: asked} if asked not in (None, []) else {}


def _limit(value: Any) -> int:
    return max(1, min(SEARCH_CARDS_LIMIT, int(value))) if isinstance(value, int | float) else 0


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


SPELLED = "script"
"""What a run is called in the journal, where a call has its tool's name."""
HINTS = 3
"""Hints that an error gives."""


@dataclass(slots=True, kw_only=True)
class ScriptRunner:
    """Runs scripts for callers; the engine is made when the first one comes."""

    gateway: Gateway
    open_engine: Callable[[], ScriptEngine]
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    """What a run may use; `seconds` unless the caller asks for other ones."""
    max_seconds: float = 120.0
    """What a caller may ask for at most."""
    turns: FairLimiter = field(default_factory=lambda: FairLimiter(8, queue=32))
    """Whose script runs next."""
    _engine: ScriptEngine | None = None
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
        script_session = self._errand(caller)
        script = Script(source=source, arguments=arguments or {}, limits=self._limits(seconds))
        result: Result | None = None
        outcome, code = Outcome.FAILED, ""
        try:
            async with self.turns.turn(caller.client, "the script", seconds=script.limits.seconds):
                result = answer_of(await self.engine.run(script, script_session))
            result = await self.gateway.fitted(caller, Call(tool=SPELLED, arguments={}, whole=whole), result)
            outcome = Outcome.DONE
        except ScriptError as error:
            outcome = Outcome.TIMED_OUT if error.limit == "seconds" else Outcome.FAILED
            code = error.code
            _explain(error, source, script_session)
            raise
        except Busy as error:
            outcome, code = Outcome.REFUSED, error.code
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
                tokens_in=sampled(source, self.gateway.counter),
                tokens_out=sampled(result.text, self.gateway.counter) if result else 0,
                parent=script_session.id,
            )
            self.gateway.executor.record(entry)
            note = await self.gateway.executor.journal.written() if outcome is not Outcome.CANCELLED else ""
        return replace(result, notes=(*result.notes, note)) if note else result

    @property
    def engine(self) -> ScriptEngine:
        """The engine, made now if there was none."""
        if self._engine is None:
            self._engine = self.open_engine()
        return self._engine

    @property
    def state(self) -> str:
        """What holds scripts in, as far as it is known; never waits."""
        return self._sandbox.state if self._sandbox is not None else "not examined yet"

    @property
    def is_degraded(self) -> bool:
        """Whether scripts are known to be held in by less than we want."""
        return self._sandbox is not None and self._sandbox.is_degraded

    async def examine(self) -> Sandbox:
        """Find out what holds scripts in here; starts what is needed to know it."""
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
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.aclose()

    def _errand(self, caller: Caller) -> ScriptSession:
        snapshot = self.gateway.snapshot
        visible = self.gateway.policy.visible(caller, snapshot)
        sections = (section for section in snapshot.sections.values() if not visible.isdisjoint(section.tools))
        servers = tuple(section.server.identifier for section in sections)
        return ScriptSession(gateway=self.gateway, caller=caller, id=f"script-{urandom(8).hex()}", servers=servers)

    def _limits(self, seconds: float | None) -> ScriptLimits:
        asked = self.limits.seconds if seconds is None or isnan(seconds) else seconds
        return replace(self.limits, seconds=min(max(asked, 0.0), self.max_seconds))


def _explain(error: ScriptError, source: str, script_session: ScriptSession) -> None:
    """Say what had been done by then, and what the author may have meant."""
    error.sent = script_session.sent
    for hint in hints(source, error.reason, script_session.servers)[:HINTS]:
        error.add(f"hint: {hint}")
    if told := script_session.told():
        error.add(told)
