"""A process that writes to a journal until it is killed: `python tests/chaos/child.py MODE STORE FOLDER`.

It prints a line for each entry: a durable one once the journal says that it is stored, a batched one once it is
recorded, with the time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from itertools import count
from pathlib import Path

from portico.domain.call import Invocation, Outcome
from portico.domain.tool import ToolId
from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.storage import open_database

AT_ONCE = 8
"""Calls that wait for the store together."""
HANDFUL, TICK = 25, 0.005
"""5,000 entries a second."""


def main() -> None:
    """Write until the end."""
    mode, store, folder = sys.argv[1:]
    database = open_database(store, Path(folder), durable=mode == "durable")
    journal = StoredJournal(Ledger(database), folder=Path(folder) / "writers", durable=mode == "durable")
    asyncio.run(_durable(journal) if mode == "durable" else _batched(journal))


async def _durable(journal: StoredJournal) -> None:
    numbers = count()

    async def call() -> None:
        for number in numbers:
            journal.record(_invocation(number))
            if not await journal.written():
                _say(str(number))

    await asyncio.gather(*(call() for _ in range(AT_ONCE)))


async def _batched(journal: StoredJournal) -> None:
    start = time.monotonic()
    for number in count():
        journal.record(_invocation(number))
        _say(f"{number} {time.time()}")
        if number % HANDFUL == 0:
            await asyncio.sleep(max(0.0, start + number // HANDFUL * TICK - time.monotonic()))


def _invocation(number: int) -> Invocation:
    tool = ToolId("chaos", f"t{number % 7}")
    return Invocation(
        tool=tool, spelled=str(number), caller="c", surface="s", outcome=Outcome.DONE, seconds=0.01, at=time.time()
    )


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # without a buffer, which a kill would take along


if __name__ == "__main__":
    main()
