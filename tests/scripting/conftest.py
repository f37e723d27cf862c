"""Engines for the tests of scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from portico.scripting.engine import LuaEngine
from tests.scripting.fake_api import Runner, running


@pytest.fixture(scope="package")
def run() -> Iterator[Runner]:
    """Runs scripts; one engine serves all plain tests, because no worker is used twice."""
    with running(pool_size=2) as runner:
        yield runner


@pytest.fixture
async def engine() -> AsyncIterator[LuaEngine]:
    """An engine of the test's own."""
    engine = LuaEngine(pool_size=2)
    yield engine
    await engine.aclose()
