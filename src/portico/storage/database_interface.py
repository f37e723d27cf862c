"""What the storage asks of a database: how it is addressed, which texts and keys it takes, and its errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from portico.errors import StoreError, StoreRefused

SPELLED_LENGTH = 200
TEXT_LENGTH = 500
KEY_BYTES = 1_200
"""PostgreSQL indexes at most 2,704 bytes, and a tool's key has two names in it."""

_INSTEAD = "\ufffd"


def clean(text: str, length: int = TEXT_LENGTH) -> str:
    """The text without what a database refuses, and no longer than this."""
    if len(text) > length:
        text = text[: length - 1] + "…"
    if text.isascii():
        return text if "\0" not in text else text.replace("\0", _INSTEAD)
    return text.encode(errors="replace").decode().replace("\0", _INSTEAD) if _is_odd(text) else text


def key(name: str) -> str:
    """The name as a key: one that is too long or cannot be stored ends in a hash, so that no two become one."""
    if len(name) * 4 <= KEY_BYTES or (len(name) <= KEY_BYTES and name.isascii()):
        found = clean(name, len(name) + 1)
        if found == name:
            return found
    whole = name.encode(errors="surrogatepass")
    found = clean(name, 200 if len(whole) > KEY_BYTES else len(name) + 1)
    return name if found == name else f"{found}~{blake2b(whole, digest_size=12).hexdigest()}"


def _is_odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return "\0" in text


REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007")
"""Oldest first, as in `migrations/versions`."""

HEAD = REVISIONS[-1]

SCRIPT = Path(__file__).with_name("schema.sql")
"""The tables of an empty SQLite file: what the migrations would make, without loading what runs them."""


def bring_up(database: Database) -> None:
    """Give a database the tables that this program needs.

    Raises:
        StoreRefused: it belongs to a newer program, or does not let tables be made.
        StoreError: it cannot be read or changed now.
    """
    version = database.version()
    if version == HEAD:
        return
    if version and version not in REVISIONS:
        raise StoreRefused(
            f"the store {database.where} was written by a newer Portico (its tables are at {version!r}, this program "
            f"knows {HEAD!r}). Update Portico, or point `store` at another database"
        )
    database.upgrade()


Binds = Mapping[str, Any]
Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgresql"]

ONE_OF: Mapping[Dialect, str] = {
    "sqlite": "IN (SELECT value FROM json_each(:{0}))",
    "postgresql": "IN (SELECT json_array_elements_text(CAST(:{0} AS json)))",
}
"""How a text is compared with a list of any length, bound as one JSON text: there is no spelling that both know."""

HELD: Mapping[Dialect, str] = {"sqlite": "", "postgresql": "FOR UPDATE"}
"""The end of a SELECT whose rows nobody else may change until the transaction ends; SQLite has one writer anyway."""

LONGEST = 200
"""Letters of a driver's words that are repeated."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_IDLE_WORDS = ("Is the server running", "Multiple connection attempts failed")
"""How lines begin that say nothing: a question to the reader, and a heading."""


class Work(Protocol):
    """Where statements are run; they are written once, with `:named` binds, in words that both dialects know."""

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement and give back its rows."""
        ...

    def run(self, sql: str, binds: Binds | Sequence[Binds] | None = None) -> int:
        """Run a statement once, or once for each of a list of binds, and say how many rows it touched."""
        ...

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        """Add rows to a table, all with the same columns; the cheapest way for many."""
        ...


class Database(Work, Protocol):
    """A database that is open; threads may share it.

    A statement outside a transaction stands alone: all of it happens, or nothing. Every method may raise StoreError,
    and works again when the trouble is over.
    """

    dialect: Dialect
    where: str
    """The place of it, for people; without a user or a password."""

    def run(self, sql: str, binds: Binds | Sequence[Binds] | None = None) -> int:
        """Run a statement that writes, in a transaction of its own."""
        with self.transaction() as work:
            return work.run(sql, binds)

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        """Add rows, in a transaction of their own."""
        with self.transaction() as work:
            work.insert(table, rows)

    def transaction(self) -> AbstractContextManager[Work]:
        """While this is open, what is run with the given work happens together, or not at all; there is none within."""
        ...

    def version(self) -> str:
        """The last migration that ran; empty when none did."""
        ...

    def upgrade(self) -> None:
        """Run the migrations that have not run yet."""
        ...

    def check(self) -> None:
        """Return when the database is sound; this reads all of it where that is what it takes.

        Raises:
            StoreError: it is not, with the first thing that was found.
        """
        ...

    def close(self) -> None:
        """Release the file or the connections."""
        ...


def one_of(database: Database, bind: str) -> str:
    """The end of a condition: that a text is in the list which is bound under this name, as JSON."""
    return ONE_OF[database.dialect].format(bind)


def upsert(table: str, keys: str, *, replace: str = "", add: str = "") -> str:
    """The statement that adds a row, or replaces columns of the one with these keys, or adds to them."""
    columns = f"{keys} {replace} {add}".split()
    changes = [f"{column} = excluded.{column}" for column in replace.split()]
    changes += [f"{column} = {table}.{column} + excluded.{column}" for column in add.split()]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{column}' for column in columns)}) "  # noqa: S608 - our words
        f"ON CONFLICT ({', '.join(keys.split())}) DO UPDATE SET {', '.join(changes)}"
    )


def brief(problem: object) -> str:
    """The first sentence of what a driver said, and no more of it than leaves room for advice."""
    lines = [line for line in map(str.strip, str(problem).splitlines()) if line and not line.startswith(_IDLE_WORDS)]
    sentence = _SENTENCE.split(lines[0] if lines else "")[0].rstrip(".") or type(problem).__name__
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"


def trouble(where: str, problem: object, advice: str) -> StoreError:
    """The error for a statement that could not be run."""
    return StoreError(f"the store {where} did not answer: {brief(problem)}. {advice}")


def refusal(where: str, problem: object) -> StoreRefused:
    """The error for what a database is given and does not take."""
    return StoreRefused(f"the store {where} refused what it was given: {brief(problem)}")


POSTGRES_SCHEMES = frozenset({"postgresql", "postgres", "postgresql+asyncpg", "postgresql+psycopg"})
"""All of them are reached with psycopg; the others are what people have in their configs already."""

ACCEPTED = "`sqlite`, `memory`, `sqlite:///file.db` or `postgresql://user:password@host/database`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where a PostgreSQL database is, and how to log in."""

    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    host: str | None = None
    port: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Parameters of the connection, under libpq's names."""

    @property
    def shown(self) -> str:
        """The address for people, without the user and the password."""
        place = self.host or self.options.get("host", "")
        port = f":{self.port}" if self.port else ""
        return f"postgresql://{place}{port}/{self.database}"


def sqlite_file(store: str, data: Path) -> Path | None:
    """The file that a `sqlite` store lies in; None for one in memory.

    What follows `sqlite:///` is the path as it is: no letter of it has another meaning.

    Raises:
        StoreError: it is not spelled as a SQLite store is.
    """
    if store == "sqlite":
        return data / "portico.db"
    if store in ("memory", "sqlite://", "sqlite:///:memory:"):
        return None
    if store.startswith("sqlite:///") and len(store) > len("sqlite:///"):
        return Path(store.removeprefix("sqlite:///")).expanduser()
    raise StoreError(f"the store {_shown(store)} is none that Portico knows. Write {ACCEPTED}")


def postgres_address(store: str) -> PostgresAddress | None:
    """The parts of a PostgreSQL URL; None when it is something else.

    Raises:
        StoreError: the URL cannot be read.
    """
    if store.partition("://")[0].lower() not in POSTGRES_SCHEMES:
        return None
    try:
        parts = urlsplit(store)
        port = parts.port
    except ValueError as error:
        raise _unreadable() from error
    if "@" in parts.path + parts.fragment or parts.fragment:
        raise _unreadable()
    options = dict(parse_qsl(parts.query))
    if "ssl" in options:  # asyncpg's word for it
        options["sslmode"] = options.pop("ssl")
    login, _, _ = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return PostgresAddress(
        database=unquote(parts.path.removeprefix("/")) or options.pop("dbname", ""),
        user=unquote(user) or options.pop("user", None),
        password=unquote(password) or options.pop("password", None),
        host=unquote(parts.hostname) if parts.hostname else None,
        port=port,
        options=options,
    )


def _unreadable() -> StoreError:
    return StoreError(
        "the URL of the store cannot be read. Write postgresql://user:password@host:5432/database, and %-codes for the "
        "letters / ? # @ : in a password"
    )


def _shown(store: str) -> str:
    """What was written, as far as it cannot hold a password."""
    return repr(f"{store.partition('://')[0]}://..." if "://" in store else store[:80])
