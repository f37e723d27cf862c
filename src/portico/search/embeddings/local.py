"""A model of sentence-transformers on this machine, in a process of its own that starts when it is first asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TextIO

import orjson

from portico.errors import EmbedderAway

BATCH = 16  # texts at once: a question that comes while a catalog is embedded waits for no more than these
LOAD_SECONDS = 600.0  # a model that is not here yet is downloaded first
ANSWER_SECONDS = 60.0
LOOKING = 0.5
"""Seconds between two looks whether the gateway is still there: a model that is being loaded reads no input."""

INSTALL = "pip install 'portico[semantic]'"
WORKER = (sys.executable, "-P", "-c", "from portico.search.embeddings import local; local.run_worker()")

_Process = subprocess.Popen[bytes]


def is_installed() -> bool:
    """Whether sentence-transformers is there, without loading it."""
    return find_spec("sentence_transformers") is not None


class LocalModel:
    """Embeds on this machine; nothing leaves it but the download of a model that is not here yet."""

    def __init__(self, model: str, *, worker: Sequence[str] = WORKER) -> None:
        self.name = f"{model} on this machine"
        self._model, self._worker = model, worker
        self._turn, self._work = threading.Lock(), threading.Lock()
        self._process: _Process | None = None
        self._is_closed = False

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of texts, in their order.

        Raises:
            EmbedderAway: the model cannot be loaded, or fails.
        """
        found: list[Sequence[float]] = []
        for start in range(0, len(texts), BATCH):
            found += self._embed(list(texts[start : start + BATCH]))
        return found

    def close(self) -> None:
        """End the process; it is not started again."""
        self._is_closed = True
        if (process := self._process) is not None:
            process.kill()
            with self._work:  # whoever is being answered hears the end first
                _end(process)

    def _embed(self, texts: list[str]) -> list[Sequence[float]]:
        # Two locks make a queue: whoever comes next goes next, where one alone would let a long embedding
        # take its own turn again and again.
        with self._turn:
            self._work.acquire()
        try:
            process = self._running()
            _tell(process, texts)
            answer = _hear(process, ANSWER_SECONDS)
        finally:
            self._work.release()
        if "vectors" not in answer:
            raise EmbedderAway(f"the model failed: {answer.get('error')}", refused=True)
        vectors: list[Sequence[float]] = answer["vectors"]
        return vectors

    def _running(self) -> _Process:
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._is_closed:
            raise EmbedderAway("it was closed")
        if not is_installed() and self._worker is WORKER:
            raise EmbedderAway(f"sentence-transformers is not installed; {INSTALL}")
        process = _started([*self._worker, self._model, str(os.getpid())])
        weakref.finalize(self, _end, process)
        self._process = process
        answer = _hear(process, LOAD_SECONDS)
        if "error" in answer:
            _end(process)
            raise EmbedderAway(f"the model cannot be loaded: {answer['error']}")
        return process


def _started(command: list[str]) -> _Process:
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise EmbedderAway(f"its process cannot be started: {error.strerror}") from error


def _tell(process: _Process, texts: list[str]) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(orjson.dumps(texts) + b"\n")
        process.stdin.flush()
    except OSError:
        _end(process)
        raise EmbedderAway("its process has ended") from None


def _hear(process: _Process, seconds: float) -> dict[str, Any]:
    assert process.stdout is not None
    timer = threading.Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        line = process.stdout.readline()
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        _end(process)
        raise EmbedderAway("its process has ended")
    answer: dict[str, Any] = orjson.loads(line)
    return answer


def _end(process: _Process) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):  # what was not sent cannot be sent any more
                stream.close()


def run_worker() -> None:
    """Load the model that the command line names, say so, and answer batches of texts until nobody asks any more.

    It has its own process because loading a model holds Python's one lock for seconds, and nothing can end it in a
    thread.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    threading.Thread(target=leave_with, args=(int(sys.argv[2]),), daemon=True).start()
    os.dup2(2, 1)  # whatever the libraries print must not stand among the answers
    try:
        # Loaded here, so that a package that is missing or broken becomes an answer.
        model = import_module("sentence_transformers").SentenceTransformer(sys.argv[1])
    except Exception as error:  # noqa: BLE001  what is wrong with a model's files comes in many shapes
        _say(answers, {"error": _first_line(error)})
        return
    _say(answers, {"loaded": True})
    for line in sys.stdin:
        _say(answers, _encode(model, orjson.loads(line)))


def leave_with(gateway: int) -> None:
    """End this process when the gateway is no longer its parent."""
    while os.getppid() == gateway:
        time.sleep(LOOKING)
    os._exit(1)


def _encode(model: Any, texts: list[str]) -> dict[str, Any]:
    try:
        found = model.encode(texts, batch_size=BATCH, show_progress_bar=False, convert_to_numpy=True)
        return {"vectors": found.astype("float64").tolist()}
    except Exception as error:  # noqa: BLE001  a model is somebody's code and may raise anything
        return {"error": _first_line(error)}


def _say(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(orjson.dumps(answer).decode() + "\n")
    answers.flush()


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n", 1)[0] or type(error).__name__)[:200]
