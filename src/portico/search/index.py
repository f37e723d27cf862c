"""The index: words and meaning together, asked within what a caller may see."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice

import numpy as np

from portico.domain.disclosure import Findings, Hit
from portico.domain.snapshot import Edition
from portico.domain.tool import Tool, ToolId
from portico.protocols import Index, MeaningSource

from .postings import NAME_MARK, Postings, document, plain, post, read
from .query import Need, Reader
from .ranking import COPY_PART, SEMANTIC_PART, Why
from .semantic import Semantics, read_tools
from .vectors import Mask, Numbers, Vector, Vectors, joined, leading, pack
from .word_vectors import Table, shipped_table
from .words import stem_of

MEANING = 0.7
"""What meaning counts beside words: a tool that has every word and means just the same would score 1.7."""
SEMANTIC = 0.4
"""What an embedder's word counts beside both, where there is an embedder; docs/decisions/0013 has the figures."""
WHOLE = 0.3
"""What the whole query counts beside the need that a tool answers best, where there are several."""
FITS = 0.28
"""The best score below which no tool is said to answer the query; docs/decisions/0012 has the figures behind it."""
CLEAR = 0.3
"""How much nearer than tools in general a tool is that answers the query by an embedder's word alone."""
WORTH = 0.4
"""The share of the best score below which a tool is not worth showing."""
EXACT = 10.0
BEGINNING = 2.0
"""What the one name counts that begins with the query: more than words and meaning together."""
SHORTEST_BEGINNING = 3
PREFIX = 0.3
COPY = 0.1
"""What a tool loses for each one before it that has the same name and means the same."""
ALIKE = 0.8
"""How near two tools of one name are that count as copies."""
NAME_LENGTH = 600
"""Characters of a query that may be a name; the longest names are shorter."""
CONSIDERED = 100
"""Tools that are looked at closely, for their words and again for their meaning."""
FEW = 640
"""Tools up to which all are looked at."""
MARGIN = 10
"""Tools beyond those asked for that may still move up."""
BATCH = 256
"""Tools that are read together."""
VIEWS = 64
"""Visible sets that are kept at hand."""


class ToolIndex:
    """Finds tools by the words of their names, descriptions and parameters, and by what these mean."""

    def __init__(self, tools: Sequence[Tool], postings: Postings, vectors: Vectors, table: Table) -> None:
        self.tools = tools
        self.postings = postings
        self.vectors = vectors
        self.table = table
        self.semantics: Semantics | None = None
        """The same tools in the eyes of an embedder, where there is one."""
        self._all = np.arange(len(tools))
        self._views: dict[int, _View] = {}

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The best permitted tools first; ties are settled by handle."""
        view = self._view(within)
        mask = view.mask
        if limit <= 0 or not self.tools or (mask is not None and not mask.any()):
            return Findings()
        asked = view.reader.read(text)
        named = self._named(text, mask)
        begun = self._begun(text, mask) if not len(named) else named
        lexical = [need.by_words(len(self.tools)) for need in asked]
        tools = self._considered(asked, lexical, np.union1d(named, begun), max(limit + MARGIN, CONSIDERED), mask)
        sense = None if self.semantics is None else self.semantics.sense(text)
        if sense is not None:
            tools = sense.widen(tools, max(limit + MARGIN, CONSIDERED), mask)
        if not len(tools):
            return Findings()
        scores = MEANING * self.vectors.nearness(np.stack([need.vector for need in asked]), tools)
        for row, words in zip(scores, lexical, strict=True):
            row += words[tools]
        semantic = None if sense is None else SEMANTIC * sense.nearness(tools)
        total, best, semantic_part = _total(scores, [need.mass for need in asked], semantic)
        ranked = self._ranked(text, total, tools, set(named.tolist()), set(begun.tolist()), limit + MARGIN)
        if semantic_part is not None:
            _explain(ranked, semantic_part)
        hits = tuple(
            self._hit(row, asked[best[row.place]], scores[best[row.place], row.place]) for row in ranked[:limit]
        )
        answered = [row for row, need in zip(scores, asked, strict=True) if not need.is_elsewhere]
        fits = bool(len(named) or len(begun)) or (bool(answered) and _fits(np.stack(answered), semantic))
        return Findings(hits=hits, fits=bool(hits) and fits)

    def _considered(
        self, asked: Sequence[Need], lexical: Sequence[Vector], named: Numbers, count: int, mask: Mask | None
    ) -> Numbers:
        """The tools worth a closer look."""
        if len(self.tools) <= FEW:
            return self._all if mask is None else np.flatnonzero(mask)
        count = max(count // len(asked), 2 * MARGIN)
        parts = [named, *(leading(words if mask is None else words * mask, count) for words in lexical)]
        parts += [self.vectors.near(need.vector, count, mask) for need in asked if need.vector.any()]
        chosen = np.zeros(len(self.tools), dtype=np.bool_)
        for part in parts:
            chosen[part] = True
        return np.flatnonzero(chosen)

    def _named(self, text: str, mask: Mask | None) -> Numbers:
        """The tools whose whole name is the query."""
        wanted = plain(text[:NAME_LENGTH])
        tools = self.postings.of(NAME_MARK + wanted if wanted.strip("_") else "")[0]
        return (tools if mask is None else tools[mask[tools]]).astype(np.intp)

    def _begun(self, text: str, mask: Mask | None) -> Numbers:
        """The tools of the one name that begins with the query, if it is one word and begins no other name."""
        wanted = plain(text[:NAME_LENGTH])
        if len(wanted.strip("_")) < SHORTEST_BEGINNING or len(text.split(maxsplit=1)) != 1:
            return _NO_TOOLS
        found: list[int] = []
        is_word = stem_of(wanted) in self.postings.words
        start = bisect_left(self._beginnings, (wanted,))
        for name, number in islice(self._beginnings, start, None):
            if not name.startswith(wanted):
                break
            if is_word and name[len(wanted) : len(wanted) + 1] != "_":
                continue  # `time` is a word that tools have, and not the beginning of `timeout`
            if mask is None or mask[number]:
                found.append(number)
                if plain(self.tools[number].id.name) != plain(self.tools[found[0]].id.name):
                    return _NO_TOOLS
        return np.unique(np.array(found, dtype=np.intp))

    @cached_property
    def _beginnings(self) -> list[tuple[str, int]]:
        """Every name and handle without punctuation, in order, with the tool's number."""
        names = ((tool.id.name, tool.handle) for tool in self.tools)
        return sorted((plain(name), number) for number, both in enumerate(names) for name in both)

    def _ranked(
        self, text: str, total: Vector, tools: Numbers, named: Set[int], begun: Set[int], count: int
    ) -> list[_Rank]:
        """The best by words and meaning, whole names before all, and beginnings of names earlier."""
        places = np.flatnonzero(total >= max(WORTH * float(total.max()), 1e-6))
        if len(places) > count:
            places = places[leading(total[places], count)]
        if named or begun:
            places = np.union1d(places, np.flatnonzero(np.isin(tools, list(named | begun))))
        rows = zip(
            total[places].astype(np.float64).round(4).tolist(), tools[places].tolist(), places.tolist(), strict=True
        )
        ranked = [_Rank(score, self.tools[number].handle, number, place) for score, number, place in rows]
        wanted = plain(text[:NAME_LENGTH])
        for row in ranked if len(wanted) >= 3 or named else ():
            if row.number in named:
                row.add("exact name", EXACT + _spelled(self.tools[row.number], text.strip()))
            elif row.number in begun:
                row.add("name begins so", BEGINNING)
            elif _begins(self.tools[row.number].id.name, wanted):
                row.add("name begins so", PREFIX)
        ranked.sort(key=_Rank.place_in_order)
        return ranked if named else self._demote_copies(ranked)

    def _demote_copies(self, ranked: list[_Rank]) -> list[_Rank]:
        """A second tool of the same name and meaning gives way a little: another tool tells more."""
        seen: dict[str, list[int]] = {}
        for row in ranked:
            before = seen.setdefault(self.tools[row.number].id.name, [])
            if before:
                copies = sum(self._are_copies(row.number, other) for other in before[:3])
                row.add(COPY_PART, -COPY * copies * row.score)
            before.append(row.number)
        return ranked if len(seen) == len(ranked) else sorted(ranked, key=_Rank.place_in_order)

    def _are_copies(self, one: int, other: int) -> bool:
        same = self.tools[one].description == self.tools[other].description
        return same or self.vectors.likeness(one, other) >= ALIKE

    def _hit(self, row: _Rank, need: Need, base: float) -> Hit:
        return Hit(
            tool=self.tools[row.number],
            score=row.score,
            why=Why(need, row.number, float(base), row.score, row.added),
        )

    def _view(self, within: Set[ToolId]) -> _View:
        """What a visible set lets be found."""
        known = self._views.get(id(within))
        if known is not None and known.within is within:
            return known
        found = np.fromiter((tool.id in within for tool in self.tools), dtype=np.bool_, count=len(self.tools))
        mask = None if found.all() else found
        view = _View(within, mask, Reader(self.postings, self.table, mask))
        if isinstance(within, frozenset):  # others may change under our hands
            if len(self._views) >= VIEWS:
                self._views.clear()
            self._views[id(within)] = view
        return view


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """The tools that a visible set lets be found, and how queries are read among them."""

    within: Set[ToolId]
    mask: Mask | None
    """None when all may be found."""
    reader: Reader


def _total(scores: Vector, masses: Sequence[float], semantic: Vector | None) -> tuple[Vector, Numbers, Vector | None]:
    """What each tool scores in all, for which need, and what an embedder, which reads the whole query, has part in it.

    Of several needs, the one that a tool answers best counts most. Each is measured by its own best tool, so that no
    need crowds out the others, unless no tool answers it.
    """
    if len(scores) == 1:
        total = scores[0] if semantic is None else scores[0] + semantic
        return total, np.zeros(len(total), dtype=np.intp), semantic
    whole = np.average(scores, axis=0, weights=masses).astype(np.float32)
    if semantic is not None:
        whole += semantic
    scale = np.float32(WHOLE / max(float(whole.max()), FITS))
    shares = scores / np.maximum(scores.max(axis=1, keepdims=True), np.float32(FITS))
    best = shares.argmax(axis=0)
    total = scale * whole + shares[best, np.arange(shares.shape[1])]
    return total, best, None if semantic is None else semantic * scale


def _fits(scores: Vector, semantic: Vector | None) -> bool:
    """Whether the best tool answers the query."""
    return bool(scores.max() >= FITS or (semantic is not None and semantic.max() >= CLEAR * SEMANTIC))


def _explain(ranked: Sequence[_Rank], semantic: Vector) -> None:
    """Name the part that an embedder has in scores that have it already."""
    for row in ranked:
        row.added = {**row.added, SEMANTIC_PART: float(semantic[row.place])}


_NOTHING: Mapping[str, float] = {}
_NO_TOOLS: Numbers = np.array([], dtype=np.intp)


class _Rank:
    """Where one tool stands; made a few dozen times for every query, so there is little to it."""

    __slots__ = ("added", "handle", "number", "place", "score")

    def __init__(self, score: float, handle: str, number: int, place: int) -> None:
        self.score = score
        self.handle = handle
        self.number = number
        self.place = place
        self.added: Mapping[str, float] = _NOTHING

    def add(self, part: str, value: float) -> None:
        """One part more."""
        if value:
            self.added = {**self.added, part: value}
            self.score = round(self.score + value, 4)

    def place_in_order(self) -> tuple[float, str]:
        """What it is sorted by."""
        return -self.score, self.handle


def _spelled(tool: Tool, wanted: str) -> float:
    """A little more for the name that is spelled just so, where others differ only in punctuation."""
    return PREFIX if wanted in (tool.handle, tool.id.name, tool.listed) else 0.0


def _begins(name: str, wanted: str) -> bool:
    """Whether a name begins with what is wanted; most do not even share the first letter."""
    return name[:1].casefold() == wanted[:1] and plain(name).startswith(wanted)


def build_index(edition: Edition, previous: Index | None, source: MeaningSource | None = None) -> ToolIndex:
    """Index an edition; what is known of tools that did not change is taken from the previous index."""
    before = previous if isinstance(previous, ToolIndex) else None
    index = index_tools(list(edition.tools.values()), before)
    if source is not None:
        index.semantics = read_tools(source, index.tools, before.semantics if before is not None else None)
    return index


def index_tools(tools: Sequence[Tool], previous: ToolIndex | None = None) -> ToolIndex:
    """Index tools; those that the previous index had are not read again."""
    if previous is not None and previous.tools:
        return _changed(previous, tools)
    table = shipped_table()
    batches = _Batches(tools, table)
    return ToolIndex(tools, post(batches.documents()), batches.vectors(), table)


def _changed(previous: ToolIndex, tools: Sequence[Tool]) -> ToolIndex:
    """The index of other tools than before: only new ones are read."""
    before, now = list(map(id, previous.tools)), list(map(id, tools))
    kept = np.fromiter(map(set(now).__contains__, before), dtype=np.bool_, count=len(before))
    new = list(compress(tools, map(set(now).difference(before).__contains__, now)))
    old = list(compress(previous.tools, kept))
    batches = _Batches(new, previous.table)
    return ToolIndex(
        [*old, *new],
        previous.postings.changed(kept, batches.documents()),
        previous.vectors.changed(kept, batches.vectors()),
        previous.table,
    )


class _Batches:
    """Tools read some hundred at a time, so that the words of all of them are never in memory together."""

    def __init__(self, tools: Sequence[Tool], table: Table) -> None:
        self._tools = tools
        self._table = table
        self._packed = [pack(table.of_tools(()))]

    def documents(self) -> Iterator[dict[str, list[str]]]:
        """The words of each tool in turn; what they mean is kept on the way."""
        for start in range(0, len(self._tools), BATCH):
            tools = self._tools[start : start + BATCH]
            found = [read(tool) for tool in tools]
            self._packed.append(pack(self._table.of_tools(found)))
            yield from (document(tool, words) for tool, words in zip(tools, found, strict=True))

    def vectors(self) -> Vectors:
        """What the tools mean, once their words were read."""
        return joined(self._packed)
