"""One run of a script on behalf of one caller: what it can reach, and what it has done so far."""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import anyio.to_thread

from portico.discovery.examples import example_arguments
from portico.discovery.lua import call as lua_call
from portico.discovery.servers import lua_name
from portico.discovery.signatures import signature
from portico.domain.call import Call, Result
from portico.domain.caller import Caller
from portico.domain.disclosure import Disclosure
from portico.domain.journal import Look
from portico.domain.query import Query
from portico.domain.tool import Tool
from portico.errors import CallError, InvalidArguments, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.execution.values import as_value, takes_long, value_of
from portico.finding import SEARCH_CARDS_LIMIT
from portico.gateway import Gateway

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
class Deed:
    """A call that a script has made: the tool, what it does to the world, and how it ended."""

    handle: str
    effect: str
    outcome: str = SENT

    def __str__(self) -> str:
        return f"{self.handle} [{self.effect}] {self.outcome}"


@dataclass(slots=True, kw_only=True)
class Errand:
    """Implements what a script can reach with the gateway's own doors, as the caller and as nobody else."""

    gateway: Gateway
    caller: Caller
    id: str
    """The parent of every call in the journal."""
    servers: Sequence[str] = ()
    deeds: list[Deed] = field(default_factory=list)

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Call a tool through the one executor; what it returned is the value, what it refused is an error.

        Raises:
            CallError: no such tool for this caller, arguments that do not fit, or a tool that failed.
        """
        spelling = f"{server}.{tool}"
        given = _arguments(spelling, arguments)
        known = self.gateway.find(self.caller, spelling)
        deed = Deed(known.handle, str(known.effect)) if known else Deed(spelling, "write")
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
        self.gateway.looked(self.caller, look, query.text, told, since=since)
        if (hooks := self.gateway.executor.hooks) is not None and look is Look.SEARCH:
            hooks.searched(self.caller, query.text, found)
        return [{**_place(tool), "effect": str(tool.effect), "signature": signature(tool)} for tool in tools]

    async def _describe(self, asked: Any) -> Any:
        given = _named(asked, "names").get("names")
        names = _names(given)
        edition = self.gateway.edition
        visible = self.gateway.policy.visible(self.caller, edition)
        since = perf_counter()
        tools = [edition.resolver.resolve(name, visible) for name in names]
        told = Disclosure(text="", tokens=0, shown=len(tools), total=len(names))
        self.gateway.looked(self.caller, Look.DESCRIBE, " ".join(names), told, since=since)
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
        edition = self.gateway.edition
        rows = [(edition.servers[item.server].identifier, item) for item in self.gateway.items.resources]
        return [{**item.definition, "server": server} for server, item in rows if wanted in (None, server, item.server)]

    async def _read_resource(self, asked: Any) -> Any:
        uri = _named(asked, "uri").get("uri")
        if not isinstance(uri, str) or not uri:
            wanted = ('its URI, as in: _gateway.read_resource("file:///notes.txt"):await()',)
            raise InvalidArguments("_gateway.read_resource", details=wanted)
        item = self.gateway.annex.resource(self.gateway.edition, uri)
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
