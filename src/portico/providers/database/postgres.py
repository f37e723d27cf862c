"""PostgreSQL: a read-only transaction whose statements are cursors, for one caller, within its time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock, Timer
from typing import Any, cast
from urllib.parse import quote

import psycopg
from psycopg.adapt import Buffer, Loader
from sqlalchemy import URL, Connection, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError

from portico.domain.caller import Caller
from portico.errors import ConfigError, Refused, UpstreamGone

from .addresses import EXAMPLES, Address
from .doors import CONNECT_SECONDS, driver_of, opened
from .limits import Limits
from .statements import Statement

RECYCLE_SECONDS = 1_800
GRACE = 0.25
"""Seconds that the server has to stop by itself, before it is told to."""
NAME_BYTES = 63
"""Bytes that PostgreSQL keeps of an application's name."""

_VOLATILE_AND_HARMLESS = sorted(
    "random random_normal gen_random_uuid uuidv4 uuidv7 clock_timestamp timeofday pg_sleep pg_sleep_for pg_sleep_until "
    "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size "
    "pg_is_in_recovery pg_current_wal_lsn pg_backend_pid pg_postmaster_start_time".split()
)
"""Functions of PostgreSQL that may give another answer each time and change nothing; sleeping is cut by the limit."""

_VOLATILE = text(
    "SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p "
    "LEFT JOIN pg_catalog.pg_type t ON p.pronargs = 1 AND t.oid = p.proargtypes[0] "
    "WHERE p.provolatile = 'v' "
    "AND (p.proname = ANY(:called) OR (p.proname = ANY(:attributes) AND t.typtype = 'c')) "
    "AND NOT (p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY(:harmless)) ORDER BY 1"
)


class PostgresDoor:
    """Everything is a cursor in a read-only transaction that is rolled back; functions that may write are refused."""

    def __init__(self, address: Address, limits: Limits, *, role: str = "") -> None:
        self._limits, self._role = limits, role
        self.engine = opened(
            _url(address),
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "portico"},
            pool_pre_ping=True,
            pool_timeout=limits.seconds,
            pool_recycle=RECYCLE_SECONDS,
        )
        event.listen(self.engine, "connect", _prepare)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """Say who asks and how long it may take; both last as long as the transaction."""
        if not _can_be_told(caller):
            raise Refused("the database", details=("the caller's name holds letters that no database takes",))
        settings = self._settings(caller)
        parts = ", ".join(f"set_config(:n{i}, :v{i}, true)" for i in range(len(settings)))
        names = {f"n{i}": name for i, name in enumerate(settings)}
        values = {f"v{i}": value for i, value in enumerate(settings.values())}
        # A query, not SET: after a first one the transaction can no longer be made a writing one.
        asked = text(f"SELECT {parts}, current_setting('transaction_read_only')")
        told = connection.execute(asked, {**names, **values}).one()
        if told[-1] != "on" or told[0] != settings["application_name"]:
            detail = "it does not keep a transaction read-only, so it is not asked"
            raise UpstreamGone("the database", details=(detail,))
        with _stopped_after(self._limits.seconds + GRACE, cast("psycopg.Connection[Any]", driver_of(connection))):
            yield

    def admit(self, connection: Connection, statement: Statement) -> None:
        """Ask the database which of the functions are volatile: those may write, also outside of the transaction."""
        if not statement.called and not statement.attributes:
            return
        asked = {"called": sorted(statement.called), "attributes": sorted(statement.attributes)}
        found = connection.execute(_VOLATILE, {**asked, "harmless": _VOLATILE_AND_HARMLESS}).scalars().all()
        if found:
            names = ", ".join(repr(name) for name in found[:5])
            advice = "one of your own that only reads can be declared STABLE"
            raise Refused("sql", details=(f"this database is only read, and {names} may do more; {advice}",))

    def sized(self, sql: str) -> str | None:
        """Let the server leave out the columns of a row that is too large, so that it is never sent.

        A statement in parentheses is also one that cannot write, whatever it says in a WITH.
        """
        return (
            "SELECT portico_size.is_large, portico_row.* FROM (\n"  # noqa: S608 - the statement was read before
            f"{sql}\n) AS portico_asked "
            "CROSS JOIN LATERAL (SELECT octet_length(CAST(portico_asked AS text)) > "
            f"{self._limits.bytes} AS is_large) AS portico_size "
            "LEFT JOIN LATERAL (SELECT portico_asked.*) AS portico_row ON NOT portico_size.is_large"
        )

    def explained(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The plan, asked for in the extended protocol, which takes one statement and no more."""
        asked = f"EXPLAIN (FORMAT TEXT) SELECT * FROM (\n{sql}\n) AS portico_asked"  # noqa: S608 - read before
        compiled = text(asked).compile(dialect=connection.dialect)
        driver = cast("psycopg.Connection[Any]", driver_of(connection))
        with driver.cursor(binary=True) as cursor:
            cursor.execute(str(compiled).encode(), binds)
            return ["QUERY PLAN"], cursor.fetchall()

    @contextmanager
    def inspecting(self, connection: Connection) -> Iterator[Any]:
        """Of the same transaction, so that an agent sees what its role may."""
        yield inspect(connection)

    def close(self) -> None:
        """Hang up everywhere."""
        self.engine.dispose()

    def _settings(self, caller: Caller) -> Mapping[str, str]:
        """What PostgreSQL forgets by itself when the transaction ends."""
        milliseconds = str(int(1_000 * self._limits.seconds))
        return {
            "application_name": application_name(caller),
            "portico.caller": caller.name,
            "portico.surface": caller.surface,
            "statement_timeout": milliseconds,
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": str(int(2_000 * self._limits.seconds) + 1_000),
            "standard_conforming_strings": "on",
            "DateStyle": "ISO",
            "IntervalStyle": "iso_8601",
            **({"role": self._role} if self._role else {}),
        }


def _can_be_told(caller: Caller) -> bool:
    try:
        return b"\0" not in f"{caller.name}{caller.surface}".encode()
    except UnicodeEncodeError:
        return False


def application_name(caller: Caller) -> str:
    """Who asks, in letters that PostgreSQL passes on as they are; whole in the setting `portico.caller`."""
    whole = f"portico:{quote(caller.surface, safe='')}:{quote(caller.name, safe='@ +')}"
    return re.sub(r"%[0-9A-F]?$", "", whole[:NAME_BYTES])


@contextmanager
def _stopped_after(seconds: float, driver: psycopg.Connection[Any]) -> Iterator[None]:
    """Cancel what still runs when time is up; nobody else's statement, which the lock makes sure of."""
    turn, is_over = Lock(), False

    def stop() -> None:
        with turn:
            if not is_over:
                with suppress(psycopg.Error):  # a server that cannot be told ends it by its own limit
                    driver.cancel_safe(timeout=2.0)

    timer = Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with turn:
            is_over = True


def _url(address: Address) -> URL:
    try:
        return make_url(address.url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("the URL cannot be read", where="DATABASE_URI", fix=f"Write {EXAMPLES}") from error


def _prepare(driver: Any, record: object) -> None:
    """Every transaction of a connection reads, and times arrive as the server writes them."""
    driver.read_only = True
    for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval"):
        driver.adapters.register_loader(kind, _Moment)


class _Moment(Loader):
    """A time as ISO 8601; Python's own types know no infinity, no year 10000 and no months of an interval."""

    def load(self, data: Buffer) -> str:
        """Put the T and the minutes of the zone where ISO wants them."""
        return re.sub(r"(:\d\d(?:\.\d+)?[+-]\d\d)$", r"\1:00", bytes(data).decode().replace(" ", "T", 1))
