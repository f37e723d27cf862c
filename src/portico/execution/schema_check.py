"""A schema with its validator, and what a check can cost at most, known before the check begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

import jsonschema_rs
import orjson

from portico.domain.learned_schema import depth_of
from portico.domain.patterns import count_states, is_hard, nodes_of, patterns_of
from portico.domain.tool import Tool

Node = Mapping[str, Any]

CHECK_UNITS = 1_000_000
"""What one check may cost: about 20 ms."""
COMPILE_UNITS = 500_000
"""What the patterns of one schema may cost to compile: about 10 ms, beside some 20 ms for 256 KB of anything else."""
NODES_SEEN, NESTED = 6_000, 4
"""Subschemas that are looked at, each as often as it applies; one that has others inside of it counts as several."""
NODES_COMPILED, VALUES_COMPILED = 2_000, 12_000
"""Objects and other values in a schema that is compiled and looked at; a larger one would itself take too long."""
COUNTED_PARTS = 20_000
"""Parts of a value that are looked at one by one, where it cannot be written as JSON, or where its depth matters."""
PATTERN_COMPILED, STATE_COMPILED = 2_000, 30
"""Units to compile a pattern, and each of its states."""
HARD_PATTERN, HARD_LETTERS = 25_000, 20
"""Units of a pattern that takes many passes: to begin with, and by how much the square of the letters is divided."""
LETTERS = 8
"""Letters of a text that a pattern of one state reads in one unit, and of other texts in 500."""

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_LOOKS_BACK = ("unevaluatedProperties", "unevaluatedItems")
_ITEMS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")


class Size(NamedTuple):
    """How large a value is: the values in it, and the letters of all texts and names, at most."""

    parts: int
    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one schema costs."""

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
    """How deep a value may be nested for this to be true; None where it does not matter."""

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


def cost_of(schema: Node) -> Cost:
    """What a schema costs; one that is too large to be looked at costs too much to be compiled."""
    compiling = _compiling(schema)
    if compiling > COMPILE_UNITS:
        return Cost(compiling=compiling, depth=-1)
    survey = _Survey(schema)
    try:
        return replace(survey.cost(), compiling=compiling)
    except OverflowError:
        return replace(survey.cost_so_far(), compiling=compiling)


@dataclass(slots=True)
class _Survey:
    """Follows which subschemas apply to the same value, level by level, and adds up what they cost.

    A subschema that is reached twice counts twice: the validator runs it twice. Where they multiply from level to
    level, or are too many, the cost is known only for values that are nested less deep.
    """

    schema: Node
    left: int = NODES_SEEN
    most: tuple[int, int, int] = (1, 0, 0)
    depth: int = 0
    has_alternatives: bool = False
    named: dict[str, Node] | None = None
    weighed: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def cost(self) -> Cost:
        """The cost for values of any depth."""
        level: list[list[Any]] = [[self.schema]]
        seen: set[tuple[int, ...]] = set()
        while level:
            most, following = self.most, list[list[Any]]()
            for group in level:
                nodes = [node for node in group if isinstance(node, Mapping)]
                if len(nodes) == 1 and _is_leaf(nodes[0]):
                    self._spend(1)
                    most = _larger(most, _weigh(nodes[0]))
                    continue
                key = tuple(sorted(map(id, nodes)))
                if nodes and key not in seen:
                    seen.add(key)
                    together = self._together(nodes)
                    most = _larger(most, _sum(map(self._weight, together)))
                    following.extend(_below(together))
            self.most, self.depth, level = most, self.depth + 1, following
        return replace(self.cost_so_far(), depth=None)

    def cost_so_far(self) -> Cost:
        """The cost for values that are nested no deeper than was looked."""
        units, text_units, hard = self.most
        return Cost(
            units=units,
            text_units=text_units,
            hard_patterns=hard,
            has_alternatives=self.has_alternatives,
            depth=self.depth - 1,
        )

    def _spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OverflowError

    def _weight(self, node: Node) -> tuple[int, int, int]:
        known = self.weighed.get(id(node))
        if known is None:
            known = self.weighed[id(node)] = _weigh(node)
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
        for keyword in _IN_PLACE:
            if keyword in node:
                yield node[keyword]
        for keyword in ("dependentSchemas", "dependencies"):
            if isinstance(found := node.get(keyword), Mapping):
                yield from found.values()

    def _target(self, reference: object) -> Any:
        if not isinstance(reference, str):
            return None
        if reference in ("#", "") or reference.startswith("#/"):
            return _at(self.schema, reference[1:])
        if self.named is None:
            self.named = dict(_named(self.schema))
        base, _, fragment = reference.partition("#")
        found = self.named.get(base) if base else self.named.get(f"#{fragment}")
        return _at(found, fragment) if base and fragment.startswith("/") else found


def _weigh(node: Node) -> tuple[int, int, int]:
    """The units of one subschema alone: for each value, for eight letters, and its patterns of many passes."""
    counted = sum(len(found) for key, found in node.items() if isinstance(found, list | dict) and key != "$defs")
    units = 1 + len(node) + counted // 2 + (15 if "uniqueItems" in node else 0)
    letters, hard = 20 if "format" in node else 0, 0
    for pattern in patterns_of(node):
        states, is_special = _pattern(pattern)
        units += 5 + states // 50
        letters += 1 + states // 2
        hard += is_special
    return units, letters, hard


@lru_cache(maxsize=1_000)
def _pattern(pattern: str) -> tuple[int, bool]:
    return count_states(pattern), is_hard(pattern)


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
            units += PATTERN_COMPILED + _pattern(pattern)[0] * STATE_COMPILED
            if units > COMPILE_UNITS:
                return units
    return units


def _larger(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def _sum(weights: Iterable[tuple[int, int, int]]) -> tuple[int, int, int]:
    units = text_units = hard = 0
    for weight in weights:
        units, text_units, hard = units + weight[0], text_units + weight[1], hard + weight[2]
    return units, text_units, hard


def _is_leaf(node: Node) -> bool:
    """Whether there is nothing inside of a subschema but plain words and numbers."""
    return "$ref" not in node and not any(isinstance(value, dict | list) for value in node.values())


def _below(together: list[Node]) -> Iterator[list[Any]]:
    """The subschemas that apply to one and the same part of a value, for each part that can differ."""
    yield [child for node in together for child in _of_items(node)]
    yield [node["propertyNames"] for node in together if "propertyNames" in node]
    fields = [(properties_of(node), _patterns(node), _others(node)) for node in together]
    fields = [row for row in fields if any(row)]
    yield [child for _, patterns, others in fields for child in (*patterns, *others)]
    for name in {name for properties, _, _ in fields for name in properties}:
        yield [
            child
            for properties, patterns, others in fields
            for child in ((properties[name], *patterns) if name in properties else (*patterns, *others))
        ]


def properties_of(node: Node) -> Node:
    """The properties that a subschema names."""
    found = node.get("properties")
    return found if isinstance(found, Mapping) else {}


def _patterns(node: Node) -> list[Any]:
    found = node.get("patternProperties")
    return [*found.values()] if isinstance(found, Mapping) else []


def _others(node: Node) -> list[Any]:
    return [node[key] for key in ("additionalProperties", "unevaluatedProperties") if key in node]


def _of_items(node: Node) -> Iterator[Any]:
    for keyword in _ITEMS:
        found = node.get(keyword)
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found


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


def _named(schema: Node) -> Iterator[tuple[str, Node]]:
    """The subschemas that have a name of their own, which references can use."""
    for node in nodes_of(schema):
        for key, mark in (("$id", ""), ("$anchor", "#")):
            if isinstance(node.get(key), str):
                yield f"{mark}{node[key]}", node


COMPILED_LIMIT = 4_096
LISTED_UNITS = 2_000
"""What a check may cost whose errors are all listed: an error costs a thousand times what a check costs."""
FIRST_UNITS = 200_000
"""What a check may cost whose first error is told."""
ERRORS_READ = 50
TOLD_LETTERS = 200_000
"""Letters of a value whose errors are told at all: each error holds a copy of what is wrong."""


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """One schema of a tool, compiled where that is cheap."""

    tool: Tool
    validator: jsonschema_rs.Validator | None
    cost: Cost
    letters: int = 0
    """Values of so many letters, written as JSON, are surely checked in time."""

    def allows_small(self, value: Any) -> bool:
        """Whether a value is surely small enough to be checked, and fits: the way of nearly all calls.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None:
            return False
        try:
            is_small = len(orjson.dumps(value)) <= self.letters
        except TypeError:  # integers beyond 64 bits, too many levels, or a library user's own objects
            return False
        return is_small and self.validator.is_valid(value)

    def is_valid(self, value: Any, size: Size) -> bool | None:
        """Whether the schema allows a value; None where nobody can tell in time.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None or not self.cost.affords(size) or not self.cost.reaches(value, size):
            return None
        return self.validator.is_valid(value)

    def errors(self, value: Any, size: Size) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with a value: all of it, the first thing, or nothing, by how long that would take."""
        is_short = size.letters <= TOLD_LETTERS and self.cost.affords(size, FIRST_UNITS)
        if self.validator is None or not is_short or not self.cost.reaches(value, size):
            return []
        if self.cost.affords(size, LISTED_UNITS):
            return [*islice(self.validator.iter_errors(value), ERRORS_READ)]
        if self.cost.has_alternatives:
            return []
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


@dataclass(slots=True)
class CheckedSchemas:
    """The schemas of the tools that are really used."""

    _kept: dict[int, CheckedSchema] = field(default_factory=dict)

    def of(self, tool: Tool, schema: Mapping[str, Any]) -> CheckedSchema:
        """The schema of a tool, compiled at its first use."""
        kept = self._kept.get(id(tool))
        if kept is None or kept.tool is not tool:
            if len(self._kept) >= COMPILED_LIMIT:
                self._kept.clear()
            cost = cost_of(schema)
            validator = compile_schema(schema) if cost.is_compiled else None
            letters = CHECK_UNITS // cost.per_letter if cost.per_letter else 0
            kept = self._kept[id(tool)] = CheckedSchema(tool, validator, cost, letters)
        return kept


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """A validator that never touches the network; None when the schema is not valid JSON Schema.

    A server with such a schema still gets its calls, unchecked: it knows better than we do what it meant.
    """
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=50_000)
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return None
