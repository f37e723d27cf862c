"""Search in a crowd of servers: `python bench/crowd.py [--retrieval DIR] [--crowd FILE] [--fleet FILE] [--part NAME]`.

Five parts: `sets`, how well the tools of each set in DIR are found alone and among the servers in FILE; `one-by-one`,
what it costs to add 10,000 tools singly; `size`, how long a query takes with all of them and what they cost in memory;
`attacks`, what servers do that want to be found whatever is asked; `talk`, requests in 200 words of talk. Without
files, all of it is done with generated tools. Prints Markdown tables and one JSON line. Beside a processor time stands
how often a fixed piece of work could have been done meanwhile. Everything has one thread.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"  # read when numpy is imported

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import crowd_attacks
from bench.crowd_attacks import Target
from bench.definitions import Definition, beside, read_definitions
from bench.fixed_work import cost
from bench.long_queries import PLACES, long_form
from bench.retrieval import DEPTH, Placed, Question, RetrievalSet, by_server, figures, generated_set, read_sets
from bench.search_catalogue import varied
from tests.catalogue import generate

from portico import Catalog

PARTS = ("sets", "one-by-one", "size", "attacks", "talk")
SINGLY = 10_000
LONG = 200
"""Words of a long query."""
SMALL = 600
"""Tools of a set, at most, that is attacked: there, each query names what it wants."""

Servers = Mapping[str, list[Definition]]
Row = dict[str, Any]


def main() -> None:
    """Measure and print, part by part."""
    options = _options()
    if options.resident:
        print(json.dumps(_resident(options)))
        return
    measures: dict[str, Callable[[argparse.Namespace], Any]] = {
        "sets": _sets,
        "one-by-one": _one_by_one,
        "size": _size,
        "attacks": _attacks,
        "talk": _talk,
    }
    found = {name: measures[name](options) for name in options.part or PARTS}
    print(json.dumps({"bench": "crowd", "python": sys.version.split()[0], "cpus": os.cpu_count(), **found}))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retrieval", default=os.environ.get("PORTICO_RETRIEVAL_SETS"), help="a folder of sets")
    parser.add_argument("--crowd", help="definitions of many servers, .json or .json.gz")
    parser.add_argument("--fleet", default=os.environ.get("PORTICO_FLEET_DEFINITIONS"), help="definitions to attack")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be repeated")
    parser.add_argument("--queries", type=int, default=400, help="at most, of each set (default: 400)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the queries and of the crowd")
    parser.add_argument("--crowd-first", action="store_true", help="the crowd was there before the tools of a set")
    parser.add_argument("--resident", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.queries = max(options.queries // 10, 20) if options.quick else options.queries
    return options


def _given_sets(options: argparse.Namespace) -> list[RetrievalSet]:
    return read_sets(Path(options.retrieval)) if options.retrieval else [generated_set()]


def _crowd(options: argparse.Namespace) -> Servers:
    """Those in the file, or generated ones with words as diverse as real ones."""
    found = read_definitions(Path(options.crowd)) if options.crowd else varied(8_000)
    return dict(list(found.items())[: max(len(found) // 10, 1)]) if options.quick else found


def _sample(one: RetrievalSet, count: int) -> list[Question]:
    """So many questions at most, the same every time."""
    return random.Random(1).sample(one.questions, k=min(count, len(one.questions)))


def _fill(catalog: Catalog, servers: Servers) -> None:
    for server, own in servers.items():
        catalog.add_tools(server, own, _nothing)


def _nothing(name: str, arguments: Mapping[str, Any]) -> None:
    """Runs no tool."""


def _sets(options: argparse.Namespace) -> dict[str, Row]:
    crowd, found = _crowd(options), {}
    told = f"{len(crowd):,} servers with {sum(map(len, crowd.values())):,} tools"
    print(f"\nIn a crowd of {told}; at most {options.queries} queries a set; CPU to load server by server.\n")
    print("| nDCG@10 / R@5 / R@5 with also | alone | among the crowd | CPU alone | CPU with the crowd |")
    print("|---|---:|---:|---:|---:|", flush=True)
    for one in _given_sets(options):
        row = found[one.name] = _in_crowd(one, crowd, options)
        cells = [_cell(row["alone"]), _cell(row["among"]), row["cpu_alone"], row["cpu_all"]]
        print(f"| {one.name}, {row['tools']:,} tools | {' | '.join(map(str, cells))} |", flush=True)
        row |= {name: row[name].as_row() for name in ("cpu_alone", "cpu_all")}
    return found


def _in_crowd(one: RetrievalSet, crowd: Servers, options: argparse.Namespace) -> Row:
    own, questions = by_server(one.tools), _sample(one, options.queries)
    ids = {(tool.server, tool.definition["name"]): tool.id for tool in one.tools}
    alone, others = Catalog(), beside(own, crowd)
    cpu_alone = cost(lambda: _load(alone, own))
    quality = _quality(alone, questions, ids)
    among = Catalog()
    order = [others, own] if options.crowd_first else [own, others]
    cpu_all = cost(lambda: _load(among, *order))
    return {
        "tools": len(one.tools),
        "queries": len(questions),
        "refused": len(among.rejected),
        "alone": quality,
        "among": _quality(among, questions, ids),
        "cpu_alone": cpu_alone,
        "cpu_all": cpu_all,
    }


def _load(catalog: Catalog, *parts: Servers) -> None:
    """Server by server, with the first search, which may have something to build."""
    for servers in parts:
        _fill(catalog, servers)
    catalog.search("anything at all")


def _quality(catalog: Catalog, questions: Sequence[Question], ids: Mapping[tuple[str, str], str]) -> dict[str, float]:
    runs = [catalog.search(question.text, limit=DEPTH) for question in questions]
    plain = [[ids.get((hit.server, hit.name), "") for hit in run] for run in runs]
    found = figures(questions, plain)
    also = [{ids.get((one.server, one.name), "") for hit in run[:5] for one in (hit, *hit.copies)} for run in runs]
    met = (
        sum(bool(need & shown) for need in question.needs) / len(question.needs)
        for question, shown in zip(questions, also, strict=True)
    )
    return {name: round(found[name], 4) for name in ("nDCG@10", "R@5")} | {"R@5 also": round(statistics.fmean(met), 4)}


def _cell(row: Mapping[str, float]) -> str:
    return " / ".join(f"{value:.3f}" for value in row.values())


def _one_by_one(options: argparse.Namespace) -> dict[str, Row]:
    count = SINGLY // 10 if options.quick else SINGLY
    servers = varied(count)
    functions = [_function(server, tool) for server, own in servers.items() for tool in own]
    found = {}
    print(f"\n{count:,} one by one\n\n| what | CPU | the first search after it, CPU |\n|---|---:|---:|", flush=True)
    for name, step in {
        "functions, register_tool": lambda catalog: _register(catalog, functions),
        "definitions, add_tools with one": lambda catalog: _fill_singly(catalog, servers),
        "definitions, server by server": lambda catalog: _fill(catalog, servers),
    }.items():
        catalog = Catalog()
        taken = cost(lambda step=step, catalog=catalog: step(catalog))  # type: ignore[misc]
        first = cost(lambda catalog=catalog: catalog.search("create an invoice"))  # type: ignore[misc]
        found[name] = {"tools": len(catalog), "load": taken.as_row(), "first_search": first.as_row()}
        print(f"| {name} | {taken} | {first} |", flush=True)
    return found


def _function(server: str, tool: Definition) -> tuple[str, Callable[..., str]]:
    """A plain function with the name and the text of a tool."""

    def run(text: str, limit: int = 10) -> str:
        return text[:limit]

    run.__name__ = run.__qualname__ = "".join(c if c.isalnum() else "_" for c in tool["name"])
    run.__doc__ = tool["description"]
    return server, run


def _register(catalog: Catalog, functions: Sequence[tuple[str, Callable[..., str]]]) -> None:
    for server, function in functions:
        catalog.register_tool(function, server=server, replace=True)


def _fill_singly(catalog: Catalog, servers: Servers) -> None:
    for server, own in servers.items():
        for tool in own:
            catalog.add_tools(server, [tool], _nothing)


def _size(options: argparse.Namespace) -> Row:
    """In a fresh process, whose memory has held nothing else."""
    given = {"--retrieval": options.retrieval, "--crowd": options.crowd}
    passed = [text for name, value in given.items() if value for text in (name, value)]
    command = [sys.executable, str(Path(__file__).resolve()), "--resident", *passed, *["--quick"][: options.quick]]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: Row = json.loads(done.stdout)
    print(f"\nThe crowd and the sets together: {found['tools']:,} tools\n\n| what | figure |\n|---|---:|")
    for name, value in found.items():
        print(f"| {name} | {value:,} |", flush=True)
    return found


def _resident(options: argparse.Namespace) -> Row:
    sets, crowd = _given_sets(options), _crowd(options)
    servers = dict(crowd)
    for one in sets:
        servers |= beside(servers, by_server(one.tools))
    queries = [question.text for one in sets for question in _sample(one, 100)]
    catalog, start = Catalog(), _resident_mb()
    load = cost(lambda: _fill(catalog, servers))
    loaded = _resident_mb()
    first = cost(lambda: catalog.search("anything at all"))
    built = _resident_mb()
    times = sorted(min(_milliseconds(catalog, query) for _ in range(2)) for query in queries)
    return {
        "tools": len(catalog),
        "servers": len(servers),
        "queries": len(queries),
        "load, CPU s": load.cpu_s,
        "load, x the fixed work": load.fixed_works,
        "first search, CPU s": first.cpu_s,
        "search p50 ms (CPU)": round(statistics.median(times), 3),
        "search p95 ms (CPU)": round(statistics.quantiles(times, n=20)[-1], 3),
        "MB of catalog, index and tables after loading": round(loaded - start, 1),
        "MB after the first search": round(built - start, 1),
        "MB after all queries": round(_resident_mb() - start, 1),
    }


def _milliseconds(catalog: Catalog, query: str) -> float:
    """Processor time: with one thread, it is what a query takes where nothing else runs."""
    began = time.process_time()
    catalog.search(query, limit=DEPTH)
    return (time.process_time() - began) * 1e3


def _resident_mb() -> float:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def _attacks(options: argparse.Namespace) -> list[crowd_attacks.Row]:
    found: list[crowd_attacks.Row] = []
    for target in _targets(options):
        rows = crowd_attacks.attack(target)
        count = sum(map(len, target.tools.values()))
        print(f"\nAttacks on {target.name}: {count:,} tools, {len(target.questions)} queries\n")
        print(crowd_attacks.table(rows), flush=True)
        found += rows
    return found


def _targets(options: argparse.Namespace) -> Iterator[Target]:
    """The fleet with questions made from its texts; each small set among the fleet, with its own questions."""
    fleet: Servers = read_definitions(Path(options.fleet)) if options.fleet else generate(26, 538)
    placed = [
        Placed(id=f"{server}/{tool['name']}", server=server, definition=tool)
        for server, own in fleet.items()
        for tool in own
    ]
    yield Target("the fleet", fleet, crowd_attacks.questions_of(placed, options.queries))
    for one in _given_sets(options):
        if len(one.tools) > SMALL:
            continue
        ids = {tool.id: f"{tool.server}/{tool.definition['name']}" for tool in one.tools}
        own = by_server(one.tools)
        questions = tuple(
            Question(text=question.text, needs=(frozenset(ids[id] for need in question.needs for id in need),))
            for question in _sample(one, options.queries)
        )
        yield Target(f"{one.name} among the fleet", own | beside(own, fleet), questions)


def _talk(options: argparse.Namespace) -> dict[str, Row]:
    print(f"\nRequests in {LONG} words of talk: nDCG@10, and its share of what the short form has\n")
    print(f"| set | queries | short | {' | '.join(PLACES)} |\n|---|---:|---:|{'---:|' * len(PLACES)}", flush=True)
    found = {}
    for one in _given_sets(options):
        catalog, questions = Catalog(), _sample(one, min(options.queries, 200))
        _fill(catalog, by_server(one.tools))
        ids = {(tool.server, tool.definition["name"]): tool.id for tool in one.tools}
        short = _quality(catalog, questions, ids)["nDCG@10"]
        row: Row = {"queries": len(questions), "short": short}
        for place in PLACES:
            value = _quality(catalog, _lengthened(questions, place), ids)["nDCG@10"]
            row[place] = {"nDCG@10": value, "share": round(value / short, 4)}
        found[one.name] = row
        cells = [f"{row[place]['nDCG@10']:.3f} ({row[place]['share']:.0%})" for place in PLACES]
        print(f"| {one.name} | {len(questions)} | {short:.3f} | {' | '.join(cells)} |", flush=True)
    return found


def _lengthened(questions: Sequence[Question], place: str) -> list[Question]:
    rng = random.Random(17)
    return [Question(text=long_form(one.text, place, LONG, rng), needs=one.needs) for one in questions]


if __name__ == "__main__":
    main()
