"""Which migrations there are, and whether a database has had them; knows nothing of the library that runs them."""

from __future__ import annotations

from pathlib import Path

from portico.errors import StoreRefused

from .database import Database

REVISIONS = ("0001", "0002", "0003", "0004", "0005")
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
