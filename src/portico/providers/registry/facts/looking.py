"""Asks a database for what a registry names, in the way of its kind."""

from __future__ import annotations

from portico.providers.database import OwnConnection

from . import postgresql, sqlite, teradata
from .fact import Facts, Named, Views


def look(conn: OwnConnection, named: Named, views: Views) -> Facts:
    """What the database says of everything that is registered."""
    if conn.dialect == "postgresql":
        return postgresql.look(conn, named, views)
    return sqlite.look(conn, named) if conn.dialect == "sqlite" else teradata.look(conn, views)


def glance(conn: OwnConnection, named: Named, views: Views) -> str:
    """A mark that stays as long as nothing of it has changed; empty where only a whole look can tell."""
    if conn.dialect == "postgresql":
        return postgresql.glance(conn, named, views)
    return sqlite.glance(conn) if conn.dialect == "sqlite" else ""
