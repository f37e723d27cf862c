"""A connection to the demo shop, on each engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.providers.database_tools.shop import fill_postgres

from portico.providers.database_tools.demo_database import demo_url
from portico.providers.sql import DatabaseSource, ReadConnection


@pytest.fixture(params=["sqlite", "postgresql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseSource]:
    """The demo shop as a source, on each engine."""
    if request.param == "sqlite":
        url = demo_url(tmp_path)
    else:
        url = request.getfixturevalue("postgres_url")
        fill_postgres(url)
    source = DatabaseSource(url)
    yield source
    source.close()


@pytest.fixture
def conn(shop: DatabaseSource) -> Iterator[ReadConnection]:
    """An open connection to the shop."""
    with shop.reading() as connection:
        yield connection
