"""`portico serve` with a sampler in its event loop: `python child.py SAMPLES serve ...`.

Between two beats of the loop, 5 ms apart, three clocks are read: the wall, the CPU time of the loop's thread and that
of the process. A gap of more than 10 ms becomes a line of the samples file.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import uvicorn

from portico.__main__ import main

BEAT = 0.005
WORTH_TELLING = 0.010


async def sample(file: Path) -> None:
    """Write down every gap between two beats, until the loop ends."""
    with file.open("a", buffering=1) as samples:
        samples.write("begun\n")
        wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        while True:
            await asyncio.sleep(BEAT)
            now = time.perf_counter(), time.thread_time(), time.process_time()
            gap = now[0] - wall - BEAT
            if gap > WORTH_TELLING:
                samples.write(f"{gap:.4f} {now[1] - thread:.4f} {now[2] - process:.4f}\n")
            wall, thread, process = now


def serve_sampled(file: Path) -> None:
    """Run the command of this process, with a sampler beside its web server."""
    plain = uvicorn.Server.startup
    kept: list[asyncio.Task[None]] = []

    async def startup(self: uvicorn.Server, *args: Any, **options: Any) -> None:
        kept.append(asyncio.get_running_loop().create_task(sample(file)))
        await plain(self, *args, **options)

    uvicorn.Server.startup = startup  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    samples_file = Path(sys.argv.pop(1))
    sys.argv[0] = "portico"
    serve_sampled(samples_file)
