"""Teradata's data dictionary: objects of every kind, and the columns of tables and views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from portico.providers.database import OwnConnection
from portico.providers.registry.registration import Kind

from .fact import Facts, Form, Found, Views, grouped

OBJECTS = """
SELECT o.DatabaseName, o.TableName, o.TableKind, o.LastAlterTimeStamp FROM DBC.TablesV o
WHERE EXISTS (SELECT 1 FROM {tools} r WHERE TRIM(r.DataBaseName) = o.DatabaseName AND TRIM(r.TableName) = o.TableName)
"""
COLUMNS = """
SELECT c.DatabaseName, c.TableName, c.ColumnName FROM DBC.ColumnsV c
WHERE EXISTS (SELECT 1 FROM {tools} r WHERE TRIM(r.DataBaseName) = c.DatabaseName AND TRIM(r.TableName) = c.TableName)
ORDER BY c.ColumnId
"""

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys("TO", Kind.TABLE),
    "V": Kind.VIEW,
    **dict.fromkeys("MPE", Kind.MACRO),
    **dict.fromkeys("FRABS", Kind.FUNCTION),
}
"""The letters of the dictionary: also tables without a primary index, procedures, and functions that return tables."""


def look_teradata(conn: OwnConnection, views: Views) -> Facts:
    """Ask for all registered names at once; the dictionary tells what a user may see."""
    columns: dict[tuple[str, str], list[str]] = {}
    for database, name, column in _rows(conn, COLUMNS, views):
        columns.setdefault((database, name), []).append(column)
    objects = [row for row in _rows(conn, OBJECTS, views) if row[2] in _KINDS]
    return Facts(found=grouped([_found_in_teradata(row, columns.get((row[0], row[1]), [])) for row in objects]))


def _rows(conn: OwnConnection, sql: str, views: Views) -> list[Sequence[Any]]:
    rows = conn.prepared(sql.format(tools=views.tools), {}).rows
    return [[cell.rstrip() if isinstance(cell, str) else cell for cell in row] for row in rows]


def _found_in_teradata(row: Sequence[Any], columns: list[str]) -> Found:
    database, name, letter, altered = row
    kind = _KINDS[letter]
    is_table = kind.has_columns
    form = Form(least=len(columns), most=len(columns), returns_rows=letter == "R")
    return Found(
        database=database,
        name=name,
        kind=kind,
        columns=tuple(columns) if is_table and columns else None,
        # The dictionary lists the parameters of macros as columns; those of functions it does not always.
        forms=None if is_table or not columns else (form,),
        mark=str(altered),
    )
