"""Gives functions that ask for a connection one that reads, for the caller who called them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from portico.providers.database import Connection, DatabaseSource
from portico.providers.local.injection import Connection as Marker
from portico.providers.local.injection import RequestContext, Source


def injected(source: DatabaseSource) -> Mapping[type, Source]:
    """What a provider of local tools injects: a reading per call, by this room's type or by the bare name `conn`."""

    def opened(context: RequestContext) -> AbstractContextManager[Connection]:
        return source.reading(context.caller)

    return {Connection: opened, Marker: opened}
