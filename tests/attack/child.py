"""`portico serve` with a sampler in its event loop: `python child.py SAMPLES serve ...`.

Between two beats of the loop, 5 ms apart, three clocks are read: the wall, the CPU time of the loop's thread and that
of the process. A gap of more than 10 ms becomes a line of the samples file, with the place at which a second thread saw
the loop's thread at work meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import uvicorn

from portico.__main__ import main

BEAT = 0.005
WORTH_TELLING = 0.010
SUSPICIOUS = 0.040
FRAMES = 8


class Sampler:
    """Measures one event loop from inside, and looks over its shoulder."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._beat = time.perf_counter()
        self._seen = ""

    async def sample(self) -> None:
        """Write down every gap between two beats, until the loop ends."""
        threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()
        with self._file.open("a", buffering=1) as samples:
            samples.write("begun\n")
            wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
            while True:
                await asyncio.sleep(BEAT)
                now = time.perf_counter(), time.thread_time(), time.process_time()
                gap, seen = now[0] - wall - BEAT, self._seen
                self._beat, self._seen = now[0], ""
                if gap > WORTH_TELLING:
                    samples.write(f"{gap:.4f} {now[1] - thread:.4f} {now[2] - process:.4f} {seen}\n")
                wall, thread, process = now

    def _look(self, loop: int) -> None:
        """Remember where the loop's thread is, when it has not come back for a while."""
        while True:
            time.sleep(BEAT)
            if not self._seen and time.perf_counter() - self._beat > SUSPICIOUS:
                frame = sys._current_frames().get(loop)
                places = traceback.extract_stack(frame)[-FRAMES:]
                self._seen = " > ".join(f"{Path(one.filename).stem}:{one.lineno}:{one.name}" for one in places)


def serve_sampled(file: Path) -> None:
    """Run the command of this process, with a sampler beside its web server."""
    plain = uvicorn.Server.startup
    kept: list[asyncio.Task[None]] = []

    async def startup(self: uvicorn.Server, *args: Any, **options: Any) -> None:
        kept.append(asyncio.get_running_loop().create_task(Sampler(file).sample()))
        await plain(self, *args, **options)

    uvicorn.Server.startup = startup  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    samples_file = Path(sys.argv.pop(1))
    sys.argv[0] = "portico"
    serve_sampled(samples_file)
