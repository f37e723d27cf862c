"""A running gateway keeps its tiers current, follows other processes, and outlives trouble with its store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from portico.domain.call import Caller
from portico.domain.server import Offering
from portico.domain.tool import Category, ToolId
from portico.errors import StoreError
from portico.server import background as upkeep
from portico.server.background import BackgroundJobs
from portico.storage.catalog_tables import TierRecords
from portico.storage.database_interface import Database
from portico.storage.journal_tables import Ledger
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import Storage, open_change_feed, open_database
from portico.testing import FakeApplication, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers


@pytest.fixture(autouse=True)
def _haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "START_SECONDS", 0.0)
    monkeypatch.setattr(upkeep, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(upkeep, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(upkeep, "TROUBLE_SECONDS", 0.02)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Database]]:
    """Opens the same database once more, as another process would."""
    store = "sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    opened: list[Database] = []

    def open_again() -> Database:
        opened.append(open_database(store, tmp_path))
        return opened[-1]

    yield open_again
    for one in opened:
        one.close()


@asynccontextmanager
async def running(database: Database, *tools: str) -> AsyncIterator[FakeApplication]:
    """An application over a database that is kept up until the end of the block."""
    signals = open_change_feed(database)
    application = make_test_app(
        {"s": [definition(name) for name in tools]},
        storage=Storage(
            definitions=DatabaseDefinitions(database),
            ledger=Ledger(database),
            tiers=TierRecords(database),
            changes=signals,
        ),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            BackgroundJobs(
                application.admin, TierAnswers(gateway=application.gateway, standings=application.admin.standings)
            ).run
        )
        yield application
        tasks.cancel_scope.cancel()
    signals.close()


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not is_so():  # noqa: ASYNC110  another process or thread makes it so
            await anyio.sleep(0.01)


@pytest.mark.requirement("S1-74", "S1-49", "S1-51")
async def test_tiers_are_updated_and_the_catalog_is_written_down_soon_after_a_start(
    database: Callable[[], Database],
) -> None:
    opened = database()
    async with running(opened, "a", "b") as application:
        await until(lambda: len(application.admin.standings.tiers) == 2)
        await until(lambda: len(opened.rows("SELECT tool_name FROM mcp_tools WHERE tier = 'cold'")) == 2)
    assert opened.rows("SELECT server_name FROM mcp_servers WHERE is_active") == [("s",)]


@pytest.mark.requirement("P-REPLICAS")
async def test_the_daily_work_is_done_by_one_of_two_processes(database: Callable[[], Database]) -> None:
    async with running(database(), "a") as one, running(database(), "a") as other:
        await until(lambda: bool(one.admin.standings.tiers and other.admin.standings.tiers))
        opened = database()
        await until(lambda: opened.rows("SELECT job FROM jobs ORDER BY job") == [("prune",), ("tiers",)])
        assert opened.rows("SELECT number FROM signals WHERE topic = 'tiers'") == [(1,)]


@pytest.mark.requirement("S1-E2", "P-REPLICAS")
async def test_what_one_process_updates_the_other_shows(database: Callable[[], Database]) -> None:
    async with running(database(), "a") as one, running(database(), "a") as other:
        await until(lambda: bool(one.admin.standings.tiers and other.admin.standings.tiers))
        await anyio.lowlevel.checkpoint()
        before = other.admin.standings.revision
        await one.admin.set_category(Category(name="files", display_name="Paper"))
        await until(lambda: "files" in other.admin.standings.categories)
        assert other.admin.standings.categories["files"].display_name == "Paper"
        assert other.admin.standings.revision > before


@pytest.mark.requirement("S1-E2", "P-REPLICAS")
async def test_what_one_process_fetches_the_other_offers_without_asking(database: Callable[[], Database]) -> None:
    async with running(database(), "a") as one, running(database(), "a") as other:
        one.provider("s").tools.append(definition("new"))
        await one.admin.refresh()
        await until(lambda: ToolId("s", "new") in other.gateway.snapshot.tools)
        assert other.provider("s").offered == 0


async def test_a_store_that_is_away_is_waited_for(
    database: Callable[[], Database], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = database()
    is_away = [True]
    keep = TierRecords.keep_catalog

    def keep_or_fail(*args: object, **named: object) -> None:
        if is_away[0]:
            raise StoreError("the store is away")
        keep(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TierRecords, "keep_catalog", keep_or_fail)
    async with running(opened, "a") as application:
        await until(lambda: "the store is away" in caplog.text)
        assert application.gateway.snapshot.tools
        is_away[0] = False
        await until(lambda: len(opened.rows("SELECT 1 FROM mcp_tools")) == 1)
    assert caplog.text.count("the store is away") <= 3


def test_an_offering_is_what_the_store_holds(database: Callable[[], Database]) -> None:
    store = DatabaseDefinitions(database())
    store.save(Offering(server="s"), "1")
    assert DatabaseDefinitions(database()).load({"s": "1"}) == {"s": Offering(server="s")}


@pytest.mark.parametrize("error", [KeyError("b"), StoreError("away")])
async def test_nothing_that_goes_wrong_in_upkeep_ends_the_gateway(
    database: Callable[[], Database], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    prepare, failed = TierAnswers.prepare, []

    async def prepare_or_fail(tier_answers: TierAnswers, caller: Caller) -> None:
        if not failed:
            failed.append(True)
            raise error
        await prepare(tier_answers, caller)

    monkeypatch.setattr(TierAnswers, "prepare", prepare_or_fail)
    opened = database()
    async with running(opened, "a") as application:
        application.provider("s").tools.append(definition("b"))
        await application.admin.refresh()
        await until(lambda: bool(failed))
        await until(lambda: len(opened.rows("SELECT 1 FROM mcp_tools WHERE is_active")) == 2)


async def test_a_store_that_another_process_holds_does_not_hold_the_gateway(tmp_path: Path) -> None:
    opened, other = open_database("sqlite", tmp_path), open_database("sqlite", tmp_path)
    async with running(opened, "a") as application, anyio.create_task_group() as tasks:
        await until(lambda: bool(application.admin.standings.tiers))
        application.admin.refresher.watch(tasks)
        with other.transaction():
            application.provider("s").tools.append(definition("b"))
            with anyio.fail_after(5):
                await application.admin.refresher.refresh("s")
            assert ToolId("s", "b") in application.gateway.snapshot.tools
        store, mark = DatabaseDefinitions(opened), application.provider("s").fingerprint
        await until(lambda: [len(found.tools) for found in store.load({"s": mark}).values()] == [2])
        tasks.cancel_scope.cancel()
    opened.close()
    other.close()
