"""How the tables came to be, step by step, and what runs the steps that a database has not had yet.

A step that was ever released never changes. This loads Alembic, so nothing imports it that need not. `script` makes
`schema.sql` anew: `python -c "from portico.storage import migrations; print(migrations.script(), end='')"`.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from portico.errors import StoreError, StoreRefused
from portico.storage.database_interface import HEAD, brief

MIGRATIONS = Path(__file__).parent
LOCK_KEY = 8_421_000
"""The advisory lock that whoever migrates a PostgreSQL database holds."""

_turn = Lock()
"""Alembic's environment is one for the whole process."""


def upgrade_file(path: Path, busy_seconds: float) -> None:
    """Bring a SQLite file up to date; other processes wait, and find it done.

    Raises:
        StoreError: a migration could not be run; nothing has changed then.
    """
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False),
        poolclass=NullPool,
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        upgrade(engine, str(path))
    finally:
        engine.dispose()


def upgrade(engine: Engine, where: str) -> None:
    """Bring a database up to date in one transaction; other processes wait, and find it done.

    Raises:
        StoreRefused: the database does not take a migration; nothing has changed then.
        StoreError: it went away meanwhile; nothing has changed either.
    """
    try:
        with _turn, engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
            config = configured()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except (SQLAlchemyError, CommandError) as error:
        reason = getattr(error, "orig", None) or error
        kind = StoreError if isinstance(error, (OperationalError, InterfaceError)) else StoreRefused
        raise kind(
            f"the tables of the store {where} cannot be brought up to date: {brief(reason)}. Nothing has changed; "
            "see that this user may create tables there, or point `store` at another database"
        ) from error


def configured() -> Config:
    """Alembic's settings, of which there is only the folder."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def script() -> str:
    """The statements that make an empty SQLite file what the migrations would make of it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made.db"
        upgrade_file(path, 1.0)
        connection = sqlite3.connect(path)
        try:
            found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
        finally:
            connection.close()
    lines = ["-- Generated from the migrations by `portico.storage.migrations.script`; a test compares the two."]
    lines += [f"{statement};".replace(" \n", "\n") for (statement,) in found]
    return "\n".join([*lines, f"INSERT INTO alembic_version VALUES ('{HEAD}');", ""])  # noqa: S608 - a number of ours
