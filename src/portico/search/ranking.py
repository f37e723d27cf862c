"""The order of hits that are practically equal, and why a tool was found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from portico.domain.disclosure import Hit
from portico.domain.tool import ToolId
from portico.domain.usage import Usage

from .query import Need

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

    def __init__(self, need: Need, tool: int, base: float, score: float, added: Mapping[str, float]) -> None:
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
