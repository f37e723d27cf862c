"""Confinement of a worker process: resource limits, dropped privileges, Landlock and a seccomp filter."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Mapping
from errno import EPERM
from math import ceil

ARCHITECTURES: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's numbers of the machines whose system calls we know."""

_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "exit_group": (231, 94),
}
"""System calls that are allowed, with their numbers on each of these machines in turn."""
_NOT_EXECUTABLE = {"mmap": (9, 222), "mprotect": (10, 226)}
"""Allowed while they do not ask for memory that can be executed."""

_LOAD, _JUMP_EQUAL, _JUMP_LEAST, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _THIRD_ARGUMENT = 0, 4, 32
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | EPERM
_X32, _PROT_EXEC = 0x40000000, 4


def program(machine: str) -> bytes:
    """The filter for a machine: everything that is not allowed fails with EPERM.

    A call in the numbers of another architecture, the 32-bit ones of x86_64 among them, ends the process.

    Raises:
        ValueError: we do not know the machine's system calls.
    """
    column = list(ARCHITECTURES).index(machine)
    body: list[bytes] = []
    for number in (numbers[column] for numbers in _ALLOWED.values()):
        if number is not None:
            body += [_step(_JUMP_EQUAL, 0, 1, number), _step(_RETURN, 0, 0, _ALLOW)]
    for number in (numbers[column] for numbers in _NOT_EXECUTABLE.values()):
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


_NO_NEW_PRIVS, _SET_DUMPABLE, _DEATH_SIGNAL, _SET_SECCOMP, _FILTER = 38, 4, 1, 22, 2
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_SLACK = 48 << 20  # bytes of address space that the interpreter needs beside a script's own memory

NO_PRIVILEGES = "the promise to gain no privileges (no_new_privs)"
NO_LANDLOCK = "rules that close files and network to the worker (Landlock)"
NO_SECCOMP = "a filter for system calls (seccomp)"
NO_DEATH_SIGNAL = "the end of workers with their parent (PR_SET_PDEATHSIG)"
NO_SPACE = "a limit of the address space (it needs /proc)"
NO_RLIMITS = "limits of the process (rlimits)"

_is_linux = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)
_filter = program(platform.machine()) if platform.machine() in ARCHITECTURES else b""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def die_with(parent: int) -> bool:
    """Let the kernel end this process when its parent ends; says whether it will."""
    if not _is_linux or _prctl(_DEATH_SIGNAL, signal.SIGKILL) != 0:
        return False
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)
    return True


def enclose() -> list[str]:
    """Give up what no script needs: privileges, files, network, being looked at; says what could not be given up."""
    has_no_privileges = _is_linux and _prctl(_NO_NEW_PRIVS, 1) == 0 and _prctl(_SET_DUMPABLE, 0) == 0
    steps = {
        NO_PRIVILEGES: has_no_privileges,
        NO_LANDLOCK: _close_files_and_network(),
        NO_RLIMITS: _limit_process(),
    }
    return [missing for missing, is_done in steps.items() if not is_done]


def address_space() -> int:
    """Bytes that this process has mapped, 0 where nobody can tell; must be asked before files are closed to it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # another system, or a place without /proc
        return 0


def seal(cpu_seconds: float, memory: int, space: int) -> list[str]:
    """Set the clock and the memory of one script, then give up all other system calls; says what could not be."""
    _lower(resource.RLIMIT_CPU, ceil(cpu_seconds) + 1, ceil(cpu_seconds) + 2)
    if space:
        _lower(resource.RLIMIT_AS, space + memory + _SLACK, space + memory + _SLACK)
    # The default action of its signal ends the process, whatever the script does meanwhile.
    signal.setitimer(signal.ITIMER_PROF, max(cpu_seconds, 0.001))  # nothing would mean no limit
    return [*([] if space else [NO_SPACE]), *([] if _filter_system_calls() else [NO_SECCOMP])]


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, unless the gateway has a lower one, which nobody may raise."""
    _, most = resource.getrlimit(kind)
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def _limit_process() -> bool:
    for name in ("FSIZE", "CORE", "NPROC", "NOFILE"):
        kind = getattr(resource, f"RLIMIT_{name}", None)
        if kind is None:
            return False
        resource.setrlimit(kind, (0, 0))
    return True


def _close_files_and_network() -> bool:
    """Forbid every access that this kernel's Landlock knows, and allow none."""
    if not _is_linux:
        return False
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if version < 1:
        return False
    files = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    rules = struct.pack("=QQQ", files, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rule_set = _libc.syscall(_LANDLOCK_CREATE, rules, size, 0)
    if rule_set < 0:
        return False
    is_done = _libc.syscall(_LANDLOCK_RESTRICT, rule_set, 0) == 0
    os.close(rule_set)
    return bool(is_done)


def _filter_system_calls() -> bool:
    if not _is_linux or not _filter:
        return False
    fprog = _Program(len(_filter) // 8, _filter)
    return bool(_prctl(_SET_SECCOMP, _FILTER, ctypes.byref(fprog)) == 0)


def _prctl(option: int, *values: object) -> int:
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    return int(_libc.prctl(option, *given, *[ctypes.c_ulong(0)] * (4 - len(given))))
