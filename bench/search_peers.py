"""What the index is compared with: a plain BM25, SQLite's FTS5, and libraries in environments of their own."""

from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers import PeerUnavailable

from portico.search.words_and_postings import STOP_WORDS

HERE = Path(__file__).resolve().parent
BM25S = "0.3.16"
_PLACE = HERE.parent / ".cache" / "bench" / f"bm25s-{BM25S}"


class PlainBM25:
    """The usual BM25 over lowercase words, nothing else."""

    def __init__(self, texts: Sequence[str], k1: float = 1.5, b: float = 0.75) -> None:
        counts = [Counter(_words(text)) for text in texts]
        lengths = [count.total() for count in counts]
        usual = sum(lengths) / max(1, len(texts))
        holders: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                holders.setdefault(word, []).append((number, times))
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for word, found in holders.items():
            rarity = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
            self._postings[word] = [
                (number, rarity * times * (k1 + 1) / (times + k1 * (1 - b + b * lengths[number] / usual)))
                for number, times in found
            ]

    def rank(self, query: str, limit: int) -> list[int]:
        """The numbers of the best texts."""
        scores: dict[int, float] = {}
        for word in set(_words(query)):
            for number, value in self._postings.get(word, ()):
                scores[number] = scores.get(number, 0.0) + value
        return sorted(scores, key=lambda number: (-scores[number], number))[:limit]


class Fts5:
    """SQLite's full-text search in memory; a query's words are joined by OR, common words left out as in ours."""

    def __init__(self, texts: Sequence[str]) -> None:
        start = time.perf_counter()
        self._rows = sqlite3.connect(":memory:")
        self._rows.execute("CREATE VIRTUAL TABLE tools USING fts5(text)")
        self._rows.executemany("INSERT INTO tools(rowid, text) VALUES (?, ?)", enumerate(texts))
        self._rows.execute("INSERT INTO tools(tools) VALUES ('optimize')")
        self.build_s = time.perf_counter() - start

    def ask(self, query: str) -> list[tuple[int]]:
        """The rows of the ten best texts."""
        words = dict.fromkeys(_words(query))
        wanted = [word for word in words if word not in STOP_WORDS] or list(words)
        match = " OR ".join(f'"{word}"' for word in wanted) or '""'
        sql = "SELECT rowid FROM tools WHERE tools MATCH ? ORDER BY rank LIMIT 10"
        return self._rows.execute(sql, (match,)).fetchall()


class Worker:
    """A library in a process of its own, which has read the documents and queries."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.build_s = float(self._answer())

    def seconds(self) -> list[float]:
        """What each query took, all asked once."""
        found: list[float] = self._ask("time")
        return found

    def rank(self) -> list[list[int]]:
        """The numbers of the ten best documents of each query."""
        found: list[list[int]] = self._ask("rank")
        return found

    def _ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerUnavailable(f"the process ended with {self._process.wait(10)}")
        return json.loads(line)


@contextmanager
def worker(python: Path, kind: str, documents: Sequence[Any], queries: Sequence[str]) -> Iterator[Worker]:
    """Start `bench/search_worker.py` with another Python.

    Raises:
        PeerUnavailable: it ended early.
    """
    command = [str(python), str(HERE / "search_worker.py"), kind]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps({"documents": documents, "queries": queries}) + "\n")
        process.stdin.flush()
        yield Worker(process)
    except BrokenPipeError as error:
        raise PeerUnavailable(f"{kind} ended early") from error
    finally:
        process.kill()
        process.wait(10)


def bm25s_python() -> Path:
    """The Python of an environment with bm25s, which is made on first use.

    Raises:
        PeerUnavailable: the registry cannot be reached.
    """
    python, stamp = _PLACE / "bin" / "python", _PLACE.with_name(f"{_PLACE.name}.installed")
    if not stamp.exists():
        shutil.rmtree(_PLACE, ignore_errors=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([sys.executable, "-m", "venv", str(_PLACE)], [*pip, f"bm25s=={BM25S}", "numba"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PeerUnavailable(f"bm25s {BM25S} could not be installed: {done.stderr.strip()[-400:]}")
        stamp.touch()
    return python


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())
