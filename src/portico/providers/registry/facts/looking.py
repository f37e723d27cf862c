"""Asks a database for what a registry names, in the way of its kind."""

from __future__ import annotations

from portico.providers.database import OwnConnection

from .fact import Facts, Named, Views
from .postgresql import glance_postgresql, look_postgresql
from .sqlite import glance_sqlite, look_sqlite
from .teradata import look_teradata


def look(conn: OwnConnection, named: Named, views: Views) -> Facts:
    """What the database says of everything that is registered."""
    if conn.dialect == "postgresql":
        return look_postgresql(conn, named, views)
    return look_sqlite(conn, named) if conn.dialect == "sqlite" else look_teradata(conn, views)


def glance(conn: OwnConnection, named: Named, views: Views) -> str:
    """A mark that stays as long as nothing of it has changed; empty where only a whole look can tell."""
    if conn.dialect == "postgresql":
        return glance_postgresql(conn, named, views)
    return glance_sqlite(conn) if conn.dialect == "sqlite" else ""
