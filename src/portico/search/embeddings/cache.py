"""Embeddings of tools and queries, each computed once, in the background, and kept in the store."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from math import ceil
from time import monotonic

import anyio
import numpy as np
from numpy.typing import NDArray

from portico.concurrency import Job, Workers
from portico.domain.server import pause_after
from portico.errors import EmbedderAway, StoreError
from portico.protocols import DefinitionStore, Embedder

Vector = NDArray[np.float32]

TEXT_LENGTH = 4_000
"""Characters of a text that are embedded: no model reads more of a tool, and many refuse what is too long."""
HASHED = 20_000  # texts whose hash is kept at hand: every snapshot asks for those of all its tools
DIMENSIONS = 16_384  # the longest vector that is taken

logger = logging.getLogger(__name__)


def cut(text: str) -> str:
    """The part of a text that is embedded; half of a character pair has no UTF-8 and is replaced."""
    if len(text) <= TEXT_LENGTH and text.isascii():
        return text
    return text[:TEXT_LENGTH].encode("utf-8", "replace").decode()


@lru_cache(maxsize=HASHED)
def content_hash(text: str) -> str:
    """What a text's vector is kept under."""
    return hashlib.sha256(text.encode()).hexdigest()


def unit(numbers: Sequence[float]) -> Vector:
    """The direction of some numbers.

    Raises:
        EmbedderAway: the numbers are no direction.
    """
    raw = np.asarray(numbers, dtype=np.float64)
    length = float(np.linalg.norm(raw)) if raw.ndim == 1 and 0 < raw.size <= DIMENSIONS else 0.0
    if not np.isfinite(length) or length == 0.0:
        raise EmbedderAway("it answered with a vector that points nowhere", refused=True)
    return _normalised(raw / length)


def units(answers: Iterable[Sequence[float]]) -> list[Vector]:
    """The vectors of one answer, all of the same length.

    Raises:
        EmbedderAway: one is no direction, or they differ in length.
    """
    found = [unit(numbers) for numbers in answers]
    if len({vector.size for vector in found}) > 1:
        raise EmbedderAway("it answered with vectors of different lengths", refused=True)
    return found


def to_bytes(vector: Vector) -> bytes:
    """Half precision: half the room, and no order among tools depends on more."""
    return vector.astype("<f2").tobytes()


def from_bytes(stored: bytes) -> Vector | None:
    """The vector that was stored; None when the bytes are none."""
    if not stored or len(stored) % 2:
        return None
    raw = np.frombuffer(stored, dtype="<f2")
    return _normalised(raw) if np.isfinite(raw).all() and raw.any() else None


def _normalised(raw: NDArray[np.floating]) -> Vector:
    vector = raw.astype(np.float32)
    vector /= np.linalg.norm(vector)
    vector.setflags(write=False)
    return vector


class Pause:
    """Half a minute after the first failure, then twice as long each time, up to ten minutes; safe among threads."""

    def __init__(self, *, first: float = 30.0, longest: float = 600.0, clock: Callable[[], float] = monotonic) -> None:
        self.reason = ""
        """Why it failed last; empty when it did not."""
        self._first, self._longest, self._clock = first, longest, clock
        self._failures, self._until = 0, 0.0
        self._lock = threading.Lock()

    def fail(self, reason: str) -> bool:
        """Begin a pause; says whether this is the first failure in a row. Failures during a pause do not add up."""
        with self._lock:
            self.reason = reason
            if self._clock() >= self._until:
                self._failures += 1
                self._until = self._clock() + pause_after(self._failures, self._first, self._longest)
                return self._failures == 1
            return False

    def reset(self) -> None:
        """Forget all failures."""
        with self._lock:
            self.reason, self._failures, self._until = "", 0, 0.0

    @property
    def left(self) -> float:
        """Seconds until the next try."""
        with self._lock:
            return max(0.0, self._until - self._clock())


PLAIN = "search"  # a word that every embedder takes: one that refuses even this is away


def embed_each(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    """The vector of each text; None for one that is refused although the embedder is well.

    Raises:
        EmbedderAway: it is not the texts' fault.
    """
    try:
        return _embed(embedder, texts)
    except EmbedderAway as away:
        if not away.refused:
            raise
    _embed(embedder, [PLAIN])
    return _halve(embedder, texts)


def _halve(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    if len(texts) == 1:
        return {texts[0]: None}
    found: dict[str, Vector | None] = {}
    middle = len(texts) // 2
    for half in (texts[:middle], texts[middle:]):
        try:
            found |= _embed(embedder, half)
        except EmbedderAway as away:
            if not away.refused:
                raise
            found |= _halve(embedder, half)
    return found


def _embed(embedder: Embedder, texts: Sequence[str]) -> dict[str, Vector | None]:
    try:
        vectors = units(embedder.embed(texts))
    except EmbedderAway:
        raise
    except Exception as error:  # an embedder may be a user's own, and must not end the thread that asks it
        raise EmbedderAway(f"it failed with {type(error).__name__}") from error
    if len(vectors) != len(texts):
        raise EmbedderAway(f"it answered with {len(vectors)} vectors for {len(texts)} texts", refused=True)
    return dict(zip(texts, vectors, strict=True))


CLOSE_SECONDS = 1.0

OnReady = Callable[[], None]


class Background:
    """Texts that are handed over while it works join the next round; with nothing left to do the thread ends."""

    def __init__(
        self, prepare: Callable[[Sequence[str]], object], is_done: Callable[[str], bool], *, pause: Pause, most: int
    ) -> None:
        self.is_asleep = False
        """While this is so, a round is made when texts are handed over, and no other."""
        self._prepare, self._is_done, self._pause, self._most = prepare, is_done, pause, most
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._on_ready: OnReady | None = None
        self._is_fresh = self._is_closed = False
        self._worker = Workers(limit=1, name="portico-meanings", idle_seconds=0.0)
        self._job: Job | None = None

    def add(self, texts: Iterable[str], on_ready: OnReady | None) -> None:
        """Hand texts over; the newest callback is the one that is called, in the thread, when more is known."""
        with self._changed:
            if self._is_closed:
                return
            self._waiting |= dict.fromkeys(texts)
            for text in list(islice(self._waiting, max(0, len(self._waiting) - self._most))):
                del self._waiting[text]
            self._on_ready = on_ready
            # What the store has is taken at once, even while the embedder is not to be asked.
            self._is_fresh = True
            if self._waiting and (self._job is None or self._job.is_done):
                self._job = self._worker.submit("prepare", self._run)
            self._changed.notify_all()

    def nudge(self) -> None:
        """Look again whether there is something to do."""
        with self._changed:
            self._changed.notify_all()

    @property
    def is_busy(self) -> bool:
        """Whether it is at work, and not waiting for the end of a pause."""
        with self._changed:
            return bool(self._waiting) and not self.is_asleep and not self._pause.left

    def wait(self, seconds: float) -> None:
        """Wait until there is nothing to do, or nothing that can be done before the end of a pause."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._pause.left > 0, seconds)

    def close(self) -> None:
        """Begin nothing more; what is under way is waited for a moment."""
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if threading.current_thread().name != self._worker.name:
            self._worker.wait_until_idle(CLOSE_SECONDS)

    def _run(self) -> None:
        while texts := self._take():
            self._prepare(texts)
            self._settle(texts)

    def _take(self) -> list[str]:
        with self._changed:
            while self._waiting and not self._is_fresh and (self.is_asleep or self._pause.left > 0):
                self._changed.wait(None if self.is_asleep else self._pause.left)
            self._is_fresh = False
            if not self._waiting:
                self._job = None
            return list(self._waiting)

    def _settle(self, texts: list[str]) -> None:
        done = [text for text in texts if self._is_done(text)]
        with self._changed:
            on_ready = self._on_ready if done and not self._is_closed else None
        if on_ready is not None:
            on_ready()
        with self._changed:
            for text in filter(self._is_done, done):  # a model that was replaced meanwhile has them to do again
                self._waiting.pop(text, None)
            self._changed.notify_all()


KEPT = 1_000
AT_ONCE = 8  # questions under way; a further one goes without an answer, because it would only wait

Answer = Callable[[str], Vector | None]


class QueryEmbeddings:
    """Never waits longer than its timeout and never raises; an answer that comes late serves the next who asks."""

    def __init__(self, answer: Answer, *, timeout: float, slow: Pause, may_begin: Callable[[], bool]) -> None:
        self.slow = slow
        """Lasts while answers take longer than the timeout: no search waits in vain twice in a row."""
        self._answer, self._timeout, self._may_begin = answer, timeout, may_begin
        self._is_forgiven = False
        self._workers = Workers(limit=AT_ONCE, name="portico-question", idle_seconds=0.0)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Vector] = OrderedDict()
        self._open: dict[str, Future[Vector | None]] = {}

    def ask(self, text: str) -> Vector | None:
        """The vector of a question, for those who may block."""
        future = self.begin(text)
        if future is None:
            return None
        try:
            return future.result(self._timeout)
        except TimeoutError:
            self._late()
            return None

    async def warm(self, text: str) -> Vector | None:
        """The same without blocking the event loop."""
        future = self.begin(text)
        if future is None:
            return None
        answered = asyncio.Event()
        future.add_done_callback(partial(_tell, asyncio.get_running_loop(), answered))
        with anyio.move_on_after(self._timeout):
            await answered.wait()
            return future.result()
        self._late()
        return None

    def recall(self, text: str) -> Vector | None:
        """The vector of a question that was answered before; neither asks nor waits."""
        with self._lock:
            return self._kept.get(text)

    def forget(self) -> None:
        """Drop every answer."""
        with self._lock:
            self._kept.clear()

    def begin(self, text: str) -> Future[Vector | None] | None:
        """Ask without waiting; None when there is no use in asking now."""
        future: Future[Vector | None] = Future()
        with self._lock:
            if (known := self._kept.get(text)) is not None:
                self._kept.move_to_end(text)
                future.set_result(known)
                return future
            if self.slow.left > 0:
                return None
            if text in self._open:
                return self._open[text]
            if len(self._open) >= AT_ONCE or not self._may_begin():
                return None
            self._open[text] = future
        self._workers.submit(text, partial(self._work, text, future))
        return future

    def _work(self, text: str, future: Future[Vector | None]) -> None:
        found, asked_at = None, monotonic()
        try:
            found = self._answer(text)
        finally:
            with self._lock:
                del self._open[text]
                if found is not None:
                    self._kept[text] = found
                    if len(self._kept) > KEPT:
                        self._kept.popitem(last=False)
            if found is not None:
                self._judge(in_time=monotonic() - asked_at < self._timeout)
            future.set_result(found)

    def _judge(self, *, in_time: bool) -> None:
        """An answer ends the pause; a late one once only, since a model that had to be loaded will be quicker now."""
        if in_time or not self._is_forgiven:
            self.slow.reset()
        self._is_forgiven = not in_time

    def _late(self) -> None:
        self.slow.fail(f"no answer within {self._timeout:g} s")


def _tell(loop: asyncio.AbstractEventLoop, answered: asyncio.Event, _: object) -> None:
    with suppress(RuntimeError):  # the loop of whoever gave up may be closed by now
        loop.call_soon_threadsafe(answered.set)


CAPACITY = 20_000  # vectors in memory; of more texts the first so many are prepared


class VectorCache:
    """The vectors of an embedder's model by the hash of their text, in memory and in the store; safe among threads."""

    def __init__(self, embedder: Embedder, store: DefinitionStore, capacity: int) -> None:
        self._embedder, self._store, self._capacity = embedder, store, capacity
        self._lock = threading.Lock()
        self._known: dict[str, Vector] = {}
        """Those that were wanted last stand at the end."""
        self._refused: set[str] = set()
        self._dimensions = 0

    def by_hash(self, texts: Iterable[str]) -> dict[str, str]:
        """Texts by their hash, as many as there is room for."""
        found = {content_hash(text): text for text in map(cut, texts) if text.strip()}
        return dict(islice(found.items(), self._capacity))

    def recall(self, text: str) -> Vector | None:
        """The vector of a text; from memory only."""
        with self._lock:
            return self._known.get(content_hash(cut(text)))

    def known(self, hashes: Iterable[str]) -> set[str]:
        """Those whose vectors are in memory."""
        with self._lock:
            return self._known.keys() & hashes

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Those that have no vector in memory and were not refused."""
        with self._lock:
            return [hash for hash in hashes if hash not in self._known and hash not in self._refused]

    def is_settled(self, text: str) -> bool:
        """Whether a text has its vector, or was refused."""
        return not self.missing([content_hash(text)])

    def load(self, wanted: Mapping[str, str]) -> bool:
        """Load what the store has of texts and say whether fewer are missing; these are the last to be dropped."""
        with self._lock:
            for hash in wanted:
                if (vector := self._known.pop(hash, None)) is not None:
                    self._known[hash] = vector
        if not (missing := self.missing(wanted)):
            return False
        try:
            self._keep(self._store.load_vectors(self._embedder.name, missing))
        except StoreError as error:
            logger.debug("vectors cannot be loaded: %s", error)
        return len(self.missing(wanted)) < len(missing)

    def save(self, answers: Mapping[str, Vector | None]) -> None:
        """Keep what an embedder answered, in memory and in the store; None stands for a text that it refused."""
        found = {hash: to_bytes(vector) for hash, vector in answers.items() if vector is not None}
        self._keep(found)
        try:
            self._store.save_vectors(self._embedder.name, found)
        except StoreError as error:
            logger.debug("vectors cannot be saved: %s", error)
        with self._lock:
            self._refused |= answers.keys() - found.keys()
            if len(self._refused) > self._capacity:
                self._refused.clear()

    def drop_others(self, vector: Vector) -> bool:
        """Drop all vectors when this one has another length, since another model answers; says whether that was so."""
        with self._lock:
            known, self._dimensions = self._dimensions, vector.size
            if known in (0, vector.size):
                return False
            self._known.clear()
            return True

    def _keep(self, found: Mapping[str, bytes]) -> None:
        """Keep vectors as they are stored, so that a restart finds the same; of two lengths only one compares."""
        vectors = {hash: vector for hash, blob in found.items() if (vector := from_bytes(blob)) is not None}
        with self._lock:
            for hash, vector in vectors.items():
                self._dimensions = self._dimensions or vector.size
                if vector.size == self._dimensions:
                    self._known[hash] = vector
            for hash in list(islice(self._known, max(0, len(self._known) - self._capacity))):
                del self._known[hash]


BATCH = 64
QUESTION_SECONDS = 0.8
LOAD_SECONDS = 0.2
"""How long the first questions wait for what the store has, without which their answers would be of no use."""


class Meanings:
    """The vectors of texts and questions, as float32 of length one; safe among threads, and silent when it cannot."""

    def __init__(
        self,
        embedder: Embedder,
        store: DefinitionStore,
        *,
        timeout: float = QUESTION_SECONDS,
        pause: Pause | None = None,
        slow: Pause | None = None,
        capacity: int = CAPACITY,
        lazy: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._embedder, self._cache = embedder, VectorCache(embedder, store, capacity)
        self._pause = pause or Pause()
        self._passing = threading.Lock()
        self._wanted: Mapping[str, str] = {}
        self._on_ready: OnReady | None = None
        self._has_looked = threading.Event()
        """Whether the store was asked for the first texts."""
        self._on_close = on_close
        self._is_closed = False
        self._background = Background(self._fetch, self._cache.is_settled, pause=self._pause, most=capacity)
        self._background.is_asleep = lazy
        self._questions = QueryEmbeddings(
            self._answer,
            timeout=timeout,
            slow=slow or Pause(),
            may_begin=lambda: not self._is_closed and not self._pause.left,
        )

    @property
    def name(self) -> str:
        """The model, and where it is."""
        return self._embedder.name

    @property
    def state(self) -> str:
        """How it is doing, for people."""
        if reason := self._pause.reason:
            left = ceil(self._pause.left)
            return f"away: {reason}, " + (f"next try in {left} s" if left else "next try at the next search")
        word = "preparing" if self._background.is_busy else "ready"
        slow = f", but slow: {self._questions.slow.reason}" if self._questions.slow.left > 0 else ""
        return f"{word} {len(self._cache.known(self._wanted))}/{len(self._wanted)}{slow}"

    @property
    def is_away(self) -> bool:
        """Whether the embedder failed when it was last asked."""
        return bool(self._pause.reason)

    def recall(self, text: str) -> Vector | None:
        """The vector of a text that was prepared; from memory only."""
        return self._cache.recall(text)

    def prepare(self, texts: Iterable[str]) -> int:
        """Load or embed the vectors of texts and say how many are known; blocks, and never raises."""
        self._wanted = wanted = self._cache.by_hash(texts)
        self._rouse()
        self._fetch(wanted.values())
        return len(self._cache.known(wanted))

    def start(self, texts: Iterable[str], on_ready: OnReady | None = None) -> None:
        """Prepare texts in the background; a lazy source asks its embedder only once it is woken or asked itself.

        `on_ready` is called in the background thread each time that more of them can be recalled, and not at all when
        they already can; of several callbacks the newest is called.
        """
        wanted = self._cache.by_hash(texts)
        self._wanted, self._on_ready = wanted, on_ready
        known = self._cache.known(wanted)
        self._background.add([text for hash, text in wanted.items() if hash not in known], on_ready)

    def ask(self, text: str) -> Vector | None:
        """The vector of a question; waits for it for a moment, and is None when it does not come."""
        self._rouse()
        return self._questions.ask(cut(text)) if text.strip() else None

    async def warm(self, text: str) -> Vector | None:
        """The same for the event loop; a call of `ask` that follows does not wait."""
        self._rouse()
        return await self._questions.warm(cut(text)) if text.strip() else None

    def recall_question(self, text: str) -> Vector | None:
        """The vector of a question that was asked before; from memory only."""
        return self._questions.recall(cut(text))

    def wake(self) -> None:
        """Let a model be loaded or a connection be opened before the first question comes; does not wait."""
        self._rouse()
        self._questions.begin(PLAIN)

    def check(self, seconds: float = 10.0) -> str:
        """Ask the embedder now, pause or not, wait a while for what is being prepared, and say the state."""
        try:
            embed_each(self._embedder, [PLAIN])
            self._recovered()
            self._rouse()
        except EmbedderAway as away:
            self._failed(away)
        self._background.wait(seconds)
        return self.state

    def close(self) -> None:
        """Stop the background and the embedder's own process; nothing is asked afterwards."""
        self._is_closed = True
        if self._on_close is not None:
            self._on_close()
        self._background.close()

    def _fetch(self, texts: Iterable[str]) -> None:
        """One pass over texts: from memory, from the store, from the embedder."""
        wanted = self._cache.by_hash(texts)
        with self._passing:
            is_more_known = self._cache.load(wanted)
            if is_more_known and self._cache.missing(wanted) and self._may_embed and self._on_ready is not None:
                self._on_ready()  # what is stored need not wait for what is not
            self._has_looked.set()
            try:
                self._embed_missing(wanted)
            except EmbedderAway as away:
                self._failed(away)

    @property
    def _may_embed(self) -> bool:
        return not (self._is_closed or self._background.is_asleep or self._pause.left > 0)

    def _embed_missing(self, wanted: Mapping[str, str]) -> None:
        replaced = 0
        while batch := self._cache.missing(wanted)[:BATCH]:
            if not self._may_embed:
                return
            answers = embed_each(self._embedder, [wanted[hash] for hash in batch])
            replaced += any(self._is_replaced(vector) for vector in answers.values() if vector is not None)
            if replaced > 1:
                raise EmbedderAway("its vectors change their length")
            self._cache.save({hash: answers[wanted[hash]] for hash in batch})
            self._recovered()

    def _answer(self, text: str) -> Vector | None:
        try:
            found = embed_each(self._embedder, [text])[text]
        except EmbedderAway as away:
            self._failed(away)
            return None
        self._recovered()
        if found is not None and self._is_replaced(found):
            self._background.add(self._wanted.values(), self._on_ready)
        elif self._wanted:
            self._has_looked.wait(LOAD_SECONDS)
        return found

    def _is_replaced(self, vector: Vector) -> bool:
        """Whether another model than the remembered one answers; then all that is remembered is dropped."""
        if is_replaced := self._cache.drop_others(vector):
            self._questions.forget()
        return is_replaced

    def _rouse(self) -> None:
        if self._background.is_asleep:
            self._background.is_asleep = False
            self._background.nudge()

    def _failed(self, away: EmbedderAway) -> None:
        if self._pause.fail(str(away)) and not self._is_closed:
            logger.info("search goes on without the embedder %s: %s", self._embedder.name, away)
        self._background.nudge()

    def _recovered(self) -> None:
        if self._pause.reason:
            self._pause.reset()
            self._background.nudge()
