"""The index: words and meaning together, asked within what a caller may see; ranking and its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import blake2b
from itertools import compress
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain import VERSION
from portico.domain.search_answers import Findings, Hit
from portico.domain.tool import Tool, ToolId
from portico.errors import StoreError
from portico.protocols import DefinitionStore, Index

from .embeddings.cache import Meanings
from .groups_and_doubt import AGE_PART, Rank, confidence, group, is_request, leader
from .names import EXACT_PART, NAME_LENGTH, PREFIX_PART, SHORTEST_BEGINNING, NameMatch, Names, is_spelled
from .query import MOST_NEEDS, QueryPart, QueryReader
from .word_vectors import (
    Mask,
    Numbers,
    Semantics,
    Vector,
    Vectors,
    WordVectors,
    joined,
    leading,
    pack,
    read_tools,
    shipped_table,
)
from .words_and_postings import (
    PURPOSE_LENGTH,
    Postings,
    document,
    name_words,
    plain,
    post,
    purpose_words,
    read,
    stem_of,
    words,
)

SEMANTIC_PART = "semantic"  # what an embedder says of the query and the tool
ECHO_PART = "says the query's words"  # what a tool loses that a server of many subjects has for just this query
NOISE = 0.0003  # what rounding may leave over


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


MEANING = 0.8  # what meaning counts beside words: a tool that has every word and means just the same would score 1.8
SUBJECT = 0.2  # what the subject of the tool's server counts beside its own meaning
FEW_TOOLS = 3  # tools with which a server's subject counts half of that: one tool alone is not yet a subject
SEMANTIC = 0.4
"""What an embedder's word counts beside both, where there is an embedder; docs/decisions/0013 has the figures."""
SAID = 0.5  # of a long query in few parts: how good a part is, beside the best one, that counts whole
TALK = 0.2  # how much better it must be for each part beyond six: most of many parts are talk
SPRAWL = 0.19  # how near each other the tools of a server are on average, below which it has no subject
MANY_TOOLS = 8  # tools from which on a server can be told to have none
ECHO = 0.85  # the share of a query's words that a tool has that echoes it
LOOKED_AT = 10  # tools that are looked at for it
REQUESTS = 0.2  # the share of a server's tools worded as requests from which on it has a tool for each likely query
REQUESTS_READ = 200  # tools of a server that are read for it
ANSWERS = 0.2  # the score of another tool, from which on an echo stands behind it
BEHIND = 0.97  # and where
WHOLE = 0.3  # what the whole query counts beside the need that a tool answers best, where there are several
FIRST = 0.2  # what the best tool of each need gets on top, so that the second best ones of another come after it
FEW_PARTS = 10  # parts of a query up to which that holds: of more, most are talk
FLOOR = 0.28  # the best score of a need, at least, beside which its tools are measured
CLEAR = 0.3  # how much nearer than tools in general a tool is that answers the query by an embedder's word alone
WORTH = 0.4  # the share of the best score below which a tool is not worth showing
JUST_SO = 5.0  # what a name counts that is the very query, before others that differ in a sign
PREFIX = 0.3  # what a name counts that begins with the query as others do
SUBJECT_WORDS = 2  # words of a query that may be a subject and nothing to be done
SUBJECT_TOOLS = 3  # tools of a server, at least, that have them
SUBJECT_SHARE = 0.6  # the share of its tools that do, and of the tools that have them
NEED_LENGTH = 80  # characters of a part of a query that are told with its hits
CONSIDERED = 100  # tools that are looked at closely, for their words and again for their meaning
FEW = 640  # tools up to which all are looked at
DEEP = 100  # tools beyond the lines asked for, among which those are that do the same
MARGIN = 10  # tools beyond those asked for that may still move up
BATCH = 256  # tools that are read together
VIEWS = 64  # visible sets that are kept at hand


class ToolIndex:
    """Finds tools by the words of their names, descriptions and parameters, and by what these mean."""

    def __init__(
        self,
        tools: Sequence[Tool],
        postings: Postings,
        vectors: Vectors,
        table: WordVectors,
        names: Names | None = None,
    ) -> None:
        """`names` are those of the index before this one, so that only new names are read."""
        self.tools = tools
        self.postings = postings
        self.vectors = vectors
        self.table = table
        self.names = Names(tools, postings, table.words, names)
        self.semantics: Semantics | None = None
        """The same tools in the eyes of an embedder, where there is one."""
        self.ages: Mapping[str, int] = {}
        """The servers, by how many were there before them."""
        self._all = np.arange(len(tools))
        self._views: dict[int, _View] = {}
        self._requests: dict[int, bool] = {}

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The best permitted tools first; ties are settled by handle."""
        view = self._view(within)
        mask = view.mask
        if limit <= 0 or not self.tools or (mask is not None and not mask.any()):
            return Findings()
        asked = view.reader.read(text)
        match = self.names.find(text, mask)
        lexical = [need.by_words(len(self.tools)) for need in asked]
        named = match.tools if match is not None else _NO_TOOLS
        tools = self._considered(asked, lexical, named, max(limit + MARGIN, CONSIDERED), mask)
        sense = None if self.semantics is None else self.semantics.sense(text)
        if sense is not None:
            tools = sense.widen(tools, max(limit + MARGIN, CONSIDERED), mask)
        if not len(tools):
            return Findings()
        wanted = np.stack([need.vector for need in asked])
        subjects, server_of, _ = self._subjects
        scores = self.vectors.nearness(wanted, tools)
        scores += (wanted @ subjects.T)[:, server_of[tools]]
        scores *= MEANING
        for row, by_words in zip(scores, lexical, strict=True):
            row += by_words[tools]
        semantic = None if sense is None else SEMANTIC * sense.nearness(tools)
        if len(asked) > MOST_NEEDS:
            kept = np.sort(np.argsort(-_answers(scores, asked), kind="stable")[:MOST_NEEDS])
            asked, scores = [asked[place] for place in kept], scores[kept]
        total, best, semantic_part = _total(scores, asked, semantic)
        echoing = self._echoing(text, total, tools)
        if echoing is not None and match is not None:
            match = match.without(tools[echoing])
        behind = total if echoing is None else _behind(total, echoing)
        ranked = self._ranked(text, behind, tools, match, limit + DEEP)
        if echoing is not None:
            _tell_echoes(ranked, behind - total, echoing)
        if semantic_part is not None:
            _tell_semantic(ranked, semantic_part)
        lines = self._grouped(text, ranked, limit, view.size)
        hits = tuple(self._hit(line, asked, best, scores) for line in lines)
        sure = match is not None or (semantic is not None and semantic.max() >= CLEAR * SEMANTIC)
        return self._findings(text, view, hits, asked, float(scores.max()), sure=sure)

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

    @cached_property
    def _subjects(self) -> Any:
        """What the tools of each server mean together, as far as it counts for one of them; each tool's server."""
        servers: dict[str, int] = {}
        numbers = np.array([servers.setdefault(tool.id.server, len(servers)) for tool in self.tools], dtype=np.intp)
        summed = self.vectors.sums(numbers, len(servers))
        counts = np.bincount(numbers, minlength=len(servers))
        lengths = np.maximum(np.linalg.norm(summed, axis=1), 1e-9)
        lengths = lengths.astype(np.float32)
        coherence = (lengths**2 - counts) / np.maximum(counts * (counts - 1), 1)
        sprawls = (counts >= MANY_TOOLS) & (coherence < SPRAWL)
        summed *= (SUBJECT * counts / (counts + FEW_TOOLS) / lengths).astype(np.float32)[:, None]
        return summed, numbers, sprawls

    def _ranked(self, text: str, total: Vector, tools: Numbers, match: NameMatch | None, count: int) -> list[Rank]:
        """The best by words and meaning; those that the query names come earlier, by how surely it names them."""
        places = np.flatnonzero(total >= max(WORTH * float(total.max()), 1e-6))
        if len(places) > count:
            places = places[leading(total[places], count)]
        if match is not None:
            places = np.union1d(places, np.flatnonzero(np.isin(tools, match.tools)))
        rows = zip(
            total[places].astype(np.float64).round(4).tolist(), tools[places].tolist(), places.tolist(), strict=True
        )
        ranked = [Rank(score, self.tools[number].handle, number, place) for score, number, place in rows]
        self._add_names(text, ranked, match)
        ranked.sort(key=Rank.place_in_order)
        return ranked

    def _add_names(self, text: str, ranked: Sequence[Rank], match: NameMatch | None) -> None:
        """What a query adds to tools that it names, or whose names begin with it."""
        named = frozenset(match.tools.tolist()) if match is not None else frozenset[int]()
        wanted = plain(text[:NAME_LENGTH])
        for row in ranked if len(wanted) >= SHORTEST_BEGINNING or named else ():
            tool = self.tools[row.number]
            if match is not None and row.number in named:
                is_just_so = match.part == EXACT_PART and is_spelled(tool, text.strip())
                row.add(match.part, match.value + JUST_SO * is_just_so)
            # Most names do not even share the first letter.
            elif tool.name[:1].casefold() == wanted[:1] and plain(tool.name).startswith(wanted):
                row.add(PREFIX_PART, PREFIX)

    def _echoing(self, text: str, total: Vector, tools: Numbers) -> Mask | None:
        """The tools of servers that were written to be found whatever is asked; None where there is none.

        Such a server has a tool for each likely query: its tools have no subject together and say the query's very
        words, or they are worded as requests. Honest servers are not like that, and what others offer is not taken for
        theirs.
        """
        if len(text.split(maxsplit=1)) < 2:  # one word may well be the name of a tool
            return None
        _, server_of, sprawls = self._subjects
        servers, asked = server_of[tools], set(words(text[:NAME_LENGTH]))
        order = np.argsort(-total, kind="stable")
        first = np.concatenate([order[:LOOKED_AT], order[sprawls[servers[order]]][:LOOKED_AT]]).tolist()
        caught = {
            server
            for place in dict.fromkeys(first)
            if self._is_worded_as_requests(server := int(servers[place]))
            or (sprawls[server] and _echoes(asked, self.tools[tools[place]]))
        }
        return np.isin(servers, list(caught)) if caught else None

    def _is_worded_as_requests(self, server: int) -> bool:
        """Whether many of a server's tools say what a user would ask, and not what they do."""
        known = self._requests.get(server)
        if known is None:
            own = np.flatnonzero(self._subjects[1] == server)[:REQUESTS_READ]
            asking = sum(is_request(self.tools[number].description[:PURPOSE_LENGTH]) for number in own.tolist())
            known = self._requests[server] = asking > REQUESTS * len(own)
        return known

    def _grouped(self, text: str, ranked: Sequence[Rank], limit: int, size: int) -> list[list[Rank]]:
        """The first tools that differ, each followed by tools of other servers that do practically the same."""
        vectors = self.vectors.unpack([row.number for row in ranked])

        @cache  # of the few lines that are shown, one product each
        def near(first: int) -> Vector:
            found: Vector = vectors @ vectors[first]
            return found

        asked = frozenset(words(text[:NAME_LENGTH]))
        lines = []
        for line in group(ranked, self.tools, near, limit, size):
            first = leader(line, ranked, self.tools, near, self.ages, asked) if len(line) > 1 else line[0]
            if first != line[0]:
                ranked[first].add(AGE_PART, round(ranked[line[0]].score - ranked[first].score, 4))
            lines.append([ranked[first], *(ranked[place] for place in line if place != first)])
        return lines

    def _findings(
        self, text: str, view: _View, hits: tuple[Hit, ...], asked: Sequence[QueryPart], best: float, *, sure: bool
    ) -> Findings:
        """The hits, with what is doubtful about them."""
        fits, weak = confidence(best, view.size)
        weak = not sure and (weak or any(need.is_elsewhere for need in asked))
        return Findings(
            hits=hits,
            fits=bool(hits) and (sure or fits),
            weak=bool(hits) and weak,
            unmatched=view.reader.unmatched(text) if weak or (not sure and not fits) else (),
            subject=self._subject(asked, view.mask) if len(asked) == 1 else "",
        )

    def _subject(self, asked: Sequence[QueryPart], mask: Mask | None) -> str:
        """The server that a query of one or two words is about: most of what it has, and few others have, says them."""
        terms = asked[0].terms
        if not 0 < len(asked[0].spelled) <= SUBJECT_WORDS or asked[0].asks or len(terms) < len(asked[0].spelled):
            return ""
        stems = {stem_of(word) for word in asked[0].spelled}
        found = None
        for term in terms:
            if term.word in stems:
                found = term.tools if found is None else np.intersect1d(found, term.tools, assume_unique=True)
        if found is None or not len(found):
            return ""
        found = found if mask is None else found[mask[found]]
        server_of = self._subjects[1]
        counts = np.bincount(server_of[found], minlength=1) if len(found) else np.zeros(1)
        first = int(counts.argmax())
        own = server_of == first if mask is None else (server_of == first) & mask
        held, size = int(counts[first]), int(np.count_nonzero(own))
        if held < SUBJECT_TOOLS or held < SUBJECT_SHARE * size or held < SUBJECT_SHARE * len(found):
            return ""
        return self.tools[int(found[server_of[found] == first][0])].id.server

    def _hit(self, line: Sequence[Rank], asked: Sequence[QueryPart], best: Numbers, scores: Vector) -> Hit:
        """The first tool of a line, with those that it speaks for."""
        row = line[0]
        need = int(best[row.place])
        return Hit(
            tool=self.tools[row.number],
            score=row.score,
            why=Why(asked[need], row.number, float(scores[need, row.place]), row.score, row.added),
            copies=tuple(self._hit([other], asked, best, scores) for other in line[1:]),
            need=" ".join(asked[need].text.split())[:NEED_LENGTH] if len(asked) > 1 else "",
        )

    def _view(self, within: Set[ToolId]) -> _View:
        """What a visible set lets be found."""
        known = self._views.get(id(within))
        if known is not None and known.within is within:
            return known
        found = np.fromiter((tool.id in within for tool in self.tools), dtype=np.bool_, count=len(self.tools))
        mask = None if found.all() else found
        size = len(self.tools) if mask is None else int(np.count_nonzero(mask))
        view = _View(within, mask, QueryReader(self.postings, self.table, mask), size)
        if isinstance(within, frozenset):  # others may change under our hands
            if len(self._views) >= VIEWS:
                self._views.clear()
            self._views[id(within)] = view
        return view


@dataclass(frozen=True, slots=True, eq=False)
class _View:
    """The tools that a visible set lets be found, and how queries are read among them."""

    within: Set[ToolId]
    mask: Mask | None  # none when all may be found
    reader: QueryReader
    size: int  # how many tools these are


def _answers(scores: Vector, asked: Sequence[QueryPart]) -> Vector:
    """How well each part of a long query is answered by its best tool, and whether it asks for something at all."""
    found: Vector = scores.max(axis=1).clip(0) * np.array([need.asked for need in asked], dtype=np.float32)
    return found


def _weights(scores: Vector, asked: Sequence[QueryPart]) -> Vector:
    """What the parts of a long query count: those that no tool answers well are taken for talk."""
    answers = _answers(scores, asked)
    plain = min(1.0, SAID + TALK * max(0, asked[0].parts - MOST_NEEDS))
    found: Vector = np.sqrt(np.minimum(answers / max(plain * float(answers.max()), 1e-6), 1), dtype=np.float32)
    return found


def _total(
    scores: Vector, asked: Sequence[QueryPart], semantic: Vector | None
) -> tuple[Vector, Numbers, Vector | None]:
    """What each tool scores in all, for which need, and what an embedder, which reads the whole query, has part in it.

    Of several needs, the one that a tool answers best counts most. Each is measured by its own best tool, so that no
    need crowds out the others, unless no tool answers it.
    """
    if len(scores) == 1:
        total = scores[0] if semantic is None else scores[0] + semantic
        return total, np.zeros(len(total), dtype=np.intp), semantic
    whole = np.average(scores, axis=0, weights=[need.mass for need in asked]).astype(np.float32)
    if semantic is not None:
        whole += semantic
    scale = np.float32(WHOLE / max(float(whole.max()), FLOOR))
    shares = scores / np.maximum(scores.max(axis=1, keepdims=True), np.float32(FLOOR))
    if asked[0].parts:
        shares *= _weights(scores, asked)[:, None]
    best = shares.argmax(axis=0)
    total = scale * whole + shares[best, np.arange(shares.shape[1])]
    if asked[0].parts <= FEW_PARTS:
        firsts = shares.argmax(axis=1)
        np.add.at(total, firsts, FIRST * shares[np.arange(len(shares)), firsts])
    return total, best, None if semantic is None else semantic * scale


def _echoes(asked: Set[str], tool: Tool) -> bool:
    """Whether a tool's name, or what it says it is for, has nearly all words of a query."""
    said = (name_words(tool.name), purpose_words(tool.description[:PURPOSE_LENGTH]))
    return len(asked) > 1 and any(len(asked & one) >= ECHO * len(asked) for one in said)


def _tell_echoes(ranked: list[Rank], lost: Vector, echoing: Mask) -> None:
    """Tell what tools have lost that echo the query, and take back what the beginning of their names brought."""
    for row in ranked:
        if echoing[row.place]:
            row.score = round(row.score - row.added.get(PREFIX_PART, 0.0), 4)
            row.added = {ECHO_PART: round(float(lost[row.place]), 4)}
    ranked.sort(key=Rank.place_in_order)


def _tell_semantic(ranked: Sequence[Rank], parts: Vector) -> None:
    """Tell what an embedder has part in the scores, which have it already."""
    for row in ranked:
        row.added = {**row.added, SEMANTIC_PART: float(parts[row.place])}


def _behind(total: Vector, echoing: Mask) -> Vector:
    """The scores, where those that echo the query stand behind the best other one, if that answers at all."""
    other = float(total[~echoing].max(initial=0))
    if other < ANSWERS:
        return total
    found = np.where(echoing, np.minimum(total, np.float32(BEHIND * other)), total)
    best = int(np.where(echoing, total, -1).argmax())
    rest = echoing.copy()
    rest[best] = False
    found[rest] *= np.float32(WORTH)
    return found


_NO_TOOLS: Numbers = np.array([], dtype=np.intp)


def build_index(
    snapshot: CatalogSnapshot,
    previous: Index | None,
    source: Meanings | None = None,
    store: DefinitionStore | None = None,
) -> ToolIndex:
    """Index a snapshot; what is known of tools that did not change is taken from the previous index.

    The first index is taken from the store where the same tools were indexed before, and else is kept there.
    """
    before = previous if isinstance(previous, ToolIndex) else None
    index = index_tools(list(snapshot.tools.values()), before, store)
    index.ages = snapshot.ages
    if source is not None:
        index.semantics = read_tools(source, index.tools, before.semantics if before is not None else None)
    return index


def index_tools(
    tools: Sequence[Tool], previous: ToolIndex | None = None, store: DefinitionStore | None = None
) -> ToolIndex:
    """Index tools; those that the previous index had are not read again."""
    if previous is not None and previous.tools:
        return _changed(previous, tools)
    table = shipped_table()
    mark = _mark_of(tools) if store is not None and tools else b""
    if store is not None and mark and (stored := _load_index(store, mark)) is not None:
        return ToolIndex(tools, *stored, table)
    batches = _Batches(tools, table)
    index = ToolIndex(tools, post(batches.documents()), batches.vectors(), table)
    if store is not None and mark:
        with suppress(StoreError):  # the next start builds it once more
            store.save_vectors(STORED_AS, {STORED_AS: _to_bytes(mark, index)})
    return index


STORED_AS = "search index 3"
"""The name of the one stored index; another layout or another way to read tools has another number."""
_DIGEST = 16
_TYPES = {"starts": "<i8", "signs": "<u8", "scales": "<f4", "values": "<f4", "tools": "<i4", "numbers": "<i1"}
"""The arrays of an index in the order of their alignment, each with its type."""


def _mark_of(tools: Sequence[Tool]) -> bytes:
    """A digest of all that an index follows from; empty for tools that are no JSON."""
    said = [
        (*tool.id, tool.handle, tool.listed, tool.title, tool.category, tool.tags, tool.description, tool.properties)
        for tool in tools
    ]
    try:
        return _digest(orjson.dumps([VERSION, said], option=orjson.OPT_NON_STR_KEYS))
    except TypeError:
        return b""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST).digest()


def _to_bytes(mark: bytes, index: ToolIndex) -> bytes:
    postings, vectors = index.postings, index.vectors
    arrays = {
        "starts": postings.starts,
        "signs": np.stack(vectors.signs),
        "scales": vectors.scales,
        "values": postings.values,
        "tools": postings.tools,
        "numbers": vectors.numbers,
    }
    parts = [np.ascontiguousarray(arrays[name], dtype=kind).tobytes() for name, kind in _TYPES.items()]
    data = b"".join([*parts, orjson.dumps([[len(part) for part in parts], list(postings.words)])])
    head = sum(map(len, parts)).to_bytes(8, "little")
    return mark + _digest(head + data) + head + data


def _load_index(store: DefinitionStore, mark: bytes) -> tuple[Postings, Vectors] | None:
    """The stored index of the same tools; None where there is none, or one that is broken."""
    try:
        blob = store.load_vectors(STORED_AS, [STORED_AS]).get(STORED_AS, b"")
    except StoreError:
        return None
    start, data = 2 * _DIGEST + 8, blob[2 * _DIGEST :]
    if not blob.startswith(mark) or len(blob) <= start or blob[_DIGEST : 2 * _DIGEST] != _digest(data):
        return None
    lengths, words = orjson.loads(blob[start + int.from_bytes(blob[start - 8 : start], "little") :])
    found: dict[str, NDArray[Any]] = {}
    for (name, kind), length in zip(_TYPES.items(), lengths, strict=True):
        found[name] = np.frombuffer(blob, dtype=kind, count=length // np.dtype(kind).itemsize, offset=start)
        start += length
    size = len(found["scales"])
    postings = Postings(
        dict(zip(words, range(len(words)), strict=True)), found["starts"], found["tools"], found["values"], size
    )
    signs = tuple(found["signs"].reshape(-1, size))
    return postings, Vectors(found["numbers"].reshape(size, -1), found["scales"], signs)


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
        previous.names,
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
