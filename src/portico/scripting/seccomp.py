"""The system calls that a worker may make, as a filter program for the Linux kernel."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from errno import EPERM

ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's numbers of the machines whose system calls we know."""

_ALLOWED: Mapping[str, Mapping[str, int]] = {
    "x86_64": {
        "read": 0,
        "write": 1,
        "close": 3,
        "munmap": 11,
        "brk": 12,
        "rt_sigreturn": 15,
        "sched_yield": 24,
        "mremap": 25,
        "madvise": 28,
        "restart_syscall": 219,
        "exit": 60,
        "gettimeofday": 96,
        "time": 201,
        "futex": 202,
        "clock_gettime": 228,
        "clock_getres": 229,
        "exit_group": 231,
    },
    "aarch64": {
        "read": 63,
        "write": 64,
        "close": 57,
        "exit": 93,
        "exit_group": 94,
        "futex": 98,
        "clock_gettime": 113,
        "clock_getres": 114,
        "sched_yield": 124,
        "restart_syscall": 128,
        "rt_sigreturn": 139,
        "gettimeofday": 169,
        "brk": 214,
        "munmap": 215,
        "mremap": 216,
        "madvise": 233,
    },
}
_NOT_EXECUTABLE: Mapping[str, Mapping[str, int]] = {
    "x86_64": {"mmap": 9, "mprotect": 10},
    "aarch64": {"mmap": 222, "mprotect": 226},
}
"""Allowed while they do not ask for memory that can be executed."""

_LOAD, _JUMP_EQUAL, _JUMP_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | EPERM
_X32, _PROT_EXEC = 0x40000000, 4


def program(machine: str) -> bytes:
    """The filter for a machine: everything that is not allowed fails with EPERM.

    A call in the numbers of another architecture, the 32-bit ones of x86_64 among them, ends the process.

    Raises:
        KeyError: we do not know the machine's system calls.
    """
    body: list[bytes] = []
    for number in _ALLOWED[machine].values():
        body += [_step(_JUMP_EQUAL, 0, 1, number), _step(_RETURN, 0, 0, _ALLOW)]
    for number in _NOT_EXECUTABLE[machine].values():
        body += [
            _step(_JUMP_EQUAL, 0, 4, number),
            _step(_LOAD, 0, 0, _THIRD_ARGUMENT),
            _step(_JUMP_BITS, 0, 1, _PROT_EXEC),
            _step(_RETURN, 0, 0, _REFUSE),
            _step(_RETURN, 0, 0, _ALLOW),
        ]
    head = [
        _step(_LOAD, 0, 0, _ARCHITECTURE),
        _step(_JUMP_EQUAL, 1, 0, ARCHITECTURES[machine]),
        _step(_RETURN, 0, 0, _KILL),
        _step(_LOAD, 0, 0, _NUMBER),
        _step(_JUMP_LEAST, 0, 1, _X32),
        _step(_RETURN, 0, 0, _KILL),
    ]
    return b"".join([*head, *body, _step(_RETURN, 0, 0, _REFUSE)])


def _step(code: int, if_true: int, if_false: int, value: int) -> bytes:
    """One instruction, as `struct sock_filter` has it."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
