"""Values that fit a schema, made from the schema: for examples, and for the next call after a refused one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

Schema = Mapping[str, Any]

DEPTH = 16  # objects and lists inside each other that are made
STEPS = 1_000  # subschemas that are read for all proposals together
NULL_BELOW = 4  # levels below which null is taken where it is allowed, so that recursive types end
ITEMS = 20  # items of a list that are made at most
PLACEHOLDER = "..."

_FORMATS: Mapping[str, str] = {
    "date": "2025-01-31",
    "date-time": "2025-01-31T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "name@example.com",
    "idn-email": "name@example.com",
    "hostname": "example.com",
    "idn-hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com",
    "uri-reference": "https://example.com",
    "iri": "https://example.com",
    "url": "https://example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "json-pointer": "/a",
    "regex": "a",
}
_UNIONS = ("required", "examples")
_LARGER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_SMALLER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_BRANCHES = ("anyOf", "oneOf")


def proposals(schema: Schema, root: Schema | None = None) -> Iterator[Any]:
    """Values that may fit a schema, likeliest first: with its own examples, without, and by its other branches."""
    seen: list[Any] = []
    left = STEPS
    for branch in range(4):
        for has_own in (True, False):
            maker = _Maker(schema if root is None else root, branch=branch, has_own=has_own, left=left)
            try:
                value = maker.value(schema, DEPTH)
            except (_Impossible, RecursionError):
                continue
            finally:
                left = maker.left
            if value not in seen:
                seen.append(value)
                yield value


class _Impossible(Exception):
    """Nothing fits, or nothing can be found."""


@dataclass(slots=True)
class _Maker:
    """Makes one proposal."""

    root: Schema
    branch: int  # which of several branches is taken, counted round
    has_own: bool  # whether examples and defaults of the schema are taken
    left: int

    def value(self, schema: object, depth: int, number: int = 0) -> Any:
        """A value; `number` counts those that must differ."""
        self.left -= 1
        if self.left < 0:
            raise _Impossible
        if schema is True or schema is None or schema == {}:
            return PLACEHOLDER if not number else f"{PLACEHOLDER}{number}"
        if not isinstance(schema, Mapping) or depth < 0:
            raise _Impossible
        found = self._flat(schema, depth)
        own = self._own(found, number)
        return own[0] if own else self._by_type(found, depth, number)

    def _own(self, schema: Schema, number: int) -> list[Any]:
        """A value that the schema itself names, if there is one."""
        if "const" in schema:
            return [schema["const"]]
        choices = schema.get("enum")
        examples = schema.get("examples")
        if self.has_own and not number and isinstance(examples, list) and examples:
            return [examples[0]]
        if isinstance(choices, list) and choices:
            return [choices[number % len(choices)]]
        if self.has_own and not number and schema.get("default") is not None:
            return [schema["default"]]
        return []

    def _flat(self, schema: Schema, depth: int) -> dict[str, Any]:
        """A schema as one: references followed, parts put together, one branch of each kind taken."""
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise _Impossible
        found = {key: value for key, value in schema.items() if key not in ("$ref", "allOf", *_BRANCHES)}
        parts: list[Any] = []
        if isinstance(schema.get("$ref"), str):
            parts.append(target(schema["$ref"], self.root))
        parts += schema["allOf"] if isinstance(schema.get("allOf"), list) else []
        for keyword in _BRANCHES:
            if isinstance(options := schema.get(keyword), list) and options:
                parts.append(self._chosen(options, depth))
        if isinstance(schema.get("if"), Mapping) and isinstance(schema.get("then"), Mapping) and self.branch % 2:
            parts += [schema["if"], schema["then"]]
        elif isinstance(schema.get("else"), Mapping):
            parts.append(schema["else"])
        for part in parts:
            if part is False:
                raise _Impossible
            if isinstance(part, Mapping):
                _join(found, self._flat(part, depth - 1))
        return found

    def _chosen(self, options: list[Any], depth: int) -> Any:
        """One of several branches; null is no choice while there is another, except deep inside of a type of itself."""
        if depth < DEPTH - NULL_BELOW and any(map(_is_null, options)):
            return {"type": "null"}
        good = [option for option in options if option is not False and not _is_null(option)] or options
        return good[self.branch % len(good)]

    def _by_type(self, schema: Schema, depth: int, number: int) -> Any:
        declared = schema.get("type", _implied(schema))
        kinds = [
            kind for kind in ([declared] if isinstance(declared, str) else _list(declared)) if isinstance(kind, str)
        ]
        kind = next((kind for kind in kinds if kind != "null"), "null")
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return _number(schema, kind, number)
        if kind == "string":
            return _text(schema, number)
        return bool((number + 1) % 2) if kind == "boolean" else None

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        fields: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        names = dict.fromkeys(name for name in _list(schema.get("required")) if isinstance(name, str))
        least = schema.get("minProperties", 0)
        for name in fields if isinstance(least, int) else ():
            if len(names) >= least:
                break
            names.setdefault(name)
        needs = schema.get("dependentRequired")
        for name in [*names]:
            names |= dict.fromkeys(_list(needs.get(name)) if isinstance(needs, Mapping) else ())
        made = {name: self.value(self._field(schema, fields, name), depth - 1) for name in names}
        while isinstance(least, int) and len(made) < min(least, ITEMS):
            made[f"key{len(made) + 1}"] = self.value(schema.get("additionalProperties", True), depth - 1)
        return made

    def _field(self, schema: Schema, fields: Mapping[str, Any], name: str) -> Any:
        if name in fields:
            return fields[name]
        other = schema.get("additionalProperties", True)
        return other if other is not False else True

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items")
        if isinstance(rest, list):  # as older drafts write it
            first, rest = rest, schema.get("additionalItems")
        least = max(_whole(schema.get("minItems"), 0), 1 if isinstance(schema.get("contains"), Mapping) else 0)
        most = min(_whole(schema.get("maxItems"), ITEMS), max(ITEMS, least), 200)
        count = max(least, len(first) or (1 if rest else 0))
        is_unique = schema.get("uniqueItems") is True
        made = [self.value(item, depth - 1) for item in first[: min(count, most)]]
        for number in range(len(made), min(count, most)):
            kind = rest if rest not in (None, False) else schema.get("contains", True)
            made.append(self.value(kind, depth - 1, number if is_unique else 0))
        if isinstance(schema.get("contains"), Mapping) and made and rest not in (None, False):
            made[-1] = self.value({"allOf": [schema["contains"], rest]}, depth - 1)
        return made


def target(reference: object, root: Schema) -> Any:
    """What a local reference points at, or None."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = found[int(step)] if step.isdecimal() and len(step) < 6 and int(step) < len(found) else None
        else:
            found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _join(found: dict[str, Any], other: Schema) -> None:
    """Let a schema also ask for what another asks for."""
    for key, value in other.items():
        if key not in found:
            found[key] = value
        elif key in _UNIONS:
            found[key] = [*dict.fromkeys(map(_hashable, [*_list(found[key]), *_list(value)]))]
        elif key == "properties" and isinstance(value, Mapping) and isinstance(found[key], Mapping):
            both = {name: {"allOf": [found[key][name], value[name]]} for name in value if name in found[key]}
            found[key] = {**found[key], **value, **both}
        elif key == "enum" and isinstance(value, list) and isinstance(found[key], list):
            found[key] = [choice for choice in found[key] if choice in value]
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            found[key] = {"allOf": [found[key], value]}
        elif key == "type":
            found[key] = _common_types(found[key], value)
        elif key in _LARGER and _is_number(value) and _is_number(found[key]):
            found[key] = max(found[key], value)
        elif key in _SMALLER and _is_number(value) and _is_number(found[key]):
            found[key] = min(found[key], value)


def _common_types(one: Any, other: Any) -> Any:
    first, second = ([kind] if isinstance(kind, str) else _list(kind) for kind in (one, other))
    both = [kind for kind in first if kind in second]
    if not both and {"integer", "number"} <= {*first, *second}:
        both = ["integer"]
    if not both:
        raise _Impossible
    return both


def _implied(schema: Schema) -> str:
    """The type that the other words of a schema speak of."""
    if any(key in schema for key in ("properties", "required", "minProperties", "additionalProperties")):
        return "object"
    if any(key in schema for key in ("items", "prefixItems", "minItems", "contains")):
        return "array"
    return "number" if any(key in schema for key in ("minimum", "maximum", "multipleOf")) else "string"


def _number(schema: Schema, kind: str, number: int) -> Any:
    """A number between the bounds: one, or what is nearest to it."""
    given = _finite(schema.get("multipleOf"))
    step = given if given and given > 0 else 1 if kind == "integer" else 0
    least = _bound(schema, "minimum", "exclusiveMinimum", step or 0.5, 1)
    most = _bound(schema, "maximum", "exclusiveMaximum", step or 0.5, -1)
    value = 1.0 if least is None and most is None else least if least is not None else min(most or 0, 1)
    if least is not None and most is not None and least > most:
        value = (least + most) / 2
    value = value + number * (step or 1)
    if step:
        value = math.ceil(round(value / step, 9)) * step
    if kind == "integer":
        return int(value)
    return int(value) if float(value).is_integer() and _is_whole(schema) else value


def _bound(schema: Schema, inclusive: str, exclusive: str, step: float, sign: int) -> float | None:
    bound, beyond = _finite(schema.get(inclusive)), _finite(schema.get(exclusive))
    if schema.get(exclusive) is True and bound is not None:  # as the fourth draft writes it
        return bound + sign * step
    found = [bound] if bound is not None else []
    found += [beyond + sign * step] if beyond is not None else []
    return (max if sign > 0 else min)(found) if found else None


def _text(schema: Schema, number: int) -> str:
    """A text of the right form and length."""
    least, most = _whole(schema.get("minLength"), 0), _whole(schema.get("maxLength"), 10_000)
    form, pattern = schema.get("format"), schema.get("pattern")
    if isinstance(pattern, str) and (found := text_like(pattern)) is not None:
        text = found
        if len(text) < least and (last := text[-1:]):
            text = text + last * (least - len(text))  # most patterns end in what may be repeated
        return text
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form]
    text = PLACEHOLDER if not number else f"{PLACEHOLDER}{number}"
    return (text + "x" * (min(least, 1_000) - len(text)))[:most]


def _is_null(option: object) -> bool:
    return isinstance(option, Mapping) and option.get("type") == "null"


def _is_whole(schema: Schema) -> bool:
    """Whether the bounds are written as whole numbers, so that a number between them may be, too."""
    return any(isinstance(schema.get(key), int) for key in ("minimum", "maximum", "multipleOf", "exclusiveMinimum"))


def _is_number(value: object) -> bool:
    return _finite(value) is not None


def _finite(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        found = float(value) if is_number else math.inf  # type: ignore[arg-type]
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _whole(value: object, default: int) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


TEXT_LENGTH = 200  # letters of the longest text that is made
CLASSES = 30  # classes of letters in a pattern, each of which is asked for several letters

_TEXT_PIECES = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[:=!]|\(\?P?<\w+>|\(|\)|\{\d+(?:,\d*)?\}|.", re.DOTALL
)
_ESCAPES = {
    "d": "1",
    "w": "a",
    "s": " ",
    "D": "a",
    "W": "-",
    "S": "a",
    "t": "\t",
    "n": "\n",
    "r": "\r",
    "b": "",
    "B": "",
}
_LETTERS = "a1A0bzZ9_-. /:@x"


def text_like(pattern: str) -> str | None:
    """A text that a pattern matches; None for patterns with conditions or references in them."""
    if len(pattern) > TEXT_LENGTH * 5:
        return None
    pieces = _TEXT_PIECES.findall(pattern)
    if sum(piece[0] == "[" for piece in pieces) > CLASSES:
        return None
    try:
        found, at = _alternative(pieces, 0)
    except (ValueError, RecursionError, re.error):
        return None
    return found if at == len(pieces) and len(found) <= TEXT_LENGTH else None


def _alternative(pieces: list[str], at: int) -> tuple[str, int]:
    """The first of the alternatives from here on, and where they end."""
    found, at = _sequence(pieces, at)
    while at < len(pieces) and pieces[at] == "|":
        _, at = _sequence(pieces, at + 1)
    return found, at


def _sequence(pieces: list[str], at: int) -> tuple[str, int]:
    texts: list[str] = []
    while at < len(pieces) and pieces[at] not in ("|", ")"):
        atom, at = _atom(pieces, at)
        times, at = _times(pieces, at)
        texts.append(atom * times)
        if sum(map(len, texts)) > TEXT_LENGTH:
            raise ValueError("too long")
    return "".join(texts), at


def _atom(pieces: list[str], at: int) -> tuple[str, int]:
    piece = pieces[at]
    if piece in ("(?=", "(?!"):
        raise ValueError("a condition")
    if piece[0] == "(":
        inner, at = _alternative(pieces, at + 1)
        if at >= len(pieces):
            raise ValueError("a group that is never closed")
        return inner, at + 1
    return _letter(piece), at + 1


def _letter(piece: str) -> str:
    if piece in ("^", "$"):
        return ""
    if piece == ".":
        return "a"
    if piece[0] == "[":
        return _of_class(piece)
    if piece[0] != "\\":
        return piece
    if piece[1] in "pP":
        return "a" if piece[1] == "p" else "1"
    if piece[1].isdigit() or piece[1] in "kux":
        raise ValueError("a reference")
    return _ESCAPES.get(piece[1], piece[1])


def _of_class(piece: str) -> str:
    """A letter of a class; a class is simple enough to ask for each candidate."""
    if any(sign in piece for sign in ("[[", "--", "&&", "~~", "||")) or "[" in piece[1:]:
        raise ValueError("a class that means something else elsewhere")
    first = piece[2:3] if piece[1:2] == "^" else piece[1:2]
    for letter in (*_LETTERS, first, *map(chr, range(33, 127))):
        if letter and re.fullmatch(piece, letter):
            return str(letter)
    raise ValueError("a class without letters")


def _times(pieces: list[str], at: int) -> tuple[int, int]:
    """How often an atom is repeated, at least, and where the next one begins."""
    times = 1
    if at < len(pieces) and (pieces[at] in ("*", "+", "?") or (pieces[at][0] == "{" and len(pieces[at]) > 1)):
        sign = pieces[at]
        times = {"*": 0, "?": 0, "+": 1}.get(sign, -1)
        if times < 0:
            times = int(re.findall(r"\d+", sign)[0])
        at += 1
        if at < len(pieces) and pieces[at] in ("?", "+"):
            at += 1
    return min(times, TEXT_LENGTH + 1), at
