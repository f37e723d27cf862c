"""Tools as text: what they are for, parameters, examples, one-line signatures, cards, and the next call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jsonschema_rs
import orjson

from portico.domain.search_answers import Card, Hit, Level, Query
from portico.domain.tool import Tool
from portico.domain.usage_and_tiers import Usage
from portico.errors import NextCall
from portico.execution.schema_cost import count_states, nodes_of, patterns_of
from portico.text.untrusted import fence, json_text

from .budget import Spell, Variants
from .schema_examples import proposals, target

_META_TOOLS = {
    "search": "search_tools",
    "describe": "describe_tools",
    "call": "call_tool",
    "read_result": "read_result",
    "run": "run_script",
}


def as_meta_tool(call: NextCall) -> str:
    """A call of one of the meta-tools; whatever they cannot do begins with the map."""
    if call.action not in _META_TOOLS:
        return spell_call("search_tools", {"query": ""})
    return spell_call(_META_TOOLS[call.action], call.parameters)


def spell_call(tool: str, arguments: Mapping[str, Any]) -> str:
    """A tool with its arguments as JSON."""
    return f"{tool}({json.dumps(dict(arguments), ensure_ascii=False, default=str)})"


PURPOSE_LENGTH = 90
LONGEST = 1_000  # characters of a description in which its first sentence is looked for

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?:[.!?](?= )| -(?= ))")
_SHORTEST = 15  # a first sentence below this length says too little alone
_SECTION = re.compile(r"[-*#•>] |```|\d+[.)] |[A-Z][\w ]{0,24}:$")
"""The beginning of a line that is no part of a sentence: a list, a heading, `Args:`."""
_LABEL = re.compile(r"^([\w .-]{1,30}?) ?\| (?=\w)")
_OPENING = re.compile(
    r"^(?:this tool |(?:a |the )?tool (?:to |for |that )|use this (?:tool )?to )(?=\w)", re.IGNORECASE
)
_ASIDE = re.compile(r" \([^()]*\)")
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]")
_EMPTY_WORDS = frozenset(
    "a an the of in to for from on by with and or as its your this that it new existing specific specified given single"
    " one all provided".split()
)


def purpose(tool: Tool, limit: int = PURPOSE_LENGTH) -> str:
    """The first sentence of a tool's description; empty when it says no more than the tool's name."""
    return _purpose(tool.handle, tool.description or tool.title, limit)


@lru_cache(maxsize=4_096)
def _purpose(handle: str, text: str, limit: int) -> str:
    text = _first_paragraph(text)
    label = _LABEL.match(text)
    if label and _repeats(handle, label[1]):
        text = text[label.end() :]
    line = _sentence(text, limit)
    return "" if _repeats(handle, line) else line


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a text, on one line; a long one loses its asides, then it is cut at a word."""
    return _sentence(_first_paragraph(text), limit)


def _sentence(line: str, limit: int) -> str:
    line = _OPENING.sub("", line, count=1)
    end = next((found for found in _SENTENCE_END.finditer(line) if found.start() >= _SHORTEST), None)
    line = (line[: end.start()] if end else line).removesuffix(".")
    if len(line) > limit:
        line = _ASIDE.sub("", line)
    if len(line) > limit:
        line = f"{line[:limit].rsplit(' ', 1)[0].rstrip(' ,;:(')}…"
    return line[:1].upper() + line[1:]


def _first_paragraph(text: str) -> str:
    """The lines of the first paragraph up to a list or a heading, as one line of printable characters."""
    taken: list[str] = []
    for line in text.strip()[:LONGEST].splitlines():
        line = " ".join(line.split())
        if taken and (not line or _SECTION.match(line)):
            break
        if line:
            taken.append(line if taken else line.lstrip("#* "))
    found = " ".join(taken)
    return found if found.isprintable() else "".join(filter(str.isprintable, found))


def _repeats(handle: str, text: str) -> bool:
    """Whether a text has no word beyond those of a handle; `GitHub` is one word, or its two parts."""
    known = _KNOWN | {_stem(part) for word in _WORD.findall(handle) for part in (word, *_PART.findall(word))}
    words = _WORD.findall(text)
    return all(_stem(word) in known or {_stem(part) for part in _PART.findall(word)} <= known for word in words)


def _stem(word: str) -> str:
    """Without the endings that tell `Creates issues` from `create_issue`."""
    word = word.casefold()
    word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word
    return word.removesuffix("s").removesuffix("e") if len(word) > 3 else word


_KNOWN = frozenset(map(_stem, _EMPTY_WORDS))


DEPTH = 8  # how many references and branches are followed one into the other

BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "dependentSchemas", "dependentRequired", "$dynamicRef")
_ELSEWHERE = frozenset({"$ref", "allOf", *BRANCHES, *_CONDITIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFields:
    """The fields of an object."""

    fields: Mapping[str, Any]  # every declared field with its schema, in the order of declaration
    required: tuple[str, ...] = ()  # what every value must have, declared or not
    either: tuple[str, ...] = ()  # what some branch asks for and another does not
    is_whole: bool = True  # whether that is all there is to know: no conditions, and nothing that could not be followed

    @property
    def names(self) -> list[str]:
        """Every field, in the order of declaration."""
        return list(dict.fromkeys((*self.fields, *self.required)))


def argument_fields(tool: Tool) -> ObjectFields:
    """The fields of a tool's arguments."""
    return object_fields(tool.input_schema, tool.input_schema)


def object_fields(schema: object, root: Mapping[str, Any], depth: int = 0) -> ObjectFields:
    """The fields that a schema gives an object, with references followed and branches laid over each other."""
    if not isinstance(schema, Mapping):
        return ObjectFields(fields={}, is_whole=schema is True)
    if depth > DEPTH:
        return ObjectFields(fields={}, is_whole=False)
    if _ELSEWHERE.isdisjoint(schema):
        return _declared_fields(schema)
    parts = [_declared_fields(schema), *(object_fields(part, root, depth + 1) for part in _all_of(schema, root))]
    parts += [
        _either(object_fields(option, root, depth + 1) for option in options)
        for keyword in BRANCHES
        if isinstance(options := schema.get(keyword), list) and options
    ]
    parts += [
        _either((object_fields(schema[key], root, depth + 1), _NOTHING)) for key in ("then", "else") if key in schema
    ]
    required = tuple(dict.fromkeys(name for part in parts for name in part.required))
    either = dict.fromkeys(name for part in parts for name in part.either if name not in required)
    return ObjectFields(
        fields=_overlay(part.fields for part in parts),
        required=required,
        either=tuple(either),
        is_whole=schema.keys().isdisjoint(_CONDITIONS) and all(part.is_whole for part in parts),
    )


def follow(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """A schema in the place of a reference to it, and as one where `allOf` gives it in parts."""
    if ("$ref" not in schema and "allOf" not in schema) or depth > DEPTH:
        return schema
    parts = [part for part in _all_of(schema, root) if isinstance(part, Mapping)]
    if not parts:
        return schema
    found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    for part in parts:
        for key, value in follow(part, root, depth + 1).items():
            found.setdefault(key, value)
    return found


_NOTHING = ObjectFields(fields={})


def _declared_fields(schema: Mapping[str, Any]) -> ObjectFields:
    fields, required = schema.get("properties"), schema.get("required")
    return ObjectFields(
        fields=fields if isinstance(fields, Mapping) else {},
        required=tuple(dict.fromkeys(n for n in required if isinstance(n, str))) if isinstance(required, list) else (),
    )


def _all_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[object]:
    """Schemas that hold beside this one: the target of its reference, and every part of `allOf`."""
    if "$ref" in schema:
        yield target(schema["$ref"], root)
    parts = schema.get("allOf")
    yield from parts if isinstance(parts, list) else ()


def _either(branches: Iterable[ObjectFields]) -> ObjectFields:
    """Branches of which one holds: what all of them ask for is required."""
    found = list(branches)
    always = [name for name in found[0].required if all(name in branch.required for branch in found)]
    asked = dict.fromkeys(name for branch in found for name in (*branch.required, *branch.either))
    either = tuple(name for name in asked if name not in always)
    return ObjectFields(
        fields=_overlay(branch.fields for branch in found),
        required=tuple(always),
        either=either,
        is_whole=not either and all(branch.is_whole for branch in found),
    )


def _overlay(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of several declarations as one; a field that they declare differently may be any of these."""
    found: dict[str, list[Any]] = {}
    for layer in layers:
        for name, schema in layer.items():
            declared = found.setdefault(name, [])
            if schema not in declared:
                declared.append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}


TOOLS_KEPT = 2_000
SCHEMA_OBJECTS, SCHEMA_PATTERNS, PATTERN_STATES = 1_500, 100, 10_000
"""Objects and patterns of a schema that examples are checked against; a larger one would take long to compile."""

_examples: dict[int, tuple[Tool, dict[str, Any] | None]] = {}


def example_arguments(tool: Tool) -> dict[str, Any] | None:
    """Arguments that a call of the tool would pass with: its required parameters; None where none could be found."""
    kept = _examples.get(id(tool))
    if kept is None or kept[0] is not tool:
        if len(_examples) >= TOOLS_KEPT:
            _examples.clear()
        kept = _examples[id(tool)] = (tool, _find_example(tool.input_schema))
    return kept[1]


def example_value(schema: object, root: Mapping[str, Any] | None = None) -> Any:
    """A value that fits a schema as far as one can tell without checking it; references lead into `root`."""
    return next(proposals(schema, root), "...") if isinstance(schema, Mapping) else "..."


def _find_example(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    validator = _validator(schema)
    for value in proposals({"type": "object", **schema}, schema):
        try:
            if isinstance(value, dict) and (validator is None or validator.is_valid(value)):
                return value
        except (ValueError, RecursionError):
            continue
    return None


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """A validator for examples; None where that would take long, or where nothing can be checked."""
    try:
        text = orjson.dumps(schema)
        patterns = text.count(b'"pattern')
        if text.count(b"{") > SCHEMA_OBJECTS or patterns > SCHEMA_PATTERNS:
            return None
        if patterns and sum(count_states(p) for node in nodes_of(schema) for p in patterns_of(node)) > PATTERN_STATES:
            return None
        return jsonschema_rs.validator_for(dict(schema), offline=True)
    except (TypeError, ValueError, jsonschema_rs.ReferencingError):
        return None


OPTIONAL_SHOWN = 8
ALSO_NAMED = 2  # tools of other servers that a hit names which do practically the same
OPTIONAL_NAME_LENGTH = 64
LIST_LENGTH = 480
"""Characters of a parameter list; a longer one loses types, and optional parameters, but no required one."""
CHOICES_SHOWN = 6
CHOICE_LENGTH = 60
FIELDS_SHOWN = 6
OBJECT_LENGTH = 120
INNER_LENGTH = 48
"""Characters of an object, and of one inside a list, a union or another object; a longer one shows fewer fields."""
UNION_LENGTH = 60
UNION_SHOWN = 5
DEFAULT_LENGTH = 6

_PLAIN = 3  # the depth at which an object is not spelled out at all
_DEEPEST = 5
TYPES_DEPTH = 4  # branches inside branches in which a type is looked for
_KIND_OF: Mapping[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_BRACES = re.compile(r"\{.*?\}")
_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})
_SAY_NOTHING = frozenset({"description", "title", "default", "examples", "$comment", "deprecated"})
_ORDINARY = re.compile(r"[^\s,:;?~=|(){}\[\]\"]+")


def signature(tool: Tool, *, optional: int = OPTIONAL_SHOWN, words: int = PURPOSE_LENGTH) -> str:
    """`server.tool(a, b?: integer) [write] What it does`."""
    return _line(tool, parameters(tool, optional=optional), words)


def summary_line(tool: Tool) -> str:
    """A signature without its parameters: `server.tool(~) [write] What it does`."""
    found = argument_fields(tool)
    return _line(tool, "~" if found.names or not found.is_whole else "", PURPOSE_LENGTH)


def _line(tool: Tool, listed: str, words: int) -> str:
    line = purpose(tool, words)
    return f"{tool.handle}({listed}) [{tool.effect}]" + (f" {line}" if line else "")


def hit_line(hit: Hit, query: Query, usage: Mapping[Any, Usage]) -> Variants:
    """A hit as one line, with where else it is; whoever asks for fast or good ones is told how it has done."""
    card = variants_of(hit.tool, Level.PARAMETERS)
    words = [performance_words(usage.get(hit.tool.id))] if query.max_latency_ms or query.min_success else []
    if hit.copies:
        left = len(hit.copies) - ALSO_NAMED
        words.append(f"also: {', '.join((*hit.also[:ALSO_NAMED], *([f'+{left}'] if left > 0 else [])))}")
    return card.edit(lambda text: " ".join((text, *words))) if words else card


def parameters(tool: Tool, *, optional: int = OPTIONAL_SHOWN) -> str:
    """The parameter list of a signature, required ones first, each group in the schema's order.

    A list that would be too long loses the insides of objects and most optional parameters, then all types.
    """
    found, root = argument_fields(tool), tool.input_schema
    for shown, depth in ((optional, 0), (min(optional, 3), _PLAIN)):
        text = ", ".join(_list_fields(found, root, shown, depth))
        if len(text) <= LIST_LENGTH:
            return text
    return ", ".join([*map(_name, found.required), *(f"{_name(name)}?" for name in found.either), "~"])


def type_text(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """A parameter's type in a few characters."""
    if schema is None or schema is True:
        return "any"
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any~"
    schema = follow(schema, root)
    if "const" in schema:
        return _choices([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _choices(schema["enum"])
    for keyword in BRANCHES:
        if isinstance(schema.get(keyword), list) and "properties" not in schema:
            return _union(type_text(option, root, depth + 1) for option in schema[keyword])
    return _plain_type(schema, root, depth)


def type_names(schema: object, root: Mapping[str, Any], *, choices: bool = False) -> list[str]:
    """The types that a schema allows, as far as it tells; null only where nothing else is allowed.

    With `choices`, a type that is not declared is that of the values that are.
    """
    found = dict.fromkeys(_types(schema, root, TYPES_DEPTH, choices))
    return [kind for kind in found if kind != "null"] or list(found)


def _types(schema: object, root: Mapping[str, Any], depth: int, choices: bool) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth <= 0:
        return
    schema = follow(schema, root)
    declared = schema.get("type")
    kinds = [kind for kind in (declared if isinstance(declared, list) else [declared]) if isinstance(kind, str)]
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not kinds and choices and isinstance(values, list):
        kinds = [_KIND_OF[type(value)] for value in values]
    if kinds:
        yield from kinds
        return
    for keyword in BRANCHES:
        options = schema.get(keyword)
        for option in options if isinstance(options, list) else ():
            yield from _types(option, root, depth - 1, choices)
    if "properties" in schema or "items" in schema:
        yield "object" if "properties" in schema else "array"


def _list_fields(found: ObjectFields, root: Mapping[str, Any], optional: int, depth: int) -> Iterator[str]:
    """Required parameters, those that a branch asks for, and as many others as there is room for."""
    for name in found.required:
        yield _field(name, "", type_text(found.fields.get(name), root, depth))
    for name in found.either:
        yield _field(name, "?", type_text(found.fields.get(name), root, depth))
    needed = frozenset((*found.required, *found.either))
    others = [name for name in found.fields if name not in needed]
    shown = [name for name in others if len(name) <= OPTIONAL_NAME_LENGTH][:optional]
    yield from (_optional(name, found.fields[name], root, depth) for name in shown)
    if len(shown) < len(others) or not found.is_whole:
        yield "~"


def _optional(name: str, schema: object, root: Mapping[str, Any], depth: int) -> str:
    """An optional parameter; a number or switch with a default needs no type beside it."""
    kind = type_text(schema, root, depth)
    if kind in ("integer", "number", "boolean") and isinstance(schema, Mapping):
        default = follow(schema, root).get("default")
        if isinstance(default, int | float) and len(shown := json.dumps(default)) <= DEFAULT_LENGTH:
            return f"{_name(name)}={shown}"
    return _field(name, "?", kind)


def _field(name: str, mark: str, kind: str) -> str:
    return f"{_name(name)}{mark}" if kind == "string" else f"{_name(name)}{mark}: {kind}"


def _name(name: str) -> str:
    """A name from outside keeps the line whole and readable: one with signs of our own in it is quoted."""
    return name if _ORDINARY.fullmatch(name) and name.isprintable() else _quote(name)


def _quote(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def _plain_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        kinds = [kind for kind in declared if isinstance(kind, str) and kind != "null"]
        return _union(_plain_type({**schema, "type": kind}, root, depth) for kind in kinds)
    if declared == "array":
        inner = type_text(schema.get("items"), root, depth + 1)
        return f"({inner})[]" if "|" in _BRACES.sub("", inner) else f"{inner}[]"
    if declared == "object" or "properties" in schema:
        return _object(object_fields(schema, root), root, depth)
    if isinstance(declared, str):
        return declared if declared in _KINDS else "any~"
    return "any" if schema.keys() <= _SAY_NOTHING else "any~"


def _object(found: ObjectFields, root: Mapping[str, Any], depth: int) -> str:
    """An object with its fields: those of which it must have them all, or it is only called an object."""
    if not found.names:
        return "object" if found.is_whole else "object~"
    needed = len(found.required) + len(found.either)
    if depth < _PLAIN:
        for optional in range(FIELDS_SHOWN - needed, -1, -1):
            text = "{" + ", ".join(_list_fields(found, root, optional, depth + 1)) + "}"
            if text != "{~}" and len(text) <= (INNER_LENGTH if depth else OBJECT_LENGTH):
                return text
    return "object~"


def _union(kinds: Iterable[str]) -> str:
    """The types of a union, each once; that a value may also be null is left unsaid."""
    return _as_many([kind for kind in dict.fromkeys(kinds) if kind != "null"], UNION_SHOWN, UNION_LENGTH) or "null"


def _choices(values: list[Any]) -> str:
    """The values that are allowed, but for null; only as many are spelled as can be shown."""
    given = [value for value in values if value is not None]
    return _as_many([_choice(value) for value in given[: CHOICES_SHOWN + 1]], CHOICES_SHOWN, CHOICE_LENGTH) or "null"


def _choice(value: object) -> str:
    if len(text := _quote(value)) <= CHOICE_LENGTH:
        return text
    return f"{_quote(f'{value[:CHOICE_LENGTH]}…')}~" if isinstance(value, str) else "any~"


def _as_many(options: Sequence[str], most: int, length: int) -> str:
    """Options as far as they fit; the first is always there."""
    shown, room = list(options[:1]), length - len(options[0]) if options else 0
    for option in options[1:most]:
        room -= len(option) + 1
        if room < 0:
            break
        shown.append(option)
    return "|".join([*shown, *(["~"] if len(shown) < len(options) else [])])


def latency_text(ms: float | None) -> str | None:
    """As `47ms`, in whole milliseconds; None when nothing is known."""
    if ms is None:
        return None
    return f"{ms:.0f}ms" if ms >= 1 else "<1ms"


def success_text(success: float | None) -> str | None:
    """As `98.7%`; None when nothing is known."""
    return None if success is None else f"{100 * success:.1f}%"


def performance_words(usage: Usage | None) -> str:
    """Latency and success of a tool, as `(47ms avg, 98.7% success)`; it is said when it was never called."""
    if usage is None or not usage.calls:
        return "(never called)"
    return f"({latency_text(usage.mean_ms)} avg, {success_text(usage.success)} success)"


BRIEF_LENGTH = 200  # characters of a tool's description where descriptions are short
WORDS_LENGTH = 60  # characters of a parameter's description where descriptions are short

_WORDY = frozenset({"title", "examples", "$comment", "markdownDescription", "enumDescriptions"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired"})


def card(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Card:
    """A tool at one level: 0 its handle, 1 a summary line, 2 a signature, 3 everything."""
    return variants_of(tool, level, spell).card(0)


def variants_of(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Variants:
    """A tool from one level down to its handle.

    From everything it falls to no example, short descriptions, types only, a signature and a summary line. One line
    among others loses optional parameters and words before the rest of its parameters.
    """
    steps: list[tuple[Level, Callable[[], str]]] = [
        (Level.SUMMARY, partial(summary_line, tool)),
        (Level.NAME, lambda: tool.handle),
    ]
    if level is Level.FULL:
        lower = [
            (Level.FULL, partial(_without_example, tool)),
            (Level.FULL, partial(_brief, tool, "texts shortened", WORDS_LENGTH)),
            (Level.FULL, partial(_brief, tool, "texts left out", 0)),
            (Level.PARAMETERS, partial(signature, tool)),
            steps[0],
        ]
        # Whoever asks for everything is told when there is less.
        cut = [(step, lambda render=render: f"{render()}\n(shortened to fit)") for step, render in lower]
        steps = [(level, partial(_whole, tool, spell)), *cut, steps[1]]
    elif level is Level.PARAMETERS:
        shorter = ((OPTIONAL_SHOWN, PURPOSE_LENGTH), (3, 60), (0, 40))
        steps = [(level, partial(signature, tool, optional=some, words=words)) for some, words in shorter] + steps
    return Variants(handle=tool.handle, texts=[step for step in steps if step[0] <= level])


def shorten_schema(schema: Any, words: int = 0, *, names: bool = False) -> Any:
    """A schema with types, names and choices, its descriptions cut to so many characters; `names` says what keys are.

    Prose beside the descriptions is left out. Values that a schema quotes stay as they are.
    """
    if isinstance(schema, list):
        return [shorten_schema(value, words) for value in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, value in schema.items():
        if names or not (key in _DATA or key in _WORDY or key == "description"):
            found[key] = shorten_schema(value, words, names=not names and key in _NAMED)
        elif key in _DATA:
            found[key] = value
        elif key == "description" and isinstance(value, str) and words:
            found[key] = first_sentence(value, words)
    return found


def _whole(tool: Tool, spell: Spell) -> str:
    arguments = example_arguments(tool)
    example = "none could be made; write the arguments by the schema"
    if arguments is not None:
        example = spell(NextCall("call", {"name": tool.handle, "arguments": arguments}))
    output = f"returns: {as_json_text(tool.output_schema)}\n" if tool.output_schema else ""
    return f"{_without_example(tool)}\n{output}example: {example}"


def _without_example(tool: Tool) -> str:
    return f"{_head(tool, tool.description)}\nparameters: {as_json_text(tool.input_schema)}"


def _brief(tool: Tool, note: str, words: int) -> str:
    schema = as_json_text(shorten_schema(tool.input_schema, words))
    return f"{_head(tool, first_sentence(tool.description, BRIEF_LENGTH))}\nparameters ({note}): {schema}"


def _head(tool: Tool, description: str) -> str:
    """Name and effect, and below them what the tool says of itself, which is not ours."""
    head, said = f"## {tool.handle} [{tool.effect}]", fence(description)
    return f"{head}\n{said}" if said else head


def as_json_text(value: Any) -> str:
    """A value from outside as JSON within a text of ours."""
    return json_text(orjson.dumps(value).decode())
