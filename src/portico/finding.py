"""Which tools a caller sees, and which of them answer a question; nothing is rendered here."""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Any

from portico.discovery.cache import PerEdition
from portico.discovery.filters import Facets, Filters
from portico.discovery.pages import LONGEST_PAGE
from portico.discovery.ranking import settle
from portico.discovery.standings import FirstCalls, Order, Standings
from portico.domain.caller import Caller
from portico.domain.disclosure import Findings, Hit
from portico.domain.edition import Edition
from portico.domain.names import identifier
from portico.domain.query import Query
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, UnknownFilter
from portico.execution.executor import Executor
from portico.intake.editions import Editions
from portico.intake.intake import Intake
from portico.ports import Policy

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

    editions: Editions
    intake: Intake
    policy: Policy
    executor: Executor
    standings: Standings = field(default_factory=Standings)
    first_calls: FirstCalls = field(default_factory=FirstCalls)
    filters: Filters = field(default_factory=Filters)
    pins: tuple[str, ...] = ()
    search_limit: int = 5
    _hot: PerEdition[list[Tool]] = field(default_factory=PerEdition)

    @property
    def edition(self) -> Edition:
        """The current edition of the catalog."""
        return self.editions.current.edition

    def listing(self, caller: Caller) -> list[Tool]:
        """Every permitted tool, in a fixed order."""
        edition = self.edition
        visible = self.policy.visible(caller, edition)
        return [tool for id, tool in edition.tools.items() if id in visible]

    def pinned(self, caller: Caller) -> list[Tool]:
        """The tools that are always listed; a pin that means nothing to this caller is left out."""
        edition = self.edition
        return self.pins_within(edition, self.policy.visible(caller, edition))

    def pins_within(self, edition: Edition, visible: Set[ToolId]) -> list[Tool]:
        """The same for tools of one edition."""
        found: dict[ToolId, Tool] = {}
        for spelling in self.pins:
            with suppress(CallError):
                tool = edition.resolver.resolve(spelling, visible)
                found[tool.id] = tool  # two spellings may mean one tool, which is listed once
        return list(found.values())

    @property
    def named_categories(self) -> tuple[str, ...]:
        """The categories that the config names."""
        rule = self.editions.rule
        return (*rule.explicit.values(), *rule.servers.values())

    def hot(self, caller: Caller, limit: int = HOT_LISTED) -> list[Tool]:
        """The pins, then the tools that stand best; a new edition, an update of tiers or a first call ranks anew."""
        edition, now = self.edition, time()
        usage = self.executor.journal.usage()
        visible = frozenset(self.policy.visible(caller, edition))

        def ranked() -> list[Tool]:
            order = Order(tiers=self.standings.tiers, usage=usage, now=now)
            tools = (tool for id, tool in edition.tools.items() if id in visible)
            return order.hottest(tools, self.pins_within(edition, visible), list(self.editions.aliases), limit)

        key = (visible, self.standings.revision, self.first_calls.noticed(usage), limit, now // HOT_SECONDS)
        return list(self._hot.get(edition, key, ranked))

    def hits(self, caller: Caller, query: Query, limit: int = SEARCH_CARDS_LIMIT) -> Findings:
        """The hits of a query, all pages of it up to the cap unless told, and whether they answer it.

        Without words, the tools that pass the filters are the hits, those first that stand best.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        published = self.editions.current
        within = self._within(caller, published.edition, query)
        if query.text.strip():
            return published.index.query(query.text, within=within, limit=limit)
        found = [tool for id, tool in published.edition.tools.items() if id in within] if query.filters else []
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
        edition = self.edition
        try:
            return edition.resolver.resolve(spelling, self.policy.visible(caller, edition))
        except CallError:
            return None

    def parameters_of(self, caller: Caller, spelling: str) -> Mapping[str, Any] | None:
        """The parameters of a permitted tool, or None when there is no such tool."""
        tool = self.find(caller, spelling)
        return tool.properties if tool else None

    def unavailable(self) -> dict[str, str]:
        """Servers of which nothing is known because they could not be asked, with the reason."""
        known = self.edition.servers
        return {name: reason for name, reason in sorted(self.intake.failures.items()) if name not in known}

    def _nearest(self, caller: Caller, query: Query, found: Findings, limit: int) -> list[Hit]:
        if found.hits or not query.text.strip():
            return list(found.hits[:limit])
        edition = self.edition
        alike = edition.resolver.near(query.text[:NEAR_LENGTH], self._within(caller, edition, query), limit=limit)
        return [Hit(tool=tool, score=0.0) for tool in alike]

    def within(self, edition: Edition, visible: frozenset[ToolId], query: Query) -> frozenset[ToolId]:
        """The visible tools of an edition that pass the filters of a query.

        Raises:
            UnknownFilter: no tool has that server, category, tag or source.
        """
        try:
            return self.filters.narrow(edition, visible, query, self.executor.journal.usage())
        except UnknownFilter as error:
            wanted = identifier(query.server).casefold()
            for name, reason in self.unavailable().items():
                if wanted == identifier(name).casefold():
                    error.add(f"the server {name!r} is not available: {reason}")
            raise

    def _within(self, caller: Caller, edition: Edition, query: Query) -> frozenset[ToolId]:
        return self.within(edition, frozenset(self.policy.visible(caller, edition)), query)

    def _exact(self, caller: Caller, edition: Edition, query: Query) -> Tool | None:
        """The tool that the whole query names, if it is one word that looks like a name."""
        if not may_be_name(query.text):
            return None
        try:
            return edition.resolver.resolve(query.text.strip(), self._within(caller, edition, query))
        except CallError:
            return None

    def _facets(self, caller: Caller, edition: Edition) -> Facets:
        return self.filters.facets(edition, frozenset(self.policy.visible(caller, edition)))


def may_be_name(text: str) -> bool:
    """Whether a query is one word that looks like a name."""
    text = text.strip()
    return text.split(maxsplit=1) == [text] and any(mark in text for mark in "._:/-")
