"""The one budgeter: answers are degraded rung by rung until they fit, and say what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portico.domain.disclosure import Card, Disclosure, Level
from portico.ports import TokenCounter

_WITHHELD = 6
"""Tokens of the line that counts what is withheld."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """One tool at falling detail: each rung is a level and its text, the last one is the bare handle."""

    handle: str
    texts: tuple[tuple[Level, str], ...]


def fit(
    cards: Sequence[Rungs],
    *,
    tokens: int,
    counter: TokenCounter,
    head: str = "",
    tail: str = "",
    total: int | None = None,
    separator: str = "\n",
) -> Disclosure:
    """Show every card as fully as the tokens allow.

    The last card gives way first, because the first one is the likeliest answer. When even the handles do not fit,
    as many as do are shown with the count of the rest.
    """
    room = tokens - counter.count(head) - counter.count(tail) - 2  # what rounding can add
    rungs = [0] * len(cards)
    costs = [counter.count(card.texts[0][1]) + 1 for card in cards]
    for depth in range(1, max((len(card.texts) for card in cards), default=0)):
        for number in range(len(cards) - 1, -1, -1):
            if sum(costs) <= room:
                break
            if depth < len(cards[number].texts):
                rungs[number] = depth
                costs[number] = counter.count(cards[number].texts[depth][1]) + 1
    shown = len(cards)
    while shown and sum(costs[:shown]) + (_WITHHELD if shown < len(cards) else 0) > room:
        shown -= 1
    chosen = tuple(
        Card(handle=card.handle, level=card.texts[rung][0], text=card.texts[rung][1])
        for card, rung in zip(cards[:shown], rungs, strict=False)
    )
    withheld = len(cards) - shown
    lines = [head, *(card.text for card in chosen), f"({withheld} more withheld)" if withheld else "", tail]
    text = separator.join(line for line in lines if line)
    return Disclosure(
        text=text,
        tokens=counter.count(text),
        cards=chosen,
        shown=shown,
        total=len(cards) if total is None else total,
        next=tail,
    )
