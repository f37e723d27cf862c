"""SQL with `:binds` and `{identifier}` places: values are bound, names are looked up in the database and quoted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from portico.errors import CallError, ConfigError
from portico.providers.database import Connection
from portico.providers.database.expanding import expanded
from portico.providers.database.statements import Statement, Token, read_statement, tokens
from portico.providers.local import LocalTool

from .definitions import CONNECTION, KEYS, NEEDS, definition, place
from .parameters import Parameter, complete, input_schema, read_parameters
from .tables import Table
from .templates import places

DIALECTS = ("sqlite", "postgresql", "mysql")
"""Tried in turn where nobody says which SQL is spoken; a call reads the statement again, for its own database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTool:
    """Runs one statement that reads."""

    name: str
    sql: str
    parameters: Mapping[str, Parameter]

    def __call__(self, **values: Any) -> dict[str, Any]:
        """The rows, as far as the limits of the database go.

        Raises:
            CallError: a name is not known, or the database does not answer.
        """
        conn: Connection = values.pop(CONNECTION)
        given = complete(self.name, self.parameters, values)
        names = {p.name: self._identifier(conn, p, given) for p in self.parameters.values() if p.kind == "identifier"}
        sql = with_names(self.sql, conn.dialect, names)
        asked = read_statement(sql, conn.dialect).placeholders
        return conn.rows(sql, {name: given[name] for name in asked if name in given}).shown()

    def _identifier(self, conn: Connection, parameter: Parameter, given: Mapping[str, Any]) -> str:
        """A name that the database has, between its quotes."""
        name = str(given[parameter.name])
        if not parameter.of:
            return conn.quoted(conn.find(name))
        table = conn.find(str(given[parameter.of]) if parameter.of in self.parameters else parameter.of)
        return conn.quoted(conn.column(table, name))


def sql_tool(entry: Table, dialect: str = "") -> LocalTool:
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


def read_one(entry: Table, sql: str, dialect: str, line: int = 0) -> tuple[Statement, str]:
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


def _unreadable(entry: Table, problem: CallError, line: int = 0) -> ConfigError:
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


def _check_places(entry: Table, sql: str, parameters: Mapping[str, Parameter], dialect: str) -> None:
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


def _check_neighbours(entry: Table, pieces: list[Token]) -> None:
    """A name is a whole word: between quotes it cannot be a part of one."""
    for one, other in pairwise(pieces):
        kinds = {one.kind, other.kind}
        if kinds == {"place"} or ("place" in kinds and kinds & {"word", "number", "quoted"}):
            name, glued = (one, other) if one.kind == "place" else (other, one)
            fix = "Put a space or a dot between them: a place stands for a whole name"
            raise entry.wrong(f"{{{name.text}}} is glued to {glued.text[:40]!r}", fix)


def _check_binds(entry: Table, sql: str, parameters: Mapping[str, Parameter], dialect: str) -> None:
    bound = read_statement(sql, dialect).placeholders
    for name in sorted(bound & parameters.keys()):
        if parameters[name].kind == "identifier":
            raise entry.wrong(f":{name} is a value, and {name!r} is an identifier", f"Write {{{name}}}")
    many = {name: [0] for name in bound if name in parameters and parameters[name].is_many}
    left = read_statement(expanded(sql, dialect, many)[0], dialect).placeholders & many.keys()
    if left:
        name = min(left)
        raise entry.wrong(f":{name} takes a list, which fits behind IN alone", f"Write IN :{name}, or delete `many`")


def _check_columns(entry: Table, parameters: Mapping[str, Parameter]) -> None:
    for name, parameter in parameters.items():
        if not parameter.of:
            continue
        if parameter.kind != "identifier":
            raise entry.wrong(f"`of` in {name!r} is for columns", "Delete it, or give it `type: identifier`")
        table = parameters.get(parameter.of)
        if table is not None and (table.kind != "identifier" or table.of):
            raise entry.wrong(f"{name!r} is a column of {parameter.of!r}, which is no table", "Name a table in `of`")
