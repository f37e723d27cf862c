"""The process that workers are forked from, and the worker process itself."""

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

from .hardening import NO_DEATH_SIGNAL, address_space, die_with, enclose, seal
from .protocol import ALLOWANCE, FORK, ORDER, REPORT, read_exactly, read_frame, write_frame

GATEWAY = 0  # the one descriptor that a worker has: its connection to the gateway
MOST_DESCRIPTORS = 256  # the fork server never has more
OUT_OF_MEMORY = b'{"kind":"error","line":0,"limit":"memory_mb","printed_cut":0,"reason":"not enough memory"}'
HEAP_RESERVE = 1 << 20  # bytes of the Lua heap that must be left when an answer is handed to it
HEAP_BEFORE_SCRIPT = 1 << 26
FORK_FAILED = 1 << 8  # the status of a worker that could not be forked: as if it had exited with 1

_sources = {name: Path(__file__).with_name(f"{name}.lua").read_bytes() for name in ("codec", "calls", "prelude")}


def main() -> None:
    """Say what this machine lacks, then take orders until nobody gives any; they come over stdin, which is a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the gateway decides when this ends
    # Undo what whoever started the gateway ignores or blocks: limits and the ends of workers depend on these.
    for number in (signal.SIGCHLD, signal.SIGPROF, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ["TZ"] = "UTC0"  # scripts learn nothing of this place, and no file is opened for it later
    time.tzset()
    with socket.socket(fileno=0) as orders:
        try:
            # Loaded by name: the gateway imports this package, and must not load Lua. Workers have it from the start.
            lua = import_module("lupa.lua54")
        except ImportError as error:
            write_frame(orders.fileno(), json.dumps({"missing": [], "problem": str(error)}).encode())
            return
        write_frame(orders.fileno(), json.dumps({"missing": _missing(), "problem": ""}).encode())
        gc.collect()
        gc.freeze()  # workers share these pages until one writes to them
        _take_orders(lua, orders)


def _take_orders(lua: Any, orders: socket.socket) -> None:
    workers: dict[int, int] = {}
    with suppress(ConnectionError):  # the gateway has gone in the middle of something
        while (order := socket.recv_fds(orders, ORDER.size, 1))[0]:
            letter, number = ORDER.unpack(order[0])
            if letter == FORK:
                workers[number] = _fork(lua, order[1][0])
            else:
                write_frame(orders.fileno(), REPORT.pack(number, _end(workers.pop(number, 0))))
    for pid in workers.values():
        _end(pid)


def _fork(lua: Any, connection: int) -> int:
    """Fork a worker; 0 when this machine has no room for one, which the gateway learns from the end of its stream."""
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = 0
    else:
        if pid == 0:
            _work(lua, connection, parent)
    os.close(connection)
    return pid


def _end(pid: int) -> int:
    """End a worker that may have ended already; returns its status."""
    if not pid:
        return FORK_FAILED
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _missing() -> list[str]:
    """Try every protection once, in a process of its own; returns those that this machine does not give."""
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


def _work(lua: Any, connection: int, parent: int) -> NoReturn:
    """Be a worker from start to end."""
    try:
        os.dup2(connection, GATEWAY)
        os.closerange(GATEWAY + 1, MOST_DESCRIPTORS)
        die_with(parent)
        space = address_space()
        enclose()
        _run_script(lua, space)
    finally:
        os._exit(0)  # whatever happened, nothing of the fork server may run on in here


def _run_script(lua: Any, space: int) -> None:
    state = lua.LuaRuntime(
        encoding=None,
        register_eval=False,
        register_builtins=False,
        attribute_filter=_deny,
        max_memory=HEAP_BEFORE_SCRIPT,
    )
    codec, calls, prelude = (state.compile(_sources[name], name=b"=portico") for name in ("codec", "calls", "prelude"))
    run = prelude(_send, lambda: _receive(state), codec, calls)
    _send(b'{"kind":"ready"}')
    cpu_seconds, memory = ALLOWANCE.unpack(read_exactly(GATEWAY, ALLOWANCE.size))
    state.set_max_memory(max(memory, 1))  # 0 would mean no limit
    seal(cpu_seconds, memory, space)
    try:
        run()
    # The prelude catches what scripts raise; what passes it had no memory left to be told.
    except (lua.LuaError, MemoryError):
        _send(OUT_OF_MEMORY)
    _wait_for_close()


def _wait_for_close() -> None:
    """Wait until the gateway has read the last frame: it could not read it once a write of its own had failed."""
    while os.read(GATEWAY, 1 << 16):
        pass


def _deny(*_: object) -> NoReturn:
    raise AttributeError("there is nothing here")


def _send(frame: bytes) -> None:
    try:
        write_frame(GATEWAY, frame)
    except BaseException:  # noqa: BLE001  an exception would be handed to the script as an object
        os._exit(1)


def _receive(state: Any) -> bytes:
    try:
        frame = read_frame(GATEWAY)
        most = state.get_max_memory() - len(frame) - HEAP_RESERVE
        if state.get_memory_used() > most:
            state.gccollect()
        # Lua would leave this function by a jump if its heap had no room, and Python would never know.
        if state.get_memory_used() > most:
            raise MemoryError
        return frame
    except MemoryError:
        write_frame(GATEWAY, OUT_OF_MEMORY)
        _wait_for_close()
        os._exit(0)
    except BaseException:  # noqa: BLE001
        os._exit(1)


if __name__ == "__main__":
    main()
