"""Attacks a gateway of its own over loopback: `python tests/attack/run.py [--seconds N] [--seed N] [--only a,b]`.

Each suite starts a real `portico serve`, attacks it for some seconds with payloads that follow from the seed, and stops
it. Prints a table and one line of JSON. Exits with 1 when something got through, when the event loop stood still for
more than 50 ms of CPU time, or when memory grew by more than 200 MB; with 2 when a suite could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.attack.arguments import Arguments
from tests.attack.bodies import Bodies
from tests.attack.headers import Headers
from tests.attack.scripts import ScriptRunner
from tests.attack.sessions import Sessions
from tests.attack.sql import Postgresql, Sqlite
from tests.attack.suite import Suite
from tests.attack.target import Strain, Target, attacked, began, descendants
from tests.attack.upstreams import Upstreams

SUITES: dict[str, Callable[[], Suite]] = {
    "arguments": lambda: Arguments("arguments"),
    "json": lambda: Bodies("json"),
    "headers": Headers,
    "sessions": Sessions,
    "upstreams": Upstreams,
    "sql/sqlite": lambda: Sqlite("sql/sqlite"),
    "sql/postgresql": lambda: Postgresql("sql/postgresql"),
    "scripts": lambda: ScriptRunner("scripts"),
}
STALL_MS = 50.0
GROWTH_MB = 200.0
GRACE = 5.0
"""Seconds that a child may outlive its gateway."""
ATTEMPTS = 20_000
"""The most that one suite tries, however long it may."""
WARM_UP = ("discover", "static", "search", "gateway", "capabilities")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one suite."""

    suite: str
    attempts: int
    strain: Strain
    through: dict[str, int]
    """What got through, and how often."""

    @property
    def broken(self) -> list[str]:
        """What does not hold."""
        found = [f"{what} ({times}x)" for what, times in self.through.items()]
        if self.strain.stall_ms > STALL_MS:
            found.append(f"a stall of {self.strain.stall_ms:,.0f} ms{_place(self.strain)}")
        if self.strain.growth_mb > GROWTH_MB:
            found.append(f"{self.strain.growth_mb:,.0f} MB of growth")
        return found


def _place(strain: Strain) -> str:
    return f" in {strain.where}" if strain.where else ""


def attack(name: str, *, seconds: float, seed: int, verbose: bool = False) -> Outcome:
    """Run one suite against a gateway of its own.

    Raises:
        RuntimeError: the gateway cannot be started.
    """
    suite, through = SUITES[name](), Counter[str]()
    with TemporaryDirectory(prefix="portico-attack-") as folder:
        home = Path(folder)
        try:
            config = suite.config(home)
            with attacked(home, config, suite.environ) as target:
                tried = _attack(
                    suite, target, through, seconds=seconds, chance=Random(f"{name} {seed}"), verbose=verbose
                )
                strain = target.strain()
                through.update(suite.aftermath(target))
                through.update(_unwell(target))
                children = descendants(target.process.pid)
            through.update(_left_behind(target, children))
        finally:
            suite.close()
    return Outcome(suite=name, attempts=tried, strain=strain, through=dict(through.most_common()))


def _attack(
    suite: Suite, target: Target, through: Counter[str], *, seconds: float, chance: Random, verbose: bool
) -> int:
    _warm_up(target)
    target.begin()
    until, tried = time.monotonic() + seconds, 0
    for attempt in suite.attempts(chance, target):
        tried += 1
        if verbose:
            print(f"{seconds - until + time.monotonic():6.2f} s  {attempt.kind}  {attempt.through}", file=sys.stderr)
        if attempt.through and target.is_alive:
            through[attempt.through] += 1
        if time.monotonic() > until or tried >= ATTEMPTS or not target.is_alive:
            break
    return tried


def _warm_up(target: Target) -> None:
    """What is loaded at first use is loaded before anything is measured."""
    for surface in WARM_UP:
        target.talk.call(surface, "search_tools", {"query": "echo"})
    target.talk.call("discover", "call_tool", {"name": "victim.plain", "arguments": {"owner": 1}})
    target.talk.call("discover", "call_tool", {"name": "victim.do", "arguments": {}})
    target.talk.call("discover", "run_script", {"script": "return 1"})
    target.talk.call("discover", "call_tool", {"name": "base_readQuery", "arguments": {"sql": "SELECT 1"}})
    for path in ("/api/v1/servers", "/api/v1/tools/hot", "/api/v1/usage", "/metrics", "/nothing"):
        target.talk.send("GET", path)


def _unwell(target: Target) -> Iterator[str]:
    if target.was_killed:
        yield "the gateway took all memory that it was allowed"
    elif not target.is_alive:
        yield "the gateway died"
    elif target.failed_probes * 5 > target.probes:
        yield "others were not answered"
    if any("Traceback (most recent" in line for line in target.said):
        yield "a traceback in the log"


def _left_behind(target: Target, children: dict[int, str]) -> Iterator[str]:
    """What is wrong when the gateway has stopped."""
    left = {pid: since for pid, since in children.items() if since}
    until = time.monotonic() + GRACE
    while (left := {pid: since for pid, since in left.items() if began(pid) == since}) and time.monotonic() < until:
        time.sleep(0.1)
    for pid in left:
        yield "a process was left behind"
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    missing = target.executed() - target.journalled()
    if missing > 0 and not target.was_killed:
        yield from ["executed and not journalled"] * missing


def report(outcomes: Sequence[Outcome]) -> None:
    """Print one line for each suite, what got through, and everything as JSON."""
    print("| suite | attempts | stall, ms of CPU | on the wall, ms | slowest /livez, ms | growth, MB | got through |")
    print("|---|---|---|---|---|---|---|")
    for one in outcomes:
        cost = one.strain
        figures = f"{cost.stall_ms:,.0f} | {cost.wall_ms:,.0f} | {cost.livez_ms:,.0f} | {cost.growth_mb:,.0f}"
        print(f"| {one.suite} | {one.attempts:,} | {figures} | {sum(one.through.values()):,} |")
    for one in outcomes:
        for line in one.broken:
            print(f"{one.suite}: {line}")
    print(json.dumps({"attack": [asdict(one) | {"broken": one.broken} for one in outcomes]}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen suites one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each suite attacks")
    parser.add_argument("--seed", type=int, default=0, help="of all payloads")
    parser.add_argument("--only", default="", help=f"some suites only, with commas between: {', '.join(SUITES)}")
    parser.add_argument("--verbose", action="store_true", help="tell each attempt, and when it was over")
    options = parser.parse_args(arguments)
    wanted = [name.strip() for name in options.only.split(",") if name.strip()]
    chosen = [name for name in SUITES if not wanted or name in wanted or name.split("/")[0] in wanted]
    if not chosen or any(not any(n == w or n.split("/")[0] == w for n in SUITES) for w in wanted):
        parser.error(f"there is no such suite; there are: {', '.join(SUITES)}")
    outcomes, failed = [], False
    for name in chosen:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            outcomes.append(attack(name, seconds=options.seconds, seed=options.seed, verbose=options.verbose))
        except (RuntimeError, ImportError) as error:
            print(f"{name}: could not be run: {error}", file=sys.stderr)
            failed = True
    report(outcomes)
    return 2 if failed else int(any(one.broken for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
