"""The schema of a value: names and types without any value, and how deep a value is nested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from portico.domain.usage_and_tiers import Learned

Schema = Mapping[str, Any]

DEPTH = 8  # values inside of more lists and objects than these are not looked at
WIDTH = 32  # an object with more names than these has data for names
ITEMS = 50  # items of a list that are looked at, from end to end
ROWS = 3  # so many objects with the same fields inside of an object are rows, and their names are data
LINE_LENGTH, RETURNS_LENGTH = 300, 600  # letters of a shape in one line: beside a result, and on a card

_PLAIN = re.compile(r"[\w$@.-]+")


def shape_of(value: Any, depth: int = DEPTH, *, under: str = "") -> Schema:
    """The shape of one value; `under` is the name that it stands under."""
    if isinstance(value, dict):
        return _object(value, depth, under)
    if isinstance(value, list):
        step = max(1, len(value) // ITEMS)
        items = merge_all(shape_of(item, depth - 1) for item in value[::step][:ITEMS]) if depth else {}
        return {"type": "array", "items": items} if items else {"type": "array"}
    return {"type": _kind(value)}


def merge(one: Schema, other: Schema) -> Schema:
    """A shape that both are of."""
    if one == other or not other:
        return one
    if not one:
        return other
    kinds = {*_kinds(one), *_kinds(other)}
    if "number" in kinds:
        kinds.discard("integer")
    merged: dict[str, Any] = {"type": next(iter(kinds)) if len(kinds) == 1 else sorted(kinds)}
    objects, lists = ([shape for shape in (one, other) if kind in _kinds(shape)] for kind in ("object", "array"))
    if objects:
        merged |= _merged_fields(objects)
    if items := merge_all(shape.get("items", {}) for shape in lists):
        merged["items"] = items
    return merged


def merge_all(shapes: Iterable[Schema]) -> Schema:
    """A shape that all are of; nothing when there is none."""
    return reduce(merge, shapes, {})


def shape_line(shape: Schema, length: int = LINE_LENGTH) -> str:
    """A shape in one line, as deep as there is room for: `{items: [{id: integer, name?: string}], total: integer}`."""
    for depth in range(DEPTH, 0, -1):
        text = _line(shape, depth)
        if len(text) <= length:
            return text
    return f"{text[: length - 1]}…"


def returns_line(learned: Learned) -> str:
    """What a tool returns, in the line of its card."""
    calls = f"{learned.results} call{'s' if learned.results != 1 else ''}"
    return f"returns: {shape_line(learned.shape, RETURNS_LENGTH)} (learned from {calls})"


def _object(fields: Mapping[str, Any], depth: int, under: str) -> Schema:
    if not depth:
        return {"type": "object"}
    if len(fields) > WIDTH or any(map(is_data, fields)) or _is_by_name(fields, under):
        values = [shape_of(value, depth - 1) for value in list(fields.values())[:ITEMS]]
        return {"type": "object", "additionalProperties": merge_all(values)}
    if not fields:
        return {"type": "object"}
    properties = {name: shape_of(value, depth - 1, under=name) for name, value in fields.items()}
    return {"type": "object", "properties": properties, "required": sorted(fields)}


def _is_by_name(fields: Mapping[str, Any], under: str) -> bool:
    """Whether an object looks like a table by names of people or things: its values are alike, and the names are not.

    A doubtful name is taken for data: it may be a person's, and a field that is not shown costs little.
    """
    values = [*fields.values()]
    kinds = {"number" if kind == "integer" else kind for kind in map(_kind, values)} - {"null"}
    if len(kinds) != 1:
        return False
    is_known = sum(map(is_field, fields)) * 2 > len(fields)
    if holds_many(under) and not is_known:
        return "object" not in kinds or _share_fields(values)
    if len(fields) == 1:
        return False
    if any(" " in name.strip() for name in fields) or _are_rows(values):
        return True
    return not is_known and (kinds <= {"number", "boolean"} or all(map(looks_proper, fields)))


def _share_fields(values: list[Any]) -> bool:
    """Whether objects have a field in common; one alone has."""
    found = [value.keys() for value in values if isinstance(value, dict) and value]
    return bool(found) and bool(set(found[0]).intersection(*found))


def _are_rows(values: list[Any]) -> bool:
    is_plain = len(values) >= ROWS and all(isinstance(value, dict) and value for value in values)
    return is_plain and len({frozenset(value) for value in values}) == 1


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "object" if isinstance(value, dict) else "array" if isinstance(value, list) else "string"


def _kinds(shape: Schema) -> tuple[str, ...]:
    found = shape.get("type", ())
    return (found,) if isinstance(found, str) else tuple(found)


def _merged_fields(objects: list[Schema]) -> dict[str, Any]:
    names = dict.fromkeys(name for shape in objects for name in shape.get("properties", {}))
    known = [shape.get("properties", {}) for shape in objects]
    is_map = any("additionalProperties" in shape for shape in objects) or len(names) > WIDTH or _take_turns(known)
    if is_map:
        inner = [found for shape in objects for found in shape.get("properties", {}).values()]
        inner += [shape["additionalProperties"] for shape in objects if "additionalProperties" in shape]
        return {"additionalProperties": merge_all(inner)}
    if not names:
        return {}
    required = set.intersection(*(set(shape.get("required", ())) for shape in objects))
    properties = {name: merge_all(fields.get(name, {}) for fields in known) for name in names}
    return {"properties": properties, "required": sorted(required)}


def _take_turns(known: list[Mapping[str, Schema]]) -> bool:
    """Whether names differ from one object to the other while what stands under them is alike: then they are data.

    Each has a name that the other has not: a field that is only sometimes there makes one of them the larger.
    """
    if len(known) != 2 or not all(known):
        return False
    one, other = known
    if one.keys() <= other.keys() or other.keys() <= one.keys():
        return False
    inner = [found for fields in known for found in fields.values()]
    is_alike = all(found == inner[0] for found in inner)
    return is_alike and (one.keys().isdisjoint(other) or not all(map(is_field, {**one, **other})))


def _line(shape: Schema, depth: int) -> str:
    kinds = [kind for kind in _kinds(shape) if kind != "null"] or ["null"]
    nullable = "?" if len(kinds) < len(_kinds(shape)) else ""
    return "|".join(_kind_line(kind, shape, depth) for kind in kinds) + nullable


def _kind_line(kind: str, shape: Schema, depth: int) -> str:
    if kind == "array":
        return f"[{_line(shape['items'], depth - 1)}]" if shape.get("items") and depth > 1 else "[…]"
    if kind != "object":
        return kind
    if depth <= 1:
        return "{…}"
    if "additionalProperties" in shape:
        return f"{{any: {_line(shape['additionalProperties'], depth - 1)}}}"
    required = shape.get("required", ())
    fields = shape.get("properties", {}).items()
    shown = (
        f"{name if _PLAIN.fullmatch(name) else repr(name)}{'' if name in required else '?'}: {_line(inner, depth - 1)}"
        for name, inner in fields
    )
    return f"{{{', '.join(shown)}}}"


NAME_LENGTH = 64

_DATA = re.compile(r"^\d|\d{4}|[0-9a-fA-F]{8}-|(?=.{12})(?:.*\d){3}|[A-Z0-9]{16}|@.+\.|://|^[/~]|\s.*\s")
"""What names look like that are data: numbers, dates, identifiers, addresses, paths, sentences."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PROPER = re.compile(r"[^\W\d_a-z]\w*[^\W\d_A-Z]|.*[^\W\d_\x00-\x7f].*|.*['\u2019 ].*", re.DOTALL)
"""A word with a capital, as names of people and places have; letters beyond ASCII, an apostrophe or a space."""
_BY = re.compile(r"(?:^|_)(?:by|per|for|to|of|map|dict|index|lookup|mapping)(?:_|$)|(?:By|Per|Map)(?=[A-Z]|$)")
_IRREGULAR = frozenset("people children men women staff family crew team".split())
_SINGULAR = frozenset(
    """
    address status details settings options properties stats statistics metadata news series basis analysis
    headers params args kwargs attributes fields flags features limits bounds coordinates dimensions metrics
    access class process progress success business pass
    """.split()
)
"""Words that end like a plural and often stand before an object with fields."""
_FIELDS = frozenset(
    """
    id ids uid uuid key keys name title label text body content contents description summary message messages
    note notes comment type kind format mode state status code level role group category tag tags version
    revision hash digest etag url uri href link path file filename folder directory extension mime size length
    width height depth weight count counts total totals sum mean median average avg min max minimum maximum
    first last next previous prev start end begin from to since until before after offset limit page pages
    pagesize cursor index position order rank score rating value values result results data item items row rows
    column columns field fields record records list entries entry error errors warning warnings reason detail
    details cause ok success succeeded failed failure valid invalid done active enabled disabled visible hidden
    open closed locked archived deleted draft public private default required created updated modified started
    finished completed at on by date time timestamp datetime day week month year hour minute second seconds
    minutes hours days ms duration latency elapsed timezone zone user users owner author creator assignee sender
    recipient account accounts email mail phone login username password address street city country region zip
    postal postcode lat latitude lon lng long longitude x y z top left right bottom red green blue alpha color
    colour price amount cost tax discount currency quantity unit units balance paid due host hostname port ip
    domain protocol scheme query fragment method headers request response cpu memory disk used free available
    temperature humidity pressure wind speed direction degrees celsius fahrenheit forecast condition ticker
    symbol exchange close volume high low bid ask change percent percentage ratio rate language lang locale
    encoding charset source target origin destination parent children child node nodes edges edge graph root
    number n i j k answer question hits matches match found missing more has is was can should read write delete
    create update insert add added removed remove changed unchanged lines line word words characters chars
    tokens bytes kb mb gb bits input output stdin stdout stderr exit pid full given family middle birth age
    gender sex token session expires expiry ttl scope scopes model prompt completion priority severity project
    repo repository branch commit sha issue pull merge ref base head diff patch release build job task step
    stage event events log logs metric metrics sensor device serial sku product products brand vendor supplier
    customer invoice payment shipping delivery carrier tracking stock inventory warehouse department team
    company organization org employee manager salary bank iban bic card
    """.split()
)


def is_data(name: str) -> bool:
    """Whether a name is data by its looks alone."""
    return len(name) > NAME_LENGTH or _DATA.search(name) is not None


def holds_many(name: str) -> bool:
    """Whether what stands under this name is likely to be a table by names: `balances`, `by_person`, `people`."""
    if _BY.search(name):
        return True
    words = _WORDS.findall(name)
    last = words[-1].lower() if words else ""
    if last in _IRREGULAR:
        return True
    return len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is")) and last not in _SINGULAR


def looks_proper(name: str) -> bool:
    """Whether a name looks like that of a person or a place."""
    return _PROPER.fullmatch(name) is not None


def is_field(name: str) -> bool:
    """Whether a name is made of words that fields are named with, or is too short to be anybody's."""
    words = [word.lower() for word in _WORDS.findall(name)]
    return len(name) <= 2 or any(word in _FIELDS or word.rstrip("s") in _FIELDS for word in words)


def depth_of(value: Any) -> int:
    """How many objects and lists stand inside each other."""
    depth, level = 0, [value]
    while nested := [inner for inner in level if isinstance(inner, dict | list)]:
        depth += 1
        level = [child for inner in nested for child in (inner.values() if isinstance(inner, dict) else inner)]
    return depth
