"""SQL in YAML files: statements with bound values, and cubes whose SQL no model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from portico.errors import CallError, ConfigError, InvalidArguments
from portico.providers.python import LocalTool
from portico.providers.python.record_types import UnfitArgument, at
from portico.providers.sql import ReadConnection
from portico.providers.sql.statements import ReadStatement, Token, expanded, read_statement, tokens

from .parameters import (
    CONNECTION,
    KEYS,
    NEEDS,
    TYPES,
    WORD,
    YamlParameter,
    YamlTable,
    complete,
    definition,
    input_schema,
    place,
    places,
    read_parameters,
    read_value,
)

DIALECTS = ("sqlite", "postgresql", "mysql")
"""Tried in turn where nobody says which SQL is spoken; a call reads the statement again, for its own database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTool:
    """Runs one statement that reads."""

    name: str
    sql: str
    parameters: Mapping[str, YamlParameter]

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The rows, as far as the limits of the database go.

        Raises:
            CallError: a name is not known, or the database does not answer.
        """
        conn: ReadConnection = values.pop(CONNECTION)
        given = complete(self.name, self.parameters, values)
        names = {p.name: self._identifier(conn, p, given) for p in self.parameters.values() if p.kind == "identifier"}
        sql = with_names(self.sql, conn.dialect, names)
        asked = read_statement(sql, conn.dialect).placeholders
        return conn.rows(sql, {name: given[name] for name in asked if name in given}).shown()

    def _identifier(self, conn: ReadConnection, parameter: YamlParameter, given: Mapping[str, Any]) -> str:
        """A name that the database has, between its quotes."""
        name = str(given[parameter.name])
        if not parameter.of:
            return conn.quoted(conn.find(name))
        table = conn.find(str(given[parameter.of]) if parameter.of in self.parameters else parameter.of)
        return conn.quoted(conn.column(table, name))


def sql_tool(entry: YamlTable, dialect: str = "") -> LocalTool:
    """The tool of an entry with `sql`.

    Raises:
        ConfigError: it is not one statement that reads, or its places do not fit its parameters.
    """
    entry.note_unknown((*KEYS, "parameters", "sql"))
    sql, parameters = entry.text("sql"), read_parameters(entry)
    _check_columns(entry, parameters)
    _check_places(entry, sql, parameters, dialect)
    hints = {"readOnlyHint": True, "idempotentHint": True}
    return LocalTool(
        name=entry.name,
        definition=definition(entry, input_schema(parameters), hints),
        function=SqlTool(name=entry.name, sql=sql, parameters=parameters),
        reads={name: parameter.read for name, parameter in parameters.items()},
        needs=NEEDS,
        **place(entry),
    )


def with_names(sql: str, dialect: str, names: Mapping[str, str]) -> str:
    """The statement with a name in each `{place}`; within quotes and comments nothing is a place.

    Raises:
        InvalidArguments: a quote or a comment is never closed.
    """
    return "".join(names[piece.text] if piece.kind == "place" else piece.text for piece in _pieces(sql, dialect, names))


def read_one(entry: YamlTable, sql: str, dialect: str, line: int = 0) -> tuple[ReadStatement, str]:
    """A statement that is one and reads, and the dialect that it was read in.

    Raises:
        ConfigError: it is something else; says what.
    """
    problem: CallError | None = None
    for spoken in (dialect,) if dialect else DIALECTS:
        try:
            return read_statement(sql, spoken), spoken
        except CallError as error:
            problem = problem or error
    assert problem is not None, "there is a dialect to try"
    raise _unreadable(entry, problem, line) from problem


def _unreadable(entry: YamlTable, problem: CallError, line: int = 0) -> ConfigError:
    what, _, fix = problem.details[0].partition(". ")
    return entry.wrong(f"the SQL cannot be used: {what}", fix or "Write one SELECT, WITH or VALUES", line)


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
    _check_binds(entry, bare, parameters, spoken)
    for name in dict.fromkeys(places(sql)):
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


def _check_binds(entry: YamlTable, sql: str, parameters: Mapping[str, YamlParameter], dialect: str) -> None:
    bound = read_statement(sql, dialect).placeholders
    for name in sorted(bound & parameters.keys()):
        if parameters[name].kind == "identifier":
            raise entry.wrong(f":{name} is a value, and {name!r} is an identifier", f"Write {{{name}}}")
    many = {name: [0] for name in bound if name in parameters and parameters[name].is_many}
    left = read_statement(expanded(sql, dialect, many)[0], dialect).placeholders & many.keys()
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


LIMIT = 100
"""Rows of an answer where the caller does not say."""
FILTERS = 50
VALUES = 500
"""Values of one filter."""
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "in", "between", "is_null", "like")

Order = tuple[str, str]
"""A name, and ASC or DESC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A dimension or measure as its author declared it."""

    expression: str
    description: str = ""
    kind: str = ""
    """What its values are; empty when the author does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CubeFilter:
    """One condition on a dimension."""

    dimension: str
    op: str
    values: tuple[Any, ...] = ()
    is_null: bool = True

    def condition(self, expression: str, binds: dict[str, Any]) -> str:
        """The condition as SQL; its values are added to the binds."""
        if self.op == "is_null":
            return f"({expression}) IS {'' if self.is_null else 'NOT '}NULL"
        names = [f"portico_{len(binds) + number}" for number in range(len(self.values))]
        binds.update(zip(names, self.values, strict=True))
        marks = [f":{name}" for name in names]
        if self.op == "in":
            return f"({expression}) IN ({', '.join(marks)})"
        if self.op == "between":
            return f"({expression}) BETWEEN {marks[0]} AND {marks[1]}"
        return f"({expression}) {_SPELLED.get(self.op, self.op)} {marks[0]}"


_SPELLED = {"!=": "<>", "like": "LIKE"}


def read_names(value: Any, known: Mapping[str, Choice]) -> list[str]:
    """The declared names that are asked for, each once.

    Raises:
        Unfit: one is not declared.
    """
    if not isinstance(value, list):
        raise UnfitArgument(f"must be a list of: {', '.join(known)}")
    return list(dict.fromkeys(at(place, lambda name: _known(name, known), name) for place, name in enumerate(value)))


def read_filters(value: Any, dimensions: Mapping[str, Choice]) -> list[CubeFilter]:
    """The conditions that are asked for.

    Raises:
        Unfit: one names what is not declared, or its value does not fit.
    """
    if not isinstance(value, list) or len(value) > FILTERS:
        raise UnfitArgument(f"must be a list of at most {FILTERS} filters")
    return [at(place, lambda one: _filter(one, dimensions), one) for place, one in enumerate(value)]


def read_order(value: Any, known: Mapping[str, Choice]) -> list[Order]:
    """How the rows are to be ordered.

    Raises:
        Unfit: it names what is not declared.
    """
    if not isinstance(value, list):
        raise UnfitArgument('must be a list such as [{"by": "name", "direction": "desc"}]')
    return [at(place, lambda one: _order(one, known), one) for place, one in enumerate(value)]


def read_limit(value: Any) -> int:
    """How many rows may come.

    Raises:
        Unfit: it is no whole number above 0.
    """
    limit: int = read_value("integer", value)
    if limit < 1:
        raise UnfitArgument("must be at least 1")
    return limit


def _known(name: Any, known: Mapping[str, Choice]) -> str:
    if isinstance(name, str) and name in known:
        return name
    near = get_close_matches(str(name)[:100], known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UnfitArgument(f"{str(name)[:60]!r} is not declared; {hint}there are: {', '.join(known) or 'none'}")


def _order(one: Any, known: Mapping[str, Choice]) -> Order:
    if not isinstance(one, Mapping):
        raise UnfitArgument('must be an object such as {"by": "name", "direction": "desc"}')
    _check_keys(one, ("by", "direction"))
    direction = one.get("direction", "asc")
    if direction not in ("asc", "desc"):
        raise UnfitArgument("direction must be 'asc' or 'desc'")
    return at("by", lambda name: _known(name, known), one.get("by")), direction.upper()


def _filter(one: Any, dimensions: Mapping[str, Choice]) -> CubeFilter:
    if not isinstance(one, Mapping):
        raise UnfitArgument('must be an object such as {"dimension": "name", "op": "=", "value": 1}')
    _check_keys(one, ("dimension", "op", "value"))
    dimension = at("dimension", lambda name: _known(name, dimensions), one.get("dimension"))
    op = one.get("op")
    if not isinstance(op, str) or op not in COMPARISONS:
        raise UnfitArgument(f"must be one of {', '.join(COMPARISONS)}", ("op",))
    value, kind = one.get("value"), dimensions[dimension].kind
    if op == "is_null":
        if value is not None and not isinstance(value, bool):
            raise UnfitArgument("must be true or false", ("value",))
        return CubeFilter(dimension=dimension, op=op, is_null=value is not False)
    return CubeFilter(dimension=dimension, op=op, values=at("value", lambda found: _values(op, kind, found), value))


def _values(op: str, kind: str, value: Any) -> tuple[Any, ...]:
    if op in ("in", "between"):
        sizes = range(2, 3) if op == "between" else range(1, VALUES + 1)
        if not isinstance(value, list) or len(value) not in sizes:
            raise UnfitArgument(
                "must be a list of two values" if op == "between" else f"must be a list of 1 to {VALUES} values"
            )
        return tuple(at(place, lambda one: _single(kind, one), one) for place, one in enumerate(value))
    return (_single("string" if op == "like" else kind, value),)


def _single(kind: str, value: Any) -> Any:
    if value is None:
        raise UnfitArgument("is null, which nothing is equal to; use is_null")
    if kind:
        return read_value(kind, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return read_value("number", value)
    if isinstance(value, str):
        return read_value("string", value)
    raise UnfitArgument("must be text, a number, true or false")


def _check_keys(one: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    if strange := [str(key) for key in one if key not in known]:
        raise UnfitArgument(f"has no field {strange[0][:60]!r}; it has {', '.join(known)}")


MORE = "only the first {} rows are shown. {} filters, or choose fewer dimensions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cube:
    """Composes one statement out of declared expressions and bound values."""

    name: str
    sql: str
    dimensions: Mapping[str, Choice]
    measures: Mapping[str, Choice]

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The measures for each combination of the dimensions.

        Raises:
            CallError: what is chosen does not fit together, or the database does not answer.
        """
        conn: ReadConnection = values.pop(CONNECTION)
        dimensions, measures = values.get("dimensions", []), values.get("measures", [])
        order, filters = values.get("order_by", []), values.get("filters", [])
        self._check(dimensions, measures, order)
        sql, binds = self.composed(conn, dimensions, measures, filters, order)
        limit = values.get("limit", LIMIT)
        answer = conn.rows(sql, binds, limit=limit).shown()
        if answer["truncated"]:
            rows = answer["row_count"]
            answer["next"] = MORE.format(rows, "Raise `limit`, add" if rows == limit else "Add")
        return answer

    def composed(
        self,
        conn: ReadConnection,
        dimensions: list[str],
        measures: list[str],
        filters: list[CubeFilter],
        order: list[Order],
    ) -> tuple[str, dict[str, Any]]:
        """The statement and its values."""
        known = {**self.dimensions, **self.measures}
        written = {name: bare(choice.expression, conn.dialect) for name, choice in known.items()}
        columns = ", ".join(f"{written[name]} AS {conn.quoted(name)}" for name in (*dimensions, *measures))
        sql = f"SELECT {columns} FROM (\n{bare(self.sql, conn.dialect)}\n) portico_cube"  # noqa: S608 - the author's
        binds: dict[str, Any] = {}
        wanted = [filter.condition(written[filter.dimension], binds) for filter in filters]
        if wanted:
            sql += f" WHERE {' AND '.join(wanted)}"
        if dimensions:
            sql += f" GROUP BY {', '.join(written[name] for name in dimensions)}"
        if order:
            sql += f" ORDER BY {', '.join(f'{conn.quoted(by)} {direction}' for by, direction in order)}"
        return sql, binds

    def _check(self, dimensions: list[str], measures: list[str], order: list[Order]) -> None:
        chosen = [*dimensions, *measures]
        if not chosen:
            known = f"measures: {', '.join(self.measures)}; dimensions: {', '.join(self.dimensions)}"
            raise InvalidArguments(self.name, details=(f"choose at least one measure or dimension. {known}",))
        if strange := [by for by, _ in order if by not in chosen]:
            detail = f"order_by: {strange[0]!r} is not among what is chosen: {', '.join(chosen)}"
            raise InvalidArguments(self.name, details=(detail,))


def cube_tool(entry: YamlTable, dialect: str = "") -> LocalTool:
    """The tool of an entry of type cube.

    Raises:
        ConfigError: its SQL or one of its expressions cannot be used.
    """
    entry.note_unknown((*KEYS, "sql", "dimensions", "measures"))
    sql = entry.text("sql")
    statement, spoken = read_one(entry, sql, dialect)
    if statement.placeholders:
        raise entry.wrong("the SQL of a cube takes no :values", "Declare a dimension, and let callers filter by it")
    cube = Cube(
        name=entry.name,
        sql=sql,
        dimensions=_choices(entry, "dimensions", sql, spoken),
        measures=_choices(entry, "measures", sql, spoken),
    )
    if not cube.measures:
        raise entry.wrong("it has no measure", "Add one below `measures`, such as n: {expression: COUNT(*)}")
    if both := sorted(cube.dimensions.keys() & cube.measures.keys()):
        raise entry.wrong(f"{both[0]!r} is a dimension and a measure", "Rename one of them")
    hints = {"readOnlyHint": True, "idempotentHint": True}
    return LocalTool(
        name=entry.name,
        definition=definition(entry, _schema(cube), hints),
        function=cube,
        reads={
            "dimensions": lambda value: read_names(value, cube.dimensions),
            "measures": lambda value: read_names(value, cube.measures),
            "filters": lambda value: read_filters(value, cube.dimensions),
            "order_by": lambda value: read_order(value, {**cube.dimensions, **cube.measures}),
            "limit": read_limit,
        },
        needs=NEEDS,
        **place(entry),
    )


def _choices(entry: YamlTable, key: str, sql: str, dialect: str) -> dict[str, Choice]:
    found = {}
    for member in entry.members(key):
        name = member.key
        if not WORD.fullmatch(name):
            fix = "Use at most 60 letters, digits and _, and begin with a letter"
            raise entry.wrong(f"nothing in {key!r} can be called {name[:60]!r}", fix, member.line)
        choice = Choice(expression=member.node.spelling or name)
        if member.node.members is not None:
            table = YamlTable(member.node, name=f"{entry.name}.{key}.{name}", file=entry.file, notes=entry.notes)
            choice = _choice(table, name, is_dimension=key == "dimensions")
        elif member.node.items is not None:
            raise entry.wrong(f"{name!r} is a list", "Write an expression, or a table with `expression`", member.line)
        _check_expression(entry, name, choice.expression, sql, dialect, member.line)
        found[name] = choice
    return found


def _choice(table: YamlTable, name: str, *, is_dimension: bool) -> Choice:
    table.note_unknown(("expression", "description", "type") if is_dimension else ("expression", "description"))
    spelled = table.text("type", "") if is_dimension else ""
    kind = TYPES.get(spelled.lower(), "") if spelled != "identifier" else ""
    if spelled and not kind:
        raise table.wrong(
            f"there is no type {spelled[:40]!r}", "Use string, integer, number, boolean, date or datetime"
        )
    return Choice(expression=table.text("expression", name), description=table.text("description", ""), kind=kind)


def _check_expression(entry: YamlTable, name: str, expression: str, sql: str, dialect: str, line: int) -> None:
    """Each expression is read on its own, so that one cannot close the parentheses of another."""
    statement, _ = read_one(entry, f"SELECT ({expression}\n)", dialect, line)
    pieces = [piece for piece in tokens(expression, dialect) if piece.kind not in ("space", "line", "block")]
    depth = 0
    for piece in pieces:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece.text, 0)
        if depth < 0 or (depth == 0 and piece.text == ","):
            raise entry.wrong(f"{name!r} is more than one expression", "Write one expression for each name", line)
    if not pieces or statement.placeholders:
        raise entry.wrong(f"{name!r} is no expression without :values", "Write a column, or SUM(column)", line)


def bare(sql: str, dialect: str) -> str:
    """SQL without comments and closing semicolon, so that something can stand behind it."""
    pieces = tokens(sql, dialect)
    return "".join(" " if piece.kind in ("line", "block", "end") else piece.text for piece in pieces).strip()


def _schema(cube: Cube) -> dict[str, Any]:
    both = [*cube.dimensions, *cube.measures]
    properties: dict[str, Any] = {"measures": _listed("What is worked out", cube.measures)}
    if cube.dimensions:
        properties["dimensions"] = _listed("What the rows are grouped by", cube.dimensions)
        properties["filters"] = _filter_schema(list(cube.dimensions))
    direction = {"type": "string", "enum": ["asc", "desc"], "default": "asc"}
    by = {"type": "object", "properties": {"by": {"type": "string", "enum": both}, "direction": direction}}
    properties["order_by"] = {"type": "array", "items": {**by, "required": ["by"], "additionalProperties": False}}
    properties["limit"] = {"type": "integer", "minimum": 1, "default": LIMIT, "description": "Rows at most"}
    return {"type": "object", "properties": properties, "required": [], "additionalProperties": False}


def _listed(what: str, choices: Mapping[str, Choice]) -> dict[str, Any]:
    texts = [f"{name}: {choice.description}" for name, choice in choices.items() if choice.description]
    text = "; ".join([what, *texts])
    return {"type": "array", "items": {"type": "string", "enum": list(choices)}, "description": text}


def _filter_schema(dimensions: list[str]) -> dict[str, Any]:
    properties = {
        "dimension": {"type": "string", "enum": dimensions},
        "op": {"type": "string", "enum": list(COMPARISONS)},
        "value": {"description": "A value; a list for in, two for between; true or false for is_null"},
    }
    item = {"type": "object", "properties": properties, "required": ["dimension", "op"], "additionalProperties": False}
    return {"type": "array", "items": item, "description": "All of them must hold"}
