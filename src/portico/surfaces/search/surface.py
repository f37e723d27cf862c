"""The `search` surface: `search_tool` and `execute_tool`; the query alone decides how much is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from portico.domain.call import Caller
from portico.domain.disclosure import FILTERS, Disclosure, Findings, Hit, Query
from portico.domain.foreign_text import own_block
from portico.domain.journal import Look
from portico.domain.resolver import SEPARATORS
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, InvalidArguments, NextCall
from portico.execution.arguments import unwrap
from portico.gateway import Gateway
from portico.rendering.next_call import spelled
from portico.rendering.tokens import sampled_tokens
from portico.surfaces.mcp.instructions import search_text
from portico.surfaces.mcp.meta_tools import (
    error_result,
    must_stay_protocol_error,
    read_filters,
    text_result,
    unread_beside,
    with_notes,
)
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool
from portico.surfaces.static import listed_name

from .keywords import (
    Answer,
    KeywordIndex,
    approximate,
    build_keyword_index,
    exact,
    exact_asset,
    list_all,
    shown_names,
    with_assets,
)

SEARCH, EXECUTE = "search_tool", "execute_tool"
LIMIT, NAMES = 10, 100
"""How many tools, and how many bare names, one answer has unless it is told."""
MOST = 1_000
NAME_LENGTH = 600
"""Characters of a query that may be a name; the longest names are shorter."""
KEYS_NAMED, KEY_LENGTH = 5, 40
"""Arguments that are not known which an error repeats, and characters of each."""

DEFINITIONS: tuple[JsonObject, ...] = (
    {
        "name": SEARCH,
        "description": (
            "Find tools. Keywords, e.g. 'table list', give names with summaries; an exact name gives that tool's full"
            ' documentation; "" gives all names.'
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer"},
                "cursor": {"type": "string", "description": "next_cursor of the last answer"},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": True},
        "_meta": {"anthropic/alwaysLoad": True},
    },
    {
        "name": EXECUTE,
        "description": "Run a tool that search_tool found.",
        "inputSchema": {
            "type": "object",
            "properties": {"tool_name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["tool_name", "arguments"],
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
        "_meta": {"anthropic/alwaysLoad": True},
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A search as its arguments say it; no limit leaves it to the kind of answer."""

    text: str
    limit: int | None = None
    cursor: str = ""
    narrowing: Query = field(default_factory=Query)
    """The filters, which are understood though they are not listed."""


@dataclass(slots=True)
class Search:
    """Lists two tools and the pins, whatever the catalog holds."""

    gateway: Gateway
    order: str = "keywords"
    """What settles the order of an approximate answer: the points (`keywords`), or the index (`meaning`)."""
    name: str = "search"
    _built: tuple[object, KeywordIndex | None] = (None, None)

    def instructions(self, caller: Caller) -> str:
        """Names the servers within the first 512 characters, as many as fit."""
        tools = self.gateway.listing(caller)
        servers = sorted({tool.handle.split(".", 1)[0] for tool in tools})
        return search_text(len(tools), servers)

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The meta-tools, then the pins; waits for the first start of a pin's server."""
        await self.gateway.pins_known()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same; nothing is waited for."""
        return [*DEFINITIONS, *(tool.definition for tool in self.gateway.pinned(caller))]

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of search and execute."""
        return {SEARCH: self._search, EXECUTE: self._execute}.get(name)

    def schema_of(self, name: str) -> JsonObject | None:
        """The schema of a meta-tool."""
        return next((d["inputSchema"] for d in DEFINITIONS if d["name"] == name), None)

    def spell(self, call: NextCall) -> str:
        """The next call as a call of a meta-tool; to describe a tool is to search for its name."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spelled(EXECUTE, {"tool_name": name, "arguments": call.parameters.get("arguments", {})})
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return spelled(SEARCH, {"query": listed_name(self.gateway, str(names[0]))})
        return spelled(SEARCH, {"query": str(call.parameters.get("query", ""))})

    async def _search(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        try:
            question = _question(arguments)
        except InvalidArguments as error:
            return error_result(error, self.spell)
        loading = await self.gateway.settled()
        if self.order == "meaning":
            await self.gateway.warm(question.text)
        started = perf_counter()
        try:
            answer = self._answer(caller, question)
        except CallError as failure:
            return error_result(failure, self.spell)
        result = _json_result(answer)
        self._journal(caller, question, answer, result["content"][0]["text"], started)
        if loading:
            result["content"].append(own_block(f"note: still starting: {', '.join(sorted(loading))}"))
        return result

    async def _execute(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        spelling = str(arguments.get("tool_name"))
        if self.gateway.intake.is_starting and self.gateway.parameters_of(caller, spelling) is None:
            await self.gateway.settled()  # what is malformed can only be told with the tool's own parameters
        request = unwrap(arguments, lambda name: self.gateway.parameters_of(caller, name), named="tool_name")
        if not request.name:
            call = NextCall("call", {"name": "...", "arguments": {}})
            error = InvalidArguments(EXECUTE, details=("missing: tool_name (string)",), next_call=call)
            return error_result(error, self.spell)
        unread = unread_beside(arguments, lambda: self.gateway.parameters_of(caller, request.name))
        notes = [*request.notes, *unread]
        try:
            result = await self.gateway.call(caller, envelope.around(request.name, request.arguments))
            return with_notes(result, notes)
        except CallError as failure:
            if must_stay_protocol_error(failure, envelope):
                raise
            return error_result(failure, self.spell, notes)

    def _answer(self, caller: Caller, question: Question) -> Answer:
        """One of three kinds, told by the query alone."""
        if not question.text:
            within = self._within(caller, question)
            tools = [tool for tool in self.gateway.listing(caller) if tool.id in within]
            return list_all(tools, limit=question.limit or NAMES, after=question.cursor)
        named = self._named(caller, question.text)
        if named is not None:
            return exact(named)
        item = self.gateway.asset(caller, question.text)
        if item is not None:
            return exact_asset(item)
        asked = replace(question.narrowing, text=question.text)
        return with_assets(self._approximate(caller, question), self.gateway.assets(caller, asked))

    def _journal(self, caller: Caller, question: Question, answer: Answer, text: str, started: float) -> None:
        """Write down what was looked for, and what the answer has shown."""
        names = shown_names(answer)
        if question.text:
            found = [tool for name in names if (tool := self.gateway.find(caller, name))]
            self.gateway.executor.trail.showed(caller, [tool.id for tool in found])
            if (hooks := self.gateway.executor.hooks) is not None:
                hits = tuple(Hit(tool=tool, score=0.0) for tool in found)
                hooks.searched(caller, question.text, Findings(hits=hits, fits=bool(hits)))
        tokens = sampled_tokens(text, self.gateway.counter)
        disclosure = Disclosure(text="", tokens=tokens, shown=len(names), total=len(names), fits=bool(names))
        look = Look.SEARCH if question.text else Look.BROWSE
        self.gateway.looked(caller, look, question.text, disclosure, since=started)

    def _named(self, caller: Caller, text: str) -> Tool | None:
        """The one permitted tool that the whole query is a name of, in any spelling and case."""
        if len(text) > NAME_LENGTH:
            return None
        is_qualified = not any(map(str.isspace, text)) and any(mark in text for mark in SEPARATORS)
        visible = self.gateway.policy.visible(caller, self.gateway.edition)
        return self.gateway.find(caller, text) if is_qualified or self._keywords().names(text, within=visible) else None

    def _approximate(self, caller: Caller, question: Question) -> Answer:
        within = self._within(caller, question)
        found = self._keywords().query(question.text, within=within, limit=len(self.gateway.edition.tools)).hits
        scores = {hit.tool.id: hit.score for hit in found}
        if self.order == "meaning":
            findings = self.gateway.hits(caller, replace(question.narrowing, text=question.text))
            found = findings.hits if findings.fits else ()
        return approximate([hit.tool for hit in found[: question.limit or LIMIT]], scores)

    def _within(self, caller: Caller, question: Question) -> Set[ToolId]:
        """The tools that a caller sees and that pass the filters."""
        edition = self.gateway.edition
        visible = frozenset(self.gateway.policy.visible(caller, edition))
        return self.gateway.within(edition, visible, question.narrowing)

    def _keywords(self) -> KeywordIndex:
        """The index of the current edition; made at its first search, from the last one as far as that still holds."""
        edition = self.gateway.edition
        known, index = self._built
        if index is None or known is not edition:
            index = build_keyword_index(edition, index)
            self._built = (edition, index)
        return index


def _question(arguments: JsonObject) -> Question:
    """A question, if each part can be read as what it should be.

    Raises:
        InvalidArguments: with a line for each part that cannot.
    """
    given = {"query": arguments["q"], **arguments} if "q" in arguments else arguments
    found: dict[str, Any] = {}
    wrong = _unread(given)
    for part, (name, read, wanted) in _PARTS.items():
        try:
            found[part] = read(given.get(name))
        except (TypeError, ValueError, OverflowError):
            wrong.append(f"{name}: must be {wanted}")
    if wrong:
        example = NextCall("search", {"query": "what you want to do, in a few words"})
        raise InvalidArguments(SEARCH, details=wrong, next_call=example)
    return Question(**found, narrowing=read_filters(arguments))


def _unread(arguments: JsonObject) -> list[str]:
    """What to say where a query seems to stand under another name: to list every tool would be no answer to it."""
    if "query" in arguments:
        return []
    strange = [key[:KEY_LENGTH] for key in arguments if key not in ("limit", "cursor", *FILTERS)]
    return [f"missing: query (string); unknown: {', '.join(strange[:KEYS_NAMED])}"] if strange else []


def _text(value: object) -> str:
    """Text, however loosely it was written; nothing is no text."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return " ".join(value).strip()
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value).strip()
    if value is not None:
        raise TypeError
    return ""


def _limit(value: object) -> int | None:
    """A whole number within the bounds, however it was written."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not float(value).is_integer():
        raise TypeError
    return max(1, min(MOST, int(float(value))))


_PARTS: Mapping[str, tuple[str, Callable[[object], object], str]] = {
    "text": ("query", _text, "a string"),
    "limit": ("limit", _limit, f"a whole number from 1 to {MOST}"),
    "cursor": ("cursor", _text, "a string: next_cursor of the last answer"),
}
"""Each part of a question: the argument, how it is read, and what it should be."""


def _json_result(answer: Answer) -> dict[str, Any]:
    """Data for programs, and the same as text for models."""
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return {**text_result(text), "structuredContent": answer}
