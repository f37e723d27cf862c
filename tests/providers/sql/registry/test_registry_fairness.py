"""Slow queries of one client leave connections to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.registries import ALICE, Shop, called, registry_house

from portico.providers.sql.registry.provider import THREADS


@pytest.mark.requirement("P-FAIR-SHARES")
async def test_a_query_of_another_client_is_answered_while_those_of_the_first_wait(pg: Shop, tmp_path: Path):
    pg.register("wait", "wait_for", "F", "seconds float")
    first, second = replace(ALICE, client="first"), replace(ALICE, client="second")
    with anyio.fail_after(60):
        async with registry_house(tmp_path, pg.spec()) as application, anyio.create_task_group() as tasks:
            limiter = application.gateway.executor.limiter("warehouse", THREADS)
            for _ in range(200):
                tasks.start_soon(called, application, "warehouse.wait", {"seconds": 20}, first)
            while limiter.waiting < 200 - THREADS * 3 // 4:
                await anyio.lowlevel.checkpoint()
            answer = await called(application, "warehouse.sample_sales", {"limit": 1}, second)
            assert answer["row_count"] == 1
            assert (limiter.running, limiter.waiting) == (THREADS * 3 // 4, 200 - THREADS * 3 // 4)
            tasks.cancel_scope.cancel()
