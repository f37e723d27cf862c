"""The most that checking a value against a schema can cost, known before the check begins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from portico.results.result_schema import depth_of

Node = Mapping[str, Any]
Weight = tuple[int, ...]
"""The units of subschemas: for each value, for eight letters, and their patterns of many passes."""

CHECK_UNITS = 1_000_000  # what one check may cost: about 20 ms
COMPILE_UNITS = 500_000
"""What the patterns of one schema may cost to compile: about 10 ms, beside some 20 ms for 256 KB of anything else."""
NODES_SEEN, NESTED = 6_000, 4
"""Subschemas that are looked at, each as often as it applies; one that has others inside of it counts as several."""
NODES_COMPILED, VALUES_COMPILED = 2_000, 12_000
"""Objects and other values in a schema that is compiled and looked at; a larger one would itself take too long."""
COUNTED_PARTS = 20_000
"""Parts of a value that are looked at one by one, where it cannot be written as JSON, or where its depth matters."""
PATTERN_COMPILED, STATE_COMPILED = 2_000, 30  # units to compile a pattern, and each of its states
HARD_PATTERN, HARD_LETTERS = 25_000, 20
"""Units of a pattern that takes many passes: to begin with, and by how much the square of the letters is divided."""
LETTERS = 8  # letters of a text that a pattern of one state reads in one unit, and of other texts in 500

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_LOOKS_BACK = ("unevaluatedProperties", "unevaluatedItems")
_ITEMS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")


class Size(NamedTuple):
    """The size of a value: the values in it, and the letters of all texts and names, at most."""

    parts: int
    letters: int


def measure(value: Any) -> Size:
    """The size of a value; one that is not JSON is counted up to a limit, and huge beyond it."""
    try:
        text = orjson.dumps(value)
    except TypeError:  # integers beyond 64 bits, too many levels, or a library user's own objects
        return _count(value)
    # Every part but the outermost follows a comma or a bracket.
    return Size(1 + text.count(b",") + text.count(b"[") + text.count(b"{"), len(text))


def _count(value: Any) -> Size:
    left, letters, waiting = COUNTED_PARTS, 0, [value]
    while waiting:
        found = waiting.pop()
        left -= 1
        if isinstance(found, str):
            letters += len(found)
        elif isinstance(found, dict | list | tuple):
            left -= len(found)
            if left >= 0:
                waiting.extend(found.values() if isinstance(found, dict) else found)
                letters += sum(len(name) for name in found if isinstance(name, str)) if isinstance(found, dict) else 0
        if left < 0:
            return Size(CHECK_UNITS, CHECK_UNITS)
    return Size(COUNTED_PARTS - left, letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one schema."""

    units: int = 1
    """The most that one value inside of what is checked can cost."""
    text_units: int = 0
    """The most that patterns make eight letters of a text cost."""
    hard_patterns: int = 0
    """The most patterns of many passes that one text is held against."""
    compiling: int = 0
    has_alternatives: bool = False
    """Whether one wrong value can have an error for each of many alternatives."""
    depth: int | None = None
    """The nesting of values up to which this is true; None where it does not matter."""

    @property
    def per_letter(self) -> int:
        """The most that a letter of a value, written as JSON, can cost; 0 where that is not all there is to it."""
        is_plain = not self.hard_patterns and self.depth is None
        return self.units + self.text_units + 1 if is_plain else 0

    @property
    def is_compiled(self) -> bool:
        """Whether the schema can be compiled in no time to speak of."""
        return self.compiling <= COMPILE_UNITS

    def affords(self, size: Size, units: int = CHECK_UNITS) -> bool:
        """Whether checking a value of this size costs at most so many units."""
        per_part = self.units + self.hard_patterns * HARD_PATTERN
        cost = size.parts * per_part + size.letters * (self.text_units * 500 + 1) // (LETTERS * 500)
        return cost + self.hard_patterns * size.letters * size.letters // HARD_LETTERS <= units

    def reaches(self, value: Any, size: Size) -> bool:
        """Whether a value is nested no deeper than the cost is known for; a large one would take long to look at."""
        return self.depth is None or (size.parts <= COUNTED_PARTS and depth_of(value) <= self.depth)


def cost_of(schema: Node) -> Cost:
    """The cost of a schema; one that is too large to be looked at costs too much to be compiled."""
    compiling = _compiling(schema)
    if compiling > COMPILE_UNITS:
        return Cost(compiling=compiling, depth=-1)
    survey = _Survey(schema)
    try:
        survey.follow()
        depth = None
    except OverflowError:
        depth = survey.depth - 1
    units, text_units, hard = survey.most
    cost = Cost(units=units, text_units=text_units, hard_patterns=hard, has_alternatives=survey.has_alternatives)
    return replace(cost, compiling=compiling, depth=depth)


def _compiling(schema: Node) -> int:
    """Units to compile all patterns of a schema; too many where there is too much to look at."""
    try:
        text = orjson.dumps(schema)
    except TypeError:  # integers beyond 64 bits
        text = repr(schema).encode().replace(b"'", b'"')
    if text.count(b"{") > NODES_COMPILED or text.count(b",") > VALUES_COMPILED:
        return COMPILE_UNITS + 1
    units = 0
    for node in nodes_of(schema) if b'"pattern' in text else ():
        for pattern in patterns_of(node):
            units += PATTERN_COMPILED + _read_pattern(pattern)[0] * STATE_COMPILED
            if units > COMPILE_UNITS:
                return units
    return units


@lru_cache(maxsize=1_000)
def _read_pattern(pattern: str) -> tuple[int, bool]:
    return count_states(pattern), is_hard(pattern)


@dataclass(slots=True)
class _Survey:
    """Follows which subschemas apply to the same value, level by level, and adds up what they cost.

    A subschema that is reached twice counts twice: the validator runs it twice. Where they multiply from level to
    level, or are too many, the cost is known only for values that are nested less deep.
    """

    schema: Node
    left: int = NODES_SEEN
    most: Weight = (1, 0, 0)
    depth: int = 0
    has_alternatives: bool = False
    named: dict[str, Node] | None = None
    weights: dict[int, Weight] = field(default_factory=dict)

    def follow(self) -> None:
        """Visit all levels; raises OverflowError where there are too many subschemas."""
        level: list[list[Any]] = [[self.schema]]
        seen: set[tuple[int, ...]] = set()
        while level:
            most, following = self.most, list[list[Any]]()
            for group in level:
                nodes = [node for node in group if isinstance(node, Mapping)]
                if len(nodes) == 1 and _is_leaf(nodes[0]):
                    self._spend(1)
                    most = tuple(map(max, most, _weigh(nodes[0])))
                    continue
                key = tuple(sorted(map(id, nodes)))
                if nodes and key not in seen:
                    seen.add(key)
                    together = self._together(nodes)
                    total = map(sum, zip(*map(self._weight, together), strict=True))
                    most = tuple(map(max, most, total))
                    following.extend(_below(together))
            self.most, self.depth, level = most, self.depth + 1, following

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OverflowError

    def _weight(self, node: Node) -> Weight:
        known = self.weights.get(id(node))
        if known is None:
            known = self.weights[id(node)] = _weigh(node)
        return known

    def _together(self, nodes: list[Node]) -> list[Node]:
        """These subschemas and all that apply to the same value because of them."""
        found: list[Node] = []
        waiting = nodes
        while waiting:
            node = waiting.pop()
            self._spend(NESTED)
            found.append(node)
            inside = [child for child in self._in_place(node) if isinstance(child, Mapping)]
            waiting.extend(inside * 2 if any(keyword in node for keyword in _LOOKS_BACK) else inside)
        return found

    def _in_place(self, node: Node) -> Iterator[Any]:
        if "$ref" in node:
            yield self._target(node["$ref"])
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise OverflowError  # what it means is settled only while checking
        for keyword in _IN_PLACE_LISTS:
            if isinstance(found := node.get(keyword), list):
                self.has_alternatives = self.has_alternatives or (len(found) > 1 and keyword != "allOf")
                yield from found
        yield from (node[keyword] for keyword in _IN_PLACE if keyword in node)
        for keyword in ("dependentSchemas", "dependencies"):
            if isinstance(found := node.get(keyword), Mapping):
                yield from found.values()

    def _target(self, reference: object) -> Any:
        if not isinstance(reference, str):
            return None
        if reference in ("#", "") or reference.startswith("#/"):
            return _at(self.schema, reference[1:])
        if self.named is None:  # the subschemas that have a name of their own
            marks = (("$id", ""), ("$anchor", "#"))
            named = ((node, mark, node.get(key)) for node in nodes_of(self.schema) for key, mark in marks)
            self.named = {f"{mark}{name}": node for node, mark, name in named if isinstance(name, str)}
        base, _, fragment = reference.partition("#")
        found = self.named.get(base) if base else self.named.get(f"#{fragment}")
        return _at(found, fragment) if base and fragment.startswith("/") else found


def _weigh(node: Node) -> Weight:
    """The units of one subschema alone."""
    counted = sum(len(found) for key, found in node.items() if isinstance(found, list | dict) and key != "$defs")
    units = 1 + len(node) + counted // 2 + (15 if "uniqueItems" in node else 0)
    letters, hard = 20 if "format" in node else 0, 0
    for pattern in patterns_of(node):
        states, takes_many_passes = _read_pattern(pattern)
        units += 5 + states // 50
        letters += 1 + states // 2
        hard += takes_many_passes
    return units, letters, hard


def _is_leaf(node: Node) -> bool:
    """Whether there is nothing inside of a subschema but plain words and numbers."""
    return "$ref" not in node and not any(isinstance(value, dict | list) for value in node.values())


def _below(together: list[Node]) -> Iterator[list[Any]]:
    """The subschemas that apply to one and the same part of a value, for each part that can differ."""
    items = [node[keyword] for node in together for keyword in _ITEMS if node.get(keyword) is not None]
    yield [child for found in items for child in (found if isinstance(found, list) else [found])]
    yield [node["propertyNames"] for node in together if "propertyNames" in node]
    fields = [
        (
            _mapping(node, "properties"),
            [
                *_mapping(node, "patternProperties").values(),
                *(node[key] for key in ("additionalProperties", "unevaluatedProperties") if key in node),
            ],
        )
        for node in together
    ]
    fields = [row for row in fields if any(row)]
    yield [child for _, others in fields for child in others]
    for name in {name for properties, _ in fields for name in properties}:
        yield [
            child
            for properties, others in fields
            for child in ((properties[name], *others) if name in properties else others)
        ]


def _mapping(node: Node, key: str) -> Node:
    found = node.get(key)
    return found if isinstance(found, Mapping) else {}


def _at(node: Any, pointer: str) -> Any:
    for part in filter(None, pointer.split("/")):
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(step)
        elif isinstance(node, list) and step.isascii() and step.isdigit() and int(step[:7]) < len(node):
            node = node[int(step[:7])]
        else:
            return None
    return node


STATES_LIMIT = 10_000_000
LENGTH_LIMIT = 5_000
"""A longer pattern is not even looked at."""

_COST_PIECES = re.compile(r"\\[pP]\{[^}]*\}|\\.|\[(?:\\.|[^\]\\])*\]|\(\?[=!]|\(|\)|\{\d+(?:,\d*)?\}|.", re.DOTALL)
_HARD = re.compile(r"\(\?[=!<>]|\\[1-9k]|[+*?}]\+")
_SIZES = {".": 9, "\\p": 500, "\\P": 500, "[^": 40}
"""States of what stands for many letters; most other things are one."""


def count_states(pattern: str) -> int:
    """The states of the machine that a pattern becomes, about: what is repeated is there as often as it is repeated."""
    if len(pattern) > LENGTH_LIMIT:
        return STATES_LIMIT
    open_groups, total, last = list[int](), 0, 0
    for piece in _COST_PIECES.findall(pattern):
        if piece[0] == "(":
            open_groups.append(total)
            total = 0
        elif piece == ")" and open_groups:
            last, total = total, total + open_groups.pop()
        elif piece[0] == "{" and len(piece) > 1:
            times = max(1, *(int(number[:6]) for number in re.findall(r"\d+", piece)))
            total, last = total + last * (times - 1), last * times
        elif piece not in "*+?|^$":
            last = _SIZES.get(piece[:2], 500 if "\\p" in piece else 1)
            total += last
        if total > STATES_LIMIT:
            return STATES_LIMIT
    return total + sum(open_groups)


def is_hard(pattern: str) -> bool:
    """Whether looking for a pattern may take more than one pass: look-around or back-references.

    Conditions at the very beginning, as in `^(?=.*[A-Z]).{8,}$`, are each looked at once.
    """
    if len(pattern) > LENGTH_LIMIT:
        return True
    rest = pattern
    if rest.startswith("^"):
        rest = rest[1:]
        while rest.startswith(("(?=", "(?!")):
            end = _end_of_group(rest)
            if _HARD.search(rest, 3, end):
                return True
            rest = rest[end:]
    return _HARD.search(rest) is not None


def _end_of_group(text: str) -> int:
    depth = 0
    for found in _COST_PIECES.finditer(text):
        depth += (found[0][0] == "(") - (found[0] == ")")
        if not depth:
            return found.end()
    return len(text)


def patterns_of(node: Mapping[str, Any]) -> Iterator[str]:
    """The patterns of one subschema, for values and for names."""
    if isinstance(found := node.get("pattern"), str):
        yield found
    if isinstance(found := node.get("patternProperties"), Mapping):
        yield from (pattern for pattern in found if isinstance(pattern, str))


def nodes_of(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object in a schema."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            yield node
        inside = node.values() if isinstance(node, Mapping) else node
        waiting.extend(child for child in inside if isinstance(child, Mapping | list))
