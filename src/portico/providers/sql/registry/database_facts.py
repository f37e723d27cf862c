"""What a database itself says of the objects that a registry names."""

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

from .rows import ObjectKind, Registration

Key = tuple[str, str, ObjectKind]
"""Database, object and kind of an object, in small letters; a view counts as a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnType:
    """The type of one parameter, as the database's catalog has it."""

    name: str
    """As it can stand in a cast."""
    base: str
    """What a domain is made of; otherwise the same type, under its plain name."""
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
    """Those of a table or view; None where nobody can tell."""
    forms: tuple[Form, ...] | None = None
    """Those of a function, macro or procedure; None where nobody can tell."""
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
    """What was found of all that a registry names."""

    found: Mapping[Key, tuple[DatabaseObject, ...]] = field(default_factory=dict)
    mark: str = ""
    """What a later look can be compared with, cheaply; empty where there is no such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a registry names, in small letters and in order."""

    databases: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


def named_by(registrations: Iterable[Registration]) -> Named:
    """The names that stand in registrations."""
    all_of = tuple(registrations)
    return Named(
        databases=tuple(sorted({one.database.lower() for one in all_of})),
        objects=tuple(sorted({one.object.lower() for one in all_of})),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The registry's views as they can stand in SQL."""

    tools: str
    params: str
    users: str = ""
    """Empty where there is no such view."""


def key(database: str, name: str, kind: ObjectKind) -> Key:
    """What an object is looked up by."""
    return database.lower(), name.lower(), ObjectKind.TABLE if kind is ObjectKind.VIEW else kind


def grouped(found: list[DatabaseObject]) -> dict[Key, tuple[DatabaseObject, ...]]:
    """Objects by what they are looked up by; several may differ in the case of their letters."""
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
    has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'),
    p.pronargs, p.pronargdefaults, p.provariadic <> 0, to_json(p.proargnames), to_json(p.proargmodes::text[]),
    p.proretset OR t.typtype = 'c' OR p.prorettype = 'record'::regtype,
    p.provolatile = 'v', n.nspname = 'pg_catalog', l.lanpltrusted AND l.lanname NOT IN ('c', 'internal'),
    (SELECT json_agg(json_build_array(
            CASE WHEN tn.nspname = 'pg_catalog' THEN pg_catalog.format_type(y.oid, NULL)
                ELSE quote_ident(tn.nspname) || '.' || quote_ident(y.typname) END,
            pg_catalog.format_type(COALESCE(NULLIF(y.typbasetype, 0), y.oid), NULL), y.typtype = 'p',
            (SELECT json_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e
                WHERE e.enumtypid = COALESCE(NULLIF(y.typbasetype, 0), y.oid))) ORDER BY a.place)
        FROM unnest(CAST(p.proargtypes AS oid[])) WITH ORDINALITY AS a(type, place)
        JOIN pg_catalog.pg_type y ON y.oid = CASE WHEN a.place = p.pronargs AND p.provariadic <> 0
            THEN p.provariadic ELSE a.type END
        JOIN pg_catalog.pg_namespace tn ON tn.oid = y.typnamespace),
    p.prorettype = 'record'::regtype AND NOT COALESCE(p.proargmodes && CAST('{o,b,t}' AS "char"[]), false),
    md5(concat(p.proowner, p.probin,
        CASE WHEN p.prokind IN ('f', 'p') THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prosrc END)), p.oid
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


def look_postgresql(conn: OwnConnection, named: Named, views: Views) -> Facts:
    """Ask for all registered names at once."""
    asked = {"databases": list(named.databases), "names": list(named.objects)}
    relations = conn.prepared(_RELATIONS, asked).rows
    routines = conn.prepared(_ROUTINES, asked).rows
    return Facts(
        found=grouped([*map(_relation, relations), *_routines(routines)]), mark=glance_postgresql(conn, named, views)
    )


def glance_postgresql(conn: OwnConnection, named: Named, views: Views) -> str:
    """A mark of the registry's rows and of everything that has one of these names."""
    parts = [_VIEW.format(mark=mark, view=view) for mark, view in zip("tpu", _shown(views), strict=True) if view]
    asked = {"databases": list(named.databases), "names": list(named.objects)}
    return str(conn.prepared(_GLANCE.format(views=" ".join(parts)), asked).rows[0][0])


def _shown(views: Views) -> tuple[str, str, str]:
    return views.tools, views.params, views.users


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


def _routines(rows: Sequence[Sequence[Any]]) -> Iterator[DatabaseObject]:
    """Those of one name together, as a call finds them."""
    groups: dict[tuple[str, str, ObjectKind], list[Sequence[Any]]] = {}
    for row in rows:
        kind = ObjectKind.MACRO if row[2] == "p" else ObjectKind.FUNCTION
        groups.setdefault((row[0], row[1], kind), []).append(row)
    for (schema, name, kind), group in groups.items():
        yield DatabaseObject(
            database=schema,
            name=name,
            kind=kind,
            forms=tuple(_form(row) for row in group),
            is_permitted=all(row[3] for row in group),
            denied=next((reason for row in group if (reason := _denied(row))), ""),
            writes=next((reason for row in group if (reason := _writes(row))), ""),
            mark=" ".join(f"{row[-1]} {row[-2]}" for row in group),
        )


def _form(row: Sequence[Any]) -> Form:
    taken, defaults, is_variadic, names, modes = row[4:9]
    kept = names or []
    if modes:
        kept = [name for name, mode in zip(kept, modes, strict=False) if mode in ("i", "b", "v")]
    most = 100 if is_variadic else taken
    named = tuple(kept[:taken]) if all(kept[:taken]) else ()
    return Form(
        least=taken - defaults - bool(is_variadic),
        most=most,
        names=named,
        types=tuple(OwnType(name=n, base=b, is_pseudo=p, labels=tuple(e or ())) for n, b, p, e in row[13] or ()),
        is_variadic=bool(is_variadic),
        returns_rows=bool(row[9]),
    )


def _denied(row: Sequence[Any]) -> str:
    name, prokind, modes = row[1], row[2], row[8]
    if prokind in ("a", "w"):
        return "is an aggregate, which cannot be called by itself"
    if prokind == "p" and "o" in (modes or ()):
        return "has OUT parameters, which a call would have to name; make them INOUT"
    is_volatile, is_system = row[10], row[11]
    if is_system and is_volatile and name not in VOLATILE_AND_HARMLESS:
        return "is a function of the server itself that may do more than read"
    if name in INDIRECT:
        return "runs a query, or reads a relation, that is given to it as text"
    if row[14] and prokind == "f":
        return "returns records of which nobody says the columns; declare RETURNS TABLE (...), or register a view"
    return ""


def _writes(row: Sequence[Any]) -> str:
    """A language that the server holds in keeps to a transaction that reads; code outside of it need not."""
    is_volatile, is_system, is_held_in = row[10:13]
    if is_volatile and not is_system and not is_held_in:
        return "is volatile, and in a language that no read-only transaction holds in"
    return ""


HOME = "main"
"""What SQLite calls the file itself; there is no other schema in it."""

HEAD_BYTES = 32
"""Where a file counts its changes, and its log the rounds that it was written in."""
YOUNG = 1.0
"""Seconds; clocks of file systems tick some hundred times in each."""

_OBJECTS = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
_COLUMNS = "SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (0, 2, 3) ORDER BY cid"


def look_sqlite(conn: OwnConnection, named: Named) -> Facts:
    """Ask for the tables and views that are registered."""
    asked: Connection = conn.inspector.bind
    return Facts(found=grouped(list(_found_in_sqlite(asked, frozenset(named.objects)))), mark=glance_sqlite(conn))


def glance_sqlite(conn: OwnConnection) -> str:
    """A mark of the file and of its log of changes; empty while they are so young that the clock may not tell."""
    asked: Connection = conn.inspector.bind
    file = Path(asked.exec_driver_sql("SELECT file FROM pragma_database_list WHERE name = 'main'").scalar_one())
    marks = [_marked(one) for one in (file, file.with_name(f"{file.name}-wal"))]
    return " ".join(marks) if all(marks) else ""


def _marked(file: Path) -> str:
    try:
        found = file.stat()
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES).hex()
    except FileNotFoundError:
        return "none"
    return f"{found.st_ino}/{found.st_size}/{found.st_mtime_ns}/{head}" if time() - found.st_mtime > YOUNG else ""


def _found_in_sqlite(asked: Connection, wanted: frozenset[str]) -> Iterator[DatabaseObject]:
    for name, type, sql in asked.exec_driver_sql(_OBJECTS).all():
        if name.lower() in wanted:
            columns = _columns(asked, name)
            yield DatabaseObject(
                database=HOME,
                name=name,
                kind=ObjectKind.VIEW if type == "view" else ObjectKind.TABLE,
                columns=columns,
                denied="" if columns else "cannot be read: what it is made of is not there",
                mark=hashlib.sha256(str(sql).encode()).hexdigest()[:16],
            )


def _columns(asked: Connection, name: str) -> tuple[str, ...]:
    """None of a view whose tables are gone."""
    try:
        return tuple(asked.exec_driver_sql(_COLUMNS, (name,)).scalars())
    except DBAPIError:
        return ()


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


def _found_in_teradata(row: Sequence[Any], columns: list[str]) -> DatabaseObject:
    database, name, letter, altered = row
    kind = _KINDS[letter]
    is_table = kind.has_columns
    form = Form(least=len(columns), most=len(columns), returns_rows=letter == "R")
    return DatabaseObject(
        database=database,
        name=name,
        kind=kind,
        columns=tuple(columns) if is_table and columns else None,
        # The dictionary lists the parameters of macros as columns; those of functions it does not always.
        forms=None if is_table or not columns else (form,),
        mark=str(altered),
    )


def look(conn: OwnConnection, named: Named, views: Views) -> Facts:
    """What the database says of everything that is registered."""
    if conn.dialect == "postgresql":
        return look_postgresql(conn, named, views)
    return look_sqlite(conn, named) if conn.dialect == "sqlite" else look_teradata(conn, views)


def glance(conn: OwnConnection, named: Named, views: Views) -> str:
    """A mark that stays as long as nothing of it has changed; empty where only a whole look can tell."""
    if conn.dialect == "postgresql":
        return glance_postgresql(conn, named, views)
    return glance_sqlite(conn) if conn.dialect == "sqlite" else ""
