"""The objects that a registry names, as the database's own catalog has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from portico.providers.sql import OwnConnection
from portico.providers.sql.postgres_guard import BARRED, INDIRECT, VOLATILE_AND_HARMLESS

from .registry_rows import ObjectKind, Registration

Key = tuple[str, str, ObjectKind]
"""Database, object and kind of an object, in small letters; a view counts as a table."""
Names = Mapping[str, list[str]]
"""The `databases` and the `names` of objects that stand in a registry, in small letters and in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnType:
    """The type of one parameter, as the database's catalog has it."""

    name: str
    """As it can stand in a cast."""
    base: str
    """The type below a domain; otherwise the same type, under its plain name."""
    labels: tuple[str, ...] = ()
    """The values of an enum."""
    is_pseudo: bool = False
    """Whether it stands for other types, or for something that no query can hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way to call a function, macro or procedure; those of one name may differ in what they take."""

    least: int
    most: int
    names: tuple[str, ...] = ()
    """Of what it takes, where they have names."""
    types: tuple[OwnType, ...] = ()
    """Of what it takes, where the catalog tells; that of a VARIADIC parameter is the type of its items."""
    is_variadic: bool = False
    """Whether the last parameter takes a list."""
    returns_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseObject:
    """One object that the database has, under its exact name."""

    database: str
    name: str
    kind: ObjectKind
    columns: tuple[str, ...] | None = None
    """The columns of a table or view; None where nobody can tell."""
    forms: tuple[Form, ...] | None = None
    """The ways to call a function, macro or procedure; None where nobody can tell."""
    is_permitted: bool = True
    """Whether the database user who asks may use it."""
    denied: str = ""
    """Why it may not be used, whatever rights there are."""
    writes: str = ""
    """Why it may not be used unless it was registered as writing."""
    mark: str = ""
    """Changes when the object does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that was found of what a registry names."""

    found: Mapping[Key, tuple[DatabaseObject, ...]] = field(default_factory=dict)
    mark: str = ""
    """A mark that a later look can be compared with, cheaply; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The registry's views as they can stand in SQL."""

    tools: str
    params: str
    users: str = ""
    """Empty where there is no such view."""


def names_in(registrations: Iterable[Registration]) -> Names:
    """The names that stand in registrations."""
    all_of = tuple(registrations)
    return {
        "databases": sorted({one.database.lower() for one in all_of}),
        "names": sorted({one.object.lower() for one in all_of}),
    }


def key(database: str, name: str, kind: ObjectKind) -> Key:
    """The key that an object is looked up by."""
    return database.lower(), name.lower(), ObjectKind.TABLE if kind is ObjectKind.VIEW else kind


def group_objects(found: list[DatabaseObject]) -> dict[Key, tuple[DatabaseObject, ...]]:
    """Objects by their keys; several may differ in the case of their letters."""
    groups: dict[Key, tuple[DatabaseObject, ...]] = {}
    for one in found:
        spot = key(one.database, one.name, one.kind)
        groups[spot] = (*groups.get(spot, ()), one)
    return groups


_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind IN ('v', 'm'),
    has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT'),
    (SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    md5(concat(c.relowner, c.reloptions::text,
        CASE WHEN c.relkind IN ('v', 'm') THEN pg_catalog.pg_get_viewdef(c.oid) END)),
    c.oid
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND lower(n.nspname) = ANY(:databases) AND lower(c.relname) = ANY(:names)
"""

_ROUTINES = """
SELECT n.nspname, p.proname, p.prokind::text,
    has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE') AS is_permitted,
    p.pronargs, p.pronargdefaults, p.provariadic <> 0 AS is_variadic,
    to_json(p.proargnames) AS names, to_json(p.proargmodes::text[]) AS modes,
    p.proretset OR t.typtype = 'c' OR p.prorettype = 'record'::regtype AS returns_rows,
    p.provolatile = 'v' AS is_volatile, n.nspname = 'pg_catalog' AS is_system,
    l.lanpltrusted AND l.lanname NOT IN ('c', 'internal') AS is_held_in,
    (SELECT json_agg(json_build_array(
            CASE WHEN tn.nspname = 'pg_catalog' THEN pg_catalog.format_type(y.oid, NULL)
                ELSE quote_ident(tn.nspname) || '.' || quote_ident(y.typname) END,
            pg_catalog.format_type(COALESCE(NULLIF(y.typbasetype, 0), y.oid), NULL), y.typtype = 'p',
            (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e
                WHERE e.enumtypid = COALESCE(NULLIF(y.typbasetype, 0), y.oid))) ORDER BY a.place)
        FROM unnest(CAST(p.proargtypes AS oid[])) WITH ORDINALITY AS a(type, place)
        JOIN pg_catalog.pg_type y ON y.oid = CASE WHEN a.place = p.pronargs AND p.provariadic <> 0
            THEN p.provariadic ELSE a.type END
        JOIN pg_catalog.pg_namespace tn ON tn.oid = y.typnamespace) AS types,
    p.prorettype = 'record'::regtype AND NOT COALESCE(p.proargmodes && CAST('{o,b,t}' AS "char"[]), false) AS is_open,
    md5(concat(p.proowner, p.probin,
        CASE WHEN p.prokind IN ('f', 'p') THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prosrc END)) AS body, p.oid
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
JOIN pg_catalog.pg_type t ON t.oid = p.prorettype
WHERE lower(n.nspname) = ANY(:databases) AND lower(p.proname) = ANY(:names)
ORDER BY p.oid
"""

_GLANCE = """
WITH spaces AS MATERIALIZED (SELECT oid, xmin FROM pg_catalog.pg_namespace WHERE lower(nspname) = ANY(:databases)),
relations AS MATERIALIZED (
    SELECT oid, xmin FROM pg_catalog.pg_class
    WHERE relkind IN ('r', 'p', 'f', 'v', 'm') AND lower(relname) = ANY(:names)
        AND relnamespace IN (SELECT oid FROM spaces)
)
SELECT concat(count(*), ' ', sum(hashtextextended(line, 1)), ' ', sum(hashtextextended(line, 2))) FROM (
    {views}
    SELECT concat(oid, '/', xmin) AS line FROM spaces
    UNION ALL SELECT concat(oid, '/', xmin) FROM relations
    UNION ALL SELECT concat(attrelid, '.', attnum, '/', xmin) FROM pg_catalog.pg_attribute
        WHERE attnum > 0 AND attrelid IN (SELECT oid FROM relations)
    UNION ALL SELECT concat(ev_class, '=', xmin) FROM pg_catalog.pg_rewrite
        WHERE ev_class IN (SELECT oid FROM relations)
    UNION ALL SELECT concat(oid, '/', xmin) FROM pg_catalog.pg_proc
        WHERE lower(proname) = ANY(:names) AND pronamespace IN (SELECT oid FROM spaces)
    UNION ALL SELECT concat(roleid, '>', member, '/', xmin) FROM pg_catalog.pg_auth_members
) AS lines
"""
_VIEW = "SELECT concat('{mark}', CAST(v AS text)) AS line FROM {view} AS v UNION ALL"


def _look_postgresql(conn: OwnConnection, names: Names, views: Views) -> Facts:
    """Ask for all registered names at once."""
    relations = map(_relation, conn.prepared(_RELATIONS, names).rows)
    routines = _routines(conn.prepared(_ROUTINES, names).records())
    return Facts(found=group_objects([*relations, *routines]), mark=quick_mark(conn, names, views))


def _relation(row: Sequence[Any]) -> DatabaseObject:
    schema, name, is_view, is_permitted, columns, body, oid = row
    is_barred = schema == "pg_catalog" and name in BARRED
    return DatabaseObject(
        database=schema,
        name=name,
        kind=ObjectKind.VIEW if is_view else ObjectKind.TABLE,
        columns=tuple(columns or ()),
        is_permitted=bool(is_permitted),
        denied="shows passwords or files of the server" if is_barred else "",
        mark=f"{oid} {body}",
    )


def _routines(rows: Sequence[Mapping[str, Any]]) -> Iterator[DatabaseObject]:
    """Functions and procedures: those of one name are one object, as a call finds them."""
    groups: dict[tuple[str, str, ObjectKind], list[Mapping[str, Any]]] = {}
    for row in rows:
        kind = ObjectKind.MACRO if row["prokind"] == "p" else ObjectKind.FUNCTION
        groups.setdefault((row["nspname"], row["proname"], kind), []).append(row)
    for (schema, name, kind), group in groups.items():
        yield DatabaseObject(
            database=schema,
            name=name,
            kind=kind,
            forms=tuple(_form(row) for row in group),
            is_permitted=all(row["is_permitted"] for row in group),
            denied=next(filter(None, map(_denied, group)), ""),
            writes=_UNCONTROLLED if any(map(_may_escape, group)) else "",
            mark=" ".join(f"{row['oid']} {row['body']}" for row in group),
        )


def _form(row: Mapping[str, Any]) -> Form:
    taken, is_variadic, kept = row["pronargs"], bool(row["is_variadic"]), row["names"] or []
    if row["modes"]:
        kept = [name for name, mode in zip(kept, row["modes"], strict=False) if mode in ("i", "b", "v")]
    return Form(
        least=taken - row["pronargdefaults"] - is_variadic,
        most=100 if is_variadic else taken,
        names=tuple(kept[:taken]) if all(kept[:taken]) else (),
        types=tuple(
            OwnType(name=name, base=base, is_pseudo=is_pseudo, labels=tuple(labels or ()))
            for name, base, is_pseudo, labels in row["types"] or ()
        ),
        is_variadic=is_variadic,
        returns_rows=bool(row["returns_rows"]),
    )


def _denied(row: Mapping[str, Any]) -> str:
    name, kind = row["proname"], row["prokind"]
    if kind in ("a", "w"):
        return "is an aggregate, which cannot be called by itself"
    if kind == "p" and "o" in (row["modes"] or ()):
        return "has OUT parameters, which a call would have to name; make them INOUT"
    if row["is_system"] and row["is_volatile"] and name not in VOLATILE_AND_HARMLESS:
        return "is a function of the server itself that may do more than read"
    if name in INDIRECT:
        return "runs a query, or reads a relation, that is given to it as text"
    if row["is_open"] and kind == "f":
        return "returns records of which nobody says the columns; declare RETURNS TABLE (...), or register a view"
    return ""


_UNCONTROLLED = "is volatile, and in a language that no read-only transaction holds in"


def _may_escape(row: Mapping[str, Any]) -> bool:
    """A language that the server holds in keeps to a transaction that reads; code outside of it need not."""
    return row["is_volatile"] and not row["is_system"] and not row["is_held_in"]


HOME = "main"
"""SQLite's name for the file itself; there is no other schema in it."""
HEAD_BYTES = 32
"""Where a file counts its changes, and its log the rounds that it was written in."""
YOUNG = 1.0
"""Seconds; clocks of file systems tick some hundred times in each."""

_OBJECTS = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (0, 2, 3) ORDER BY cid"


def _look_sqlite(conn: OwnConnection, names: Names, views: Views) -> Facts:
    """Ask for the tables and views that are registered."""
    asked: Connection = conn.inspector.bind
    wanted = frozenset(names["names"])
    objects = [row for row in asked.exec_driver_sql(_OBJECTS).all() if row[0].lower() in wanted]
    return Facts(
        found=group_objects([_sqlite_object(asked, *row) for row in objects]), mark=quick_mark(conn, names, views)
    )


def _sqlite_object(asked: Connection, name: str, type: str, sql: str) -> DatabaseObject:
    try:
        columns = tuple(asked.exec_driver_sql(_COLUMNS, (name,)).scalars())
    except DBAPIError:  # a view whose tables are gone
        columns = ()
    return DatabaseObject(
        database=HOME,
        name=name,
        kind=ObjectKind.VIEW if type == "view" else ObjectKind.TABLE,
        columns=columns,
        denied="" if columns else "cannot be read: what it is made of is not there",
        mark=hashlib.sha256(str(sql).encode()).hexdigest()[:16],
    )


def _file_mark(file: Path) -> str:
    try:
        found = file.stat()
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES).hex()
    except FileNotFoundError:
        return "none"
    return f"{found.st_ino}/{found.st_size}/{found.st_mtime_ns}/{head}" if time() - found.st_mtime > YOUNG else ""


OBJECTS = """
SELECT o.DatabaseName, o.TableName, o.TableKind, o.LastAlterTimeStamp FROM DBC.TablesV o
WHERE EXISTS (SELECT 1 FROM {tools} r WHERE TRIM(r.DataBaseName) = o.DatabaseName AND TRIM(r.TableName) = o.TableName)
"""
COLUMNS = """
SELECT c.DatabaseName, c.TableName, c.ColumnName FROM DBC.ColumnsV c
WHERE EXISTS (SELECT 1 FROM {tools} r WHERE TRIM(r.DataBaseName) = c.DatabaseName AND TRIM(r.TableName) = c.TableName)
ORDER BY c.ColumnId
"""

_KINDS: Mapping[str, ObjectKind] = {
    **dict.fromkeys("TO", ObjectKind.TABLE),
    "V": ObjectKind.VIEW,
    **dict.fromkeys("MPE", ObjectKind.MACRO),
    **dict.fromkeys("FRABS", ObjectKind.FUNCTION),
}
"""The letters of the dictionary: also tables without a primary index, procedures, and functions that return tables."""


def _look_teradata(conn: OwnConnection, names: Names, views: Views) -> Facts:
    """Ask for all registered names at once; the dictionary tells what a user may see."""
    columns: dict[tuple[str, str], list[str]] = {}
    for database, name, column in _rows(conn, COLUMNS, views):
        columns.setdefault((database, name), []).append(column)
    objects = [row for row in _rows(conn, OBJECTS, views) if row[2] in _KINDS]
    return Facts(found=group_objects([_teradata_object(row, columns.get((row[0], row[1]), [])) for row in objects]))


def _rows(conn: OwnConnection, sql: str, views: Views) -> list[Sequence[Any]]:
    rows = conn.prepared(sql.format(tools=views.tools), {}).rows
    return [[cell.rstrip() if isinstance(cell, str) else cell for cell in row] for row in rows]


def _teradata_object(row: Sequence[Any], columns: list[str]) -> DatabaseObject:
    database, name, letter, altered = row
    kind = _KINDS[letter]
    form = Form(least=len(columns), most=len(columns), returns_rows=letter == "R")
    return DatabaseObject(
        database=database,
        name=name,
        kind=kind,
        columns=tuple(columns) if kind.has_columns and columns else None,
        # The dictionary lists the parameters of macros as columns; those of functions it does not always.
        forms=None if kind.has_columns or not columns else (form,),
        mark=str(altered),
    )


def look_up_objects(conn: OwnConnection, names: Names, views: Views) -> Facts:
    """The database's own words about everything that is registered."""
    known = {"postgresql": _look_postgresql, "sqlite": _look_sqlite}
    return known.get(conn.dialect, _look_teradata)(conn, names, views)


def quick_mark(conn: OwnConnection, names: Names, views: Views) -> str:
    """A mark that stays as long as nothing of it has changed; empty where only a whole look can tell."""
    if conn.dialect == "postgresql":
        shown = zip("tpu", (views.tools, views.params, views.users), strict=True)
        parts = [_VIEW.format(mark=mark, view=view) for mark, view in shown if view]
        return str(conn.prepared(_GLANCE.format(views=" ".join(parts)), names).rows[0][0])
    if conn.dialect != "sqlite":
        return ""
    # The marks of the file and of its log of changes, unless they are so young that the clock may not tell.
    asked: Connection = conn.inspector.bind
    file = Path(asked.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one())
    marks = [_file_mark(one) for one in (file, file.with_name(f"{file.name}-wal"))]
    return " ".join(marks) if all(marks) else ""
