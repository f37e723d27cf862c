"""Tools and categories as compact JSON in falling detail, and a schema in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from portico.domain.search_answers import Level
from portico.domain.server import Packaging
from portico.domain.tool import Category, Tool
from portico.domain.usage_and_tiers import Usage
from portico.rendering.budget import Variants
from portico.rendering.cards import (
    BRANCHES,
    BRIEF_LENGTH,
    WORDS_LENGTH,
    argument_fields,
    example_arguments,
    first_sentence,
    follow,
    latency_text,
    object_fields,
    shorten_schema,
    success_text,
    type_names,
    type_text,
)
from portico.results.result_schema import shape_line

RETURNS_LENGTH = 100  # characters of what is said about a result
DEPTH = 4

_RETURNS = re.compile(r"(?:^|[.!?]\s+|\n\s*)returns?:?\s+(?=\S)", re.IGNORECASE)
_WRAPPED = re.compile(r"^\{result(?:: (.*))?\}$")  # how servers wrap what is no object, since the protocol wants one
_SAYS_NOTHING = frozenset({"", "any", "any~", "object", "object~", "null"})

Json = dict[str, Any]


def simplify_params(full_schema: Mapping[str, Any]) -> dict[str, str]:
    """Each parameter as `type (required)` or `type (optional)`; a type that is not told is `unknown`.

    Parameters count wherever the schema declares them, and one that is required counts without a declaration too.
    """
    found = object_fields(full_schema, full_schema)
    required = frozenset(found.required)
    kinds = {name: "|".join(type_names(found.fields.get(name), full_schema)) or "unknown" for name in found.names}
    return {name: f"{kind} ({'required' if name in required else 'optional'})" for name, kind in kinds.items()}


def flat_schema(full_schema: Mapping[str, Any], names: Collection[str] | None = None, *, choices: bool = True) -> Json:
    """A smaller schema of the same arguments: types and choices of the parameters, and nothing nested.

    It allows whatever the full one allows. Where names are given, it declares those parameters only.
    """
    found = object_fields(full_schema, full_schema)
    shown = [name for name in found.names if names is None or name in names]
    properties = {name: _flat(found.fields.get(name), full_schema, DEPTH, choices) for name in shown}
    required = [name for name in found.required if name in properties]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _flat(schema: object, root: Mapping[str, Any], depth: int, choices: bool) -> Json:
    """The type of a parameter, and its choices; nothing where it may be of any type."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return {}
    schema = follow(schema, root)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    found: Json = {"type": declared} if kinds and all(isinstance(kind, str) for kind in kinds) else {}
    if choices:
        found |= {"enum": schema["enum"]} if isinstance(schema.get("enum"), list) else {}
        found |= {"const": schema["const"]} if "const" in schema else {}
    for keyword in BRANCHES:
        options = schema.get(keyword)
        if not found and isinstance(options, list):
            found = _either([_flat(option, root, depth - 1, choices) for option in options])
    return found


def _either(branches: list[Json]) -> Json:
    """Branches as one; nothing where one of them says nothing."""
    if not branches or not all(branches):
        return {}
    if any(branch.keys() != {"type"} for branch in branches):
        return {"anyOf": branches}
    declared = [branch["type"] for branch in branches]
    kinds = dict.fromkeys(kind for one in declared for kind in ([one] if isinstance(one, str) else one))
    return {"type": next(iter(kinds)) if len(kinds) == 1 else list(kinds)}


def result_words(tool: Tool) -> str | None:
    """The result of a tool in a few words: as its output schema or its description says; None when neither does."""
    schema = tool.output_schema
    told = schema.get("description") if schema else None
    if not isinstance(told, str) or not told.strip():
        sentence = _RETURNS.search(tool.description)
        told = tool.description[sentence.end() :] if sentence else ""
    if told:
        found = first_sentence(told, RETURNS_LENGTH)
        # It begins as the text does.
        return found[:1].lower() + found[1:] if told.lstrip()[:1].islower() else found
    spelled = _WRAPPED.sub(r"\1", type_text(schema, schema)) if schema else ""
    return None if spelled in _SAYS_NOTHING else spelled[:RETURNS_LENGTH]


def examples(tool: Tool) -> list[Json]:
    """Calls of a tool: those that its schema gives, or one that is made from it."""
    given = tool.input_schema.get("examples")
    told = [value for value in given if isinstance(value, Mapping)] if isinstance(given, list) else []
    if told:
        return [{"query": value, "description": "As the server gives it"} for value in told[:EXAMPLES_SHOWN]]
    query = example_arguments(tool)
    if query is None:
        return []
    says = "Needs no arguments" if not query else "The required parameters, with values to be replaced"
    return [{"query": query, "description": says}]


def performance(usage: Usage | None) -> Json:
    """Calls of a tool so far, in numbers; null where nothing is known."""
    usage = usage or Usage()
    rounded = {
        name: None if ms is None else round(ms) if ms >= 1 else round(ms, 1)
        for name, ms in (("avg", usage.mean_ms), ("p50", usage.p50_ms), ("p95", usage.p95_ms))
    }
    return {
        **{f"{name}_latency_ms": ms for name, ms in rounded.items()},
        "success_rate": None if usage.success is None else round(100 * usage.success, 1),
        "total_invocations": usage.calls,
    }


HOT_LENGTH = 160  # characters of a description in the hot list
SUMMARY_LENGTH = 120
SHORT_LENGTH = 50
ALSO_SHOWN = 3  # tools of other servers that are named in a short form
CUT_LENGTH, LONGER_LENGTH = 800, 150
"""Characters of a tool's description, and of a parameter's, where descriptions begin to give way."""
EXAMPLES_SHOWN = 3
FEWER = (2_000, 1_400, 1_000, 700, 500, 350, 250, 180, 130, 90, 60, 40, 20)
"""Numbers of parameters that are shown with their types where not even all required ones have room."""
LEARNED_LENGTH = 1_200  # letters of a learned schema; of a longer one its line is shown
TYPES_SHOWN, NAMES_SHOWN = 40, 8  # parameters that are shown where there is no room for all of them


def json_variants(handle: str, *makes: Callable[[], Any]) -> Variants:
    """One thing as JSON in falling detail, the fullest first."""

    def write(make: Callable[[], Any]) -> str:
        return orjson.dumps(make()).decode()

    full = len(Level) - 1
    texts = [(Level(max(full - step, 0)), partial(write, make)) for step, make in enumerate(makes)]
    return Variants(handle=handle, texts=texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForms:
    """A tool with what else is told of it, as JSON of each tier."""

    tool: Tool
    name: str  # the tool as `server::tool`
    server_title: str = ""
    usage: Usage = field(default_factory=Usage)
    packaging: Packaging = field(default_factory=Packaging)
    extra: Mapping[str, Any] = field(default_factory=dict)  # what a search adds: the score and its parts
    learned: Mapping[str, Any] | None = None  # what its results have looked like, where it does not say so itself

    def hot(self) -> Variants:
        """The tool in the hot list: names of its parameters, how long it takes, and how often it ends well."""
        measured = {
            "params": argument_fields(self.tool).names,
            "avg_latency": latency_text(self.usage.mean_ms),
            "success_rate": success_text(self.usage.success),
        }
        return json_variants(
            self.tool.handle,
            lambda: {**self._describe(HOT_LENGTH), **measured},
            lambda: {**self._describe(SHORT_LENGTH), **measured},
            lambda: {**self._describe(SHORT_LENGTH), **self._some_names("params")},
            lambda: {"tool": self.name},
        )

    def summary(self) -> Variants:
        """The tool among others of its category or answer: its parameters with their types."""
        tool = self.tool
        score = {"score": self.extra["score"], "also": self.extra["also"][:ALSO_SHOWN]} if self.extra else {}

        def typed(length: int) -> Json:
            return {**self._describe(length), "params": simplify_params(tool.input_schema)}

        def full(length: int) -> Json:
            line = shape_line(self.learned, RETURNS_LENGTH) if self.learned else None
            returns, latency = result_words(tool) or line, latency_text(self.usage.mean_ms)
            return {**typed(length), "returns": returns, "avg_latency": latency}

        def needed() -> Json:
            found = argument_fields(tool)
            required = frozenset(found.required)
            return {name: "required" if name in required else "optional" for name in found.names}

        return json_variants(
            tool.handle,
            lambda: {**full(SUMMARY_LENGTH), **self.extra},
            lambda: {**full(SHORT_LENGTH), **score},
            lambda: {**typed(SHORT_LENGTH), **score},
            lambda: {**self._describe(SHORT_LENGTH), "params": needed(), **score},
            lambda: {**self._describe(SHORT_LENGTH), **self._some_names()},
            lambda: {"tool": self.name},
        )

    def schema(self) -> Variants:
        """The tool with everything that is known of it, and then with less and less."""
        tool, handle = self.tool, {"handle": self.tool.handle}
        text = tool.description or tool.title
        cut = text if len(text) <= CUT_LENGTH else f"{text[:CUT_LENGTH].rsplit(' ', 1)[0]}…"
        brief = first_sentence(text, BRIEF_LENGTH)
        returns = tool.output_schema if tool.output_schema is not None else self._learned_schema()
        every, required = self._required_first(), argument_fields(tool).required
        some, counted = required or every[:NAMES_SHOWN], {"parameter_count": len(every), **handle}

        def form(description: str, parts: Json) -> Json:
            return {**self._naming, "description": description, **parts, **self._particulars()}

        def whole() -> Json:
            return {"parameters": tool.input_schema, "returns": returns}

        def texts(words: int) -> Json:
            return {"parameters": shorten_schema(tool.input_schema, words)}

        def both(words: int) -> Json:
            return {**texts(words), "returns": shorten_schema(returns, words)}

        def flat(names: Sequence[str], **how: bool) -> Json:
            parameters = flat_schema(tool.input_schema, frozenset(names), **how)
            return {**self._describe(SHORT_LENGTH), "parameters": parameters, **counted}

        return json_variants(
            tool.handle,
            lambda: form(text, {**whole(), "examples": examples(tool)}),
            lambda: form(text, whole()),
            lambda: form(cut, both(LONGER_LENGTH)),
            lambda: form(cut, texts(LONGER_LENGTH)),
            lambda: form(brief, both(WORDS_LENGTH)),
            lambda: form(brief, texts(WORDS_LENGTH)),
            lambda: form(brief, texts(0)),
            lambda: flat(every),
            lambda: flat(every[: max(TYPES_SHOWN, len(required))]),
            lambda: flat(some),
            lambda: flat(some, choices=False),
            # Not even the required ones have room: as many as have, required ones first.
            *(partial(flat, every[:count], choices=False) for count in FEWER if count < len(every)),
            lambda: {**self._naming, "param_names": every, **handle},
            lambda: {"tool": self.name, **self._some_names(), **handle},
            lambda: {"tool": self.name, **counted},
            lambda: handle,
        )

    @property
    def _naming(self) -> Json:
        return {"tool": self.name, "server": self.tool.id.server}

    def _describe(self, length: int) -> Json:
        return {**self._naming, "description": first_sentence(self.tool.description or self.tool.title, length)}

    def _required_first(self) -> list[str]:
        found = argument_fields(self.tool)
        return list(dict.fromkeys((*found.required, *found.names)))

    def _some_names(self, field: str = "param_names") -> Json:
        """The parameters that come first to mind, required ones before others, and how many there are."""
        every = self._required_first()
        return {field: every[:NAMES_SHOWN], "parameter_count": len(every)}

    def _learned_schema(self) -> Mapping[str, Any] | None:
        """The learned schema of the results; a long one in words."""
        if not self.learned:
            return None
        is_short = len(orjson.dumps(self.learned)) <= LEARNED_LENGTH
        return self.learned if is_short else {"description": shape_line(self.learned)}

    def _particulars(self) -> Json:
        return {
            "performance": performance(self.usage),
            "server_display_name": self.server_title or self.tool.id.server,
            "docker_image": self.packaging.docker_image or None,
            "network_mode": self.packaging.network_mode or None,
            "handle": self.tool.handle,
        }


def category_forms(category: Category, tools: int, servers: int, popular: Iterable[str]) -> Variants:
    """A category with the number of its tools and servers, and its best tools."""
    named = {"category": category.name, "display_name": category.title}
    counted, shown = {"tool_count": tools, "server_count": servers}, list(popular)
    short = {**named, "description": first_sentence(category.description, SHORT_LENGTH), **counted}
    return json_variants(
        category.name,
        lambda: {**named, "description": category.description, **counted, "popular_tools": shown},
        lambda: {**short, "popular_tools": shown},
        lambda: {"category": category.name, **counted},
        lambda: {"category": category.name},
    )
