"""What every test may rely on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from portico.storage.database_interface import Database
from portico.storage.storage import open_database
from tests.databases import Postgres, postgres_server

settings.register_profile(
    "portico", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # of a shell that runs the tests in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or else every program that a test starts ignores it too
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "portico"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL, started once for the whole run."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Postgres) -> Iterator[str]:
    """The URL of a fresh, empty PostgreSQL database."""
    url = postgres.fresh()
    yield url
    postgres.drop(url)


@pytest.fixture
def migrated_url(postgres: Postgres) -> Iterator[str]:
    """The URL of a PostgreSQL database that has our tables, and nothing in them."""
    url = postgres.migrated()
    yield url
    postgres.give_back(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An open database of each kind, with our tables and nothing in them."""
    store = "sqlite" if request.param == "sqlite" else request.getfixturevalue("migrated_url")
    opened = open_database(store, tmp_path)
    yield opened
    opened.close()
