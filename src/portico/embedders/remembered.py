"""What texts mean, remembered: nothing is embedded twice, and nobody waits for an embedder that is away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from math import ceil

from portico.errors import EmbedderAway, StoreError
from portico.ports import Embedder, Store

from .background import Background, OnReady
from .careful import PLAIN, embed_each
from .pause import Pause
from .questions import Questions
from .vectors import Vector, content_hash, cut, from_bytes, to_bytes

BATCH = 64
CAPACITY = 20_000
"""Vectors in memory; of more texts the first so many are prepared."""
QUESTION_SECONDS = 0.8
LOAD_SECONDS = 0.2
"""How long the first questions wait for what the store has, without which their answers would be of no use."""

logger = logging.getLogger(__name__)


class Meanings:
    """The vectors of texts and questions, as float32 of length one; safe among threads, and silent when it cannot."""

    def __init__(
        self,
        embedder: Embedder,
        store: Store,
        *,
        timeout: float = QUESTION_SECONDS,
        pause: Pause | None = None,
        slow: Pause | None = None,
        capacity: int = CAPACITY,
        lazy: bool = False,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._embedder, self._store, self._capacity = embedder, store, capacity
        self._pause = pause or Pause()
        self._lock, self._passing = threading.Lock(), threading.Lock()
        self._known: dict[str, Vector] = {}
        """The vectors by the hash of their text, those that were wanted last at the end."""
        self._refused: set[str] = set()
        self._dimensions = 0
        self._wanted: Mapping[str, str] = {}
        self._on_ready: OnReady | None = None
        self._has_looked = threading.Event()
        """Whether the store was asked for the first texts."""
        self._on_close = on_close
        self._is_closed = False
        self._background = Background(self._work, self._is_settled, pause=self._pause, most=capacity)
        self._background.is_asleep = lazy
        self._questions = Questions(
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
        return f"{word} {self._count(self._wanted)}/{len(self._wanted)}{slow}"

    @property
    def is_away(self) -> bool:
        """Whether the embedder failed when it was last asked."""
        return bool(self._pause.reason)

    def recall(self, text: str) -> Vector | None:
        """The vector of a text that was prepared; from memory only."""
        with self._lock:
            return self._known.get(content_hash(cut(text)))

    def prepare(self, texts: Iterable[str]) -> int:
        """Load or embed the vectors of texts and say how many are known; blocks, and never raises."""
        self._wanted = wanted = self._by_hash(texts)
        self._rouse()
        self._fetch(wanted)
        return self._count(wanted)

    def start(self, texts: Iterable[str], on_ready: OnReady | None = None) -> None:
        """Prepare texts in the background; a lazy source asks its embedder only once it is woken or asked itself.

        `on_ready` is called in the background thread each time that more of them can be recalled, and not at all when
        they already can; of several callbacks the newest is called.
        """
        self._wanted, self._on_ready = self._by_hash(texts), on_ready
        with self._lock:
            missing = [text for hash, text in self._wanted.items() if hash not in self._known]
        self._background.add(missing, on_ready)

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

    def _by_hash(self, texts: Iterable[str]) -> dict[str, str]:
        found = {content_hash(text): text for text in map(cut, texts) if text.strip()}
        return dict(islice(found.items(), self._capacity))

    def _count(self, wanted: Mapping[str, str]) -> int:
        with self._lock:
            return sum(hash in self._known for hash in wanted)

    def _is_settled(self, text: str) -> bool:
        hash = content_hash(text)
        with self._lock:
            return hash in self._known or hash in self._refused

    def _work(self, texts: Sequence[str]) -> None:
        self._fetch(self._by_hash(texts))

    def _fetch(self, wanted: Mapping[str, str]) -> None:
        """One pass over texts: from memory, from the store, from the embedder."""
        with self._passing:
            self._move_to_end(wanted)
            before = len(self._missing(wanted))
            self._load(wanted)
            if 0 < len(self._missing(wanted)) < before and self._may_embed and self._on_ready is not None:
                self._on_ready()  # what is stored need not wait for what is not
            self._has_looked.set()
            try:
                self._embed_missing(wanted)
            except EmbedderAway as away:
                self._failed(away)

    @property
    def _may_embed(self) -> bool:
        return not (self._is_closed or self._background.is_asleep or self._pause.left > 0)

    def _move_to_end(self, wanted: Iterable[str]) -> None:
        """What is wanted now is dropped last."""
        with self._lock:
            for hash in wanted:
                if (vector := self._known.pop(hash, None)) is not None:
                    self._known[hash] = vector

    def _load(self, wanted: Mapping[str, str]) -> None:
        missing = self._missing(wanted)
        if not missing:
            return
        try:
            stored = self._store.load_vectors(self._embedder.name, missing)
        except StoreError as error:
            logger.debug("vectors cannot be loaded: %s", error)
            return
        self._keep(stored)

    def _embed_missing(self, wanted: Mapping[str, str]) -> None:
        replaced = 0
        while batch := self._missing(wanted)[:BATCH]:
            if not self._may_embed:
                return
            answers = embed_each(self._embedder, [wanted[hash] for hash in batch])
            vectors = {hash: vector for hash in batch if (vector := answers[wanted[hash]]) is not None}
            replaced += any(self._is_replaced(vector) for vector in vectors.values())
            if replaced > 1:
                raise EmbedderAway("its vectors change their length")
            found = {hash: to_bytes(vector) for hash, vector in vectors.items()}
            self._keep(found)
            self._save(found)
            self._refuse(hash for hash in batch if hash not in found)
            self._recovered()

    def _missing(self, wanted: Mapping[str, str]) -> list[str]:
        with self._lock:
            return [hash for hash in wanted if hash not in self._known and hash not in self._refused]

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

    def _refuse(self, hashes: Iterable[str]) -> None:
        with self._lock:
            self._refused.update(hashes)
            if len(self._refused) > self._capacity:
                self._refused.clear()

    def _save(self, found: Mapping[str, bytes]) -> None:
        try:
            self._store.save_vectors(self._embedder.name, found)
        except StoreError as error:
            logger.debug("vectors cannot be saved: %s", error)

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
        with self._lock:
            known, self._dimensions = self._dimensions, vector.size
            if known in (0, vector.size):
                return False
            self._known.clear()
        self._questions.forget()
        return True

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
