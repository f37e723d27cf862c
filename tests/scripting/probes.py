"""A program that holds itself in as a worker does, and then tries to get out; prints what succeeded, as JSON."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import socket
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


def probes(folder: Path, port: int, parent: int) -> dict[str, Callable[[], object]]:
    """Every attempt by its name; one that returns something true has succeeded."""
    ready_made = socket.socket()
    return {
        "open for reading": lambda: os.open("/etc/passwd", os.O_RDONLY),
        "open its own program": lambda: os.open(sys.executable, os.O_RDONLY),
        "open for writing": lambda: os.open(folder / "new", os.O_WRONLY | os.O_CREAT),
        "unlink": lambda: os.unlink(folder / "there") or True,
        "rename": lambda: os.rename(folder / "there", folder / "moved") or True,
        "mkdir": lambda: os.mkdir(folder / "made") or True,
        "chmod": lambda: os.chmod(folder / "there", 0o777) or True,
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
        "kill the parent": lambda: os.kill(parent, signal.SIGUSR1) or True,
        "kill itself softly": lambda: os.kill(os.getpid(), signal.SIGUSR2) or True,
        "ptrace": lambda: called("ptrace", 16, parent, 0, 0),
        "map memory to execute": mapped_to_execute,
        "turn memory to execute": turned_to_execute,
        "setuid": lambda: called("setuid", 1),
        "prctl: dumpable again": lambda: called("prctl", 4, 1, 0, 0, 0),
        "prctl: no death signal": lambda: called("prctl", 1, 0, 0, 0, 0),
        "prctl: another filter": lambda: called("prctl", 22, 0, 0, 0, 0),
        "unshare": lambda: called("unshare", 0x10000000),
        "mount": lambda: called("mount", 0, 0, 0, 0, 0),
        "read another process": lambda: called("process_vm_readv", parent, 0, 0, 0, 0, 0),
        "more CPU time": lambda: signal.setitimer(signal.ITIMER_PROF, 0) or True,
        "more memory": lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)) or True,
        "a priority": lambda: os.nice(-1) + 20,
        "an anonymous file": lambda: os.memfd_create("x"),
        "a map of a file": lambda: mmap.mmap(0, 4096, access=mmap.ACCESS_READ),
    }


def main() -> None:
    """Try everything, once held in."""
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    parent = os.getppid()
    attempts = probes(folder, port, parent)
    if not die_with(parent):
        print(json.dumps(["the death signal"]))
        return
    space = address_space()
    succeeded = [*enclose(), *seal(10.0, 1 << 26, space)]
    for name, attempt in attempts.items():
        try:
            if attempt():
                succeeded.append(name)
        except (OSError, ValueError):
            continue
    os.write(1, json.dumps({"succeeded": succeeded, "tried": len(attempts)}).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
