"""The inventory of all tools by category, as JSON that fits its budget and says what it left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import orjson

from portico.domain.disclosure import Card, Level
from portico.domain.tool import Category, Tool, unwritten
from portico.protocols import TokenCounter
from portico.rendering.budget import Rungs, fair, fill, fit
from portico.rendering.catalog_map import start_of
from portico.rendering.json_forms import Json, Make, forms
from portico.rendering.next_call import spelled
from portico.rendering.summaries import first_sentence

CAPABILITIES, TOOL_SCHEMA = "capabilities", "tool_schema"
"""What the two tools of the surface are called, behind the prefix."""
BUDGET = 500
"""Tokens of an inventory unless the config says otherwise."""
LINE_LENGTH, SHORT_LENGTH, EXAMPLE_LENGTH = 100, 40, 60
"""Characters of a description, of a shortened one, and of an example prompt."""
SOME_NAMES = (24, 12, 4)
"""Tools that are named, as many as there is room for, where there is none for all names of a category."""
SMALLEST_ITEM = 2
"""Tokens below which nothing can be shown of anything."""
ATTEMPTS = 8
STRANGE_CURSOR = "the cursor is not of this list, which may have changed: this is its beginning"

PRESET: Mapping[str, Category] = {
    name: Category(name=name, description=says, order=200 + place)
    for place, (name, says) in enumerate(
        (
            ("query", "Find and filter data"),
            ("explore", "Look at structure and details"),
            ("transcript", "Read and search transcripts"),
            ("mutate", "Create and change data"),
            ("system", "Maintenance and discovery"),
        )
    )
}
"""Categories that say what they are for without anybody having written it down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A tool in the inventory: the name that calls it, one line, and a short prompt where its server gives one.

    Texts are cut when they are shown: most of those of a large catalog never are.
    """

    name: str
    description: str
    example: str = ""

    def as_data(self, length: int = LINE_LENGTH, *, example: bool = False) -> Json:
        """The summary ready for JSON, its line cut to so many characters; with none, the name alone."""
        line = first_sentence(self.description, length) if length else ""
        prompt = first_sentence(self.example, EXAMPLE_LENGTH) if example else ""
        told = {"name": self.name, "description": line} if line else {"name": self.name}
        return {**told, "example": prompt} if prompt else told


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """A category with the tools that stand on it."""

    category: Category
    tools: tuple[Summary, ...]

    @property
    def name(self) -> str:
        """The category's name."""
        return self.category.name

    @property
    def heading(self) -> Json:
        """Name and description."""
        return {"name": self.name, "description": first_sentence(self.category.description, LINE_LENGTH)}

    def is_crowded(self, tokens: int, start: int = 0) -> bool:
        """Whether so many tokens can never name all of its tools from a place on."""
        return SMALLEST_ITEM * (len(self.tools) - start) > tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as it is sent, and what it costs and shows."""

    text: str
    tokens: int
    shown: int = 1
    """Tools that it names."""
    total: int = 1

    @property
    def body(self) -> bytes:
        """The bytes of the answer."""
        return self.text.encode()

    def as_data(self) -> Json:
        """The answer as data of its own, which may be changed."""
        found: Json = orjson.loads(self.text)
        return found


def summarise(tool: Tool, name: str) -> Summary:
    """A tool as the inventory tells it, under the name that calls it."""
    return Summary(name=name, description=tool.description or tool.title, example=tool.example)


def shelve(tools: Iterable[tuple[str, Summary]], known: Mapping[str, Category]) -> tuple[Shelf, ...]:
    """Summaries, each with the name of its category, as shelves in the order of the categories."""
    found: dict[str, list[Summary]] = {}
    for name, summary in tools:
        found.setdefault(name, []).append(summary)
    categories = sorted(
        (known.get(name) or unwritten(name) for name in found), key=lambda category: (category.order, category.name)
    )
    return tuple(Shelf(category=category, tools=tuple(found[category.name])) for category in categories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that one caller may call in one edition."""

    version: str
    shelves: tuple[Shelf, ...]
    quick_actions: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def names(self) -> list[str]:
        """Every tool by name, in the order of the inventory."""
        return [tool.name for shelf in self.shelves for tool in shelf.tools]

    def whole(self, cursor: str, tokens: int, counter: TokenCounter) -> Answer:
        """The inventory from the cursor on, category by category."""
        mark = _mark(shelf.name for shelf in self.shelves)
        start = start_of(cursor, mark, len(self.shelves))
        frame = _Frame(
            head=f'{{"version":{_json(self.version)},"categories":[',
            close="]",
            items=[_shelf_rungs(shelf, tokens) for shelf in self.shelves[start:]],
            total=len(self.names),
            more=lambda shown: self._call({"cursor": f"{start + shown}:{mark}"}),
            closer=lambda handle: self._call({"category": handle}),
            note=STRANGE_CURSOR if cursor and not start else "",
            is_part=start > 0 or any(shelf.is_crowded(tokens) for shelf in self.shelves),
        )
        return _fitted(frame, self.quick_actions, tokens, counter) or _emptied(frame, counter)

    def shelf(self, name: str, cursor: str, tokens: int, counter: TokenCounter) -> Answer:
        """One category of the inventory: every tool in as much detail as fits, or names page by page."""
        shelf = next(shelf for shelf in self.shelves if shelf.name == name)
        mark = _mark(tool.name for tool in shelf.tools)
        start = start_of(cursor, mark, len(shelf.tools))

        def frame(field: str, rungs: Callable[[Summary], Rungs], *, is_paged: bool) -> _Frame:
            return _Frame(
                head=f'{{"version":{_json(self.version)},"categories":[{_json(shelf.heading)[:-1]},"{field}":[',
                close="]}]",
                items=[rungs(tool) for tool in shelf.tools[start:]],
                total=len(shelf.tools),
                more=lambda shown: self._call({"category": name, "cursor": f"{start + shown}:{mark}"}),
                closer=lambda handle: spelled(f"{self.prefix}{TOOL_SCHEMA}", {"tool": handle}),
                note=STRANGE_CURSOR if cursor and not start else "",
                is_part=is_paged or start > 0,
                is_paged=is_paged,
            )

        told, named = frame("tools", _tool_rungs, is_paged=False), frame("names", _name_rungs, is_paged=True)
        is_crowded = shelf.is_crowded(tokens, start)
        found = None if is_crowded else _fitted(told, self.quick_actions, tokens, counter)
        return found or _fitted(named, self.quick_actions, tokens, counter) or _emptied(named, counter)

    def _call(self, arguments: Mapping[str, Any]) -> str:
        return spelled(f"{self.prefix}{CAPABILITIES}", arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The items of an answer, and what stands around them."""

    head: str
    close: str
    items: Sequence[Rungs]
    total: int
    """Tools on all pages."""
    more: Callable[[int], str]
    """The call for the next page, after so many items."""
    closer: Callable[[str], str]
    """The call that shows one item in more detail."""
    note: str = ""
    is_part: bool = False
    """Whether something is left out even when every item is shown in full."""
    is_paged: bool = True
    """Whether items may be left for the next page."""

    def text(self, cards: Sequence[Card], quick: Sequence[str], *, is_whole: bool = False, points: bool = True) -> str:
        """The answer with these cards; one that is not whole says so, and points to the rest."""
        told: Json = {"quickActions": list(quick)}
        if not is_whole:
            told |= {"truncated": True, "shown": sum(map(_named, cards)), "total": self.total}
            told |= {"next": self._ahead(cards)} if points and cards else {}
        told |= {"note": self.note} if self.note else {}
        return f"{self.head}{','.join(card.text for card in cards)}{self.close},{_json(told)[1:]}"

    def _ahead(self, cards: Sequence[Card]) -> str:
        if len(cards) < len(self.items):
            return self.more(len(cards))
        pairs = zip(cards, self.items, strict=True)
        short = (card.handle for card, item in pairs if card.text != item.card(0).text or _counts(card))
        return self.closer(next(short, cards[0].handle))


def _fitted(frame: _Frame, quick: Sequence[str], tokens: int, counter: TokenCounter) -> Answer | None:
    """The answer with every item as fully as the tokens allow; None when it cannot be had in this frame.

    Quick actions give way before the last item does, and then the call for the rest.
    """
    if not frame.is_part:
        cards = [item.card(0) for item in frame.items]
        whole = _answer(frame, frame.text(cards, quick, is_whole=True), cards, counter)
        if whole.tokens <= tokens:
            return whole
    drafts = ((quick, True), ((), True), ((), False))
    return next(filter(None, (_squeezed(frame, *draft, tokens, counter) for draft in drafts)), None)


def _squeezed(frame: _Frame, quick: Sequence[str], points: bool, tokens: int, counter: TokenCounter) -> Answer | None:
    items = frame.items[: tokens // SMALLEST_ITEM]  # more can never be shown, and each costs time
    room = tokens - counter.count(frame.text((), quick))
    for _ in range(ATTEMPTS):
        cards = fit(fair(items, room, counter), tokens=room, counter=counter, separator=",").cards if room > 0 else ()
        cards = tuple(fill(items, cards, room, counter))
        if not cards or (len(cards) < len(frame.items) and not frame.is_paged):
            return None
        found = _answer(frame, frame.text(cards, quick, points=points), cards, counter)
        if found.tokens <= tokens:
            return found
        room -= found.tokens - tokens
    return None


def _emptied(frame: _Frame, counter: TokenCounter) -> Answer:
    """The answer without any item: nothing but counts."""
    return _answer(frame, frame.text((), ()), (), counter)


def _answer(frame: _Frame, text: str, cards: Sequence[Card], counter: TokenCounter) -> Answer:
    return Answer(text=text, tokens=counter.count(text), shown=sum(map(_named, cards)), total=frame.total)


def _shelf_rungs(shelf: Shelf, tokens: int) -> Rungs:
    """A category: all of it, without examples, with short lines, with names, with some of them, and counted.

    What can never fit is not even tried: to count the tokens of thousands of tools takes a second.
    """
    name, tools, count = {"name": shelf.name}, shelf.tools, {"count": len(shelf.tools)}

    def some(most: int) -> Make:
        return lambda: {**shelf.heading, "names": [tool.name for tool in tools[:most]], **count}

    every: list[Make] = [
        lambda: {**shelf.heading, "tools": [tool.as_data(example=True) for tool in tools]},
        lambda: {**shelf.heading, "tools": [tool.as_data() for tool in tools]},
        lambda: {**shelf.heading, "tools": [tool.as_data(SHORT_LENGTH) for tool in tools]},
        lambda: {**shelf.heading, "names": [tool.name for tool in tools]},
    ]
    makes: list[Make] = [
        *([] if shelf.is_crowded(tokens) else every),
        *(some(most) for most in SOME_NAMES if most < len(tools)),
        lambda: {**shelf.heading, **count},
        lambda: {**name, **count},
    ]
    return Rungs(handle=shelf.name, texts=forms(makes))


def _tool_rungs(tool: Summary) -> Rungs:
    makes = [
        lambda: tool.as_data(example=True),
        lambda: tool.as_data(),
        lambda: tool.as_data(SHORT_LENGTH),
        lambda: tool.as_data(0),
    ]
    return Rungs(handle=tool.name, texts=forms(makes))


def _name_rungs(tool: Summary) -> Rungs:
    return Rungs(handle=tool.name, texts=((Level.NAME, _json(tool.name)),))


def _counts(card: Card) -> bool:
    """Whether a card says how many tools there are because it does not name them all."""
    told = orjson.loads(card.text)
    return isinstance(told, dict) and "count" in told


def _named(card: Card) -> int:
    """How many tools a card names: those of a category, or the one that it is about."""
    told = orjson.loads(card.text)
    if not isinstance(told, dict) or not told.keys() & {"tools", "names", "count"}:
        return 1
    return len(told.get("tools") or told.get("names") or ())


def _mark(names: Iterable[str]) -> str:
    """Six characters that tell one list from another, whatever made it another."""
    return f"{crc32(' '.join(names).encode()) & 0xFFFFFF:06x}"


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
