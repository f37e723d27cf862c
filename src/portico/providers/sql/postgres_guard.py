"""Decides which statements PostgreSQL is sent: none that calls what may do more than read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from sqlalchemy import Connection, text

from portico.errors import Refused

from .sql_lexer import NAMES, ReadStatement, Token, fold_name

_INTRODUCING = frozenset({"from", "join", "only", ",", "."})
"""Tokens before a relation that goes by its own name."""
_EXPRESSING = frozenset(
    "select where and or not on case when then else in distinct using having limit offset all any".split()
)
"""Words behind which a name is a value, not an alias; no relation can be called so without quotes."""
_BODY = frozenset({"(", "materialized", "not"})
"""Tokens behind the AS of a common table expression."""


def relations_by_alias(pieces: Sequence[Token]) -> Mapping[str, frozenset[str] | None]:
    """The relations that each name may stand for; None for one that may stand for anything else.

    A name in doubt is one that stands for anything: whoever asks this lets through what is certain.
    """
    found: dict[str, frozenset[str] | None] = {}
    # Names of common table expressions.
    made = {fold_name(piece) for place, piece in enumerate(pieces) if piece.kind in NAMES and _is_made(pieces, place)}
    for place, piece in enumerate(pieces):
        before = pieces[place - 1] if place else None
        is_value = before is not None and before.kind == "word" and before.text.lower() in _EXPRESSING
        if piece.kind not in NAMES or _text(pieces, place + 1) == "." or is_value:
            continue
        name, meant = fold_name(piece), _meant(pieces, place, made)
        known = found.get(name, frozenset())
        found[name] = None if meant is None or known is None else known | {meant}
    return found


def _meant(pieces: Sequence[Token], place: int, made: Collection[str]) -> str | None:
    """The relation that a name stands for where it is introduced."""
    if _text(pieces, place + 1) == "(":
        return None
    before = _text(pieces, place - 1)
    if before not in _INTRODUCING:
        place -= 2 if before == "as" else 1
    name = fold_name(pieces[place]) if place >= 0 and pieces[place].kind in NAMES else ""
    return name if name and name not in made else None


def _is_made(pieces: Sequence[Token], place: int) -> bool:
    behind = _text(pieces, place + 1)
    return behind == "(" or (behind == "as" and _text(pieces, place + 2) in _BODY)


def _text(pieces: Sequence[Token], place: int) -> str:
    """The text at a place, a word in small letters; empty outside, and for a name in quotes."""
    if not 0 <= place < len(pieces):
        return ""
    piece = pieces[place]
    return piece.text.lower() if piece.kind in ("word", "open", "close", "other") else ""


NAME_BYTES = 63
"""Bytes that PostgreSQL keeps of a name, also of an application's."""

VOLATILE_AND_HARMLESS = sorted(
    "random random_normal gen_random_uuid uuidv4 uuidv7 clock_timestamp timeofday pg_sleep pg_sleep_for pg_sleep_until "
    "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size "
    "pg_is_in_recovery pg_current_wal_lsn pg_backend_pid pg_postmaster_start_time".split()
)
"""Functions of PostgreSQL that may give another answer each time and change nothing; sleeping is cut by the limit."""

INDIRECT = sorted(
    "table_to_xml table_to_xmlschema table_to_xml_and_xmlschema schema_to_xml schema_to_xmlschema "
    "schema_to_xml_and_xmlschema database_to_xml database_to_xmlschema database_to_xml_and_xmlschema query_to_xml "
    "query_to_xmlschema query_to_xml_and_xmlschema cursor_to_xml cursor_to_xmlschema ts_stat ts_rewrite crosstab "
    "crosstab2 crosstab3 crosstab4 crosstab_hash connectby xpath_table dblink".split()
)
"""Functions that read a relation, or run a query, that is given to them as text, which nobody here can check."""

BARRED = frozenset(
    "pg_authid pg_shadow pg_hba_file_rules pg_ident_file_mappings pg_file_settings pg_user_mapping pg_user_mappings "
    "user_mapping_options pg_subscription".split()
)
"""Relations that show passwords or files of the server to a superuser, which a config may let us be."""

BARRED_TO_POWER = frozenset(
    "pg_stats pg_statistic pg_stats_ext pg_stats_ext_exprs pg_statistic_ext_data pg_toast pg_largeobject".split()
)
"""Relations that hold values of other relations, and show a superuser those of the barred ones too."""

_FUNCTIONS = text(
    "SELECT DISTINCT CAST(p.proname AS text) FROM pg_catalog.pg_proc p "
    "WHERE p.proname = ANY(CAST(:named AS name[])) "
    "AND (p.provolatile = 'v' OR p.proname = ANY(CAST(:indirect AS name[]))) "
    "AND (p.proname = ANY(CAST(:called AS name[])) OR (p.pronargs >= 1 AND p.pronargs - p.pronargdefaults <= 1)) "
    "AND NOT (p.pronamespace = 11 AND p.proname = ANY(CAST(:harmless AS name[]))) ORDER BY 1"
)
"""Functions that may write, by name; 11 is the schema of PostgreSQL's own functions in every database."""

_INVENTORY = text("""
SELECT 'sign', CAST(o.oprname AS text) FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
WHERE o.oid >= 16384 AND p.provolatile = 'v'
UNION SELECT 'function', CAST(p.proname AS text) FROM pg_catalog.pg_aggregate g
JOIN pg_catalog.pg_proc p ON p.oid = g.aggfnoid AND p.oid >= 16384
JOIN pg_catalog.pg_proc s ON s.oid IN (g.aggtransfn, g.aggfinalfn, g.aggmtransfn, g.aggminvtransfn, g.aggmfinalfn)
WHERE s.provolatile = 'v'
UNION SELECT 'type', CAST(t.typname AS text) FROM pg_catalog.pg_cast c
JOIN pg_catalog.pg_type t ON t.oid IN (c.castsource, c.casttarget) AND t.oid >= 16384
JOIN pg_catalog.pg_proc p ON p.oid = c.castfunc WHERE c.oid >= 16384 AND p.provolatile = 'v'
UNION SELECT 'type', CAST(t.typname AS text) FROM pg_catalog.pg_type t JOIN pg_catalog.pg_proc p ON p.oid = t.typinput
WHERE t.oid >= 16384 AND p.provolatile = 'v'
UNION SELECT 'type', CAST(t.typname AS text) FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid
JOIN pg_catalog.pg_depend d ON d.classid = CAST('pg_constraint' AS regclass) AND d.objid = k.oid
    AND d.refclassid = CAST('pg_proc' AS regclass)
JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid WHERE t.typtype = 'd' AND p.provolatile = 'v'
""")
"""Objects that call a volatile function under another name: operators, aggregates, casts, checks of domains.

PostgreSQL itself brings none of these; a database has them when somebody made them there.
"""
INVENTORY_SECONDS = 5.0
"""For so long an inventory is used; asking for it takes longer than asking for one statement's functions."""

_COLUMNS = text(
    "SELECT CAST(c.relname AS text), CAST(n.nspname AS text), array_agg(CAST(a.attname AS text)) "
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND NOT a.attisdropped "
    "WHERE c.relname = ANY(CAST(:names AS name[])) AND c.relkind IN ('r', 'v', 'm', 'f', 'p') GROUP BY c.oid, 1, 2"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolatileCallers:
    """Objects of a database that call a volatile function under another name."""

    signs: frozenset[str]
    functions: frozenset[str]
    types: frozenset[str]
    made_at: float

    def among(self, statement: ReadStatement) -> set[str]:
        """The names of these objects that a statement may use."""
        signs = {sign for sign in self.signs if any(sign in run for run in statement.operators)}
        return signs | (self.functions & _cut(statement.called)) | (self.types & _cut(statement.names))


class StatementGuard:
    """Looks at each statement before it is sent to one database."""

    def __init__(self) -> None:
        self._inventory: VolatileCallers | None = None

    def admit(self, connection: Connection, statement: ReadStatement, *, is_powerful: bool) -> None:
        """Return when a statement may be sent.

        Raises:
            Refused: it calls what may do more than read, or reads what shows passwords or files of the server.
        """
        barred = BARRED | BARRED_TO_POWER if is_powerful else BARRED
        shown = [name for name in statement.names if name in barred or (is_powerful and name.startswith("pg_toast"))]
        if shown:
            raise Refused("sql", details=(f"{min(shown)!r} shows passwords or files of the server, and is not read",))
        if self._inventory is None or monotonic() > self._inventory.made_at + INVENTORY_SECONDS:
            self._inventory = _inventory(connection)
        if risky := sorted(self._inventory.among(statement)) or _risky_functions(connection, statement):
            names = ", ".join(repr(name) for name in risky[:5])
            advice = "one of your own that only reads can be declared STABLE"
            raise Refused("sql", details=(f"this database is only read, and {names} may do more; {advice}",))


def _inventory(connection: Connection) -> VolatileCallers:
    made_at = monotonic()
    found: dict[str, set[str]] = {"sign": set(), "function": set(), "type": set()}
    for kind, name in connection.execute(_INVENTORY):
        found[kind].add(name)
    parts = {f"{kind}s": frozenset(names) for kind, names in found.items()}
    return VolatileCallers(signs=parts["signs"], functions=parts["functions"], types=parts["types"], made_at=made_at)


def _risky_functions(connection: Connection, statement: ReadStatement) -> list[str]:
    """The volatile functions that a statement calls, in whatever spelling."""
    if not statement.called and not statement.attributes:
        return []
    called = _cut(statement.called)
    attributes = frozenset((cut(owner), cut(name)) for owner, name in statement.attributes)
    asked = {
        "named": sorted(called | {name for _, name in attributes}),
        "called": sorted(called),
        "harmless": VOLATILE_AND_HARMLESS,
        "indirect": INDIRECT,
    }
    found = connection.execute(_FUNCTIONS, asked).scalars().all()
    certain = [name for name in found if name in called]
    return certain or (_not_columns(connection, statement, found, attributes) if found else [])


def cut(name: str) -> str:
    """A name as long as PostgreSQL keeps it."""
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def _cut(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(cut, names))


def _not_columns(
    connection: Connection,
    statement: ReadStatement,
    found: Collection[str],
    attributes: Collection[tuple[str, str]],
) -> list[str]:
    """The names that are neither columns of relations nor relations of schemas in this statement."""
    aliases = {
        cut(name): None if meant is None else _cut(meant)
        for name, meant in relations_by_alias(statement.pieces).items()
    }
    relations = {relation for meant in aliases.values() for relation in meant or ()} | set(found)
    rows = connection.execute(_COLUMNS, {"names": sorted(relations)}).all()
    columns: dict[str, frozenset[str]] = {}
    for relation, _, names in rows:  # of several with the same name, what all of them have
        columns[relation] = columns.get(relation, frozenset(names)) & frozenset(names)
    homes = {(schema, relation) for relation, schema, _ in rows}

    def is_harmless(owner: str, name: str) -> bool:
        meant = aliases.get(owner)
        is_column = bool(meant) and all(name in columns.get(relation, ()) for relation in meant or ())
        return is_column or (owner not in aliases and (owner, name) in homes)

    return sorted({name for owner, name in attributes if name in found and not is_harmless(owner, name)})
