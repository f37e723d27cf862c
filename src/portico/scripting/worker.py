"""The process of one script: it closes every door behind itself, makes a Lua state, and moves bytes for it.

There is no logic here, and no way from Lua to a Python object: the state is given two functions, which only the
prelude ever holds.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from .framing import ALLOWANCE, read_exactly, read_frame, write_frame
from .hardening import address_space, die_with, enclose, seal

WIRE = 0
"""The one descriptor that a worker has."""
MOST_DESCRIPTORS = 256
"""The nursery never has more."""
OUT_OF_MEMORY = b'{"kind":"error","line":0,"limit":"memory_mb","printed_cut":0,"reason":"not enough memory"}'
_ROOM = 1 << 20
"""Bytes of the Lua heap that must be left when an answer is handed to it."""

_BEFORE_A_SCRIPT = 1 << 26

_sources = {name: Path(__file__).with_name(f"{name}.lua").read_bytes() for name in ("codec", "calls", "prelude")}


def load_lua() -> Any:
    """The module that makes Lua states; the nursery loads it once, so that workers have it from birth."""
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
