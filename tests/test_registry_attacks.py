"""Text that tries to be SQL stays a value, or is refused, through every door and into both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.injection_attack import TEXTS, TYPES, InjectionAttack, create_attacked_tables, state
from tests.providers.sql.registry.registry_world import INJECTIONS
from tests.registries import Shop, postgres_shop, registry_house, sqlite_shop

EVERY = {"direct": 1, "call_tool": 15, "execute_tool": 15, "script": 60}
"""Every so many texts for each door; `bench/registry.py` sends them all through all."""


@pytest.mark.requirement("S4-E1", "S4-E15", "P-REGISTRY-BOUND", "T66", "T67")
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_no_text_changes_a_database_and_none_is_sent_as_another_type(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    shop: Shop
    if engine == "sqlite":
        shop = sqlite_shop(tmp_path / "shop.db")
    else:
        shop = postgres_shop(request.getfixturevalue("postgres_url"))
    create_attacked_tables(shop)
    async with registry_house(tmp_path, shop.spec()) as application:
        before = state(shop)
        attack = InjectionAttack(application)
        for door, step in EVERY.items():
            await attack.run(INJECTIONS[::step], [door])
        assert {column for _, column, _ in attack.let_through} <= TEXTS
        assert attack.sent == len(attack.let_through)
        assert attack.tried > len(INJECTIONS) * len(TYPES)
        assert {door for door, _, _ in attack.let_through} == set(EVERY)
    assert state(shop) == before
