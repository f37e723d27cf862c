"""The map of servers and categories, pages of hits, and what is said where no tool fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from portico.domain.disclosure import Budget, Disclosure, Hit, Level, Query
from portico.domain.foreign_text import one_line
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Category, Tool, ToolId, unwritten
from portico.domain.usage import Usage
from portico.errors import NextCall
from portico.protocols import TokenCounter
from portico.search.filters import Facets
from portico.search.index import settle

from .budget import Variants, fit
from .cards import Spell, variants_of
from .json_forms import performance_words

REPEATED_LENGTH = 200
"""A query up to this length is repeated in the call for the next page."""
LONGEST_PAGE = 50
STRANGE_CURSOR = "(the cursor is not of this list of tools, which may have changed: this is its beginning)"


@dataclass(frozen=True, slots=True, kw_only=True)
class HitPage:
    """One page of a list, as it is shown."""

    disclosure: Disclosure
    hits: Sequence[Hit]
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HitList:
    """A list of hits, and what its pages are made with."""

    query: Query
    hits: Sequence[Hit]
    usage: Mapping[ToolId, Usage]
    counter: TokenCounter
    spell: Spell
    beside: Sequence[str] = ()
    """Lines that follow the tools of a page."""

    def page(self, budget: Budget) -> HitPage:
        """The tools from the cursor on, as many as fit; the next page begins with the first that did not.

        Which tools are on a page is settled without usage, so that no call between two pages moves a tool across.
        """
        mark = mark_of(self.hits)
        start = start_of(self.query.cursor, mark, len(self.hits))
        size = max(1, min(budget.cards, LONGEST_PAGE))
        while True:
            hits = settle(self.hits[start : start + size], self.usage)
            left = len(self.hits) - start - len(hits)
            more = [more_line(self.query, f"{start + len(hits)}:{mark}", left, self.spell)] if left > 0 else []
            disclosure = fit(
                [self._line(hit.tool) for hit in hits],
                tokens=budget.tokens,
                counter=self.counter,
                head=STRANGE_CURSOR if self.query.cursor and not start else "",
                tail="\n".join([*self.beside, *more]),
                total=len(self.hits) - start,
            )
            if disclosure.shown == len(hits):
                return HitPage(disclosure=disclosure, hits=hits, start=start)
            size = disclosure.shown

    def _line(self, tool: Tool) -> Variants:
        """A tool as one line; whoever asks for fast or good ones is told how it has done."""
        card = variants_of(tool, Level.PARAMETERS)
        if not self.query.max_latency_ms and not self.query.min_success:
            return card
        words = performance_words(self.usage.get(tool.id))
        return replace(card, texts=[(level, f"{text} {words}") for level, text in card.texts])


def mark_of(found: Sequence[Hit]) -> str:
    """Six characters that tell one list of tools from another, whatever made it another."""
    return f"{crc32(' '.join(hit.handle for hit in found).encode()) & 0xFFFFFF:06x}"


def start_of(cursor: str, mark: str, total: int) -> int:
    """Where a page starts; a cursor that was not given out for this very list starts at the beginning."""
    offset, _, marked = cursor.partition(":")
    is_ours = marked == mark and offset.isascii() and offset.isdigit() and len(offset) < 10
    return int(offset) if is_ours and int(offset) < total else 0


def more_line(query: Query, cursor: str, left: int, spell: Spell) -> str:
    """How many are left, and the call that shows them."""
    if len(query.text) > REPEATED_LENGTH:
        return f'{left} more: the same search with "cursor": "{cursor}"'
    limit = {"limit": query.limit} if query.limit else {}
    call = NextCall("search", {"query": query.text, **query.filters, **limit, "cursor": cursor})
    return f"{left} more: {spell(call)}"


def worded(query: Query) -> str:
    """A query on one line, filters included."""
    filters = "&".join(f"{name}={value}" for name, value in query.filters.items())
    return " ".join(part for part in (query.text.strip(), filters) if part)


QUOTED_LENGTH = 100
MAP_MARGIN = 50
"""Tokens that are left for each tool that is named before the map."""
_LAST_LINE = 10
"""Tokens of the line that counts what is withheld."""


def map_answer(
    hot: Sequence[Variants], ways: str, lines: Sequence[str], tokens: int, counter: TokenCounter
) -> Disclosure:
    """The hot tools, the ways on from there, and the map below them."""
    cards = [_numbered(place, card) for place, card in enumerate(hot, 1)]
    lines = [ways, *lines] if cards else lines
    map_ = fitted(lines, max(tokens // 2, tokens - MAP_MARGIN * len(cards)), counter)
    return replace(fit(cards, tokens=tokens, counter=counter, tail=map_), next="")


def nothing_answer(lines: Sequence[str], tokens: int, counter: TokenCounter) -> Disclosure:
    """What is said where nothing fits: these lines, as far as there is room."""
    text = fitted(lines, tokens, counter)
    return replace(fit((), tokens=tokens, counter=counter, tail=text), next="", fits=False)


def _numbered(place: int, card: Variants) -> Variants:
    """A card with its place in the list before each of its texts."""
    return replace(card, texts=[(level, f"{place}. {text}") for level, text in card.texts])


def ways_on(facets: Facets, spell: Spell) -> str:
    """What to do when none of the tools named first is the right one."""
    browse, by = ("browse by category", "category") if _has_shelves(facets) else ("browse a server", "server")
    shelf, words = NextCall("search", {"query": "", by: "..."}), NextCall("search", {"query": "..."})
    return f"{browse}: {spell(shelf)}, or search by intent: {spell(words)}"


def map_lines(
    snapshot: CatalogSnapshot, facets: Facets, known: Mapping[str, Category], unavailable: Iterable[str] = ()
) -> list[str]:
    """Every category and every server with the number of tools that a caller sees there."""
    lines = [f"{_counted(sum(facets.servers.values()), 'tool')} on {_counted(len(facets.servers), 'server')}."]
    if _has_shelves(facets):
        shelves = sorted((known.get(name) or unwritten(name) for name in facets.categories), key=_place)
        lines += [_shelf_line(shelf, facets.categories[shelf.name]) for shelf in shelves]
    if missing := ", ".join(unavailable):
        lines.append(f"not available: {missing}")
    lines.append("servers:")
    for name, count in facets.servers.items():
        server = snapshot.servers[name]
        about = one_line((server.description or server.title or "").strip().split("\n", 1)[0])[:80]
        about = "" if about.casefold() == name.casefold() else about
        lines.append(f"- {server.identifier} ({count})" + (f": {about}" if about else ""))
    return lines


def _has_shelves(facets: Facets) -> bool:
    return bool(facets.categories) and set(facets.categories) != {"misc"}


def _place(category: Category) -> tuple[int, str]:
    return category.order, category.name


def _shelf_line(category: Category, count: int) -> str:
    title = "" if category.title.casefold() == category.name.casefold() else f": {category.title}"
    return f"📁 {one_line(category.name + title)} ({_counted(count, 'tool')})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nothing_lines(query: Query, nearest: Sequence[str], spell: Spell) -> list[str]:
    """That no tool fits, what is nearest, and what to try next."""
    chosen = ", ".join(_worded(name, value) for name, value in query.filters.items())
    if not query.text.strip():
        lines = [f"no tool has all of this: {chosen}"]
    else:
        lines = [f"no tool fits {query.text[:QUOTED_LENGTH]!r}" + (f" with {chosen}" if chosen else "")]
    if nearest:
        lines.append("nearest: " + ", ".join(nearest))
    if chosen:
        wider = NextCall("search", {"query": query.text[:QUOTED_LENGTH]})
        return [*lines, f"next: fewer filters: {spell(wider)}"]
    shelf = NextCall("search", {"query": "", "server": "..."})
    return [*lines, f"next: other words for one thing to do, or all of a server: {spell(shelf)}"]


def fitted(lines: Sequence[str], tokens: int, counter: TokenCounter) -> str:
    """As many lines as fit, a long one cut at a comma; the rest are counted."""
    shown: list[str] = []
    room = tokens - _LAST_LINE
    for line in lines:
        cost = counter.count(line) + 1
        if cost > room:
            cut = "" if line.startswith("- ") else _cut(line, room, counter)
            shown += [cut] if cut else []
            break
        shown.append(line)
        room -= cost
    left = len(lines) - len(shown)
    return "\n".join([*shown, f"({left} more lines withheld)"] if left else shown)


def _worded(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {str(value)[:QUOTED_LENGTH]}"


def _cut(line: str, room: int, counter: TokenCounter) -> str:
    """The beginning of a list that fits, with the number of parts that do not; nothing when not one part fits."""
    parts = line.split(", ")
    low, high = 0, len(parts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        text = f"{', '.join(parts[:middle])} and {len(parts) - middle} more"
        low, high = (middle, high) if counter.count(text) < room else (low, middle - 1)
    return f"{', '.join(parts[:low])} and {len(parts) - low} more" if low else ""
