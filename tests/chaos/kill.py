"""Kills processes that write to the journal, and counts what is left: `python tests/chaos/kill.py [--rounds N]`.

In each round a process writes at full load, is killed at a random moment, and its database is opened. Durable: what it
was told to be stored is there. Batched: only the last 200 ms may be missing. Both: nothing is there twice, usage agrees
with the entries, the database is sound, and the next start counts exactly what was lost. Prints a table; exits with 1
when anything of this does not hold.
"""

from __future__ import annotations

import argparse
import logging
import random
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.storage import open_database
from tests.databases import Postgres, postgres_server

CHILD = Path(__file__).with_name("child.py")
MODES = ("durable", "batched")
WINDOW = 0.2
"""Seconds before a kill of which a batched journal may lose everything."""
START_SECONDS = 30.0


class Wrong(Exception):
    """Something that the journal promises did not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What was found after a kill."""

    recorded: int
    said: int
    stored: int
    lost: int
    window_ms: float = 0.0
    """How long before the kill the oldest missing entry was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    lines: list[str]
    killed_at: float

    @property
    def times(self) -> dict[int, float]:
        """When each entry was recorded, as far as the process said so."""
        whole = (line.split() for line in self.lines)
        return {int(parts[0]): float(parts[1]) if parts[1:] else 0.0 for parts in whole}


def kill_once(mode: str, store: str, folder: Path, moments: random.Random) -> Remains:
    """One round: write, kill, open, compare.

    Raises:
        Wrong: a promise is broken, and which.
    """
    said = _killed(mode, store, folder, moments)
    (file,) = (folder / "writers").iterdir()
    _, recorded = struct.unpack("=8sQ", file.read_bytes())
    database = open_database(store, folder)
    try:
        database.check()
        stored = [int(spelled) for (spelled,) in database.rows("SELECT spelled FROM invocations")]
        ledger = Ledger(database)
        _compare(mode, recorded, set(said.times), stored)
        _expect(sum(use.calls for use in ledger.usage().values()) == len(stored), "usage is not that of the entries")
        lost = _restarted(ledger, folder)
        _expect(lost == recorded - len(stored), f"{recorded - len(stored)} were lost, and {lost} counted")
    finally:
        database.close()
    missing = [at for number, at in said.times.items() if number >= len(stored) and at]
    window = 1_000 * (said.killed_at - min(missing)) if missing else 0.0
    return Remains(recorded=recorded, said=len(said.lines), stored=len(stored), lost=lost, window_ms=window)


def _compare(mode: str, recorded: int, said: set[int], stored: list[int]) -> None:
    _expect(len(set(stored)) == len(stored), "something is stored twice")
    _expect(len(stored) <= recorded, f"{len(stored)} are stored of {recorded} that were recorded")
    _expect(set(stored) == set(range(len(stored))), "there is a hole in what is stored")
    if mode == "durable":
        _expect(said <= set(stored), f"{sorted(said - set(stored))[:5]} are not stored, and were said to be")
    else:
        _expect(recorded - 1 <= len(said) <= recorded, f"{recorded} were counted, {len(said)} were recorded")


def _killed(mode: str, store: str, folder: Path, moments: random.Random) -> _Said:
    child = subprocess.Popen(
        [sys.executable, str(CHILD), mode, store, str(folder)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    lines: list[str] = []
    begun = threading.Event()

    def listen() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            if line.endswith("\n"):
                lines.append(line)
            begun.set()

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        is_begun = begun.wait(START_SECONDS)
        time.sleep(moments.uniform(0.0, 0.6))
    finally:
        child.kill()
        killed_at = time.time()
        code = child.wait()
        listener.join()
        assert child.stdout is not None
        child.stdout.close()
    _expect(is_begun and code < 0, f"the process ended on its own, with {code}")
    return _Said(lines=lines, killed_at=killed_at)


def _restarted(ledger: Ledger, folder: Path) -> int:
    """What the next process finds lost."""
    journal = StoredJournal(ledger, folder=folder / "writers")
    journal.start()
    journal.close()
    _expect(not any((folder / "writers").iterdir()), "a counter was left behind")
    return ledger.report(days=1, limit=1).losses.lost


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


@contextmanager
def _places(postgres: Postgres | None) -> Iterator[tuple[str, Path]]:
    """A new database and a folder of its own."""
    with TemporaryDirectory() as folder:
        store = postgres.fresh() if postgres else "sqlite"
        try:
            yield store, Path(folder)
        finally:
            if postgres:
                postgres.drop(store)


def main() -> int:
    """Run the rounds and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each kind")
    parser.add_argument("--only", choices=("sqlite", "postgresql"), help="one store only")
    parser.add_argument("--seed", type=int, default=0, help="of the moments at which processes are killed")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    logging.disable()  # each round has the same news of a process that ended without notice
    failures = 0
    print("| store | mode | rounds | recorded | stored | lost | longest window, ms | failed |")
    print("|---|---|---|---|---|---|---|---|")
    with ExitStack() as closing:
        servers: dict[str, Postgres | None] = {}
        if options.only != "postgresql":
            servers["sqlite"] = None
        if options.only != "sqlite":
            servers["postgresql"] = closing.enter_context(postgres_server())
        for name, server in servers.items():
            for mode in MODES:
                failures += _rounds(name, mode, server, options.rounds, moments)
    return 1 if failures else 0


def _rounds(name: str, mode: str, server: Postgres | None, rounds: int, moments: random.Random) -> int:
    found: list[Remains] = []
    wrong: list[str] = []
    for number in range(rounds):
        try:
            with _places(server) as (store, folder):
                remains = kill_once(mode, store, folder, moments)
            found.append(remains)
            _expect(mode == "durable" or remains.window_ms <= 1_000 * WINDOW, f"{remains.window_ms:.0f} ms were lost")
        except Wrong as error:
            wrong.append(f"{name}, {mode}, round {number}: {error}")
    recorded, stored, lost = (sum(getattr(one, key) for one in found) for key in ("recorded", "stored", "lost"))
    window = max((one.window_ms for one in found), default=0.0)
    shown = f"{window:.0f}" if mode == "batched" else ""
    print(f"| {name} | {mode} | {rounds} | {recorded:,} | {stored:,} | {lost:,} | {shown} | {len(wrong)} |", flush=True)
    for line in wrong:
        print(line, file=sys.stderr)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
