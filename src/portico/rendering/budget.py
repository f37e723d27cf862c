"""The one budgeter and the token counters: answers lose detail step by step until they fit."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, overload

import orjson

from portico.domain.disclosure import Card, Disclosure, Level
from portico.domain.snapshot import CatalogSnapshot
from portico.errors import ConfigError
from portico.execution.learning import tokens_per_letter
from portico.protocols import TokenCounter

from .cache import PerSnapshot

_CLASSES = (
    (re.compile(r"[A-Z]?[a-z]{1,10}|[A-Z]{1,4}"), 98),
    (re.compile(r"_"), 35),
    (re.compile(r"[0-9]{1,3}"), 104),
    (re.compile(r"[!-/:-@\[-^`{-~]{1,6}"), 112),
    (re.compile(r"\s{2,16}|\n"), 80),
    (re.compile(r"[\u00c0-\u1fff]"), 35),
    (re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"), 70),
    (re.compile(r"[^\s!-~\u00c0-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"), 130),
)
"""Hundredths of a token for each match: words, marks, white space, letters of other alphabets, ideographs, the rest.

Fitted to o200k on the definitions of real servers and on answers made of them. Each pattern reads a text once."""


PART = 16_384
"""Letters that are read at once: reading holds up every other thread, the event loop's too."""
_END_OF_WORD = re.compile(r"[a-z][^a-zA-Z]")


def _parts(text: str) -> Iterator[str]:
    """A text in parts that end where a word does, so that together they have the matches of the whole."""
    start = 0
    while len(text) - start > 2 * PART:
        found = _END_OF_WORD.search(text, start + PART, start + 2 * PART)
        end = found.start() + 1 if found else start + 2 * PART
        yield text[start:end]
        start = end
    yield text[start:] if start else text


class TokenEstimate:
    """Counts tokens without a vocabulary file or a network."""

    name = "estimate"

    def count(self, text: str) -> int:
        """Tokens of a text, estimated; rounded up, so that parts together never count less than the whole."""
        matches = (weight * len(pattern.findall(part)) for part in _parts(text) for pattern, weight in _CLASSES)
        return -(-sum(matches) // 100)


class ExactTokens:
    """Counts the tokens of OpenAI's o200k vocabulary; needs the extra `tokens`."""

    name = "o200k"

    def __init__(self) -> None:
        self._tokenizer = _vocabulary()

    def count(self, text: str) -> int:
        """Tokens of a text; what looks like a control token counts as the text that it is."""
        try:
            return len(self._tokenizer.encode_ordinary(text))
        except UnicodeEncodeError:  # half of a surrogate pair, which no vocabulary has
            return len(self._tokenizer.encode_ordinary(text.encode(errors="replace").decode()))


def counter_for(choice: str) -> TokenCounter:
    """The counter that the setting `tokens` names: `estimate` or `exact`.

    Raises:
        ConfigError: the exact one is asked for, and its extra is not installed.
    """
    return ExactTokens() if choice == "exact" else TokenEstimate()


def _vocabulary() -> Any:
    try:
        splintr = import_module("splintr")  # an extra, loaded only where it is asked for
    except ImportError as error:
        raise ConfigError(
            "exact counts need an extra that is not installed",
            where="tokens",
            fix="Run: pip install 'portico[tokens]', or write `tokens: estimate`.",
        ) from error
    return splintr.Tokenizer.from_pretrained("o200k_base")


SAMPLE, PLACES = 20_000, 10
"""Of a long list this many characters are counted, at so many places; the rest is taken to be like them."""

Definitions = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class ListingCosts:
    """Tokens of lists of definitions; each list is made and counted once in a snapshot."""

    counter: TokenCounter
    _known: PerSnapshot[int] = field(default_factory=PerSnapshot)

    def tokens(self, snapshot: CatalogSnapshot, key: Hashable, make: Callable[[], Definitions]) -> int:
        """Tokens of a list, about, when it is a long one; `key` tells it from every other list of the snapshot."""
        return self._known.get(snapshot, key, lambda: sampled_tokens(_dumped(make()), self.counter))


def sampled_tokens(text: str, counter: TokenCounter) -> int:
    """Tokens of a text; of a long one, about."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLE, places=PLACES))


def _dumped(definitions: Definitions) -> str:
    try:
        return orjson.dumps(definitions).decode()
    except TypeError:  # integers beyond 64 bits
        return json.dumps(definitions, default=str)


OUTLIER = 3
"""An item that costs so many times its share of the room begins with less, so that not all pay for it."""


class Texts(Sequence[tuple[Level, str]]):
    """The variants of one thing, each rendered when it is first read, and kept: most answers need only the first."""

    def __init__(self, renders: Sequence[tuple[Level, Callable[[], str]]]) -> None:
        self._renders = renders
        self._rendered: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._renders)

    @overload
    def __getitem__(self, rung: int) -> tuple[Level, str]: ...
    @overload
    def __getitem__(self, rung: slice) -> Sequence[tuple[Level, str]]: ...
    def __getitem__(self, rung: int | slice) -> tuple[Level, str] | Sequence[tuple[Level, str]]:
        if isinstance(rung, slice):
            return [self[number] for number in range(len(self))[rung]]
        number = range(len(self))[rung]
        level, render = self._renders[number]
        if number not in self._rendered:
            self._rendered[number] = render()
        return level, self._rendered[number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """One tool at falling detail: each variant is a level and its text, the last one is the bare handle."""

    handle: str
    texts: Sequence[tuple[Level, str]]

    def card(self, rung: int) -> Card:
        """The card at one variant; -1 is the lowest."""
        level, text = self.texts[rung]
        return Card(handle=self.handle, level=level, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """What stands around the cards of an answer."""

    head: str = ""
    tail: str = ""
    separator: str
    total: int

    def text(self, cards: Sequence[Card]) -> str:
        """The answer with these cards; those that are not shown are counted."""
        left = self.total - len(cards)
        count = f"({left} more withheld)" if cards else f"({left} withheld)"
        parts = [self.head, *(card.text for card in cards), count if left > 0 else "", self.tail]
        return self.separator.join(part for part in parts if part)


def fit(
    cards: Sequence[Variants],
    *,
    tokens: int,
    counter: TokenCounter,
    head: str = "",
    tail: str = "",
    total: int | None = None,
    separator: str = "\n",
) -> Disclosure:
    """Show every card as fully as the tokens allow; never more tokens than that.

    The last card gives way first, because the first one is the likeliest answer. When even the handles do not fit,
    as many as do are shown with the count of the rest. A budget that has no room for one handle between head and tail
    loses these two, and still shows handles and the count. When not even the count fits, the text is empty.
    """
    total = len(cards) if total is None else total
    around = _Frame(head=head, tail=tail, separator=separator, total=len(cards))
    bare = _Frame(separator=separator, total=max(total, len(cards)))
    lowest = [card.card(-1) for card in cards]
    chosen = _fullest(cards, around, tokens, counter) or _most(lowest, around, tokens, counter)
    text = around.text(chosen)
    if (cards and not chosen) or counter.count(text) > tokens:
        chosen = _most(lowest, bare, tokens, counter)
        text = bare.text(chosen)
    cost = counter.count(text)
    return Disclosure(
        text=text if cost <= tokens else "",
        tokens=cost if cost <= tokens else 0,
        cards=tuple(chosen),
        shown=len(chosen),
        total=total,
        next=tail,
        counter=counter.name,
    )


def balance(items: Sequence[Variants], room: int, counter: TokenCounter) -> list[Variants]:
    """The items, where one that takes far more than its share begins at a lower variant, so that not all pay for it."""
    costs = [counter.count(item.card(0).text) + 1 for item in items]
    share = water_level(costs, room)
    return [
        _lowered(item, share, counter) if cost > OUTLIER * share else item
        for item, cost in zip(items, costs, strict=True)
    ]


def fill(items: Sequence[Variants], cards: Sequence[Card], room: int, counter: TokenCounter) -> list[Card]:
    """The cards of these items, raised variant by variant in turns: what some gave up for nothing is not wasted.

    Whether the whole fits is for the caller to count: joined texts may count more or less than their parts.
    """
    chosen = list(cards)
    variants = [_rung(item, card) for item, card in zip(items, cards, strict=False)]
    left = room - sum(counter.count(card.text) + 1 for card in cards)
    turn = list(range(len(chosen)))
    while turn:
        following = []
        for number in turn:
            higher = items[number].card(variants[number] - 1) if variants[number] else chosen[number]
            more = counter.count(higher.text) - counter.count(chosen[number].text)
            if variants[number] and more <= left:
                chosen[number], variants[number], left = higher, variants[number] - 1, left - more
                following.append(number)
        turn = following
    return chosen


def _rung(item: Variants, card: Card) -> int:
    """Which of an item's variants a card is; the lower ones are looked at first, since they cost less to make."""
    return next(rung for rung in range(len(item.texts) - 1, -1, -1) if item.card(rung).text == card.text)


def water_level(sizes: Sequence[int], room: int) -> int:
    """The most that each answer may cost so that these ones fit a room together, the smaller ones whole.

    What is left over when all of them fit is shared out among them.
    """
    left = room
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0) + (left // len(sizes) if sizes else room)


def _lowered(item: Variants, share: int, counter: TokenCounter) -> Variants:
    rung = next((n for n in range(len(item.texts)) if counter.count(item.card(n).text) <= share), len(item.texts) - 1)
    return Variants(handle=item.handle, texts=item.texts[rung:])


def _fullest(cards: Sequence[Variants], frame: _Frame, tokens: int, counter: TokenCounter) -> list[Card]:
    """All cards, each at the highest variant at which they fit together; nothing when not even the lowest ones do."""
    around = counter.count(frame.head) + counter.count(frame.tail)
    for chosen, cost in _descent(cards, counter):
        # Counts of parts can only say when it is worth counting the whole: joined texts may count more or less.
        if around + cost <= tokens and counter.count(frame.text(chosen)) <= tokens:
            return chosen
    return []


def _descent(cards: Sequence[Variants], counter: TokenCounter) -> Iterator[tuple[list[Card], int]]:
    """The cards at full detail, then one of them a variant lower each time, the last card first; with costs.

    A variant that saves nothing is passed over.
    """
    chosen = [card.card(0) for card in cards]
    costs = [counter.count(card.text) + 1 for card in chosen]
    yield chosen, sum(costs)
    for depth in range(1, max((len(card.texts) for card in cards), default=0)):
        for number in range(len(cards) - 1, -1, -1):
            if depth >= len(cards[number].texts):
                continue
            lower = cards[number].card(depth)
            cost = counter.count(lower.text) + 1
            if cost < costs[number]:
                chosen[number], costs[number] = lower, cost
                yield chosen, sum(costs)


def _most(cards: Sequence[Card], frame: _Frame, tokens: int, counter: TokenCounter) -> Sequence[Card]:
    """As many of the first cards as fit; none when not one does."""
    if counter.count(frame.text(cards)) <= tokens:
        return cards
    most = bisect_left(range(1, len(cards) + 1), True, key=lambda n: counter.count(frame.text(cards[:n])) > tokens)
    while most and counter.count(frame.text(cards[:most])) > tokens:
        most -= 1
    return cards[:most]
