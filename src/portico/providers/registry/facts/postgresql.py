"""PostgreSQL's own catalog: relations with their columns, functions and procedures with what they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from portico.providers.database import OwnConnection
from portico.providers.database.postgres_guard import BARRED, INDIRECT, VOLATILE_AND_HARMLESS
from portico.providers.registry.registration import Kind

from .fact import Facts, Form, Found, Named, OwnType, Views, grouped

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


def _relation(row: Sequence[Any]) -> Found:
    schema, name, is_view, is_permitted, columns, body, oid = row
    is_barred = schema == "pg_catalog" and name in BARRED
    return Found(
        database=schema,
        name=name,
        kind=Kind.VIEW if is_view else Kind.TABLE,
        columns=tuple(columns or ()),
        is_permitted=bool(is_permitted),
        denied="shows passwords or files of the server" if is_barred else "",
        mark=f"{oid} {body}",
    )


def _routines(rows: Sequence[Sequence[Any]]) -> Iterator[Found]:
    """Those of one name together, as a call finds them."""
    groups: dict[tuple[str, str, Kind], list[Sequence[Any]]] = {}
    for row in rows:
        kind = Kind.MACRO if row[2] == "p" else Kind.FUNCTION
        groups.setdefault((row[0], row[1], kind), []).append(row)
    for (schema, name, kind), group in groups.items():
        yield Found(
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
