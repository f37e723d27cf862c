"""Runs one program without a shell: bounded in time and output, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import anyio

from portico.providers.upstream.process_tree import ProcessTree
from portico.providers.upstream.spawning import spawn

OUTPUT_LIMIT = 1_000_000
"""Bytes of output that are kept; what comes after them is read and thrown away."""
ERRORS_KEPT = 4_096
LAST_WORDS = 0.5
"""Seconds for output that is still in the pipes when the program has ended."""
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended and what it wrote."""

    code: int | None
    """The exit code; None when its time was up."""
    output: bytes
    written: int
    """Bytes of output in all."""
    errors: bytes
    """The end of what it wrote to stderr."""


class _Program(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.output, self.errors, self.written = bytearray(), b"", 0
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.written += len(data)
            self.output += data[: max(0, OUTPUT_LIMIT - len(self.output))]
        else:
            self.errors = (self.errors + data)[-ERRORS_KEPT:]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def run_program(
    argv: Sequence[str], *, environment: Mapping[str, str], folder: str | None, seconds: float
) -> Ended:
    """Start a program, wait for its end, and end everything it has started.

    Raises:
        OSError: it cannot be started.
    """
    program = _Program()
    # Shielded: a start that is broken off half-way would leave a process that nobody owns.
    with anyio.CancelScope(shield=True):
        transport = await spawn(program, argv, env=environment, cwd=folder, has_input=False)
    is_done = False
    try:
        with anyio.move_on_after(seconds):
            await program.exited.wait()
            is_done = True
            with anyio.move_on_after(LAST_WORDS):  # a process that it left in the background may hold the pipes
                await program.closed.wait()
    finally:
        await _end(transport, program)
    return Ended(
        code=transport.get_returncode() if is_done else None,
        output=bytes(program.output),
        written=program.written,
        errors=program.errors,
    )


async def _end(transport: asyncio.SubprocessTransport, program: _Program) -> None:
    """Kill what still runs, close the pipes and let the child be reaped."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(END_SECONDS):
        tree = ProcessTree(transport.get_pid())
        if not program.exited.is_set():
            tree.remember()
        if tree.is_alive():
            tree.send(signal.SIGKILL)
        await program.exited.wait()
        transport.close()
        await program.closed.wait()
