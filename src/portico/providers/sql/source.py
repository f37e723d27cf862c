"""A database as the config names it: opened when it is first asked, and read by many callers at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING

from portico.domain.call import Caller
from portico.errors import ConfigError, extra_for

from .addresses import read_address
from .connection import Limits, Mode, OwnConnection, Question

if TYPE_CHECKING:
    from .open import OpenDatabase


LOCAL_CALLER = Caller()


class DatabaseSource:
    """Gives connections that read; SQLAlchemy is loaded and the database opened by the first of them."""

    def __init__(
        self,
        url: str,
        *,
        rows: int = 1_000,
        bytes: int = 1_000_000,
        seconds: float = 30.0,
        role: str = "",
        roles: Mapping[str, str] | None = None,
        mode: Mode = Mode.READ,
        allow_superuser: bool = False,
    ) -> None:
        """Check the spelling and the driver.

        `role` is what PostgreSQL becomes before each reading; `roles` say so for single callers, and `*` for others.
        A login that is a superuser, or may read files of the server, is refused unless `allow_superuser` says so.

        Raises:
            ConfigError: the URL cannot be used, its driver is not installed, or a limit is not above nothing.
        """
        if min(rows, bytes, seconds) <= 0:
            raise ConfigError("a limit must be above 0", where="rows, bytes, seconds", fix="Leave it out")
        self._address = read_address(url)
        if (role or roles) and self._address.dialect != "postgresql":
            raise ConfigError(f"a {self._address.shown} has no roles to become", where="role", fix="Leave it out")
        self.limits = Limits(rows=rows, bytes=bytes, seconds=seconds)
        self._role, self._roles, self.mode = role, dict(roles or {}), mode
        self._allow_superuser = allow_superuser
        self._turn = Lock()
        self._opened: OpenDatabase | None = None

    @property
    def dialect(self) -> str:
        """The kind of database, before anything is opened."""
        return self._address.dialect

    @property
    def shown(self) -> str:
        """What it may be called in messages: nothing of where it is or who logs in."""
        return self._address.shown

    @contextmanager
    def reading(self, caller: Caller = LOCAL_CALLER) -> Iterator[OwnConnection]:
        """A connection for one caller, which blocks; afterwards it is nobody's, and rolled back unless it may write.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        with self._open().reading(caller) as connection:
            yield connection

    @contextmanager
    def asking(self, caller: Caller = LOCAL_CALLER) -> Iterator[Question]:
        """The same for queries that we have built ourselves, with as few trips as the database allows.

        Raises:
            UpstreamGone: the database cannot be reached.
            UpstreamTimeout: all connections are in use.
        """
        with self._open().asking(caller) as question:
            yield question

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        with self._turn:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> OpenDatabase:
        with self._turn:
            if self._opened is None:
                # SQLAlchemy takes a fifth of a second to load, which a start without a database must not pay.
                with extra_for("databases"):
                    opening = import_module("portico.providers.sql.open")
                self._opened = opening.open_door(
                    self._address,
                    self.limits,
                    role=self._role,
                    roles=self._roles,
                    mode=self.mode,
                    allow_superuser=self._allow_superuser,
                )
            return self._opened
