"""What a walk through the four tiers costs, beside reading every definition.

`python bench/walk.py [--fleet definitions.json]` prints a Markdown table and one JSON line for each catalogue: a
hundred generated servers, and real definitions where a file is given. The walk is the longest that the tiers are made
for: the hot list, the categories, the first page of the largest category, and the ten largest schemas. Each answer is
counted as it is sent. Exits with 1 when a walk is above its budget or saves less than 92 %.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import orjson

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.catalogue import load_fleet
from tests.hundred_servers import hundred_servers

from portico.domain.search_answers import View
from portico.rendering.budget import counter_for
from portico.testing import AGENT, make_test_app
from portico.tiers.tier_requests import TierAnswers
from portico.tiers.token_budgets import Step

LEAST = 0.92
"""The part that a walk must save."""
ROUNDS = 40

Definitions = Mapping[str, list[dict[str, Any]]]
Ask = Callable[[], Awaitable[View]]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", help="a file of real definitions to measure as well")
    parser.add_argument("--tokens", choices=("estimate", "exact"), default="estimate", help="what counts tokens")
    options = parser.parse_args()
    catalogues = {"a hundred servers": hundred_servers(), "the given definitions": load_fleet(options.fleet)}
    good = True
    for title, definitions in catalogues.items():
        if definitions:
            figures = anyio.run(_measure, definitions, options.tokens)
            _print(title, figures)
            print(json.dumps({"bench": "walk", "catalogue": title, **figures}))
            good = good and figures["ok"] and figures["saved"] >= LEAST
    return 0 if good else 1


async def _measure(definitions: Definitions, tokens: str) -> dict[str, Any]:
    counter = counter_for(tokens)
    application = make_test_app(definitions, counter=counter)
    tier_answers = TierAnswers(gateway=application.gateway)
    found = await tier_answers.verify(AGENT)
    every = [tool.definition for tool in application.gateway.snapshot.tools.values()]
    before = sum(counter.count(orjson.dumps(definition).decode()) for definition in every)
    cumulative = found.rows[-1].cumulative
    return {
        "servers": len(definitions),
        "tools": len(every),
        "counter": found.counter,
        "before": before,
        "tiers": {row.tier: {"tokens": row.tokens, "cumulative": row.cumulative} for row in found.rows},
        "walk": cumulative,
        "saved": round(1 - cumulative / before, 4),
        "ok": found.ok,
        "category": found.category,
        "ms": await _times(tier_answers, found.category, found.tools[0]),
    }


async def _times(tier_answers: TierAnswers, category: str, tool: tuple[str, str]) -> dict[str, dict[str, float]]:
    """Each tier as a caller waits for it: the first time after a change, and from the cache."""
    asks: dict[str, Ask] = {
        "T0": lambda: tier_answers.hot(AGENT),
        "T1": lambda: tier_answers.categories(AGENT),
        "T2": lambda: tier_answers.category(AGENT, category),
        "T3": lambda: tier_answers.tool(AGENT, *tool),
    }
    cold: dict[str, list[float]] = {tier: [] for tier in asks}
    warm: dict[str, list[float]] = {tier: [] for tier in asks}
    for _ in range(ROUNDS):
        tier_answers.cache.clear()
        for tier, ask in asks.items():
            cold[tier].append(await _timed(ask))
            warm[tier].append(await _timed(ask))
    return {tier: {"cold": _p95(cold[tier]), "kept": _p95(warm[tier])} for tier in asks}


def _p95(times: list[float]) -> float:
    return round(statistics.quantiles(times, n=20)[-1], 3)


async def _timed(ask: Ask) -> float:
    started = time.perf_counter()
    await ask()
    return 1_000 * (time.perf_counter() - started)


def _print(title: str, figures: Mapping[str, Any]) -> None:
    limits = {step.value: step.limit for step in Step}
    print(f"\n{figures['servers']} servers, {figures['tools']} tools ({title}), tokens by `{figures['counter']}`\n")
    print(
        "| | tokens | with those before | at most | ms (p95), first time | ms (p95), kept |\n|---|---|---|---|---|---|"
    )
    print(f"| every definition | {figures['before']:,} | | | | |")
    for tier, row in figures["tiers"].items():
        times = figures["ms"][tier]
        print(
            f"| {tier} | {row['tokens']:,} | {row['cumulative']:,} | {limits[tier]:,}"
            f" | {times['cold']:.1f} | {times['kept']:.2f} |"
        )
    print(f"\nThe walk saves {figures['saved']:.1%}.\n")


if __name__ == "__main__":
    sys.exit(main())
