"""Tools as text: summaries, parameters, examples, one-line signatures, cards, and the next call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import unquote

import jsonschema_rs
import orjson

from portico.domain.disclosure import Card, Level
from portico.domain.foreign_text import fence, json_text
from portico.domain.patterns import count_states, nodes_of, patterns_of
from portico.domain.schema_values import proposals
from portico.domain.tool import Tool
from portico.errors import NextCall

from .budget import Texts, Variants

Spell = Callable[[NextCall], str]
"""How a surface words the call that would move its caller on."""

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
        return spelled("search_tools", {"query": ""})
    return spelled(_META_TOOLS[call.action], call.parameters)


def spelled(tool: str, arguments: Mapping[str, Any]) -> str:
    """A tool with its arguments as JSON."""
    return f"{tool}({json.dumps(dict(arguments), ensure_ascii=False, default=str)})"


SUMMARY_LENGTH = 200
"""Characters of a line that are kept: some descriptions are one line of thousands."""

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
            return _cut(line)
    return ""


def _is_header(line: str) -> bool:
    """Whether a line opens a section; a sentence that ends with a colon does not."""
    bare = line.strip("*#_ ")
    if not bare.endswith(":"):
        return False
    name = bare.rstrip(":*_ ").casefold()
    return " " not in name or name in HEADERS


def _cut(line: str) -> str:
    if len(line) <= SUMMARY_LENGTH:
        return line
    kept = line[: SUMMARY_LENGTH - 1]
    return f"{(kept.rsplit(' ', 1)[0] or kept).rstrip(' ,;:')}…"


PURPOSE_LENGTH = 90

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?:[.!?](?= )| -(?= ))")
LONGEST = 1_000
"""Characters of a description in which its first sentence is looked for."""
_SHORTEST = 15
"""A first sentence below this length says too little alone."""
_SECTION = re.compile(r"[-*#•>] |```|\d+[.)] |[A-Z][\w ]{0,24}:$")
"""How a line begins, or reads, that is no part of a sentence: a list, a heading, `Args:`."""
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
    text = _opening(text)
    label = _LABEL.match(text)
    if label and _is_said_by(handle, label[1]):
        text = text[label.end() :]
    line = _sentence(text, limit)
    return "" if _is_said_by(handle, line) else line


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a text, on one line; a long one loses its asides, then it is cut at a word."""
    return _sentence(_opening(text), limit)


def _sentence(line: str, limit: int) -> str:
    line = _OPENING.sub("", line, count=1)
    end = next((found for found in _SENTENCE_END.finditer(line) if found.start() >= _SHORTEST), None)
    line = (line[: end.start()] if end else line).removesuffix(".")
    if len(line) > limit:
        line = _ASIDE.sub("", line)
    if len(line) > limit:
        line = f"{line[:limit].rsplit(' ', 1)[0].rstrip(' ,;:(')}…"
    return line[:1].upper() + line[1:]


def _opening(text: str) -> str:
    """The lines of the first paragraph up to a list or a heading, as one line of printable characters."""
    taken: list[str] = []
    for line in text.strip()[:LONGEST].splitlines():
        line = " ".join(line.split())
        if taken and (not line or _SECTION.match(line)):
            break
        if line:
            taken.append(line if taken else line.lstrip("#* "))
    found = " ".join(taken)
    return found if found.isprintable() else "".join(letter for letter in found if letter.isprintable())


def _is_said_by(handle: str, text: str) -> bool:
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


DEPTH = 8
"""How many references and branches are followed one into the other."""

_BRANCHES = ("anyOf", "oneOf")
_CONDITIONS = ("if", "then", "else", "dependentSchemas", "dependentRequired", "$dynamicRef")
_ELSEWHERE = frozenset({"$ref", "allOf", *_BRANCHES, *_CONDITIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFields:
    """The fields of an object."""

    fields: Mapping[str, Any]
    """Every declared field with its schema, in the order of declaration."""
    required: tuple[str, ...] = ()
    """What every value must have, declared or not."""
    either: tuple[str, ...] = ()
    """What some branch asks for and another does not."""
    is_whole: bool = True
    """Whether that is all there is to know: no conditions, and nothing that could not be followed."""


def shape_of(tool: Tool) -> ObjectFields:
    """The shape of a tool's arguments."""
    return shape(tool.input_schema, tool.input_schema)


def shape(schema: object, root: Mapping[str, Any], depth: int = 0) -> ObjectFields:
    """The shape that a schema gives an object, with references followed and branches laid over each other."""
    if not isinstance(schema, Mapping):
        return ObjectFields(fields={}, is_whole=schema is True)
    if depth > DEPTH:
        return ObjectFields(fields={}, is_whole=False)
    if _ELSEWHERE.isdisjoint(schema):
        return _declared(schema)
    parts = [_declared(schema), *(shape(part, root, depth + 1) for part in _all_of(schema, root))]
    parts += [_either(shape(option, root, depth + 1) for option in options) for options in _branches(schema)]
    parts += [_either((shape(schema[key], root, depth + 1), _NOTHING)) for key in ("then", "else") if key in schema]
    fields = _overlaid(part.fields for part in parts)
    required = tuple(dict.fromkeys(name for part in parts for name in part.required))
    either = dict.fromkeys(name for part in parts for name in part.either if name not in required)
    conditional = any(key in schema for key in _CONDITIONS)
    return ObjectFields(
        fields=fields,
        required=required,
        either=tuple(either),
        is_whole=not conditional and all(part.is_whole for part in parts),
    )


def followed(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> Mapping[str, Any]:
    """A schema in the place of a reference to it, and as one where `allOf` gives it in parts."""
    if ("$ref" not in schema and "allOf" not in schema) or depth > DEPTH:
        return schema
    parts = [part for part in _all_of(schema, root) if isinstance(part, Mapping)]
    if not parts:
        return schema
    found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
    for part in parts:
        for key, value in followed(part, root, depth + 1).items():
            found.setdefault(key, value)
    return found


def target(reference: object, root: Mapping[str, Any]) -> object:
    """What a local reference points at, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for step in unquote(reference[1:]).split("/")[1:] if reference != "#" else ():
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(step)] if step.isdecimal() and len(step) < 6 and int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


_NOTHING = ObjectFields(fields={})


def _declared(schema: Mapping[str, Any]) -> ObjectFields:
    fields, required = schema.get("properties"), schema.get("required")
    return ObjectFields(
        fields=fields if isinstance(fields, Mapping) else {},
        required=tuple(dict.fromkeys(n for n in required if isinstance(n, str))) if isinstance(required, list) else (),
    )


def _all_of(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[object]:
    """What holds beside the schema itself: the target of its reference, and every part of `allOf`."""
    if "$ref" in schema:
        yield target(schema["$ref"], root)
    parts = schema.get("allOf")
    yield from parts if isinstance(parts, list) else ()


def _branches(schema: Mapping[str, Any]) -> Iterator[list[Any]]:
    for keyword in _BRANCHES:
        options = schema.get(keyword)
        if isinstance(options, list) and options:
            yield options


def _either(branches: Iterable[ObjectFields]) -> ObjectFields:
    """Branches of which one holds: what all of them ask for is required."""
    found = list(branches)
    always = [name for name in found[0].required if all(name in branch.required for branch in found)]
    asked = dict.fromkeys(name for branch in found for name in (*branch.required, *branch.either))
    either = tuple(name for name in asked if name not in always)
    return ObjectFields(
        fields=_overlaid(branch.fields for branch in found),
        required=tuple(always),
        either=either,
        is_whole=not either and all(branch.is_whole for branch in found),
    )


def _overlaid(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields of several declarations as one; a field that they declare differently may be any of these."""
    found: dict[str, list[Any]] = {}
    for layer in layers:
        for name, schema in layer.items():
            declared = found.setdefault(name, [])
            if schema not in declared:
                declared.append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in found.items()}


NO_EXAMPLE = "write the arguments by the schema"
"""What to do where no example could be found."""
TOOLS_KEPT = 2_000
SCHEMA_OBJECTS, SCHEMA_PATTERNS, PATTERN_STATES = 1_500, 100, 10_000
"""Objects and patterns of a schema that examples are checked against; a larger one would take long to compile."""

_kept: dict[int, tuple[Tool, dict[str, Any] | None]] = {}


def example_arguments(tool: Tool) -> dict[str, Any] | None:
    """Arguments that a call of the tool would pass with: its required parameters; None where none could be found."""
    kept = _kept.get(id(tool))
    if kept is None or kept[0] is not tool:
        if len(_kept) >= TOOLS_KEPT:
            _kept.clear()
        kept = _kept[id(tool)] = (tool, _found(tool.input_schema))
    return kept[1]


def example_value(schema: object, root: Mapping[str, Any] | None = None) -> Any:
    """A value that fits a schema as far as one can tell without checking it; references lead into `root`."""
    if not isinstance(schema, Mapping):
        return "..."
    return next(proposals(schema, root), "...")


def _found(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    validator = _validator(schema)
    for value in proposals({"type": "object", **schema}, schema):
        if isinstance(value, dict) and (validator is None or _allows(validator, value)):
            return value
    return None


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """What checks an example; None where that would take long, or where nothing can be checked."""
    try:
        text = orjson.dumps(schema)
        if text.count(b"{") > SCHEMA_OBJECTS or text.count(b'"pattern') > SCHEMA_PATTERNS:
            return None
        if b'"pattern' in text and _states(schema) > PATTERN_STATES:
            return None
        return jsonschema_rs.validator_for(dict(schema), offline=True)
    except (TypeError, ValueError, jsonschema_rs.ReferencingError):
        return None


def _states(schema: Mapping[str, Any]) -> int:
    return sum(count_states(pattern) for node in nodes_of(schema) for pattern in patterns_of(node))


def _allows(validator: jsonschema_rs.Validator, value: dict[str, Any]) -> bool:
    try:
        return validator.is_valid(value)
    except (ValueError, RecursionError):
        return False


OPTIONAL_SHOWN = 8
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

_PLAIN = 3
"""The depth at which an object is not spelled out at all."""
_DEEPEST = 5


def signature(tool: Tool, *, optional: int = OPTIONAL_SHOWN, words: int = PURPOSE_LENGTH) -> str:
    """`server.tool(a, b?: integer) [write] What it does`."""
    return _line(tool, parameters(tool, optional=optional), words)


def summary_line(tool: Tool, words: int = PURPOSE_LENGTH) -> str:
    """A signature without its parameters: `server.tool(~) [write] What it does`."""
    found = shape_of(tool)
    return _line(tool, "~" if found.fields or found.required or not found.is_whole else "", words)


def parameters(tool: Tool, *, optional: int = OPTIONAL_SHOWN) -> str:
    """The parameter list of a signature, required ones first, each group in the schema's order.

    A list that would be too long loses the insides of objects and most optional parameters, then all types.
    """
    found, root = shape_of(tool), tool.input_schema
    for shown, depth in ((optional, 0), (min(optional, 3), _PLAIN)):
        text = ", ".join(_listed(found, root, shown, depth))
        if len(text) <= LIST_LENGTH:
            return text
    return ", ".join([*map(_name, found.required), *(f"{_name(name)}?" for name in found.either), "~"])


def type_text(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """A parameter's type in a few characters."""
    if schema is None or schema is True:
        return "any"
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return "any~"
    schema = followed(schema, root)
    if "const" in schema:
        return _choices([schema["const"]])
    if isinstance(schema.get("enum"), list):
        return _choices(schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if isinstance(schema.get(keyword), list) and "properties" not in schema:
            return _union(schema[keyword], root, depth)
    return _plain_type(schema, root, depth)


def _line(tool: Tool, listed: str, words: int) -> str:
    line = purpose(tool, words)
    return f"{tool.handle}({listed}) [{tool.effect}]" + (f" {line}" if line else "")


def _listed(found: ObjectFields, root: Mapping[str, Any], optional: int, depth: int) -> Iterator[str]:
    """Required parameters, those that a branch asks for, and as many others as there is room for."""
    required, either = frozenset(found.required), frozenset(found.either)
    for name in found.required:
        yield _field(name, "", type_text(found.fields.get(name), root, depth))
    for name in found.either:
        yield _field(name, "?", type_text(found.fields.get(name), root, depth))
    others = [name for name in found.fields if name not in required and name not in either]
    shown = [name for name in others if len(name) <= OPTIONAL_NAME_LENGTH][:optional]
    yield from (_optional(name, found.fields[name], root, depth) for name in shown)
    if len(shown) < len(others) or not found.is_whole:
        yield "~"


def _optional(name: str, schema: object, root: Mapping[str, Any], depth: int) -> str:
    """An optional parameter; a number or switch with a default needs no type beside it."""
    kind = type_text(schema, root, depth)
    if kind in ("integer", "number", "boolean") and isinstance(schema, Mapping):
        default = followed(schema, root).get("default")
        if isinstance(default, int | float) and len(shown := json.dumps(default)) <= DEFAULT_LENGTH:
            return f"{_name(name)}={shown}"
    return _field(name, "?", kind)


def _field(name: str, mark: str, kind: str) -> str:
    return f"{_name(name)}{mark}" if kind == "string" else f"{_name(name)}{mark}: {kind}"


_ORDINARY = re.compile(r"[^\s,:;?~=|(){}\[\]\"]+")


def _name(name: str) -> str:
    """A name from outside keeps the line whole and readable: one with signs of our own in it is quoted."""
    return name if _ORDINARY.fullmatch(name) and name.isprintable() else _quoted(name)


def _quoted(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if text.isprintable() else json.dumps(value, default=str)


def _plain_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        kinds = [kind for kind in declared if isinstance(kind, str) and kind != "null"]
        return _joined(_plain_type({**schema, "type": kind}, root, depth) for kind in kinds)
    if declared == "array":
        inner = type_text(schema.get("items"), root, depth + 1)
        return f"({inner})[]" if "|" in _BRACES.sub("", inner) else f"{inner}[]"
    if declared == "object" or "properties" in schema:
        return _object(shape(schema, root), root, depth)
    if isinstance(declared, str):
        return declared if declared in _KINDS else "any~"
    return "any" if schema.keys() <= _SAY_NOTHING else "any~"


_BRACES = re.compile(r"\{.*?\}")
_KINDS = frozenset({"string", "integer", "number", "boolean", "null"})
_SAY_NOTHING = frozenset({"description", "title", "default", "examples", "$comment", "deprecated"})


def _object(found: ObjectFields, root: Mapping[str, Any], depth: int) -> str:
    """An object with its fields: those of which it must have them all, or it is only called an object."""
    if not found.fields and not found.required:
        return "object" if found.is_whole else "object~"
    needed = [*found.required, *found.either]
    if depth >= _PLAIN or len(needed) > FIELDS_SHOWN:
        return "object~"
    for optional in range(FIELDS_SHOWN - len(needed), -1, -1):
        text = "{" + ", ".join(_listed(found, root, optional, depth + 1)) + "}"
        if text != "{~}" and len(text) <= (INNER_LENGTH if depth else OBJECT_LENGTH):
            return text
    return "object~"


def _union(options: list[Any], root: Mapping[str, Any], depth: int) -> str:
    return _joined(type_text(option, root, depth + 1) for option in options)


def _joined(spelled: Iterable[str]) -> str:
    """The types of a union, each once; that a value may also be null is left unsaid."""
    return _within([kind for kind in dict.fromkeys(spelled) if kind != "null"], UNION_SHOWN, UNION_LENGTH) or "null"


def _within(options: Sequence[str], most: int, length: int) -> str:
    """Options as far as they fit; the first is always there."""
    shown, room = list(options[:1]), length - len(options[0]) if options else 0
    for option in options[1:most]:
        room -= len(option) + 1
        if room < 0:
            break
        shown.append(option)
    return "|".join([*shown, *(["~"] if len(shown) < len(options) else [])])


def _choices(values: list[Any]) -> str:
    """The values that are allowed, but for null; only as many are spelled as can be shown."""
    given = [value for value in values if value is not None]
    spelled = [_choice(value) for value in given[: CHOICES_SHOWN + 1]]
    return _within(spelled, CHOICES_SHOWN, CHOICE_LENGTH) or "null"


def _choice(value: object) -> str:
    if len(text := _quoted(value)) <= CHOICE_LENGTH:
        return text
    return f"{_quoted(f'{value[:CHOICE_LENGTH]}…')}~" if isinstance(value, str) else "any~"


BRIEF_LENGTH = 200
"""Characters of a tool's description where descriptions are short."""
WORDS_LENGTH = 60
"""Characters of a parameter's description where descriptions are short."""

_WORDY = frozenset({"title", "examples", "$comment", "markdownDescription", "enumDescriptions"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired"})


def card(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Card:
    """A tool at one level: 0 its handle, 1 a summary line, 2 a signature, 3 everything."""
    return variants_of(tool, level, spell).card(0)


def variants_of(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Variants:
    """A tool from one level down to its handle, in every detail between them; a variant is rendered when it is read."""
    steps = [(Level(step), render) for step in range(level, -1, -1) for render in _RENDERED[Level(step)]]
    texts = Texts([(step, partial(_rendered, tool, spell, level, step, render)) for step, render in steps])
    return Variants(handle=tool.handle, texts=texts)


def shortened(schema: Any, words: int = 0, *, names: bool = False) -> Any:
    """A schema with types, names and choices, its descriptions cut to so many characters; `names` says what keys are.

    Prose beside the descriptions is left out. Values that a schema quotes stay as they are.
    """
    if isinstance(schema, list):
        return [shortened(value, words) for value in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, value in schema.items():
        if names or not (key in _DATA or key in _WORDY or key == "description"):
            found[key] = shortened(value, words, names=not names and key in _NAMED)
        elif key in _DATA:
            found[key] = value
        elif key == "description" and isinstance(value, str) and words:
            found[key] = first_sentence(value, words)
    return found


Render = Callable[[Tool, Spell], str]


def _rendered(tool: Tool, spell: Spell, top: Level, level: Level, render: Render) -> str:
    # Whoever asks for everything is told when there is less.
    cut = "\n(shortened to fit)" if top is Level.FULL and Level.NAME < level < top else ""
    return render(tool, spell) + cut


def _whole(tool: Tool, spell: Spell) -> str:
    arguments = example_arguments(tool)
    call = spell(NextCall("call", {"name": tool.handle, "arguments": arguments}))
    example = f"example: {call}" if arguments is not None else f"example: none could be made; {NO_EXAMPLE}"
    output = f"returns: {_json(tool.output_schema)}\n" if tool.output_schema else ""
    return f"{_without_example(tool, spell)}\n{output}{example}"


def _without_example(tool: Tool, spell: Spell) -> str:
    return f"{_headed(tool, tool.description)}\nparameters: {_json(tool.input_schema)}"


def _with_short_texts(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts shortened): {_json(shortened(tool.input_schema, WORDS_LENGTH))}"


def _types_only(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts left out): {_json(shortened(tool.input_schema))}"


def _brief(tool: Tool) -> str:
    return _headed(tool, first_sentence(tool.description, BRIEF_LENGTH))


def _headed(tool: Tool, says: str) -> str:
    """Name and effect, and below them what the tool says of itself, which is not ours."""
    head, said = f"## {tool.handle} [{tool.effect}]", fence(says)
    return f"{head}\n{said}" if said else head


_RENDERED: Mapping[Level, tuple[Render, ...]] = {
    Level.FULL: (_whole, _without_example, _with_short_texts, _types_only),
    Level.PARAMETERS: (
        lambda tool, spell: signature(tool),
        lambda tool, spell: signature(tool, optional=3, words=60),
        lambda tool, spell: signature(tool, optional=0, words=40),
    ),
    Level.SUMMARY: (lambda tool, spell: summary_line(tool),),
    Level.NAME: (lambda tool, spell: tool.handle,),
}
"""What a level shows, in falling detail."""


def _json(value: Any) -> str:
    return json_text(orjson.dumps(value).decode())
