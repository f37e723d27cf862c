"""The map of servers and categories, and what is said where no tool fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from portico.catalog.categories_and_order import unwritten
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import Facets
from portico.domain.search_answers import Disclosure, Query
from portico.domain.server import Server
from portico.domain.tool import Category, Tool
from portico.errors import NextCall
from portico.protocols import TokenCounter
from portico.text.untrusted import one_line

from .budget import Spell, Variants, fit

QUOTED_LENGTH = 100
SUBJECT_NAMES = 12  # tools of a server that are named where a query is about it
MAP_MARGIN = 50  # tokens that are left for each tool that is named before the map
_LAST_LINE = 10  # tokens of the line that counts what is withheld


def map_answer(
    hot: Sequence[Variants], ways: str, lines: Sequence[str], tokens: int, counter: TokenCounter
) -> Disclosure:
    """The hot tools with their places, the ways on from there, and the map below them."""
    cards = [card.edit(f"{place}. {{}}".format) for place, card in enumerate(hot, 1)]
    lines = [ways, *lines] if cards else lines
    map_ = fit_lines(lines, max(tokens // 2, tokens - MAP_MARGIN * len(cards)), counter)
    return replace(fit(cards, tokens=tokens, counter=counter, tail=map_), next="")


def nothing_answer(lines: Sequence[str], tokens: int, counter: TokenCounter) -> Disclosure:
    """The answer where nothing fits: these lines, as far as there is room."""
    text = fit_lines(lines, tokens, counter)
    return replace(fit((), tokens=tokens, counter=counter, tail=text), next="", fits=False)


def ways_on(facets: Facets, spell: Spell) -> str:
    """The next calls when none of the tools named first is the right one."""
    browse, by = ("browse by category", "category") if _has_categories(facets) else ("browse a server", "server")
    group, words = NextCall("search", {"query": "", by: "..."}), NextCall("search", {"query": "..."})
    return f"{browse}: {spell(group)}, or search by intent: {spell(words)}"


def map_lines(
    snapshot: CatalogSnapshot, facets: Facets, known: Mapping[str, Category], unavailable: Iterable[str] = ()
) -> list[str]:
    """Every category and every server with the number of tools that a caller sees there."""
    lines = [f"{_count(sum(facets.servers.values()), 'tool')} on {_count(len(facets.servers), 'server')}."]
    if _has_categories(facets):
        found = [known.get(name) or unwritten(name) for name in facets.categories]
        for category in sorted(found, key=lambda category: (category.order, category.name)):
            title = "" if category.title.casefold() == category.name.casefold() else f": {category.title}"
            tools = _count(facets.categories[category.name], "tool")
            lines.append(f"📁 {one_line(category.name + title)} ({tools})")
    if missing := ", ".join(unavailable):
        lines.append(f"not available: {missing}")
    lines.append("servers:")
    for name, count in facets.servers.items():
        server = snapshot.servers[name]
        about = one_line((server.description or server.title or "").strip().split("\n", 1)[0])[:80]
        about = "" if about.casefold() == name.casefold() else about
        lines.append(f"- {server.identifier} ({count})" + (f": {about}" if about else ""))
    return lines


def _has_categories(facets: Facets) -> bool:
    return bool(facets.categories) and set(facets.categories) != {"misc"}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nothing_lines(query: Query, nearest: Sequence[str], spell: Spell, unmatched: Sequence[str] = ()) -> list[str]:
    """That no tool fits, which words none has, what is nearest, and what to try next."""
    chosen = ", ".join(_filter_words(name, value) for name, value in query.filters.items())
    if not query.text.strip():
        lines = [f"no tool has all of this: {chosen}"]
    else:
        lines = [f"no tool fits {query.text[:QUOTED_LENGTH]!r}" + (f" with {chosen}" if chosen else "")]
    if nearest:
        lines.append("nearest: " + ", ".join(nearest))
        lines += [none_mentions(unmatched)] if unmatched and query.text.strip() else []
    if chosen:
        wider = NextCall("search", {"query": query.text[:QUOTED_LENGTH]})
        lines.append(f"next: fewer filters: {spell(wider)}")
    else:
        server = NextCall("search", {"query": "", "server": "..."})
        lines.append(f"next: other words for one thing to do, or all of a server: {spell(server)}")
    return lines


def doubt_line(unmatched: Sequence[str]) -> str:
    """That the hits below may not do what was asked for, and which words of the query none of them has."""
    return "; ".join(filter(None, ("weak matches, read them before a call", none_mentions(unmatched))))


def none_mentions(unmatched: Sequence[str]) -> str:
    """The words of a query that no tool has."""
    return f"none mentions {', '.join(unmatched)}" if unmatched else ""


def server_lines(server: Server, tools: Sequence[Tool], spell: Spell) -> list[str]:
    """What a server has, for a query that is about the server and not about one thing to do."""
    names = ", ".join(tool.handle.partition(".")[2] for tool in tools[:SUBJECT_NAMES])
    more = f", +{len(tools) - SUBJECT_NAMES}" if len(tools) > SUBJECT_NAMES else ""
    call = NextCall("search", {"query": "", "server": server.identifier})
    return [f"{server.identifier} has {_count(len(tools), 'tool')}: {names}{more}", f"all of them: {spell(call)}"]


def _filter_words(name: str, value: object) -> str:
    if isinstance(value, bool):
        return name
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {str(value)[:QUOTED_LENGTH]}"


def fit_lines(lines: Sequence[str], tokens: int, counter: TokenCounter) -> str:
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


def _cut(line: str, room: int, counter: TokenCounter) -> str:
    """The beginning of a list that fits, with the number of parts that do not; nothing when not one part fits."""
    parts = line.split(", ")

    def text(shown: int) -> str:
        return f"{', '.join(parts[:shown])} and {len(parts) - shown} more"

    shown = bisect_left(range(1, len(parts)), True, key=lambda number: counter.count(text(number)) >= room)
    return text(shown) if shown else ""
