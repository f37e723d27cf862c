"""How long a query takes: the index beside other ones over the same texts, in turn, on the same queries."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from bench.peers import PeerUnavailable, fastmcp_python
from bench.search_catalogue import Catalogue, edition_of, queries_for
from bench.search_peers import Fts5, bm25s_python, worker

from portico.catalog.snapshot import CatalogSnapshot
from portico.search.index import build_index
from portico.search.query import needs
from portico.search.words_and_postings import fields, query_words, stem_of

LIMIT = 10
WARM = 20
"""Queries that are asked before anything is timed."""
FASTMCP_MOST = 10_000
"""Tools beyond which FastMCP, which is plain Python, would take minutes."""

Row = dict[str, float]


@dataclass(frozen=True, slots=True)
class Contender:
    """An index over all tools, and a round of all queries, in seconds each."""

    build_s: float
    round: Callable[[], list[float]]


def measure(catalogue: Catalogue, *, rounds: int, skipped: dict[str, str]) -> dict[str, Row]:
    """Each query's best time over all rounds, for each index."""
    queries, snapshot = queries_for(catalogue), edition_of(catalogue)
    with ExitStack() as stack:
        contenders = _start(stack, snapshot, catalogue, queries, skipped)
        taken: dict[str, list[list[float]]] = {}
        for _ in range(rounds):
            for name, contender in contenders.items():
                taken.setdefault(name, []).append(contender.round())
    best = {name: list(map(min, zip(*times, strict=True))) for name, times in taken.items()}
    several = [len(needs(query)) > 1 for query in queries]
    return {name: _row(times, several, contenders[name].build_s) for name, times in best.items()}


def searches_per_second(search: Callable[[str], object], queries: Sequence[str], seconds: float) -> float:
    """How many searches one process does."""
    for query in queries[:WARM]:
        search(query)
    done, start = 0, time.perf_counter()
    with without_gc():
        while (took := time.perf_counter() - start) < seconds:
            for query in queries:
                search(query)
            done += len(queries)
    return done / took


def density(catalogue: Catalogue) -> dict[str, float]:
    """How many distinct words there are, and how many tools usually have a word of a query."""
    snapshot = edition_of(catalogue)
    postings = build_index(snapshot, None).postings
    asked = (stem_of(word) for query in queries_for(catalogue) for word in query_words(query))
    shares = [count / len(snapshot.tools) for word in asked if (count := len(postings.of(word)[0]))]
    return {
        "tools": len(snapshot.tools),
        "distinct words": sum(not word.startswith("=") for word in postings.words),
        "median share": round(statistics.median(shares), 4),
        "mean share": round(statistics.fmean(shares), 4),
    }


def table(found: dict[int, dict[str, Row]]) -> str:
    """One row for each index at each size, with ratios against ours."""
    heads = [
        "tools",
        "index",
        "p50 ms",
        "p95 ms",
        "p50 x ours",
        "p95 x ours",
        "several needs, p50 ms",
        "all, p95 ms",
        "build s",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---:|---|" + "---:|" * 7]
    for size, rows in found.items():
        ours = rows["Portico"]
        for name, row in rows.items():
            ratios = [f"{row[figure] / ours[figure]:.2f}" for figure in ("p50_ms", "p95_ms")]
            times = [f"{row[figure]:.3f}" for figure in ("p50_ms", "p95_ms")]
            rest = [f"{row['several_p50_ms']:.3f}", f"{row['all_p95_ms']:.3f}", f"{row['build_s']:.2f}"]
            lines.append(f"| {size:,} | {name} | {' | '.join([*times, *ratios, *rest])} |")
    return "\n".join(lines)


@contextmanager
def without_gc() -> Iterator[None]:
    """No collection of garbage in between, as `timeit` has it."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _start(
    stack: ExitStack, snapshot: CatalogSnapshot, catalogue: Catalogue, queries: Sequence[str], skipped: dict[str, str]
) -> dict[str, Contender]:
    """Everything that can be started; the rest is skipped with its reason."""
    texts = [" ".join(fields(tool).values()) for tool in snapshot.tools.values()]
    fts5 = Fts5(texts)
    found = {"Portico": _portico(snapshot, queries), "SQLite FTS5": _here(fts5.ask, queries, fts5.build_s)}
    peers: dict[str, Callable[[], Any]] = {
        "bm25s": lambda: worker(bm25s_python(), "bm25s", texts, queries),
        "bm25s, numba": lambda: worker(bm25s_python(), "bm25s-numba", texts, queries),
    }
    if len(snapshot.tools) <= FASTMCP_MOST:
        listed = [{**tool, "name": f"{server}_{tool['name']}"} for server, own in catalogue.items() for tool in own]
        peers["FastMCP BM25"] = lambda: worker(fastmcp_python(), "fastmcp", listed, queries)
    for name, start in peers.items():
        try:
            peer = stack.enter_context(start())
            found[name] = Contender(peer.build_s, peer.seconds)
        except PeerUnavailable as reason:
            skipped[f"speed of {name}"] = str(reason)
    return found


def _portico(snapshot: CatalogSnapshot, queries: Sequence[str]) -> Contender:
    start = time.perf_counter()
    index = build_index(snapshot, None)
    took = time.perf_counter() - start
    visible = frozenset(snapshot.tools)
    return _here(lambda query: index.query(query, within=visible, limit=LIMIT), queries, took)


def _here(ask: Callable[[str], object], queries: Sequence[str], build_s: float) -> Contender:
    """One that runs in this process."""
    for query in queries[:WARM]:
        ask(query)
    return Contender(build_s, lambda: _seconds(ask, queries))


def _seconds(ask: Callable[[str], object], queries: Sequence[str]) -> list[float]:
    taken = []
    with without_gc():
        for query in queries:
            start = time.perf_counter()
            ask(query)
            taken.append(time.perf_counter() - start)
    return taken


def _row(times: Sequence[float], several: Sequence[bool], build_s: float) -> Row:
    """Percentiles in milliseconds, those of queries with several needs apart."""
    one = [taken for taken, many in zip(times, several, strict=True) if not many]
    many = [taken for taken, many in zip(times, several, strict=True) if many]
    return {
        "p50_ms": round(statistics.median(one) * 1e3, 4),
        "p95_ms": round(statistics.quantiles(one, n=20)[-1] * 1e3, 4),
        "several_p50_ms": round(statistics.median(many) * 1e3, 4),
        "all_p95_ms": round(statistics.quantiles(times, n=20)[-1] * 1e3, 4),
        "build_s": round(build_s, 2),
    }
