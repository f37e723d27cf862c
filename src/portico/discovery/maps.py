"""The map of servers and categories, and what is said where no tool fits; both within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from portico.domain.category import Category, unwritten
from portico.domain.disclosure import Disclosure
from portico.domain.edition import Edition
from portico.domain.query import Query
from portico.errors import NextCall
from portico.fencing import one_line
from portico.ports import TokenCounter

from .budgets import Rungs, fit
from .filters import Facets
from .spelling import Spell

QUOTED_LENGTH = 100
MAP_MARGIN = 50
"""Tokens that are left for each tool that is named before the map."""
_LAST_LINE = 10
"""Tokens of the line that counts what is withheld."""


def map_answer(hot: Sequence[Rungs], ways: str, lines: Sequence[str], tokens: int, counter: TokenCounter) -> Disclosure:
    """The hot tools, the ways on from there, and the map below them."""
    cards = [_numbered(place, card) for place, card in enumerate(hot, 1)]
    lines = [ways, *lines] if cards else lines
    map_ = fitted(lines, max(tokens // 2, tokens - MAP_MARGIN * len(cards)), counter)
    return replace(fit(cards, tokens=tokens, counter=counter, tail=map_), next="")


def nothing_answer(lines: Sequence[str], tokens: int, counter: TokenCounter) -> Disclosure:
    """What is said where nothing fits: these lines, as far as there is room."""
    text = fitted(lines, tokens, counter)
    return replace(fit((), tokens=tokens, counter=counter, tail=text), next="", fits=False)


def _numbered(place: int, card: Rungs) -> Rungs:
    """A card with its place in the list before each of its texts."""
    return replace(card, texts=[(level, f"{place}. {text}") for level, text in card.texts])


def ways_on(facets: Facets, spell: Spell) -> str:
    """What to do when none of the tools named first is the right one."""
    browse, by = ("browse by category", "category") if _has_shelves(facets) else ("browse a server", "server")
    shelf, words = NextCall("search", {"query": "", by: "..."}), NextCall("search", {"query": "..."})
    return f"{browse}: {spell(shelf)}, or search by intent: {spell(words)}"


def map_lines(
    edition: Edition, facets: Facets, known: Mapping[str, Category], unavailable: Iterable[str] = ()
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
        server = edition.servers[name]
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
