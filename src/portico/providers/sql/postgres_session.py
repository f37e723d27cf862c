"""PostgreSQL: sessions that only read, prepared queries, and values as JSON can say them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from decimal import Decimal
from selectors import EVENT_READ, DefaultSelector
from time import monotonic, sleep
from typing import Any, ClassVar, cast
from urllib.parse import quote

import psycopg
from psycopg import IsolationLevel
from psycopg.adapt import Buffer, Dumper, Loader, PyFormat
from psycopg.errors import FeatureNotSupported, InvalidSqlStatementName
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.types.json import set_json_loads
from psycopg.types.numeric import DecimalDumper, FloatDumper, IntDumper
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.types import UserDefinedType

from portico.domain.call import Caller
from portico.errors import Refused, UpstreamGone

from .database_errors import DRIVERS
from .database_session import DatabaseEngine, driver_of, limit_rows, stop_after
from .database_source import CONNECT_SECONDS, Address
from .postgres_guard import NAME_BYTES, StatementGuard
from .read_connection import Binds, Mode, QueryLimits, QueryResult
from .sql_lexer import ReadStatement

DEEPEST = 100
"""Levels of a JSON value that are shown as such."""


def _adapt(driver: Any, mode: Mode) -> None:
    """Settle what every transaction of a new connection may do, and make its values what this module says."""
    driver.read_only = mode is not Mode.WRITE
    if mode is Mode.STEADY:
        driver.isolation_level = IsolationLevel.REPEATABLE_READ
    for kind in ("date", "time", "timetz", "timestamp", "timestamptz", "interval"):
        driver.adapters.register_loader(kind, _Moment)
    driver.adapters.register_dumper(int, _Whole)
    driver.adapters.register_dumper(float, _Fraction)
    set_json_loads(_json, driver)


class _Whole(IntDumper):
    """A whole number as `7` is one in SQL: never the smallest type, of which two cannot even be multiplied."""

    def upgrade(self, obj: int, format: PyFormat) -> Dumper:
        """An integer where it fits."""
        found = super().upgrade(obj, format)
        return self._int4_dumper if found is self._int2_dumper else found


class _Fraction(FloatDumper):
    """A number as `1.5` is one in SQL: a numeric, which more functions take than a float."""

    def get_key(self, obj: float, format: PyFormat) -> Any:
        """Finite ones are numerics."""
        return Decimal if math.isfinite(obj) else float

    def upgrade(self, obj: float, format: PyFormat) -> Dumper:
        """Finite ones are numerics."""
        return _Digits(Decimal) if math.isfinite(obj) else FloatDumper(float)


class _Digits(DecimalDumper):
    def dump(self, obj: Any) -> Buffer | None:
        """The shortest digits that mean this number."""
        return super().dump(Decimal(repr(obj)) if isinstance(obj, float) else obj)


class _Moment(Loader):
    """A time as ISO 8601; Python's own types know no infinity, no year 10000 and no months of an interval."""

    def load(self, data: Buffer) -> str:
        """Put the T and the minutes of the zone where ISO wants them; years before Christ keep their BC."""
        text = re.sub(r"^(\S+) (?=\d\d:)", r"\1T", bytes(data).decode())
        return re.sub(r"(:\d\d(?:\.\d+)?[+-]\d\d)(?= BC$|$)", r"\1:00", text)


def _json(text: str | bytes) -> Any:
    """JSON with all its digits; a value that is too deep or too long for readers of JSON stays text."""
    with suppress(RecursionError, ValueError):
        value = json.loads(text, parse_float=Decimal)
        if _height(value) <= DEEPEST:
            return value
    return text if isinstance(text, str) else text.decode(errors="replace")


def _height(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_height, inner), default=0)


_TYPES = text(
    "SELECT pg_catalog.format_type(t.oid, NULL) FROM pg_catalog.pg_type t "
    "LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid "
    "WHERE t.typtype IN ('b', 'c', 'r', 'm') AND t.typcategory <> 'A' AND (c.oid IS NULL OR c.relkind = 'c')"
)


class NamedType(UserDefinedType[Any]):
    """A type of which only the name is known."""

    cache_ok = True
    name: ClassVar[str] = ""

    def __init__(self, *details: str) -> None:
        self.details = details

    def get_col_spec(self, **_: Any) -> str:
        """The name as the database writes it."""
        return f"{self.name}({', '.join(self.details)})" if self.details else self.name


def _learn_types(connection: Connection) -> None:
    """Let SQLAlchemy's inspector know every type that the database has, also those made a moment ago."""
    dialect: Any = connection.dialect
    known = dialect.ischema_names
    fresh = [name for name in connection.execute(_TYPES).scalars() if name.lower() not in known]
    if fresh:  # replaced as a whole, because other threads read it
        named = {name.lower(): type("NamedType", (NamedType,), {"name": name}) for name in fresh}
        dialect.ischema_names = {**known, **named}


RECYCLE_SECONDS = 1_800
QUIET_SECONDS = 10.0
"""A connection that was not used for so long is asked whether it is still there."""
GRACE = 0.25
"""Seconds that the server has to stop by itself, before it is told to."""
PATIENCE = 1.0
"""Seconds that a statement has to end after it was told to, before its session is ended."""
EVERYBODY = "*"
"""Stands for callers who have no role of their own."""
_LOGIN = """
SELECT CAST(session_user AS text), string_agg(why, ', ') FROM (
    SELECT 'a superuser' AS why FROM pg_catalog.pg_roles WHERE rolname = session_user AND rolsuper
    UNION ALL SELECT 'a member of ' || rolname FROM pg_catalog.pg_roles
    WHERE rolname IN ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program')
    AND NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user)
    AND pg_catalog.pg_has_role(session_user, oid, 'MEMBER')
) AS found
"""
UNLOCK = b"SELECT pg_catalog.pg_advisory_unlock_all()"
"""Undoes what a function that only reads can leave behind: the end of a transaction does not undo it."""
_TOLD = "current_setting('transaction_read_only'), current_setting('is_superuser'), current_user"
"""The server's own words about a transaction that has begun."""
_MARK = re.compile(r"(?<![:\w]):([A-Za-z_]\w*)")


class PostgresEngine(DatabaseEngine):
    """Everything is a cursor in a read-only transaction that is rolled back; functions that may write are refused."""

    def __init__(
        self,
        address: Address,
        limits: QueryLimits,
        mode: Mode = Mode.READ,
        *,
        role: str = "",
        roles: Mapping[str, str] | None = None,
        allow_superuser: bool = False,
    ) -> None:
        self._role, self._roles, self._allow_superuser = role, roles or {}, allow_superuser
        self._is_powerful, self._guard = False, StatementGuard()
        super().__init__(
            address,
            limits,
            mode,
            secrets={role, *self._roles.values()},
            connect_args={"connect_timeout": CONNECT_SECONDS, "application_name": "portico"},
            pool_recycle=RECYCLE_SECONDS,
        )
        event.listen(self.engine, "connect", self._greet)
        event.listen(self.engine, "checkin", lambda driver, record: record.info.update(used=monotonic()))
        event.listen(self.engine, "checkout", self._check_alive)

    @contextmanager
    def asking(self, caller: Caller) -> Iterator[Any]:
        """A session for one caller's prepared queries; the connection goes back without a trace."""
        if self.mode is not Mode.READ:
            with self.reading(caller) as session:
                yield session
            return
        with self.errors.translating(DRIVERS), self._connect_prepared(caller) as connection:
            try:
                yield _PreparedSession(self, connection, caller)
            finally:
                _release(connection)

    @contextmanager
    def begin(self, connection: Connection, caller: Caller) -> Iterator[None]:
        """Say who asks and how long it may take; both last as long as the transaction."""
        driver = _driver(connection)
        self._introduce(driver, caller, is_prepared=False)
        try:
            with stop_after(self.limits.seconds + GRACE, lambda: self._cancel(driver)):
                yield
        finally:
            if self.mode is Mode.READ:  # what may write loses its session anyway, and the third kind is ours alone
                _release(connection)

    def begin_prepared(self, driver: psycopg.Connection[Any], caller: Caller) -> None:
        """Begin a transaction for prepared queries: past psycopg, which would forget them at its end."""
        if driver.pgconn.exec_(b"BEGIN READ ONLY").status != ExecStatus.COMMAND_OK:
            raise psycopg.OperationalError("the connection is lost")
        self._introduce(driver, caller, is_prepared=True)

    def admit(self, connection: Connection, statement: ReadStatement) -> None:
        """Ask the database which of the functions are volatile: those may write, also outside of the transaction."""
        self._guard.admit(connection, statement, is_powerful=self._is_powerful)

    def limit_row_size(self, sql: str) -> str | None:
        """Let the server leave out the columns of a row that is too large, so that it is never sent.

        A statement in parentheses is also one that cannot write, whatever it says in a WITH.
        """
        return (
            "SELECT portico_size.is_large, portico_row.* FROM (\n"  # noqa: S608 - the statement was read before
            f"{sql}\n) AS portico_asked "
            "CROSS JOIN LATERAL (SELECT octet_length(CAST(portico_asked AS text)) > "
            f"{self.limits.bytes} AS is_large) AS portico_size "
            "LEFT JOIN LATERAL (SELECT portico_asked.*) AS portico_row ON NOT portico_size.is_large"
        )

    def explain(self, connection: Connection, sql: str, binds: dict[str, Any]) -> tuple[list[str], list[Any]]:
        """The plan, asked for in the extended protocol, which takes one statement and no more."""
        asked = f"EXPLAIN (FORMAT TEXT) SELECT * FROM (\n{sql}\n) AS portico_asked"  # noqa: S608 - read before
        compiled = text(asked).compile(dialect=connection.dialect)
        with _driver(connection).cursor(binary=True) as cursor:
            cursor.execute(str(compiled).encode(), binds)
            return ["QUERY PLAN"], cursor.fetchall()

    @contextmanager
    def open_inspector(self, connection: Connection | None) -> Iterator[Any]:
        """Of the same transaction, so that an agent sees what its role may."""
        assert connection is not None
        _learn_types(connection)
        yield inspect(connection)

    def stop(self, connection: Connection) -> None:
        """Ask the server to; it answers the one who waits."""
        self._cancel(_driver(connection))

    def _cancel(self, driver: psycopg.Connection[Any]) -> None:
        """Cancel what runs; a function may catch that and go on, and then loses its session."""
        with suppress(psycopg.Error):  # a server that cannot be told ends it by its own limit
            driver.cancel_safe(timeout=2.0)
        until = monotonic() + PATIENCE
        while driver.pgconn.transaction_status == TransactionStatus.ACTIVE:
            if monotonic() > until:
                self._end_session(driver.info.backend_pid)
                return
            sleep(0.01)

    def _end_session(self, session: int) -> None:
        """End a session from another one, which need not come out of the pool: those may all hang."""
        words, options = self.engine.dialect.create_connect_args(self.engine.url)
        options = {**options, "connect_timeout": CONNECT_SECONDS}
        with suppress(psycopg.Error), psycopg.connect(*words, **options) as other:
            other.execute("SELECT pg_catalog.pg_terminate_backend(%s)", (session,))

    def _connect_prepared(self, caller: Caller) -> Connection:
        """A connection that knows whose it is; one that was lost while nobody used it is replaced once."""
        for is_last in (False, True):
            try:
                connection = self.engine.connect()
            except DRIVERS as error:
                raise self.errors.unreached(error) from error
            driver = _driver(connection)
            try:
                self.begin_prepared(driver, caller)
            except BaseException as error:
                is_lost = driver.broken
                connection.invalidate()
                connection.close()
                if is_last or not (is_lost and isinstance(error, psycopg.Error)):
                    raise
            else:
                return connection
        raise AssertionError("the last try returns or raises")

    def _introduce(self, driver: psycopg.Connection[Any], caller: Caller, *, is_prepared: bool) -> None:
        """Say who asks, and make sure that the server has understood, before anything is asked.

        Raises:
            UpstreamGone: it has not, so nothing that it says can be trusted.
        """
        settings = self._settings(caller)
        parts = ", ".join(f"set_config(%(n{place})s, %(v{place})s, true)" for place in range(len(settings)))
        values = {f"n{place}": name for place, name in enumerate(settings)}
        values |= {f"v{place}": value for place, value in enumerate(settings.values())}
        # A query, not SET: after a first one the transaction can no longer be made a writing one.
        told = driver.execute(f"SELECT {parts}, {_TOLD}".encode(), values, prepare=is_prepared).fetchone()
        assert told is not None, "it was asked for one row"
        name, read_only, is_superuser, user = told[0], told[-3], told[-2], told[-1]
        if read_only != ("off" if self.mode is Mode.WRITE else "on") or name != settings["application_name"]:
            detail = "it does not keep a transaction read-only, so it is not asked"
            raise UpstreamGone("the database", details=(detail,))
        if user != settings.get("role", user):
            detail = "it does not take the role that the config gives this caller, so it is not asked"
            raise UpstreamGone("the database", details=(detail,))
        if is_superuser == "on" and not self._allow_superuser:
            raise _too_powerful("the role that it becomes is a superuser")

    def _settings(self, caller: Caller) -> Mapping[str, str]:
        """The settings of one transaction; PostgreSQL forgets them by itself when the transaction ends.

        Raises:
            Refused: the caller cannot be told to the database, or has no role there.
        """
        if not _can_be_told(caller):
            raise Refused("the database", details=("the caller's name holds letters that no database takes",))
        milliseconds = str(int(1_000 * self.limits.seconds))
        role = self._role_of(caller)
        return {
            "application_name": application_name(caller),
            "portico.caller": caller.name,
            "portico.surface": caller.surface,
            "statement_timeout": milliseconds,
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": str(int(2_000 * self.limits.seconds) + 1_000),
            "standard_conforming_strings": "on",
            "DateStyle": "ISO",
            "IntervalStyle": "iso_8601",
            # Compiling pays for long queries; ours at intervals take milliseconds, and look costly to a planner.
            **({"jit": "off"} if self.mode is Mode.STEADY else {}),
            **({"role": role} if role else {}),
        }

    def _role_of(self, caller: Caller) -> str:
        """The role of a caller; where callers have roles, one without has no rights, and not those of the login."""
        if not self._roles:
            return self._role
        found = self._roles.get(caller.name) or self._roles.get(EVERYBODY) or self._role
        if not found:
            detail = f"the config gives the caller {caller.name!r} no role of this database; the operator can add one"
            raise Refused("the database", details=(detail,))
        return found

    def _greet(self, driver: psycopg.Connection[Any], record: Any) -> None:
        """Make a new connection ours, unless its login may do what no agent should be near.

        Raises:
            Refused: it is a superuser, or may read files of the server, and the config does not allow that.
        """
        name, power = driver.execute(_LOGIN).fetchone() or ("", None)
        driver.rollback()
        self._is_powerful = self._is_powerful or power is not None
        if power is not None and not self._allow_superuser:
            driver.close()
            raise _too_powerful(f"its login {name!r} is {power}")
        _adapt(driver, self.mode)

    def _check_alive(self, driver: Any, record: Any, proxy: Any) -> None:
        """Ask a connection that was quiet for long whether it still stands; a closed one has something to say."""
        with DefaultSelector() as selector:
            # What waits to be read from a server that was asked nothing is its farewell.
            selector.register(driver.pgconn.socket, EVENT_READ)
            has_word = bool(selector.select(0))
        idle = monotonic() - record.info.get("used", monotonic())
        if idle < QUIET_SECONDS and not has_word:
            return
        try:
            self.engine.dialect.do_ping(driver)
        except psycopg.Error as error:
            raise DisconnectionError from error


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", driver_of(connection))


def _release(connection: Connection) -> None:
    """Undo everything, the session's locks too; a connection that does not let us is thrown away."""
    driver = _driver(connection)
    words = UNLOCK + b"; ROLLBACK" if driver.pgconn.transaction_status == TransactionStatus.INTRANS else UNLOCK
    try:
        if driver.pgconn.transaction_status not in (TransactionStatus.INTRANS, TransactionStatus.IDLE):
            driver.rollback()
        is_done = driver.pgconn.exec_(words).status in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK)
    except psycopg.Error:
        is_done = False
    if not is_done:
        connection.invalidate()


def _too_powerful(reason: str) -> Refused:
    fix = (
        "let it log in as an ordinary user who may read what agents should see, or set `allow_superuser: true` for "
        "this database in the config (DATABASE_ALLOW_SUPERUSER=true for that of DATABASE_URI)"
    )
    return Refused("the database", details=(f"it is not asked, because {reason}; {fix}",))


def _can_be_told(caller: Caller) -> bool:
    try:
        return b"\0" not in f"{caller.name}{caller.surface}".encode()
    except UnicodeEncodeError:
        return False


def application_name(caller: Caller) -> str:
    """The caller in letters that PostgreSQL passes on as they are; the setting `portico.caller` has the whole name."""
    whole = f"portico:{quote(caller.surface, safe='')}:{quote(caller.name, safe='@ +')}"
    return re.sub(r"%[0-9A-F]?$", "", whole[:NAME_BYTES])


class _PreparedSession:
    """One caller's connection for queries whose words are ours."""

    def __init__(self, database: PostgresEngine, connection: Connection, caller: Caller) -> None:
        self._database, self._connection, self._caller = database, connection, caller

    def prepared(self, sql: str, binds: Binds, *, limit: int | None = None) -> QueryResult:
        """Run one query; from the row on that is too much, no columns are sent."""
        limits = self._database.limits
        worded = _MARK.sub(r"%(\1)s", sql.replace("%", "%%"))
        # At most one row more than is shown.
        words = (
            # A column may have any of our names, and would be taken for what we mean; hence the spaces in two of them.
            'SELECT portico_row.* FROM (SELECT "portico asked".*, '  # noqa: S608 - the words are ours
            'sum(octet_length(CAST("portico asked" AS text))) OVER (ROWS UNBOUNDED PRECEDING) AS "portico sum" FROM (\n'
            f'{worded}\n) AS "portico asked" LIMIT {limits.rows_for(limit) + 1}) AS portico_summed '
            "LEFT JOIN LATERAL (SELECT portico_summed.*) AS portico_row "
            f'ON portico_summed."portico sum" <= {limits.bytes}'
        )
        with self._database.errors.translating():
            found = self._found(words.encode(), binds)
            columns = tuple(column.name for column in found.description or ())
            rows = ((row[-1] is None, row[:-1]) for row in found.fetchall())
            return limit_rows(columns[:-1], rows, limits, limit)

    def stop(self) -> None:
        """End what runs, from another thread."""
        self._database.stop(self._connection)

    def _found(self, asked: bytes, binds: Binds) -> psycopg.Cursor[Any]:
        driver = _driver(self._connection)
        try:
            return driver.execute(asked, dict(binds), prepare=True)
        except (FeatureNotSupported, InvalidSqlStatementName):
            # A column has changed since it was prepared, or a pooler gave us a session that has not seen it.
            driver.rollback()
            self._database.begin_prepared(driver, self._caller)
            return driver.execute(asked, dict(binds), prepare=False)
