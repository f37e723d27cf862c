"""A kill at any moment loses nothing that was promised, and what it loses is counted exactly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.kill import MODES, kill_once
from tests.databases import Postgres

ROUNDS = 3


@pytest.mark.requirement("P-JOURNAL-ONCE", "P-JOURNAL-DURABLE", "P-JOURNAL-LOSSES", "F33", "F34")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_what_a_killed_process_was_told_is_stored_and_what_it_lost_is_counted(
    mode: str, store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        if store == "sqlite":
            kill_once(mode, "sqlite", folder, random.Random(number))
            continue
        server: Postgres = request.getfixturevalue("postgres")
        url = server.migrated()
        try:
            kill_once(mode, url, folder, random.Random(number))
        finally:
            server.drop(url)
