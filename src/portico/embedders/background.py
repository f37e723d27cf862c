"""One thread that prepares texts while everybody else goes on, and tries again when an embedder is back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from .pause import Pause

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
        self._thread: threading.Thread | None = None

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
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="portico-meanings", daemon=True)
                self._thread.start()
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
            thread = self._thread
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)

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
                self._thread = None
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
