"""PostgreSQL: one database for many processes, with timeouts, and LISTEN/NOTIFY between them."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from threading import Lock, RLock
from time import monotonic
from typing import Any
from zlib import crc32

import orjson
from psycopg import Connection as PsycopgConnection
from psycopg import DataError, Error, IntegrityError, OperationalError, ProgrammingError
from psycopg.errors import ProgramLimitExceeded
from psycopg.types.json import set_json_loads
from sqlalchemy import URL, Connection, CursorResult, Engine, NullPool, TextClause, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from portico.errors import StoreError, StoreRefused

from .change_feed import CHANNEL
from .database_interface import Binds, Database, Dialect, PostgresAddress, Row, Work, bring_up, refusal, trouble

Waiting = Generator[Any, Any, Any]
"""One exchange with the server, as psycopg takes it step by step."""


class ImpatientConnection(PsycopgConnection[Any]):
    """Waits for each answer for so many seconds, and closes itself when none came; whoever asked is told."""

    patience: float = 15.0

    def wait(self, gen: Waiting, *given: Any, **options: Any) -> Any:
        """Go through one exchange; every statement, commit and rollback comes here."""
        return super().wait(self._watched(gen), *given, **options)

    def _watched(self, exchange: Waiting) -> Waiting:
        """The same exchange; psycopg goes on with it, with nothing at hand, ten times a second at least."""
        end = monotonic() + self.patience
        try:
            wanted = next(exchange)
            while True:
                ready = yield wanted
                if not ready and monotonic() >= end:
                    self.close()
                    raise OperationalError(f"it is there, but has not answered for {self.patience:g} s")
                wanted = exchange.send(ready)
        except StopIteration as done:
            return done.value


CONNECT_SECONDS = 4
"""A second less than what a start may wait for a database that is away."""
STATEMENT_SECONDS = 10
MIGRATION_SECONDS = 120
GRACE_SECONDS = 5.0
"""How much later than the server would end a statement we stop waiting for it: by then the server hangs."""
POOLED = 5
RECYCLE_SECONDS = 1_800
AWAY_SECONDS = 1.0
"""For so long a server that did not answer at first is not asked again."""

ADVICE = "Check that the server runs and that the URL in `store` is right"
_REFUSALS = (DataError, IntegrityError, ProgramLimitExceeded, UnicodeError, OverflowError)
_LOGIN = re.compile(r'\b(user|role) "[^"]*"')


class PostgresDatabase(Database):
    """A database of a PostgreSQL server; each thread that asks gets a connection of its own from a pool."""

    dialect: Dialect = "postgresql"

    def __init__(
        self,
        address: PostgresAddress,
        *,
        statement_seconds: float = STATEMENT_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.where = address.shown
        self._address, self._grace_seconds = address, grace_seconds
        self._engine = _engine(
            address,
            statement_seconds,
            grace_seconds,
            pool_pre_ping=True,
            pool_size=POOLED,
            max_overflow=POOLED,
            pool_timeout=STATEMENT_SECONDS,
            pool_recycle=RECYCLE_SECONDS,
        )
        self._alone: Engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._is_closed = self._is_up = self._is_coming_up = False
        self._turn = RLock()
        self._away: StoreError | None = None
        self._again_at = 0.0

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement that reads."""
        with self._connected(self._alone) as connection:
            return _PostgresWork(connection, self).rows(sql, binds)

    @contextmanager
    def transaction(self) -> Iterator[Work]:
        """Take a connection, and commit at the end."""
        with self._connected(self._engine) as connection, connection.begin():
            yield _PostgresWork(connection, self)

    def version(self) -> str:
        """The last migration that ran."""
        if self.rows("SELECT to_regclass('alembic_version')") == [(None,)]:
            return ""
        found = self.rows("SELECT version_num FROM alembic_version")
        return str(found[0][0]) if found else ""

    def upgrade(self) -> None:
        """Run the migrations that have not run yet, on a connection of their own: they may take longer."""
        engine = _engine(self._address, MIGRATION_SECONDS, self._grace_seconds, poolclass=NullPool)
        # What runs migrations takes a quarter of a second to load, and hardly any start needs it.
        from portico.storage.migrations import upgrade

        upgrade(engine, self.where)

    def check(self) -> None:
        """Ask the server for a sign of life."""
        self.rows("SELECT 1")

    def close(self) -> None:
        """Close the connections that nobody is using."""
        self._is_closed = True
        self._engine.dispose()

    def bring_up(self) -> None:
        """See to it that the tables are as they are needed; done once, and by whoever comes first.

        A server that is away is not asked again by everybody: for a moment all are told the same.

        Raises:
            StoreRefused: the tables belong to a newer program, cannot be made, or not every text can be stored.
            StoreError: the server is away.
        """
        with self._turn:
            if self._is_up or self._is_coming_up:
                return
            if self._away is not None and monotonic() < self._again_at:
                raise type(self._away)(str(self._away))
            self._is_coming_up = True
            try:
                self._see_encoding()
                bring_up(self)
                self._is_up, self._away = True, None
            except StoreError as error:
                self._away, self._again_at = error, monotonic() + AWAY_SECONDS
                raise
            finally:
                self._is_coming_up = False

    @contextmanager
    def holding(self, number: int) -> Iterator[bool]:
        """Hold an advisory lock on a connection of its own: True when it was free; it ends with the connection."""
        with self._connected(self._alone) as connection:
            found = connection.execute(text("SELECT pg_try_advisory_lock(:number)"), {"number": number}).scalar_one()
            try:
                yield bool(found)
            finally:
                if found:
                    _let_go(connection, number)

    def listen(self, channel: str) -> PostgresEar:
        """Open a connection that hears what is announced on a channel."""
        try:
            return PostgresEar(self._address, channel, STATEMENT_SECONDS + self._grace_seconds)
        except Error as error:
            raise self.trouble(error) from error

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        if self._is_closed:
            raise trouble(self.where, "it is closed", "Open it again")
        if not self._is_up:
            self._bring_up_late()
        try:
            with engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise self.trouble(getattr(error, "orig", None) or error) from error

    def _bring_up_late(self) -> None:
        try:
            self.bring_up()
        except StoreRefused as error:
            # It is not what somebody wants to write just now that was refused: that waits, as for one that is away.
            raise StoreError(str(error)) from error

    def trouble(self, error: BaseException) -> StoreError:
        """What a driver said, in our words, without the user and the password."""
        # What cannot even be sent never reached the server, and is as good as refused.
        is_unsent = isinstance(error, ProgrammingError) and error.sqlstate is None
        is_refusal = is_unsent or isinstance(error, _REFUSALS)
        problem = _LOGIN.sub(r'\1 "..."', str(error) or type(error).__name__)
        if self._address.password:
            problem = problem.replace(self._address.password, "...")
        return refusal(self.where, problem) if is_refusal else trouble(self.where, problem, ADVICE)

    def _see_encoding(self) -> None:
        ((encoding,),) = self.rows("SELECT current_setting('server_encoding')")
        if encoding != "UTF8":
            raise StoreRefused(
                f"the store {self.where} cannot hold every text: its encoding is {encoding}. Make a database with "
                "CREATE DATABASE portico ENCODING 'UTF8' TEMPLATE template0, and point `store` at it"
            )


class PostgresEar:
    """A connection that waits for announcements."""

    def __init__(self, address: PostgresAddress, channel: str, patience: float) -> None:
        arguments = _arguments(address, 0)
        login = {"user": address.user, "password": address.password, "host": address.host, "port": address.port}
        given: dict[str, Any] = {**address.options, **{name: value for name, value in login.items() if value}}
        self._connection = ImpatientConnection.connect(
            dbname=address.database, autocommit=True, **{**given, **arguments}
        )
        self._connection.patience = patience
        self._connection.execute(b"LISTEN " + channel.encode("ascii"))

    def heard(self, seconds: float) -> bool:
        """Wait for an announcement, at most so long.

        Raises:
            psycopg.Error: the connection is gone.
        """
        return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


class _PostgresWork:
    __slots__ = ("_connection", "_database")

    def __init__(self, connection: Connection, database: PostgresDatabase) -> None:
        self._connection, self._database = connection, database

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        return [tuple(row) for row in self._executed(sql, binds or {})]

    def run(self, sql: str, binds: Binds | Sequence[Binds] | None = None) -> int:
        return 0 if binds == [] else self._executed(sql, binds or {}).rowcount

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        """As one JSON text, which the server takes apart: a tenth of the work that binding each value is."""
        if rows:
            columns = ", ".join(rows[0])
            source = f"json_populate_recordset(CAST(NULL AS {table}), CAST(:rows AS json))"
            sql = f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {source}"  # noqa: S608 - our words
            self.run(sql, {"rows": orjson.dumps(rows).decode()})

    def _executed(self, sql: str, binds: Binds | Sequence[Binds]) -> CursorResult[Any]:
        try:
            return self._connection.execute(_text(sql), binds)
        except (UnicodeError, OverflowError) as error:  # all that SQLAlchemy lets through as it is
            raise self._database.trouble(error) from error


@cache
def _text(sql: str) -> TextClause:
    return text(sql)


def _as_text(json: str | bytes) -> str:
    """JSON as SQLite would give it."""
    return json if isinstance(json, str) else json.decode()


def _engine(address: PostgresAddress, statement_seconds: float, grace_seconds: float, **pool: Any) -> Engine:
    """An engine whose connections are given up when the server does not even end a statement that takes too long."""
    engine = create_engine(_url(address), connect_args=_arguments(address, statement_seconds), **pool)

    def connect(dialect: object, record: object, given: list[Any], options: dict[str, Any]) -> ImpatientConnection:
        connection = ImpatientConnection.connect(*given, **options)
        connection.patience = statement_seconds + grace_seconds
        set_json_loads(_as_text, connection)
        return connection

    event.listen(engine, "do_connect", connect)
    return engine


def _url(address: PostgresAddress) -> URL:
    return URL.create(
        "postgresql+psycopg",
        username=address.user,
        password=address.password,
        host=address.host,
        port=address.port,
        database=address.database,
        query={name: value for name, value in address.options.items() if name != "options"},
    )


def _arguments(address: PostgresAddress, statement_seconds: float) -> dict[str, str | int]:
    """What libpq is told: nothing waits for ever, not even for a network that swallows everything."""
    timeout = f"-c statement_timeout={int(1_000 * statement_seconds)}"
    return {
        "connect_timeout": CONNECT_SECONDS,
        "application_name": "portico",
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 15_000,
        "options": f"{address.options.get('options', '')} {timeout}".strip(),
    }


def _let_go(connection: Connection, number: int) -> None:
    try:
        connection.execute(text("SELECT pg_advisory_unlock(:number)"), {"number": number})
    except SQLAlchemyError:
        connection.invalidate()  # the lock goes with the connection


_LOCKS = 8_421 << 32
"""Keeps our advisory locks apart from those of others in the same database."""
CLOSE_SECONDS = 1.0
"""How long the end waits for whoever listens; a server that hangs must not hold it up."""


class PostgresChanges:
    """Hears at once; a connection that was lost is opened again, and then whatever was missed counts as heard."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._ear: PostgresEar | None = None
        self._is_closed = False
        self._turn = Lock()

    def ring(self, work: Work) -> None:
        """Wake everybody when the transaction is committed."""
        work.rows("SELECT pg_notify(:channel, '')", {"channel": CHANNEL})

    def begin(self) -> None:
        """Listen, if not yet."""
        with self._my_turn():
            self._listen()

    def heard(self, seconds: float) -> bool:
        """Wait for an announcement."""
        with self._my_turn():
            if self._ear is not None:
                try:
                    return self._ear.heard(seconds)
                except Error:
                    self._hang_up()
            self._listen()
            return True

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """Hold an advisory lock; the server lets go of it when the connection ends."""
        return self._database.holding(_LOCKS + crc32(job.encode(errors="surrogatepass")))

    def close(self) -> None:
        """Hang up; whoever listens at this moment, and does not come back soon, does it when it is back."""
        self._is_closed = True
        if self._turn.acquire(timeout=CLOSE_SECONDS):
            try:
                self._hang_up()
            finally:
                self._turn.release()

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        with self._turn:
            try:
                yield
            finally:
                if self._is_closed:
                    self._hang_up()

    def _listen(self) -> None:
        if self._ear is None and not self._is_closed:
            self._ear = self._database.listen(CHANNEL)

    def _hang_up(self) -> None:
        if self._ear is not None:
            with suppress(Error):
                self._ear.close()
            self._ear = None
