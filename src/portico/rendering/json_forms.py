"""Tools and categories as compact JSON in falling detail, and a schema in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from portico.domain.disclosure import Level
from portico.domain.learned_schema import shape_line
from portico.domain.server import Packaging, Server
from portico.domain.tool import Category, Tool
from portico.domain.usage import Usage

from .budget import Texts, Variants
from .cards import (
    BRIEF_LENGTH,
    WORDS_LENGTH,
    example_arguments,
    first_sentence,
    followed,
    shape,
    shape_of,
    shortened,
    type_text,
)

RETURNS_LENGTH = 100
"""Characters of what is said about a result."""
WORDS_DEPTH = 4
UNKNOWN = "unknown"

_RETURNS = re.compile(r"(?:^|[.!?]\s+|\n\s*)returns?:?\s+(?=\S)", re.IGNORECASE)
_WRAPPED = re.compile(r"^\{result(?:: (.*))?\}$")
"""How servers wrap what is no object, since the protocol wants one."""
_SAYS_NOTHING = frozenset({"", "any", "any~", "object", "object~", "null"})


def simplify_params(full_schema: Mapping[str, Any]) -> dict[str, str]:
    """Each parameter as `type (required)` or `type (optional)`; a type that is not told is `unknown`.

    Parameters count wherever the schema declares them, and one that is required counts without a declaration too.
    """
    found = shape(full_schema, full_schema)
    required = frozenset(found.required)
    names = [*found.fields, *(name for name in found.required if name not in found.fields)]
    return {
        name: f"{_type(found.fields.get(name), full_schema)} ({'required' if name in required else 'optional'})"
        for name in names
    }


def flat_schema(
    full_schema: Mapping[str, Any], names: Collection[str] | None = None, *, choices: bool = True
) -> dict[str, Any]:
    """A smaller schema of the same arguments: types and choices of the parameters, and nothing nested.

    It allows whatever the full one allows. Where names are given, it declares those parameters only.
    """
    found = shape(full_schema, full_schema)
    every = dict.fromkeys((*found.fields, *found.required))
    shown = [name for name in every if names is None or name in names]
    properties = {name: _flat(found.fields.get(name), full_schema, WORDS_DEPTH, choices) for name in shown}
    required = [name for name in found.required if name in properties]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def returned(tool: Tool) -> str | None:
    """What a tool returns, in a few words: as its output schema or its description says; None when neither does."""
    schema = tool.output_schema
    told = schema.get("description") if schema else None
    if isinstance(told, str) and told.strip():
        return _said(told)
    sentence = _RETURNS.search(tool.description)
    if sentence:
        return _said(tool.description[sentence.end() :])
    spelled = _WRAPPED.sub(r"\1", type_text(schema, schema)) if schema else ""
    return None if spelled in _SAYS_NOTHING else spelled[:RETURNS_LENGTH]


def _said(text: str) -> str:
    """The first sentence of a text, which begins as the text does."""
    found = first_sentence(text, RETURNS_LENGTH)
    return found[:1].lower() + found[1:] if text.lstrip()[:1].islower() else found


def _type(schema: object, root: Mapping[str, Any]) -> str:
    """The declared type; where there is none, what references, choices and branches say."""
    return "|".join(dict.fromkeys(_types(schema, root, WORDS_DEPTH))) or UNKNOWN


def _types(schema: object, root: Mapping[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    schema = followed(schema, root)
    declared = schema.get("type")
    kinds = [kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)]
    if kinds:
        yield from ([kind for kind in kinds if kind != "null"] or kinds)
        return
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        branches = options if isinstance(options, list) else []
        found = [kind for option in branches for kind in _types(option, root, depth - 1)]
        yield from ([kind for kind in found if kind != "null"] or found)
    if "properties" in schema or "items" in schema:
        yield "object" if "properties" in schema else "array"


def _flat(schema: object, root: Mapping[str, Any], depth: int, choices: bool) -> dict[str, Any]:
    """The type of a parameter, and its choices; nothing where it may be of any type."""
    if not isinstance(schema, Mapping) or depth <= 0:
        return {}
    schema = followed(schema, root)
    declared = schema.get("type")
    kinds = declared if isinstance(declared, list) else [declared]
    found: dict[str, Any] = {"type": declared} if kinds and all(isinstance(kind, str) for kind in kinds) else {}
    if choices:
        found |= {"enum": schema["enum"]} if isinstance(schema.get("enum"), list) else {}
        found |= {"const": schema["const"]} if "const" in schema else {}
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if not found and isinstance(options, list):
            found = _either_words([_flat(option, root, depth - 1, choices) for option in options])
    return found


def _either_words(branches: list[dict[str, Any]]) -> dict[str, Any]:
    """Branches as one; nothing where one of them says nothing."""
    if not branches or not all(branches):
        return {}
    if any(branch.keys() != {"type"} for branch in branches):
        return {"anyOf": branches}
    declared = [branch["type"] for branch in branches]
    kinds = dict.fromkeys(kind for one in declared for kind in ([one] if isinstance(one, str) else one))
    return {"type": next(iter(kinds)) if len(kinds) == 1 else list(kinds)}


HOT_LENGTH = 160
"""Characters of a description in the hot list."""
SUMMARY_LENGTH = 120
SHORT_LENGTH = 50
CUT_LENGTH, LONGER_LENGTH = 800, 150
"""Characters of a tool's description, and of a parameter's, where descriptions begin to give way."""
EXAMPLES_SHOWN = 3
FEWER = (2_000, 1_400, 1_000, 700, 500, 350, 250, 180, 130, 90, 60, 40, 20)
"""How many parameters are shown with their types where not even all required ones have room."""
LEARNED_LENGTH = 1_200
"""Letters of a learned schema; of a longer one its line is shown."""
TYPES_SHOWN, NAMES_SHOWN = 40, 8
"""Parameters that are shown where there is no room for all of them."""

Json = dict[str, Any]
Make = Callable[[], Json]


def forms(makes: Sequence[Make]) -> Texts:
    """One thing as JSON in falling detail, the fullest first."""
    last = len(Level) - 1
    return Texts([(Level(max(last - rung, 0)), _written(make)) for rung, make in enumerate(makes)])


def _written(make: Make) -> Callable[[], str]:
    return lambda: orjson.dumps(make()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolForm:
    """A tool with what else is told of it."""

    tool: Tool
    server: Server
    short: str
    """What stands before `::`: the server's alias, or its name."""
    usage: Usage | None = None
    packaging: Packaging = field(default_factory=Packaging)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What a search adds: the score and its parts."""
    learned: Mapping[str, Any] | None = None
    """What its results have looked like, where it does not say so itself."""

    @property
    def name(self) -> str:
        """The tool as `server::tool`."""
        return f"{self.short}::{self.tool.id.name}"

    @property
    def _naming(self) -> Json:
        return {"tool": self.name, "server": self.tool.id.server}

    def _described(self, length: int) -> Json:
        return {**self._naming, "description": first_sentence(self.tool.description or self.tool.title, length)}


def short_name(server: Server, aliases: Mapping[str, str]) -> str:
    """What stands before `::`: the alias of a server as an identifier, or its name."""
    return server.identifier if aliases.get(server.name) else server.name


def hot_forms(shown: ToolForm) -> Variants:
    """A tool in the hot list: names of its parameters, how long it takes, and how often it ends well."""
    usage = shown.usage or Usage()
    measured = {"avg_latency": latency_text(usage.mean_ms), "success_rate": success_text(usage.success)}
    params = parameter_names(shown.tool)
    return _rungs(
        shown,
        lambda: {**shown._described(HOT_LENGTH), "params": params, **measured},
        lambda: {**shown._described(SHORT_LENGTH), "params": params, **measured},
        lambda: {**shown._described(SHORT_LENGTH), **_some_names(shown.tool, "params")},
        lambda: {"tool": shown.name},
    )


def summary_forms(shown: ToolForm) -> Variants:
    """A tool among others of its category or answer: its parameters with their types."""
    tool = shown.tool
    latency = {"avg_latency": latency_text(shown.usage.mean_ms if shown.usage else None)}
    score = {"score": shown.extra["score"]} if "score" in shown.extra else {}

    def typed(length: int) -> Json:
        return {**shown._described(length), "params": simplify_params(tool.input_schema)}

    def full(length: int) -> Json:
        return {**typed(length), "returns": returned(tool) or _learned_line(shown), **latency}

    return _rungs(
        shown,
        lambda: {**full(SUMMARY_LENGTH), **shown.extra},
        lambda: {**full(SHORT_LENGTH), **score},
        lambda: {**typed(SHORT_LENGTH), **score},
        lambda: {**shown._described(SHORT_LENGTH), "params": _needed(tool), **score},
        lambda: {**shown._described(SHORT_LENGTH), **_some_names(tool)},
        lambda: {"tool": shown.name},
    )


def schema_forms(shown: ToolForm) -> Variants:
    """One tool with everything that is known of it, and then with less and less."""
    tool = shown.tool
    brief = first_sentence(tool.description or tool.title, BRIEF_LENGTH)

    def form(description: str, parts: Json) -> Json:
        return {**shown._naming, "description": description, **parts, **_particulars(shown)}

    def whole() -> Json:
        return {"parameters": tool.input_schema, "returns": returns}

    def texts(words: int) -> Json:
        return {"parameters": shortened(tool.input_schema, words)}

    def both(words: int) -> Json:
        return {**texts(words), "returns": shortened(returns, words)}

    def flat(names: Sequence[str], **how: bool) -> Json:
        schema = flat_schema(tool.input_schema, frozenset(names), **how)
        return {**shown._described(SHORT_LENGTH), "parameters": schema, **counted}

    returns = tool.output_schema if tool.output_schema is not None else _learned_schema(shown)
    every, required = _required_first(tool), shape_of(tool).required
    fewer = [count for count in FEWER if count < len(every)]
    counted = {"parameter_count": len(every), "handle": tool.handle}

    return _rungs(
        shown,
        lambda: form(tool.description or tool.title, {**whole(), "examples": examples(tool)}),
        lambda: form(tool.description or tool.title, whole()),
        lambda: form(_cut(tool.description or tool.title), both(LONGER_LENGTH)),
        lambda: form(_cut(tool.description or tool.title), texts(LONGER_LENGTH)),
        lambda: form(brief, both(WORDS_LENGTH)),
        lambda: form(brief, texts(WORDS_LENGTH)),
        lambda: form(brief, texts(0)),
        lambda: flat(every),
        lambda: flat(every[: max(TYPES_SHOWN, len(required))]),
        lambda: flat(required or every[:NAMES_SHOWN]),
        lambda: flat(required or every[:NAMES_SHOWN], choices=False),
        # Not even the required ones have room: as many as have, required ones first.
        *(partial(flat, every[:count], choices=False) for count in fewer),
        lambda: {**shown._naming, "param_names": every, "handle": tool.handle},
        lambda: {"tool": shown.name, **_some_names(tool), "handle": tool.handle},
        lambda: {"tool": shown.name, **counted},
        lambda: {"handle": tool.handle},
    )


def _learned_line(shown: ToolForm) -> str | None:
    """What results have looked like, in a few words."""
    return shape_line(shown.learned, RETURNS_LENGTH) if shown.learned else None


def _learned_schema(shown: ToolForm) -> Mapping[str, Any] | None:
    """The same as a schema; a long one in words."""
    if not shown.learned:
        return None
    is_short = len(orjson.dumps(shown.learned)) <= LEARNED_LENGTH
    return shown.learned if is_short else {"description": shape_line(shown.learned)}


def category_forms(category: Category, tools: int, servers: int, popular: Iterable[str]) -> Variants:
    """A category with what stands on its shelf."""
    named = {"category": category.name, "display_name": category.title}
    counted = {"tool_count": tools, "server_count": servers}
    shown = list(popular)

    def described(length: int) -> Json:
        return {**named, "description": first_sentence(category.description, length), **counted}

    makes: list[Make] = [
        lambda: {**named, "description": category.description, **counted, "popular_tools": shown},
        lambda: {**described(SHORT_LENGTH), "popular_tools": shown},
        lambda: {"category": category.name, **counted},
        lambda: {"category": category.name},
    ]
    return Variants(handle=category.name, texts=forms(makes))


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


def parameter_names(tool: Tool) -> list[str]:
    """Every parameter, in the order of the schema, optional ones too."""
    found = shape_of(tool)
    return list(dict.fromkeys((*found.fields, *found.required)))


def latency_text(ms: float | None) -> str | None:
    """As `47ms`, in whole milliseconds; None when nothing is known."""
    if ms is None:
        return None
    return f"{ms:.0f}ms" if ms >= 1 else "<1ms"


def success_text(success: float | None) -> str | None:
    """As `98.7%`; None when nothing is known."""
    return None if success is None else f"{100 * success:.1f}%"


def performance_words(usage: Usage | None) -> str:
    """How a tool has done, as `(47ms avg, 98.7% success)`; it is said when it was never called."""
    if usage is None or not usage.calls:
        return "(never called)"
    return f"({latency_text(usage.mean_ms)} avg, {success_text(usage.success)} success)"


def performance(usage: Usage | None) -> Json:
    """How a tool has done, in numbers; null where nothing is known."""
    usage = usage or Usage()
    return {
        "avg_latency_ms": _rounded(usage.mean_ms),
        "p50_latency_ms": _rounded(usage.p50_ms),
        "p95_latency_ms": _rounded(usage.p95_ms),
        "success_rate": None if usage.success is None else round(100 * usage.success, 1),
        "total_invocations": usage.calls,
    }


def _particulars(shown: ToolForm) -> Json:
    """What is known of a tool beside its schema."""
    return {
        "performance": performance(shown.usage),
        "server_display_name": shown.server.title or shown.tool.id.server,
        "docker_image": shown.packaging.docker_image or None,
        "network_mode": shown.packaging.network_mode or None,
        "handle": shown.tool.handle,
    }


def _required_first(tool: Tool) -> list[str]:
    return list(dict.fromkeys((*shape_of(tool).required, *parameter_names(tool))))


def _needed(tool: Tool) -> dict[str, str]:
    """Each parameter with nothing but whether it is needed."""
    required = frozenset(shape_of(tool).required)
    return {name: "required" if name in required else "optional" for name in parameter_names(tool)}


def _some_names(tool: Tool, field: str = "param_names") -> Json:
    """The parameters that come first to mind, required ones before others, and how many there are."""
    every = _required_first(tool)
    return {field: every[:NAMES_SHOWN], "parameter_count": len(every)}


def _rounded(ms: float | None) -> float | None:
    if ms is None:
        return None
    return round(ms) if ms >= 1 else round(ms, 1)


def _cut(text: str) -> str:
    return text if len(text) <= CUT_LENGTH else f"{text[:CUT_LENGTH].rsplit(' ', 1)[0]}…"


def _rungs(shown: ToolForm, *makes: Make) -> Variants:
    return Variants(handle=shown.tool.handle, texts=forms(makes))
