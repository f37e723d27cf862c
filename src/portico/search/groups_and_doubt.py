"""How hits are put in order: which tools are one answer, which leads, what use adds, and what is doubtful."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from portico.domain.search_answers import Hit
from portico.domain.tool import Effect, Tool, ToolId
from portico.domain.usage_and_tiers import Usage

from .word_vectors import Vector
from .words_and_postings import action_and_thing, name_words, split_description, words

ALIKE = 0.45  # how near two tools are, at least, that do practically the same
SAME = 0.6  # how near they are where one answers the query less well than the other
SAME_IN_CROWD = 0.5
AS_WELL = 0.7  # the share of the better score from which on one answers it as well
AS_WELL_IN_CROWD = 0.5
RIVAL = 0.75  # and from which on the first tool of another name has a line of its own
RIVAL_IN_CROWD = 0.95
SMALL, CROWD = 2_048, 8_192
"""Tools among which few do the same, so that each may have a line, and among which many do."""
LINES_AMONG = 6_000
"""Tools among which those that do the same in another name still have lines of their own."""
COPY = 0.9  # how near a tool is to another of its name that it copies
OLDER = 0.8  # the share of a copy's score with which the tool that was there before leads

REFUSED = 0.22
"""The best score below which no tool is said to answer, among so many tools; docs/decisions/0012 has the figures."""
DOUBTED = 0.34  # and below which an answer is shown, but marked as weak
AMONG = 538
REFUSED_MORE, DOUBTED_MORE = 0.025, 0.037  # how much higher both are for each doubling: chance finds more among more
AGE_PART = "was there before its copies"


class Confidence(NamedTuple):
    """Whether the best hit answers a query, and whether that is in doubt."""

    fits: bool
    weak: bool


def confidence(best: float, size: int) -> Confidence:
    """What the best score says in a catalog of some size."""
    doublings = math.log2(max(size / AMONG, 1))
    return Confidence(best >= REFUSED + REFUSED_MORE * doublings, best < DOUBTED + DOUBTED_MORE * doublings)


_NOTHING: Mapping[str, float] = {}


class Rank:
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


Nearness = Callable[[int], Vector]
"""The cosines between the tool at one place of a ranking and all of them."""


class Likeness(NamedTuple):
    """How alike tools must be to share a line: the more tools there are, the less, since more of them do the same."""

    same: float
    as_well: float
    rival: float

    @classmethod
    def among(cls, size: int) -> Likeness:
        """What holds among so many tools."""
        share = min(max(math.log2(max(size, 1) / SMALL) / math.log2(CROWD / SMALL), 0.0), 1.0)
        pairs = ((SAME, SAME_IN_CROWD), (AS_WELL, AS_WELL_IN_CROWD), (RIVAL, RIVAL_IN_CROWD))
        return cls(*(few + share * (many - few) for few, many in pairs))


def group(ranked: Sequence[Rank], tools: Sequence[Tool], near: Nearness, limit: int, size: int) -> list[list[int]]:
    """The places of the first tools that differ, each followed by tools of other servers that do practically the same.

    `near` tells how near the ranked tools are to one of them; `size` is how many tools they were found among. Where
    these are few, one of the first with a name of its own has a line of its own.
    """
    listed, likeness = [tools[row.number] for row in ranked], Likeness.among(size)
    alone = limit if size <= LINES_AMONG else 0
    free = [True] * len(ranked)
    lines: list[list[int]] = []
    for first in range(len(ranked)):
        if len(lines) >= limit:
            break
        if free[first]:
            others = (np.flatnonzero(near(first)[first + 1 :] >= ALIKE) + first + 1).tolist()
            others = [p for p in others if free[p] and (p >= alone or not _is_rival(listed[first], listed[p]))]
            joining = _joining(first, others, ranked, listed, near(first), likeness)
            lines.append([first, *joining])
            for place in lines[-1]:
                free[place] = False
    return lines


def _joining(
    first: int,
    others: Sequence[int],
    ranked: Sequence[Rank],
    listed: Sequence[Tool],
    near: Vector,
    likeness: Likeness,
) -> Iterator[int]:
    """Those of some tools that the first one speaks for, at most one of a server; its first rival stands alone."""
    servers, has_rival = {listed[first].id.server}, False
    for place in others:
        share, tool = ranked[place].score / max(ranked[first].score, 1e-9), listed[place]
        if tool.id.server in servers or not is_same(
            listed[first], tool, float(near[place]), ALIKE if share >= likeness.as_well else likeness.same
        ):
            continue
        if share >= likeness.rival and not has_rival and _is_rival(listed[first], tool):
            has_rival = True
            continue
        servers.add(tool.id.server)
        yield place


def _is_rival(one: Tool, other: Tool) -> bool:
    """Whether a tool that does the same has a name and a description of its own, and so is worth a line of its own."""
    return one.description != other.description and name_words(one.name) != name_words(other.name)


def is_same(one: Tool, other: Tool, near: float, least: float = SAME) -> bool:
    """Whether two tools do practically the same: they are near, and neither does what the other does not."""
    mine, theirs = _doing(one), _doing(other)
    if mine[0] and theirs[0] and mine[0] != theirs[0]:
        return False
    if {one.effect, other.effect} == {Effect.READ, Effect.DESTRUCTIVE}:
        return False
    return near >= least or (near >= ALIKE and mine[1] == theirs[1])


def _doing(tool: Tool) -> tuple[str, str]:
    """What a tool does, by its name or else by what it says it is for, and the thing that it does it to."""
    action, thing = action_and_thing(tool.name)
    return action or _first_action(tool.description[:200]), thing


@lru_cache(4_096)
def _first_action(text: str) -> str:
    return action_and_thing(" ".join(split_description(text)[0].split()[:3]))[0]


def leader(
    line: Sequence[int],
    ranked: Sequence[Rank],
    tools: Sequence[Tool],
    near: Nearness,
    ages: Mapping[str, int],
    asked: Set[str],
) -> int:
    """Who leads a line: the best, unless it copies one that was there before and the query does not name its server."""
    best = line[0]
    first, named = ranked[best], tools[ranked[best].number]
    for place in line[1:]:
        row, tool = ranked[place], tools[ranked[place].number]
        if ages.get(tool.id.server, 0) < ages.get(tools[ranked[best].number].id.server, 0) and _is_copied(
            first, row, named, tool, float(near(line[0])[place])
        ):
            best = place if not _names_server(asked, named, tool) else best
    return best


def _is_copied(copy: Rank, row: Rank, one: Tool, other: Tool, near: float) -> bool:
    same_name = words(one.name) == words(other.name)
    if copy.added.keys() != row.added.keys() or row.score < OLDER * copy.score:
        return False
    return one.description == other.description or (near >= COPY and same_name)


def _names_server(asked: Collection[str], tool: Tool, other: Tool) -> bool:
    """Whether a query says a word of a tool's server that the other's has not, and that neither tool has otherwise."""
    own = set(words(tool.id.server)) - set(words(other.id.server))
    said = own.intersection(asked)
    return bool(said) and not said <= set(words(f"{tool.name} {tool.description}"))


_REQUEST = re.compile(r"\b(?:I|[Mm]e|[Mm]y)\b|\?(?=\s|$)")


@lru_cache(4_096)
def is_request(description: str) -> bool:
    """Whether a description is worded as what a user asks for: of 9,132 public tools, nine are."""
    return bool(_REQUEST.search(split_description(description)[0]))


USAGE_SHARE = 0.01  # what usage can add to a score, at the very most: a hit that is more than this ahead stays ahead
USAGE_PART = "usage"
LEARNED_SHARE = 0.15  # and what words can that have come to stand for a tool
STRONG = 0.5  # how far they must stand for it to add all of that; no two tools can both have so much
LEARNED_PART = "learned"
LEADS = 0.9  # the share of the score of a group's first tool from which on another leads the group that is used more


def settle(
    hits: Sequence[Hit], usage: Mapping[ToolId, Usage], learned: Mapping[ToolId, float] = MappingProxyType({})
) -> list[Hit]:
    """The same hits; what is called often and well leads its group, and comes first among practically equal ones.

    `learned` is how far the words of the query have come to stand for each tool.
    """
    if not any(one.tool.id in usage or one.tool.id in learned for hit in hits for one in (hit, *hit.copies)):
        return list(hits)
    weighed = [_weighed(_most_used_first(hit, usage, learned), usage, learned) for hit in hits]
    return sorted(weighed, key=lambda hit: -hit.score)


def _most_used_first(hit: Hit, usage: Mapping[ToolId, Usage], learned: Mapping[ToolId, float]) -> Hit:
    """A hit with that tool of its group in front which is used most, of those that answer about as well."""
    rivals = [hit, *(copy for copy in hit.copies if copy.score >= LEADS * hit.score)]
    first = max(rivals, key=lambda one: _standing(usage.get(one.tool.id)) + learned.get(one.tool.id, 0.0))
    if first is hit:
        return hit
    others = (replace(hit, copies=()), *(copy for copy in hit.copies if copy is not first))
    why = {**first.why, USAGE_PART: round(hit.score - first.score, 4)} if hit.score != first.score else first.why
    return replace(first, score=hit.score, why=why, copies=others)


def _weighed(hit: Hit, usage: Mapping[ToolId, Usage], learned: Mapping[ToolId, float]) -> Hit:
    own = max(hit.score, 0)
    added = {
        USAGE_PART: round(USAGE_SHARE * own * _standing(usage.get(hit.tool.id)), 4),
        LEARNED_PART: round(LEARNED_SHARE * own * _told(learned.get(hit.tool.id, 0.0)), 4),
    }
    if not any(added.values()):
        return hit
    more = {part: round(hit.why.get(part, 0.0) + value, 4) for part, value in added.items() if value}
    return replace(hit, score=round(hit.score + sum(added.values()), 4), why={**hit.why, **more})


def _told(strength: float) -> float:
    """What a strength counts: a query that was asked before much, one that shares a word with it next to nothing."""
    return min(strength / STRONG, 1.0) ** 2


def _standing(usage: Usage | None) -> float:
    """From 0 (never called, or never well) towards 1; each call counts less than the one before."""
    weight = math.log1p(usage.calls) * (usage.success or 0.0) if usage is not None else 0.0
    return weight / (1 + weight)
