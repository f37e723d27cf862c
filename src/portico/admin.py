"""What an operator can do: see and refresh servers, tiers, categories and usage, and read the token bill."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import Any

import anyio
import orjson

from portico.catalog.categories import SHIPPED, Order, Standings
from portico.catalog.refresher import Refresher
from portico.domain.call import Caller, Invocation
from portico.domain.journal import CallQuery, RecordedCall, Report
from portico.domain.overview import Bill as Bill
from portico.domain.overview import BillLine, CategoryOverview, Checkup, TierLine
from portico.domain.overview import ServerReport as ServerReport
from portico.domain.server import Health, State
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import NAMING, Category, Tool, ToolId, is_category_name, unwritten
from portico.domain.usage import DAY_SECONDS, Standing, Tier, Usage, standing_of, summed_up
from portico.errors import CallError, ConfigError, StoreError, UnknownServer
from portico.protocols import ChangeFeed, Journal, Ledger, Policy, Provider, TierRecords, TokenCounter
from portico.rendering.cache import AnswerCache

OPERATOR = Caller(name="operator", surface="admin")
FIRST_OFFER_SECONDS = 30.0
"""How long an update waits for servers that were never asked before: their tools belong to it."""

_RANKS = {tier: rank for rank, tier in enumerate(Tier)}

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Admin:
    """The door for operators."""

    refresher: Refresher
    providers: Mapping[str, Provider]
    counter: TokenCounter
    policy: Policy
    targets: Mapping[str, str]
    disabled: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    standings: Standings = field(default_factory=Standings)
    answers: AnswerCache = field(default_factory=AnswerCache)
    """The one cache of answers."""
    journal: Journal | None = None
    ledger: Ledger | None = None
    records: TierRecords | None = None
    signals: ChangeFeed | None = None
    """With no database behind them, tiers and categories last as long as the process."""
    settle: Callable[[], object] | None = None
    """Counts what processes lost that ended without notice; blocks."""
    reread: Callable[[], object] | None = None
    """Reads usage anew, in which other processes have a share; blocks."""
    store_name: str = "memory"
    """The store as it may be shown."""
    journal_mode: str = "memory"
    keep_days: int = 90
    trouble: str = ""
    """Why the database does not answer, as far as a running gateway has noticed."""
    _updated: float = 0.0
    _announced: int = 0
    """How many answers of servers others were told of."""
    _untold: set[str] = field(default_factory=set)
    """What others could not be told of yet."""

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot of the catalog."""
        return self.refresher.publisher.current.snapshot

    def reports(self) -> list[ServerReport]:
        """Every configured server, running or not, in the order of their names."""
        return [self.report(name) for name in sorted({*self.providers, *self.disabled})]

    def report(self, name: str) -> ServerReport:
        """One server: how it is doing, its tools, and what was refused.

        Raises:
            UnknownServer: no server of that name is configured.
        """
        if name in self.disabled:
            return ServerReport(
                name=name, health=Health(state=State.DISABLED), source="upstream", target=self.targets.get(name, "")
            )
        if name not in self.providers:
            raise UnknownServer(f"no server is called {name!r}; configured: {', '.join(self.providers) or 'none'}")
        snapshot = self.snapshot
        provider, section = self.providers[name], snapshot.sections.get(name)
        own = list(section.tools.values()) if section is not None else []
        visible = self.policy.visible(OPERATOR, snapshot)
        tools = tuple(tool for tool in own if tool.id in visible)
        return ServerReport(
            name=name,
            health=self._health(name),
            source=provider.source,
            tools=tools,
            hidden=len(own) - len(tools),
            rejected=section.rejected if section is not None else (),
            server=section.server if section is not None else None,
            target=self.targets.get(name, ""),
        )

    async def refresh(
        self, servers: set[str] | None = None, on_done: Callable[[str, CallError | None], None] | None = None
    ) -> None:
        """Ask servers for their definitions again, all of them unless some are named."""
        await self.refresher.refresh_all(servers if servers is not None else set(self.providers), on_done)
        await self._announce_offerings()

    def clear_cache(self) -> int:
        """Forget every answer that is kept, and say how many there were; the next caller's is made anew."""
        return self.answers.clear()

    def bill(self, after: int) -> Bill:
        """The token bill; `after` is what the surface in use costs."""
        lines = []
        for name, section in self.snapshot.sections.items():
            tools = section.tools.values()
            tokens = sum(self.counter.count(orjson.dumps(tool.definition).decode()) for tool in tools)
            lines.append(BillLine(server=name, tools=len(tools), tokens=tokens))
        return Bill(lines=tuple(lines), after=after, counter=self.counter.name)

    async def update_tiers(self) -> int:
        """Score every tool anew, write down how they stand, and say how many there are.

        Raises:
            StoreError: the database cannot be read or written; the tools stand as before.
        """
        await self.refresher.wait_until_ready(FIRST_OFFER_SECONDS)
        recorded: Mapping[ToolId, Usage] = {}
        if self.journal is not None:
            await self.journal.written()
            recorded = dict(self.journal.usage())
        standings = await anyio.to_thread.run_sync(self._scored, self.snapshot, recorded, time())
        self.standings.replace_tiers(standings)
        await self._announce("tiers")
        logger.info("Updated tier scores for %d tools", len(standings))
        return len(standings)

    async def daily(self, now: float) -> bool:
        """Do what is due once a day, unless it was done or another process is at it; says whether it was done here.

        Raises:
            StoreError: the database cannot be read or written; the work is still due.
        """
        if self.signals is not None:
            updated = await anyio.to_thread.run_sync(self._once_a_day, self.signals, "tiers", self.update_tiers, now)
            await anyio.to_thread.run_sync(self._once_a_day, self.signals, "prune", self._prune, now)
            return updated
        if now - self._updated < DAY_SECONDS:
            return False
        await self.update_tiers()
        self._updated = now
        return True

    async def catch_up(self) -> None:
        """Do what the database could not take when it was due: keep definitions, and tell other processes.

        Raises:
            StoreError: it still cannot.
        """
        await self.refresher.save_rest()
        for topic in sorted(self._untold):
            await self._tell(topic)

    async def write_catalog(self) -> None:
        """Write servers and tools down as they are now, and tell other processes of what was fetched here.

        Raises:
            StoreError: the database cannot be written.
        """
        await self.catch_up()
        if self.records is not None:
            await anyio.to_thread.run_sync(self.records.keep_catalog, self.snapshot, self.standings.packaging)
        await self._write_shelves(self.standings.categories)
        await self._announce_offerings()

    def tier_lines(self) -> list[TierLine]:
        """Every tool that an agent can see and how it stands, the hot ones first."""
        usage = self.journal.usage() if self.journal is not None else {}
        order = Order(tiers=self.standings.tiers, usage=usage, now=time())
        pinned = self._pinned()
        lines = [self._tier_line(tool, order, tool.id in pinned) for tool in self._tools()]
        return sorted(lines, key=lambda line: (_RANKS[line.tier], -line.score, line.tool.handle))

    async def usage_report(self, *, days: int = 7, limit: int = 10) -> Report:
        """The journal of the last days, summed up; without a database, what this process knows.

        Raises:
            StoreError: the database cannot be read.
        """
        if self.settle is not None:
            await anyio.to_thread.run_sync(self.settle)
        if self.journal is not None:
            await self.journal.written()
        if self.ledger is None:
            usage = dict(self.journal.usage()) if self.journal is not None else {}
            return summed_up(usage, days=days, limit=limit, now=time())
        return await anyio.to_thread.run_sync(lambda ledger: ledger.report(days=days, limit=limit), self.ledger)

    async def calls(self, query: CallQuery) -> list[RecordedCall]:
        """Single calls out of the journal, the newest first; without a database, the last ones of this process.

        Raises:
            StoreError: the database cannot be read.
        """
        if self.journal is not None:
            await self.journal.written()
        if self.ledger is None:
            return _remembered(self.journal, query)
        return await anyio.to_thread.run_sync(self.ledger.calls, query)

    async def categories(self) -> list[CategoryOverview]:
        """Every category, in the order in which they are shown; also those on which nothing stands."""
        shelves: dict[str, list[ToolId]] = {}
        for tool in self._tools():
            shelves.setdefault(tool.category, []).append(tool.id)
        known = self.standings.known(SHIPPED, (*shelves, *self._configured()))
        lines = [
            CategoryOverview(
                category=category,
                tools=len(shelves.get(name, ())),
                servers=len({id.server for id in shelves.get(name, ())}),
                origin=self._origin(category),
            )
            for name, category in known.items()
        ]
        return sorted(lines, key=lambda line: (line.category.order, line.category.name))

    async def set_category(self, category: Category) -> None:
        """Write down what a category is called, says, and where it stands.

        Raises:
            ConfigError: the name cannot be used.
            StoreError: the database cannot be read or written; nothing has changed.
        """
        if not is_category_name(category.name):
            raise ConfigError(f"{category.name!r} cannot be the name of a category", fix=NAMING)
        await self.reload({"categories"})
        if self.records is not None:
            await anyio.to_thread.run_sync(self.records.keep_categories, [category])
        await self._show_categories({**self.standings.categories, category.name: category})

    async def drop_category(self, name: str) -> bool:
        """Forget what an operator wrote of a category; says whether there was something.

        Raises:
            StoreError: the database cannot be read or written; nothing has changed.
        """
        await self.reload({"categories"})
        written = dict(self.standings.categories)
        if written.pop(name, None) in (None, SHIPPED.get(name)):
            return False
        if self.records is not None:
            await anyio.to_thread.run_sync(self.records.drop_category, name)
        await self._write_shelves(written)
        await self._show_categories(written)
        return True

    async def reload(self, topics: Set[str]) -> None:
        """Take over what other processes have changed: `tiers`, `categories`, `offerings`. No server is started.

        Raises:
            StoreError: the database cannot be read; what was known stays.
        """
        if self.reread is not None and "tiers" in topics:
            await anyio.to_thread.run_sync(self.reread)
        if self.records is not None and "tiers" in topics:
            self.standings.replace_tiers(await anyio.to_thread.run_sync(self.records.standings))
        if self.records is not None and "categories" in topics:
            self.standings.replace_categories(await anyio.to_thread.run_sync(self.records.categories))
        if "offerings" in topics:
            await self.refresher.reload()

    async def checkup(self) -> Checkup:
        """Whether the database answers, how the journal is kept, and what it has lost."""
        found = Checkup(store=self.store_name, journal=self.journal_mode)
        try:
            trouble = await self.journal.written() if self.journal is not None else ""
            if self.ledger is not None:
                await anyio.to_thread.run_sync(self.ledger.check)
            return replace(found, problem=trouble, losses=(await self.usage_report(days=1, limit=1)).losses)
        except StoreError as error:
            return replace(found, problem=str(error))

    def _scored(
        self, snapshot: CatalogSnapshot, recorded: Mapping[ToolId, Usage], now: float
    ) -> dict[ToolId, Standing]:
        """How the tools of a snapshot stand; blocks while the database is asked."""
        stored = self.ledger.usage() if self.ledger is not None else {}
        standings = {id: standing_of(_fuller(stored.get(id), recorded.get(id)), now) for id in snapshot.tools}
        if self.records is not None:
            self.records.keep_catalog(snapshot, self.standings.packaging, standings)
        return standings

    def _once_a_day(
        self, signals: ChangeFeed, job: str, work: Callable[[], Coroutine[Any, Any, Any]], now: float
    ) -> bool:
        """A daily job in a thread of its own: the lock is taken and given back by the same one."""
        if now - signals.last_run(job) < DAY_SECONDS:
            return False
        with signals.alone(job) as is_mine:
            # Another process may have done it between the question and the lock.
            if not is_mine or now - signals.last_run(job) < DAY_SECONDS:
                return False
            anyio.from_thread.run(work)
            signals.ran(job)
        return True

    async def _prune(self) -> None:
        if self.ledger is not None:
            await anyio.to_thread.run_sync(lambda ledger: ledger.prune(keep_days=self.keep_days), self.ledger)

    async def _write_shelves(self, edited: Mapping[str, Category]) -> None:
        """Write the categories down that nobody has edited, so that whoever reads the database finds all of them."""
        if self.records is not None:
            known = self.standings.known(SHIPPED, (*self._configured(), *(tool.category for tool in self._tools())))
            others = [SHIPPED.get(name, unwritten(name)) for name in known if name not in edited]
            await anyio.to_thread.run_sync(partial(self.records.keep_categories, others, shipped=True))

    async def _show_categories(self, categories: Mapping[str, Category]) -> None:
        self.standings.replace_categories(categories)
        await self._announce("categories")

    async def _announce_offerings(self) -> None:
        """Tell others when servers were asked here; what was taken over from them is no news to anybody."""
        answers, self._announced = self._announced, self.refresher.answers
        if self.refresher.answers != answers:
            await self._announce("offerings")

    async def _announce(self, topic: str) -> None:
        """Tell other processes; what is announced is already done, so that whoever cannot be told now is told later."""
        try:
            await self._tell(topic)
        except StoreError as error:
            self._untold.add(topic)
            logger.warning("other processes are told later that %s have changed: %s", topic, error)

    async def _tell(self, topic: str) -> None:
        if self.signals is not None:
            await anyio.to_thread.run_sync(self.signals.announce, topic)
        self._untold.discard(topic)

    def _tools(self) -> Iterator[Tool]:
        visible = self.policy.visible(OPERATOR, self.snapshot)
        return (tool for tool in self.snapshot.tools.values() if tool.id in visible)

    def _pinned(self) -> set[ToolId]:
        found = set()
        visible = self.policy.visible(OPERATOR, self.snapshot)
        for spelling in self.pins:
            with suppress(CallError):  # a pin that means nothing is left out
                found.add(self.snapshot.resolver.resolve(spelling, visible).id)
        return found

    def _tier_line(self, tool: Tool, order: Order, is_pinned: bool) -> TierLine:
        standing = order.standing(tool.id)
        usage = order.usage.get(tool.id) or Usage()
        return TierLine(tool=tool, tier=standing.tier, score=standing.score, usage=usage, is_pinned=is_pinned)

    def _configured(self) -> Set[str]:
        """The categories that the config names."""
        rule = self.refresher.publisher.rule
        return {*rule.explicit.values(), *rule.servers.values()}

    def _origin(self, category: Category) -> str:
        shipped = SHIPPED.get(category.name)
        if category.name in self.standings.categories and category != shipped:
            return "edited"
        if shipped is not None:
            return "shipped"
        return "config" if category.name in self._configured() else "tools"

    def _health(self, name: str) -> Health:
        health = self.providers[name].health()
        known = name in self.snapshot.servers
        reason = self.refresher.failures.get(name, "") or health.reason
        if health.state in (State.RUNNING, State.FAILED):
            return health
        if name in self.refresher.failures:
            return Health(state=State.FAILED, reason=reason, stderr=health.stderr)
        return Health(state=State.READY if known else State.UNKNOWN, reason=reason, stderr=health.stderr)


def _fuller(one: Usage | None, other: Usage | None) -> Usage | None:
    """Of two accounts of the same tool the one that knows of more calls: calls are only ever added."""
    if one is None or other is None:
        return one or other
    return one if one.calls >= other.calls else other


def _remembered(journal: Journal | None, query: CallQuery) -> list[RecordedCall]:
    """What a journal without a database still has of the last calls."""
    recent: Sequence[Invocation] = getattr(journal, "recent", ())
    known = [RecordedCall(number=number, entry=entry) for number, entry in enumerate(list(recent), start=1)]
    return [call for call in reversed(known) if query.passes(call)][: query.limit]
