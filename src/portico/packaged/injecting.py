"""Gives functions that ask for a connection one that reads, for the caller who called them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from typing import Any

from portico.errors import ConfigError, Sent, StoreError, UpstreamGone
from portico.providers.python.decorator import Connection as Marker
from portico.providers.python.decorator import RequestContext, Source
from portico.providers.sql import Connection, DatabaseSource


def injected(source: DatabaseSource) -> Mapping[type, Source]:
    """What a provider of local tools injects: a reading per call, by this room's type or by the bare name `conn`."""

    def opened(context: RequestContext) -> AbstractContextManager[Connection]:
        return source.reading(context.caller)

    return {Connection: opened, Marker: opened}


class LateDatabase:
    """A database whose URL is looked at when the first function asks for a connection."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._source: DatabaseSource | None = None

    @property
    def sources(self) -> Mapping[type, Source]:
        """What a provider of local tools injects."""
        return {Connection: self._opened, Marker: self._opened}

    def close(self) -> None:
        """Let go of every connection; the next reading opens it again."""
        if self._source is not None:
            self._source.close()

    def _opened(self, context: RequestContext) -> AbstractContextManager[Connection]:
        try:
            self._source = self._source or DatabaseSource(self._url())
        except (ConfigError, StoreError) as error:
            raise UpstreamGone("the database", details=(str(error),), sent=Sent.NOTHING) from error
        return self._source.reading(context.caller)


def injected_from(connect: Callable[[], Any]) -> Mapping[type, Source]:
    """Connections of a program's own making, closed after each call."""

    def opened(context: RequestContext) -> AbstractContextManager[Any]:
        made = connect()
        # Some connections are context managers that only commit, and stay open.
        if hasattr(made, "close") or not isinstance(made, AbstractContextManager):
            return closing(made)
        return made

    return {Marker: opened}
