"""Cubes: a model chooses among declared dimensions, measures and filters, and never writes SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portico.errors import InvalidArguments
from portico.providers.database import Connection
from portico.providers.database.statements import tokens
from portico.providers.local import LocalTool

from .asking import COMPARISONS, LIMIT, Choice, Filter, Order, read_filters, read_limit, read_names, read_order
from .definitions import CONNECTION, KEYS, NEEDS, definition, place
from .parameters import TYPES
from .sql_tools import read_one
from .tables import WORD, Table

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
        conn: Connection = values.pop(CONNECTION)
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
        conn: Connection,
        dimensions: list[str],
        measures: list[str],
        filters: list[Filter],
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


def cube_tool(entry: Table, dialect: str = "") -> LocalTool:
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


def _choices(entry: Table, key: str, sql: str, dialect: str) -> dict[str, Choice]:
    found = {}
    for member in entry.members(key):
        name = member.key
        if not WORD.fullmatch(name):
            fix = "Use at most 60 letters, digits and _, and begin with a letter"
            raise entry.wrong(f"nothing in {key!r} can be called {name[:60]!r}", fix, member.line)
        choice = Choice(expression=member.node.spelling or name)
        if member.node.members is not None:
            table = Table(member.node, name=f"{entry.name}.{key}.{name}", file=entry.file, notes=entry.notes)
            choice = _choice(table, name, is_dimension=key == "dimensions")
        elif member.node.items is not None:
            raise entry.wrong(f"{name!r} is a list", "Write an expression, or a table with `expression`", member.line)
        _check_expression(entry, name, choice.expression, sql, dialect, member.line)
        found[name] = choice
    return found


def _choice(table: Table, name: str, *, is_dimension: bool) -> Choice:
    table.note_unknown(("expression", "description", "type") if is_dimension else ("expression", "description"))
    spelled = table.text("type", "") if is_dimension else ""
    kind = TYPES.get(spelled.lower(), "") if spelled != "identifier" else ""
    if spelled and not kind:
        raise table.wrong(
            f"there is no type {spelled[:40]!r}", "Use string, integer, number, boolean, date or datetime"
        )
    return Choice(expression=table.text("expression", name), description=table.text("description", ""), kind=kind)


def _check_expression(entry: Table, name: str, expression: str, sql: str, dialect: str, line: int) -> None:
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
