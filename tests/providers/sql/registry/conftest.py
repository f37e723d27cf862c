"""Registries in real databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.registries import Shop, postgres_shop, sqlite_shop


@pytest.fixture
def pg(postgres_url: str) -> Shop:
    """A registry in PostgreSQL."""
    return postgres_shop(postgres_url)


@pytest.fixture(params=["sqlite", "postgresql"])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A registry in each engine."""
    if request.param == "sqlite":
        return sqlite_shop(tmp_path / "shop.db")
    return postgres_shop(request.getfixturevalue("postgres_url"))
