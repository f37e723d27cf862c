"""What an agent can do: search, describe, call, and read what servers offer beside tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, time
from typing import Any

from portico.catalog.categories_and_order import SHIPPED, Order, Standings
from portico.catalog.naming import identifier
from portico.catalog.prompts_and_resources import Item, Items
from portico.catalog.publisher import Publisher, Refresher
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogView, CatalogViews
from portico.domain.call import Call, Caller, Result
from portico.domain.journal_entries import Look, Lookup
from portico.domain.search_answers import AnswerSize, Budget, Disclosure, Findings, Hit, Level, Query
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, UnknownFilter, UnknownTool
from portico.execution.executor import Executor
from portico.protocols import TokenCounter
from portico.rendering.budget import LONGEST_PAGE, Spell, Variants, definition_tokens, fit, fit_page
from portico.rendering.cache import AnswerCache
from portico.rendering.cards import as_meta_tool, hit_line, variants_of
from portico.rendering.map_and_misses import (
    doubt_line,
    map_answer,
    map_lines,
    nothing_answer,
    nothing_lines,
    server_lines,
    ways_on,
)
from portico.results.read_kept_result import ReadRequest, ResultReader
from portico.results.result_schema import returns_line
from portico.search.embeddings.cache import Meanings
from portico.search.groups_and_doubt import settle
from portico.search.item_search import NAMED, PARAMETERS, SHOWN, ItemSearch, entry_card, entry_lines, worth_naming
from portico.search.learned_words import TEXT_READ, strengths, with_learned
from portico.text.untrusted import one_line

SEARCH_CARDS_LIMIT = LONGEST_PAGE
NEAREST = 3  # tools that are named where none fits
NEAR_LENGTH = 100  # characters of a query that are compared with names
HOT_LISTED = 10  # tools that are named before any question is asked
HOT_SECONDS = 3_600  # how long these stay where neither the catalog nor the tiers change
DESCRIBE_LIMIT = 8
DESCRIBE_TOKENS = 6_000
EXACT_TOKENS = 2_000  # what the full card of a tool that a search names may cost unless the caller says
TEXT_KEPT = 200  # characters of a query that the journal keeps
FIRST_OFFER_SECONDS = 30.0  # how long a first listing waits for servers that were never asked before
QUIET_SECONDS = 5.0  # how long after the last of them that has answered, once anything is known
PIN_SECONDS = 10.0  # how long one of meta-tools and pins does

Asker = Caller | CatalogView
"""Who asks: a caller, or the view that was already made for its request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """The way in for agents: each question is answered within what the caller may see."""

    publisher: Publisher
    refresher: Refresher
    views: CatalogViews
    executor: Executor
    item_search: ItemSearch
    counter: TokenCounter
    reader: ResultReader
    """Answers questions about results that were shortened."""
    meanings: Meanings | None = None
    """What queries mean to an embedder, where there is one."""
    standings: Standings = field(default_factory=Standings)
    answers: AnswerCache = field(default_factory=AnswerCache)
    """The one cache of answers."""
    search_tokens: int = 800
    search_limit: int = 5
    learning: bool = True
    """Whether words that callers search with come to stand for the tools that they call then."""

    @property
    def snapshot(self) -> CatalogSnapshot:
        """The current snapshot of the catalog."""
        return self.publisher.current.snapshot

    def view(self, asker: Asker) -> CatalogView:
        """What a caller sees now; a view is passed on, so that one request has one."""
        if isinstance(asker, CatalogView):
            return asker
        published = self.publisher.current
        return self.views.view(asker, published.snapshot, published.index)

    @property
    def items(self) -> Items:
        """The prompts, resources and templates that the profile offers, sorted out once per snapshot."""
        return self.item_search.items(self.snapshot)

    def hot(self, asker: Asker, limit: int = HOT_LISTED) -> list[Tool]:
        """The pins, then the tools that stand best; a new snapshot, an update of tiers or a first call ranks anew."""
        view, now, usage = self.view(asker), time(), self.executor.journal.usage()

        def ranked() -> list[Tool]:
            order = Order(tiers=self.standings.tiers, usage=usage, now=now)
            return order.hottest(view.tools, view.pinned, list(self.publisher.aliases), limit)

        key = ("hot", self.standings.revision, self.standings.first_calls.noticed(usage), limit, now // HOT_SECONDS)
        return list(view.shared.keep(key, ranked))

    def narrow(self, view: CatalogView, query: Query) -> frozenset[ToolId]:
        """The visible tools that pass the filters of a query.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        try:
            return view.shared.narrow(query, self.executor.journal.usage())
        except UnknownFilter as error:
            wanted = identifier(query.server).casefold()
            for name, reason in self.unavailable().items():
                if wanted == identifier(name).casefold():
                    error.add(f"the server {name!r} is not available: {reason}")
            raise

    def hits(self, asker: Asker, query: Query, limit: int = SEARCH_CARDS_LIMIT) -> Findings:
        """The hits of a query, all pages of it up to the cap unless told, and whether they answer it; not recorded.

        Without words, the tools that pass the filters are the hits, those first that stand best.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        view = self.view(asker)
        within = self.narrow(view, query)
        if query.text.strip():
            findings = view.index.query(query.text, within=within, limit=limit)
            return self._with_learned(view, query, findings, within, limit)
        # As written down at the last update, and not by the last call: that would move tools between two pages.
        order = Order(tiers=self.standings.tiers, usage={}, now=0.0)
        found = [tool for tool in view.tools if tool.id in within] if query.filters else []
        found.sort(key=lambda tool: -order.score(tool.id))
        return Findings(hits=tuple(Hit(tool=tool, score=0.0) for tool in found), fits=bool(found))

    def _with_learned(
        self, view: CatalogView, query: Query, found: Findings, within: frozenset[ToolId], limit: int
    ) -> Findings:
        """The findings with what the words of the query have come to stand for, as far as this caller may know."""
        known = self.executor.journal.learned() if self.learning else None
        if known is None or not known.uses:
            return found
        learned = strengths(query.text, known, view.caller.name, within, time())
        return with_learned(found, learned, view.snapshot.tools, size=len(within), limit=limit) if learned else found

    def nearest(self, asker: Asker, query: Query, limit: int = NEAREST, *, found: Findings | None = None) -> list[Hit]:
        """The tools that come nearest to a query, whether they answer it or not; alike in name where no word is known.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        view = self.view(asker)
        hits = (found or self.hits(view, query)).hits
        if hits or not query.text.strip():
            return list(hits[:limit])
        text, within = query.text[:NEAR_LENGTH], self.narrow(view, query)
        return [Hit(tool=tool, score=0.0) for tool in view.snapshot.resolver.near(text, within, limit=limit)]

    def first_page(self, asker: Asker, query: Query) -> Findings:
        """The hits of the first page, in the order in which it shows them; not recorded."""
        size = min(query.limit or self.search_limit, SEARCH_CARDS_LIMIT)
        found = self.hits(asker, query, size)
        usage = self.executor.journal.usage()
        return replace(found, hits=tuple(settle(found.hits[:size], usage, found.learned)))

    def search_hits(self, asker: Asker, query: Query, *, nearest: bool = True) -> Findings:
        """A search for programs: the hits of the first page; without `nearest`, none where nothing fits.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        started, view = perf_counter(), self.view(asker)
        found = self.first_page(view, query)
        if not found.fits and not nearest:
            found = Findings(hits=(), fits=False)
        self.record_search(view, query, found, since=started)
        return found

    def parameters_of(self, asker: Asker, spelling: str) -> Mapping[str, Any] | None:
        """The parameters of a permitted tool or of a call that reads, or None when there is no such tool."""
        if spelling in PARAMETERS:
            return PARAMETERS[spelling]
        tool = self.view(asker).find(spelling)
        return tool.properties if tool else None

    def unavailable(self) -> dict[str, str]:
        """Servers of which nothing is known because they could not be asked, with the reason."""
        known = self.snapshot.servers
        return {name: reason for name, reason in sorted(self.refresher.failures.items()) if name not in known}

    def item(self, asker: Asker, spelling: str) -> Item | None:
        """The prompt, resource or document that is spelled so."""
        view = self.view(asker)
        return self.item_search.find(view.snapshot, spelling.strip(), view.facets.servers.keys())

    def items_for(self, asker: Asker, query: Query, limit: int = SHOWN, best: float = 0.0) -> list[Item]:
        """The prompts, resources and documents that answer a query about as well as the best tool does."""
        view = self.view(asker)
        return worth_naming(self.item_search.search(view.snapshot, query, view.facets.servers.keys(), limit), best)

    async def wait_until_ready(self, seconds: float = FIRST_OFFER_SECONDS) -> set[str]:
        """Wait for servers that are being asked for the first time; returns those that are not done yet.

        One that hangs is not waited for once others have answered.
        """
        if not self.refresher.pending:
            return set()
        return await self.refresher.wait_until_ready(seconds, quiet=QUIET_SECONDS)

    async def wait_for_tool(self, caller: Caller, spelling: str) -> CatalogView:
        """The view of a call; while servers are asked for the first time, wait for them if the tool is not known."""
        view = self.view(caller)
        if self.refresher.pending and self.refresher.is_starting and self.parameters_of(view, spelling) is None:
            await self.refresher.wait_until_ready(FIRST_OFFER_SECONDS)
            view = self.view(caller)
        return view

    async def wait_for_pins(self) -> None:
        """Wait for servers that are being asked for the first time while a pin has no tool: clients list once."""
        if self.refresher.is_starting:
            snapshot = self.snapshot
            try:
                for spelling in self.views.pins:
                    snapshot.resolver.resolve(spelling, snapshot.tools.keys())
            except CallError:
                await self.refresher.wait_until_ready(PIN_SECONDS)

    async def prefetch_embedding(self, text: str) -> None:
        """Let the embedder read a query that is about to be searched for; waits for a moment, and never fails.

        A search itself waits for nobody: it uses what has been read. A name needs no reading.
        """
        if self.meanings is not None and not may_be_name(text):
            await self.meanings.warm(text)

    def search(
        self, asker: Asker, query: Query, budget: Budget | None = None, spell: Spell = as_meta_tool
    ) -> Disclosure:
        """Ranked one-line signatures; an exact name gives the full card; no words give the map.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        started, view = perf_counter(), self.view(asker)
        room = budget or Budget(tokens=self.search_tokens, cards=query.limit or self.search_limit)
        if not query.text.strip() and not query.filters:
            # The hot list, and the map of categories and servers: T0 and T1 on one page.
            hot = [variants_of(tool, Level.PARAMETERS) for tool in self.hot(view)]
            lines = self._map_lines(view)
            answer = map_answer(hot, ways_on(view.facets, spell), lines, room.tokens, self.counter)
            self.record_lookup(view, Look.BROWSE, "", answer, since=started)
            return answer
        exact_tokens = budget.tokens if budget else max(self.search_tokens, EXACT_TOKENS)
        found = self._exact_card(view, query, exact_tokens, spell) or self._page(view, query, room, spell)
        self.record_search(
            view, query, found.findings, found.answer, shown=found.shown, place=found.place, since=started
        )
        return found.answer

    def _exact_card(self, view: CatalogView, query: Query, tokens: int, spell: Spell) -> _SearchAnswer | None:
        """The full card of what the whole query names, a tool or an item."""
        if may_be_name(query.text):
            tool = view.find(query.text.strip(), self.narrow(view, query))
            if tool is not None:
                card, hit = self._card(tool, Level.FULL, spell), Hit(tool=tool, score=1.0)
                return _SearchAnswer(self._fit([card], tokens), Findings(hits=(hit,), fits=True))
        item = self.item(view, query.text)
        return _SearchAnswer(self._fit([entry_card(item, spell)], tokens)) if item else None

    def _page(self, view: CatalogView, query: Query, budget: Budget, spell: Spell) -> _SearchAnswer:
        """A page of hits with the items beside them; where no tool fits, the items, or that nothing fits."""
        found = self.hits(view, query)
        if found.fits:
            beside = entry_lines(self.items_for(view, query, NAMED, found.hits[0].score), spell)
            if found.subject and not query.filters:
                beside = [*self._server_lines(view, found.subject, spell), *beside]
            usage = self.executor.journal.usage()
            answer, page, start = fit_page(
                query,
                found.hits,
                line=lambda hit: hit_line(hit, query, usage),
                budget=budget,
                usage=usage,
                learned=found.learned,
                counter=self.counter,
                spell=spell,
                head=doubt_line(found.unmatched) if found.weak else "",
                beside=beside,
            )
            return _SearchAnswer(answer, found, [hit.tool.id for hit in page], start + 1)
        if items := self.items_for(view, query):
            return _SearchAnswer(self._fit([entry_card(item, spell) for item in items], budget.tokens))
        nearest = self.nearest(view, query, found=found)
        handles = [hit.handle for hit in nearest]
        lines = [*nothing_lines(query, handles, spell, found.unmatched), *self._map_lines(view)]
        answer = nothing_answer(lines, budget.tokens, self.counter)
        return _SearchAnswer(answer, Findings(hits=tuple(nearest), fits=False))

    def _server_lines(self, view: CatalogView, server: str, spell: Spell) -> list[str]:
        """The tools of a server that a query is about."""
        tools = [tool for tool in view.tools if tool.id.server == server]
        return server_lines(view.snapshot.servers[server], tools, spell)

    def _fit(self, cards: Sequence[Variants], tokens: int) -> Disclosure:
        return fit(cards, tokens=tokens, counter=self.counter)

    def describe(
        self,
        asker: Asker,
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
        started, view, wanted = perf_counter(), self.view(asker), [*dict.fromkeys(names)]
        cards: list[Variants] = []
        errors: list[CallError] = []
        for name in wanted[:DESCRIBE_LIMIT]:
            try:
                cards.append(self._card(view.tool(name), level, spell))
            except CallError as error:
                if item := self.item(view, name):
                    cards.append(entry_card(item, spell))
                    continue
                self._explain(error)
                errors.append(error)
                cards.append(_in_place(name, error))
        if errors and len(errors) == len(cards):
            raise errors[0]
        dropped = len(wanted) - DESCRIBE_LIMIT
        tail = f"({dropped} more names left out: at most {DESCRIBE_LIMIT} a call)" if dropped > 0 else ""
        answer = fit(cards, tokens=tokens, counter=self.counter, tail=tail, total=len(wanted), separator="\n\n")
        self.record_lookup(view, Look.DESCRIBE, " ".join(wanted[:DESCRIBE_LIMIT]), answer, since=started)
        return answer

    def record_search(
        self,
        view: CatalogView,
        query: Query,
        found: Findings | None,
        answer: AnswerSize | None = None,
        *,
        shown: Sequence[ToolId] | None = None,
        place: int = 1,
        since: float,
    ) -> None:
        """Record that a caller has searched: for the hooks, for the ranks of later calls, and in the journal.

        `found` is None where the answer shows no tools; `shown` are those of it that were shown, all unless told, and
        the first of them stands at `place`. To browse by filters alone is no search.
        """
        is_search = bool(query.text.strip())
        if is_search and found is not None:
            if self.executor.hooks is not None:
                self.executor.hooks.after_search(view.caller, query.text, found)
            seen = [hit.tool.id for hit in found.hits] if shown is None else shown
            text = query.text if self.learning and len(query.text) <= TEXT_READ else ""
            needs = {hit.tool.id: hit.need for hit in found.hits if hit.need}
            self.executor.search_rank.remember(view.caller, seen, place, text, needs)
        if answer is None:
            count = len(found.hits) if found else 0
            answer = AnswerSize(shown=count, total=count, fits=bool(found and found.fits))
        self.record_lookup(view, Look.SEARCH if is_search else Look.BROWSE, query.in_words, answer, since=since)

    def record_listing(self, asker: Asker, definitions: Sequence[Mapping[str, Any]]) -> None:
        """Record that a client was given a list, and what listing every tool would have cost it."""
        view = self.view(asker)
        key = ("listing", view.caller.surface, len(definitions))
        tokens = view.shared.keep(key, lambda: definition_tokens(definitions, self.counter))
        every = view.shared.keep("listing", lambda: definition_tokens([t.definition for t in view.tools], self.counter))
        answer = AnswerSize(tokens=tokens, shown=len(definitions), total=len(view.visible))
        self.record_lookup(view, Look.LIST, "", answer, instead=every)

    def record_lookup(
        self, asker: Asker, look: Look, text: str, answer: AnswerSize, *, since: float = 0.0, instead: int = 0
    ) -> None:
        """Write to the journal that a caller has looked at tools; `since` is when that began, by `perf_counter`."""
        caller = asker.caller if isinstance(asker, CatalogView) else asker
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

    async def call(self, asker: Asker, call: Call) -> Result:
        """Run one tool through the one executor.

        Raises:
            CallError: the call did not reach a result.
        """
        view = await self.wait_for_tool(asker, call.tool) if isinstance(asker, Caller) else asker
        try:
            if call.tool in PARAMETERS:
                return await self._read_item(view, call)
            return await self.executor.run(view, call)
        except UnknownTool as error:
            self._explain(error)
            raise

    async def _read_item(self, view: CatalogView, call: Call) -> Result:
        """A prompt or resource as the result of a call; the journal knows it as a lookup."""
        started = perf_counter()
        read = await self.item_search.read(view.snapshot, call, view.facets.servers.keys(), view.caller)
        result = await self.truncate(view.caller, call, read)
        answer = AnswerSize(tokens=self.counter.count(result.text), shown=1, total=1)
        self.record_lookup(view, Look.DESCRIBE, str(call.arguments), answer, since=started)
        return result

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

    async def truncate(self, caller: Caller, call: Call, result: Result) -> Result:
        """A result that comes from no tool, as its caller gets it: itself, or shortened and kept."""
        return await self.reader.truncator.truncate(caller, call, None, result)

    def spell_id(self, id: ToolId) -> str:
        """A tool as `server::tool`, with the server's alias where it has one; also a tool that is gone."""
        server = self.snapshot.servers.get(id.server)
        return f"{server.short_name(self.publisher.aliases)}::{id.name}" if server else str(id)

    def client_at(self, server: str, client: str) -> str:
        """The client as a server knows it: nobody where the server has one session for all."""
        provider = self.executor.providers.get(server)
        return client if getattr(provider, "is_per_client", False) else ""

    def forget_client(self, client: str) -> None:
        """Let servers close what they have opened for a client that is gone."""
        for provider in list(self.executor.providers.values()):
            if getattr(provider, "is_per_client", False):
                provider.forget_client(client)  # type: ignore[attr-defined]

    async def forward(
        self, item: Item, method: str, params: Mapping[str, Any], caller: Caller | None = None
    ) -> Mapping[str, Any]:
        """Forward a prompt or resource request of a caller to the server that the item belongs to.

        Raises:
            CallError: the server could not answer it.
        """
        return await self.executor.provider_of(item.server).request(method, params, caller=caller)

    def _card(self, tool: Tool, level: Level, spell: Spell) -> Variants:
        """A card from one level down; a full one also says what the tool has returned and how its calls went."""
        card = variants_of(tool, level, spell)
        if level is not Level.FULL:
            return card
        usage, learned = self.executor.journal.usage().get(tool.id), self.executor.learned_schemas.known(tool)
        more = [f"performance: {usage}"] if usage is not None else []
        if learned is not None and tool.output_schema is None:
            more.insert(0, returns_line(learned))
        if not more:
            return card
        whole = (level, lambda: "\n".join([card.card(0).text, *more]))
        return Variants(handle=card.handle, texts=(whole, *card.texts[1:]))

    def _explain(self, error: CallError) -> None:
        """Say so when a tool is not known because its server did not start."""
        wanted = identifier(error.subject).casefold()
        for name, reason in self.unavailable().items():
            if wanted.startswith(identifier(name).casefold()):
                error.add(f"the server {name!r} is not available: {reason}")

    def _map_lines(self, view: CatalogView) -> list[str]:
        known = self.standings.known(SHIPPED, self.publisher.rule.named)
        return map_lines(view.snapshot, view.facets, known, self.unavailable())


@dataclass(frozen=True, slots=True)
class _SearchAnswer:
    """The answer to a search, and what it found and shows."""

    answer: Disclosure
    findings: Findings | None = None
    shown: Sequence[ToolId] | None = None
    place: int = 1


def may_be_name(text: str) -> bool:
    """Whether a query is one word that looks like a name."""
    text = text.strip()
    return text.split(maxsplit=1) == [text] and any(mark in text for mark in "._:/-")


def _in_place(name: str, error: CallError) -> Variants:
    """The text in place of a card: the error with what may help, or the error alone."""
    head = f"## {one_line(error.subject)}: {error.code}"
    whole = "\n".join([head, *error.lines[1:]])
    return Variants(handle=name, texts=((Level.NAME, whole), (Level.NAME, head)))
