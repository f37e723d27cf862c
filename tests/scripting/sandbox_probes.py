"""A program that holds itself in as a worker does, and then tries to get out; prints what succeeded, as JSON.

With `open` as its third argument it does not hold itself in, and tries each probe in a process of its own: a probe that
gets nowhere even then shows nothing.
"""

from __future__ import annotations

import _thread
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from portico.scripting.hardening import address_space, die_with, enclose, seal

libc = ctypes.CDLL(None, use_errno=True)


def called(name: str, *arguments: int) -> bool:
    """Whether a function of the C library succeeded."""
    return getattr(libc, name)(*(ctypes.c_ulong(value) for value in arguments)) != -1


def mapped_to_execute() -> bool:
    """Whether memory that can be executed was given."""
    libc.mmap.restype = ctypes.c_void_p
    found = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
    return found not in (None, ctypes.c_void_p(-1).value)


def turned_to_execute() -> bool:
    """Whether memory could be made executable later."""
    libc.mmap.restype = ctypes.c_void_p
    found = libc.mmap(None, ctypes.c_size_t(4096), 3, 0x22, -1, ctypes.c_long(0))
    return found is not None and libc.mprotect(ctypes.c_void_p(found), ctypes.c_size_t(4096), 5) == 0


def forked() -> bool:
    """Whether another process could be made."""
    if os.fork() == 0:
        os._exit(0)
    return True


def mounted(folder: Path) -> bool:
    """Whether a file system could be mounted."""
    is_mounted = bool(libc.mount(b"none", bytes(folder), b"tmpfs", 0, None) == 0)
    if is_mounted:
        libc.umount2(bytes(folder), 2)  # MNT_DETACH: the probe leaves nothing behind
    return is_mounted


def filtered_anew() -> bool:
    """Whether another filter for system calls could be set, which allows everything."""
    step = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("=HxxxxxxQ", 1, ctypes.addressof(step)))
    called("prctl", 38, 1, 0, 0, 0)
    return called("prctl", 22, 2, ctypes.addressof(program), 0, 0)


def probes(folder: Path, port: int, parent: int) -> dict[str, Callable[[], object]]:
    """Every attempt by its name; one that returns something true has succeeded."""
    ready_made = socket.socket()
    return {
        "open for reading": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "open its own program": lambda: os.open(sys.executable, os.O_RDONLY),
        "open for writing": lambda: os.open(folder / "new", os.O_WRONLY | os.O_CREAT),
        "unlink": lambda: os.unlink(folder / "spare") or True,
        "rename": lambda: os.rename(folder / "there", folder / "moved") or True,
        "mkdir": lambda: os.mkdir(folder / "made") or True,
        "chmod": lambda: os.chmod(folder, 0o700) or True,
        "stat": lambda: os.stat("/etc/passwd"),
        "list": lambda: os.listdir("/"),
        "chdir": lambda: os.chdir("/tmp") or True,
        "socket": lambda: socket.socket(),
        "unix socket": lambda: socket.socket(socket.AF_UNIX),
        "connect": lambda: ready_made.connect(("127.0.0.1", port)) or True,
        "socketpair": lambda: socket.socketpair(),
        "pipe": lambda: os.pipe(),
        "dup": lambda: os.dup(1) + 1,
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "fork": forked,
        "kill the parent": lambda: os.kill(parent, signal.SIGCONT) or True,
        "kill itself softly": lambda: os.kill(os.getpid(), signal.SIGUSR2) or True,
        "ptrace": lambda: called("ptrace", 16, parent, 0, 0),
        "map memory to execute": mapped_to_execute,
        "turn memory to execute": turned_to_execute,
        "setuid": lambda: called("setuid", 1),
        "prctl: dumpable again": lambda: called("prctl", 4, 1, 0, 0, 0),
        "prctl: no death signal": lambda: called("prctl", 1, 0, 0, 0, 0),
        "prctl: another filter": filtered_anew,
        "unshare": lambda: called("unshare", 0x10000000),
        "mount": lambda: mounted(folder),
        "read another process": lambda: called("process_vm_readv", parent, 0, 0, 0, 0, 0),
        "more CPU time": lambda: signal.setitimer(signal.ITIMER_PROF, 0) or True,
        "more memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or True,
        "a priority": lambda: os.nice(-1) + 20,
        "an anonymous file": lambda: os.memfd_create("x"),
        "a thread": lambda: _thread.start_new_thread(print, ()),
        "an event queue": lambda: select.epoll(),
        "a look at the network": lambda: ready_made.getsockname(),
    }


def succeeds(attempt: Callable[[], object]) -> bool:
    """Whether an attempt gets what it wants."""
    try:
        return bool(attempt())
    except (OSError, ValueError, RuntimeError):
        return False


def held_in(attempts: dict[str, Callable[[], object]]) -> list[str]:
    """What succeeds in a process like a worker, or is missing here."""
    if not die_with(os.getppid()):
        return ["the death signal"]
    space = address_space()
    missing = [*enclose(), *seal(10.0, 1 << 26, space)]
    return missing + [name for name, attempt in attempts.items() if succeeds(attempt)]


def unheld(attempts: dict[str, Callable[[], object]]) -> list[str]:
    """What succeeds in processes that nothing holds in, one for each attempt."""
    found = []
    for name, attempt in attempts.items():
        pid = os.fork()
        if pid == 0:
            os._exit(not succeeds(attempt))
        status = os.waitpid(pid, 0)[1]
        if status in (0, signal.SIGUSR2):
            found.append(name)
    return found


def main() -> None:
    """Try everything, once held in or as it is."""
    folder, port, is_open = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["open"]
    other = os.getppid()
    if is_open and (other := os.fork()) == 0:  # some probes would harm it
        signal.pause()
    attempts = probes(folder, port, other)
    succeeded = unheld(attempts) if is_open else held_in(attempts)
    if is_open:
        os.kill(other, signal.SIGKILL)
    os.write(1, json.dumps({"succeeded": succeeded, "tried": list(attempts)}).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
