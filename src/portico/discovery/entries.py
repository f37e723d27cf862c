"""Prompts, resources and documents are found by the same search as tools, and shown as far as they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from portico.domain.disclosure import Level
from portico.domain.items import Item, Items, Kind
from portico.domain.tool import Effect, Tool, ToolId
from portico.errors import NextCall
from portico.fencing import fence, one_line

from .budgets import Rungs, Texts
from .index import ToolIndex, index_tools
from .sentences import first_sentence
from .spelling import Spell

READ_RESOURCE, GET_PROMPT = "read_resource", "get_prompt"
"""What an agent calls to read an item, by `call_tool` or straight; no surface lists them."""
INDEXED = 5_000
"""Items that are read for the search; those beyond are listed and not found by words."""
LINE_LENGTH = 120
"""Characters of an item's description on one line."""
TEXT_LENGTH = 20_000
"""Characters of a document that are shown."""
WORTH = 0.5
"""The share of the best tool's score that an item needs to be named beside tools."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Found:
    """An item that answers a query."""

    item: Item
    score: float


@dataclass(slots=True)
class Entries:
    """Finds items by what they say; what was read of an item is kept while it stays the same."""

    _items: Items | None = None
    _index: ToolIndex | None = None
    _read: dict[Key, tuple[Item, Tool]] = field(default_factory=dict)

    def search(self, items: Items, text: str, servers: Set[str], limit: int) -> list[Found]:
        """The items of some servers that answer a query, best first; none when nothing does."""
        if not text.strip() or not items.all:
            return []
        index = self._of(items)
        found = index.query(text, within=self._within(servers), limit=limit)
        by_id = {tool.id: item for item, tool in self._read.values()}
        return [Found(by_id[hit.tool.id], hit.score) for hit in found.hits] if found.fits else []

    def _of(self, items: Items) -> ToolIndex:
        if self._index is None or items is not self._items:
            known = self._read
            self._read = {_key(item): _kept(known.get(_key(item)), item) for item in items.all[:INDEXED]}
            self._index = index_tools([tool for _, tool in self._read.values()], self._index)
            self._items = items
        return self._index

    def _within(self, servers: Set[str]) -> frozenset[ToolId]:
        return frozenset(tool.id for item, tool in self._read.values() if item.server in servers)


def worth_naming(found: Iterable[Found], best: float) -> list[Item]:
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
    arguments = f"({', '.join(_arguments(item))})" if item.kind is Kind.PROMPT else ""
    about = first_sentence(told_of(item), LINE_LENGTH)
    return f"[{item.kind}] {item.listed}{arguments} {about}".rstrip()


def entry_card(item: Item, spell: Spell) -> Rungs:
    """An item in full, down to its bare spelling."""
    texts: list[tuple[Level, Callable[[], str]]] = [
        (Level.FULL, lambda: _whole(item, spell)),
        (Level.SUMMARY, lambda: entry_line(item)),
        (Level.NAME, lambda: item.listed),
    ]
    return Rungs(handle=item.listed, texts=Texts(texts))


def reading_call(item: Item) -> NextCall:
    """The call that reads an item."""
    if item.kind is Kind.PROMPT:
        wanted = {argument["name"]: "..." for argument in _declared(item) if argument.get("required")}
        own = {"name": item.listed, **({"arguments": wanted} if wanted else {})}
        return NextCall("call", {"name": GET_PROMPT, "arguments": own})
    return NextCall("call", {"name": READ_RESOURCE, "arguments": {"uri": item.listed}})


def _whole(item: Item, spell: Spell) -> str:
    lines = [f"## {item.listed} [{item.kind}]", fence(told_of(item))]
    if item.kind is Kind.DOCUMENT:
        return "\n".join(lines)  # the document itself
    lines += [_argument_line(argument) for argument in _declared(item)]
    facts = (item.definition.get("mimeType"), _size(item.definition.get("size")))
    told = fence(", ".join(one_line(fact) for fact in facts if isinstance(fact, str) and fact))
    lines += [told, f"read: {spell(reading_call(item))}"]
    return "\n".join(line for line in lines if line)


def told_of(item: Item) -> str:
    """The words of an item: title and description, or the text of a document."""
    if item.kind is Kind.DOCUMENT:
        return str(item.definition.get("text", ""))[:TEXT_LENGTH]
    title, description = _text(item, "title") or _own_name(item), _text(item, "description")
    return f"{title}: {description}" if title and description else title or description


def _own_name(item: Item) -> str:
    """The name of a resource, which is not in its URI; a prompt's is its spelling."""
    return "" if item.kind is Kind.PROMPT else _text(item, "name")


def _arguments(item: Item) -> list[str]:
    return [one_line(argument["name"]) + ("" if argument.get("required") else "?") for argument in _declared(item)]


def _argument_line(argument: Mapping[str, Any]) -> str:
    about = argument.get("description")
    needed = "required" if argument.get("required") else "optional"
    said = f": {one_line(about)}" if isinstance(about, str) and about.strip() else ""
    return f"- {one_line(argument['name'])} ({needed}){said}"


def _declared(item: Item) -> list[Mapping[str, Any]]:
    """A prompt's arguments, as far as they can be understood."""
    found = item.definition.get("arguments")
    declared = found if item.kind is Kind.PROMPT and isinstance(found, list) else []
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
