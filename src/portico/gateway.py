"""What an agent can do: search, describe, call, and read what servers offer beside tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from portico.discovery.budgets import Rungs, fit
from portico.discovery.cards import full_rungs, summary_rungs
from portico.discovery.spelling import Spell, as_meta_tool
from portico.domain.call import Call, Result
from portico.domain.caller import Caller
from portico.domain.disclosure import Budget, Disclosure, Findings, Level
from portico.domain.edition import Edition
from portico.domain.items import Item
from portico.domain.names import identifier
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, NextCall, UnknownTool
from portico.execution.executor import Executor
from portico.intake.editions import Editions
from portico.intake.intake import Intake
from portico.ports import Policy, TokenCounter

DESCRIBE_LIMIT = 8
DESCRIBE_TOKENS = 6_000
SEARCH_CARDS_LIMIT = 50
REPEATED_LENGTH = 200
"""A query up to this length is repeated in the call for the next page."""
FIRST_OFFER_SECONDS = 30.0
"""How long a first listing waits for servers that were never asked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search: words, filters, and where the last page ended."""

    text: str = ""
    server: str = ""
    category: str = ""
    limit: int = 0
    """How many tools; 0 leaves it to the settings."""
    cursor: str = ""


@dataclass(slots=True, kw_only=True)
class Gateway:
    """The door for agents: each question is answered within what the caller may see."""

    editions: Editions
    intake: Intake
    policy: Policy
    executor: Executor
    counter: TokenCounter
    pins: tuple[str, ...] = ()
    search_tokens: int = 800
    search_limit: int = 5

    @property
    def edition(self) -> Edition:
        """The current edition of the catalog."""
        return self.editions.current.edition

    async def settled(self, seconds: float = FIRST_OFFER_SECONDS) -> set[str]:
        """Wait for servers that are being asked for the first time; returns those that are not done yet."""
        return await self.intake.settled(seconds)

    def listing(self, caller: Caller) -> list[Tool]:
        """Every permitted tool, in a fixed order."""
        edition = self.edition
        visible = self.policy.visible(caller, edition)
        return [tool for id, tool in edition.tools.items() if id in visible]

    def pinned(self, caller: Caller) -> list[Tool]:
        """The tools that are always listed; a pin that means nothing to this caller is left out."""
        edition = self.edition
        visible = self.policy.visible(caller, edition)
        found = []
        for spelling in self.pins:
            try:
                found.append(edition.resolver.resolve(spelling, visible))
            except CallError:
                continue
        return found

    def hits(self, caller: Caller, query: Query) -> Findings:
        """The ranked hits of a query, all pages of it up to the cap, and whether they answer it."""
        published = self.editions.current
        within = self._within(caller, published.edition, query)
        return published.index.query(query.text, within=within, limit=SEARCH_CARDS_LIMIT)

    def search(
        self, caller: Caller, query: Query, budget: Budget | None = None, spell: Spell = as_meta_tool
    ) -> Disclosure:
        """Ranked one-line signatures; an exact name gives the full card; no words give the map."""
        budget = budget or Budget(tokens=self.search_tokens, cards=query.limit or self.search_limit)
        edition = self.edition
        if not query.text.strip():
            return self._map(caller, edition, query, budget, spell)
        exact = self._exact(caller, edition, query)
        if exact is not None:
            return fit([full_rungs(exact, spell)], tokens=max(budget.tokens, 2_000), counter=self.counter)
        found = [hit.tool for hit in self.hits(caller, query).hits]
        return self._page(caller, edition, query, found, budget, spell)

    def describe(
        self, caller: Caller, names: Sequence[str], tokens: int = DESCRIBE_TOKENS, spell: Spell = as_meta_tool
    ) -> Disclosure:
        """Full cards for up to eight tools; names that are not known are answered in place.

        Raises:
            CallError: none of the names is known.
        """
        edition = self.edition
        visible = self.policy.visible(caller, edition)
        cards: list[Rungs] = []
        errors: list[CallError] = []
        wanted = [*dict.fromkeys(names)]
        for name in wanted[:DESCRIBE_LIMIT]:
            try:
                cards.append(full_rungs(edition.resolver.resolve(name, visible), spell))
            except CallError as error:
                self._explain(error)
                errors.append(error)
                cards.append(Rungs(handle=name, texts=((Level.NAME, _in_place(error)),)))
        if errors and len(errors) == len(cards):
            raise errors[0]
        dropped = len(wanted) - DESCRIBE_LIMIT
        tail = f"({dropped} more names left out: at most {DESCRIBE_LIMIT} a call)" if dropped > 0 else ""
        return fit(cards, tokens=tokens, counter=self.counter, tail=tail, separator="\n\n")

    async def call(self, caller: Caller, call: Call) -> Result:
        """Run one tool through the one executor.

        Raises:
            CallError: the call did not reach a result.
        """
        if self.intake.is_starting and self.parameters_of(caller, call.tool) is None:
            await self.settled()
        try:
            return await self.executor.run(caller, call, self.edition)
        except UnknownTool as error:
            self._explain(error)
            raise

    def find(self, caller: Caller, spelling: str) -> Tool | None:
        """The permitted tool of a spelling, or None when there is no such tool."""
        edition = self.edition
        try:
            return edition.resolver.resolve(spelling, self.policy.visible(caller, edition))
        except CallError:
            return None

    def parameters_of(self, caller: Caller, spelling: str) -> Mapping[str, Any] | None:
        """The parameters of a permitted tool, or None when there is no such tool."""
        tool = self.find(caller, spelling)
        return tool.properties if tool else None

    async def pass_on(self, item: Item, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass a prompt or resource request on to the server that it belongs to.

        Raises:
            CallError: the server could not answer it.
        """
        return await self.executor.provider_of(item.server).request(method, params)

    def unavailable(self) -> dict[str, str]:
        """Servers of which nothing is known because they could not be asked, with the reason."""
        known = self.edition.servers
        return {name: reason for name, reason in sorted(self.intake.failures.items()) if name not in known}

    def _explain(self, error: CallError) -> None:
        """Say so when a tool is not known because its server did not start."""
        wanted = identifier(error.subject).casefold()
        for name, reason in self.unavailable().items():
            if wanted.startswith(identifier(name).casefold()):
                error.add(f"the server {name!r} is not available: {reason}")

    def _within(self, caller: Caller, edition: Edition, query: Query) -> set[ToolId] | frozenset[ToolId]:
        visible = frozenset(self.policy.visible(caller, edition))
        if not query.server and not query.category:
            return visible
        server, category = query.server.casefold(), query.category.casefold()
        return {
            id
            for id in visible
            if (not server or server in _server_spellings(edition, id.server))
            and (not category or edition.tools[id].category.casefold() == category)
        }

    def _page(
        self, caller: Caller, edition: Edition, query: Query, found: Sequence[Tool], budget: Budget, spell: Spell
    ) -> Disclosure:
        """The tools from the cursor on, as many as fit; the next page begins with the first that did not."""
        start = _offset(query.cursor, edition)
        size = max(1, min(budget.cards, SEARCH_CARDS_LIMIT))
        if not found[start:]:
            return self._nothing(caller, edition, query, budget)
        while True:
            page = found[start : start + size]
            left = len(found) - start - len(page)
            disclosure = fit(
                [summary_rungs(tool) for tool in page],
                tokens=budget.tokens,
                counter=self.counter,
                tail=_more(query, edition, start + len(page), left, spell) if left > 0 else "",
                total=len(found) - start,
            )
            if disclosure.shown == len(page) or len(page) == 1:
                return disclosure
            size = max(1, disclosure.shown)

    def _exact(self, caller: Caller, edition: Edition, query: Query) -> Tool | None:
        """The tool that the whole query names, if it is one word that looks like a name."""
        text = query.text.strip()
        if any(letter.isspace() for letter in text) or not any(mark in text for mark in "._:/-"):
            return None
        try:
            return edition.resolver.resolve(text, self._within(caller, edition, query))
        except CallError:
            return None

    def _map(self, caller: Caller, edition: Edition, query: Query, budget: Budget, spell: Spell) -> Disclosure:
        """The pinned tools and the map of servers and categories, or one server's or category's tools."""
        within = self._within(caller, edition, query)
        if query.server or query.category:
            tools = [tool for id, tool in edition.tools.items() if id in within]
            return self._page(caller, edition, query, tools, budget, spell)
        head = map_text(edition, within, self.unavailable())
        return fit(
            [summary_rungs(tool) for tool in self.pinned(caller)],
            tokens=budget.tokens,
            counter=self.counter,
            tail=self._fitted_map(head, budget),
        )

    def _fitted_map(self, text: str, budget: Budget) -> str:
        """As many lines of the map as fit; the rest are counted."""
        lines = text.split("\n")
        while len(lines) > 1 and self.counter.count("\n".join(lines)) > budget.tokens - 60:
            lines.pop()
        left = text.count("\n") + 1 - len(lines)
        return "\n".join([*lines, f"({left} more lines withheld)"] if left else lines)

    def _nothing(self, caller: Caller, edition: Edition, query: Query, budget: Budget) -> Disclosure:
        within = self._within(caller, edition, query)
        near = edition.resolver.near(query.text[:100], within, limit=3) if query.text.strip() else []
        lines = [f"no tool fits {query.text[:100]!r}" if query.text.strip() else "no tool is on that shelf"]
        if near:
            lines.append("nearest names: " + ", ".join(tool.handle for tool in near))
        lines.append(map_text(edition, self.policy.visible(caller, edition), self.unavailable()))
        text = self._fitted_map("\n".join(lines), budget)
        return Disclosure(text=text, tokens=self.counter.count(text))


def map_text(edition: Edition, within: Set[ToolId], unavailable: Iterable[str] = ()) -> str:
    """Every server and every category with the number of tools that this caller sees there."""
    servers: dict[str, int] = {}
    categories: dict[str, int] = {}
    for id in within:
        servers[id.server] = servers.get(id.server, 0) + 1
        category = edition.tools[id].category
        categories[category] = categories.get(category, 0) + 1
    lines = [f"{len(within)} tools on {len(servers)} servers."]
    if set(categories) != {"misc"} and categories:
        lines.append("categories: " + ", ".join(f"{name} ({count})" for name, count in sorted(categories.items())))
    if missing := ", ".join(unavailable):
        lines.append(f"not available: {missing}")
    lines.append("servers:")
    for name, count in sorted(servers.items()):
        server = edition.servers[name]
        about = (server.description or server.title or "").split("\n", 1)[0][:80]
        about = "" if about.casefold() == name.casefold() else about
        lines.append(f"- {server.identifier} ({count})" + (f": {about}" if about else ""))
    return "\n".join(lines)


def _server_spellings(edition: Edition, name: str) -> tuple[str, str]:
    return name.casefold(), edition.servers[name].identifier.casefold()


def _offset(cursor: str, edition: Edition) -> int:
    """Where a page starts; a cursor of an older edition starts at the beginning, since the order may be another."""
    number, _, offset = cursor.partition(":")
    if number == str(edition.number) and offset.isascii() and offset.isdigit() and len(offset) < 10:
        return int(offset)
    return 0


def _more(query: Query, edition: Edition, offset: int, left: int, spell: Spell) -> str:
    if len(query.text) > REPEATED_LENGTH:
        return f'{left} more: the same search with "cursor": "{edition.number}:{offset}"'
    parameters = {
        "query": query.text,
        **({"server": query.server} if query.server else {}),
        **({"category": query.category} if query.category else {}),
        **({"limit": query.limit} if query.limit else {}),
        "cursor": f"{edition.number}:{offset}",
    }
    return f"{left} more: {spell(NextCall('search', parameters))}"


def _in_place(error: CallError) -> str:
    return f"## {error.subject}: {error.code}" + "".join(f"\n- {line}" for line in error.details)
