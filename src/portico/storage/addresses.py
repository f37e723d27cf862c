"""How a store is spelled in the config, and what of it may be shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from portico.errors import StoreError

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
