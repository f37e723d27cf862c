"""Fixtures of the upstream provider's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from upstream_world import Upstreams
from web_world import RawServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.aclose()


@pytest.fixture
async def raw(upstreams: Upstreams) -> AsyncIterator[RawServer]:
    server = await RawServer().start()
    yield server
    await upstreams.aclose()
    await server.stop()
