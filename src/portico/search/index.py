"""The index: words and meaning together, asked within what a caller may see; ranking and its reasons."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, islice

import numpy as np

from portico.domain.disclosure import Findings, Hit
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Tool, ToolId
from portico.domain.usage import Usage
from portico.protocols import Index, MeaningSource

from .postings import NAME_MARK, Postings, document, plain, post, read
from .query import QueryPart, QueryReader
from .vectors import Mask, Numbers, Vector, Vectors, blank, joined, leading, pack
from .word_vectors import WordVectors, shipped_table
from .words import stem_of

_UNUSED = Usage()
USAGE_SHARE = 0.01
"""What usage can add to a score, at the very most: a hit that is more than this ahead stays ahead."""


def settle(hits: Sequence[Hit], usage: Mapping[ToolId, Usage]) -> list[Hit]:
    """The same hits; among practically equal ones those come first that are called often and well."""
    if not any(hit.tool.id in usage for hit in hits):
        return list(hits)
    weighed = [_weighed(hit, usage.get(hit.tool.id)) for hit in _with_best_copies(hits, usage)]
    return sorted(weighed, key=lambda hit: -hit.score)


def _with_best_copies(hits: Sequence[Hit], usage: Mapping[ToolId, Usage]) -> list[Hit]:
    """Of tools that are copies of each other, the one that is used most takes the first of their places."""
    places: dict[str, list[int]] = {}
    for place, hit in enumerate(hits):
        places.setdefault(hit.name, []).append(place)
    found = list(hits)
    for copies in places.values():
        if any(COPY_PART in hits[place].why for place in copies[1:]):
            ranked = sorted(copies, key=lambda place: -_standing(usage.get(hits[place].tool.id, _UNUSED)))
            for place, chosen in zip(copies, ranked, strict=True):
                found[place] = _in_place_of(hits[chosen], hits[place])
    return found


def _in_place_of(hit: Hit, other: Hit) -> Hit:
    """A hit with the score of another, the difference told as what copies lose or gain."""
    why = {part: value for part, value in hit.why.items() if part != COPY_PART}
    lost = round(other.score - sum(why.values()), 4)
    return replace(hit, score=other.score, why={**why, COPY_PART: lost} if lost else why)


def _weighed(hit: Hit, usage: Usage | None) -> Hit:
    part = round(USAGE_SHARE * max(hit.score, 0) * _standing(usage), 4) if usage else 0.0
    if not part:
        return hit
    return replace(hit, score=round(hit.score + part, 4), why={**hit.why, "usage": part})


def _standing(usage: Usage) -> float:
    """From 0 (never called, or never well) towards 1; each call counts less than the one before."""
    weight = math.log1p(usage.calls) * (usage.success or 0.0)
    return weight / (1 + weight)


SEMANTIC_PART = "semantic"
"""What an embedder says of the query and the tool."""
COPY_PART = "like one before it"
"""What a tool loses for others of its name and meaning that come before it."""


NOISE = 0.0003
"""What rounding may leave over."""


class Why(Mapping[str, float]):
    """The parts of one tool's score; they add up to it."""

    __slots__ = ("_added", "_base", "_known", "_need", "_score", "_tool")

    def __init__(self, need: QueryPart, tool: int, base: float, score: float, added: Mapping[str, float]) -> None:
        self._need = need
        self._tool = tool
        self._base = base
        """By words and meaning alone."""
        self._score = score
        self._added = added
        self._known: dict[str, float] | None = None

    def __getitem__(self, part: str) -> float:
        return self._parts()[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts())

    def __len__(self) -> int:
        return len(self._parts())

    def __repr__(self) -> str:
        return repr(self._parts())

    def _parts(self) -> dict[str, float]:
        if self._known is None:
            words = {f"word {t.word}": value for t in self._need.terms if (value := t.value_in(self._tool))}
            in_words = sum(words.values())
            found = {part: round(value, 4) for part, value in words.items()}
            found["other words"] = _heard(in_words - sum(found.values()))
            found["meaning"] = self._base - in_words
            found.update(self._added)
            found["several needs"] = _heard(self._score - self._base - sum(self._added.values()))
            self._known = {part: rounded for part, value in found.items() if (rounded := round(value, 4))}
        return self._known


def _heard(value: float) -> float:
    return value if abs(value) > NOISE else 0.0


SAID = 800
"""Characters of a tool's name and description that an embedder reads."""
NAMED = 200
"""Characters of the names of its parameters."""
SAMPLED = 512
"""Tools that say what all tools have in common."""
STRANGERS = 10
"""Tools without any meaning that are thought among them: of two or three tools, little is common to all tools."""


def text_of(tool: Tool) -> str:
    """What an embedder reads of a tool: its name, what it does, and what its parameters are called."""
    parameters = f" ({', '.join(tool.properties)}"[:NAMED] + ")" if tool.properties else ""
    return f"{tool.id.name}: {tool.description}"[:SAID] + parameters


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The vectors that the tools have at one moment, by number."""

    vectors: Vectors
    has: Mask
    """Which tools have one; the others are near to nothing."""
    centre: Vector = field(init=False)
    """What the tools have in common, which tells nothing; with some models that is most of every vector."""

    def __post_init__(self) -> None:
        some = np.flatnonzero(self.has)
        some = some[:: max(1, len(some) // SAMPLED)]
        total = self.vectors.scales[some] @ self.vectors.numbers[some].astype(np.float32)
        object.__setattr__(self, "centre", total / np.float32(len(some) + STRANGERS))

    def moved(self, places: Numbers) -> Known | None:
        """The same for tools that had other numbers, below zero where they had none; None when no vector is left."""
        has = self.has[places] & (places >= 0)
        return Known(self.vectors.moved(places), has) if has.any() else None

    def joined(self, numbers: Numbers, found: Vector) -> Known:
        """With the vectors of some tools more."""
        has = self.has.copy()
        has[numbers] = True
        return Known(self.vectors.replaced(numbers, pack(found)), has)


@dataclass(frozen=True, slots=True, eq=False)
class Sense:
    """A query as the embedder reads it, beside the tools that it has read."""

    vector: Vector
    known: Known

    def widen(self, tools: Numbers, count: int, within: Mask | None) -> Numbers:
        """Some tools and about so many more, among which the nearest ones are, most likely."""
        has = self.known.has
        if len(tools) == len(has):
            return tools
        near = self.known.vectors.near(self.vector, count, has if within is None else has & within)
        return np.union1d(tools, near)

    def nearness(self, tools: Numbers) -> Vector:
        """How much nearer than tools are in general some tools are; nothing for those that are not."""
        found = self.known.vectors.nearness(self.vector[None, :], tools)[0] - self.vector @ self.known.centre
        return np.where(self.known.has[tools], np.maximum(found, 0), np.float32(0))


class Semantics:
    """The tools of one snapshot in the eyes of an embedder.

    The source's own thread gathers what becomes known, and what a search reads is replaced whole: no search waits for
    either, and none sees half of a change.
    """

    def __init__(self, source: MeaningSource, tools: Sequence[Tool], texts: Sequence[str], known: Known | None) -> None:
        self.source = source
        self.tools = tools
        self.texts = texts
        self._known = known
        self._gathering = threading.Lock()
        source.start(texts, self.gather)
        self.gather()  # of what is known already, the source says nothing

    def changed(self, tools: Sequence[Tool]) -> Semantics:
        """The same for other tools; those that were here keep their texts and vectors."""
        numbers = {id(tool): number for number, tool in enumerate(self.tools)}
        places = [numbers.get(id(tool), -1) for tool in tools]
        texts = [self.texts[place] if place >= 0 else text_of(tool) for tool, place in zip(tools, places, strict=True)]
        known = self._known.moved(np.array(places, dtype=np.intp)) if self._known is not None else None
        return Semantics(self.source, tools, texts, known)

    def sense(self, text: str) -> Sense | None:
        """A query as it was read before the search; None while nothing is known of it or of the tools."""
        known = self._known
        if known is None:
            return None
        vector = self.source.recall_question(text)
        return None if vector is None or vector.size != known.vectors.dims else Sense(vector, known)

    def gather(self) -> None:
        """Take up what the source has learnt about tools that had no vector."""
        with self._gathering:
            known = None if self._is_outdated() else self._known
            found = list(self._recalled(known))
            if found:
                vectors = np.stack([vector for _, vector in found])
                known = known or self._nothing(vectors.shape[1])
                known = known.joined(np.array([number for number, _ in found]), vectors)
            self._known = known

    def _recalled(self, known: Known | None) -> Iterator[tuple[int, Vector]]:
        """Vectors that are new, and can be compared with those known or else with the first."""
        lacking = range(len(self.tools)) if known is None else np.flatnonzero(~known.has).tolist()
        dims = 0 if known is None else known.vectors.dims
        for number in lacking:
            vector = self.source.recall(self.texts[number])
            if vector is not None and vector.size == (dims := dims or vector.size):
                yield number, vector

    def _nothing(self, dims: int) -> Known:
        count = len(self.tools)
        return Known(blank(count, dims), np.zeros(count, dtype=np.bool_))

    def _is_outdated(self) -> bool:
        """Whether another model answers under the same name, which shows when its vectors have another length."""
        if self._known is None:
            return False
        vector = self.source.recall(self.texts[int(self._known.has.argmax())])
        return vector is not None and vector.size != self._known.vectors.dims


def read_tools(source: MeaningSource, tools: Sequence[Tool], previous: Semantics | None) -> Semantics:
    """A snapshot's tools; what is known of those that were in the last one is taken over."""
    return previous.changed(tools) if previous else Semantics(source, tools, [text_of(tool) for tool in tools], None)


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

    def __init__(self, tools: Sequence[Tool], postings: Postings, vectors: Vectors, table: WordVectors) -> None:
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
        self, asked: Sequence[QueryPart], lexical: Sequence[Vector], named: Numbers, count: int, mask: Mask | None
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

    def _hit(self, row: _Rank, need: QueryPart, base: float) -> Hit:
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
        view = _View(within, mask, QueryReader(self.postings, self.table, mask))
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
    reader: QueryReader


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


def build_index(snapshot: CatalogSnapshot, previous: Index | None, source: MeaningSource | None = None) -> ToolIndex:
    """Index a snapshot; what is known of tools that did not change is taken from the previous index."""
    before = previous if isinstance(previous, ToolIndex) else None
    index = index_tools(list(snapshot.tools.values()), before)
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

    def __init__(self, tools: Sequence[Tool], table: WordVectors) -> None:
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
