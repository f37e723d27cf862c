"""Token counters, and the one budgeter: answers lose detail step by step, then break into pages, until they fit."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeVar
from zlib import crc32

import orjson

from portico.domain.search_answers import Budget, Card, Disclosure, Hit, Level, Query
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage
from portico.errors import ConfigError, NextCall
from portico.protocols import TokenCounter
from portico.search.groups_and_doubt import settle
from portico.text.untrusted import one_line

T = TypeVar("T")
Spell = Callable[[NextCall], str]  # how a surface words the call that would move its caller on

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


PART = 16_384  # letters that are read at once: reading holds up every other thread, the event loop's too
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
        try:
            splintr = import_module("splintr")  # an extra, loaded only where it is asked for
        except ImportError as error:
            raise ConfigError(
                "exact counts need an extra that is not installed",
                where="tokens",
                fix="Run: pip install 'portico[tokens]', or write `tokens: estimate`.",
            ) from error
        self._tokenizer: Any = splintr.Tokenizer.from_pretrained("o200k_base")

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


SAMPLE, PLACES = 20_000, 10
"""Of a long list this many characters are counted, at so many places; the rest is taken to be like them."""


def tokens_per_letter(text: str, count: Callable[[str], int], *, letters: int, places: int) -> float:
    """Tokens per letter; of a text with more letters than these, by as many of them, at places from end to end."""
    if not text:
        return 0.0
    if len(text) > letters:
        length = letters // places
        step = (len(text) - length) // max(1, places - 1)
        text = "".join(text[place * step : place * step + length] for place in range(places))
    return count(text) / len(text)


def definition_tokens(definitions: Sequence[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Tokens of a list of definitions; of a long one, about."""
    try:
        text = orjson.dumps(definitions).decode()
    except TypeError:  # integers beyond 64 bits
        text = json.dumps(definitions, default=str)
    return sampled_tokens(text, counter)


def sampled_tokens(text: str, counter: TokenCounter) -> int:
    """Tokens of a text; of a long one, about."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLE, places=PLACES))


ATTEMPTS = 8  # of making a list fit together with what stands around it
OUTLIER = 3  # an item that costs so many times its share of the room begins with less, so that not all pay for it


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """One tool in falling detail, the bare handle last; a text is rendered when it is first read, and kept."""

    handle: str
    texts: Sequence[tuple[Level, str | Callable[[], str]]]
    _cards: dict[int, Card] = field(default_factory=dict, repr=False, compare=False)

    def card(self, step: int) -> Card:
        """The card at one step: 0 has everything, -1 the least."""
        step %= len(self.texts)
        if step not in self._cards:
            level, text = self.texts[step]
            self._cards[step] = Card(handle=self.handle, level=level, text=text if isinstance(text, str) else text())
        return self._cards[step]

    @property
    def cards(self) -> list[Card]:
        """Every step, rendered."""
        return [self.card(step) for step in range(len(self.texts))]

    def from_step(self, step: int) -> Variants:
        """The same without the steps before this one."""
        return Variants(handle=self.handle, texts=self.texts[step:])

    def edit(self, change: Callable[[str], str]) -> Variants:
        """The same with every text changed, when it is read."""
        texts = [(level, lambda step=step: change(self.card(step).text)) for step, (level, _) in enumerate(self.texts)]
        return Variants(handle=self.handle, texts=texts)


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

    def write(shown: Sequence[Card]) -> str:
        return _write(head, shown, len(cards), tail, separator)

    def write_bare(shown: Sequence[Card]) -> str:
        return _write("", shown, max(total, len(cards)), "", separator)

    chosen = _fullest(cards, write, tokens - counter.count(head) - counter.count(tail), tokens, counter)
    chosen = chosen or _most(cards, write, tokens, counter)
    text = write(chosen)
    if (cards and not chosen) or counter.count(text) > tokens:
        chosen = _most(cards, write_bare, tokens, counter)
        text = write_bare(chosen)
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


def _write(head: str, shown: Sequence[Card], total: int, tail: str, separator: str) -> str:
    left = total - len(shown)
    count = f"({left} more withheld)" if shown else f"({left} withheld)"
    parts = [head, *(card.text for card in shown), count if left > 0 else "", tail]
    return separator.join(part for part in parts if part)


def _fullest(
    cards: Sequence[Variants], write: Callable[[Sequence[Card]], str], room: int, tokens: int, counter: TokenCounter
) -> list[Card]:
    """All cards, each at the highest step at which they fit together; nothing when not even the lowest ones do."""
    for chosen, cost in _descent(cards, counter):
        # Counts of parts can only say when it is worth counting the whole: joined texts may count more or less.
        if cost <= room and counter.count(write(chosen)) <= tokens:
            return chosen
    return []


def _descent(cards: Sequence[Variants], counter: TokenCounter) -> Iterator[tuple[list[Card], int]]:
    """The cards at full detail, then one of them a step lower each time, the last card first; with costs.

    A step that saves nothing is passed over.
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


def _most(
    cards: Sequence[Variants], write: Callable[[Sequence[Card]], str], tokens: int, counter: TokenCounter
) -> list[Card]:
    """As many of the first cards as fit, each at its lowest step; none when not one does."""
    lowest = [card.card(-1) for card in cards]

    def is_too_long(shown: int) -> bool:
        return counter.count(write(lowest[:shown])) > tokens

    if not is_too_long(len(cards)):
        return lowest
    most = bisect_left(range(1, len(cards) + 1), True, key=is_too_long)
    while most and is_too_long(most):
        most -= 1
    return lowest[:most]


def balance(items: Sequence[Variants], room: int, counter: TokenCounter) -> list[Variants]:
    """The items, where one that takes far more than its share begins at a lower step, so that not all pay for it."""
    costs = [counter.count(item.card(0).text) + 1 for item in items]
    share = equal_share(costs, room)

    def lower(item: Variants) -> Variants:
        last = len(item.texts) - 1
        return item.from_step(next((n for n in range(last) if counter.count(item.card(n).text) <= share), last))

    return [lower(item) if cost > OUTLIER * share else item for item, cost in zip(items, costs, strict=True)]


def fill(items: Sequence[Variants], cards: Sequence[Card], room: int, counter: TokenCounter) -> list[Card]:
    """The cards of these items, raised step by step in turns: what some gave up for nothing is not wasted.

    Whether the whole fits is for the caller to count: joined texts may count more or less than their parts.
    """
    chosen = list(cards)
    # The lower steps are looked at first, since they cost less to render.
    steps = [
        next(step for step in range(len(item.texts) - 1, -1, -1) if item.card(step).text == card.text)
        for item, card in zip(items, cards, strict=False)
    ]
    left = room - sum(counter.count(card.text) + 1 for card in cards)
    turn = [number for number, step in enumerate(steps) if step]
    while turn:
        following = []
        for number in turn:
            higher = items[number].card(steps[number] - 1)
            more = counter.count(higher.text) - counter.count(chosen[number].text)
            if more <= left:
                chosen[number], steps[number], left = higher, steps[number] - 1, left - more
                following += [number] if steps[number] else []
        turn = following
    return chosen


def fit_between(
    items: Sequence[Variants],
    tokens: int,
    counter: TokenCounter,
    write: Callable[[Sequence[Card]], tuple[T, int]],
    *,
    least: int,
    is_filled: bool = False,
) -> T | None:
    """An answer with cards of a list in it, as fully as the tokens allow; None when not even the least number fit.

    `write` gives the whole answer with some cards and counts it, which may be more or less than its parts.
    """
    room = tokens - write(())[1]
    for _ in range(ATTEMPTS):
        if room <= 0:
            return None
        cards: Sequence[Card] = fit(balance(items, room, counter), tokens=room, counter=counter, separator=",").cards
        cards = fill(items, cards, room, counter) if is_filled else cards
        if len(cards) < least:
            return None
        answer, cost = write(cards)
        if cost <= tokens:
            return answer
        room -= cost - tokens
    return None


def equal_share(sizes: Sequence[int], room: int) -> int:
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


REPEATED_LENGTH = 200  # a query up to this length is repeated in the call for the next page
LONGEST_PAGE = 50
STRANGE_CURSOR = "(the cursor is not of this list of tools, which may have changed: this is its beginning)"


def fit_page(
    query: Query,
    hits: Sequence[Hit],
    *,
    line: Callable[[Hit], Variants],
    budget: Budget,
    usage: Mapping[ToolId, Usage],
    learned: Mapping[ToolId, float],
    counter: TokenCounter,
    spell: Spell,
    head: str = "",
    beside: Sequence[str] = (),
) -> tuple[Disclosure, Sequence[Hit], int]:
    """One page of hits, as many as fit: its text, the hits in it, and the place of the first; `beside` follows them.

    Where the query asks for several things, the hits for each stand together, with what it is above them.

    Which tools are on a page is settled without usage, so that no call between two pages moves a tool across; the
    next page begins with the first that did not fit.
    """
    mark = list_mark(hit.handle for hit in hits)
    start = start_of(query.cursor, mark, len(hits))
    size = max(1, min(budget.cards, LONGEST_PAGE))
    while True:
        page = _by_need(settle(hits[start : start + size], usage, learned))
        left = len(hits) - start - len(page)
        more = [_more_line(query, f"{start + len(page)}:{mark}", left, spell)] if left > 0 else []
        disclosure = fit(
            [line(hit) for hit in page] if len({hit.need for hit in page}) < 2 else _under_needs(page, line),
            tokens=budget.tokens,
            counter=counter,
            head="\n".join(filter(None, (STRANGE_CURSOR if query.cursor and not start else "", head))),
            tail="\n".join([*beside, *more]),
            total=len(hits) - start,
        )
        if disclosure.shown == len(page):
            return disclosure, page, start
        size = disclosure.shown


def _by_need(page: Sequence[Hit]) -> list[Hit]:
    """The hits in their order, those for one need together."""
    needs = list(dict.fromkeys(hit.need for hit in page))
    return sorted(page, key=lambda hit: needs.index(hit.need))


def _under_needs(page: Sequence[Hit], line: Callable[[Hit], Variants]) -> list[Variants]:
    """A card for each hit; the first for a need has the words of the need above it."""
    before, cards = "", []
    for hit in page:
        card = line(hit)
        if hit.need != before:
            title = f"for {one_line(hit.need)!r}:"
            card = card.edit(lambda text, title=title: f"{title}\n{text}")  # type: ignore[misc]
        before = hit.need
        cards.append(card)
    return cards


def _more_line(query: Query, cursor: str, left: int, spell: Spell) -> str:
    if len(query.text) > REPEATED_LENGTH:
        return f'{left} more: the same search with "cursor": "{cursor}"'
    limit = {"limit": query.limit} if query.limit else {}
    call = NextCall("search", {"query": query.text, **query.filters, **limit, "cursor": cursor})
    return f"{left} more: {spell(call)}"


def list_mark(names: Iterable[str]) -> str:
    """Six characters that tell one list from another, whatever made it another."""
    return f"{crc32(' '.join(names).encode()) & 0xFFFFFF:06x}"


def start_of(cursor: str, mark: str, total: int) -> int:
    """Where a page starts; a cursor that was not given out for this very list starts at the beginning."""
    offset, _, marked = cursor.partition(":")
    is_ours = marked == mark and offset.isascii() and offset.isdigit() and len(offset) < 10
    return int(offset) if is_ours and int(offset) < total else 0
