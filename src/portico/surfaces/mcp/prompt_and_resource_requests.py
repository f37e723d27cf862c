"""Prompts, resources and completion of servers, and the catalog's own resources."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, unquote

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError

from portico.catalog.naming import identifier
from portico.catalog.prompts_and_resources import GUIDE, OWN_SCHEME, Item, ItemKind
from portico.domain.call import Caller
from portico.domain.search_answers import View
from portico.errors import CallError, InvalidArguments, UnknownItem
from portico.gateway import Gateway
from portico.tiers.compose_tiers import RESOURCES
from portico.tiers.tier_requests import TierAnswers
from portico.tiers.token_budgets import LARGEST_PAGE, SMALLEST_BUDGET

from .client_questions_and_logs import Context, client_of, connection_of, envelope_of, until_complete
from .surface import JsonObject

HOT, CATEGORIES = RESOURCES.hot, RESOURCES.categories
CATEGORY, TOOL = RESOURCES.any_category, RESOURCES.any_tool
ANY_GUIDE = GUIDE + "{server}"
JSON = "application/json"
MARKDOWN = "text/markdown"
COMPLETIONS = 100
"""Values in one answer, as MCP allows."""
SHOWN_LENGTH, DETAILS = 80, 5
"""Characters of a strange option that are repeated, and how many of them are."""
LARGEST_BUDGET = 1_000_000
LAST_PAGE = 999_999_999
_BUDGET = {"budget": (SMALLEST_BUDGET, LARGEST_BUDGET)}
_OPTIONS = {"page": (1, LAST_PAGE), "page_size": (1, LARGEST_PAGE), **_BUDGET}
"""The options that may follow a `?`, with their ranges."""

LISTED: tuple[JsonObject, ...] = (
    {
        "uri": HOT,
        "name": "hot",
        "title": "Hot tools",
        "description": "The tools that are used most and best, at most 15",
        "mimeType": JSON,
    },
    {
        "uri": CATEGORIES,
        "name": "categories",
        "title": "Categories of tools",
        "description": "All categories with how many tools they have",
        "mimeType": JSON,
    },
)
TEMPLATES: tuple[JsonObject, ...] = (
    {
        "uriTemplate": CATEGORY,
        "name": "category",
        "title": "Tools of a category",
        "description": "Summaries of the tools of one category; ?page=2 and ?page_size=50 lead on",
        "mimeType": JSON,
    },
    {
        "uriTemplate": TOOL,
        "name": "tool",
        "title": "One tool",
        "description": "Description, schema, examples and performance of one tool",
        "mimeType": JSON,
    },
    {
        "uriTemplate": ANY_GUIDE,
        "name": "guide",
        "title": "What a server says of itself",
        "description": "The instructions of one server",
        "mimeType": MARKDOWN,
    },
)


@dataclass(slots=True)
class CatalogResources:
    """Answers what is asked of the scheme `catalog:`, which is ours whatever servers offer under it."""

    tier_answers: TierAnswers
    caller: Caller

    async def read(self, uri: str) -> JsonObject:
        """One of the four, as JSON, or what a server says of itself.

        Raises:
            UnknownItem: there is no such resource, or nothing of that name that the caller may see.
            InvalidArguments: there is, and what follows its `?` cannot be; what can is told.
        """
        kind, text = await self._load(uri, self.tier_answers.as_resources())
        return {"contents": [{"uri": uri, "mimeType": kind, "text": text}]}

    async def mark(self, uri: str) -> bytes:
        """A digest that changes with the resource; nobody has read it by this.

        Raises:
            UnknownItem: there is no such resource, or nothing of that name that the caller may see.
        """
        _, text = await self._load(uri, self.tier_answers.as_resources(is_quiet=True))
        return blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()

    def complete(self, template: str, argument: JsonObject, context: object) -> JsonObject:
        """Names that begin with what was typed, among what the caller may see.

        Raises:
            UnknownItem: there is no such template.
        """
        if template not in (CATEGORY, TOOL, ANY_GUIDE):
            raise _unknown(template)
        typed = argument.get("value")
        typed = typed.casefold() if isinstance(typed, str) else ""
        found = set()
        for spellings in self._names(template, argument.get("name"), context):
            begun = [name for name in spellings if name and name.casefold().startswith(typed)]
            found.update(begun[:1])
        shown = sorted(found)[:COMPLETIONS]
        return {"completion": {"values": shown, "total": len(found), "hasMore": len(found) > len(shown)}}

    async def _load(self, uri: str, tier_answers: TierAnswers) -> tuple[str, str]:
        """The type and the text of a resource."""
        if uri.startswith(GUIDE):
            spelling = f"{GUIDE}{identifier(unquote(uri.removeprefix(GUIDE)))}"
            found = tier_answers.gateway.item(self.caller, spelling)
            if found is None or found.kind is not ItemKind.DOCUMENT:
                raise UnknownItem(uri, details=("no server of that name says something of itself",))
            return MARKDOWN, str(found.definition["text"])
        try:
            return JSON, (await self._view(uri, tier_answers)).body.decode()
        except InvalidArguments as error:
            raise InvalidArguments(uri, details=error.details) from error
        except UnknownItem:
            raise
        except CallError as error:
            raise UnknownItem(uri, details=error.details) from error

    async def _view(self, uri: str, tier_answers: TierAnswers) -> View:
        place, _, query = uri.partition("?")
        if place == HOT:
            return await tier_answers.hot(self.caller, **_read_options(query, _BUDGET))
        if place == CATEGORIES:
            return await tier_answers.categories(self.caller, **_read_options(query, _BUDGET))
        kind, *parts = [unquote(part) for part in place.removeprefix(f"{OWN_SCHEME}//").split("/")]
        if kind == "category" and len(parts) == 1:
            return await tier_answers.category(self.caller, parts[0], **_read_options(query, _OPTIONS))
        if kind == "tool" and len(parts) >= 2:
            tool = "/".join(parts[1:])
            return await tier_answers.tool(self.caller, parts[0], tool, **_read_options(query, _BUDGET))
        raise _unknown(uri)

    def _names(self, template: str, argument: object, context: object) -> Iterator[tuple[str, ...]]:
        """The values of an argument, each in all spellings that are understood."""
        arguments = context.get("arguments") if isinstance(context, Mapping) else None
        chosen = arguments.get("server") if isinstance(arguments, Mapping) else None  # it was filled in before
        gateway = self.tier_answers.gateway
        for tool in gateway.view(self.caller).tools:
            server = tool.id.server
            spellings = (server, gateway.publisher.aliases.get(server, ""), gateway.snapshot.servers[server].identifier)
            is_chosen = not isinstance(chosen, str) or not chosen or chosen.casefold() in map(str.casefold, spellings)
            if template == CATEGORY and argument == "name":
                yield (tool.category,)
            elif template in (TOOL, ANY_GUIDE) and argument == "server":
                yield spellings
            elif template == TOOL and argument == "tool" and is_chosen:
                yield (tool.name,)


def is_ours(uri: str) -> bool:
    """Whether a URI has our scheme, in upper or lower case."""
    return uri.casefold().startswith(OWN_SCHEME)


def _read_options(query: str, allowed: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The options that follow a `?`, as numbers.

    Raises:
        InvalidArguments: with what is allowed.
    """
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        low, high = allowed.get(name, (1, 0))
        is_number = value.isascii() and value.isdigit() and len(value) < 10
        if name not in allowed:
            wrong.append(f"{name[:SHOWN_LENGTH]!r} is not asked here; what may follow the `?`: {', '.join(allowed)}")
        elif name in found:
            wrong.append(f"{name} is given more than once")
        elif not is_number or not low <= int(value) <= high:
            wrong.append(f"{name} is a number from {low:,} to {high:,}, not {value[:SHOWN_LENGTH]!r}")
        else:
            found[name] = int(value)
    if wrong:
        raise InvalidArguments("?", details=wrong[:DETAILS])
    return found


def _unknown(uri: str) -> UnknownItem:
    known = ", ".join((HOT, CATEGORIES, CATEGORY, TOOL, ANY_GUIDE))
    return UnknownItem(uri, details=(f"what there is under {OWN_SCHEME}: {known}",))


MOST_WATCHED = 1_000
"""Resources that one client may watch."""
OURS = ""
"""Stands where a server's name would: the resource is one of the catalog's own."""


_LISTS: Mapping[str, tuple[str, str, tuple[JsonObject, ...]]] = {
    "prompts/list": ("prompts", "prompts", ()),
    "resources/list": ("resources", "resources", LISTED),
    "resources/templates/list": ("resourceTemplates", "templates", TEMPLATES),
}
"""For each method: the key of its result, the field of the catalog's items, and our own."""


@dataclass(slots=True)
class ItemHandlers:
    """Answers lists from the catalog and sends everything else on; what the catalog itself tells comes first."""

    gateway: Gateway
    catalog: CatalogResources | None = None
    caller: Caller = field(default_factory=Caller)
    """Who asks, as far as that is the same for all clients."""
    _subscribers: dict[str, weakref.WeakSet[Connection]] = field(default_factory=dict)
    _watched: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each resource is watched; with the client where each has a session of its own with the server."""
    _held: weakref.WeakKeyDictionary[Connection, dict[str, Item]] = field(default_factory=weakref.WeakKeyDictionary)
    """The subscriptions of each client of the handshake era."""
    _marks: dict[str, bytes] = field(default_factory=dict)
    """Those of our own resources that are watched, as their watchers last knew them."""

    async def list_items(self, ctx: Context, params: JsonObject) -> JsonObject:
        """All prompts, resources or templates, our own first."""
        await self.gateway.wait_until_ready()
        key, kind, own = _LISTS[ctx.method]
        items = getattr(self.gateway.items, kind)
        return {key: [*(own if self.catalog else ()), *(item.definition for item in items)]}

    async def get_prompt(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One prompt, from its server."""
        item = self.gateway.items.prompt(_text(params, "name"))
        arguments = params.get("arguments")
        own = {"arguments": arguments} if arguments is not None else {}
        return await self._forward(ctx, params, item, "prompts/get", {"name": item.original, **own})

    async def read_resource(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One resource, from its server or from the catalog."""
        if self.catalog and is_ours(uri := _text(params, "uri")):
            await self.gateway.wait_until_ready()
            try:
                return await self.catalog.read(uri)
            except InvalidArguments as error:
                raise MCPError(types.INVALID_PARAMS, str(error), {"uri": uri}) from error
        item = self._resource(params)
        return await self._forward(ctx, params, item, "resources/read", {"uri": item.original})

    async def subscribe(self, ctx: Context, params: JsonObject) -> JsonObject:
        """Subscribe a client of the handshake era to a resource, for as long as its connection lasts."""
        connection = connection_of(ctx)
        held = self._held.get(connection)
        if held is None:
            held = self._held[connection] = {}
            connection.exit_stack.push_async_callback(self._release, connection, held, client_of(ctx, params))
        if len(held) >= MOST_WATCHED:
            raise _too_many()
        await self._mark_own(_text(params, "uri"))
        item = self._resource(params)
        if item.listed not in held:
            held[item.listed] = item
            try:
                await self._watch(item, client_of(ctx, params))
            except BaseException:
                held.pop(item.listed, None)
                raise
            self._subscribers.setdefault(item.listed, weakref.WeakSet()).add(connection)
        return {}

    async def unsubscribe(self, ctx: Context, params: JsonObject) -> JsonObject:
        """End a subscription; the server is told when the last client has gone."""
        item = self._resource(params)
        if self._held.get(connection_of(ctx), {}).pop(item.listed, None) is not None:
            self._subscribers.get(item.listed, weakref.WeakSet()).discard(connection_of(ctx))
            await self._unwatch(item, client_of(ctx, params))
        return {}

    async def _release(self, connection: Connection, held: dict[str, Item], client: str) -> None:
        """End what a client has subscribed to and not ended itself."""
        while held:
            listed, item = held.popitem()
            self._subscribers.get(listed, weakref.WeakSet()).discard(connection)
            with suppress(CallError):
                await self._unwatch(item, client)

    @asynccontextmanager
    async def watching(self, uris: Iterable[str], client: str) -> AsyncIterator[None]:
        """While this is open, the servers of these resources tell us when one of them changes for the client."""
        items, uris = [], list(uris)
        if len(uris) > MOST_WATCHED:
            raise _too_many()
        try:
            for uri in uris:
                with suppress(CallError):  # a resource that nobody has is honoured, and never changes
                    await self._mark_own(uri)
                    item = self._resource({"uri": uri})
                    await self._watch(item, client)
                    items.append(item)
            yield
        finally:
            with anyio.CancelScope(shield=True), suppress(CallError):
                for item in items:
                    await self._unwatch(item, client)

    def subscribers(self, uri: str) -> Iterable[Connection]:
        """The connections that want to hear of a resource, by its listed URI."""
        return list(self._subscribers.get(uri, ()))

    async def changed_own(self) -> list[str]:
        """Those of our own watched resources that are no longer what their watchers know; from now on they know."""
        changed = []
        for uri in [uri for uri, _ in self._watched if self.catalog and is_ours(uri)]:
            try:
                mark = await self.catalog.mark(uri) if self.catalog else b""
            except CallError:  # it is gone, which its watchers want to hear too
                mark = b""
            if self._marks.get(uri) != mark and (uri, "") in self._watched:
                self._marks[uri] = mark
                changed.append(uri)
        return changed

    async def _watch(self, item: Item, client: str) -> None:
        watched = item.listed, self.gateway.client_at(item.server, client)
        self._watched[watched] += 1
        if self._watched[watched] == 1 and item.server != OURS:
            try:
                await self._forward_plain(item, "resources/subscribe", {"uri": item.original}, client)
            except CallError:
                self._watched[watched] -= 1
                raise

    async def _unwatch(self, item: Item, client: str) -> None:
        own = item.listed, client
        watched = own if own in self._watched else (item.listed, "")
        self._watched[watched] -= 1
        if self._watched[watched] <= 0:
            del self._watched[watched]
            if not self._subscribers.get(item.listed):
                self._subscribers.pop(item.listed, None)
            if item.server == OURS:
                self._marks.pop(item.listed, None)
            else:
                await self._forward_plain(item, "resources/unsubscribe", {"uri": item.original}, client)

    async def complete(self, ctx: Context, params: JsonObject) -> JsonObject:
        """Completion for a prompt's or a template's argument, from its server."""
        ref = params.get("ref")
        if not isinstance(ref, dict):
            raise MCPError(types.INVALID_PARAMS, "completion/complete needs `ref`")
        items = self.gateway.items
        if ref.get("type") == "ref/prompt":
            item = items.prompt(_text(ref, "name"))
            own = {**ref, "name": item.original}
        elif self.catalog and is_ours(_text(ref, "uri")):
            argument = params.get("argument")
            asked = argument if isinstance(argument, Mapping) else {}
            return self.catalog.complete(_text(ref, "uri"), asked, params.get("context"))
        else:
            item = items.template(_text(ref, "uri"))
            own = {**ref, "uri": item.original}
        rest = {key: value for key, value in params.items() if key not in ("ref", "_meta")}
        return await self._forward_plain(item, "completion/complete", {"ref": own, **rest}, client_of(ctx, params))

    async def _forward_plain(self, item: Item, method: str, params: JsonObject, client: str) -> JsonObject:
        return await self.gateway.forward(item, method, params, replace(self.caller, client=client))

    async def _forward(self, ctx: Context, params: JsonObject, item: Item, method: str, own: JsonObject) -> JsonObject:
        """Send a request on with what travels beside it; a server may ask the client something first."""
        envelope, client = envelope_of(ctx, params), client_of(ctx, params)
        beside = {"_meta": envelope.meta} if envelope.meta else {}

        async def again(answers: JsonObject | None) -> JsonObject:
            return await self._forward_plain(item, method, {**own, **beside, **(answers or {})}, client)

        return await until_complete(ctx, await again(envelope.answers), again)

    async def _mark_own(self, uri: str) -> None:
        """Remember what a resource of ours is like before somebody watches it; pages are read and not watched.

        Raises:
            UnknownItem: there is no such resource.
        """
        if self.catalog and is_ours(uri):
            mark = await self.catalog.mark(uri.replace("?", "%3F"))
            self._marks.setdefault(uri, mark)

    def _resource(self, params: JsonObject) -> Item:
        uri = _text(params, "uri")
        if self.catalog and is_ours(uri):
            return Item(kind=ItemKind.RESOURCE, server=OURS, original=uri, listed=uri, definition={})
        return self.gateway.item_search.resource(self.gateway.snapshot, uri)


def _text(params: JsonObject, key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str) or not value:
        raise MCPError(types.INVALID_PARAMS, f"`{key}` is missing: a non-empty string")
    return value


def _too_many() -> MCPError:
    return MCPError(
        types.INVALID_PARAMS, f"one client may watch {MOST_WATCHED:,} resources; unsubscribe from some first"
    )
