"""Recorded runs of agents against a catalog: `python bench/replay.py [--trace FILE] [--fleet FILE | --config FILE]`.

The trace is JSON lines. A line is one task,

    {"task": "7", "searches": [{"query": "open a ticket"}], "wanted": ["tracker.create_issue"]}

or one entry of a journal, as `portico stats --export FILE` writes them; what was called after a search is what that
search was for. docs/guides/replay.md describes both. Without --trace, 60 made tasks with 150 searches are replayed.
These are over the generated catalogue, against which other traces are replayed too, unless --fleet or --config says
otherwise.

Prints which wanted tools the searches show among the first 3, 5 and 10 lines, how many tasks find all they want, what a
task costs in tokens with and without Portico, and the searches that fail; the last line is JSON. A tool that a line
names behind "also" counts as shown; the figures without these are printed beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.definitions import Definition, beside, read_definitions
from bench.made_trace import made_catalogue, made_rows
from bench.recorded_runs import GAP, Search, Task, Trace, Wanted, read_trace

from portico import Catalog
from portico.domain.call import Caller
from portico.domain.search_answers import Query
from portico.domain.tool import ToolId
from portico.errors import CallError, UnknownFilter
from portico.server.run import surface_tokens
from portico.wiring import open_app, settings_for

DEPTHS = (3, 5, 10)
LIMIT = 5
FAILURES = 20
CALLER = Caller(surface="bench")

Servers = Mapping[str, list[Definition]]
Need = frozenset[ToolId]
"""Tools any of which would do; empty where the catalog has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a search shows now: the tool of each line, and the others that the line names."""

    search: Search
    needs: tuple[Need, ...]
    """Those of its wanted tools that the catalog has."""
    unknown: tuple[Wanted, ...]
    first: tuple[ToolId, ...]
    lines: tuple[frozenset[ToolId], ...]
    fits: bool
    tokens: int

    def place(self, need: Need, *, also: bool = True) -> int:
        """The line that has a tool of a need, from 1; 0 for none."""
        lines = self.lines if also else [frozenset([one]) for one in self.first]
        return next((at for at, line in enumerate(lines, start=1) if line & need), 0)

    def is_hit(self, depth: int, *, also: bool = True) -> bool:
        """Whether one of its wanted tools is among the first lines."""
        return any(0 < self.place(need, also=also) <= depth for need in self.needs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A task with what its searches show now."""

    task: Task
    searches: tuple[Shown, ...]
    needs: tuple[Need, ...]
    unknown: tuple[Wanted, ...]
    described_tokens: int

    def shows(self, need: Need, depth: int, *, also: bool = True) -> bool:
        """Whether one of its searches shows a tool of a need among the first lines."""
        return any(0 < one.place(need, also=also) <= depth for one in self.searches)


class Replay:
    """A catalog that recorded searches are asked of again."""

    def __init__(self, servers: Servers, limit: int = LIMIT) -> None:
        self.catalog, self.limit = Catalog(), limit
        self.dropped_filters = 0
        """Searches whose filters name what this catalog has not; they are asked without them."""
        for server, own in servers.items():
            self.catalog.add_tools(server, own, lambda name, arguments: None)

    def run(self, task: Task) -> Replayed:
        """Ask all searches of a task."""
        known, unknown = self._known(task.wanted)
        return Replayed(
            task=task,
            searches=tuple(self._ask(task, search) for search in task.searches),
            needs=known,
            unknown=unknown,
            described_tokens=task.described_tokens + self._described(task, known),
        )

    def _ask(self, task: Task, search: Search) -> Shown:
        needs, unknown = self._known(task.wanted_of(search))
        query = Query(text=search.query, limit=max(self.limit, *DEPTHS), **search.filters)
        try:
            found = self.catalog.gateway.first_page(CALLER, query)
        except UnknownFilter:
            self.dropped_filters += 1
            query = Query(text=search.query, limit=query.limit)
            found = self.catalog.gateway.first_page(CALLER, query)
        answer = self.catalog.gateway.search(CALLER, Query(text=query.text, limit=self.limit, **query.filters))
        return Shown(
            search=search,
            needs=needs,
            unknown=unknown,
            first=tuple(hit.tool.id for hit in found.hits),
            lines=tuple(frozenset(one.tool.id for one in (hit, *hit.copies)) for hit in found.hits),
            fits=found.fits,
            tokens=answer.tokens,
        )

    def _known(self, wanted: Iterable[Wanted]) -> tuple[tuple[Need, ...], tuple[Wanted, ...]]:
        found = {one: frozenset(filter(None, map(self._tool, one))) for one in wanted}
        known = tuple(dict.fromkeys(need for need in found.values() if need))
        return known, tuple(one for one, need in found.items() if not need)

    def _tool(self, spelling: str) -> ToolId | None:
        snapshot = self.catalog.gateway.snapshot
        try:
            return snapshot.resolver.resolve(spelling, snapshot.tools.keys()).id
        except CallError:
            return None

    def _described(self, task: Task, known: Sequence[Need]) -> int:
        """Tokens of the cards that were read; of all wanted tools where that is not recorded."""
        if task.described is not None:
            ids = [id for id in map(self._tool, task.described) if id is not None]
        else:
            ids = [min(need) for need in known]
        tools = self.catalog.gateway.snapshot.tools
        return sum(self.catalog.gateway.describe(CALLER, [tools[id].handle]).tokens for id in dict.fromkeys(ids))


def main() -> int:
    """Replay and print."""
    options = _options()
    if options.write:
        Path(options.write).write_text("".join(f"{json.dumps(row)}\n" for row in made_rows()), encoding="utf-8")
        return 0
    trace = _trace(options)
    for problem in trace.problems[:FAILURES]:
        print(f"error: {problem}", file=sys.stderr)
    if trace.problems and not options.skip_bad_lines:
        print(f"error: {_many(len(trace.problems), 'line')} cannot be read, and nothing was replayed;", file=sys.stderr)
        print("next: correct them, or leave them out with --skip-bad-lines", file=sys.stderr)
        return 2
    replay = Replay(_servers(options), options.limit)
    found = [replay.run(task) for task in trace.tasks]
    figures = report(replay, found)
    _print(figures, trace, replay)
    failures = [told for one in found for told in _failures(replay, one)]
    _print_failures(failures, options.failures)
    print(
        json.dumps({"bench": "replay", "trace": options.trace or "made", **figures, "bad_lines": len(trace.problems)})
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="recorded runs, as JSON lines; - is stdin")
    parser.add_argument("--fleet", help='definitions, a list of {"server", "tools"}; .json or .json.gz')
    parser.add_argument("--config", help="the definitions that the store of this config has; no server is started")
    parser.add_argument("--crowd", help="definitions of more servers beside these, in the same form")
    parser.add_argument("--limit", type=int, default=LIMIT, help="lines that an agent sees (default: 5, at most 50)")
    parser.add_argument("--gap", type=float, default=GAP / 60, help="minutes of silence between two tasks of a journal")
    parser.add_argument("--failures", type=int, default=FAILURES, help="failed searches that are shown (default: 20)")
    parser.add_argument("--skip-bad-lines", action="store_true", help="leave lines out that cannot be read")
    parser.add_argument("--write", metavar="FILE", help="only write the made trace to a file, as an example")
    return parser.parse_args()


def _trace(options: argparse.Namespace) -> Trace:
    if options.trace == "-":
        return read_trace(sys.stdin, "stdin", gap=60 * options.gap)
    if options.trace:
        with _file(options.trace).open(encoding="utf-8", errors="replace") as lines:
            return read_trace(lines, options.trace, gap=60 * options.gap)
    return read_trace(map(json.dumps, made_rows()), "made")


def _file(name: str) -> Path:
    if not Path(name).is_file():
        raise SystemExit(f"error: there is no file {name}")
    return Path(name)


def _servers(options: argparse.Namespace) -> Servers:
    if options.fleet:
        servers: Servers = read_definitions(_file(options.fleet))
    elif options.config:
        servers = anyio.run(_stored, str(_file(options.config)))
    else:
        servers = made_catalogue()
    return {**servers, **beside(servers, read_definitions(_file(options.crowd)))} if options.crowd else servers


async def _stored(config: str) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    async with open_app(settings_for(config)) as application:
        for tool in application.gateway.snapshot.tools.values():
            found.setdefault(tool.id.server, []).append({**tool.definition, "name": tool.id.name})
    if not found:
        raise SystemExit(
            f"error: nothing is stored of the servers in {config}\nnext: portico --config {config} refresh"
        )
    return found


def report(replay: Replay, found: Sequence[Replayed]) -> dict[str, Any]:
    """All figures of a replay."""
    shown = [one for task in found for one in task.searches]
    judged = [one for one in shown if one.needs]
    needs = [(task, need) for task in found for need in task.needs]
    whole = [task for task in found if task.needs and not task.unknown]
    return {
        "tools": len(replay.catalog),
        "tasks": len(found),
        "searches": len(shown),
        "without_wanted": sum(not one.needs and not one.unknown for one in shown),
        "only_unknown": sum(not one.needs and bool(one.unknown) for one in shown),
        "nothing_fits": sum(not one.fits for one in shown),
        "wanted": len(needs),
        "wanted_shown": _at(lambda k, also: [task.shows(need, k, also=also) for task, need in needs]),
        "searches_hit": _at(lambda k, also: [one.is_hit(k, also=also) for one in judged]),
        "recorded": _recorded(judged),
        "tasks_judged": len(whole),
        "complete": sum(all(task.shows(need, replay.limit) for need in task.needs) for task in whole),
        "limit": replay.limit,
        "tokens": _tokens(replay, found),
        "unknown": dict(Counter(" or ".join(one) for task in found for one in task.unknown).most_common()),
        "failed": sum(not one.is_hit(replay.limit) for one in judged),
    }


def _at(hits: Callable[[int, bool], list[bool]]) -> dict[str, dict[str, float]]:
    return {
        name: {str(depth): _share(hits(depth, also)) for depth in DEPTHS}
        for name, also in (("with also", True), ("without", False))
    }


def _recorded(judged: Sequence[Shown]) -> dict[str, float]:
    """The share of what searches were for that they showed when they were recorded; none where that is not known."""
    places = [place for one in judged for place in (one.search.places or {}).values()]
    return {str(depth): _share([0 < place <= depth for place in places]) for depth in DEPTHS} if places else {}


def _share(given: Sequence[bool]) -> float:
    return round(statistics.fmean(given), 4) if given else 0.0


def _tokens(replay: Replay, found: Sequence[Replayed]) -> dict[str, float]:
    """The mean of a task: what is read before the first question, and the answers, each counted once."""
    gateway = replay.catalog.gateway
    count = max(len(found), 1)
    meta, without = surface_tokens(gateway, "discover"), surface_tokens(gateway, "static")
    searches = sum(one.tokens for task in found for one in task.searches) / count
    described = sum(task.described_tokens for task in found) / count
    whole = meta + searches + described
    return {
        "meta_tools": meta,
        "searches": round(searches),
        "described": round(described),
        "with": round(whole),
        "without": without,
        "saved": round(1 - whole / without, 4) if without else 0.0,
    }


def _failures(replay: Replay, found: Replayed) -> list[tuple[str, str, str, str]]:
    """The searches of a task that show none of what they were for, and what they show instead."""
    tools = replay.catalog.gateway.snapshot.tools
    return [
        (
            found.task.name,
            " ".join(one.search.query.split()),
            ", ".join(" or ".join(tools[id].handle for id in sorted(need)) for need in one.needs),
            ", ".join(tools[id].handle for id in one.first[: replay.limit]) or "nothing",
        )
        for one in found.searches
        if one.needs and not one.is_hit(replay.limit)
    ]


def _print(figures: Mapping[str, Any], trace: Trace, replay: Replay) -> None:
    told = f"{_many(figures['tasks'], 'task')} with {_many(figures['searches'], 'search', 'searches')}"
    print(f"\n{told}, against {_many(figures['tools'], 'tool')}; {_many(figures['wanted'], 'wanted tool')}\n")
    print(f"| share | {' | '.join(f'first {depth}' for depth in DEPTHS)} |\n|---|{'---:|' * len(DEPTHS)}")
    for title, name in (("wanted tools shown", "wanted_shown"), ("searches with a hit", "searches_hit")):
        for kind, row in figures[name].items():
            suffix = "" if kind == "with also" else ", without those behind `also`"
            print(f"| {title}{suffix} | {_cells(row)} |")
    if figures["recorded"]:
        print(f"| what searches were for, shown then | {_cells(figures['recorded'])} |")
    complete, judged = figures["complete"], figures["tasks_judged"]
    print(f"\ntasks that find all they want in the first {figures['limit']} lines: {complete} of {judged}")
    tokens = figures["tokens"]
    parts = f"meta-tools {tokens['meta_tools']:,}, searches {tokens['searches']:,}, cards {tokens['described']:,}"
    print(f"tokens of a task: {tokens['with']:,} ({parts}), {tokens['without']:,} without Portico", end="")
    print(f": {tokens['saved']:.1%} saved")
    _print_apart(figures, trace, replay)


def _print_apart(figures: Mapping[str, Any], trace: Trace, replay: Replay) -> None:
    """What is in no figure above, so that nobody takes it for counted."""
    counts = {
        "searches after which nothing was called, and nothing is said to be wanted": figures["without_wanted"],
        "searches whose wanted tools are all unknown here": figures["only_unknown"],
        "searches that are answered with `nothing fits` and the nearest tools": figures["nothing_fits"],
        "searches asked without their filters, which name nothing here": replay.dropped_filters,
        "tasks without a search": trace.without_search,
        "lines that cannot be read": len(trace.problems),
    }
    for title, count in counts.items():
        if count:
            print(f"{title}: {count:,}")
    unknown = figures["unknown"]
    if unknown:
        print(
            f"wanted tools that this catalog has not: {sum(unknown.values()):,}, in no figure above; the most wanted:"
        )
        for name, count in list(unknown.items())[:FAILURES]:
            print(f"  {name} ({count:,})")


def _cells(row: Mapping[str, float]) -> str:
    return " | ".join(f"{value:.1%}" for value in row.values())


def _print_failures(failures: Sequence[tuple[str, str, str, str]], most: int) -> None:
    if failures[:most]:
        print(f"\nSearches that show nothing of what they were for: {len(failures):,}\n")
        print("| task | query | wanted | shown instead |\n|---|---|---|---|")
    for row in failures[:most]:
        print(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |")
    print()


def _many(count: int, one: str, more: str = "") -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {more or one + 's'}"


if __name__ == "__main__":
    sys.exit(main())
