"""What an operator sees and does: servers, the token bill, tiers, categories, usage, and the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import time

import anyio
import pytest

from portico.admin import Admin
from portico.catalog.categories_and_order import SHIPPED
from portico.catalog.view import CatalogViews
from portico.domain.journal_entries import Losses, Report
from portico.domain.server import Offering, ServerLabels, ServerSpec, State
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import Standing, Tier, Usage, day_of, standing_of
from portico.errors import ConfigError, StoreError, UnknownServer, UpstreamGone
from portico.storage.memory import MemoryDefinitions, MemoryJournal
from portico.storage.storage import Storage
from portico.testing import FakeApplication, definition, make_test_app

from .fake_ledger import FakeLedger, FakeUsageJournal


@pytest.fixture
def application() -> FakeApplication:
    specs = [
        ServerSpec(name="fake", transport="stdio", command="run", args=("--fast", "--token=secret")),
        ServerSpec(name="off", transport="http", url="https://user:pass@example.com/mcp?key=secret", enabled=False),
    ]
    return make_test_app({"fake": [definition("x"), {"name": ""}]}, specs=specs)


def test_every_server_is_reported_running_or_not(application: FakeApplication) -> None:
    fake, off = application.admin.reports()
    assert (fake.name, fake.health.state, len(fake.tools)) == ("fake", State.READY, 1)
    assert [refusal.name for refusal in fake.rejected] == ["(no name)"]
    assert (off.name, off.health.state) == ("off", State.DISABLED)


def test_a_target_shows_no_secrets(application: FakeApplication) -> None:
    run, url = (report.target for report in application.admin.reports())
    assert run.startswith("run")
    assert "example.com/mcp" in url
    assert not any(secret in run + url for secret in ("secret", "user", "pass"))


def test_a_server_that_nobody_configured_is_unknown(application: FakeApplication) -> None:
    with pytest.raises(UnknownServer, match="configured: fake"):
        application.admin.report("nobody")


async def test_a_failure_is_reported_until_it_is_over(application: FakeApplication) -> None:
    application.provider().fails(UpstreamGone("fake", details=("no such command",)))
    await application.admin.refresh()
    health = application.admin.report("fake").health
    assert (health.state, health.reason) == (State.FAILED, "no such command")
    application.provider().fails(None)
    await application.admin.refresh()
    assert application.admin.report("fake").health.state is State.READY


def test_a_server_that_was_never_asked_is_unknown_yet(application: FakeApplication) -> None:
    application.gateway.publisher.withdraw("fake")
    assert application.admin.report("fake").health.state is State.UNKNOWN


def test_the_bill_adds_up(application: FakeApplication) -> None:
    bill = application.admin.bill(after=10)
    assert [(line.server, line.tools) for line in bill.lines] == [("fake", 1)]
    assert bill.before == bill.lines[0].tokens > 10
    assert bill.saved == pytest.approx(1 - 10 / bill.before)
    assert bill.counter == "estimate"


def test_an_empty_house_has_an_empty_bill() -> None:
    bill = make_test_app({}).admin.bill(after=100)
    assert (bill.before, bill.saved) == (0, 0.0)


NOW = time()
TODAY = day_of(NOW)
FIND_SYMBOL = Usage(
    calls=12_453, done=12_291, seconds=585.0, days={TODAY - back: 100 for back in range(30)}, latencies={65: 12_453}
)
"""The sample of the design: 98.7 %, 47 ms, even use."""
RARE = Usage(calls=2, done=1, seconds=4.0, days={TODAY - 20: 2}, latencies={100: 2})


@dataclass
class Operated:
    """A house whose admin has a database behind it."""

    application: FakeApplication
    kept: FakeLedger
    told: FakeUsageJournal

    @property
    def admin(self) -> Admin:
        return self.application.admin


@pytest.fixture
def operated() -> Operated:
    specs = [ServerSpec(name="serena", transport="stdio", command="x", labels=ServerLabels(category="code_analysis"))]
    servers = {"serena": [definition("find_symbol"), definition("rename")], "odd": [definition("thing")]}
    kept, told = FakeLedger(), FakeUsageJournal()
    storage = Storage(
        journal=told,
        ledger=kept,
        tiers=kept,
        changes=kept,
        keep_days=30,
        name="postgresql://db/portico",
        journal_mode="durable",
    )
    categories = {"odd.thing": "oddities"}
    application = make_test_app(servers, specs=specs, storage=storage, explicit_categories=categories)
    return Operated(application, kept, told)


def without(admin: Admin, **parts: object) -> Admin:
    """The same admin over a storage with other parts."""
    return replace(admin, storage=replace(admin.storage, **parts))


SYMBOL, RENAME, THING = ToolId("serena", "find_symbol"), ToolId("serena", "rename"), ToolId("odd", "thing")


@pytest.mark.requirement("S1-73", "S1-74")
async def test_an_update_scores_every_tool_writes_it_down_and_tells_everybody(
    operated: Operated, caplog: pytest.LogCaptureFixture
) -> None:
    operated.kept.used = {SYMBOL: FIND_SYMBOL, RENAME: RARE, ToolId("gone", "tool"): RARE}
    with caplog.at_level(logging.INFO):
        assert await operated.admin.update_tiers() == 3
    assert "Updated tier scores for 3 tools" in caplog.messages
    assert operated.kept.stood == {
        SYMBOL: Standing(tier=Tier.HOT, score=0.91),
        RENAME: standing_of(RARE, NOW),
        THING: standing_of(None, NOW),
    }
    assert operated.admin.standings.tiers == operated.kept.stood
    assert operated.kept.announced == ["tiers"]


@pytest.mark.requirement("S1-74")
async def test_calls_that_are_not_stored_yet_count_too(operated: Operated) -> None:
    operated.kept.used = {SYMBOL: RARE, RENAME: FIND_SYMBOL}
    operated.told.used = {SYMBOL: FIND_SYMBOL, RENAME: RARE}
    await operated.admin.update_tiers()
    assert {line.tool.id for line in operated.admin.tier_lines() if line.tier is Tier.HOT} == {SYMBOL, RENAME}


async def test_an_update_that_cannot_be_written_changes_nothing(operated: Operated) -> None:
    operated.kept.used = {SYMBOL: FIND_SYMBOL}
    await operated.admin.update_tiers()
    before = operated.admin.standings.tiers
    operated.kept.away = "the disk is full"
    with pytest.raises(StoreError, match="the disk is full"):
        await operated.admin.update_tiers()
    assert operated.admin.standings.tiers is before


@pytest.mark.requirement("S1-74")
async def test_the_daily_work_is_done_once_a_day_by_one_process(operated: Operated) -> None:
    admin, kept = operated.admin, operated.kept
    kept.clock = NOW
    kept.busy = True
    assert not await admin.daily(NOW)
    kept.busy = False
    assert await admin.daily(NOW)
    assert (kept.announced, kept.pruned, kept.ended) == (["tiers"], [30], {"tiers": NOW, "prune": NOW})
    assert not await admin.daily(NOW + 86_399)
    assert await admin.daily(NOW + 86_400)
    assert len(kept.pruned) == 2


async def test_what_cannot_be_pruned_does_not_make_tools_stand_anew_again_and_again(operated: Operated) -> None:
    operated.kept.clock, operated.kept.stuck = NOW, "it takes too long"
    for _ in range(3):
        with pytest.raises(StoreError, match="it takes too long"):
            await operated.admin.daily(NOW)
    assert operated.kept.announced == ["tiers"]


async def test_what_another_process_did_a_moment_ago_is_not_done_again(operated: Operated) -> None:
    operated.kept.overtaken = NOW
    assert not await operated.admin.daily(NOW)
    assert operated.kept.announced == []


async def test_daily_work_that_cannot_be_done_stays_due(operated: Operated) -> None:
    operated.kept.away = "the database is away"
    with pytest.raises(StoreError, match="the database is away"):
        await operated.admin.daily(NOW)
    operated.kept.away = ""
    assert await operated.admin.daily(NOW)


async def test_the_catalog_is_written_down_and_only_what_was_fetched_here_is_announced(operated: Operated) -> None:
    operated.kept.stood = {SYMBOL: Standing(tier=Tier.HOT, score=0.9)}
    await operated.admin.write_catalog()
    assert [snapshot.number for snapshot in operated.kept.catalogs] == [1]
    assert operated.kept.stood == {SYMBOL: Standing(tier=Tier.HOT, score=0.9)}
    assert operated.kept.announced == []
    await operated.admin.refresher.refresh("odd")
    await operated.admin.write_catalog()
    await operated.admin.write_catalog()
    assert operated.kept.announced == ["offerings"]
    operated.kept.away = "no room"
    with pytest.raises(StoreError):
        await operated.admin.write_catalog()


@pytest.mark.requirement("S1-74")
async def test_without_a_database_tiers_follow_from_what_this_process_has_seen(application: FakeApplication) -> None:
    admin = without(application.admin, journal=FakeUsageJournal({ToolId("fake", "x"): FIND_SYMBOL}))
    assert await admin.daily(NOW)
    assert not await admin.daily(NOW + 1)
    (line,) = admin.tier_lines()
    assert (line.tier, line.score, line.usage) == (Tier.HOT, 0.91, FIND_SYMBOL)
    assert await make_test_app({"fake": [definition("x")]}).admin.update_tiers() == 1


async def test_tools_are_listed_hot_ones_first_with_their_usage(operated: Operated) -> None:
    operated.told.used = {THING: FIND_SYMBOL, RENAME: RARE}
    views = CatalogViews(policy=operated.admin.views.policy, pins=("serena.rename", "nobody.nothing"))
    lines = replace(operated.admin, views=views).tier_lines()
    assert [(line.tool.handle, line.tier) for line in lines] == [
        ("odd.thing", Tier.HOT),
        ("serena.find_symbol", Tier.COLD),
        ("serena.rename", Tier.COLD),
    ]
    assert [line.is_pinned for line in lines] == [False, False, True]
    assert [line.usage.calls for line in lines] == [12_453, 0, 2]


async def test_the_report_is_the_ledgers_where_there_is_one(operated: Operated) -> None:
    operated.kept.summed = Report(days=3, calls=5)
    assert (await operated.admin.usage_report(days=3)).calls == 5
    operated.kept.away = "gone"
    with pytest.raises(StoreError):
        await operated.admin.usage_report()


async def test_without_a_ledger_the_report_is_what_usage_tells(operated: Operated) -> None:
    admin = without(operated.admin, ledger=None)
    operated.told.used = {SYMBOL: FIND_SYMBOL, RENAME: RARE}
    week = await admin.usage_report(days=7, limit=1)
    assert (week.days, week.calls) == (7, 700)
    assert [(line.tool, line.calls, line.done) for line in week.top] == [(SYMBOL, 700, 691)]
    assert [day.calls for day in week.by_day] == [100] * 7
    month = await admin.usage_report(days=400, limit=1)
    assert (month.days, month.calls) == (30, 3_002)
    assert [line.tool for line in month.failing] == [RENAME]
    assert month.slow[0].p95_ms == pytest.approx(1_311, rel=0.05)
    assert (await without(admin, journal=MemoryJournal()).usage_report()).calls == 0


async def test_every_category_is_shown_with_what_stands_on_it_and_who_says_so(operated: Operated) -> None:
    lines = {line.category.name: line for line in await operated.admin.categories()}
    code, odd = lines["code_analysis"], lines["oddities"]
    assert (code.tools, code.servers, code.origin) == (2, 1, "shipped")
    assert (odd.tools, odd.servers, odd.origin, odd.category.title) == (1, 1, "config", "Oddities")
    assert lines.keys() >= SHIPPED.keys()
    orders = [line.category.order for line in lines.values()]
    assert orders == sorted(orders)


async def test_a_category_is_edited_announced_and_put_back(operated: Operated) -> None:
    mine = Category(name="code_analysis", display_name="Reading code", order=1)
    await operated.admin.set_category(mine)
    assert operated.kept.written == {"code_analysis": mine}
    first = (await operated.admin.categories())[0]
    assert (first.category, first.origin, first.tools) == (mine, "edited", 2)
    assert await operated.admin.drop_category("code_analysis")
    assert not await operated.admin.drop_category("code_analysis")
    assert (await operated.admin.categories())[0].category == SHIPPED["code_analysis"]
    assert set(operated.kept.announced) == {"categories"}


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\x1b[31m", "x" * 65, " a"])
async def test_a_category_needs_a_name_that_can_be_shown(operated: Operated, name: str) -> None:
    with pytest.raises(ConfigError, match="such as code_analysis"):
        await operated.admin.set_category(Category(name=name))
    assert operated.kept.written == {}


async def test_a_category_without_a_database_lasts_as_long_as_the_process(application: FakeApplication) -> None:
    await application.admin.set_category(Category(name="new"))
    assert "new" in application.admin.standings.categories
    assert await application.admin.drop_category("new")
    assert application.admin.standings.categories == {}


async def test_what_others_have_announced_is_taken_over(operated: Operated) -> None:
    admin, kept = operated.admin, operated.kept
    kept.stood = {THING: Standing(tier=Tier.HOT, score=0.99)}
    kept.written = {"x": Category(name="x")}
    revision = admin.standings.revision
    await admin.reload(set())
    assert admin.standings.revision == revision
    await admin.reload({"tiers", "categories"})
    assert (admin.standings.tiers, admin.standings.categories) == (kept.stood, kept.written)
    assert admin.standings.revision > revision


async def test_a_process_that_cannot_be_told_costs_no_more_than_a_warning(
    operated: Operated, caplog: pytest.LogCaptureFixture
) -> None:
    admin = without(operated.admin, tiers=None)
    operated.kept.away = "no connection"
    await admin.set_category(Category(name="x"))
    assert "x" in admin.standings.categories
    assert "told later that categories have changed: no connection" in caplog.text
    with pytest.raises(StoreError, match="no connection"):
        await admin.catch_up()
    operated.kept.away = ""
    await admin.catch_up()
    await admin.catch_up()
    assert operated.kept.announced == ["categories"]


async def test_a_refresh_is_announced(operated: Operated) -> None:
    await operated.admin.refresh({"odd"})
    assert operated.kept.announced == ["offerings"]


async def test_definitions_that_another_process_fetched_are_published_without_asking_anybody() -> None:
    store = MemoryDefinitions()
    application = make_test_app(
        {"fake": [definition("old")], "other": [definition("same")]}, storage=Storage(definitions=store)
    )
    application.admin.refresher.failures["fake"] = "it was away"
    store.save(Offering(server="fake", tools=(definition("new"),)), application.provider("fake").fingerprint)
    store.save(Offering(server="other", tools=(definition("changed"),)), "of another config")
    await application.admin.reload({"offerings"})
    assert [tool.handle for tool in application.gateway.snapshot.tools.values()] == ["fake.new", "other.same"]
    assert application.admin.refresher.failures == {}
    assert application.provider("fake").offered == 0


@pytest.mark.requirement("S1-50")
async def test_every_category_is_written_down_and_an_edit_that_is_dropped_gives_way_to_what_was_shipped(
    operated: Operated,
) -> None:
    admin, kept = operated.admin, operated.kept
    await admin.set_category(Category(name="files", display_name="Paper"))
    await admin.write_catalog()
    assert "files" not in kept.shipped
    assert {"code_analysis", "databases", "misc"} <= kept.shipped.keys()
    await admin.drop_category("files")
    assert kept.shipped["files"].display_name == "Files & Documents"


@dataclass
class RefusingStore(MemoryDefinitions):
    """A store that cannot be written."""

    is_away: bool = True

    def save(self, offering: Offering, fingerprint: str) -> None:
        if self.is_away:
            raise StoreError("it is away")
        super().save(offering, fingerprint)


async def test_definitions_that_the_store_could_not_take_are_not_replaced_by_older_ones_and_are_kept_later() -> None:
    store = RefusingStore(is_away=False)
    application = make_test_app({"fake": [definition("old")]}, storage=Storage(definitions=store))
    mark = application.provider("fake").fingerprint
    store.save(Offering(server="fake", tools=(definition("old"),)), mark)
    store.is_away = True
    application.provider("fake").tools[:] = [definition("new")]
    await application.admin.refresh()
    await application.admin.reload({"offerings"})
    assert [tool.handle for tool in application.gateway.snapshot.tools.values()] == ["fake.new"]
    store.is_away = False
    await application.admin.write_catalog()
    assert store.load({"fake": mark})["fake"].tools == (definition("new"),)


@dataclass
class SlowStore(MemoryDefinitions):
    """A store that reads what it holds, and then takes its time to give it."""

    reading: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        found = MemoryDefinitions.load(self, servers)
        self.reading.set()
        assert self.go_on.wait(5)
        return found


async def test_a_servers_own_answer_is_newer_than_what_was_being_read() -> None:
    store = SlowStore()
    application = make_test_app({"fake": [definition("first")]}, storage=Storage(definitions=store))
    store.save(Offering(server="fake", tools=(definition("stale"),)), application.provider("fake").fingerprint)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(application.admin.reload, {"offerings"})
            await anyio.to_thread.run_sync(store.reading.wait, 5)
            application.provider("fake").tools = [definition("fresh")]
            await application.admin.refresh({"fake"})
            store.go_on.set()
    assert [tool.handle for tool in application.gateway.snapshot.tools.values()] == ["fake.fresh"]


async def test_a_checkup_says_how_the_store_is_doing(operated: Operated) -> None:
    admin, kept = operated.admin, operated.kept
    kept.summed = Report(days=1, losses=Losses(dropped=3, lost=1))
    found = await admin.checkup()
    assert (found.store, found.journal, found.problem) == ("postgresql://db/portico", "durable", "")
    assert (found.losses.dropped, found.losses.lost) == (3, 1)
    operated.told.trouble = "not in the journal yet: the disk is full"
    assert (await admin.checkup()).problem == operated.told.trouble
    kept.away = "the database does not answer"
    assert (await admin.checkup()).problem == "the database does not answer"
    assert (await make_test_app({}).admin.checkup()).problem == ""
