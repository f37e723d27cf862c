"""What an operator can do: see and refresh servers, tiers, categories and usage, and read the token bill."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from time import time
from typing import Any

import anyio
import orjson
from anyio.to_thread import run_sync as in_thread

from portico.catalog.categories_and_order import NAMING, SHIPPED, Order, Standings, is_category_name, unwritten
from portico.catalog.publisher import Refresher
from portico.catalog.sections import AppliedOverrides
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogView, CatalogViews
from portico.domain.call import Caller
from portico.domain.journal_entries import CallQuery, Entry, EventQuery, Losses, RecordedCall, RecordedEvent, Report
from portico.domain.server import Health, Server, State
from portico.domain.tool import Category, OverriddenTool, Rejected, Tool, ToolId
from portico.domain.usage_and_tiers import DAY_SECONDS, Standing, Tier, Usage, standing_of
from portico.errors import CallError, ConfigError, StoreError, UnknownServer, UnknownTool
from portico.protocols import Provider, TokenCounter
from portico.rendering.cache import AnswerCache
from portico.storage.change_feed import ChangeFeed
from portico.storage.storage import Storage

OPERATOR = Caller(name="operator", surface="admin")
FIRST_OFFER_SECONDS = 30.0
"""How long an update waits for servers that were never asked before: their tools belong to it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """One server as an operator sees it."""

    name: str
    health: Health
    source: str
    tools: tuple[Tool, ...] = ()
    """Those that an agent can see."""
    hidden: int = 0
    """How many the config's filter keeps out."""
    rejected: tuple[Rejected, ...] = ()
    server: Server | None = None
    target: str = ""
    """The command or URL, without secrets."""
    overrides: AppliedOverrides = field(default_factory=AppliedOverrides)
    """What holds of the config's overrides of its tools, and what is to be said of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """What one server's definitions cost in a context window."""

    server: str
    tools: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a client reads before its first question, without and with Portico."""

    lines: tuple[BillLine, ...]
    after: int
    counter: str

    @property
    def before(self) -> int:
        """Tokens of every definition together."""
        return sum(line.tokens for line in self.lines)

    @property
    def saved(self) -> float:
        """The part that is saved, from 0 to 1."""
        return 1 - self.after / self.before if self.before else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """One tool, how it stands, and what that follows from."""

    tool: Tool
    tier: Tier
    score: float
    usage: Usage = field(default_factory=Usage)
    is_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryOverview:
    """One shelf, how much stands on it, and who says what it is called."""

    category: Category
    tools: int = 0
    servers: int = 0
    origin: str = "tools"
    """`edited` by an operator, `shipped` with Portico, named in the `config`, or only by `tools`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """How the store and the journal are doing."""

    store: str
    journal: str
    problem: str = ""
    losses: Losses = field(default_factory=Losses)


@dataclass(slots=True, kw_only=True)
class Admin:
    """The door for operators."""

    refresher: Refresher
    counter: TokenCounter
    views: CatalogViews
    storage: Storage = field(default_factory=Storage)
    standings: Standings = field(default_factory=Standings)
    answers: AnswerCache = field(default_factory=AnswerCache)
    """The one cache of answers."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """What each server is, for people."""
    disabled: tuple[str, ...] = ()
    trouble: str = ""
    """Why the database does not answer, as far as a running gateway has noticed."""
    _updated: float = 0.0
    _announced: int = 0
    """How many answers of servers others were told of."""
    _untold: set[str] = field(default_factory=set)
    """What others could not be told of yet."""

    @property
    def providers(self) -> dict[str, Provider]:
        """The providers, by server."""
        return self.refresher.providers

    def configure(self, targets: Mapping[str, str], disabled: tuple[str, ...]) -> None:
        """Say this of the servers of the config from now on."""
        self.targets, self.disabled = targets, disabled

    def note_trouble(self, trouble: str) -> None:
        """Remember why the database does not answer; nothing when it does."""
        self.trouble = trouble

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
        visible = self._view().visible
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
            overrides=section.overrides if section is not None else AppliedOverrides(),
        )

    def original(self, spelling: str) -> Tool:
        """A tool as its server defines it, also one that an override shows otherwise or switches off.

        Raises:
            UnknownTool: nothing has that name.
            AmbiguousTool: several tools have it.
        """
        snapshot = self.snapshot
        try:
            found = snapshot.resolver.resolve(spelling, snapshot.tools.keys())
        except UnknownTool:
            off = [tool for section in snapshot.sections.values() for tool in section.switched_off]
            named = [tool for tool in off if spelling in (tool.handle, tool.listed, str(tool.id), tool.id.name)]
            if len(named) != 1:
                raise
            return named[0]
        return found.original if isinstance(found, OverriddenTool) else found

    async def refresh(
        self, servers: Set[str] | None = None, on_done: Callable[[str, CallError | None], None] | None = None
    ) -> None:
        """Ask servers for their definitions again, all of them unless some are named; also those that have failed."""
        for name, provider in self.providers.items():
            retry_now = getattr(provider, "retry_now", None)
            if retry_now is not None and (servers is None or name in servers):
                retry_now()
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
        await self.storage.journal.written()
        recorded = dict(self.storage.journal.usage())
        standings = await in_thread(self._score, self.snapshot, recorded, time())
        self.standings.replace_tiers(standings)
        await self._announce("tiers")
        logger.info("Updated tier scores for %d tools", len(standings))
        return len(standings)

    async def daily(self, now: float) -> bool:
        """Do what is due once a day, unless it was done or another process is at it; says whether it was done here.

        Raises:
            StoreError: the database cannot be read or written; the work is still due.
        """
        if self.storage.changes is not None:
            updated = await in_thread(self._once_a_day, self.storage.changes, "tiers", self.update_tiers, now)
            await in_thread(self._once_a_day, self.storage.changes, "prune", self._prune, now)
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
        if self.storage.tiers is not None:
            await in_thread(self.storage.tiers.keep_catalog, self.snapshot, self.standings.packaging)
        await self._write_shelves(self.standings.categories)
        await self._announce_offerings()

    def tier_lines(self) -> list[TierLine]:
        """Every tool that an agent can see and how it stands, the hot ones first."""
        order = Order(tiers=self.standings.tiers, usage=self.storage.journal.usage(), now=time())
        view = self._view()
        pinned, ranks = {tool.id for tool in view.pinned}, list(Tier)
        lines = []
        for tool in view.tools:
            standing, usage = order.standing(tool.id), order.usage.get(tool.id) or Usage()
            is_pinned = tool.id in pinned
            lines.append(
                TierLine(tool=tool, tier=standing.tier, score=standing.score, usage=usage, is_pinned=is_pinned)
            )
        return sorted(lines, key=lambda line: (ranks.index(line.tier), -line.score, line.tool.handle))

    async def usage_report(self, *, days: int = 7, limit: int = 10, caller: Caller = OPERATOR) -> Report:
        """The journal of the last days, summed up; without a database, what this process knows.

        Of the words that were learned from use, it tells those that count for everybody and those of the caller.

        Raises:
            StoreError: the database cannot be read.
        """
        await in_thread(self.storage.settle)
        await self.storage.journal.written()
        return await in_thread(partial(self.storage.report, days=days, limit=limit, caller=caller.name))

    async def forget_learned(self) -> int:
        """Forget the words that were learned from use, here and in other processes, and say how many there were.

        Raises:
            StoreError: the database cannot be written; nothing is forgotten.
        """
        await self.storage.journal.written()
        forgotten = await in_thread(self.storage.forget_learned)
        await self._announce("learned")
        return forgotten

    async def export_journal(self, since: float, write: Callable[[Entry], object]) -> int:
        """Hand every entry from a moment on to a writer, the oldest first, and say how many there were.

        Raises:
            StoreError: the database cannot be read.
        """
        await self.storage.journal.written()
        return await in_thread(lambda: sum(1 for _ in map(write, self.storage.entries(since))))

    async def calls(self, query: CallQuery) -> list[RecordedCall]:
        """Single calls out of the journal, the newest first; without a database, the last ones of this process.

        Raises:
            StoreError: the database cannot be read.
        """
        await self.storage.journal.written()
        return await in_thread(self.storage.calls, query)

    async def events(self, query: EventQuery) -> list[RecordedEvent]:
        """What happened to servers and gateways, the newest first; without a database, to those of this process.

        Raises:
            StoreError: the database cannot be read.
        """
        return await in_thread(self.storage.events.find, query)

    async def categories(self) -> list[CategoryOverview]:
        """Every category, in the order in which they are shown; also those on which nothing stands."""
        shelves: dict[str, list[ToolId]] = {}
        for tool in self._view().tools:
            shelves.setdefault(tool.category, []).append(tool.id)
        known = self.standings.known(SHIPPED, (*shelves, *self.refresher.publisher.rule.named))
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
        if self.storage.tiers is not None:
            await in_thread(self.storage.tiers.keep_categories, [category])
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
        if self.storage.tiers is not None:
            await in_thread(self.storage.tiers.drop_category, name)
        await self._write_shelves(written)
        await self._show_categories(written)
        return True

    async def reload(self, topics: Set[str]) -> None:
        """Take over what other processes have changed: `tiers`, `categories`, `offerings`, `learned` words.

        No server is started.

        Raises:
            StoreError: the database cannot be read; what was known stays.
        """
        tiers = self.storage.tiers
        if topics & {"tiers", "learned"}:
            await in_thread(self.storage.reread)
        if "tiers" in topics and tiers is not None:
            self.standings.replace_tiers(await in_thread(tiers.standings))
        if "categories" in topics and tiers is not None:
            self.standings.replace_categories(await in_thread(tiers.categories))
        if "offerings" in topics:
            await self.refresher.reload()

    def load_standings(self) -> None:
        """Read tiers and categories from the database; blocks.

        Raises:
            StoreError: it cannot be read.
        """
        if self.storage.tiers is not None:
            self.standings.replace_tiers(self.storage.tiers.standings())
            self.standings.replace_categories(self.storage.tiers.categories())

    async def checkup(self) -> Checkup:
        """Whether the database answers, how the journal is kept, and what it has lost."""
        found = Checkup(store=self.storage.name, journal=self.storage.journal_mode)
        try:
            trouble = await self.storage.journal.written()
            if self.storage.ledger is not None:
                await in_thread(self.storage.ledger.check)
            return replace(found, problem=trouble, losses=(await self.usage_report(days=1, limit=1)).losses)
        except StoreError as error:
            return replace(found, problem=str(error))

    def _score(self, snapshot: CatalogSnapshot, recorded: Mapping[ToolId, Usage], now: float) -> dict[ToolId, Standing]:
        """How the tools of a snapshot stand; blocks while the database is asked."""
        usage = self.storage.usage(recorded)
        standings = {id: standing_of(usage.get(id), now) for id in snapshot.tools}
        if self.storage.tiers is not None:
            self.storage.tiers.keep_catalog(snapshot, self.standings.packaging, standings)
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
        # One step: it runs on behalf of a thread, where a second wait after a cancellation would never end.
        await in_thread(self.storage.prune)

    async def _write_shelves(self, edited: Mapping[str, Category]) -> None:
        """Write the categories down that nobody has edited, so that whoever reads the database finds all of them."""
        if self.storage.tiers is not None:
            known = self.standings.known(
                SHIPPED, (*self.refresher.publisher.rule.named, *(tool.category for tool in self._view().tools))
            )
            others = [SHIPPED.get(name, unwritten(name)) for name in known if name not in edited]
            await in_thread(partial(self.storage.tiers.keep_categories, others, shipped=True))

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
        if self.storage.changes is not None:
            await in_thread(self.storage.changes.announce, topic)
        self._untold.discard(topic)

    def _view(self) -> CatalogView:
        published = self.refresher.publisher.current
        return self.views.view(OPERATOR, published.snapshot, published.index)

    def _origin(self, category: Category) -> str:
        shipped = SHIPPED.get(category.name)
        if category.name in self.standings.categories and category != shipped:
            return "edited"
        if shipped is not None:
            return "shipped"
        return "config" if category.name in self.refresher.publisher.rule.named else "tools"

    def _health(self, name: str) -> Health:
        health = self.providers[name].health()
        known = name in self.snapshot.servers
        reason = self.refresher.failures.get(name, "") or health.reason
        if health.state in (State.RUNNING, State.FAILED):
            return health
        if name in self.refresher.failures:
            return Health(state=State.FAILED, reason=reason, stderr=health.stderr)
        return Health(state=State.READY if known else State.UNKNOWN, reason=reason, stderr=health.stderr)
