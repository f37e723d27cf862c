"""The `search` surface: `search_tool` with its points for keywords, and `execute_tool`."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

from portico.catalog.naming import SEPARATORS
from portico.catalog.prompts_and_resources import Item
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogView
from portico.domain.call import Caller
from portico.domain.docstrings import section_texts
from portico.domain.search_answers import FILTERS, AnswerSize, Findings, Hit, Query
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, InvalidArguments, NextCall
from portico.protocols import Index
from portico.rendering.budget import sampled_tokens
from portico.rendering.cards import first_sentence, follow, spell_call, type_names
from portico.results.own_blocks import own_block
from portico.search.item_search import reading_call, told_of
from portico.search.words_and_postings import words
from portico.surfaces.mcp.instructions import search_text
from portico.surfaces.mcp.surface import (
    Envelope,
    JsonObject,
    MetaTool,
    Surface,
    call_tool,
    error_result,
    read_filters,
    text_result,
)
from portico.surfaces.static import listed_name

SUMMARY_LENGTH = 200  # characters of a line that are kept: some descriptions are one line of thousands
HEADERS = frozenset(
    {
        *("return value", "return values", "returned value", "input parameters", "keyword arguments"),
        *("optional arguments", "optional parameters", "required parameters", "required arguments"),
        *("example usage", "usage example", "usage examples", "see also"),
    }
)
"""Section headers of more than one word; one word with a colon is a header whatever it is."""


def summary(tool: Tool) -> str:
    """A tool in one line: what its description says first, or else its title."""
    return first_line(tool.description) or first_line(tool.title)


def first_line(text: str) -> str:
    """The first line that says something: no empty line, no rule, no section header; cut at a word when it is long."""
    for raw in text.splitlines():
        line = " ".join(raw.split())
        if any(map(str.isalnum, line)) and not _is_header(line):
            kept = line[: SUMMARY_LENGTH - 1]
            return line if len(line) <= SUMMARY_LENGTH else f"{(kept.rsplit(' ', 1)[0] or kept).rstrip(' ,;:')}…"
    return ""


def _is_header(line: str) -> bool:
    """Whether a line opens a section; a sentence that ends with a colon does not."""
    bare = line.strip("*#_ ")
    name = bare.rstrip(":*_ ").casefold()
    return bare.endswith(":") and (" " not in name or name in HEADERS)


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


def parameters(tool: Tool) -> dict[str, dict[str, Any]]:
    """Each parameter with type, whether it is required, default and description.

    `default` is the text of the default for an optional parameter, `None` when there is none. `default_json` is there
    only when the schema declares one, with the value itself: the text alone cannot tell null from "None" or nothing.
    """
    texts, root = section_texts(tool.description), tool.input_schema
    undeclared: dict[str, Any] = {name: {} for name in tool.required if name not in tool.properties}
    found = {}
    for name, schema in {**tool.properties, **undeclared}.items():
        told = follow(schema, root) if isinstance(schema, Mapping) else {}
        one: dict[str, Any] = {"type": type_name(schema, root), "required": name in tool.required}
        if not one["required"]:
            one["default"] = str(told.get("default"))
            one |= {"default_json": told["default"]} if "default" in told else {}
        own = told.get("description")
        one["description"] = own if isinstance(own, str) and own.strip() else texts.get(name, "")
        found[name] = one
    return found


def type_name(schema: object, root: Mapping[str, Any]) -> str:
    """The Python type of a schema: `str`, `int | str`, `Any`; that a value may also be null is left unsaid."""
    return (
        " | ".join(TYPE_NAMES[kind] for kind in type_names(schema, root, choices=True) if kind in TYPE_NAMES) or "Any"
    )


EXACT_NAME, PARTIAL_NAME = 200, 100
EXACT_CATEGORY, PARTIAL_CATEGORY = 75, 50
KEYWORD, DESCRIPTION, PARAMETER = 10, 20, 15

QUERY_LIMIT = 1_000  # characters of a query that are read
TOKEN_LIMIT = 24  # tokens of a query that count, so that no query costs more than others by much

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


class _Asked:
    """A query, taken apart once."""

    def __init__(self, text: str) -> None:
        self.phrase = " ".join(text[:QUERY_LIMIT].casefold().split())
        self.joined = _plain(self.phrase)
        """The phrase as a name would be written, `_` for everything that is no letter and no digit."""
        spelled = dict.fromkeys(raw.strip(".:/-") for raw in _TOKEN.findall(text[:QUERY_LIMIT]))
        tokens = [(_plain(token), frozenset(words(token))) for token in spelled if any(map(str.isalnum, token))]
        telling = [(token, stems) for token, stems in tokens if stems]  # the others are words such as `of`
        self.tokens = (telling or tokens)[:TOKEN_LIMIT]
        """Each token as a name would be written, with the stems of its words."""

    def score(self, entry: _Entry) -> dict[str, float]:
        """Each part of a tool's score that is not nothing."""
        in_name = {token for token, _ in self.tokens if token in entry.name or token in entry.names}
        is_name = any(token in entry.names for token, _ in self.tokens)
        whole = (self.joined, *(token for token, _ in self.tokens))
        in_category = PARTIAL_CATEGORY if any(token in entry.category for token in whole) else 0
        is_described = self.phrase in entry.description or all(
            stems and stems <= entry.description_words for _, stems in self.tokens
        )
        parts = {
            "name": EXACT_NAME if is_name else PARTIAL_NAME if in_name else 0,
            "category": EXACT_CATEGORY if entry.category in whole else in_category,
            "keywords": KEYWORD * sum(bool(s) and t not in in_name and s <= entry.keywords for t, s in self.tokens),
            "description": DESCRIPTION * is_described,
            "parameters": PARAMETER * sum(self.joined in name for name in entry.parameters),
        }
        return {part: points for part, points in parts.items() if points}


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
        asked = _Asked(text)
        if not asked.tokens:
            return Findings()
        found = [(asked.score(entry), entry.tool) for entry in self.entries if entry.tool.id in within]
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
        name=_plain(tool.name),
        names=frozenset(map(_plain, (tool.name, tool.listed, tool.handle))),
        category=_plain(tool.category),
        description=" ".join(tool.description.casefold().split()),
        description_words=said,
        keywords=said.union(words(tool.listed), *map(words, parameters)),
        parameters=tuple(map(_plain, parameters)),
    )


def _plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


Answer = dict[str, Any]


def exact(tool: Tool) -> Answer:
    """Everything about the tool that the query names."""
    told = {"full_documentation": tool.description or tool.title, "parameters": parameters(tool)}
    named = {"name": tool.listed, "category": tool.category}
    return {"match_type": "exact", "tool": {**named, "description": summary(tool), **told}}


def approximate(tools: Sequence[Tool], scores: Mapping[ToolId, float], items: Sequence[Item] = ()) -> Answer:
    """One line for each tool, in the given order; a tool without a score has 0.

    Prompts, resources and documents that answer the query too follow; where there are none, no field.
    """
    lines = [
        {
            "name": tool.listed,
            "category": tool.category,
            "summary": summary(tool),
            "score": int(scores.get(tool.id, 0)),
        }
        for tool in tools
    ]
    answer: Answer = {"match_type": "approximate", "results_count": len(tools), "tools": lines}
    return {**answer, "assets": [_item(item) for item in items]} if items else answer


def _item(item: Item) -> Answer:
    call = reading_call(item).parameters
    read = {"tool_name": call["name"], "arguments": call["arguments"]}
    return {"kind": str(item.kind), "name": item.listed, "summary": first_sentence(told_of(item), 120), "read": read}


def list_all(tools: Iterable[Tool], limit: int, after: str = "") -> tuple[Answer, list[Tool]]:
    """The names of all tools, sorted, and the tools of one page of them; `next_cursor` is there when more follow.

    A cursor is the last name that was shown, so that a page stays right when the catalog changes in between.
    """
    ordered = sorted(tools, key=lambda tool: tool.listed)
    following = [tool for tool in ordered if tool.listed > after]
    page = following[:limit]
    answer: Answer = {"match_type": "list_all", "total_count": len(ordered), "tools": [tool.listed for tool in page]}
    if len(following) > limit:
        answer["next_cursor"] = page[-1].listed
    return answer, page


SEARCH, EXECUTE = "search_tool", "execute_tool"
LIMIT, NAMES = 10, 100  # how many tools, and how many bare names, one answer has unless it is told
MOST = 1_000
NAME_LENGTH = 600  # characters of a query that may be a name; the longest names are shorter
KEYS_NAMED, KEY_LENGTH = 5, 40  # arguments that are not known which an error repeats, and characters of each

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
    narrowing: Query = field(default_factory=Query)  # the filters, which are understood though they are not listed


@dataclass(slots=True)
class Search(Surface):
    """Lists two tools and the pins, whatever the catalog holds."""

    order: str = "keywords"
    """The order of an approximate answer: by the points (`keywords`), or by the index (`meaning`)."""
    name: str = "search"
    _built: tuple[object, KeywordIndex | None] = (None, None)

    def instructions(self, caller: Caller) -> str:
        """Names the servers within the first 512 characters, as many as fit."""
        tools = self.gateway.view(caller).tools
        servers = sorted({tool.handle.split(".", 1)[0] for tool in tools})
        return search_text(len(tools), servers)

    @property
    def own(self) -> Sequence[JsonObject]:
        """Search and execute."""
        return DEFINITIONS

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of search and execute."""
        return {SEARCH: self._search, EXECUTE: self._execute}.get(name)

    def spell(self, call: NextCall) -> str:
        """The next call as a call of a meta-tool; to describe a tool is to search for its name."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spell_call(EXECUTE, {"tool_name": name, "arguments": call.parameters.get("arguments", {})})
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return spell_call(SEARCH, {"query": listed_name(self.gateway, str(names[0]))})
        return spell_call(SEARCH, {"query": str(call.parameters.get("query", ""))})

    async def _search(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        try:
            question = _read_request(arguments)
            loading = await self.gateway.wait_until_ready()
            if self.order == "meaning":
                await self.gateway.prefetch_embedding(question.text)
            started, view = perf_counter(), self.gateway.view(caller)
            answer, shown = self._answer(view, question)
        except CallError as error:
            return error_result(error, self.spell)
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        result = {**text_result(text), "structuredContent": answer}
        tokens = sampled_tokens(result["content"][0]["text"], self.gateway.counter)
        size = AnswerSize(tokens=tokens, shown=len(shown), total=len(shown), fits=bool(shown))
        found = Findings(hits=tuple(Hit(tool=tool, score=0.0) for tool in shown), fits=bool(shown))
        self.gateway.record_search(view, Query(text=question.text), found, size, since=started)
        if loading:
            result["content"].append(own_block(f"note: still starting: {', '.join(sorted(loading))}"))
        return result

    async def _execute(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return await call_tool(
            self.gateway, caller, arguments, envelope, self.spell, tool=EXECUTE, key="tool_name", example="..."
        )

    def _answer(self, view: CatalogView, question: SearchRequest) -> tuple[Answer, Sequence[Tool]]:
        """One of three kinds of answers, told by the query alone, and the tools that it shows."""
        if not question.text:
            within = self.gateway.narrow(view, question.narrowing)
            tools = [tool for tool in view.tools if tool.id in within]
            return list_all(tools, question.limit or NAMES, question.cursor)
        if (named := self._find_named(view, question.text)) is not None:
            return exact(named), [named]
        if (item := self.gateway.item(view, question.text)) is not None:
            return {"match_type": "exact", "asset": {**_item(item), "full_documentation": told_of(item)}}, []
        found, scores = self._approximate(view, question)
        query = replace(question.narrowing, text=question.text)
        return approximate(found, scores, self.gateway.items_for(view, query)), found

    def _find_named(self, view: CatalogView, text: str) -> Tool | None:
        """The one permitted tool that the whole query is a name of, in any spelling and case."""
        if len(text) > NAME_LENGTH:
            return None
        is_qualified = not any(map(str.isspace, text)) and any(mark in text for mark in SEPARATORS)
        is_name = is_qualified or self._keywords(view.snapshot).names(text, within=view.visible)
        return view.find(text) if is_name else None

    def _approximate(self, view: CatalogView, question: SearchRequest) -> tuple[list[Tool], Mapping[ToolId, float]]:
        """The tools that have points for the words of a query, in the order of the config, and these points."""
        within, keywords = self.gateway.narrow(view, question.narrowing), self._keywords(view.snapshot)
        found = keywords.query(question.text, within=within, limit=len(view.snapshot.tools)).hits
        scores = {hit.tool.id: hit.score for hit in found}
        if self.order == "meaning":
            findings = self.gateway.hits(view, replace(question.narrowing, text=question.text))
            found = findings.hits if findings.fits else ()
        return [hit.tool for hit in found[: question.limit or LIMIT]], scores

    def _keywords(self, snapshot: CatalogSnapshot) -> KeywordIndex:
        """The index of a snapshot; made at its first search, from the last one as far as that still holds."""
        known, index = self._built
        if index is None or known is not snapshot:
            index = build_keyword_index(snapshot, index)
            self._built = (snapshot, index)
        return index


def _read_request(arguments: JsonObject) -> SearchRequest:
    """A search, if each part can be read as what it should be.

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
    """A complaint where a query seems to stand under another name: to list every tool would be no answer to it."""
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
