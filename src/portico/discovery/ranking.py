"""Usage settles what words leave open: the order of hits that are practically equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from portico.domain.disclosure import Hit
from portico.domain.tool import ToolId
from portico.domain.usage import Usage

from .reasons import COPY_PART

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
