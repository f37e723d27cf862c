"""What a database keeps of the journal, entry by entry and aggregated; usage and learned words kept in memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from time import monotonic, time
from types import MappingProxyType
from typing import Any

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import (
    LATEST,
    LONGEST,
    Batch,
    CallQuery,
    Entry,
    Lookup,
    RecordedCall,
    Report,
    bounded,
    count_within,
)
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import (
    DAY_SECONDS,
    DAYS_KEPT,
    TIDIED_AFTER,
    WORDS_KEPT,
    LearnedWord,
    LearnedWords,
    Usage,
    bucket_of,
    counts,
    day_of,
    words_learned,
    words_within_bounds,
)
from portico.errors import StoreError

from .database_interface import HELD, SPELLED_LENGTH, Binds, Database, Work, clean, key, upsert
from .reports import read_calls, read_entries, read_report

_DONE = Outcome.DONE
_COUNTED = tuple(outcome for outcome in Outcome if counts(outcome))


class DaySum:
    """What became of a tool's calls on one day."""

    __slots__ = ("buckets", "calls", "done", "seconds", "tokens_in", "tokens_out")

    def __init__(self) -> None:
        self.calls = self.done = self.tokens_in = self.tokens_out = 0
        self.seconds = 0.0
        self.buckets: dict[int, int] = {}
        """How many calls fell into each bucket of latencies."""


def day_sums(invocations: Iterable[Invocation]) -> dict[tuple[ToolId, int], DaySum]:
    """The sums of each tool and day; what says nothing about a tool is passed over. The numbers are in their bounds."""
    found: dict[tuple[ToolId, int], DaySum] = {}
    for one in invocations:
        if one.tool is None or one.outcome not in _COUNTED:
            continue
        try:
            place, bucket = (one.tool, day_of(one.at)), bucket_of(one.seconds)
            sums = found.get(place)
        except TypeError:  # it makes no sense, and must not stop the count of all others
            continue
        if sums is None:
            sums = found[place] = DaySum()
        sums.calls += 1
        sums.done += one.outcome is _DONE
        sums.seconds += one.seconds
        sums.tokens_in += one.tokens_in
        sums.tokens_out += one.tokens_out
        buckets = sums.buckets
        buckets[bucket] = buckets.get(bucket, 0) + 1
    return found


_SUMMED = ("calls", "done", "seconds", "tokens_in", "tokens_out")


@dataclass(slots=True)
class Folded:
    """The rows of a batch, in the order in which everybody writes; a tool that was called often is added to once."""

    invocations: list[dict[str, Any]] = field(default_factory=list)
    lookups: list[dict[str, Any]] = field(default_factory=list)
    days: list[dict[str, Any]] = field(default_factory=list)
    """Added to each day of each tool."""
    latencies: list[dict[str, Any]] = field(default_factory=list)
    """Added to each bucket."""
    tools: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Added to each tool."""


class _Cleaned(dict[str, str]):
    """Keys or texts as they are stored; the same few come again and again."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean

    def __missing__(self, text: str) -> str:
        self[text] = found = self._clean(text)
        return found


def fold(entries: Iterable[Entry]) -> Folded:
    """The rows of some entries."""
    folded, invocations = Folded(), []
    name, text, spelled = _Cleaned(key), _Cleaned(clean), _Cleaned(lambda spelling: clean(spelling, SPELLED_LENGTH))
    for entry in entries:
        if isinstance(entry, Lookup):
            folded.lookups.append(_lookup_row(entry, text))
            continue
        entry = bounded(entry)
        invocations.append(entry)
        server, tool = entry.tool or ("", None)
        folded.invocations.append(
            {
                "at": entry.at,
                "day": day_of(entry.at),
                "server": name[server],
                "tool": None if tool is None else name[tool],
                "spelled": spelled[entry.spelled],
                "caller": text[entry.caller],
                "surface": text[entry.surface],
                "outcome": str(entry.outcome),
                "seconds": entry.seconds,
                "code": text[entry.code],
                "tokens_in": entry.tokens_in,
                "tokens_out": entry.tokens_out,
                "parent": text[entry.parent],
                "rank": entry.rank,
            }
        )
    days = {(name[tool.server], name[tool.name], day): sums for (tool, day), sums in day_sums(invocations).items()}
    for (server, tool, day), sums in sorted(days.items(), key=itemgetter(0)):
        _add_sums(folded, {"server": server, "tool": tool}, day, sums)
    return folded


def _add_sums(folded: Folded, tool: dict[str, Any], day: int, sums: DaySum) -> None:
    row = {name: getattr(sums, name) for name in _SUMMED}
    folded.days.append({**tool, "day": day, **row})
    for bucket, calls in sorted(sums.buckets.items()):
        folded.latencies.append({**tool, "day": day, "bucket": bucket, "calls": calls})
    place = (tool["server"], tool["tool"])
    before = folded.tools.get(place, {})
    folded.tools[place] = {**tool, **{name: before.get(name, 0) + row[name] for name in row}}


def _lookup_row(entry: Lookup, text: Mapping[str, str]) -> dict[str, Any]:
    at = entry.at if 0 <= entry.at < LATEST else 0.0
    return {
        "at": at,
        "day": day_of(at),
        "look": str(entry.look),
        "caller": text[entry.caller],
        "surface": text[entry.surface],
        "seconds": entry.seconds if 0 <= entry.seconds < LONGEST else 0.0,
        "text": clean(entry.text, SPELLED_LENGTH),
        "shown": count_within(entry.shown),
        "found": count_within(entry.found),
        "fits": bool(entry.fits),
        "tokens": count_within(entry.tokens),
        "instead": count_within(entry.instead),
    }


def _word_rows(words: Iterable[LearnedWord]) -> list[dict[str, Any]]:
    """The rows of learned words, in the order in which everybody writes them."""
    rows = [
        {
            "server": key(word.tool.server),
            "tool": key(word.tool.name),
            "word": word.word,
            "caller": word.caller,
            "spelled": word.spelled,
            "uses": word.uses,
            "weight": word.weight,
        }
        for word in words
    ]
    return sorted(rows, key=itemgetter("server", "tool", "word", "caller"))


def _word(row: Sequence[Any]) -> LearnedWord:
    server, tool, word, caller, spelled, uses, weight = row
    return LearnedWord(
        tool=ToolId(server, tool), word=word, caller=caller, spelled=spelled, uses=uses, weight=float(weight)
    )


USAGE_DAYS_KEPT = 400
"""Days of usage that are kept one by one; those before are one."""
_AT_ONCE = 5_000
"""Rows that are dropped or folded in one transaction, so that writers need not wait long, and no statement is ended."""

_DAYS = ("server", "tool", "day", *_SUMMED)
_LATENCIES = ("server", "tool", "day", "bucket", "calls")

_ADVANCE = """
INSERT INTO writers (writer, stored, dropped, lost, is_gone, seen_at)
VALUES (:writer, :end, :dropped, :first, FALSE, :now)
ON CONFLICT (writer) DO UPDATE SET
    stored = excluded.stored, dropped = writers.dropped + excluded.dropped,
    lost = CASE WHEN writers.is_gone THEN 0 ELSE writers.lost END + excluded.lost - writers.stored,
    is_gone = FALSE, seen_at = excluded.seen_at
WHERE writers.stored <= :first
RETURNING lost
"""
"""What a writer stored before and is not there was in a file that was deleted, or came after a backup: it is lost."""
_SERVER = """
INSERT INTO mcp_servers (server_name, is_active) SELECT :server, TRUE
WHERE NOT EXISTS (SELECT 1 FROM mcp_servers WHERE server_name = :server)
ON CONFLICT (server_name) DO NOTHING
"""
_TOOL = """
INSERT INTO mcp_tools (server_id, tool_name, total_invocations, success_count, seconds_total, tokens_in, tokens_out,
    avg_latency_ms)
VALUES ((SELECT id FROM mcp_servers WHERE server_name = :server), :tool, :calls, :done, :seconds, :tokens_in,
    :tokens_out, :mean)
ON CONFLICT (server_id, tool_name) DO UPDATE SET
    total_invocations = mcp_tools.total_invocations + excluded.total_invocations,
    success_count = mcp_tools.success_count + excluded.success_count,
    seconds_total = mcp_tools.seconds_total + excluded.seconds_total,
    tokens_in = mcp_tools.tokens_in + excluded.tokens_in,
    tokens_out = mcp_tools.tokens_out + excluded.tokens_out,
    avg_latency_ms = 1000.0 * (mcp_tools.seconds_total + excluded.seconds_total)
        / (mcp_tools.total_invocations + excluded.total_invocations)
"""
_DAY = upsert("usage_days", "server tool day", add="calls done seconds tokens_in tokens_out")
_LATENCY = upsert("usage_latencies", "server tool day bucket", add="calls")
_CACHE = upsert("cache_counts", "day name", add="hits misses")
_WORD = upsert("learned_words", "server tool word caller", replace="spelled", add="uses weight")
_WORDS = "SELECT server, tool, word, caller, spelled, uses, weight FROM learned_words"
_WORDS_IN_ORDER = f"{_WORDS} ORDER BY server, tool, word, caller"
_HEAVIEST_WORDS = f"{_WORDS} ORDER BY weight DESC LIMIT {WORDS_KEPT}"
_DROP_WORD = """
DELETE FROM learned_words WHERE server = :server AND tool = :tool AND word = :word AND caller = :caller
"""
_LOST = """
INSERT INTO writers (writer, stored, dropped, lost, is_gone, seen_at) VALUES (:writer, 0, 0, :lost, TRUE, :now)
ON CONFLICT (writer) DO UPDATE SET lost = writers.lost + excluded.lost, is_gone = TRUE
WHERE NOT writers.is_gone
"""
_FOLD_WRITERS = """
INSERT INTO writers (writer, stored, dropped, lost, is_gone, seen_at)
SELECT '', 0, COALESCE(SUM(dropped), 0), COALESCE(SUM(lost), 0), FALSE, :now FROM writers
WHERE writer <> '' AND (is_gone AND seen_at < :gone OR seen_at < :silent)
ON CONFLICT (writer) DO UPDATE SET dropped = writers.dropped + excluded.dropped, lost = writers.lost + excluded.lost
"""
_TOTALS = """
SELECT s.server_name, t.tool_name, t.total_invocations, t.success_count, t.seconds_total, t.tokens_in, t.tokens_out
FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id WHERE t.total_invocations > 0
"""
_BUCKETS = """
SELECT server, tool, bucket, CAST(SUM(calls) AS BIGINT) FROM usage_latencies GROUP BY server, tool, bucket
"""
_OLD = "WHERE day > 0 AND day < :oldest ORDER BY day, server, tool LIMIT"
_OLD_DAYS = f"""
SELECT server, tool, day, calls, done, seconds, tokens_in, tokens_out FROM usage_days {_OLD} {_AT_ONCE}
"""  # noqa: S608
_OLD_LATENCIES = f"SELECT server, tool, day, bucket, calls FROM usage_latencies {_OLD} {_AT_ONCE}"  # noqa: S608
_DROP_DAY = "DELETE FROM usage_days WHERE server = :server AND tool = :tool AND day = :day"
_DROP_LATENCY = """
DELETE FROM usage_latencies WHERE server = :server AND tool = :tool AND bucket = :bucket AND day = :day
"""
_COUNT = """
SELECT CAST(COALESCE(SUM(calls), 0) AS BIGINT) FROM usage_days
WHERE server = :server AND tool = :tool AND day > :since AND day <= :today
"""


class Ledger:
    """What a database keeps of the journal; any number of processes and threads may write to it."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time) -> None:
        self._database, self._now = database, now
        self._words_added = 0

    def append(self, batch: Batch) -> int:
        """Write a batch in one transaction; one that was written before is passed over.

        Says how many entries of this writer were stored before and are no longer there.
        """
        now = self._now()
        folded, words = fold(batch.entries), _word_rows(words_learned(_sound(batch.entries), now))
        step = {"writer": key(batch.writer), "first": batch.first, "end": batch.end, "dropped": batch.dropped}
        with self._database.transaction() as work:
            advanced = work.rows(_ADVANCE, {**step, "now": now})
            if advanced:
                _write(work, folded)
                work.run(_WORD, words)
                today, caches = day_of(now), sorted(batch.caches.items())
                counts = [(key(name), *count) for name, count in caches if any(count)]
                work.run(_CACHE, [{"day": today, "name": n, "hits": hits, "misses": m} for n, hits, m in counts])
        self._words_added += len(words)
        if self._words_added >= TIDIED_AFTER:
            with suppress(StoreError):  # the batch is stored; there is another time for this
                self.drop_words()
        return int(advanced[0][0]) if advanced else 0

    def learned(self) -> LearnedWords:
        """The words that callers searched with before they called a tool."""
        rows = self._database.rows(_HEAVIEST_WORDS)
        return LearnedWords(map(_word, rows), now=self._now())

    def drop_words(self) -> int:
        """Drop learned words that have faded, and those beyond the bounds; says how many."""
        self._words_added = 0
        with self._database.transaction() as work:
            found = [_word(row) for row in work.rows(f"{_WORDS_IN_ORDER} {HELD[self._database.dialect]}")]
            kept = set(map(id, words_within_bounds(found, self._now())))
            return work.run(_DROP_WORD, _word_rows([word for word in found if id(word) not in kept]))

    def forget_learned(self) -> int:
        """Forget all learned words, and say how many there were."""
        return self._database.run("DELETE FROM learned_words")

    def usage(self) -> dict[ToolId, Usage]:
        """How all tools that were ever called have done so far."""
        rows = self._database.rows
        latencies: dict[tuple[str, str], dict[int, int]] = {}
        for server, tool, bucket, calls in rows(_BUCKETS):
            latencies.setdefault((server, tool), {})[bucket] = calls
        days: dict[tuple[str, str], dict[int, int]] = {}
        recent = {"since": day_of(self._now()) - DAYS_KEPT}
        for server, tool, day, calls in rows(
            "SELECT server, tool, day, calls FROM usage_days WHERE day > :since", recent
        ):
            days.setdefault((server, tool), {})[day] = calls
        return {
            ToolId(server, tool): Usage(
                calls=calls,
                done=done,
                seconds=seconds,
                tokens_in=tokens_in,
                tokens_out=tokens_out,
                latencies=latencies.get((server, tool), {}),
                days=days.get((server, tool), {}),
            )
            for server, tool, calls, done, seconds, tokens_in, tokens_out in rows(_TOTALS)
        }

    def usage_count(self, tool: ToolId, days: int) -> int:
        """Calls of one tool in the last days, today included."""
        today = day_of(self._now())
        name = {"server": key(tool.server), "tool": key(tool.name)}
        ((calls,),) = self._database.rows(_COUNT, {**name, "since": today - days, "today": today})
        return int(calls)

    def stored(self, writer: str) -> int:
        """How many entries of a writer were stored or counted as dropped."""
        found = self._database.rows("SELECT stored FROM writers WHERE writer = :writer", {"writer": key(writer)})
        return int(found[0][0]) if found else 0

    def count_lost(self, writer: str, entries: int) -> None:
        """Remember what a writer has lost; once it is known to be gone, no second time."""
        self._database.run(_LOST, {"writer": key(writer), "lost": entries, "now": self._now()})

    def report(self, *, days: int, limit: int) -> Report:
        """The last days, summed up; no more of them than are kept one by one."""
        return read_report(self._database, days=min(days, USAGE_DAYS_KEPT), limit=limit, now=self._now())

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        """Single calls that a query asks for, the newest first."""
        return read_calls(self._database, query)

    def entries(self, since: float) -> Iterator[Entry]:
        """Every entry from a moment until now, the oldest first; a page of them is held at a time."""
        return read_entries(self._database, since, self._now())

    def check(self) -> None:
        """Return when the database is sound; this may read all of it.

        Raises:
            StoreError: it is not, with the first thing that was found.
        """
        self._database.check()

    def prune(self, *, keep_days: int) -> int:
        """Drop old entries and make old days of usage one, a part at a time."""
        now = self._now()
        before = now - keep_days * DAY_SECONDS
        dropped = sum(self._drop(table, before) for table in ("invocations", "lookups"))
        oldest = {"oldest": day_of(now) - USAGE_DAYS_KEPT}
        while self._fold_some(_OLD_DAYS, _DAYS, _DROP_DAY, _DAY, oldest):
            pass
        while self._fold_some(_OLD_LATENCIES, _LATENCIES, _DROP_LATENCY, _LATENCY, oldest):
            pass
        self.drop_words()
        silent = {"gone": now - DAY_SECONDS, "silent": now - USAGE_DAYS_KEPT * DAY_SECONDS}
        with self._database.transaction() as work:
            work.run("DELETE FROM cache_counts WHERE day < :oldest", oldest)
            work.run(_FOLD_WRITERS, {**silent, "now": now})
            work.run(
                "DELETE FROM writers WHERE writer <> '' AND (is_gone AND seen_at < :gone OR seen_at < :silent)", silent
            )
        return dropped

    def _fold_some(self, read: str, names: Sequence[str], drop: str, add: str, oldest: Binds) -> bool:
        """Move some old rows of usage to the day that all old days are; says whether there were any."""
        with self._database.transaction() as work:
            found = work.rows(f"{read} {HELD[self._database.dialect]}", oldest)
            rows = [dict(zip(names, row, strict=True)) for row in found]
            work.run(drop, rows)
            rows.sort(key=lambda row: (row["server"], row["tool"], row.get("bucket", 0)))
            work.run(add, [{**row, "day": 0} for row in rows])
        return bool(rows)

    def _drop(self, table: str, before: float) -> int:
        some = f"SELECT id FROM {table} WHERE at < :before ORDER BY at LIMIT {_AT_ONCE}"  # noqa: S608
        dropped = 0
        while found := self._database.run(f"DELETE FROM {table} WHERE id IN ({some})", {"before": before}):  # noqa: S608
            dropped += found
        return dropped


def _write(work: Work, folded: Folded) -> None:
    """Everybody writes tables and rows in one order, so that no two ever wait for each other."""
    tools = [{**row, "mean": 1_000 * row["seconds"] / row["calls"]} for row in folded.tools.values()]
    work.insert("invocations", folded.invocations)
    work.insert("lookups", folded.lookups)
    work.run(_SERVER, [{"server": server} for server in sorted({row["server"] for row in tools})])
    work.run(_TOOL, tools)
    work.run(_DAY, folded.days)
    work.run(_LATENCY, folded.latencies)


CacheCounts = Callable[[], Mapping[str, tuple[int, int]]]
"""Says hits and misses of each cache since the process began; called by the thread that writes."""

logger = logging.getLogger(__name__)


class CacheDeltas:
    """What a source of totals has counted since it was last asked."""

    def __init__(self, source: CacheCounts | None) -> None:
        self._source, self.is_counted = source, source is not None
        self._last: Mapping[str, tuple[int, int]] = {}
        self._taken_at = monotonic()

    def take(self, *, every: float) -> dict[str, tuple[int, int]]:
        """Hits and misses since the last time; none when that is not so many seconds ago."""
        if self._source is None or monotonic() - self._taken_at < every:
            return {}
        try:
            totals = dict(self._source())
        except Exception as error:  # noqa: BLE001  they are counted elsewhere, perhaps at this very moment
            logger.debug("the counts of caches cannot be read now: %s", error)
            return {}
        last, self._last, self._taken_at = self._last, totals, monotonic()
        found = {}
        for name, (hits, misses) in totals.items():
            hits_before, misses_before = last.get(name, (0, 0))
            if (hits, misses) != (hits_before, misses_before):
                found[name] = (hits - hits_before, misses - misses_before)
        return found


class UsageCache:
    """Readers never wait for the database; one thread adds to what they see."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._usage: dict[ToolId, Usage] = {}
        self._learned = LearnedWords()
        self._loading = threading.Lock()
        self.is_loaded = self._was_tried = self._has_begun = False
        self._read_at = 0.0

    @property
    def current(self) -> Mapping[ToolId, Usage]:
        """Usage as it stands; whoever looks first lets the ledger be read."""
        self._load_first()
        return MappingProxyType(self._usage)

    @property
    def learned(self) -> LearnedWords:
        """Learned words as they stand; whoever looks first lets the ledger be read."""
        self._load_first()
        return self._learned

    def begin(self) -> None:
        """Be loaded before the first entry is stored: from then on nobody else could tell what is in the ledger."""
        with self._loading:
            self._has_begun = True
            if not self.is_loaded:
                self._load()

    @property
    def age(self) -> float:
        """Seconds since the ledger was last read, or could not be."""
        return monotonic() - self._read_at

    def refresh(self) -> bool:
        """Read the ledger again; everything that was added here must be in it by now. Says whether it was read."""
        return self._load()

    def refresh_early(self) -> bool:
        """The same for any thread, as long as nothing was added; says whether it was read."""
        with self._loading:
            return not self._has_begun and self._load()

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries, and learn from them."""
        found = list(entries)
        self._publish(fold_usage(found))
        now = time()
        self._learned.add(words_learned(_sound(found), now), now)

    def _load_first(self) -> None:
        if not self._was_tried and self._loading.acquire(blocking=False):
            try:
                self._load()
            finally:
                self._loading.release()

    def _load(self) -> bool:
        is_first, self._was_tried = not self._was_tried, True
        try:
            usage, learned = self._ledger.usage(), self._ledger.learned()
        except Exception as error:  # noqa: BLE001  ranking without usage is better than no ranking
            level = logging.WARNING if is_first else logging.DEBUG
            logger.log(level, "usage cannot be read, so tools count as never called until it can: %s", error)
            return False
        finally:
            self._read_at = monotonic()  # from its end on: a read that takes long must not begin again at its end
        self.is_loaded = True
        self._usage, self._learned = usage, learned
        return True

    def _publish(self, more: Mapping[ToolId, Usage]) -> None:
        """A value may be replaced under a reader's eyes; a new key would end a reader's loop: a new book then."""
        usage = self._usage
        if more.keys() - usage.keys():
            usage = {**usage, **dict.fromkeys(more.keys() - usage.keys(), Usage())}
        for tool, added in more.items():
            usage[tool] = usage[tool] + added
        self._usage = usage


def fold_usage(entries: Iterable[Entry]) -> dict[ToolId, Usage]:
    """The usage of each tool in some entries; one that makes no sense counts as none."""
    found: dict[ToolId, Usage] = {}
    for (tool, day), sums in day_sums(_sound(entries)).items():
        own = {name: getattr(sums, name) for name in _SUMMED}
        usage = Usage(**own, latencies=dict(sums.buckets), days={day: sums.calls})
        found[tool] = found[tool] + usage if tool in found else usage
    return found


def _sound(entries: Iterable[Entry]) -> Iterator[Invocation]:
    for entry in entries:
        if isinstance(entry, Invocation):
            with suppress(TypeError):
                yield bounded(entry)
