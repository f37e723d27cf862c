"""What goes over the wires between gateway, nursery and workers, and the end of them that blocks."""

from __future__ import annotations

import os
import struct

HEADER = 4
"""Bytes of length before the body of a frame."""
ORDER = struct.Struct("!cI")
"""What the gateway asks of the nursery: a letter and the number of a worker."""
BEAR, END = b"B", b"E"
REPORT = struct.Struct("!Ii")
"""What the nursery tells: the number of a worker that has ended, and how, as `wait` has it."""
ALLOWANCE = struct.Struct("!dQ")
"""The first bytes that a worker reads: CPU seconds and bytes of memory, before there is a script."""


def packed(body: bytes) -> bytes:
    """A body with its length in front."""
    return len(body).to_bytes(HEADER, "big") + body


def write_frame(descriptor: int, body: bytes) -> None:
    """Write one frame; blocks."""
    left = memoryview(packed(body))
    while left:
        left = left[os.write(descriptor, left) :]


def read_frame(descriptor: int) -> bytes:
    """Read one frame; blocks.

    Raises:
        EOFError: the other side is gone.
    """
    return read_exactly(descriptor, int.from_bytes(read_exactly(descriptor, HEADER), "big"))


def read_exactly(descriptor: int, size: int) -> bytes:
    """Read so many bytes; blocks.

    Raises:
        EOFError: there were fewer.
    """
    parts = []
    while size:
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
