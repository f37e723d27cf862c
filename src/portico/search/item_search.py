"""Prompts, resources and documents: found by the same search as tools, and read on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from portico.catalog.prompts_and_resources import Item, ItemKind, Items
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.call import Call, Caller, Result
from portico.domain.search_answers import Level, Query
from portico.domain.tool import OPEN, Effect, Profile, Tool, ToolId
from portico.errors import InvalidArguments, NextCall, UnknownItem, UpstreamError
from portico.protocols import Provider
from portico.rendering.budget import Spell, Variants
from portico.rendering.cards import first_sentence
from portico.text.untrusted import fence, one_line

from .index import ToolIndex, index_tools

JsonObject = Mapping[str, Any]
_MEDIA = {"image/": "image", "audio/": "audio"}


async def read_item(provider: Provider, item: Item, arguments: JsonObject, caller: Caller | None = None) -> JsonObject:
    """The result of reading one item for a caller, as a tool would return it.

    Raises:
        CallError: its server cannot be asked, or refuses.
    """
    if item.kind is ItemKind.PROMPT:
        own = {"arguments": dict(arguments)} if arguments else {}
        raw = await provider.request("prompts/get", {"name": item.original, **own}, caller=caller)
        return {"content": list(_messages(item, raw))}
    raw = await provider.request("resources/read", {"uri": item.original}, caller=caller)
    return {"content": [_block(part) for part in _listed(item, raw, "contents")]}


def document_result(item: Item) -> JsonObject:
    """A document, which we have at hand."""
    return {"content": [{"type": "text", "text": str(item.definition.get("text", ""))}]}


def _block(contents: JsonObject) -> JsonObject:
    """Contents of a resource as a content block; a model reads text best as text."""
    if isinstance(contents.get("text"), str):
        return {"type": "text", "text": contents["text"]}
    kind = next((kind for begin, kind in _MEDIA.items() if str(contents.get("mimeType")).startswith(begin)), "")
    if kind and isinstance(contents.get("blob"), str):
        return {"type": kind, "data": contents["blob"], "mimeType": contents["mimeType"]}
    return {"type": "resource", "resource": contents}


def _messages(item: Item, raw: JsonObject) -> Iterator[JsonObject]:
    """The messages of a prompt in their order, each with its role."""
    for message in _listed(item, raw, "messages"):
        content = message.get("content")
        if isinstance(content, Mapping) and isinstance(content.get("text"), str):
            yield {"type": "text", "text": f"{message.get('role', 'user')}: {content['text']}"}
        elif isinstance(content, Mapping):
            yield content


def _listed(item: Item, raw: JsonObject, key: str) -> list[JsonObject]:
    found = raw.get(key)
    if not isinstance(found, list):
        raise UpstreamError(item.listed, rpc_code=-32603, message=f"its answer has no list of {key}")
    return [part for part in found if isinstance(part, Mapping)]


READ_RESOURCE, GET_PROMPT = "read_resource", "get_prompt"
"""What an agent calls to read an item, by `call_tool` or straight; no surface lists them."""
INDEXED = 5_000  # items that are read for the search; those beyond are listed and not found by words
LINE_LENGTH = 120  # characters of an item's description on one line
TEXT_LENGTH = 20_000  # characters of a document that are shown
WORTH = 0.5  # the share of the best tool's score that an item needs to be named beside tools

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class FoundItem:
    """An item that answers a query."""

    item: Item
    score: float


@dataclass(slots=True)
class ItemIndex:
    """Finds items by what they say; what was read of an item is kept while it stays the same."""

    _items: Items | None = None
    _index: ToolIndex | None = None
    _read: dict[Key, tuple[Item, Tool]] = field(default_factory=dict)

    def search(self, items: Items, text: str, servers: Set[str], limit: int) -> list[FoundItem]:
        """The items of some servers that answer a query, best first; none when nothing does."""
        if not text.strip() or not items.all:
            return []
        index = self._of(items)
        found = index.query(text, within=self._within(servers), limit=limit)
        by_id = {tool.id: item for item, tool in self._read.values()}
        return [FoundItem(by_id[hit.tool.id], hit.score) for hit in found.hits] if found.fits else []

    def _of(self, items: Items) -> ToolIndex:
        if self._index is None or items is not self._items:
            known = self._read
            self._read = {_key(item): _kept(known.get(_key(item)), item) for item in items.all[:INDEXED]}
            self._index = index_tools([tool for _, tool in self._read.values()], self._index)
            self._items = items
        return self._index

    def _within(self, servers: Set[str]) -> frozenset[ToolId]:
        return frozenset(tool.id for item, tool in self._read.values() if item.server in servers)


def worth_naming(found: Iterable[FoundItem], best: float) -> list[Item]:
    """The items that answer a query about as well as the best tool does."""
    return [one.item for one in found if one.score >= WORTH * best]


def entry_lines(items: Iterable[Item], spell: Spell) -> list[str]:
    """What is said of items beside tools: how to see one whole, and each on a line."""
    lines = [entry_line(item) for item in items]
    first = next(iter(items), None)
    if first is None:
        return []
    call = spell(NextCall("describe", {"names": [first.listed]}))
    return [f"beside tools, to be described like them, e.g. {call}:", *lines]


def entry_line(item: Item) -> str:
    """An item on one line: `[prompt] team__review(code, language?) Review code`."""
    names = [one_line(argument["name"]) + ("" if argument.get("required") else "?") for argument in _declared(item)]
    arguments = f"({', '.join(names)})" if item.kind is ItemKind.PROMPT else ""
    about = first_sentence(told_of(item), LINE_LENGTH)
    return f"[{item.kind}] {item.listed}{arguments} {about}".rstrip()


def entry_card(item: Item, spell: Spell) -> Variants:
    """An item in full, down to its bare spelling."""
    texts = (
        (Level.FULL, lambda: _whole(item, spell)),
        (Level.SUMMARY, lambda: entry_line(item)),
        (Level.NAME, item.listed),
    )
    return Variants(handle=item.listed, texts=texts)


def reading_call(item: Item) -> NextCall:
    """The call that reads an item."""
    if item.kind is ItemKind.PROMPT:
        wanted = {argument["name"]: "..." for argument in _declared(item) if argument.get("required")}
        own = {"name": item.listed, **({"arguments": wanted} if wanted else {})}
        return NextCall("call", {"name": GET_PROMPT, "arguments": own})
    return NextCall("call", {"name": READ_RESOURCE, "arguments": {"uri": item.listed}})


def _whole(item: Item, spell: Spell) -> str:
    lines = [f"## {item.listed} [{item.kind}]", fence(told_of(item))]
    if item.kind is ItemKind.DOCUMENT:
        return "\n".join(lines)  # the document itself
    lines += [_argument_line(argument) for argument in _declared(item)]
    facts = (item.definition.get("mimeType"), _size(item.definition.get("size")))
    told = fence(", ".join(one_line(fact) for fact in facts if isinstance(fact, str) and fact))
    lines += [told, f"read: {spell(reading_call(item))}"]
    return "\n".join(line for line in lines if line)


def told_of(item: Item) -> str:
    """The words of an item: title and description, or the text of a document."""
    if item.kind is ItemKind.DOCUMENT:
        return str(item.definition.get("text", ""))[:TEXT_LENGTH]
    name = "" if item.kind is ItemKind.PROMPT else _text(item, "name")  # a prompt's is its spelling
    title, description = _text(item, "title") or name, _text(item, "description")
    return f"{title}: {description}" if title and description else title or description


def _argument_line(argument: Mapping[str, Any]) -> str:
    about = argument.get("description")
    needed = "required" if argument.get("required") else "optional"
    said = f": {one_line(about)}" if isinstance(about, str) and about.strip() else ""
    return f"- {one_line(argument['name'])} ({needed}){said}"


def _declared(item: Item) -> list[Mapping[str, Any]]:
    """A prompt's arguments, as far as they can be understood."""
    found = item.definition.get("arguments")
    declared = found if item.kind is ItemKind.PROMPT and isinstance(found, list) else []
    return [
        argument for argument in declared if isinstance(argument, Mapping) and isinstance(argument.get("name"), str)
    ]


def _size(value: object) -> str:
    return f"{value:,} bytes" if isinstance(value, int) and not isinstance(value, bool) else ""


def _text(item: Item, field: str) -> str:
    found = item.definition.get(field)
    return found if isinstance(found, str) else ""


def _key(item: Item) -> Key:
    return item.server, item.kind, item.listed


def _kept(known: tuple[Item, Tool] | None, item: Item) -> tuple[Item, Tool]:
    """What stands for an item in the index; the same object while the item says the same."""
    if known is not None and known[0] == item:
        return known
    return item, _stand_in(item)


def _stand_in(item: Item) -> Tool:
    """An item in the form in which the index reads tools."""
    properties = {argument["name"]: {"description": argument.get("description")} for argument in _declared(item)}
    return Tool(
        id=ToolId(item.server, f"{item.kind} {item.original}"),
        handle=item.listed,
        listed=item.listed,
        title=_text(item, "title") or _text(item, "name"),
        description=told_of(item),
        input_schema={"properties": properties},
        definition=item.definition,
        effect=Effect.READ,
    )


NAMED = 2  # items that are named beside tools that answer a query
SHOWN = 5  # items that are shown where no tool does
_ITEM_FILTERS = {"server"}  # the filters of a query that items can pass


@dataclass(slots=True, kw_only=True)
class ItemSearch:
    """The items of the current snapshot that the profile offers, within the servers that a caller sees."""

    provider_of: Callable[[str], Provider]
    profile: Profile = OPEN
    entries: ItemIndex = field(default_factory=ItemIndex)
    _offered: WeakKeyDictionary[CatalogSnapshot, Items] = field(default_factory=WeakKeyDictionary)

    def items(self, snapshot: CatalogSnapshot) -> Items:
        """The prompts, resources, templates and documents that are offered, sorted out once per snapshot."""
        if snapshot not in self._offered:
            self._offered[snapshot] = offered_items(self.profile, snapshot.items)
        return self._offered[snapshot]

    def resource(self, snapshot: CatalogSnapshot, uri: str) -> Item:
        """The resource of a URI, listed or given by a template.

        Raises:
            UnknownItem: there is none, or the profile does not offer it.
        """
        item = self.items(snapshot).resource(uri)
        if item.kind is not ItemKind.DOCUMENT and not self.profile.permits_resource(item.original):
            raise UnknownItem(uri, details=("no resource of that name",))
        return item

    def find(self, snapshot: CatalogSnapshot, spelling: str, servers: Set[str]) -> Item | None:
        """The item that is spelled so; what a server says of itself is told to those who see something of it."""
        item = self.items(snapshot).find(spelling)
        is_hidden = item is not None and item.kind is ItemKind.DOCUMENT and item.server not in servers
        return None if is_hidden else item

    def search(self, snapshot: CatalogSnapshot, query: Query, servers: Set[str], limit: int) -> list[FoundItem]:
        """The items that answer a query, best first; filters that only tools can pass leave none."""
        if query.cursor or set(query.filters) - _ITEM_FILTERS:
            return []
        items = self.items(snapshot)
        allowed = servers | {item.server for item in items.all if item.kind is not ItemKind.DOCUMENT}
        if query.server:
            allowed = {name for name in allowed if _is_called(snapshot, name, query.server)}
        return self.entries.search(items, query.text, allowed, limit)

    async def read(
        self, snapshot: CatalogSnapshot, call: Call, servers: Set[str], caller: Caller | None = None
    ) -> Result:
        """A resource or prompt as the result of a tool.

        Raises:
            InvalidArguments: the call does not say what to read.
            CallError: there is no such item, or its server does not give it.
        """
        item = self._wanted(snapshot, call, servers)
        if item.kind is ItemKind.DOCUMENT:
            return Result(document_result(item))
        own = call.arguments.get("arguments")
        arguments: Mapping[str, Any] = own if isinstance(own, Mapping) else {}
        missing = [name for name in _required(item) if name not in arguments]
        if missing:
            details = [f"missing: {name} (string)" for name in missing]
            raise InvalidArguments(item.listed, details=details, next_call=reading_call(item))
        return Result(await read_item(self.provider_of(item.server), item, arguments, caller))

    def _wanted(self, snapshot: CatalogSnapshot, call: Call, servers: Set[str]) -> Item:
        items = self.items(snapshot)
        key = "name" if call.tool == GET_PROMPT else "uri"
        spelling = call.arguments.get(key)
        if not isinstance(spelling, str) or not spelling:
            example = NextCall("search", {"query": ""})
            raise InvalidArguments(call.tool, details=(f"missing: {key} (string)",), next_call=example)
        item = items.prompt(spelling) if call.tool == GET_PROMPT else self.resource(snapshot, spelling)
        if item.kind is ItemKind.DOCUMENT and item.server not in servers:
            raise UnknownItem(spelling, details=("no resource of that name",))
        return item


def offered_items(profile: Profile, items: Items) -> Items:
    """Those prompts, resources and templates of a snapshot that a profile offers; the same object if all are."""
    if profile.prompt is None and profile.resource is None and profile.servers is None:
        return items

    def used(some: Iterable[Item], permits: Callable[[str], bool]) -> tuple[Item, ...]:
        return tuple(item for item in some if profile.permits_server(item.server) and permits(item.original))

    return replace(
        items,
        prompts=used(items.prompts, profile.permits_prompt),
        resources=used(items.resources, profile.permits_resource),
        templates=used(items.templates, profile.permits_resource),
        documents=used(items.documents, lambda uri: True),
    )


PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    READ_RESOURCE: {"uri": {"type": "string"}},
    GET_PROMPT: {"name": {"type": "string"}, "arguments": {"type": "object"}},
}
"""What the calls take that read an item; a server's tool of such a name is called by its handle."""


def _is_called(snapshot: CatalogSnapshot, server: str, wanted: str) -> bool:
    known = snapshot.servers.get(server)
    return wanted.casefold() in (server.casefold(), known.identifier.casefold() if known else "")


def _required(item: Item) -> list[str]:
    call = reading_call(item) if item.kind is ItemKind.PROMPT else NextCall("call")
    return list(call.parameters.get("arguments", {}).get("arguments", {}))
