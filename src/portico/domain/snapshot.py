"""One immutable snapshot of the catalog: a section for each server, and the one resolver of names."""

from __future__ import annotations

import difflib
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush, merge
from itertools import chain, count, islice
from math import ceil, floor
from operator import add, attrgetter
from sys import intern
from typing import NamedTuple
from urllib.parse import unquote

from portico.errors import AmbiguousTool, NextCall, UnknownTool

from .foreign_text import skeleton
from .items import Items
from .server import Server
from .tool import SEPARATORS as SEPARATORS
from .tool import Owners, Rejected, Tool, ToolId, identifier, splits

COMPARED_LENGTH = 128
"""Letters of a name that are compared where names look alike; no listed name is longer."""


class SpellingTable:
    """Tools by spelling; nearly every spelling means one tool only, and the others of a shared one stand aside."""

    __slots__ = ("_first", "_others")

    def __init__(self, spelled: Iterable[tuple[str, Tool]]) -> None:
        self._first: dict[str, Tool] = {}
        self._others: dict[str, list[Tool]] = {}
        for spelling, tool in spelled:
            if self._first.setdefault(spelling, tool) is not tool:
                self._others.setdefault(spelling, []).append(tool)

    def find(self, spelling: str) -> Sequence[Tool]:
        """Every tool that is spelled so."""
        first = self._first.get(spelling)
        return () if first is None else (first, *self._others.get(spelling, ()))


class Spellings:
    """How one server's tools can be spelled, under one way of folding letters."""

    __slots__ = ("identifiers", "names", "whole")

    def __init__(self, tools: Collection[Tool], fold: Callable[[str], str]) -> None:
        handles = ((fold(tool.handle), tool) for tool in tools)
        listed = ((fold(tool.listed), tool) for tool in tools)
        names = ((fold(tool.id.name), tool) for tool in tools)
        identifiers = ((fold(tool.handle.partition(".")[2]), tool) for tool in tools)
        self.whole = SpellingTable(chain(handles, listed))
        """Those that need no server beside them."""
        self.names = SpellingTable(names)
        """The names as the server spells them."""
        self.identifiers = SpellingTable(identifiers)


class Letters:
    """Which pairs of letters the names of one server's tools have: a row of bits for each pair, a bit for each tool.

    Names are spelled with 37 letters, so there are at most 37² rows: 180 bytes for each tool at the very most.
    """

    __slots__ = ("_all", "_none", "_of_server", "_rows", "bare_lengths", "slots", "whole_lengths")

    def __init__(self, server: Server, tools: Collection[Tool]) -> None:
        width = (len(tools) + 7) // 8
        unused = 8 * width - len(tools)
        self.slots: tuple[Tool | None, ...] = (*tools, *[None] * unused)
        """The tool of each bit; the last byte may have bits of no tool."""
        self.bare_lengths = bytes(len(bare(tool)) for tool in tools) + bytes(unused)
        self.whole_lengths = bytes(len(whole(tool)) for tool in tools) + bytes(unused)
        self._rows = _rows(map(bare, tools), width)
        self._of_server = frozenset(pairs(server.identifier.casefold()))
        self._none, self._all = bytes(width), b"\xff" * width

    def of_names(self, wanted: Iterable[str]) -> list[bytes]:
        """The row of each wanted pair: the tools that have it in their bare names."""
        return [self._rows.get(pair, self._none) for pair in wanted]

    def of_handles(self, wanted: Iterable[str]) -> list[bytes]:
        """The row of each wanted pair: the tools that have it in their handles, all if the server has it."""
        return [self._all if pair in self._of_server else self._rows.get(pair, self._none) for pair in wanted]


def whole(tool: Tool) -> str:
    """The handle as it is compared with a spelling."""
    return tool.handle.casefold().replace(".", "_")[:COMPARED_LENGTH]


def bare(tool: Tool) -> str:
    """The name as it is compared with a spelling."""
    return identifier(tool.id.name).casefold()[:COMPARED_LENGTH]


def pairs(name: str) -> list[str]:
    """The neighbouring letters of a name; with an underscore at each end, those of a handle are its two parts'."""
    text = f"_{name}_"
    return list(map(add, text, text[1:]))


def _rows(names: Iterable[str], width: int) -> dict[str, bytes]:
    rows: dict[str, bytearray] = {}
    for slot, name in enumerate(names):
        byte, bit = slot >> 3, 0x80 >> (slot & 7)
        for pair in pairs(name):
            row = rows.get(pair)
            if row is None:
                row = rows[intern(pair)] = bytearray(width)
            row[byte] |= bit
    return {pair: bytes(row) for pair, row in rows.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSection:
    """What one server gives to a snapshot; the same object in every snapshot until something in it changes."""

    server: Server
    tools: Mapping[ToolId, Tool]
    rejected: tuple[Rejected, ...] = ()

    @cached_property
    def exact(self) -> Spellings:
        """The spellings, letter by letter."""
        return Spellings(self.tools.values(), str)

    @cached_property
    def folded(self) -> Spellings:
        """The spellings without regard to case."""
        return Spellings(self.tools.values(), str.casefold)

    @cached_property
    def letters(self) -> Letters:
        """The letters of the names, for those that look like a spelling."""
        return Letters(self.server, self.tools.values())


CANDIDATES = 10
SHOWN_LENGTH = 200
"""Characters of an unknown name that an error repeats."""
SPELLING_LENGTH = 16_384
"""Letters of the longest spelling that is looked up; no name of a tool is so long, even percent-encoded."""
ALIKE = 0.6
"""The similarity from which on a name looks like another."""
ROUNDING = 1e-9
"""What keeps a bound above a similarity that equals it."""
FEW = 400
"""Permitted tools that are all looked at, whatever letters they have."""
STEPS = 3_000
"""Tools that are visited for one spelling."""
LOOKS = 800
"""Names whose letters are looked at in their order for one spelling; twice as many as are few."""
EFFORT = 100_000
"""Letters times letters that are compared in full for one spelling: some eighty names, and six of the longest."""


class Resolver:
    """Knows every spelling of every tool of one snapshot; each section is asked for its own.

    Order: exact handle or listed name, exact other spelling, unique bare name, then the same without regard to case.
    A tool outside `within` does not exist here: it is neither found nor named as a candidate.
    """

    def __init__(self, sections: Mapping[str, ServerSection], identifiers: Mapping[str, str] | None = None) -> None:
        self._chapters = sections
        self._owners = Owners(identifiers or {name: own.server.identifier for name, own in sections.items()})
        self._by_identifier = {section.server.identifier: section for section in sections.values()}
        self._exact = _Spellings(sections, str, attrgetter("exact"), self._owners)
        self._folded = _Spellings(sections, str.casefold, attrgetter("folded"), self._owners)

    def resolve(self, spelling: str, within: Set[ToolId]) -> Tool:
        """The one permitted tool that a spelling means.

        Raises:
            UnknownTool: nothing permitted has that name; the nearest ones are listed.
            AmbiguousTool: several permitted tools share it; all are listed, none is picked.
        """
        for found in self._stages(spelling, within) if len(spelling) <= SPELLING_LENGTH else ():
            permitted = {tool.id: tool for tool in found if tool.id in within}
            if len(permitted) == 1:
                return permitted.popitem()[1]
            if permitted:
                raise _ambiguous(spelling, [permitted[id] for id in sorted(permitted)])
        raise self._unknown(spelling, within)

    def near(self, spelling: str, within: Set[ToolId], limit: int = CANDIDATES) -> list[Tool]:
        """Permitted tools whose handle or bare name looks like the spelling, best first."""
        wanted = identifier(skeleton(spelling[:SHOWN_LENGTH])).casefold()
        last = wanted.rsplit("__", 1)[-1]
        handle = _Form(wanted[:COMPARED_LENGTH], whole, Letters.of_handles, attrgetter("whole_lengths"))
        name = _Form(last[:COMPARED_LENGTH], bare, Letters.of_names, attrgetter("bare_lengths"))
        nearest = _Nearest(limit)
        groups = (self._groups(form, within, nearest) for form in (handle, name) if form.text)
        for group in merge(*groups, key=lambda group: -group.bound):
            if group.bound < nearest.floor or nearest.is_tired:
                break
            nearest.consider(group)
        return nearest.tools()

    @cached_property
    def _slots(self) -> tuple[Tool | None, ...]:
        return tuple(tool for section in self._chapters.values() for tool in section.letters.slots)

    def _groups(self, form: _Form, within: Set[ToolId], nearest: _Nearest) -> Iterator[_Group]:
        """Permitted tools by how many pairs of letters they share with the spelling, those with most first."""
        if len(within) <= FEW:
            known = (self._chapters[id.server].tools.get(id) for id in within if id.server in self._chapters)
            yield _Group(1.0, form, (tool for tool in known if tool))
            return
        letters = [section.letters for section in self._chapters.values()]
        lengths = b"".join(map(form.lengths, letters))
        for shared, bits in form.levels(letters, lengths):
            reach = form.reach(shared, nearest.floor)
            found = (self._slots[slot] for slot in _places(bits, len(lengths)) if lengths[slot] in reach)
            yield _Group(form.bound(shared), form, (tool for tool in found if tool and tool.id in within))

    def _stages(self, spelling: str, within: Set[ToolId]) -> Iterator[Iterable[Tool]]:
        yield self._by_handle(spelling)
        bare = spelling.strip()
        readings = (spelling,) if spelling == bare else (spelling, bare)  # a name may really end in a space
        for reading in readings:
            yield from self._exact.stages(reading, within)
        for reading in readings:
            yield from self._folded.stages(reading.casefold(), within)

    def _by_handle(self, spelling: str) -> Iterable[Tool]:
        """What most callers say: the handle names the section, so that no other is asked."""
        section = self._by_identifier.get(spelling.partition(".")[0])
        return section.exact.whole.find(spelling) if section else ()

    def _unknown(self, spelling: str, within: Set[ToolId]) -> UnknownTool:
        near = self.near(spelling[:SHOWN_LENGTH], within)
        spelling = _shown(spelling)
        if near:
            names = ", ".join(tool.handle for tool in near)
            return UnknownTool(
                spelling,
                details=(f"did you mean: {names}?",),
                next_call=NextCall("describe", {"names": [tool.handle for tool in near[:3]]}),
            )
        return UnknownTool(
            spelling,
            details=("no tool has that name, and none that is near it",),
            next_call=NextCall("search", {"query": "what you want to do, in a few words"}),
        )


class _Spellings:
    """The spellings of all sections under one way of folding letters."""

    def __init__(
        self,
        sections: Mapping[str, ServerSection],
        fold: Callable[[str], str],
        table: Callable[[ServerSection], Spellings],
        owners: Owners,
    ) -> None:
        self._chapters, self._table, self._owners = sections, table, owners
        self._servers: dict[str, list[ServerSection]] = {}
        for section in sections.values():
            for spelling in {fold(section.server.name), fold(section.server.identifier)}:
                self._servers.setdefault(spelling, []).append(section)
        self._longest_server = max(map(len, self._servers), default=0)

    def stages(self, spelling: str, within: Set[ToolId]) -> Iterator[Iterable[Tool]]:
        """The tools that a spelling may mean, those of the most exact reading first."""
        tables = [self._table(section) for section in self._chapters.values()]
        yield [tool for table in tables for tool in table.whole.find(spelling)]
        if self._owners.is_reserved(spelling, self._chapters.keys()):
            return
        yield self._qualified(spelling, attrgetter("names"))
        yield self._qualified(spelling, attrgetter("identifiers"))
        for kind in (attrgetter("names"), attrgetter("identifiers")):
            found = [tool for table in tables for tool in kind(table).find(spelling)]
            yield [tool for tool in found if self._may_be_bare(spelling, tool, within)]

    def _qualified(self, spelling: str, kind: Callable[[Spellings], SpellingTable]) -> Iterator[Tool]:
        """Every reading of `server SEP tool`; a percent-encoded path is one of them."""
        for text in {spelling, unquote(spelling.removeprefix("/"))}:
            for server_part, tool_part in splits(text, self._longest_server):
                for section in self._servers.get(server_part, ()):
                    yield from kind(self._table(section)).find(tool_part)

    def _may_be_bare(self, spelling: str, tool: Tool, within: Set[ToolId]) -> bool:
        """Whether a name without a server can mean this tool: not where it names another server, or a tool of one."""
        own = tool.id.server
        if self._owners.speaks_for_another(spelling, own) or self._owners.speaks_for_another(tool.id.name, own):
            return False
        return not any(self._has(server, rest, within) for server, rest in self._owners.joined(spelling, own))

    def _has(self, server: str, rest: str, within: Set[ToolId]) -> bool:
        """Whether a server has a tool of that name, as far as the caller sees, or may have one that is not known."""
        section = self._chapters.get(server)
        if section is None:
            return True
        table = self._table(section)
        return any(tool.id in within for tool in (*table.names.find(rest), *table.identifiers.find(rest)))


def _shown(spelling: str) -> str:
    return spelling if len(spelling) <= SHOWN_LENGTH else f"{spelling[:SHOWN_LENGTH]}…"


class _Form(NamedTuple):
    """One way to read a spelling, and what it is compared with: handles or bare names."""

    text: str
    spell: Callable[[Tool], str]
    rows: Callable[[Letters, list[str]], list[bytes]]
    lengths: Callable[[Letters], bytes]

    def levels(self, letters: Sequence[Letters], lengths: bytes) -> Iterator[tuple[int, int]]:
        """How many pairs are shared, and the bits of the tools that share so many, downwards."""
        wanted = pairs(self.text)
        columns = zip(*(self.rows(own, wanted) for own in letters), strict=True)
        planes = _total(int.from_bytes(b"".join(column)) for column in columns)
        return _descend(planes, self._fitting(lengths))

    def bound(self, shared: int) -> float:
        """The best similarity that so many shared pairs allow, with a name of the length that suits them best."""
        return 2 * (shared + len(self.text) + 1) / (shared + 3 * len(self.text) + 1) + ROUNDING

    def reach(self, shared: int, similarity: float) -> range:
        """How long a name can be that shares so many pairs and is so similar.

        Of M letters in common, all but the first of each run follow one another; between two runs stands at least one
        of the T - 2M letters that are not in common. So the shared pairs are at least M - (T - 2M + 1).
        """
        own, similarity = len(self.text), similarity - ROUNDING
        longest = own * (2 - similarity) / similarity
        if similarity > 2 / 3:
            longest = min(longest, (shared + 1) / (1.5 * similarity - 1) - own)
        return range(ceil(own * similarity / (2 - similarity)), floor(longest) + 1)

    def _fitting(self, lengths: bytes) -> int:
        """The bits of the tools that are neither too short nor too long to be alike."""
        alike = self.reach(0, ALIKE)
        return int(lengths.translate(bytes(b"01"[length in alike] for length in range(256))) or b"0", 2)


class _Group(NamedTuple):
    """Tools of which none is more similar than the bound."""

    bound: float
    form: _Form
    tools: Iterator[Tool]


class _Nearest:
    """The most similar tools so far; it tires, so that no spelling and no catalogue make it work for long."""

    def __init__(self, limit: int) -> None:
        self.floor = ALIKE
        """What a tool must reach to be among the first."""
        self._limit = limit
        self._found: dict[ToolId, tuple[float, Tool]] = {}
        self._ascending: list[float] = []
        self._waiting: list[tuple[float, str, int, str, list[Tool]]] = []
        self._serial = count()
        self._steps, self._looks, self._effort = STEPS, LOOKS, EFFORT

    @property
    def is_tired(self) -> bool:
        """Whether enough was done."""
        return min(self._steps, self._looks, self._effort) <= 0

    def consider(self, group: _Group) -> None:
        """Look at the names of a group, and compare those that are likeliest so far."""
        named = self._named(group)
        self._looks -= len(named)
        text = group.form.text
        order = _Order(text)
        for name, tools in named.items():
            if (bound := order.bound(name)) >= self.floor:
                heappush(self._waiting, (-bound, name, next(self._serial), text, tools))
        self._compare(self._limit)

    def tools(self) -> list[Tool]:
        """The first ones, best first."""
        self._compare(len(self._waiting))
        order = sorted(self._found.values(), key=lambda row: (-row[0], row[1].handle))
        return [tool for _, tool in order[: self._limit]]

    def _compare(self, most: int) -> None:
        """Compare so many names at most; those that wait are compared later, if they still can be among the first."""
        while self._waiting and -self._waiting[0][0] >= self.floor and min(most, self._effort) > 0:
            _, name, _, text, tools = heappop(self._waiting)
            most -= 1
            self._effort -= len(text) * len(name)
            self._note(tools, _similarity(text, name))

    def _named(self, group: _Group) -> dict[str, list[Tool]]:
        """The tools by name: many servers have a tool of the same name."""
        named: dict[str, list[Tool]] = {}
        for tool in islice(group.tools, self._steps):
            self._steps -= 1
            name = group.form.spell(tool)
            if name in named:
                named[name].append(tool)
            elif len(named) < self._looks:
                named[name] = [tool]
        return named

    def _note(self, tools: list[Tool], score: float) -> None:
        if score < self.floor:
            return
        for tool in tools:
            known = self._found.get(tool.id)
            if known is None:
                insort(self._ascending, score)
            if known is None or known[0] < score:
                self._found[tool.id] = score, tool
        if len(self._ascending) >= self._limit:
            self.floor = self._ascending[-self._limit]


class _Order:
    """The letters of a spelling in their order, to tell cheaply how similar a name can be at most."""

    def __init__(self, text: str) -> None:
        self._length = len(text)
        self._places: dict[str, int] = {}
        for place, letter in enumerate(text):
            self._places[letter] = self._places.get(letter, 0) | 1 << place

    def bound(self, name: str) -> float:
        """The similarity if the longest common subsequence were all in common; found for all places at once."""
        full = (1 << self._length) - 1
        rest = full
        for places in map(self._places.get, name):
            if places:
                met = rest & places
                rest = (rest + met) | (rest - met)
        return 2 * (full & ~rest).bit_count() / (self._length + len(name))


def _total(rows: Iterable[int]) -> list[int]:
    """Add up rows of bits, place by place: the n-th result has the n-th binary digit of every sum."""
    planes: list[int] = []
    for row in rows:
        carry = row
        for digit, plane in enumerate(planes):
            planes[digit] = plane ^ carry
            carry &= plane
            if not carry:
                break
        if carry:
            planes.append(carry)
    return planes


def _descend(planes: Sequence[int], among: int) -> Iterator[tuple[int, int]]:
    """Every sum with the bits of the places that have it, the largest first."""
    waiting = [(len(planes), 0, among)]
    while waiting:
        digit, total, bits = waiting.pop()
        if not bits:
            continue
        if not digit:
            yield total, bits
            continue
        digit -= 1
        waiting.append((digit, total, bits & ~planes[digit]))
        waiting.append((digit, total | 1 << digit, bits & planes[digit]))


def _places(bits: int, width: int) -> Iterator[int]:
    text = f"{bits:0{width}b}"
    place = text.find("1")
    while place >= 0:
        yield place
        place = text.find("1", place + 1)


def _similarity(a: str, b: str) -> float:
    return 1.0 if a == b else difflib.SequenceMatcher(None, a, b).ratio()


def _ambiguous(spelling: str, tools: list[Tool]) -> AmbiguousTool:
    names = ", ".join(tool.handle for tool in tools[:CANDIDATES])
    more = f" and {len(tools) - CANDIDATES} more" if len(tools) > CANDIDATES else ""
    return AmbiguousTool(
        _shown(spelling),
        details=(f"{len(tools)} tools have that name: {names}{more}",),
        next_call=NextCall("describe", {"names": [tool.handle for tool in tools[:3]]}),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class CatalogSnapshot:
    """All tools at one moment, in a fixed order; a change makes the next snapshot."""

    number: int
    sections: Mapping[str, ServerSection] = field(repr=False)
    tools: Mapping[ToolId, Tool]
    servers: Mapping[str, Server]
    rejected: tuple[Rejected, ...]
    items: Items
    resolver: Resolver = field(repr=False)

    @property
    def categories(self) -> dict[str, int]:
        """How many tools stand on each shelf, by name of the shelf."""
        counts: dict[str, int] = {}
        for tool in self.tools.values():
            counts[tool.category] = counts.get(tool.category, 0) + 1
        return dict(sorted(counts.items()))


def bind(number: int, sections: Mapping[str, ServerSection], items: Items) -> CatalogSnapshot:
    """Make a snapshot of sections, in their order; of each tool only its place is written anew."""
    tools: dict[ToolId, Tool] = {}
    for section in sections.values():
        tools.update(section.tools)
    return CatalogSnapshot(
        number=number,
        sections=sections,
        tools=tools,
        servers={name: section.server for name, section in sections.items()},
        rejected=tuple(refusal for section in sections.values() for refusal in section.rejected),
        items=items,
        resolver=Resolver(sections, items.identifiers),
    )


EMPTY = bind(0, {}, Items())
"""What is published before the first offering."""
