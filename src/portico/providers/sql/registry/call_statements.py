"""A registered tool as agents see it, and one call of it, checked strictly: one statement in its database's dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from portico.errors import InvalidArguments
from portico.providers.sql.sql_values import ParamType, UnfitValue, ValueKind, at, example_of
from portico.providers.sql.table_query import (
    LIMIT,
    PATTERN,
    SIGNS,
    Condition,
    check_fields,
    clauses,
    condition_values,
    known_name,
    like_pattern,
    names_hint,
    operators_of,
    read_list,
    read_names,
    read_order,
)

from .registry_rows import ObjectKind, RegisteredParameter, Registration
from .sql_dialects import Given, SqlDialect, dialect_named, literal

MOST_ROWS = 1_000
MOST_BINDS = 1_000
"""Values of one question; databases take so many placeholders."""
MOST_PARTS = 50
"""Aggregates of one question."""

OWN = frozenset({"filters", "columns", "order_by", "limit", "group_by", "aggregates"})
"""The parameters of our own; a column of such a name is reached through `filters`."""

_NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL})
_COMPARED = frozenset(ValueKind) - {ValueKind.JSON, ValueKind.BYTES}
AGGREGATES: Mapping[str, frozenset[ValueKind]] = {
    "count": frozenset(ValueKind),
    "count_distinct": _COMPARED,
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "min": _COMPARED - {ValueKind.BOOLEAN, ValueKind.UUID},
    "max": _COMPARED - {ValueKind.BOOLEAN, ValueKind.UUID},
}
"""The kinds of values that each function can be worked out of."""

_ALIAS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
_MARK = re.compile(r":p[0-9]+")
NO_COLUMN = "no column here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Something that is worked out for each group."""

    function: str
    column: str
    """Empty for the rows themselves."""
    name: str


class Returns(StrEnum):
    """The form of an answer."""

    VALUE = "value"
    """One row, most often with one column."""
    ROWS = "rows"
    ANYTHING = "anything"
    """Whatever a macro or procedure has to say: rows, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStatement:
    """One statement with `:p1`, `:p2` in the order of its values; each stands in it once."""

    sql: str
    values: Mapping[str, Any]
    """By the names of their placeholders; they are sent beside the statement."""
    returns: Returns
    limit: int | None = None
    """Rows that were asked for; the statement asks for one more, so that it can be told whether there are others."""

    def positional(self) -> tuple[str, tuple[Any, ...]]:
        """The statement and its values for a driver that counts its places: `?`."""
        # Where there are values nothing of a caller is in the text, and no name can hold a colon.
        return _MARK.sub("?", self.sql) if self.values else self.sql, tuple(self.values.values())


def build_registry_sql(
    registration: Registration, arguments: Mapping[str, Any], dialect: str, *, most: int = MOST_ROWS
) -> BoundStatement:
    """The statement for one call; `most` is the largest number of rows that a caller may ask of a table.

    Raises:
        InvalidArguments: every argument that does not fit is told; nothing was sent.
        InvalidDefinition: this kind of database cannot run the object.
        ConfigError: registries of this kind of database are not read.
    """
    writer = _Writer(dialect_named(dialect), registration)
    if registration.kind.has_columns:
        return writer.selected(_Question(registration, arguments, most))
    return writer.called(arguments)


def statement_template(registration: Registration, dialect: str) -> str:
    """The statement with every parameter given, before there are values: to check, to show and to pin.

    Raises:
        InvalidDefinition: this kind of database cannot run the object.
        ConfigError: registries of this kind of database are not read.
    """
    spoken = dialect_named(dialect)
    names = ", ".join(spoken.quoted(one.name) for one in registration.parameters)
    if registration.kind.has_columns:
        return spoken.page(names or "*", f"FROM {spoken.qualified(registration)}", MOST_ROWS, lambda _: ":p1")
    is_written = is_written_out(registration, dialect)
    given = [
        Given(parameter=one, sql=literal_example(one, dialect) if is_written else spoken.typed(f":p{number}", one.type))
        for number, one in enumerate(registration.parameters, 1)
    ]
    return _call(registration, spoken, given)


def is_written_out(registration: Registration, dialect: str) -> bool:
    """Whether the values of a call become literals, because the database takes no placeholders there."""
    return registration.kind is ObjectKind.MACRO and not dialect_named(dialect).binds_macros


def literal_example(parameter: RegisteredParameter, dialect: str) -> str:
    """An example of a value that is written out: its own name for a text."""
    type = parameter.type
    return literal(dialect_named(dialect).bound(type.check(example_of(type, parameter.name)), type), type)


def _call(registration: Registration, dialect: SqlDialect, given: Sequence[Given]) -> str:
    is_macro = registration.kind is ObjectKind.MACRO
    return dialect.macro(registration, given) if is_macro else dialect.function(registration, given)


class _Question:
    """The parts of one question to a table or view, and what is wrong with them."""

    def __init__(self, registration: Registration, arguments: Mapping[str, Any], most: int) -> None:
        """Read every part.

        Raises:
            InvalidArguments: with all that was found; nothing was sent.
        """
        self._registration, self._arguments = registration, arguments
        self._columns = {one.name: one for one in registration.parameters}
        self._wrong: list[str] = []
        names = partial(read_names, known=self._columns, what=NO_COLUMN)
        self.aggregates: tuple[Aggregate, ...] = self._part("aggregates", self._aggregates, ())
        self.group_by: list[str] = self._part("group_by", names, [])
        columns: list[str] = self._part("columns", names, [])
        self.conditions = self._conditions()
        self.limit: int = self._part("limit", partial(_limit, most), min(LIMIT, most))
        outputs = [*self.group_by, *(one.name for one in self.aggregates)]
        ordered = partial(read_order, known=outputs or list(self._columns), key="column", what=NO_COLUMN)
        self.order_by: tuple[tuple[str, str], ...] = self._part("order_by", ordered, ())
        # Only registered columns can be seen; of a table without columns nobody said more.
        self.columns = columns or list(self._columns)
        self._check_parts(columns, outputs)

    def _part(self, name: str, read: Callable[[Any], Any], default: Any) -> Any:
        """One of our own parameters, or its default."""
        value = self._arguments.get(name)
        try:
            return default if value is None else at(name[:60], read, value)
        except UnfitValue as error:
            self._wrong.append(str(error))
            return default

    def _conditions(self) -> tuple[Condition, ...]:
        """The conditions of plain values, then those of `filters`."""
        plain = [name for name in self._arguments if name not in OWN]
        found = [one for name in plain for one in self._part(name, partial(self._plain, name), ())]
        return (*found, *self._part("filters", self._filters, ()))

    def _check_parts(self, columns: Sequence[str], outputs: Sequence[str]) -> None:
        """Check what concerns several parts."""
        folded = [name.casefold() for name in outputs]
        if twice := [name for name in outputs if folded.count(name.casefold()) > 1]:
            self._wrong.append(f"'aggregates' would give two columns {twice[0]!r}; name one with `as`")
        if columns and outputs:
            self._wrong.append("'columns' does not go with aggregates or group_by; put the columns into group_by")
        if (values := sum(len(one.values) for one in self.conditions)) > MOST_BINDS:
            self._wrong.append(f"'filters' has {values} values; pass at most {MOST_BINDS} in one call")
        filters = self._arguments.get("filters")
        inner = {name for name, value in filters.items() if value} if isinstance(filters, Mapping) else set()
        given = inner | {name for name, value in self._arguments.items() if value is not None and name not in OWN}
        required = [one.name for one in self._columns.values() if one.required]
        self._wrong += [f"missing: a filter on {name}" for name in required if name not in given]
        if self._wrong:
            raise InvalidArguments(self._registration.name, details=self._wrong)

    def _plain(self, name: str, value: Any) -> tuple[Condition, ...]:
        column = self._columns.get(name)
        if column is None:
            raise UnfitValue(f"is no parameter; {names_hint(name, [*self._columns, *sorted(OWN)])}")
        if column.required and isinstance(value, Mapping):
            return _conditions(column, value)
        known = operators_of(column.type)
        if "eq" not in known:
            raise UnfitValue(f"cannot be compared; use filters with {', '.join(known)}")
        return (Condition(column=name, operator="eq", values=(column.type.check(value),), type=column.type),)

    def _filters(self, value: Any) -> tuple[Condition, ...]:
        if not isinstance(value, Mapping):
            raise UnfitValue('must be an object of conditions by column, such as {"amount": {"ge": 5}}')
        found: list[Condition] = []
        for name, inner in value.items():
            step = str(name)[:60]
            column = self._columns[at(step, known_name, name, list(self._columns), NO_COLUMN)]
            found += at(step, _conditions, column, inner)
        return tuple(found)

    def _aggregates(self, value: Any) -> tuple[Aggregate, ...]:
        return tuple(at(place, self._aggregate, one) for place, one in enumerate(read_list(value, MOST_PARTS)))

    def _aggregate(self, one: Any) -> Aggregate:
        if not isinstance(one, Mapping):
            raise UnfitValue('must be an object such as {"function": "sum", "column": "amount", "as": "total"}')
        check_fields(one, ("function", "column", "as"))
        function, column, name = one.get("function"), one.get("column"), one.get("as")
        if not isinstance(function, str) or function not in AGGREGATES:
            raise UnfitValue(f"must be one of {', '.join(AGGREGATES)}", ("function",))
        if column is None and function != "count":
            raise UnfitValue("needs a column", ("column",))
        fitting = [known.name for known in self._columns.values() if known.type.shape in AGGREGATES[function]]
        if column is not None and at("column", known_name, column, list(self._columns), NO_COLUMN) not in fitting:
            raise UnfitValue(f"cannot be {function} of; these can: {', '.join(fitting) or 'none'}", ("column",))
        if name is not None and not (isinstance(name, str) and _ALIAS.fullmatch(name)):
            raise UnfitValue("must be a word of at most 60 letters, digits and _", ("as",))
        own = f"{function}_{column}" if column is not None else function
        return Aggregate(function=function, column=column or "", name=name or own[:60])


def _conditions(column: RegisteredParameter, value: Any) -> tuple[Condition, ...]:
    known = operators_of(column.type)
    if not isinstance(value, Mapping) or not value:
        raise UnfitValue(f'must be an object such as {{"{known[0]}": ...}} with {", ".join(known)}')
    return tuple(at(str(name)[:60], _condition, column, name, inner) for name, inner in value.items())


def _condition(column: RegisteredParameter, operator: str, value: Any) -> Condition:
    known, operator = operators_of(column.type), SIGNS.get(operator, operator)
    if operator not in known:
        raise UnfitValue(f"is no condition for {column.name!r}; there are: {', '.join(known)}")
    is_like = operator == "like"
    values = condition_values(operator, value, like_pattern if is_like else column.type.check)
    return Condition(column=column.name, operator=operator, values=values, type=PATTERN if is_like else column.type)


def _limit(most: int, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise UnfitValue(f"must be a whole number between 1 and {most}")
    return value


class _Writer:
    """Collects the values of one statement while it is written."""

    def __init__(self, dialect: SqlDialect, registration: Registration) -> None:
        self._dialect, self._registration = dialect, registration
        self._values: dict[str, Any] = {}

    def called(self, arguments: Mapping[str, Any]) -> BoundStatement:
        """A function, macro or procedure with its arguments in their order."""
        known = {one.name for one in self._registration.parameters}
        wrong = [f"unknown: {str(name)[:60]}" for name in arguments if name not in known]
        given = []
        for parameter in self._registration.parameters:
            try:
                given.append(at(parameter.name, self._given, parameter, arguments.get(parameter.name)))
            except UnfitValue as error:
                wrong.append(str(error))
        if wrong:
            raise InvalidArguments(self._registration.name, details=wrong)
        value = Returns.ROWS if self._registration.returns_rows else Returns.VALUE
        returns = Returns.ANYTHING if self._registration.kind is ObjectKind.MACRO else value
        sql = _call(self._registration, self._dialect, given)
        return BoundStatement(sql=sql, values=self._values, returns=returns)

    def selected(self, question: _Question) -> BoundStatement:
        """A question to a table or view."""
        quoted = self._dialect.quoted
        try:
            conditions = [self._condition(one) for one in question.conditions]
        except UnfitValue as error:
            raise InvalidArguments(self._registration.name, details=(str(error),)) from error
        groups = [quoted(name) for name in question.group_by]
        order = [f"{quoted(name)} {direction}" for name, direction in question.order_by]
        outputs = [*groups, *map(self._aggregate, question.aggregates)] or [quoted(name) for name in question.columns]
        rest = f"FROM {self._dialect.qualified(self._registration)}{clauses(conditions, groups, order)}"
        sql = self._dialect.page(", ".join(outputs) or "*", rest, question.limit + 1, self._bind)
        return BoundStatement(sql=sql, values=self._values, returns=Returns.ROWS, limit=question.limit)

    def _given(self, parameter: RegisteredParameter, value: Any) -> Given:
        if value is None:
            if parameter.required:
                raise UnfitValue("is missing")
            return Given(parameter=parameter, sql=None)
        checked = parameter.type.check(value)
        if is_written_out(self._registration, self._dialect.name):
            return Given(parameter=parameter, sql=literal(self._dialect.bound(checked, parameter.type), parameter.type))
        return Given(parameter=parameter, sql=self._typed(parameter.type, checked))

    def _aggregate(self, aggregate: Aggregate) -> str:
        column = self._dialect.quoted(aggregate.column) if aggregate.column else "*"
        is_distinct = aggregate.function == "count_distinct"
        call = f"COUNT(DISTINCT {column})" if is_distinct else f"{aggregate.function.upper()}({column})"
        return f"{call} AS {self._dialect.quoted(aggregate.name)}"

    def _condition(self, condition: Condition) -> str:
        assert condition.type is not None, "columns of a registry have types"
        typed = partial(at, condition.column, self._typed, condition.type)
        return condition.sql(self._dialect.quoted(condition.column), typed, like="LIKE {} ESCAPE '\\'")

    def _typed(self, type: ParamType, value: Any) -> str:
        return self._dialect.typed(self._bind(self._dialect.bound(value, type)), type)

    def _bind(self, value: Any) -> str:
        name = f"p{len(self._values) + 1}"
        self._values[name] = value
        return f":{name}"


_FILTERS = 'By column, such as {"x": {"ge": 5}}: eq, ne, lt, le, gt, ge, like (text), in, between, is_null; all hold'
META = "portico/registry"
"""The key under which a definition tells the object that it was made of."""


def tool_definition(registration: Registration, *, most: int = MOST_ROWS) -> dict[str, Any]:
    """The definition that is listed; `most` is the largest number of rows that a caller may ask for."""
    verb = "Reads" if registration.kind.has_columns else "Runs"
    described = f"{verb} the {registration.kind.word} {registration.database}.{registration.object}."
    parameters = registration.parameters
    if registration.kind.has_columns:
        schema = _columns(parameters, most)
    else:
        known = {one.name: _schema(one) if one.required else _or_null(_schema(one)) for one in parameters}
        schema = _object(known, [one.name for one in parameters if one.required])
    found: dict[str, Any] = {
        "name": registration.name,
        "description": registration.docstring or described,
        "inputSchema": schema,
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


def _columns(columns: tuple[RegisteredParameter, ...], most: int) -> dict[str, Any]:
    """A column that is called like one of our own parameters stands in `filters` alone."""
    plain = [one for one in columns if one.name not in OWN and "eq" in operators_of(one.type)]
    hidden = [one for one in columns if one.required and one not in plain]
    properties: dict[str, Any] = {one.name: _plain(one) for one in plain}
    required = [one.name for one in plain if one.required] + (["filters"] if hidden else [])
    properties |= _choosing([one.name for one in hidden], columns) if columns else {}
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(LIMIT, most)}
    found = _object({**properties, "limit": limit}, required)
    if columns:
        shared = {_shared(one.type): _condition_schema(one.type) for one in columns}
        found["$defs"] = {"column": {"type": "string", "enum": [one.name for one in columns]}, **shared}
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


def _shared(type: ParamType) -> str:
    """The name of a shared schema; sizes do not matter to a condition."""
    is_sized = type.shape in (ValueKind.TEXT, ValueKind.INTEGER, ValueKind.FLOAT) and type.name != "other"
    return type.shape.name.lower() if is_sized else type.name


def _condition_schema(type: ParamType) -> dict[str, Any]:
    """Comparisons with one value are named in the description of `filters`, once for all types."""
    one = type.schema(bounds=False)
    many = {"type": "array", "items": one}
    written = {"in": many, "between": many, "is_null": {"type": "boolean"}}
    known = operators_of(type)
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
    """The schema of a parameter that may be left out: null does that too."""
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
