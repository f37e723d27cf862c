"""Many users call a database's tools at once; a tenth of the calls fail or are cancelled while they run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import anyio
import psycopg

from portico.domain.call import Caller
from portico.errors import Sent, UpstreamError
from portico.providers.sql.registry.provider import RegistryProvider
from tests.registries import Shop

USERS = 20
FUNCTIONS = """
CREATE FUNCTION mcp.fail_inside() RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN
  PERFORM set_config('role', 'tester', false); PERFORM set_config('portico.caller', 'nobody', false);
  RAISE EXCEPTION 'failed inside'; END $$;
CREATE FUNCTION mcp.hang_inside(token integer) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN
  PERFORM set_config('role', 'tester', false); PERFORM set_config('portico.caller', 'nobody', false);
  PERFORM pg_advisory_xact_lock_shared(token); PERFORM pg_sleep(60); RETURN 'late'; END $$;
"""
"""Both become somebody else before they end badly: that must not outlive them."""


@contextmanager
def roles_and_functions(shop: Shop) -> Iterator[dict[str, str]]:
    """A role for each user, and the functions that end badly, as tools."""
    roles = {f"user {number}": f"own_role_{number}" for number in range(USERS)}
    for role in roles.values():
        shop.run(f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role}")
    shop.run(FUNCTIONS)
    shop.register("who", "who", "F")
    shop.register("fail_inside", "fail_inside", "F")
    shop.register("hang_inside", "hang_inside", "F", "token I")
    yield roles
    for role in roles.values():
        shop.run(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@dataclass
class ConcurrentUsers:
    """Concurrent calls of many users, and how they ended."""

    provider: RegistryProvider
    shop: Shop
    roles: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    """`answered`, `failed` in the database, `cancelled` in the database, and `another_user`: seen as somebody else."""
    _tokens: Iterator[int] = field(default_factory=lambda: count(1))

    async def run(self, calls: int, seed: int) -> None:
        """Make so many calls, some at once."""
        random, limiter = Random(seed), anyio.CapacityLimiter(USERS)
        await self.provider.offer()
        async with await psycopg.AsyncConnection.connect(self.shop.url, autocommit=True) as watcher:
            turn = anyio.Lock()

            async def once(name: str, fate: float) -> None:
                async with limiter:
                    if fate < 0.05:
                        await self._cancelled(name, watcher, turn)
                    else:
                        await (self._failed(name) if fate < 0.1 else self._answered(name))

            async with anyio.create_task_group() as tasks:
                for _ in range(calls):
                    tasks.start_soon(once, random.choice(list(self.roles)), random.random())

    async def _answered(self, name: str) -> None:
        user, told, _ = (await self._ask(name, "who"))["structuredContent"]["rows"][0]
        self.counts["answered"] += 1
        self.counts["another_user"] += (user, told) != (self.roles[name], name)

    async def _failed(self, name: str) -> None:
        try:
            await self._ask(name, "fail_inside")
        except UpstreamError as error:
            self.counts["failed"] += error.sent is Sent.ANSWERED and "failed inside" in str(error)

    async def _cancelled(self, name: str, watcher: psycopg.AsyncConnection[Any], turn: anyio.Lock) -> None:
        """Give a call up as soon as the database shows that it runs."""
        token = next(self._tokens)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: self._ask(name, "hang_inside", token=token))
            while True:
                async with turn:
                    asked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
                    if await (await watcher.execute(asked, (token,))).fetchone():
                        break
                await anyio.sleep(0.002)
            tasks.cancel_scope.cancel()
        self.counts["cancelled"] += 1

    async def _ask(self, name: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
        caller = Caller(name=name, surface="test")
        return await self.provider.call(tool, arguments, meta={}, on_progress=None, caller=caller)
