"""The process that starts servers and commands, and ends all of them when the gateway is gone."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections import namedtuple
from contextlib import suppress

REPORT = struct.Struct("=ii")
"""Two numbers to the gateway: a process id and 0, or 0 and an error; when the process has ended, its id and how."""
BY_ITSELF, AFTER_TERM, AT_MOST = 0.5, 1.0, 10.0
"""Seconds for what still runs when the gateway is gone: to end by itself, after SIGTERM, and until we give up."""
_DEATH_SIGNAL, _CHILD_SUBREAPER = 1, 36
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_RESTORED = (*_IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ)


def main() -> None:
    """Take orders over stdin, which is a socket, until the gateway, whose id is the argument, is gone."""
    for number in _IGNORED:  # the gateway decides when this ends
        signal.signal(number, signal.SIG_IGN)
    _prctl(_CHILD_SUBREAPER, 1)
    with socket.socket(fileno=0) as control:
        Supervisor(control, int(sys.argv[1])).run()


class Supervisor:
    """Starts what it is told to, and reports how each process ended."""

    def __init__(self, control: socket.socket, gateway: int) -> None:
        self._control, self._gateway = control, gateway
        self._channels: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Take orders until nobody gives any, then end everything."""
        woken, waking = os.pipe()
        os.set_blocking(waking, False)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._control, selectors.EVENT_READ, self._take_order)
        self._selector.register(woken, selectors.EVENT_READ, lambda: self._reap(os.read(woken, 4096)))
        self._watch_gateway()
        while all(key.data() for key, _ in self._selector.select()):
            pass
        self._end_all()

    def _watch_gateway(self) -> None:
        """Notice the end of the gateway although a process that it forked may still hold the other end."""
        if hasattr(os, "pidfd_open") and os.getppid() == self._gateway:
            with suppress(OSError):
                self._selector.register(os.pidfd_open(self._gateway), selectors.EVENT_READ, lambda: False)

    def _take_order(self) -> bool:
        """Start one process; false when the gateway is gone."""
        try:
            data, received, _, _ = socket.recv_fds(self._control, 1, 5, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        except ConnectionError:
            return False
        if not data:
            return False
        *pipes, order, channel = received
        with socket.socket(fileno=channel) as reports, open(order, "rb") as file:
            try:
                pid = start(file.read().split(b"\0"), pipes)
            except OSError as error:
                _report(reports, 0, error.errno or 1)
            else:
                self._channels[pid] = reports.dup()
                _report(reports, pid, 0)
        for descriptor in pipes:
            os.close(descriptor)
        return True

    def _reap(self, _: bytes = b"") -> bool:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                channel = self._channels.pop(found[0], None)
                if channel is not None:
                    with channel:
                        _report(channel, *found)
        return True

    def _end_all(self) -> None:
        """End what still runs: by itself, then by request, then by force."""
        until = time.monotonic() + AT_MOST
        if self._wait(BY_ITSELF) or (self._signal_all(signal.SIGTERM) and self._wait(AFTER_TERM)):
            return
        while time.monotonic() < until and self._signal_all(signal.SIGKILL) and not self._wait(0.02):
            pass

    def _wait(self, seconds: float) -> bool:
        """Whether nothing is left after so many seconds, or earlier."""
        until = time.monotonic() + seconds
        while True:
            self._reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.01)

    def _signal_all(self, number: int) -> bool:
        for pid in descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        for pid in self._channels:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, number)
        return True


def start(order: list[bytes], pipes: list[int]) -> int:
    """Start a program in a session of its own, with three descriptors and no more.

    An order is the folder, the user (its number, its group's and those of its other groups, with blanks between, or
    nothing), the number of arguments, the arguments and the variables of the environment.

    Raises:
        OSError: it cannot be started.
    """
    reading, writing = os.pipe()
    supervisor, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            _become(order, pipes, writing, supervisor)
        except OSError as error:
            os.write(writing, struct.pack("=i", error.errno or 1))
        finally:
            os._exit(127)
    os.close(writing)
    with open(reading, "rb") as failing:
        said = failing.read()
    if said:
        os.waitpid(pid, 0)
        raise OSError(*struct.unpack("=i", said), "cannot be started")
    return pid


def _become(order: list[bytes], pipes: list[int], writing: int, supervisor: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    folder, user, count, *words = order
    for wanted, descriptor in enumerate(pipes):
        os.dup2(descriptor, wanted)
    os.closerange(3, writing)
    os.closerange(writing + 1, 1 << 20)
    if user:
        own, group, *groups = map(int, user.split())
        os.setgroups(groups)
        os.setgid(group)
        os.setuid(own)
    # Should the supervisor itself be killed, at least its own children end with it. A change of user unsets it.
    if _prctl(_DEATH_SIGNAL, signal.SIGKILL) and os.getppid() != supervisor:
        os._exit(127)
    if folder:
        os.chdir(folder)
    argv, pairs = words[: int(count)], (word.partition(b"=") for word in words[int(count) :])
    os.execvpe(argv[0], argv, {name: value for name, _, value in pairs})  # noqa: S606 - a shell is what must not be there


Process = namedtuple("Process", "pid parent group start is_zombie")


def read_processes() -> list[Process]:
    """All processes, where the system shows them under /proc."""
    found = []
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal():
                with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                    # The command name, in brackets, may hold anything: fields are counted from behind it.
                    state, parent, group, *rest = file.read().rpartition(b")")[2].split()
                    found.append(Process(int(name), int(parent), int(group), rest[16], state in b"ZX"))
    return found


def descendants(root: int, processes: list[Process] | None = None) -> list[int]:
    """Every process below one, among those of now where no others are given."""
    processes = read_processes() if processes is None else processes
    found, family = [], {root}
    while grown := [each.pid for each in processes if each.parent in family and each.pid not in family]:
        family.update(grown)
        found += grown
    return found


def _report(channel: socket.socket, *numbers: int) -> None:
    with suppress(OSError):  # nobody wants to know any more
        channel.sendall(REPORT.pack(*numbers))


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) == 0)


if __name__ == "__main__":
    main()
