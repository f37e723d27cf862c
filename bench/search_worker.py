"""Ranks with another library; run with the Python of its own environment: `search_worker.py bm25s|bm25s-numba|fastmcp`.

The first line of the input has the documents and queries; each line after it says `time` or `rank`.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

LIMIT = 10
Ask = Callable[[str], Any]
Build = Callable[[], Ask]
"""What is timed as building; imports and the reading of definitions come before it."""


def main() -> None:
    """Build, then answer line by line."""
    given = json.loads(sys.stdin.readline())
    prepare, numbers = KINDS[sys.argv[1]]
    build = prepare(given["documents"])
    start = time.perf_counter()
    ask = build()
    _say(time.perf_counter() - start)
    for query in given["queries"][:20]:  # compiles, fills caches
        ask(query)
    for line in sys.stdin:
        if line.strip() == "time":
            _say([_seconds(ask, query) for query in given["queries"]])
        else:
            _say([[int(number) for number in numbers(ask(query))] for query in given["queries"]])


def _seconds(ask: Ask, query: str) -> float:
    gc.disable()
    start = time.perf_counter()
    ask(query)
    took = time.perf_counter() - start
    gc.enable()
    return took


def _bm25s(texts: Sequence[str], backend: str) -> Build:
    import bm25s

    def build() -> Ask:
        found = bm25s.BM25(backend=backend)
        found.index(bm25s.tokenize(list(texts), stopwords="en", show_progress=False), show_progress=False)

        def ask(query: str) -> Any:
            words = bm25s.tokenize(query, stopwords="en", show_progress=False)
            return found.retrieve(words, k=LIMIT, show_progress=False) if words.ids[0] else None

        return ask

    return build


def _documents(found: Any) -> list[int]:
    return list(found.documents[0]) if found else []


def _fastmcp(definitions: Sequence[dict[str, Any]]) -> Build:
    """Its ranking alone: its search tool also reads the whole catalog again for every query."""
    from fastmcp.server.transforms.search.base import _extract_searchable_text
    from fastmcp.server.transforms.search.bm25 import _BM25Index
    from fastmcp.tools.base import Tool

    logging.disable(logging.WARNING)  # it warns of every name with a blank or bracket
    tools = [
        Tool(name=given["name"], description=given.get("description"), parameters=given["inputSchema"])
        for given in definitions
    ]

    def build() -> Ask:
        index = _BM25Index()
        index.build([_extract_searchable_text(tool) for tool in tools])
        return lambda query: index.query(query, LIMIT)

    return build


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


KINDS: dict[str, tuple[Callable[[Sequence[Any]], Build], Callable[[Any], list[int]]]] = {
    "bm25s": (lambda texts: _bm25s(texts, "numpy"), _documents),
    "bm25s-numba": (lambda texts: _bm25s(texts, "numba"), _documents),
    "fastmcp": (_fastmcp, list),
}


if __name__ == "__main__":
    main()
