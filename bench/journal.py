"""What the journal costs: `python bench/journal.py [--calls N] [--rate N] [--seconds S] [--postgres]`.

One executor calls a tool that does nothing, with no journal, with the one in memory and with the stored one, in turns
in one run; CPU time is the whole process's, so that the thread that writes counts too. Then calls are recorded at a
rate, and every one must be in the database. Prints a Markdown table and one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.databases import postgres_server

from portico.domain.call import Call, Invocation, Outcome
from portico.domain.journal_entries import Entry
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage
from portico.execution.executor import Executor
from portico.gateway import Gateway
from portico.protocols import Journal
from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.memory import MemoryJournal
from portico.storage.storage import open_database
from portico.testing import AGENT, definition, make_test_app

ROUNDS = 7
SERVERS, TOOLS = 10, 10
TICK = 0.01
"""Seconds between two handfuls of calls where there is a rate."""


class NoJournal:
    """A journal that keeps nothing."""

    def record(self, entry: Entry) -> None:
        """Forget it."""

    async def written(self) -> str:
        """There is nothing to wait for."""
        return ""

    def usage(self) -> Mapping[ToolId, Usage]:
        """Nothing was ever called."""
        return {}


class Nothing:
    """A provider whose tools do nothing."""

    async def call(self, name: str, arguments: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        """Return at once."""
        return {"content": []}


def main() -> int:
    """Measure and print; 1 when something was recorded that is not there."""
    options = _options()
    with _stores(postgres=options.postgres) as stores:
        added = asyncio.run(_added(stores["sqlite"], options.calls))
        sustained = {name: asyncio.run(_sustained(store, options)) for name, store in stores.items()}
    _print(added, sustained)
    print(json.dumps({"bench": "journal", "cpus": os.cpu_count(), "calls": options.calls, **added, **sustained}))
    return 0 if all(one["stored"] == one["recorded"] for one in sustained.values()) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="calls in a round")
    parser.add_argument("--rate", type=int, default=5_000, help="calls in a second, where every one must be stored")
    parser.add_argument("--seconds", type=float, default=3.0, help="for how long")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL too, and write to it")
    return parser.parse_args()


@contextmanager
def _stores(*, postgres: bool) -> Iterator[dict[str, Callable[[], tuple[Ledger, StoredJournal]]]]:
    """Ways to open a ledger and its journal, each time in a new database."""
    with ExitStack() as closing:
        folder = Path(closing.enter_context(TemporaryDirectory()))

        def opened(url: str) -> tuple[Ledger, StoredJournal]:
            database = open_database(url, folder)
            closing.callback(database.close)
            ledger = Ledger(database)
            return ledger, StoredJournal(ledger, folder=folder / "writers")

        numbers = iter(range(1_000))
        found = {"sqlite": lambda: opened(f"sqlite:///{folder / str(next(numbers))}.db")}
        if postgres:
            server = closing.enter_context(postgres_server())
            found["postgresql"] = lambda: opened(server.fresh())
        yield found


async def _added(store: Callable[[], tuple[Ledger, StoredJournal]], calls: int) -> dict[str, float]:
    """CPU microseconds of a call with each journal, and what the stored one adds to a call without any."""
    executor, gateway = _executor()
    ledger, stored = store()
    journals: dict[str, Journal] = {"none": NoJournal(), "memory": MemoryJournal(), "stored": stored}
    rounds = []
    for number in range(ROUNDS):
        names = _names(calls, seed=number)
        rounds.append({kind: await _cpu(executor, gateway, journal, names) for kind, journal in journals.items()})
    stored.close()
    assert ledger.report(days=1, limit=1).calls == ROUNDS * calls
    figures = {f"{kind}_us": statistics.median(one[kind] for one in rounds) for kind in journals}
    figures["added_us"] = statistics.median(one["stored"] - one["none"] for one in rounds)
    figures["more_than_memory_us"] = statistics.median(one["stored"] - one["memory"] for one in rounds)
    figures["ratio_to_memory"] = statistics.median(one["stored"] / one["memory"] for one in rounds)
    return {name: round(value, 2) for name, value in figures.items()}


async def _cpu(executor: Executor, gateway: Gateway, journal: Journal, names: list[str]) -> float:
    start, own = time.process_time(), replace(executor, journal=journal)
    for name in names:
        await own.run(gateway.view(AGENT), Call(tool=name, arguments={}))
    if isinstance(journal, StoredJournal):
        assert journal.flush(60)
    return (time.process_time() - start) / len(names) * 1e6


async def _sustained(
    store: Callable[[], tuple[Ledger, StoredJournal]], options: argparse.Namespace
) -> dict[str, float]:
    """Calls at a rate: how many came through, what they cost, and how long recording held up the loop at most."""
    ledger, journal = store()
    with_journal = await _paced(journal, options)
    journal.close()
    without = await _paced(NoJournal(), options)
    losses = ledger.report(days=1, limit=1).losses
    return {
        "recorded": journal.state.recorded,
        "stored": ledger.report(days=1, limit=1).calls,
        "dropped": losses.dropped + losses.lost,
        "rate": round(journal.state.recorded / with_journal["seconds"]),
        "added_us": round(with_journal["cpu_us"] - without["cpu_us"], 2),
        "longest_record_ms": with_journal["longest_ms"],
    }


async def _paced(journal: Journal, options: argparse.Namespace) -> dict[str, float]:
    handful = max(1, round(options.rate * TICK))
    names = iter(_names(int(options.rate * options.seconds), seed=1))
    start, cpu, longest, count = time.perf_counter(), time.process_time(), 0.0, 0
    while some := list(islice(names, handful)):
        for name in some:
            entry = _invocation(name)
            began = time.perf_counter()
            journal.record(entry)
            longest = max(longest, time.perf_counter() - began)
        count += len(some)
        await asyncio.sleep(max(0.0, start + count / options.rate - time.perf_counter()))
    seconds = time.perf_counter() - start
    if isinstance(journal, StoredJournal):
        assert journal.flush(60)
    cpu_us = (time.process_time() - cpu) / count * 1e6
    return {"seconds": seconds, "cpu_us": cpu_us, "longest_ms": round(1_000 * longest, 2)}


def _executor() -> tuple[Executor, Gateway]:
    application = make_test_app({f"s{s}": [definition(f"t{t}") for t in range(TOOLS)] for s in range(SERVERS)})
    executor = application.gateway.executor
    nothing: Any = Nothing()
    return replace(executor, providers=dict.fromkeys(executor.providers, nothing)), application.gateway


def _names(calls: int, *, seed: int) -> list[str]:
    """Handles as agents use them: a few tools have most of the calls."""
    handles = [f"s{number % SERVERS}.t{number // SERVERS}" for number in range(SERVERS * TOOLS)]
    return random.Random(seed).choices(handles, [1 / (place + 1) for place in range(len(handles))], k=calls)


def _invocation(handle: str) -> Invocation:
    server, _, name = handle.partition(".")
    return Invocation(
        tool=ToolId(server, name),
        spelled=handle,
        caller="agent",
        surface="bench",
        outcome=Outcome.DONE,
        seconds=0.01 * random.random(),
        at=time.time(),
        tokens_in=50,
        tokens_out=200,
    )


def _print(added: dict[str, float], sustained: dict[str, dict[str, float]]) -> None:
    print("| journal | CPU us of a call |\n|---|---|")
    for title, key in (("none", "none_us"), ("in memory", "memory_us"), ("stored in SQLite", "stored_us")):
        print(f"| {title} | {added[key]:.1f} |")
    print(f"\nThe stored one adds {added['added_us']:.1f} us to a call without any,", end=" ")
    print(f"{added['more_than_memory_us']:.1f} us (x {added['ratio_to_memory']:.2f}) to one with the one in memory.\n")
    print("| store | calls/s | recorded | stored | dropped | added CPU us | longest record, ms |")
    print("|---|---|---|---|---|---|---|")
    for name, one in sustained.items():
        cells = [f"{one[key]:,}" for key in ("rate", "recorded", "stored", "dropped", "added_us", "longest_record_ms")]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main())
