"""What an index costs: to build, to change, and in memory.

Run by itself, with the options that `search.py` passes on, it prints the memory of one index in a fresh process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.search_catalogue import Catalogue, Catalogues, edition_of, editions_of, queries_for, varied
from bench.search_speed import searches_per_second, without_gc

from portico import Catalog
from portico.domain.server import Offering
from portico.search.index import build_index

ROUNDS = 7
BUILDS = 3
ADDED = 50


def measure(catalogue: Catalogue, memory_options: Sequence[str], *, seconds: float) -> dict[str, float]:
    """Build time, time for fifty tools more, searches a second, memory."""
    return {**_times(catalogue, seconds), **_memory(memory_options)}


def table(found: dict[str, float]) -> str:
    """One row for each figure."""
    return "\n".join(["| what | figure |", "|---|---:|", *(f"| {name} | {value:,} |" for name, value in found.items())])


def main() -> None:
    """Print the memory that an index of so many tools takes, its table and first queries included."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--fleet")
    parser.add_argument("--retrieval")
    options = parser.parse_args()
    catalogue = Catalogues(options.fleet, options.retrieval).of(options.size)
    queries, snapshot = queries_for(catalogue), edition_of(catalogue)
    before = _resident_mb()
    index, visible = build_index(snapshot, None), frozenset(snapshot.tools)
    built = _resident_mb()
    for query in queries:
        index.query(query, within=visible, limit=10)
    print(
        json.dumps({"MB after build": round(built - before, 1), "MB after queries": round(_resident_mb() - before, 1)})
    )


def _times(catalogue: Catalogue, seconds: float) -> dict[str, float]:
    """The best of some rounds; the index alone and the library take turns, since the one is a part of the other."""
    publisher, catalog = editions_of(catalogue), _filled(catalogue)
    snapshot = publisher.current.snapshot
    whole = min(_ms(lambda: build_index(snapshot, None)) for _ in range(BUILDS))
    rate = searches_per_second(lambda query: catalog.search(query, limit=10), queries_for(catalogue), seconds)
    index = build_index(snapshot, None)
    more = publisher.accept([(Offering(server="more", tools=tuple(_more(0))), "bench")])
    alone, through = [], []
    for number in range(ROUNDS):
        batch = _more(number)
        alone.append(_ms(lambda: build_index(more, index)))
        through.append(_ms(partial(_add, catalog, f"more {number}", batch)))
    return {
        "build ms": whole,
        f"index: {ADDED} more, ms": min(alone),
        f"index: {ADDED} more, of a build": round(min(alone) / whole, 4),
        f"Catalog.add_tools and a look: {ADDED} more, ms": min(through),
        "Catalog.search, searches/s": round(rate),
    }


def _filled(catalogue: Catalogue) -> Catalog:
    catalog = Catalog()
    for server, own in catalogue.items():
        catalog.add_tools(server, own, _nothing)
    return catalog


def _add(catalog: Catalog, server: str, batch: list[dict[str, Any]]) -> None:
    """Add tools, and look at the catalog, which is when they are indexed."""
    catalog.add_tools(server, batch, _nothing)
    len(catalog)


def _nothing(name: str, arguments: Mapping[str, Any]) -> None:
    """Runs no tool."""


def _memory(options: Sequence[str]) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _more(number: int) -> list[dict[str, object]]:
    return next(iter(varied(ADDED, seed=100 + number).values()))


def _ms(step: Callable[[], object]) -> float:
    with without_gc():
        start = time.perf_counter()
        step()
        return round((time.perf_counter() - start) * 1e3, 2)


def _resident_mb() -> float:
    """What the process holds, after giving back what it only keeps at hand."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
