"""How tools have done so far, and the words they were searched with, from their invocations; the tiers that follow."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from .call import Invocation, Outcome
from .journal_entries import DayLine, LearnedLine, Report, ToolLine, bounded
from .tool import ToolId

DAY_SECONDS = 86_400
DAYS_KEPT = 30  # days of which the number of calls is known one by one

_COUNTED = frozenset({Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT})
"""A call that was refused, invalid or given up by its caller says nothing about the tool."""
_STEP = math.log(1.1)
_SHORTEST_MS = 0.1
_LAST_BUCKET = 180  # nearly an hour


def day_of(at: float) -> int:
    """The day of a moment, counted from 1970 in UTC."""
    return int(at // DAY_SECONDS)


def bucket_of(seconds: float) -> int:
    """The bucket of a latency: each is a tenth wider than the one before, so that percentiles are known to 5 %."""
    ms = 1_000 * seconds
    return min(_LAST_BUCKET, math.ceil(math.log(ms / _SHORTEST_MS) / _STEP)) if ms > _SHORTEST_MS else 0


def latency_of(bucket: int) -> float:
    """The latency in the middle of a bucket, in milliseconds."""
    return _SHORTEST_MS * math.exp(_STEP * (bucket - 0.5)) if bucket else _SHORTEST_MS


def counts(outcome: Outcome) -> bool:
    """Whether a call with this outcome says something about its tool."""
    return outcome in _COUNTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What became of a tool's calls; one that was never called has none."""

    calls: int = 0  # those that ended well, ended badly or timed out
    done: int = 0
    seconds: float = 0.0  # how long callers have waited, all calls together
    tokens_in: int = 0
    tokens_out: int = 0
    latencies: Mapping[int, int] = field(default_factory=dict)  # how many calls fell into each bucket
    days: Mapping[int, int] = field(default_factory=dict)  # how many calls there were on each of the last days

    def __add__(self, more: Invocation | Usage) -> Usage:
        """The same with one invocation, or another usage, more; what says nothing about the tool changes nothing."""
        if isinstance(more, Invocation):
            if more.outcome not in _COUNTED:
                return self
            more = _usage_of(bounded(more))
        return Usage(
            calls=self.calls + more.calls,
            done=self.done + more.done,
            seconds=self.seconds + more.seconds,
            tokens_in=self.tokens_in + more.tokens_in,
            tokens_out=self.tokens_out + more.tokens_out,
            latencies=_added(self.latencies, more.latencies),
            days=_newest(_added(self.days, more.days)),
        )

    @property
    def success(self) -> float | None:
        """The share of calls that ended well, from 0 to 1; None before the first call."""
        return self.done / self.calls if self.calls else None

    @property
    def mean_ms(self) -> float | None:
        """How long a call takes on average; None before the first call."""
        return 1_000 * self.seconds / self.calls if self.calls else None

    @property
    def p50_ms(self) -> float | None:
        """Half of the calls take no longer, to within 5 %; None before the first call."""
        return self._percentile(0.50)

    @property
    def p95_ms(self) -> float | None:
        """Nineteen of twenty calls take no longer, to within 5 %; None before the first call."""
        return self._percentile(0.95)

    def within(self, days: int, now: float) -> int:
        """Calls of the last days, today included; at most 30 days are known."""
        today = day_of(now)
        return sum(calls for day, calls in self.days.items() if today - days < day <= today)

    def _percentile(self, share: float) -> float | None:
        left = math.ceil(share * sum(self.latencies.values()))
        for bucket in sorted(self.latencies):
            left -= self.latencies[bucket]
            if left <= 0:
                return latency_of(bucket)
        return None

    def __str__(self) -> str:
        if not self.calls:
            return "never called"
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"{calls}, {self.success:.1%} success, {self.mean_ms:.0f} ms on average"


def _usage_of(invocation: Invocation) -> Usage:
    return Usage(
        calls=1,
        done=int(invocation.outcome is Outcome.DONE),
        seconds=invocation.seconds,
        tokens_in=invocation.tokens_in,
        tokens_out=invocation.tokens_out,
        latencies={bucket_of(invocation.seconds): 1},
        days={day_of(invocation.at): 1},
    )


def _added(some: Mapping[int, int], more: Mapping[int, int]) -> dict[int, int]:
    found = dict(some)
    for key, count in more.items():
        found[key] = found.get(key, 0) + count
    return found


def _newest(days: dict[int, int]) -> dict[int, int]:
    if len(days) <= DAYS_KEPT:
        return days
    return {day: days[day] for day in sorted(days)[-DAYS_KEPT:]}


def summed_up(usage: Mapping[ToolId, Usage], *, days: int, limit: int, now: float) -> Report:
    """The tools that were called in the last days, at most 30 of them.

    Calls are those of the days; how well and how fast they went is known of all calls together only. What was searched
    for, and what became of calls that say nothing about a tool, is not known.
    """
    days = min(days, DAYS_KEPT)
    lines = [_line(tool, found, called) for tool, found in usage.items() if (called := found.within(days, now))]
    return Report(
        days=days,
        calls=sum(line.calls for line in lines),
        top=tuple(sorted(lines, key=lambda line: (-line.calls, line.tool))[:limit]),
        failing=tuple(sorted((x for x in lines if x.done < x.calls), key=lambda x: (x.success, x.tool))[:limit]),
        slow=tuple(sorted(lines, key=lambda line: (-line.p95_ms, line.tool))[:limit]),
        by_day=tuple(_days(usage, days, day_of(now))),
    )


def _line(tool: ToolId, usage: Usage, calls: int) -> ToolLine:
    share = calls / usage.calls
    return ToolLine(
        tool=tool,
        calls=calls,
        done=round(usage.done * share),
        mean_ms=usage.mean_ms or 0.0,
        p95_ms=usage.p95_ms or 0.0,
        tokens_out=round(usage.tokens_out * share),
    )


def _days(usage: Mapping[ToolId, Usage], days: int, today: int) -> Iterator[DayLine]:
    for day in range(today - days + 1, today + 1):
        date = datetime.fromtimestamp(day * DAY_SECONDS, UTC).date()
        yield DayLine(day=date.isoformat(), calls=sum(found.days.get(day, 0) for found in usage.values()))


HALF_LIFE = 30 * DAY_SECONDS  # seconds after which a use of a word counts half
SHARED_FROM = 3  # different callers who must have used a word for a tool before it counts for others
CALLER_MOST = 5.0  # what the uses of one of them count together at most, where a word counts for others
LEAST_WEIGHT = 0.05  # below this, a word is forgotten: more than four months after a single use
WORDS_KEPT = 10_000  # words that are kept, each counted once for every tool and caller
CALLER_WORDS_KEPT = 2_000  # and of one caller: whoever searches most must not push out what others taught
TOOL_WORDS_KEPT = 40  # and of one caller for one tool
WORD_TOOLS_KEPT = 64  # tools for which one word of a caller is kept: one that is used for more says little of any
TIDIED_AFTER = 256  # new words after which these bounds are kept again
TOOLS_BY_WORD = 16  # tools for which one word is looked up
_START = 20_454 * DAY_SECONDS  # the beginning of 2026


def weight_of_use(at: float, now: float) -> float:
    """What one use counts beside one at the beginning of 2026: so all weights fade alike, and can be added up."""
    return float(2.0 ** ((min(at, now) - _START) / HALF_LIFE))


def faded(weight: float, now: float) -> float:
    """What a sum of such uses counts by now."""
    return weight / weight_of_use(now, now)


@lru_cache(1_024)
def caller_mark(name: str) -> str:
    """A digest that stands for a caller wherever words are kept."""
    return blake2b(name.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedWord:
    """A word with which one caller searched before calls of one tool that ended well."""

    tool: ToolId
    word: str  # its stem
    caller: str  # their mark
    spelled: str  # as it was spelled last
    uses: int = 0
    weight: float = 0.0

    def __add__(self, more: LearnedWord) -> LearnedWord:
        """The same with the uses of another; which must be of the same word, tool and caller."""
        return replace(more, uses=self.uses + more.uses, weight=self.weight + more.weight)


def words_learned(invocations: Iterable[Invocation], now: float) -> list[LearnedWord]:
    """What some invocations teach; those that did not end well teach nothing."""
    found: dict[tuple[ToolId, str, str], LearnedWord] = {}
    for one in invocations:
        if one.tool is None or one.outcome is not Outcome.DONE:
            continue
        mark = caller_mark(one.caller)
        for stem, spelled in one.words:
            weight = weight_of_use(one.at, now)
            word = LearnedWord(tool=one.tool, word=stem, caller=mark, spelled=spelled, uses=1, weight=weight)
            key = (one.tool, stem, mark)
            found[key] = found[key] + word if key in found else word
    return list(found.values())


def words_within_bounds(words: Iterable[LearnedWord], now: float) -> list[LearnedWord]:
    """The words of most weight, as many as are kept: of a caller, of a caller for a tool, and in all."""
    least, kept = LEAST_WEIGHT * weight_of_use(now, now), list[LearnedWord]()
    of_caller, of_tool, of_word = Counter[str](), Counter[tuple[str, ToolId]](), Counter[tuple[str, str]]()
    for word in sorted(words, key=lambda word: -word.weight):
        if word.weight < least or len(kept) >= WORDS_KEPT:
            break
        own, tool, same = word.caller, (word.caller, word.tool), (word.caller, word.word)
        if of_caller[own] < CALLER_WORDS_KEPT and of_tool[tool] < TOOL_WORDS_KEPT and of_word[same] < WORD_TOOLS_KEPT:
            of_caller[own] += 1
            of_tool[tool] += 1
            of_word[same] += 1
            kept.append(word)
    return kept


class _WordUses(NamedTuple):
    """For which tools a word is used: by enough callers to count for all, and by each caller."""

    shared: tuple[tuple[ToolId, float], ...]
    own: Mapping[str, tuple[tuple[ToolId, float], ...]]


class LearnedWords:
    """The words that are learned, looked up by their stems; one thread adds while any number of them look up.

    What one caller taught is found by that caller alone, until enough different ones have taught the same.
    """

    def __init__(self, words: Iterable[LearnedWord] = (), *, now: float = 0.0) -> None:
        self._by_word = _by_word(words_within_bounds(words, now))
        self.uses: dict[str, _WordUses] = {}
        """Made anew for each word that changes; whoever looks up sees either all of a change or nothing."""
        self._new = 0
        self._arrange(self._by_word, now)

    def __len__(self) -> int:
        return sum(map(len, list(self._by_word.values())))

    def add(self, words: Iterable[LearnedWord], now: float) -> None:
        """Add uses of words."""
        changed = set[str]()
        for word in words:
            own, key = self._by_word.get(word.word, {}), (word.tool, word.caller)
            self._new += key not in own
            # Another thread may be reading those that were there.
            self._by_word[word.word] = {**own, key: own[key] + word if key in own else word}
            changed.add(word.word)
        if self._new >= TIDIED_AFTER:
            before, every = self._by_word, (word for own in self._by_word.values() for word in own.values())
            self._by_word, self._new = _by_word(words_within_bounds(every, now)), 0
            changed.update(word for word, own in before.items() if len(own) != len(self._by_word.get(word, {})))
        self._arrange(changed, now)

    def of(self, word: str, caller: str, now: float) -> Mapping[ToolId, float]:
        """The tools for which a caller may know a word by its stem, with what it counts for each."""
        uses = self.uses.get(word)
        if uses is None:
            return {}
        found = dict(uses.shared)
        for tool, weight in uses.own.get(caller_mark(caller), ()):
            found[tool] = max(weight, found.get(tool, 0.0))
        return {tool: faded(weight, now) for tool, weight in found.items()}

    def lines(self, caller: str, limit: int, now: float) -> tuple[LearnedLine, ...]:
        """What counts for everybody and what a caller has taught, that of most weight first."""
        found = (line for word in list(self._by_word) for line in self._lines(word, caller_mark(caller), now))
        return tuple(sorted(found, key=lambda line: (-line.weight, line.word, line.tool))[:limit])

    def shared(self, now: float) -> dict[ToolId, list[str]]:
        """The words that count for everybody, by tool, those of most weight first."""
        found = defaultdict[ToolId, list[str]](list)
        for line in self.lines("", len(self._by_word) * TOOLS_BY_WORD, now):
            if line.is_shared:
                found[line.tool].append(line.word)
        return dict(found)

    def _lines(self, word: str, caller: str, now: float) -> Iterator[LearnedLine]:
        for tool, words in _by_tool(self._by_word.get(word, {}), now).items():
            is_shared = len(words) >= SHARED_FROM
            told = words if is_shared else [own for own in words if own.caller == caller]
            if told:
                yield LearnedLine(
                    word=_spelling(told, word) if is_shared else told[0].spelled,
                    tool=tool,
                    uses=sum(own.uses for own in told),
                    weight=round(faded(_weight(told, now) if is_shared else told[0].weight, now), 2),
                    callers=len(told),
                    is_shared=is_shared,
                )

    def _arrange(self, words: Iterable[str], now: float) -> None:
        for word in words:
            shared: list[tuple[ToolId, float]] = []
            own: dict[str, list[tuple[ToolId, float]]] = {}
            for tool, used in _by_tool(self._by_word.get(word, {}), now).items():
                if len(used) >= SHARED_FROM:
                    shared.append((tool, _weight(used, now)))
                for one in used:
                    own.setdefault(one.caller, []).append((tool, one.weight))
            if own:
                self.uses[word] = _WordUses(_heaviest(shared), {mark: _heaviest(found) for mark, found in own.items()})
            else:
                self.uses.pop(word, None)


_Taught = dict[tuple[ToolId, str], LearnedWord]
"""One word as it was taught, by tool and caller."""


def _by_word(words: Iterable[LearnedWord]) -> dict[str, _Taught]:
    found: dict[str, _Taught] = {}
    for word in words:
        found.setdefault(word.word, {})[word.tool, word.caller] = word
    return found


def _by_tool(words: Mapping[tuple[ToolId, str], LearnedWord], now: float) -> dict[ToolId, list[LearnedWord]]:
    """The uses of one word by tool, without those that have faded."""
    least = LEAST_WEIGHT * weight_of_use(now, now)
    found: dict[ToolId, list[LearnedWord]] = {}
    for word in words.values():
        if word.weight >= least:
            found.setdefault(word.tool, []).append(word)
    return found


def _weight(words: Iterable[LearnedWord], now: float) -> float:
    """What the uses of several callers count together; no one of them for much more than the others."""
    most = CALLER_MOST * weight_of_use(now, now)
    return sum(min(word.weight, most) for word in words)


def _heaviest(tools: list[tuple[ToolId, float]]) -> tuple[tuple[ToolId, float], ...]:
    return tuple(sorted(tools, key=lambda pair: (-pair[1], pair[0]))[:TOOLS_BY_WORD])


def _spelling(words: Iterable[LearnedWord], stem: str) -> str:
    """How a word is shown to all: in the spelling of enough callers, else by its stem, which they have in common."""
    ((spelled, count),) = Counter(sorted(word.spelled for word in words)).most_common(1)
    return spelled if count >= SHARED_FROM else stem


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What the results of one tool have looked like."""

    fingerprint: str  # of the tool's definition: one that has changed may return something else
    shape: Mapping[str, Any] = field(default_factory=dict)
    results: int = 0  # how many results it was learned from


class Tier(StrEnum):
    """How near to the front a tool stands."""

    HOT = "hot"
    WARM = "warm"
    STANDARD = "standard"
    COLD = "cold"


_LOWEST: Mapping[Tier, float] = {Tier.HOT: 0.80, Tier.WARM: 0.60, Tier.STANDARD: 0.30}
POPULAR = 10_000  # calls beyond which a tool is as popular as can be
SLOW_MS = 1_000  # a mean latency from which on a tool is as slow as can be
UNKNOWN = 0.5  # what a tool that was never called counts as where nothing is known: neither good nor bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A tool's score and the tier that follows from it."""

    tier: Tier
    score: float


def compute_tier_score(
    *, total_invocations: int, success_count: int, avg_latency_ms: float | None, usage_7d: int, usage_30d: int
) -> float:
    """Popularity 40 %, reliability 30 %, performance 20 %, recency 10 %, to two places.

    Recency is a trend: the share of the last 30 days' calls that fell into the last 7, so it is 1 for a tool that was
    first used yesterday. A tool that was never called is neither reliable nor unreliable, neither fast nor slow.
    """
    popularity = min(total_invocations / POPULAR, 1.0)
    reliability = success_count / total_invocations if total_invocations else UNKNOWN
    is_timed = total_invocations > 0 and avg_latency_ms is not None
    performance = max(0.0, 1 - (avg_latency_ms or 0.0) / SLOW_MS) if is_timed else UNKNOWN
    recency = usage_7d / usage_30d if usage_30d else 0.0
    return round(0.40 * popularity + 0.30 * reliability + 0.20 * performance + 0.10 * recency, 2)


def assign_tier(score: float) -> Tier:
    """The tier of a score."""
    return next((tier for tier, lowest in _LOWEST.items() if score >= lowest), Tier.COLD)


def standing_of(usage: Usage | None, now: float) -> Standing:
    """How a tool stands by its usage; None is a tool that was never called."""
    usage = usage or Usage()
    score = compute_tier_score(
        total_invocations=usage.calls,
        success_count=usage.done,
        avg_latency_ms=usage.mean_ms,
        usage_7d=usage.within(7, now),
        usage_30d=usage.within(30, now),
    )
    return Standing(tier=assign_tier(score), score=score)
