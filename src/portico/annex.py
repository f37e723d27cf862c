"""What stands beside the tools: prompts, resources and documents, found by the same search and read on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from portico.discovery.cache import PerEdition
from portico.discovery.entries import GET_PROMPT, READ_RESOURCE, Entries, Found, reading_call
from portico.domain.call import Call, Result
from portico.domain.edition import Edition
from portico.domain.items import Item, Items, Kind
from portico.domain.profile import OPEN, Profile
from portico.domain.query import Query
from portico.errors import InvalidArguments, NextCall, UnknownItem
from portico.execution.reading import document_result, read_item
from portico.ports import Provider

NAMED = 2
"""Items that are named beside tools that answer a query."""
SHOWN = 5
"""Items that are shown where no tool does."""
_ITEM_FILTERS = {"server"}
"""The filters of a query that items can pass."""


@dataclass(slots=True, kw_only=True)
class Annex:
    """The items of the current edition that the profile offers, within the servers that a caller sees."""

    provider_of: Callable[[str], Provider]
    profile: Profile = OPEN
    entries: Entries = field(default_factory=Entries)
    _items: PerEdition[Items] = field(default_factory=PerEdition)

    def items(self, edition: Edition) -> Items:
        """The prompts, resources, templates and documents that are offered, sorted out once per edition."""
        return self._items.get(edition, "items", lambda: self.profile.offered(edition.items))

    def resource(self, edition: Edition, uri: str) -> Item:
        """The resource of a URI, listed or given by a template.

        Raises:
            UnknownItem: there is none, or the profile does not offer it.
        """
        item = self.items(edition).resource(uri)
        if item.kind is not Kind.DOCUMENT and not self.profile.permits_resource(item.original):
            raise UnknownItem(uri, details=("no resource of that name",))
        return item

    def find(self, edition: Edition, spelling: str, servers: Set[str]) -> Item | None:
        """The item that is spelled so; what a server says of itself is told to those who see something of it."""
        item = self.items(edition).find(spelling)
        is_hidden = item is not None and item.kind is Kind.DOCUMENT and item.server not in servers
        return None if is_hidden else item

    def search(self, edition: Edition, query: Query, servers: Set[str], limit: int) -> list[Found]:
        """The items that answer a query, best first; filters that only tools can pass leave none."""
        if query.cursor or set(query.filters) - _ITEM_FILTERS:
            return []
        items = self.items(edition)
        allowed = servers | {item.server for item in items.all if item.kind is not Kind.DOCUMENT}
        if query.server:
            allowed = {name for name in allowed if _is_called(edition, name, query.server)}
        return self.entries.search(items, query.text, allowed, limit)

    async def read(self, edition: Edition, call: Call, servers: Set[str]) -> Result:
        """A resource or prompt as the result of a tool.

        Raises:
            InvalidArguments: the call does not say what to read.
            CallError: there is no such item, or its server does not give it.
        """
        item = self._wanted(edition, call, servers)
        if item.kind is Kind.DOCUMENT:
            return Result(document_result(item))
        own = call.arguments.get("arguments")
        arguments: Mapping[str, Any] = own if isinstance(own, Mapping) else {}
        missing = [name for name in _required(item) if name not in arguments]
        if missing:
            details = [f"missing: {name} (string)" for name in missing]
            raise InvalidArguments(item.listed, details=details, next_call=reading_call(item))
        return Result(await read_item(self.provider_of(item.server), item, arguments))

    def _wanted(self, edition: Edition, call: Call, servers: Set[str]) -> Item:
        items = self.items(edition)
        key = "name" if call.tool == GET_PROMPT else "uri"
        spelling = call.arguments.get(key)
        if not isinstance(spelling, str) or not spelling:
            example = NextCall("search", {"query": ""})
            raise InvalidArguments(call.tool, details=(f"missing: {key} (string)",), next_call=example)
        item = items.prompt(spelling) if call.tool == GET_PROMPT else self.resource(edition, spelling)
        if item.kind is Kind.DOCUMENT and item.server not in servers:
            raise UnknownItem(spelling, details=("no resource of that name",))
        return item


PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    READ_RESOURCE: {"uri": {"type": "string"}},
    GET_PROMPT: {"name": {"type": "string"}, "arguments": {"type": "object"}},
}
"""What the calls take that read an item; a server's tool of such a name is called by its handle."""


def _is_called(edition: Edition, server: str, wanted: str) -> bool:
    known = edition.servers.get(server)
    return wanted.casefold() in (server.casefold(), known.identifier.casefold() if known else "")


def _required(item: Item) -> list[str]:
    call = reading_call(item) if item.kind is Kind.PROMPT else NextCall("call")
    return list(call.parameters.get("arguments", {}).get("arguments", {}))
