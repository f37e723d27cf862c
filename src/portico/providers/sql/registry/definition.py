"""A registration as agents see it, and what a caller may ask of a table or view."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from portico.errors import InvalidArguments

from .rows import RegisteredParameter, Registration
from .values import ParamType, UnfitValue, ValueKind, at

LIMIT = 100
"""Rows of an answer where the caller does not say."""
MOST_ROWS = 1_000
MOST_VALUES = 500
"""Values of one list."""
MOST_BINDS = 1_000
"""Values of one question; databases take so many placeholders."""
MOST_PARTS = 50
"""Aggregates of one question."""

OWN = frozenset({"filters", "columns", "order_by", "limit", "group_by", "aggregates"})
"""The parameters of our own; a column of such a name is reached through `filters`."""

COMPARISONS: Mapping[str, str] = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
AGGREGATES: Mapping[str, frozenset[ValueKind]] = {
    "count": frozenset(ValueKind),
    "count_distinct": frozenset(ValueKind) - {ValueKind.JSON, ValueKind.BYTES},
    "sum": frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL}),
    "avg": frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL}),
    "min": frozenset(ValueKind) - {ValueKind.JSON, ValueKind.BYTES, ValueKind.BOOLEAN, ValueKind.UUID},
    "max": frozenset(ValueKind) - {ValueKind.JSON, ValueKind.BYTES, ValueKind.BOOLEAN, ValueKind.UUID},
}
"""What each function can be worked out of."""

PATTERN = ParamType(code="", name="varchar", length=1_000)
"""What a column is LIKE: text, however short the column is."""

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold for one column."""

    column: RegisteredParameter
    operator: str
    values: tuple[Any, ...] = ()
    """As they are bound; for `is_null` true or false."""

    @property
    def type(self) -> ParamType:
        """What its values are."""
        return PATTERN if self.operator == "like" else self.column.type


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Something that is worked out for each group."""

    function: str
    column: RegisteredParameter | None
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """One question to a table or view."""

    columns: tuple[RegisteredParameter, ...]
    conditions: tuple[Condition, ...]
    group_by: tuple[RegisteredParameter, ...]
    aggregates: tuple[Aggregate, ...]
    order_by: tuple[tuple[str, str], ...]
    """Names of columns or aggregates, each with ASC or DESC."""
    limit: int


def operators(type: ParamType) -> tuple[str, ...]:
    """The conditions that a column of this type can have."""
    if type.shape is ValueKind.JSON:
        return ("is_null",)
    if type.shape in (ValueKind.BOOLEAN, ValueKind.UUID, ValueKind.BYTES) or type.name == "other":
        return ("eq", "ne", "in", "is_null")
    both = (*COMPARISONS, "in", "between", "is_null")
    return (*both[:-1], "like", "is_null") if type.shape is ValueKind.TEXT else both


def read_selection(registration: Registration, arguments: Mapping[str, Any], most: int = MOST_ROWS) -> Selection:
    """The question that arguments put.

    Raises:
        InvalidArguments: every part that cannot be used is told; nothing was sent.
    """
    reading = _Reading(registration, arguments)
    aggregates = reading.part("aggregates", reading.aggregates, ())
    group_by = reading.part("group_by", reading.names, ())
    columns = reading.part("columns", reading.names, ())
    conditions = reading.conditions()
    limit = reading.part("limit", lambda value: _limit(value, most), min(LIMIT, most))
    outputs = [one.name for one in group_by] + [one.name for one in aggregates]
    names = outputs or [one.name for one in registration.parameters]
    order_by = reading.part("order_by", lambda value: _order(value, names), ())
    reading.finish(columns, outputs, sum(len(one.values) for one in conditions))
    return Selection(
        columns=columns or registration.parameters,
        conditions=conditions,
        group_by=group_by,
        aggregates=aggregates,
        order_by=order_by,
        limit=limit,
    )


class _Reading:
    """The parts of one question, and what is wrong with them."""

    def __init__(self, registration: Registration, arguments: Mapping[str, Any]) -> None:
        self._registration, self._arguments = registration, arguments
        self._columns = {one.name: one for one in registration.parameters}
        self._wrong: list[str] = []

    def part(self, name: str, read: Callable[[Any], Any], default: Any) -> Any:
        """One of our own parameters, or its default."""
        value = self._arguments.get(name)
        try:
            return default if value is None else at(name[:60], read, value)
        except UnfitValue as error:
            self._wrong.append(str(error))
            return default

    def conditions(self) -> tuple[Condition, ...]:
        """Those of plain values, then those of `filters`."""
        plain = [name for name in self._arguments if name not in OWN]
        found = [one for name in plain for one in self.part(name, partial(self._plain, name), ())]
        return (*found, *self.part("filters", self._filters, ()))

    def names(self, value: Any) -> tuple[RegisteredParameter, ...]:
        """Columns, each once."""
        items = _items(value, len(self._columns))
        return tuple(dict.fromkeys(at(place, self._known, one) for place, one in enumerate(items)))

    def aggregates(self, value: Any) -> tuple[Aggregate, ...]:
        """What is to be worked out, each under a name of its own."""
        items = _items(value, MOST_PARTS)
        return tuple(at(place, self._aggregate, one) for place, one in enumerate(items))

    def finish(self, columns: Sequence[RegisteredParameter], outputs: Sequence[str], values: int) -> None:
        """Check what concerns several parts.

        Raises:
            InvalidArguments: with all that was found.
        """
        folded = [name.casefold() for name in outputs]
        if twice := [name for name in outputs if folded.count(name.casefold()) > 1]:
            self._wrong.append(f"'aggregates' would give two columns {twice[0]!r}; name one with `as`")
        if columns and outputs:
            self._wrong.append("'columns' does not go with aggregates or group_by; put the columns into group_by")
        if values > MOST_BINDS:
            self._wrong.append(f"'filters' has {values} values; pass at most {MOST_BINDS} in one call")
        self._wrong += [f"missing: a filter on {name}" for name in self._unfiltered()]
        if self._wrong:
            raise InvalidArguments(self._registration.name, details=self._wrong)

    def _unfiltered(self) -> list[str]:
        filters = self._arguments.get("filters")
        inner = [name for name, value in filters.items() if value] if isinstance(filters, Mapping) else []
        given = {name for name, value in self._arguments.items() if value is not None and name not in OWN}
        return [one.name for one in self._columns.values() if one.required and one.name not in {*inner, *given}]

    def _plain(self, name: str, value: Any) -> tuple[Condition, ...]:
        column = self._columns.get(name)
        if column is None:
            raise UnfitValue(f"is no parameter; {_hint(name, [*self._columns, *sorted(OWN)])}")
        if column.required and isinstance(value, Mapping):
            return _conditions(column, value)
        if "eq" not in operators(column.type):
            raise UnfitValue(f"cannot be compared; use filters with {', '.join(operators(column.type))}")
        return (Condition(column=column, operator="eq", values=(column.type.check(value),)),)

    def _filters(self, value: Any) -> tuple[Condition, ...]:
        if not isinstance(value, Mapping):
            raise UnfitValue('must be an object of conditions by column, such as {"amount": {"ge": 5}}')
        return tuple(
            condition
            for name, inner in value.items()
            for condition in at(str(name)[:60], self._conditions, name, inner)
        )

    def _conditions(self, name: Any, value: Any) -> tuple[Condition, ...]:
        return _conditions(self._known(name), value)

    def _aggregate(self, one: Any) -> Aggregate:
        if not isinstance(one, Mapping) or one.keys() - {"function", "column", "as"}:
            raise UnfitValue('must be an object such as {"function": "sum", "column": "amount", "as": "total"}')
        function, spelled, name = one.get("function"), one.get("column"), one.get("as")
        if not isinstance(function, str) or function not in AGGREGATES:
            raise UnfitValue(f"must be one of {', '.join(AGGREGATES)}", ("function",))
        if spelled is None and function != "count":
            raise UnfitValue("needs a column", ("column",))
        column = None if spelled is None else at("column", self._known, spelled)
        if column is not None and column.type.shape not in AGGREGATES[function]:
            fitting = [c.name for c in self._columns.values() if c.type.shape in AGGREGATES[function]]
            raise UnfitValue(f"cannot be {function} of; these can: {', '.join(fitting) or 'none'}", ("column",))
        if name is not None and not (isinstance(name, str) and _ALIAS.fullmatch(name)):
            raise UnfitValue("must be a word of at most 60 letters, digits and _", ("as",))
        return Aggregate(function=function, column=column, name=name or "_".join([function, *_named(column)])[:60])

    def _known(self, name: Any) -> RegisteredParameter:
        if isinstance(name, str) and name in self._columns:
            return self._columns[name]
        raise UnfitValue(_unknown(name, list(self._columns)))


def _conditions(column: RegisteredParameter, value: Any) -> tuple[Condition, ...]:
    known = operators(column.type)
    if not isinstance(value, Mapping) or not value:
        raise UnfitValue(f'must be an object such as {{"{known[0]}": ...}} with {", ".join(known)}')
    return tuple(at(str(name)[:60], _condition, column, name, inner) for name, inner in value.items())


def _condition(column: RegisteredParameter, operator: Any, value: Any) -> Condition:
    if operator not in operators(column.type):
        raise UnfitValue(f"is no condition for {column.name!r}; there are: {', '.join(operators(column.type))}")
    if operator == "is_null":
        if not isinstance(value, bool):
            raise UnfitValue("must be true or false")
        return Condition(column=column, operator=operator, values=(value,))
    if operator in ("in", "between"):
        items = _items(value, 2 if operator == "between" else MOST_VALUES, at_least=2 if operator == "between" else 1)
        values = tuple(at(place, column.type.check, one) for place, one in enumerate(items))
        return Condition(column=column, operator=operator, values=values)
    checked = _pattern(value) if operator == "like" else column.type.check(value)
    return Condition(column=column, operator=operator, values=(checked,))


def _pattern(value: Any) -> str:
    """A backslash takes their meaning from % and _; databases disagree on all its other uses, so there are none."""
    text: str = PATTERN.check(value)
    if re.search(r"\\(?![%_\\])", text.replace("\\\\", "")):
        raise UnfitValue(r"may have \ before %, _ and \ alone; write \\ for the sign itself")
    return text


def _order(value: Any, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    items = _items(value, len(names))
    return tuple(at(place, _ordered, one, names) for place, one in enumerate(items))


def _ordered(one: Any, names: Sequence[str]) -> tuple[str, str]:
    if not isinstance(one, Mapping) or one.keys() - {"column", "direction"}:
        raise UnfitValue('must be an object such as {"column": "amount", "direction": "desc"}')
    name, direction = one.get("column"), one.get("direction", "asc")
    if not isinstance(name, str) or name not in names:
        raise UnfitValue(_unknown(name, names), ("column",))
    if direction not in ("asc", "desc"):
        raise UnfitValue("must be 'asc' or 'desc'", ("direction",))
    return name, str(direction).upper()


def _limit(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UnfitValue(f"must be a whole number between 1 and {most}")
    return value


def _items(value: Any, most: int, at_least: int = 0) -> list[Any]:
    if not isinstance(value, list) or not at_least <= len(value) <= most:
        raise UnfitValue(f"must be a list of {f'{at_least} to {most}' if at_least < most else most} items")
    return value


def _unknown(name: Any, known: Sequence[str]) -> str:
    spelled = name if isinstance(name, str) else type(name).__name__
    return f"is {spelled[:60]!r}, which is no column here; {_hint(spelled, known)}"


def _hint(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name[:100], known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}"


def _named(column: RegisteredParameter | None) -> list[str]:
    return [column.name] if column is not None else []


_FILTERS = 'By column, such as {"x": {"ge": 5}}: eq, ne, lt, le, gt, ge, like (text), in, between, is_null; all hold'
META = "portico/registry"
"""Where a definition tells what it was made of."""


def tool_definition(registration: Registration, *, most: int = MOST_ROWS) -> dict[str, Any]:
    """The definition that is listed; `most` is the largest number of rows that a caller may ask for."""
    found: dict[str, Any] = {
        "name": registration.name,
        "description": registration.docstring or _described(registration),
        "inputSchema": _columns(registration, most) if registration.kind.has_columns else _called(registration),
        "annotations": {"readOnlyHint": not registration.writes},
        "_meta": {
            META: {
                "database": registration.database,
                "object": registration.object,
                "kind": registration.kind.value,
                "fingerprint": registration.fingerprint,
            }
        },
    }
    said = {"tags": list(registration.tags), "example": registration.example}
    found["_meta"] |= {key: value for key, value in said.items() if value}
    return found


def _described(registration: Registration) -> str:
    verb = "Reads" if registration.kind.has_columns else "Runs"
    return f"{verb} the {registration.kind.word} {registration.database}.{registration.object}."


def _called(registration: Registration) -> dict[str, Any]:
    return _object(
        {one.name: _schema(one) if one.required else _or_null(_schema(one)) for one in registration.parameters},
        [one.name for one in registration.parameters if one.required],
    )


def _columns(registration: Registration, most: int) -> dict[str, Any]:
    """A column that is called like one of our own parameters stands in `filters` alone."""
    columns = registration.parameters
    plain = [one for one in columns if one.name not in OWN and "eq" in operators(one.type)]
    hidden = [one for one in columns if one.required and one not in plain]
    properties: dict[str, Any] = {one.name: _plain(one) for one in plain}
    required = [one.name for one in plain if one.required] + (["filters"] if hidden else [])
    properties |= _choosing([one.name for one in hidden], columns) if columns else {}
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(LIMIT, most)}
    found = _object({**properties, "limit": limit}, required)
    if columns:
        found["$defs"] = _definitions(columns)
    return found


def _choosing(hidden: list[str], columns: tuple[RegisteredParameter, ...]) -> dict[str, Any]:
    """The parameters of our own, for what a value per column cannot say."""
    column = {"$ref": "#/$defs/column"}
    filters = _object({one.name: {"$ref": f"#/$defs/{_shared(one.type)}"} for one in columns}, hidden)
    direction = {"type": "string", "enum": ["asc", "desc"]}
    order = _open({"column": {"type": "string"}, "direction": direction}, ["column"])
    functions = {"type": "string", "enum": list(AGGREGATES)}
    aggregate = _open({"function": functions, "column": column, "as": {"type": "string"}}, ["function"])
    return {
        "filters": {**filters, "description": _FILTERS},
        "columns": _listed(column, "To return; all by default"),
        "group_by": _listed(column),
        "aggregates": _listed(aggregate, "For each group; sum and avg take numbers"),
        "order_by": _listed(order, "Columns or aggregates"),
    }


def _definitions(columns: tuple[RegisteredParameter, ...]) -> dict[str, Any]:
    """What several columns share is written once."""
    shared = {_shared(one.type): _condition_schema(one.type) for one in columns}
    return {"column": {"type": "string", "enum": [one.name for one in columns]}, **shared}


def _shared(type: ParamType) -> str:
    """The name of what columns of this type share; sizes do not matter to a condition."""
    is_sized = type.shape in (ValueKind.TEXT, ValueKind.INTEGER, ValueKind.FLOAT) and type.name != "other"
    return type.shape.name.lower() if is_sized else type.name


def _condition_schema(type: ParamType) -> dict[str, Any]:
    """What takes one value is named in the description of `filters`, once for all types; a wrong name is refused."""
    one = type.schema(bounds=False)
    many = {"type": "array", "items": one}
    written = {"in": many, "between": many, "is_null": {"type": "boolean"}}
    known = operators(type)
    found = _object({name: written[name] for name in known if name in written}, [])
    return {**found, "additionalProperties": one} if "eq" in known else found


def _plain(column: RegisteredParameter) -> dict[str, Any]:
    """One value, which the column is to equal; a column that must be filtered also takes conditions here."""
    found = _schema(column, bounds=False)
    if not column.required:
        return found
    told = {"description": found.pop("description")} if "description" in found else {}
    return {"anyOf": [found, {"$ref": f"#/$defs/{_shared(column.type)}"}], **told}


def _schema(parameter: RegisteredParameter, *, bounds: bool = True) -> dict[str, Any]:
    found = parameter.type.schema(bounds=bounds)
    text = ", ".join(part for part in (parameter.comment, parameter.type.hint) if part)
    return {**found, "description": text} if text else found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The same for what may be left out: null does that too."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*types, "null"], **choices}


def _listed(items: dict[str, Any], text: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array", "items": items}
    return {**found, "description": text} if text else found


def _open(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """An object in a list: what else stands in it is refused when it is read, and the schema saves the words."""
    return {"type": "object", "properties": properties, "required": required}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found
