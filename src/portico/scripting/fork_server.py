"""The process that workers are forked from: it has loaded all they need."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Any

from .framing import BEAR, ORDER, REPORT, read_frame, write_frame
from .hardening import NO_DEATH_SIGNAL, address_space, die_with, enclose, seal
from .worker import load_lua, work

NEVER_BORN = 1 << 8
"""How a worker ended that could not be forked: as if it had exited with 1."""


def main() -> None:
    """Say what this machine lacks, then take orders until nobody gives any; they come over stdin, which is a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway decides when this ends
    _forget_signals()
    os.environ["TZ"] = "UTC0"  # scripts learn nothing of this place, and no file is opened for it later
    time.tzset()
    with socket.socket(fileno=0) as orders:
        try:
            lua = load_lua()
        except ImportError as error:
            write_frame(orders.fileno(), json.dumps({"missing": [], "problem": str(error)}).encode())
            return
        write_frame(orders.fileno(), json.dumps({"missing": _missing(), "problem": ""}).encode())
        gc.collect()
        gc.freeze()  # workers share these pages until one writes to them
        _take_orders(lua, orders)


def _forget_signals() -> None:
    """Undo what whoever started the gateway ignores or blocks: limits and the ends of workers depend on these."""
    for number in (signal.SIGCHLD, signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _take_orders(lua: Any, orders: socket.socket) -> None:
    workers: dict[int, int] = {}
    with suppress(ConnectionError):  # the gateway has gone in the middle of something
        while (order := socket.recv_fds(orders, ORDER.size, 1))[0]:
            letter, number = ORDER.unpack(order[0])
            if letter == BEAR:
                workers[number] = _bear(lua, order[1][0])
            else:
                ended = _end(workers.pop(number, 0))
                orders.sendall(REPORT.pack(number, ended))
    for pid in workers.values():
        _end(pid)


def _bear(lua: Any, wire: int) -> int:
    """Fork a worker; 0 when this machine has no room for one, which it learns from the end of its wire."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = 0
    else:
        if pid == 0:
            work(lua, wire, parent)
    os.close(wire)
    return pid


def _end(pid: int) -> int:
    """End a worker that may have ended already, and say how it did."""
    if not pid:
        return NEVER_BORN
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _missing() -> list[str]:
    """Try every protection once, in a process of its own."""
    reading, writing = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            dies = die_with(parent)
            space = address_space()
            missing = [*([] if dies else [NO_DEATH_SIGNAL]), *enclose(), *seal(5.0, 1 << 26, space)]
            write_frame(writing, json.dumps(missing).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        found: list[str] = json.loads(read_frame(reading))
    except EOFError:
        found = ["protections as a whole: the trial of them did not end well"]
    finally:
        os.close(reading)
        os.waitpid(pid, 0)
    return found


if __name__ == "__main__":
    main()
