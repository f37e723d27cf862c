"""How well and how fast tools are found: `python bench/search.py [--retrieval DIR] [--fleet FILE] [--quick]`.

Quality on the sets in DIR, or on one that the project makes itself; times of queries beside SQLite's FTS5, bm25s and
FastMCP on the same texts and queries; what an index costs. Prints Markdown tables and one JSON line. Every contender
has one thread; each query counts with its best time over the rounds, which take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # read when numpy is imported

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import search_costs, search_quality, search_speed
from bench.retrieval import generated_set, read_sets
from bench.search_catalogue import QUERIES, SMALL, Catalogues

COSTS_AT = 10_000


def main() -> None:
    """Measure and print, part by part."""
    options = _options()
    skipped: dict[str, str] = {}
    found = {
        "costs": _costs(
            options
        ),  # first: a hundred thousand tools leave a heap behind that slows everything after them
        "quality": _quality(options, skipped),
        "speed": _speed(options, skipped),
    }
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}", file=sys.stderr)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "threads": 1}
    print(json.dumps({"bench": "search", "machine": machine, **found, "skipped": skipped}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retrieval", default=os.environ.get("PORTICO_RETRIEVAL_SETS"), help="a folder of sets")
    parser.add_argument("--fleet", default=os.environ.get("PORTICO_FLEET_DEFINITIONS"), help="real definitions")
    parser.add_argument("--quick", action="store_true", help="no 100,000 tools, fewer rounds, no peers for quality")
    return parser.parse_args()


def _quality(options: argparse.Namespace, skipped: dict[str, str]) -> search_quality.Quality:
    sets = read_sets(Path(options.retrieval)) if options.retrieval else [generated_set()]
    counts = "; ".join(f"{one.name}: {len(one.tools):,} tools, {len(one.questions):,} queries" for one in sets)
    print(f"\nQuality ({counts})\n", flush=True)
    found = search_quality.measure(sets, skipped, peers=not options.quick)
    trained = {one.name for one in sets if one.has_training}
    print(search_quality.table(found, trained), flush=True)
    if trained:
        print("\n* has a training split, which the shipped table may have learned from; its queries here are others.")
    return found


def _speed(options: argparse.Namespace, skipped: dict[str, str]) -> dict[int, dict[str, search_speed.Row]]:
    catalogues = Catalogues(options.fleet, options.retrieval)
    print(f"\nTime of a query, one thread, {QUERIES} queries. Tools: {catalogues.told()}.\n", flush=True)
    found = {}
    for size in (SMALL, 10_000) if options.quick else (SMALL, 10_000, 100_000):
        catalogue = catalogues.of(size)
        found[size] = search_speed.measure(catalogue, rounds=2 if options.quick else 5, skipped=skipped)
        told = search_speed.density(catalogue)  # afterwards: it fills the caches that a first build has to fill
        print(
            f"{told['tools']:,} tools: {told['distinct words']:,} distinct words; a query's word is in"
            f" {told['median share']:.2%} of them (median), {told['mean share']:.2%} (mean)",
            flush=True,
        )
    print(f"\n{search_speed.table(found)}", flush=True)
    return found


def _costs(options: argparse.Namespace) -> dict[str, float]:
    print(f"\nAt {COSTS_AT:,} tools\n", flush=True)
    given = {"--fleet": options.fleet, "--retrieval": options.retrieval}
    passed = [text for name, value in given.items() if value for text in (name, value)]
    catalogue = Catalogues(options.fleet, options.retrieval).of(COSTS_AT)
    found = search_costs.measure(catalogue, ["--size", str(COSTS_AT), *passed], seconds=1.0 if options.quick else 3.0)
    print(search_costs.table(found), flush=True)
    return found


if __name__ == "__main__":
    main()
