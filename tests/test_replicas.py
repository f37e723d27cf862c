"""Two processes over one database, SQLite and PostgreSQL: one does the daily work, and both know what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from time import time

import anyio
import pytest

from portico.admin import Admin
from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import Tier
from portico.storage.catalog_tables import TierRecords
from portico.storage.change_feed import ChangeFeed
from portico.storage.database_interface import Database
from portico.storage.journal_tables import Ledger
from portico.storage.storage import Storage, open_change_feed
from portico.testing import definition, make_test_app

NOW = time()
SYMBOL, RENAME = ToolId("serena", "find_symbol"), ToolId("serena", "rename")


def _admin(database: Database, signals: ChangeFeed) -> Admin:
    storage = Storage(ledger=Ledger(database), tiers=TierRecords(database), changes=signals, keep_days=1)
    servers = {"serena": [definition("find_symbol"), definition("rename")]}
    return make_test_app(servers, storage=storage).admin


@pytest.fixture
def replicas(database: Database) -> Iterator[tuple[Admin, Admin]]:
    signals = open_change_feed(database), open_change_feed(database)
    yield _admin(database, signals[0]), _admin(database, signals[1])
    for own in signals:
        own.close()


def _called(tool: ToolId, outcome: Outcome = Outcome.DONE, at: float = NOW) -> Invocation:
    return Invocation(
        tool=tool, spelled=tool.name, caller="a", surface="s", outcome=outcome, seconds=0.047, at=at, rank=1
    )


def _append(admin: Admin, *entries: Invocation) -> None:
    assert admin.storage.ledger is not None
    admin.storage.ledger.append(Batch(writer="w", entries=entries))


@pytest.mark.requirement("S1-74", "P-REPLICAS")
async def test_one_of_two_replicas_does_the_daily_work(replicas: tuple[Admin, Admin]) -> None:
    done = list[bool]()

    async def work(admin: Admin) -> None:
        done.append(await admin.daily(NOW))

    _append(replicas[0], *[_called(SYMBOL)] * 5, _called(RENAME, at=NOW - 5 * 86_400))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for admin in replicas:
                tasks.start_soon(work, admin)
    assert sorted(done) == [False, True]
    report = await replicas[1].usage_report(days=7)
    assert report.ranks == {1: 5}, "what is older than a day has been dropped"
    assert replicas[1].storage.ledger is not None
    assert replicas[1].storage.ledger.usage()[RENAME].calls == 1, "usage keeps what it added up to"


@pytest.mark.requirement("S1-74")
async def test_what_one_replica_works_out_the_other_takes_over(replicas: tuple[Admin, Admin]) -> None:
    one, other = replicas
    _append(one, *[_called(SYMBOL)] * 30)
    assert other.storage.changes is not None
    before = other.storage.changes.numbers()
    assert await one.update_tiers() == 2
    await one.set_category(Category(name="code", display_name="Code", order=3))
    assert await anyio.to_thread.run_sync(other.storage.changes.wait, 10)
    after = other.storage.changes.numbers()
    await other.reload({topic for topic in after if after[topic] != before.get(topic, 0)})
    assert other.standings.tiers == one.standings.tiers
    assert other.standings.tiers[SYMBOL].tier is Tier.STANDARD
    assert other.standings.tiers[RENAME].tier is Tier.COLD
    assert other.standings.categories == {"code": Category(name="code", display_name="Code", order=3)}
    assert await other.drop_category("code")
    assert not await one.drop_category("code")


async def test_a_checkup_asks_the_database(replicas: tuple[Admin, Admin], database: Database) -> None:
    assert (await replicas[0].checkup()).problem == ""
    database.run("DROP TABLE writers")
    assert "writers" in (await replicas[0].checkup()).problem
