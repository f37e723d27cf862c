"""Opens the door of a database; this and what it leads to load SQLAlchemy, and nothing else of Portico's start does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from portico.domain.call import Caller

from .connection import Mode, OwnConnection, OwnQuery, QueryLimits
from .faults import Faults
from .introspection import AnyDoor, Door
from .postgres import PostgresDoor, quick_reading
from .session import reading
from .source import Address
from .sqlite import SqliteDoor, sqlite_reading


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDatabase:
    """A database that can be asked."""

    door: Door
    limits: QueryLimits
    faults: Faults
    name: str

    def reading(self, caller: Caller) -> AbstractContextManager[OwnConnection]:
        """A connection for one caller; agents' SQL on a SQLite file runs in another process."""
        if isinstance(self.door, SqliteDoor) and self.door.mode is Mode.READ:
            return sqlite_reading(self.door, self.limits, self.faults, self.name)
        return reading(self.door, caller, self.limits, self.faults, self.name)

    def asking(self, caller: Caller) -> AbstractContextManager[OwnQuery]:
        """A connection for one caller's queries that are ours."""
        if isinstance(self.door, PostgresDoor) and self.door.mode is Mode.READ:
            return quick_reading(self.door, caller, self.limits, self.faults)
        return self.reading(caller)

    def close(self) -> None:
        """Let go of every connection."""
        self.door.close()


def open_door(
    address: Address,
    limits: QueryLimits,
    *,
    role: str = "",
    roles: Mapping[str, str] | None = None,
    mode: Mode = Mode.READ,
    allow_superuser: bool = False,
) -> OpenDatabase:
    """Make everything ready; nothing is connected yet.

    Raises:
        ConfigError: the URL cannot be read, or its driver is not installed.
    """
    if address.file is not None:
        file = address.file
        secrets = {str(file), str(file.resolve())}
        door: Door = SqliteDoor(file, limits, mode=mode)
        return OpenDatabase(door=door, limits=limits, faults=Faults(secrets), name=file.stem)
    if address.dialect == "postgresql":
        door = PostgresDoor(address, limits, role=role, roles=roles, mode=mode, allow_superuser=allow_superuser)
    else:
        door = AnyDoor(address, limits, mode=mode)
    faults = Faults(_secrets(door.engine) | {role, *(roles or {}).values()})
    return OpenDatabase(door=door, limits=limits, faults=faults, name=str(door.engine.url.database or ""))


def _secrets(engine: Engine) -> set[str]:
    """What of a URL no error may show."""
    url = engine.url
    found = {url.username, str(url.password or ""), url.host, url.render_as_string(hide_password=False)}
    for values in url.query.values():
        found.update([values] if isinstance(values, str) else values)
    folders = {str(Path(part)) for part in found if part and part.startswith("/")}
    return {part for part in found if part} | folders
