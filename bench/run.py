"""All benchmarks, one after the other: `python bench/run.py [--quick] [--fleet FILE] [--retrieval DIR] [--crowd FILE]`.

`python bench/run.py NAME ...` runs one of them with its own options, for example `replay --help`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run each in a process of its own; the last failure decides the exit code."""
    if len(sys.argv) > 1 and (alone := HERE / f"{sys.argv[1]}.py").is_file():
        return subprocess.run([sys.executable, str(alone), *sys.argv[2:]], check=False).returncode
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls, coarser figures")
    parser.add_argument("--fleet", default=os.environ.get("PORTICO_FLEET_DEFINITIONS"), help="real definitions")
    parser.add_argument("--retrieval", default=os.environ.get("PORTICO_RETRIEVAL_SETS"), help="a folder of query sets")
    parser.add_argument("--crowd", help="definitions of many servers more")
    options = parser.parse_args()
    quick = ["--quick"] if options.quick else []
    fleet = ["--fleet", options.fleet] if options.fleet else []
    retrieval = ["--retrieval", options.retrieval] if options.retrieval else []
    crowd = ["--crowd", options.crowd] if options.crowd else []
    runs = [
        ("A start", ["start.py"]),
        *([("A start with the given definitions", ["start.py", *fleet])] if fleet else []),
        ("A change of the catalog", ["editions.py"]),
        ("Reloads under load", ["reload.py", *(["--reloads", "10"] if options.quick else [])]),
        ("A search", ["search.py", *quick, *fleet, *retrieval]),
        ("Search in a crowd", ["crowd.py", *quick, *fleet, *retrieval, *crowd]),
        ("What a search says of its own answer", ["doubt.py", *fleet, *retrieval]),
        ("Runs of agents, replayed", ["replay.py"]),
        ("The walk from the hot list to ten schemas", ["walk.py", *fleet]),
        ("A tool of one's own, and what the surfaces cost", ["local.py", *quick, *fleet]),
        ("A tier over HTTP, SQLite", ["rest.py", "--store", "sqlite", *quick]),
        ("A tier over HTTP, PostgreSQL", ["rest.py", "--store", "postgresql", *quick]),
        ("The journal", ["journal.py", "--postgres"]),
        ("A large result, and what a small one pays", ["results.py"]),
        ("A script", ["scripts.py"]),
        ("Tools that live in a database", ["registry.py", *quick]),
        ("A script beside single calls", ["journey.py"]),
        ("Healthy servers among sick ones", ["fleet.py", *quick]),
        ("A call, client of 2026-07-28", ["overhead.py", *quick, "--stdio"]),
        ("A call, client of 2025-11-25", ["overhead.py", *quick, "--stdio", "--era", "2025-11-25"]),
    ]
    worst = 0
    for title, (script, *arguments) in runs:
        print(f"\n## {title}", flush=True)
        worst = subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode or worst
    return worst


if __name__ == "__main__":
    sys.exit(main())
