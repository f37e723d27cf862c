"""What a change costs: one server of 50 tools comes, changes and goes in a catalog of 10,000, beside a whole rebuild.

`python bench/publisher.py [--tools 10000]` prints a Markdown table and one JSON line. The index is left out: these are
the CPU milliseconds of intake, edition, policy and resolver alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.catalogue import generate

from portico.catalog.publisher import Publisher
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogPolicy
from portico.domain.call import Caller
from portico.domain.search_answers import Findings
from portico.domain.server import Offering

ROUNDS = 7
CALLER = Caller(surface="bench")


class NoIndex:
    """An index that costs nothing."""

    def query(self, text: str, **_: object) -> Findings:
        """Finds nothing."""
        return Findings(hits=(), fits=False)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=int, default=10_000)
    options = parser.parse_args()
    figures = _measure([_offering(name, own) for name, own in generate(100, options.tools).items()])
    print("| change | CPU ms | of a whole rebuild |\n|---|---|---|")
    for name, milliseconds in figures.items():
        print(f"| {name} | {milliseconds:.1f} | {milliseconds / figures['rebuild']:.1%} |")
    print(json.dumps({"bench": "editions", "tools": options.tools, **figures}))


def _measure(offerings: list[tuple[Offering, str]]) -> dict[str, float]:
    rounds = [_round(offerings) for _ in range(ROUNDS)]
    return {name: round(statistics.median(one[name] for one in rounds), 2) for name in rounds[0]}


def _round(offerings: list[tuple[Offering, str]]) -> dict[str, float]:
    publisher, policy = Publisher(build_index=lambda snapshot, previous: NoIndex()), CatalogPolicy()
    own = generate(1, 50, seed=9)["code"]
    changed = [{**own[0], "description": "Another text"}, *own[1:]]
    return {
        "rebuild": _cpu(lambda: publisher.accept(offerings), policy),
        "add": _cpu(lambda: publisher.accept([_offering("new", own)]), policy),
        "change": _cpu(lambda: publisher.accept([_offering("new", changed)]), policy),
        "remove": _cpu(lambda: publisher.withdraw("new"), policy),
    }


def _cpu(step: Callable[[], CatalogSnapshot], policy: CatalogPolicy) -> float:
    """The milliseconds of a step and of the first call after it."""
    start = time.process_time()
    snapshot = step()
    tool = list(snapshot.tools.values())[-1]
    snapshot.resolver.resolve(tool.handle, policy.visible(CALLER, snapshot))
    return (time.process_time() - start) * 1000


def _offering(server: str, own: list[dict[str, object]]) -> tuple[Offering, str]:
    return Offering(server=server, tools=tuple(own)), "upstream"


if __name__ == "__main__":
    main()
