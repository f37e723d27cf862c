"""Hears from PostgreSQL that a registry has changed, as soon as the change is committed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from portico.errors import UpstreamGone
from portico.providers.sql.database_source import CONNECT_SECONDS, read_address

CHANNEL = "portico_registry"
"""Where the registry's triggers tell of changes; what they say is the schema."""


@asynccontextmanager
async def listen_for_changes(url: str) -> AsyncIterator[AsyncIterator[str]]:
    """The announcements from now on, as long as the context is open.

    Raises:
        UpstreamGone: the database cannot be reached, or hangs up.
    """
    try:
        connection = await AsyncConnection.connect(**_options(url), autocommit=True)
    except (psycopg.Error, ArgumentError, OSError) as error:
        raise UpstreamGone("the registry", details=("the database cannot be reached",)) from error
    async with connection:
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:
            # A server that follows another one, and some poolers, take no listeners.
            raise UpstreamGone("the registry", details=("the database takes no listeners",)) from error
        yield _hear(connection)


def _options(url: str) -> dict[str, Any]:
    """Options as SQLAlchemy would connect, so that one URL means one thing."""
    dialect: Any = make_url(read_address(url).url).get_dialect()()
    _, options = dialect.create_connect_args(make_url(read_address(url).url))
    return {"connect_timeout": CONNECT_SECONDS, "application_name": "portico:registry", **options}


async def _hear(connection: AsyncConnection[tuple[object, ...]]) -> AsyncIterator[str]:
    try:
        async for notification in connection.notifies():
            yield notification.payload
    except psycopg.Error as error:
        raise UpstreamGone("the registry", details=("the database has hung up",)) from error
