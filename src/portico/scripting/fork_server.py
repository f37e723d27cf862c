"""The process that workers are forked from, and the worker itself."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from .framing import ALLOWANCE, FORK, ORDER, REPORT, read_exactly, read_frame, write_frame
from .hardening import NO_DEATH_SIGNAL, address_space, die_with, enclose, seal

WIRE = 0
"""The one descriptor that a worker has."""
MOST_DESCRIPTORS = 256
"""The fork server never has more."""
OUT_OF_MEMORY = b'{"kind":"error","line":0,"limit":"memory_mb","printed_cut":0,"reason":"not enough memory"}'
_ROOM = 1 << 20
"""Bytes of the Lua heap that must be left when an answer is handed to it."""

_BEFORE_A_SCRIPT = 1 << 26

_sources = {name: Path(__file__).with_name(f"{name}.lua").read_bytes() for name in ("codec", "calls", "prelude")}


def load_lua() -> Any:
    """The module that makes Lua states; the fork server loads it once, so that workers have it from birth."""
    # Loaded by name: the gateway imports this package, and must not load Lua.
    return import_module("lupa.lua54")


def work(lua: Any, wire: int, parent: int) -> NoReturn:
    """Be a worker from birth to end."""
    try:
        os.dup2(wire, WIRE)
        os.closerange(WIRE + 1, MOST_DESCRIPTORS)
        die_with(parent)
        space = address_space()
        enclose()
        _run(lua, space)
    finally:
        os._exit(0)  # whatever happened, nothing of the nursery's may run on in here


def _run(lua: Any, space: int) -> None:
    state = lua.LuaRuntime(
        encoding=None, register_eval=False, register_builtins=False, attribute_filter=_deny, max_memory=_BEFORE_A_SCRIPT
    )
    codec, calls, prelude = (state.compile(_sources[name], name=b"=portico") for name in ("codec", "calls", "prelude"))
    run = prelude(_say, lambda: _heard(state), codec, calls)
    _say(b'{"kind":"ready"}')
    cpu_seconds, memory = ALLOWANCE.unpack(read_exactly(WIRE, ALLOWANCE.size))
    state.set_max_memory(max(memory, 1))  # 0 would mean no limit
    seal(cpu_seconds, memory, space)
    try:
        run()
    except (
        lua.LuaError,
        MemoryError,
    ):  # the prelude catches what scripts raise; what passes it had no memory left to be told
        _say(OUT_OF_MEMORY)
    _stay()


def _stay() -> None:
    """Wait until the gateway has heard the last word: it could not hear it once a write of its own had failed."""
    while os.read(WIRE, 1 << 16):
        pass


def _deny(*_: object) -> NoReturn:
    raise AttributeError("there is nothing here")


def _say(frame: bytes) -> None:
    try:
        write_frame(WIRE, frame)
    except BaseException:  # noqa: BLE001  an exception would be handed to the script as an object
        os._exit(1)


def _heard(state: Any) -> bytes:
    try:
        frame = read_frame(WIRE)
        # Lua would leave this function by a jump if its heap had no room, and Python would never know.
        if not _has_room(state, len(frame)):
            raise MemoryError
        return frame
    except MemoryError:
        write_frame(WIRE, OUT_OF_MEMORY)
        _stay()
        os._exit(0)
    except BaseException:  # noqa: BLE001
        os._exit(1)


def _has_room(state: Any, size: int) -> bool:
    most = state.get_max_memory() - size - _ROOM
    if state.get_memory_used() > most:
        state.gccollect()
    return bool(state.get_memory_used() <= most)


FORK_FAILED = 1 << 8
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
            if letter == FORK:
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
        return FORK_FAILED
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
