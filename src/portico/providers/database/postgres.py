"""PostgreSQL: a transaction that reads, and whose statements are cursors, for one caller, within its time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep
from typing import Any, cast
from urllib.parse import quote

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Connection, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DisconnectionError

from portico.domain.caller import Caller
from portico.errors import ConfigError, Refused, UpstreamGone

from .adapting import adapt
from .addresses import EXAMPLES, Address
from .doors import CONNECT_SECONDS, driver_of, opened
from .limits import Limits
from .modes import Mode
from .naming_types import learn_types
from .statements import Statement
from .stopping import stopped_after

RECYCLE_SECONDS = 1_800
QUIET_SECONDS = 10.0
"""A connection that was not used for so long is asked whether it is still there."""
GRACE = 0.25
"""Seconds that the server has to stop by itself, before it is told to."""
PATIENCE = 1.0
"""Seconds that a statement has to end after it was told to, before its session is ended."""
EVERYBODY = "*"
"""Who has no role of their own."""
NAME_BYTES = 63
"""Bytes that PostgreSQL keeps of a name, also of an application's."""

VOLATILE_AND_HARMLESS = sorted(
    "random random_normal gen_random_uuid uuidv4 uuidv7 clock_timestamp timeofday pg_sleep pg_sleep_for pg_sleep_until "
    "pg_relation_size pg_total_relation_size pg_table_size pg_indexes_size pg_database_size pg_tablespace_size "
    "pg_is_in_recovery pg_current_wal_lsn pg_backend_pid pg_postmaster_start_time".split()
)
"""Functions of PostgreSQL that may give another answer each time and change nothing; sleeping is cut by the limit."""

BARRED = frozenset(
    "pg_authid pg_shadow pg_hba_file_rules pg_ident_file_mappings pg_file_settings pg_user_mapping pg_user_mappings "
    "user_mapping_options pg_subscription".split()
)
"""Relations that show passwords or files of the server to a superuser, which a careless config lets us be."""

_VOLATILE = text(
    "SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p "
    "LEFT JOIN pg_catalog.pg_type t ON t.oid = p.proargtypes[0] AND t.typtype <> 'b' "
    "WHERE p.provolatile = 'v' "
    "AND (p.proname = ANY(:called) OR (p.proname = ANY(:attributes) AND t.oid IS NOT NULL)) "
    "AND NOT (p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY(:harmless)) ORDER BY 1"
)


class PostgresDoor:
    """Everything is a cursor in a read-only transaction that is rolled back; functions that may write are refused."""

    def __init__(
        self,
        address: Address,
        limits: Limits,
        *,
        role: str = "",
        roles: Mapping[str, str] | None = None,
        mode: Mode = Mode.READ,
    ) -> None:
        self._limits, self._role, self._roles, self.mode = limits, role, roles or {}, mode
        self.engine = opened(
            _url(address),
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "portico"},
            pool_timeout=limits.seconds,
            pool_recycle=RECYCLE_SECONDS,
        )
        options = {"writes": mode is Mode.WRITE, "steady": mode is Mode.STEADY}
        event.listen(self.engine, "connect", lambda driver, record: adapt(driver, **options))
        event.listen(self.engine, "checkin", _note)
        event.listen(self.engine, "checkout", self._meet)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """Say who asks and how long it may take; both last as long as the transaction."""
        settings = self.settings(caller)
        parts = ", ".join(f"set_config(:n{i}, :v{i}, true)" for i in range(len(settings)))
        names = {f"n{i}": name for i, name in enumerate(settings)}
        values = {f"v{i}": value for i, value in enumerate(settings.values())}
        # A query, not SET: after a first one the transaction can no longer be made a writing one.
        asked = text(f"SELECT {parts}, current_setting('transaction_read_only'), current_user")
        self.check(connection.execute(asked, {**names, **values}).one(), settings)
        driver = cast("psycopg.Connection[Any]", driver_of(connection))
        with stopped_after(self._limits.seconds + GRACE, lambda: self._stop(driver)):
            yield

    def check(self, told: Sequence[Any], settings: Mapping[str, str]) -> None:
        """Return when the server has taken over what it was told.

        Raises:
            UpstreamGone: it has not, so nothing that it says can be trusted.
        """
        name, read_only, user = told[0], told[-2], told[-1]
        if read_only != ("off" if self.mode is Mode.WRITE else "on") or name != settings["application_name"]:
            detail = "it does not keep a transaction read-only, so it is not asked"
            raise UpstreamGone("the database", details=(detail,))
        if user != settings.get("role", user):
            detail = "it does not take the role that the config gives this caller, so it is not asked"
            raise UpstreamGone("the database", details=(detail,))

    def admit(self, connection: Connection, statement: Statement) -> None:
        """Ask the database which of the functions are volatile: those may write, also outside of the transaction."""
        if barred := sorted(BARRED.intersection(statement.names)):
            raise Refused("sql", details=(f"{barred[0]!r} shows passwords or files of the server, and is not read",))
        if not statement.called and not statement.attributes:
            return
        asked = {"called": _cut(statement.called), "attributes": _cut(statement.attributes)}
        found = connection.execute(_VOLATILE, {**asked, "harmless": VOLATILE_AND_HARMLESS}).scalars().all()
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
        learn_types(connection)
        yield inspect(connection)

    def stop(self, connection: Connection) -> None:
        """Ask the server to; it answers the one who waits."""
        self._stop(cast("psycopg.Connection[Any]", driver_of(connection)))

    def close(self) -> None:
        """Hang up everywhere."""
        self.engine.dispose()

    def settings(self, caller: Caller) -> Mapping[str, str]:
        """Who asks, and how; PostgreSQL forgets it by itself when the transaction ends.

        Raises:
            Refused: the caller cannot be told to the database, or has no role there.
        """
        if not _can_be_told(caller):
            raise Refused("the database", details=("the caller's name holds letters that no database takes",))
        milliseconds = str(int(1_000 * self._limits.seconds))
        role = self._role_of(caller)
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
            # Compiling pays for long queries; ours at intervals take milliseconds, and look costly to a planner.
            **({"jit": "off"} if self.mode is Mode.STEADY else {}),
            **({"role": role} if role else {}),
        }

    def _stop(self, driver: psycopg.Connection[Any]) -> None:
        """Cancel what runs; a function may catch that and go on, and then loses its session."""
        _cancel(driver)
        until = monotonic() + PATIENCE
        while driver.pgconn.transaction_status == TransactionStatus.ACTIVE:
            if monotonic() > until:
                self._end(driver.info.backend_pid)
                return
            sleep(0.01)

    def _end(self, session: int) -> None:
        """End a session from another one, which need not come out of the pool: those may all hang."""
        words, options = self.engine.dialect.create_connect_args(self.engine.url)
        options = {**options, "connect_timeout": CONNECT_SECONDS}
        with suppress(psycopg.Error), psycopg.connect(*words, **options) as other:
            other.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (session,))

    def _meet(self, driver: Any, record: Any, proxy: Any) -> None:
        """Ask a connection that was quiet for long whether it still stands; a closed one has something to say."""
        idle = monotonic() - record.info.get("used", monotonic())
        if idle < QUIET_SECONDS and not _has_word(driver.pgconn.socket):
            return
        try:
            self.engine.dialect.do_ping(driver)
        except psycopg.Error as error:
            raise DisconnectionError from error

    def _role_of(self, caller: Caller) -> str:
        """Whose rights a caller has; where callers have roles, one without is nobody, and not the one who logs in."""
        if not self._roles:
            return self._role
        found = self._roles.get(caller.name) or self._roles.get(EVERYBODY) or self._role
        if not found:
            detail = f"the config gives the caller {caller.name!r} no role of this database; the operator can add one"
            raise Refused("the database", details=(detail,))
        return found


def _has_word(socket: int) -> bool:
    """Whether something waits to be read, which from a server that was asked nothing is its farewell."""
    with DefaultSelector() as selector:
        selector.register(socket, EVENT_READ)
        return bool(selector.select(0))


def _note(driver: Any, record: Any) -> None:
    record.info["used"] = monotonic()


def _cut(names: Iterable[str]) -> list[str]:
    """Names as long as PostgreSQL keeps them."""
    return sorted(name.encode()[:NAME_BYTES].decode(errors="ignore") for name in names)


def _can_be_told(caller: Caller) -> bool:
    try:
        return b"\0" not in f"{caller.name}{caller.surface}".encode()
    except UnicodeEncodeError:
        return False


def application_name(caller: Caller) -> str:
    """Who asks, in letters that PostgreSQL passes on as they are; whole in the setting `portico.caller`."""
    whole = f"portico:{quote(caller.surface, safe='')}:{quote(caller.name, safe='@ +')}"
    return re.sub(r"%[0-9A-F]?$", "", whole[:NAME_BYTES])


def _cancel(driver: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error):  # a server that cannot be told ends it by its own limit
        driver.cancel_safe(timeout=2.0)


def _url(address: Address) -> URL:
    try:
        return make_url(address.url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("the URL cannot be read", where="DATABASE_URI", fix=f"Write {EXAMPLES}") from error
