"""The `search` surface: `search_tool` with its points for keywords, and `execute_tool`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from portico.domain.call import Caller
from portico.domain.disclosure import FILTERS, Disclosure, Findings, Hit, Query
from portico.domain.foreign_text import own_block
from portico.domain.items import Item
from portico.domain.journal import Look
from portico.domain.snapshot import SEPARATORS, CatalogSnapshot
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, InvalidArguments, NextCall
from portico.execution.arguments import unwrap
from portico.gateway import Gateway
from portico.protocols import Index
from portico.rendering.budget import sampled_tokens
from portico.rendering.cards import first_sentence, spelled, summary
from portico.search.items import reading_call, told_of
from portico.search.words import words
from portico.surfaces.mcp.meta_tools import (
    error_result,
    must_stay_protocol_error,
    read_filters,
    text_result,
    unread_beside,
    with_notes,
)
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool, search_text

from .static import listed_name

TYPE_NAMES: Mapping[str, str] = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
"""JSON Schema's types as Python spells them."""

DEPTH = 4
REFERENCES = 8
_SECTION = re.compile(r"^(\s*)(?:arguments|args|parameters|params)\s*:\s*$", re.IGNORECASE)
_ARGUMENT = re.compile(r"^(\s*)(?:[*-] )?`?([\w.$-]+)`?\s*(?:\([^)]*\)\s*)?(?:-|–|:)\s+(\S.*)$")


def parameters(tool: Tool) -> dict[str, dict[str, Any]]:
    """Each parameter with type, whether it is required, default and description.

    `default` is the text of the default for an optional parameter, `None` when there is none. `default_json` is there
    only when the schema declares one, with the value itself: the text alone cannot tell null from "None" or nothing.
    """
    texts = argument_texts(tool.description)
    required = frozenset(tool.required)
    return {
        name: _parameter(schema, tool.input_schema, name in required, texts.get(name, ""))
        for name, schema in {**tool.properties, **{n: {} for n in tool.required if n not in tool.properties}}.items()
    }


def _parameter(schema: object, root: Mapping[str, Any], is_required: bool, text: str) -> dict[str, Any]:
    shape: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    described = _followed(shape, root)
    found: dict[str, Any] = {"type": type_name(shape, root), "required": is_required}
    if not is_required:
        declared = {**described, **shape}
        found["default"] = str(declared.get("default"))
        if "default" in declared:
            found["default_json"] = declared["default"]
    own = shape.get("description", described.get("description"))
    found["description"] = own if isinstance(own, str) and own.strip() else text
    return found


def type_name(schema: object, root: Mapping[str, Any]) -> str:
    """The Python type of a schema: `str`, `int | str`, `Any`; that a value may also be null is left unsaid."""
    names = dict.fromkeys(_names(schema, root, DEPTH))
    return " | ".join(name for name in names if name != "None") or next(iter(names), "Any")


def _names(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    schema = _followed(schema, root)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    if known := [TYPE_NAMES[kind] for kind in kinds if isinstance(kind, str) and kind in TYPE_NAMES]:
        yield from known
        return
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(choices, list):
        yield from ("None" if choice is None else type(choice).__name__ for choice in choices)
        return
    for keyword in ("anyOf", "oneOf", "allOf"):
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else ():
            yield from _names(option, root, depth - 1)
    if "properties" in schema or "items" in schema:
        yield "dict" if "properties" in schema else "list"


def _followed(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a local reference leads to, a few steps at most."""
    for _ in range(REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        found: Any = root
        for step in reference[2:].split("/"):
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            break
        schema = found
    return schema


def argument_texts(doc: str) -> dict[str, str]:
    """What the arguments section of a docstring says of each name: `name - text`, `name: text`, `name (type): text`.

    Deeper lines belong to the argument before them; the section ends with the first line outside it.
    """
    texts: dict[str, str] = {}
    lines = iter(doc.splitlines())
    section = next((len(found[1]) for line in lines if (found := _SECTION.match(line))), None)
    if section is None:
        return texts
    name, indent = "", 0
    for line in lines:
        if not line.strip():
            continue
        depth, argument = len(line) - len(line.lstrip()), _ARGUMENT.match(line)
        if argument and (not name or depth <= indent):
            name, indent = argument[2], depth
            texts.setdefault(name, argument[3].strip())
        elif name and depth > indent:
            texts[name] += f" {line.strip()}"
        elif depth <= section:
            break
    return texts


EXACT_NAME, PARTIAL_NAME = 200, 100
EXACT_CATEGORY, PARTIAL_CATEGORY = 75, 50
KEYWORD, DESCRIPTION, PARAMETER = 10, 20, 15

QUERY_LIMIT = 1_000
"""Characters of a query that are read."""
TOKEN_LIMIT = 24
"""Tokens of a query that count, so that no query costs more than others by much."""

_TOKEN = re.compile(r"[^\s,;!?()\[\]{}<>|\"'`]+")
_PUNCTUATION = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tool, taken apart once."""

    tool: Tool
    name: str
    names: frozenset[str]
    category: str
    description: str
    description_words: frozenset[str]
    keywords: frozenset[str]
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, taken apart once."""

    phrase: str
    joined: str
    """The phrase as a name would be written, `_` for everything that is no letter and no digit."""
    tokens: tuple[tuple[str, frozenset[str]], ...]
    """Each token as a name would be written, with the stems of its words."""


class KeywordIndex:
    """Finds tools by adding up points for the query's tokens."""

    def __init__(self, entries: list[_Entry]) -> None:
        self.entries = entries
        self._named: dict[str, list[ToolId]] = defaultdict(list)
        for entry in entries:
            for name in entry.names:
                self._named[name].append(entry.tool.id)

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The permitted tools that have any points, most points first; ties are settled by name."""
        asked = _asked(text)
        if not asked.tokens:
            return Findings()
        found = [(_points(asked, entry), entry.tool) for entry in self.entries if entry.tool.id in within]
        hits = [Hit(tool=tool, score=sum(why.values()), why=why) for why, tool in found if why]
        hits.sort(key=lambda hit: (-hit.score, hit.tool.listed))
        return Findings(hits=tuple(hits[:limit]), fits=bool(hits))

    def names(self, text: str, *, within: Set[ToolId]) -> bool:
        """Whether the whole text is the name of a permitted tool, in whatever case."""
        return any(id in within for id in self._named.get(_plain(text), ()))


def build_keyword_index(snapshot: CatalogSnapshot, previous: Index | None) -> KeywordIndex:
    """Index a snapshot; tools that did not change are taken from the previous index."""
    known = {id(e.tool): e for e in previous.entries} if isinstance(previous, KeywordIndex) else {}
    return KeywordIndex([known.get(id(tool)) or _entry(tool) for tool in snapshot.tools.values()])


def _entry(tool: Tool) -> _Entry:
    said = frozenset(words(tool.description))
    parameters = tuple(str(name) for name in tool.properties)
    return _Entry(
        tool=tool,
        name=_plain(tool.id.name),
        names=frozenset(map(_plain, (tool.id.name, tool.listed, tool.handle))),
        category=_plain(tool.category),
        description=" ".join(tool.description.casefold().split()),
        description_words=said,
        keywords=said.union(words(tool.listed), *map(words, parameters)),
        parameters=tuple(map(_plain, parameters)),
    )


def _asked(text: str) -> _Asked:
    phrase = " ".join(text[:QUERY_LIMIT].casefold().split())
    spelled = dict.fromkeys(raw.strip(".:/-") for raw in _TOKEN.findall(text[:QUERY_LIMIT]))
    tokens = [(_plain(token), frozenset(words(token))) for token in spelled if any(map(str.isalnum, token))]
    telling = [(token, stems) for token, stems in tokens if stems]  # the others are words such as `of`
    return _Asked(phrase=phrase, joined=_plain(phrase), tokens=tuple((telling or tokens)[:TOKEN_LIMIT]))


def _points(asked: _Asked, entry: _Entry) -> dict[str, float]:
    """Each part of a tool's score that is not nothing."""
    tokens = asked.tokens
    in_name = {token for token, _ in tokens if token in entry.name or token in entry.names}
    parts = {
        "name": _name_points(asked, entry, in_name),
        "category": _category_points(asked, entry),
        "keywords": KEYWORD * sum(bool(s) and t not in in_name and s <= entry.keywords for t, s in tokens),
        "description": DESCRIPTION * _is_described(asked, entry),
        "parameters": PARAMETER * sum(asked.joined in name for name in entry.parameters),
    }
    return {part: points for part, points in parts.items() if points}


def _name_points(asked: _Asked, entry: _Entry, in_name: set[str]) -> int:
    if any(token in entry.names for token, _ in asked.tokens):
        return EXACT_NAME
    return PARTIAL_NAME if in_name else 0


def _category_points(asked: _Asked, entry: _Entry) -> int:
    tokens = [asked.joined, *(token for token, _ in asked.tokens)]
    if entry.category in tokens:
        return EXACT_CATEGORY
    return PARTIAL_CATEGORY if any(token in entry.category for token in tokens) else 0


def _is_described(asked: _Asked, entry: _Entry) -> bool:
    if asked.phrase in entry.description:
        return True
    return all(stems and stems <= entry.description_words for _, stems in asked.tokens)


def _plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


Answer = dict[str, Any]


def exact(tool: Tool) -> Answer:
    """Everything about the tool that the query names."""
    return {
        "match_type": "exact",
        "tool": {
            "name": tool.listed,
            "category": tool.category,
            "description": summary(tool),
            "full_documentation": tool.description or tool.title,
            "parameters": parameters(tool),
        },
    }


def approximate(tools: Sequence[Tool], scores: Mapping[ToolId, float]) -> Answer:
    """One line for each tool, in the given order; a tool without a score has 0."""
    return {
        "match_type": "approximate",
        "results_count": len(tools),
        "tools": [
            {
                "name": tool.listed,
                "category": tool.category,
                "summary": summary(tool),
                "score": int(scores.get(tool.id, 0)),
            }
            for tool in tools
        ],
    }


def exact_asset(item: Item) -> Answer:
    """Everything about the prompt, resource or document that the query names."""
    return {"match_type": "exact", "asset": {**_asset(item), "full_documentation": told_of(item)}}


def with_assets(answer: Answer, items: Sequence[Item]) -> Answer:
    """The answer with the prompts, resources and documents that answer the query too; none, no field."""
    return {**answer, "assets": [_asset(item) for item in items]} if items else answer


def _asset(item: Item) -> Answer:
    """A prompt, resource or document on one line, and the call that reads it."""
    call = reading_call(item).parameters
    read = {"tool_name": call["name"], "arguments": call["arguments"]}
    return {"kind": str(item.kind), "name": item.listed, "summary": first_sentence(told_of(item), 120), "read": read}


def shown_names(answer: Answer) -> list[str]:
    """The listed names of the tools in an answer, in its order."""
    if answer["match_type"] == "exact":
        return [answer["tool"]["name"]] if "tool" in answer else []
    return [tool if isinstance(tool, str) else tool["name"] for tool in answer["tools"]]


def list_all(tools: Iterable[Tool], *, limit: int, after: str = "") -> Answer:
    """The names of all tools, sorted, one page of them; `next_cursor` is there when more follow.

    A cursor is the last name that was shown, so that a page stays right when the catalog changes in between.
    """
    names = sorted(tool.listed for tool in tools)
    following = [name for name in names if name > after]
    answer: Answer = {"match_type": "list_all", "total_count": len(names), "tools": following[:limit]}
    if len(following) > limit:
        answer["next_cursor"] = answer["tools"][-1]
    return answer


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
class SearchRequest:
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
        loading = await self.gateway.wait_until_ready()
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
        if self.gateway.refresher.is_starting and self.gateway.parameters_of(caller, spelling) is None:
            await self.gateway.wait_until_ready()  # what is malformed can only be told with the tool's own parameters
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

    def _answer(self, caller: Caller, question: SearchRequest) -> Answer:
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

    def _journal(self, caller: Caller, question: SearchRequest, answer: Answer, text: str, started: float) -> None:
        """Write down what was looked for, and what the answer has shown."""
        names = shown_names(answer)
        if question.text:
            found = [tool for name in names if (tool := self.gateway.find(caller, name))]
            self.gateway.executor.search_rank.showed(caller, [tool.id for tool in found])
            if (hooks := self.gateway.executor.hooks) is not None:
                hits = tuple(Hit(tool=tool, score=0.0) for tool in found)
                hooks.searched(caller, question.text, Findings(hits=hits, fits=bool(hits)))
        tokens = sampled_tokens(text, self.gateway.counter)
        disclosure = Disclosure(text="", tokens=tokens, shown=len(names), total=len(names), fits=bool(names))
        look = Look.SEARCH if question.text else Look.BROWSE
        self.gateway.record_lookup(caller, look, question.text, disclosure, since=started)

    def _named(self, caller: Caller, text: str) -> Tool | None:
        """The one permitted tool that the whole query is a name of, in any spelling and case."""
        if len(text) > NAME_LENGTH:
            return None
        is_qualified = not any(map(str.isspace, text)) and any(mark in text for mark in SEPARATORS)
        visible = self.gateway.policy.visible(caller, self.gateway.snapshot)
        return self.gateway.find(caller, text) if is_qualified or self._keywords().names(text, within=visible) else None

    def _approximate(self, caller: Caller, question: SearchRequest) -> Answer:
        within = self._within(caller, question)
        found = self._keywords().query(question.text, within=within, limit=len(self.gateway.snapshot.tools)).hits
        scores = {hit.tool.id: hit.score for hit in found}
        if self.order == "meaning":
            findings = self.gateway.hits(caller, replace(question.narrowing, text=question.text))
            found = findings.hits if findings.fits else ()
        return approximate([hit.tool for hit in found[: question.limit or LIMIT]], scores)

    def _within(self, caller: Caller, question: SearchRequest) -> Set[ToolId]:
        """The tools that a caller sees and that pass the filters."""
        snapshot = self.gateway.snapshot
        visible = frozenset(self.gateway.policy.visible(caller, snapshot))
        return self.gateway.within(snapshot, visible, question.narrowing)

    def _keywords(self) -> KeywordIndex:
        """The index of the current snapshot; made at its first search, from the last one as far as that still holds."""
        snapshot = self.gateway.snapshot
        known, index = self._built
        if index is None or known is not snapshot:
            index = build_keyword_index(snapshot, index)
            self._built = (snapshot, index)
        return index


def _question(arguments: JsonObject) -> SearchRequest:
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
    return SearchRequest(**found, narrowing=read_filters(arguments))


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
