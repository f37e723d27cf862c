"""What an agent can do: search, describe, call, and read what servers offer beside tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any
from urllib.parse import unquote

from portico.catalog.categories import SHIPPED, FirstCalls, Order, Standings
from portico.catalog.publisher import Publisher
from portico.catalog.refresher import Refresher
from portico.domain.call import Call, Caller, Result
from portico.domain.disclosure import Budget, Disclosure, Findings, Hit, Level, Query
from portico.domain.foreign_text import one_line
from portico.domain.items import GUIDE, Item, ItemKind, Items
from portico.domain.journal import Look, Lookup
from portico.domain.learned_schema import returns_line
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Tool, ToolId, identifier
from portico.errors import CallError, UnknownFilter, UnknownTool
from portico.execution.executor import Executor
from portico.protocols import MeaningSource, Policy, TokenCounter
from portico.rendering.budget import ListingCosts, Variants, fit
from portico.rendering.cache import AnswerCache, PerSnapshot
from portico.rendering.cards import Spell, as_meta_tool, variants_of
from portico.rendering.catalog_map import (
    LONGEST_PAGE,
    HitList,
    map_answer,
    map_lines,
    nothing_answer,
    nothing_lines,
    ways_on,
    worded,
)
from portico.rendering.json_forms import short_name
from portico.results.paging import ReadRequest, ResultReader
from portico.search.filters import Facets, Filters
from portico.search.index import settle
from portico.search.items import NAMED, PARAMETERS, SHOWN, ItemSearch, entry_card, entry_lines, worth_naming

SEARCH_CARDS_LIMIT = LONGEST_PAGE
NEAREST = 3
"""How many tools are named where none fits."""
NEAR_LENGTH = 100
"""Characters of a query that are compared with names."""
HOT_LISTED = 10
"""Tools that are named before any question is asked."""
HOT_SECONDS = 3_600
"""How long they stay the same where neither the catalog nor the tiers change."""


@dataclass(slots=True, kw_only=True)
class Finder:
    """Answers in tools: what is listed, hot, pinned or found, always within what the caller may see."""

    publisher: Publisher
    refresher: Refresher
    policy: Policy
    executor: Executor
    standings: Standings = field(default_factory=Standings)
    first_calls: FirstCalls = field(default_factory=FirstCalls)
    filters: Filters = field(default_factory=Filters)
    pins: tuple[str, ...] = ()
    search_limit: int = 5
    _hot: PerSnapshot[list[Tool]] = field(default_factory=PerSnapshot)

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot of the catalog."""
        return self.publisher.current.snapshot

    def listing(self, caller: Caller) -> list[Tool]:
        """Every permitted tool, in a fixed order."""
        snapshot = self.snapshot
        visible = self.policy.visible(caller, snapshot)
        return [tool for id, tool in snapshot.tools.items() if id in visible]

    def pinned(self, caller: Caller) -> list[Tool]:
        """The tools that are always listed; a pin that means nothing to this caller is left out."""
        snapshot = self.snapshot
        return self.pins_within(snapshot, self.policy.visible(caller, snapshot))

    def pins_within(self, snapshot: CatalogSnapshot, visible: Set[ToolId]) -> list[Tool]:
        """The same for tools of one snapshot."""
        found: dict[ToolId, Tool] = {}
        for spelling in self.pins:
            with suppress(CallError):
                tool = snapshot.resolver.resolve(spelling, visible)
                found[tool.id] = tool  # two spellings may mean one tool, which is listed once
        return list(found.values())

    @property
    def named_categories(self) -> tuple[str, ...]:
        """The categories that the config names."""
        rule = self.publisher.rule
        return (*rule.explicit.values(), *rule.servers.values())

    def hot(self, caller: Caller, limit: int = HOT_LISTED) -> list[Tool]:
        """The pins, then the tools that stand best; a new snapshot, an update of tiers or a first call ranks anew."""
        snapshot, now = self.snapshot, time()
        usage = self.executor.journal.usage()
        visible = frozenset(self.policy.visible(caller, snapshot))

        def ranked() -> list[Tool]:
            order = Order(tiers=self.standings.tiers, usage=usage, now=now)
            tools = (tool for id, tool in snapshot.tools.items() if id in visible)
            return order.hottest(tools, self.pins_within(snapshot, visible), list(self.publisher.aliases), limit)

        key = (visible, self.standings.revision, self.first_calls.noticed(usage), limit, now // HOT_SECONDS)
        return list(self._hot.get(snapshot, key, ranked))

    def hits(self, caller: Caller, query: Query, limit: int = SEARCH_CARDS_LIMIT) -> Findings:
        """The hits of a query, all pages of it up to the cap unless told, and whether they answer it.

        Without words, the tools that pass the filters are the hits, those first that stand best.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        published = self.publisher.current
        within = self._within(caller, published.snapshot, query)
        if query.text.strip():
            return published.index.query(query.text, within=within, limit=limit)
        found = [tool for id, tool in published.snapshot.tools.items() if id in within] if query.filters else []
        # As written down at the last update, and not by the last call: that would move tools between two pages.
        order = Order(tiers=self.standings.tiers, usage={}, now=0.0)
        found.sort(key=lambda tool: -order.score(tool.id))
        return Findings(hits=tuple(Hit(tool=tool, score=0.0) for tool in found), fits=bool(found))

    def best(self, caller: Caller, query: Query) -> Findings:
        """The hits of the first page, in the order in which it shows them.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        size = min(query.limit or self.search_limit, SEARCH_CARDS_LIMIT)
        found = self.hits(caller, query, size)
        return replace(found, hits=tuple(settle(found.hits[:size], self.executor.journal.usage())))

    def nearest(self, caller: Caller, query: Query, limit: int = NEAREST) -> list[Hit]:
        """The tools that come nearest to a query, whether they answer it or not; alike in name where no word is known.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        return self._nearest(caller, query, self.hits(caller, query), limit)

    def find(self, caller: Caller, spelling: str) -> Tool | None:
        """The permitted tool of a spelling, or None when there is no such tool."""
        snapshot = self.snapshot
        try:
            return snapshot.resolver.resolve(spelling, self.policy.visible(caller, snapshot))
        except CallError:
            return None

    def parameters_of(self, caller: Caller, spelling: str) -> Mapping[str, Any] | None:
        """The parameters of a permitted tool, or None when there is no such tool."""
        tool = self.find(caller, spelling)
        return tool.properties if tool else None

    def unavailable(self) -> dict[str, str]:
        """Servers of which nothing is known because they could not be asked, with the reason."""
        known = self.snapshot.servers
        return {name: reason for name, reason in sorted(self.refresher.failures.items()) if name not in known}

    def _nearest(self, caller: Caller, query: Query, found: Findings, limit: int) -> list[Hit]:
        if found.hits or not query.text.strip():
            return list(found.hits[:limit])
        snapshot = self.snapshot
        alike = snapshot.resolver.near(query.text[:NEAR_LENGTH], self._within(caller, snapshot, query), limit=limit)
        return [Hit(tool=tool, score=0.0) for tool in alike]

    def within(self, snapshot: CatalogSnapshot, visible: frozenset[ToolId], query: Query) -> frozenset[ToolId]:
        """The visible tools of a snapshot that pass the filters of a query.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        try:
            return self.filters.narrow(snapshot, visible, query, self.executor.journal.usage())
        except UnknownFilter as error:
            wanted = identifier(query.server).casefold()
            for name, reason in self.unavailable().items():
                if wanted == identifier(name).casefold():
                    error.add(f"the server {name!r} is not available: {reason}")
            raise

    def _within(self, caller: Caller, snapshot: CatalogSnapshot, query: Query) -> frozenset[ToolId]:
        return self.within(snapshot, frozenset(self.policy.visible(caller, snapshot)), query)

    def _exact(self, caller: Caller, snapshot: CatalogSnapshot, query: Query) -> Tool | None:
        """The tool that the whole query names, if it is one word that looks like a name."""
        if not may_be_name(query.text):
            return None
        try:
            return snapshot.resolver.resolve(query.text.strip(), self._within(caller, snapshot, query))
        except CallError:
            return None

    def _facets(self, caller: Caller, snapshot: CatalogSnapshot) -> Facets:
        return self.filters.facets(snapshot, frozenset(self.policy.visible(caller, snapshot)))


def may_be_name(text: str) -> bool:
    """Whether a query is one word that looks like a name."""
    text = text.strip()
    return text.split(maxsplit=1) == [text] and any(mark in text for mark in "._:/-")


DESCRIBE_LIMIT = 8
DESCRIBE_TOKENS = 6_000
EXACT_TOKENS = 2_000
"""What the full card of a tool that a search names may cost when the caller does not say."""
TEXT_KEPT = 200
"""Characters of a query that the journal keeps."""
FIRST_OFFER_SECONDS = 30.0
"""How long a first listing waits for servers that were never asked before."""
PIN_SECONDS = 10.0
"""How long one of meta-tools and pins does."""


@dataclass(slots=True, kw_only=True)
class Gateway(Finder):
    """The door for agents: each question is answered within what the caller may see."""

    item_search: ItemSearch
    counter: TokenCounter
    reader: ResultReader
    """What answers questions about results that were shortened."""
    meanings: MeaningSource | None = None
    """What queries mean to an embedder, where there is one."""
    costs: ListingCosts
    answers: AnswerCache = field(default_factory=AnswerCache)
    """The one cache of answers."""
    search_tokens: int = 800

    @property
    def items(self) -> Items:
        """The prompts, resources and templates that the profile offers, sorted out once per snapshot."""
        return self.item_search.items(self.snapshot)

    def guide(self, caller: Caller, uri: str) -> Item | None:
        """What a server says of itself, for whoever sees something of that server."""
        snapshot = self.snapshot
        known = f"{GUIDE}{identifier(unquote(uri.removeprefix(GUIDE)))}"
        found = self.item_search.find(snapshot, known, self._servers(caller, snapshot))
        return found if found is not None and found.kind is ItemKind.DOCUMENT else None

    def asset(self, caller: Caller, spelling: str) -> Item | None:
        """The prompt, resource or document that is spelled so."""
        snapshot = self.snapshot
        return self.item_search.find(snapshot, spelling.strip(), self._servers(caller, snapshot))

    def assets(self, caller: Caller, query: Query) -> list[Item]:
        """The prompts, resources and documents that answer a query."""
        snapshot = self.snapshot
        return worth_naming(self.item_search.search(snapshot, query, self._servers(caller, snapshot), SHOWN), 0.0)

    async def wait_until_ready(self, seconds: float = FIRST_OFFER_SECONDS) -> set[str]:
        """Wait for servers that are being asked for the first time; returns those that are not done yet."""
        return await self.refresher.wait_until_ready(seconds)

    async def pins_known(self) -> None:
        """Wait for servers that are being asked for the first time while a pin has no tool: clients list once."""
        if self.refresher.is_starting and not self._has_all_pins():
            await self.refresher.wait_until_ready(PIN_SECONDS)

    def _has_all_pins(self) -> bool:
        snapshot = self.snapshot
        try:
            for spelling in self.pins:
                snapshot.resolver.resolve(spelling, snapshot.tools.keys())
        except CallError:
            return False
        return True

    async def warm(self, text: str) -> None:
        """Let the embedder read a query that is about to be searched for; waits for a moment, and never fails.

        A search itself waits for nobody: it uses what has been read. A name needs no reading.
        """
        if self.meanings is not None and not may_be_name(text):
            await self.meanings.warm(text)

    def search(
        self, caller: Caller, query: Query, budget: Budget | None = None, spell: Spell = as_meta_tool
    ) -> Disclosure:
        """Ranked one-line signatures; an exact name gives the full card; no words give the map.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        started = perf_counter()
        answer = self._search(caller, query, budget, spell)
        look = Look.SEARCH if query.text.strip() else Look.BROWSE
        self.record_lookup(caller, look, worded(query), answer, since=started)
        return answer

    def _search(self, caller: Caller, query: Query, budget: Budget | None, spell: Spell) -> Disclosure:
        exact_tokens = budget.tokens if budget else max(self.search_tokens, EXACT_TOKENS)
        budget = budget or Budget(tokens=self.search_tokens, cards=query.limit or self.search_limit)
        snapshot = self.snapshot
        if not query.text.strip() and not query.filters:
            return self._map(caller, snapshot, budget, spell)
        exact = self._exact(caller, snapshot, query)
        if exact is not None:
            self._tell(caller, query, Findings(hits=(Hit(tool=exact, score=1.0),), fits=True))
            self.executor.search_rank.showed(caller, [exact.id])
            return fit([self._rungs(exact, Level.FULL, spell)], tokens=exact_tokens, counter=self.counter)
        item = self.item_search.find(snapshot, query.text.strip(), self._servers(caller, snapshot))
        if item is not None:
            return fit([entry_card(item, spell)], tokens=exact_tokens, counter=self.counter)
        found = self.hits(caller, query)
        beside = self._beside(caller, snapshot, query, found)
        if not found.fits and beside:
            return fit([entry_card(item, spell) for item in beside], tokens=budget.tokens, counter=self.counter)
        if not found.fits:
            nearest = self._nearest(caller, query, found, NEAREST)
            self._tell(caller, query, Findings(hits=tuple(nearest), fits=False))
            self.executor.search_rank.showed(caller, [hit.tool.id for hit in nearest])
            return self._nothing(caller, snapshot, query, nearest, budget, spell)
        self._tell(caller, query, found)
        listed = HitList(
            query=query,
            hits=found.hits,
            usage=self.executor.journal.usage(),
            counter=self.counter,
            spell=spell,
            beside=entry_lines(beside, spell),
        )
        return self._page(caller, listed, budget)

    def _beside(self, caller: Caller, snapshot: CatalogSnapshot, query: Query, found: Findings) -> list[Item]:
        """The prompts, resources and documents that answer a query as well as the tools do, or instead of them."""
        servers = self._servers(caller, snapshot)
        if not found.fits:
            return worth_naming(self.item_search.search(snapshot, query, servers, SHOWN), 0.0)
        return worth_naming(self.item_search.search(snapshot, query, servers, NAMED), found.hits[0].score)

    def _servers(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[str]:
        return self._facets(caller, snapshot).servers.keys()

    def _tell(self, caller: Caller, query: Query, findings: Findings) -> None:
        if self.executor.hooks is not None and query.text.strip():  # to browse is no search
            self.executor.hooks.searched(caller, query.text, findings)

    def describe(
        self,
        caller: Caller,
        names: Sequence[str],
        tokens: int = DESCRIBE_TOKENS,
        spell: Spell = as_meta_tool,
        *,
        level: Level = Level.FULL,
    ) -> Disclosure:
        """Cards of up to eight tools, full ones unless told; names that are not known are answered in place.

        Raises:
            CallError: none of the names is known.
        """
        started = perf_counter()
        snapshot = self.snapshot
        visible = self.policy.visible(caller, snapshot)
        cards: list[Variants] = []
        errors: list[CallError] = []
        wanted = [*dict.fromkeys(names)]
        for name in wanted[:DESCRIBE_LIMIT]:
            try:
                cards.append(self._rungs(snapshot.resolver.resolve(name, visible), level, spell))
            except CallError as error:
                item = self.item_search.find(snapshot, name, self._servers(caller, snapshot))
                if item is not None:
                    cards.append(entry_card(item, spell))
                    continue
                self._explain(error)
                errors.append(error)
                cards.append(_in_place(name, error))
        if errors and len(errors) == len(cards):
            raise errors[0]
        dropped = len(wanted) - DESCRIBE_LIMIT
        tail = f"({dropped} more names left out: at most {DESCRIBE_LIMIT} a call)" if dropped > 0 else ""
        total = len(wanted)
        answer = fit(cards, tokens=tokens, counter=self.counter, tail=tail, total=total, separator="\n\n")
        self.record_lookup(caller, Look.DESCRIBE, " ".join(wanted[:DESCRIBE_LIMIT]), answer, since=started)
        return answer

    def listed(self, caller: Caller, definitions: Sequence[Mapping[str, Any]]) -> None:
        """Write to the journal that a client was given a list, and what listing every tool would have cost it."""
        snapshot = self.snapshot
        visible = frozenset(self.policy.visible(caller, snapshot))
        key = (caller.surface, visible, len(definitions))
        tokens = self.costs.tokens(snapshot, key, lambda: definitions)
        instead = self.costs.tokens(snapshot, visible, lambda: [tool.definition for tool in self.listing(caller)])
        answer = Disclosure(text="", tokens=tokens, shown=len(definitions), total=len(visible))
        self.record_lookup(caller, Look.LIST, "", answer, instead=instead)

    def record_lookup(
        self, caller: Caller, look: Look, text: str, answer: Disclosure, *, since: float = 0.0, instead: int = 0
    ) -> None:
        """Write to the journal that a caller has looked at tools; `since` is when that began, by `perf_counter`."""
        seconds = perf_counter() - since if since else 0.0
        self.executor.record(
            Lookup(
                look=look,
                caller=caller.name,
                surface=caller.surface,
                at=time() - seconds,
                seconds=seconds,
                text=text[:TEXT_KEPT],
                shown=answer.shown,
                found=answer.total,
                fits=answer.fits,
                tokens=answer.tokens,
                instead=instead,
            )
        )

    async def call(self, caller: Caller, call: Call) -> Result:
        """Run one tool through the one executor.

        Raises:
            CallError: the call did not reach a result.
        """
        if self.refresher.is_starting and self.parameters_of(caller, call.tool) is None:
            await self.wait_until_ready()
        try:
            if call.tool in PARAMETERS:
                return await self._read(caller, call)
            return await self.executor.run(caller, call, self.snapshot)
        except UnknownTool as error:
            self._explain(error)
            raise

    async def _read(self, caller: Caller, call: Call) -> Result:
        """A prompt or resource as the result of a call; the journal knows it as a look."""
        snapshot, started = self.snapshot, perf_counter()
        result = await self.fitted(
            caller, call, await self.item_search.read(snapshot, call, self._servers(caller, snapshot))
        )
        answer = Disclosure(text="", tokens=self.counter.count(result.text), shown=1, total=1)
        self.record_lookup(caller, Look.DESCRIBE, str(call.arguments), answer, since=started)
        return result

    def parameters_of(self, caller: Caller, spelling: str) -> Mapping[str, Any] | None:
        """The parameters of a permitted tool or of a call that reads, or None when there is no such tool."""
        return PARAMETERS.get(spelling) or Finder.parameters_of(self, caller, spelling)

    async def read_result(
        self, caller: Caller, id: str, cursor: str = "", grep: str = "", path: str = ""
    ) -> Disclosure:
        """The next part of a result that was shortened, in `text`; `next` says what it is, and the way on.

        `grep` gives what has a word or pattern in it, `path` what a JMESPath expression selects.

        Raises:
            UnknownResult: nothing is kept under this handle for this caller, or no longer.
            InvalidArguments: the cursor, the pattern or the path cannot be used.
        """
        started = perf_counter()
        reading = ReadRequest(id=id, cursor=cursor, grep=grep, path=path)
        answer = await self.reader.read(caller, reading)
        self.record_lookup(caller, Look.READ, reading.words, answer, since=started)
        return answer

    async def fitted(self, caller: Caller, call: Call, result: Result) -> Result:
        """A result that comes from no tool, as its caller gets it: itself, or shortened and kept."""
        return await self.reader.truncator.shaped(caller, call, None, result)

    def shape_of(self, tool: Tool) -> Mapping[str, Any] | None:
        """What the results of a tool have looked like, as a JSON schema without values, where that is known."""
        learned = self.executor.shapes.known(tool)
        return learned.shape if learned else None

    def results_learned(self, tool: Tool) -> int:
        """From how many results of a tool it is known what they look like."""
        learned = self.executor.shapes.known(tool)
        return learned.results if learned else 0

    def spelled(self, id: ToolId) -> str:
        """A tool as `server::tool`, with the server's alias where it has one; also a tool that is gone."""
        server = self.snapshot.servers.get(id.server)
        return f"{short_name(server, self.publisher.aliases)}::{id.name}" if server else str(id)

    async def pass_on(self, item: Item, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass a prompt or resource request on to the server that it belongs to.

        Raises:
            CallError: the server could not answer it.
        """
        return await self.executor.provider_of(item.server).request(method, params)

    def _rungs(self, tool: Tool, level: Level, spell: Spell) -> Variants:
        """A card from one level down; a full one also says what the tool has returned and how it has done so far."""
        card = variants_of(tool, level, spell)
        if level is not Level.FULL:
            return card
        usage, learned = self.executor.journal.usage().get(tool.id), self.executor.shapes.known(tool)
        more = [f"performance: {usage}"] if usage is not None else []
        if learned is not None and tool.output_schema is None:
            more.insert(0, returns_line(learned))
        (_, text), *shorter = card.texts
        return replace(card, texts=((level, "\n".join([text, *more])), *shorter)) if more else card

    def _explain(self, error: CallError) -> None:
        """Say so when a tool is not known because its server did not start."""
        wanted = identifier(error.subject).casefold()
        for name, reason in self.unavailable().items():
            if wanted.startswith(identifier(name).casefold()):
                error.add(f"the server {name!r} is not available: {reason}")

    def _page(self, caller: Caller, listed: HitList, budget: Budget) -> Disclosure:
        page = listed.page(budget)
        if listed.query.text.strip():  # to browse is no search
            self.executor.search_rank.showed(caller, [hit.tool.id for hit in page.hits], page.start + 1)
        return page.disclosure

    def _map(self, caller: Caller, snapshot: CatalogSnapshot, budget: Budget, spell: Spell) -> Disclosure:
        """The hot list, and the map of categories and servers: T0 and T1 on one page."""
        hot = [variants_of(tool, Level.PARAMETERS) for tool in self.hot(caller)]
        ways = ways_on(self._facets(caller, snapshot), spell)
        return map_answer(hot, ways, self._map_lines(caller, snapshot), budget.tokens, self.counter)

    def _map_lines(self, caller: Caller, snapshot: CatalogSnapshot) -> list[str]:
        known = self.standings.known(SHIPPED, self.named_categories)
        return map_lines(snapshot, self._facets(caller, snapshot), known, self.unavailable())

    def _nothing(
        self,
        caller: Caller,
        snapshot: CatalogSnapshot,
        query: Query,
        nearest: Sequence[Hit],
        budget: Budget,
        spell: Spell,
    ) -> Disclosure:
        """What is said instead of a handful of wrong tools."""
        nothing = nothing_lines(query, [hit.handle for hit in nearest], spell)
        return nothing_answer([*nothing, *self._map_lines(caller, snapshot)], budget.tokens, self.counter)


def _in_place(name: str, error: CallError) -> Variants:
    """What stands where a card was asked for: the error with what may help, or the error alone."""
    head = f"## {one_line(error.subject)}: {error.code}"
    whole = "\n".join([head, *error.lines[1:]])
    return Variants(handle=name, texts=((Level.NAME, whole), (Level.NAME, head)))
