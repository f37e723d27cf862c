"""SQL in YAML files: statements with bound values, and cubes whose SQL no model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from portico.errors import CallError, InvalidArguments
from portico.providers.python import LocalTool
from portico.providers.sql import ReadConnection
from portico.providers.sql.sql_lexer import SILENT, ReadStatement, Token, expand_lists, read_statement, tokens
from portico.providers.sql.sql_values import UnfitValue, at
from portico.providers.sql.table_query import (
    LIMIT,
    OPERATORS,
    SIGNS,
    Condition,
    check_fields,
    clauses,
    condition_values,
    known_name,
    read_list,
    read_names,
    read_order,
)

from .tool_entries import (
    CONNECTION,
    KEYS,
    NEEDS,
    TYPES,
    WORD,
    YamlParameter,
    YamlTable,
    complete,
    input_schema,
    local_tool,
    place_names,
    read_parameters,
    read_value,
)

DIALECTS = ("sqlite", "postgresql", "mysql")
"""Tried in turn where nobody says which SQL is spoken; a call reads the statement again, for its own database."""


READ_ONLY = {"readOnlyHint": True, "idempotentHint": True}


def sql_tool(entry: YamlTable, dialect: str = "") -> LocalTool:
    """The tool of an entry with `sql`."""
    entry.note_unknown((*KEYS, "parameters", "sql"))
    sql, parameters = entry.text("sql"), read_parameters(entry)
    _check_columns(entry, parameters)
    _check_places(entry, sql, parameters, dialect)
    function = partial(_run_sql, entry.name, sql, parameters)
    reads = {name: parameter.read for name, parameter in parameters.items()}
    return local_tool(entry, function, input_schema(parameters), reads, READ_ONLY, needs=NEEDS)


def _run_sql(tool: str, sql: str, parameters: Mapping[str, YamlParameter], /, **values: Any) -> dict[str, Any]:
    """Run a statement that reads; the rows, as far as the limits of the database go."""
    conn: ReadConnection = values.pop(CONNECTION)
    given = complete(tool, parameters, values)
    names = {}
    for one in parameters.values():
        if one.kind != "identifier":
            continue
        # A name that the database has, between its quotes.
        name = str(given[one.name])
        table = conn.find(str(given.get(one.of, one.of))) if one.of else conn.find(name)
        names[one.name] = conn.quoted(conn.column(table, name) if one.of else table)
    sql = with_names(sql, conn.dialect, names)
    asked = read_statement(sql, conn.dialect).placeholders
    return conn.rows(sql, {name: given[name] for name in asked if name in given}).shown()


def with_names(sql: str, dialect: str, names: Mapping[str, str]) -> str:
    """The statement with a name in each `{place}`; within quotes and comments nothing is a place."""
    return "".join(names[one.text] if one.kind == "place" else one.text for one in _pieces(sql, dialect, names))


def read_one(entry: YamlTable, sql: str, dialect: str, line: int = 0) -> tuple[ReadStatement, str]:
    """A statement that is one and reads, and the dialect that it was read in."""
    problems: list[CallError] = []
    for spoken in (dialect,) if dialect else DIALECTS:
        try:
            return read_statement(sql, spoken), spoken
        except CallError as error:
            problems.append(error)
    what, _, fix = problems[0].details[0].partition(". ")
    fix = fix or "Write one SELECT, WITH or VALUES"
    raise entry.wrong(f"the SQL cannot be used: {what}", fix, line) from problems[0]


def _pieces(sql: str, dialect: str, names: Mapping[str, str]) -> list[Token]:
    """The tokens, with `{name}` as one where the name is among these."""
    found, pieces = list(tokens(sql, dialect)), list[Token]()
    place = 0
    while place < len(found):
        brace, *inner = (token.text for token in found[place : place + 3])
        if brace == "{" and len(inner) == 2 and inner[0] in names and inner[1] == "}":
            pieces.append(Token("place", inner[0]))
            place += 3
        else:
            pieces.append(found[place])
            place += 1
    return pieces


def _check_places(entry: YamlTable, sql: str, parameters: Mapping[str, YamlParameter], dialect: str) -> None:
    identifiers = {name: "portico_name" for name, p in parameters.items() if p.kind == "identifier"}
    bare = sql
    for name in identifiers:
        bare = bare.replace(f"{{{name}}}", "portico_name")
    statement, spoken = read_one(entry, bare, dialect)
    pieces = _pieces(sql, spoken, identifiers)
    used = {piece.text for piece in pieces if piece.kind == "place"}
    _check_neighbours(entry, pieces)
    _check_binds(entry, bare, statement.placeholders, parameters, spoken)
    for name in dict.fromkeys(place_names(sql)):
        if name in identifiers and name not in used:
            raise entry.wrong(f"{{{name}}} stands within quotes", "Leave the quotes out: the name is quoted for you")
        if name in parameters and name not in identifiers:
            fix = f"Write :{name}, or give it `type: identifier` if it names a table or column"
            raise entry.wrong(f"{{{name}}} is a value, and values are never written into SQL", fix)
        if name not in parameters:
            entry.note(f"{{{name}}} is no parameter and stays as it is", "Declare it under `parameters`")
    if undeclared := sorted(statement.placeholders - parameters.keys()):
        names = ", ".join(f":{name}" for name in undeclared)
        raise entry.wrong(f"no parameter is declared for {names}", "Declare it under `parameters`")
    for name in parameters:
        is_table = any(parameter.of == name for parameter in parameters.values())
        if name not in statement.placeholders | used and not is_table:
            entry.note(f"its parameter {name!r} stands nowhere in its SQL", f"Write :{name} in it, or delete it")


def _check_neighbours(entry: YamlTable, pieces: list[Token]) -> None:
    """A name is a whole word: between quotes it cannot be a part of one."""
    for one, other in pairwise(pieces):
        kinds = {one.kind, other.kind}
        if kinds == {"place"} or ("place" in kinds and kinds & {"word", "number", "quoted"}):
            name, glued = (one, other) if one.kind == "place" else (other, one)
            fix = "Put a space or a dot between them: a place stands for a whole name"
            raise entry.wrong(f"{{{name.text}}} is glued to {glued.text[:40]!r}", fix)


def _check_binds(
    entry: YamlTable, sql: str, bound: frozenset[str], parameters: Mapping[str, YamlParameter], dialect: str
) -> None:
    for name in sorted(bound & parameters.keys()):
        if parameters[name].kind == "identifier":
            raise entry.wrong(f":{name} is a value, and {name!r} is an identifier", f"Write {{{name}}}")
    many = {name: [0] for name in bound if name in parameters and parameters[name].is_many}
    left = read_statement(expand_lists(sql, dialect, many)[0], dialect).placeholders & many.keys()
    if left:
        name = min(left)
        raise entry.wrong(f":{name} takes a list, which fits behind IN alone", f"Write IN :{name}, or delete `many`")


def _check_columns(entry: YamlTable, parameters: Mapping[str, YamlParameter]) -> None:
    for name, parameter in parameters.items():
        if not parameter.of:
            continue
        if parameter.kind != "identifier":
            raise entry.wrong(f"`of` in {name!r} is for columns", "Delete it, or give it `type: identifier`")
        table = parameters.get(parameter.of)
        if table is not None and (table.kind != "identifier" or table.of):
            raise entry.wrong(f"{name!r} is a column of {parameter.of!r}, which is no table", "Name a table in `of`")


FILTERS = 50
COMPARISONS = (*SIGNS, "in", "between", "is_null", "like")
UNDECLARED = "not declared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A dimension or measure as its author declared it."""

    expression: str
    description: str = ""
    kind: str = ""
    """The type of its values; empty when the author does not say."""


def _limit(value: Any) -> int:
    limit: int = read_value("integer", value)
    if limit < 1:
        raise UnfitValue("must be at least 1")
    return limit


def _filter(one: Any, dimensions: Mapping[str, Choice]) -> Condition:
    if not isinstance(one, Mapping):
        raise UnfitValue('must be an object such as {"dimension": "name", "op": "=", "value": 1}')
    check_fields(one, ("dimension", "op", "value"))
    name = at("dimension", known_name, one.get("dimension"), list(dimensions), UNDECLARED)
    op, value = one.get("op"), one.get("value")
    operator = SIGNS.get(op, op) if isinstance(op, str) else ""
    if operator not in OPERATORS:
        raise UnfitValue(f"must be one of {', '.join(COMPARISONS)}", ("op",))
    if operator == "is_null" and value is None:
        value = True
    kind = "string" if operator == "like" else dimensions[name].kind
    values = at("value", condition_values, operator, value, partial(_single, kind))
    return Condition(column=name, operator=operator, values=values)


def _single(kind: str, value: Any) -> Any:
    """One value, of the declared type or of any that JSON has a word for."""
    if value is None:
        raise UnfitValue("is null, which nothing is equal to; use is_null")
    if kind or isinstance(value, bool | int | float | str):
        spelled = {bool: "boolean", str: "string"}.get(type(value), "number")
        return read_value(kind or spelled, value)
    raise UnfitValue("must be text, a number, true or false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cube:
    """Composes one statement out of declared expressions and bound values."""

    name: str
    sql: str
    dimensions: Mapping[str, Choice]
    measures: Mapping[str, Choice]

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The measures for each combination of the dimensions."""
        conn: ReadConnection = values.pop(CONNECTION)
        dimensions, measures = values.get("dimensions", []), values.get("measures", [])
        order, filters = values.get("order_by", []), values.get("filters", [])
        self._check(dimensions, measures, order)
        sql, binds = self._composed(conn, dimensions, measures, filters, order)
        limit = values.get("limit", LIMIT)
        answer = conn.rows(sql, binds, limit=limit).shown()
        if answer["truncated"]:
            rows = answer["row_count"]
            advice = "Raise `limit`, add" if rows == limit else "Add"
            answer["next"] = f"only the first {rows} rows are shown. {advice} filters, or choose fewer dimensions"
        return answer

    def _composed(
        self,
        conn: ReadConnection,
        dimensions: list[str],
        measures: list[str],
        filters: list[Condition],
        order: list[tuple[str, str]],
    ) -> tuple[str, dict[str, Any]]:
        known = {**self.dimensions, **self.measures}
        written = {name: _bare(choice.expression, conn.dialect) for name, choice in known.items()}
        columns = ", ".join(f"{written[name]} AS {conn.quoted(name)}" for name in (*dimensions, *measures))
        sql = f"SELECT {columns} FROM (\n{_bare(self.sql, conn.dialect)}\n) portico_cube"  # noqa: S608 - the author's
        binds: dict[str, Any] = {}

        def bind(value: Any) -> str:
            binds[name := f"portico_{len(binds)}"] = value
            return f":{name}"

        wanted = [one.sql(f"({written[one.column]})", bind) for one in filters]
        ordered = [f"{conn.quoted(by)} {direction}" for by, direction in order]
        return sql + clauses(wanted, [written[name] for name in dimensions], ordered), binds

    def _check(self, dimensions: list[str], measures: list[str], order: list[tuple[str, str]]) -> None:
        chosen = [*dimensions, *measures]
        if not chosen:
            known = f"measures: {', '.join(self.measures)}; dimensions: {', '.join(self.dimensions)}"
            raise InvalidArguments(self.name, details=(f"choose at least one measure or dimension. {known}",))
        if strange := [by for by, _ in order if by not in chosen]:
            detail = f"order_by: {strange[0]!r} is not among what is chosen: {', '.join(chosen)}"
            raise InvalidArguments(self.name, details=(detail,))


def cube_tool(entry: YamlTable, dialect: str = "") -> LocalTool:
    """The tool of an entry of type cube."""
    entry.note_unknown((*KEYS, "sql", "dimensions", "measures"))
    sql = entry.text("sql")
    statement, spoken = read_one(entry, sql, dialect)
    if statement.placeholders:
        raise entry.wrong("the SQL of a cube takes no :values", "Declare a dimension, and let callers filter by it")
    cube = Cube(
        name=entry.name,
        sql=sql,
        dimensions=_choices(entry, "dimensions", spoken),
        measures=_choices(entry, "measures", spoken),
    )
    if not cube.measures:
        raise entry.wrong("it has no measure", "Add one below `measures`, such as n: {expression: COUNT(*)}")
    if twice := sorted(cube.dimensions.keys() & cube.measures.keys()):
        raise entry.wrong(f"{twice[0]!r} is a dimension and a measure", "Rename one of them")
    both = [*cube.dimensions, *cube.measures]
    reads = {
        "dimensions": lambda value: read_names(value, cube.dimensions, UNDECLARED),
        "measures": lambda value: read_names(value, cube.measures, UNDECLARED),
        "filters": lambda value: [
            at(place, _filter, one, cube.dimensions) for place, one in enumerate(read_list(value, FILTERS))
        ],
        "order_by": lambda value: read_order(value, both, "by", UNDECLARED),
        "limit": _limit,
    }
    return local_tool(entry, cube, _schema(cube), reads, READ_ONLY, needs=NEEDS)


def _choices(entry: YamlTable, key: str, dialect: str) -> dict[str, Choice]:
    """The dimensions or measures of a cube."""
    found = {}
    is_dimension = key == "dimensions"
    for member in entry.members(key):
        name, node = member.key, member.node
        if not WORD.fullmatch(name):
            fix = "Use at most 60 letters, digits and _, and begin with a letter"
            raise entry.wrong(f"nothing in {key!r} can be called {name[:60]!r}", fix, member.line)
        if node.items is not None:
            raise entry.wrong(f"{name!r} is a list", "Write an expression, or a table with `expression`", member.line)
        found[name] = Choice(expression=node.spelling or name)
        if node.members is not None:
            table = YamlTable(node, name=f"{entry.name}.{key}.{name}", file=entry.file, notes=entry.notes)
            table.note_unknown(("expression", "description", *(("type",) if is_dimension else ())))
            spelled = table.text("type", "") if is_dimension else ""
            kind = TYPES.get(spelled.lower(), "")
            if spelled and kind in ("", "identifier"):
                fix = "Use string, integer, number, boolean, date or datetime"
                raise table.wrong(f"there is no type {spelled[:40]!r}", fix)
            expression, description = table.text("expression", name), table.text("description", "")
            found[name] = Choice(expression=expression, description=description, kind=kind)
        _check_expression(entry, name, found[name].expression, dialect, member.line)
    return found


def _check_expression(entry: YamlTable, name: str, expression: str, dialect: str, line: int) -> None:
    """Each expression is read on its own, so that one cannot close the parentheses of another."""
    statement, _ = read_one(entry, f"SELECT ({expression}\n)", dialect, line)
    pieces = [piece for piece in tokens(expression, dialect) if piece.kind not in SILENT]
    depth = 0
    for piece in pieces:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece.text, 0)
        if depth < 0 or (depth == 0 and piece.text == ","):
            raise entry.wrong(f"{name!r} is more than one expression", "Write one expression for each name", line)
    if not pieces or statement.placeholders:
        raise entry.wrong(f"{name!r} is no expression without :values", "Write a column, or SUM(column)", line)


def _bare(sql: str, dialect: str) -> str:
    """SQL without comments and closing semicolon, so that something can stand behind it."""
    pieces = tokens(sql, dialect)
    return "".join(" " if piece.kind in ("line", "block", "end") else piece.text for piece in pieces).strip()


def _schema(cube: Cube) -> dict[str, Any]:
    both = [*cube.dimensions, *cube.measures]
    properties: dict[str, Any] = {"measures": _listed("What is worked out", cube.measures)}
    if cube.dimensions:
        properties["dimensions"] = _listed("What the rows are grouped by", cube.dimensions)
        condition = {
            "dimension": {"type": "string", "enum": list(cube.dimensions)},
            "op": {"type": "string", "enum": list(COMPARISONS)},
            "value": {"description": "A value; a list for in, two for between; true or false for is_null"},
        }
        item = _object(condition, ["dimension", "op"])
        properties["filters"] = {"type": "array", "items": item, "description": "All of them must hold"}
    direction = {"type": "string", "enum": ["asc", "desc"], "default": "asc"}
    order = _object({"by": {"type": "string", "enum": both}, "direction": direction}, ["by"])
    properties["order_by"] = {"type": "array", "items": order}
    properties["limit"] = {"type": "integer", "minimum": 1, "default": LIMIT, "description": "Rows at most"}
    return _object(properties, [])


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _listed(what: str, choices: Mapping[str, Choice]) -> dict[str, Any]:
    texts = [f"{name}: {choice.description}" for name, choice in choices.items() if choice.description]
    items = {"type": "string", "enum": list(choices)}
    return {"type": "array", "items": items, "description": "; ".join([what, *texts])}
