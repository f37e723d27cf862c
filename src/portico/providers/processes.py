"""Child processes: started through the supervisor, bounded, and ended with everything they started."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import IO, Any, cast

import anyio

if sys.platform != "win32":
    import pwd

from . import child_process_supervisor
from .child_process_supervisor import REPORT, descendants, read_processes


class ProcessTree:
    """The process group of a child, and descendants that have left the group (seen on Linux only).

    To look for them takes milliseconds, more where many processes run: a loop lets a thread do it.
    """

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._strays: dict[int, str] = {}

    def remember(self) -> None:
        """Note the descendants of now: when their parent dies they can no longer be found."""
        processes = read_processes()
        family = {self._leader, *descendants(self._leader, processes)}
        self._strays |= {e.pid: e.start for e in processes if e.pid in family and e.group != self._leader}

    def is_alive(self) -> bool:
        """Whether any of it still runs; zombies do not count."""
        is_group_alive = self._is_group_alive()
        if not self._strays and not is_group_alive:
            return False
        processes = read_processes()
        if not processes:
            return is_group_alive
        return any(
            # The start time tells a process from a later one with the same number.
            not each.is_zombie and (each.group == self._leader or self._strays.get(each.pid) == each.start)
            for each in processes
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._leader, number)
            else:
                os.kill(self._leader, number)
        for each in read_processes() if self._strays else ():
            if self._strays.get(each.pid) == each.start:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(each.pid, number)

    def _is_group_alive(self) -> bool:
        if not hasattr(os, "killpg"):
            return False
        try:
            os.killpg(self._leader, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemUser:
    """A user of this machine, as the kernel knows it."""

    number: int
    group: int
    groups: tuple[int, ...]
    """All of its groups."""
    name: str
    """The number, where no user has it."""
    home: str = "/"

    @classmethod
    def find(cls, spelled: str) -> SystemUser | None:
        """The user of a name, or of numbers as in `uid` or `uid:gid`; None where there is no such name.

        Raises:
            OSError: this system has no such users.
        """
        if sys.platform == "win32":
            raise OSError("a program cannot be started as another user on this system")
        number, _, group = spelled.partition(":")
        try:
            entry = pwd.getpwuid(int(number)) if number.isdecimal() else pwd.getpwnam(spelled)
        except (KeyError, OverflowError):
            if not number.isdecimal():
                return None
            own = int(group or number)
            return cls(number=int(number), group=own, groups=(own,), name=number)
        own = int(group) if group else entry.pw_gid
        # A group that is named is all that it gets: whoever writes it may want less than the user has.
        groups = (own,) if group else tuple(os.getgrouplist(entry.pw_name, own))
        return cls(number=entry.pw_uid, group=own, groups=groups, name=entry.pw_name, home=entry.pw_dir)


def may_change_user() -> bool:
    """Whether this process may start another as somebody else: it is root, or has the capabilities for it."""
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return hasattr(os, "geteuid")
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status") as file:
        capabilities = int(file.read().partition("CapEff:")[2].split()[0], 16)
        return capabilities & _SET_IDS == _SET_IDS
    return False


_SET_IDS = 1 << 6 | 1 << 7
"""The capabilities to set groups and users."""
PROGRAM = child_process_supervisor.__file__
ANSWERING = 30.0
"""Seconds that the supervisor gets to start a program, on the busiest machine."""
ATTEMPTS = 2
"""How often the supervisor is tried before a program is started without it."""
LEAVING = 3.0
"""Seconds that an ending gateway waits for the supervisor, which then has nothing left to end as a rule."""
IS_SUPERVISED = hasattr(socket, "send_fds") and hasattr(os, "fork")
"""Whether this system lets us hand over descriptors; elsewhere programs are our own children."""


async def spawn(
    protocol: asyncio.SubprocessProtocol,
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    has_input: bool = True,
    user: SystemUser | None = None,
) -> asyncio.SubprocessTransport:
    """Start a program in a session of its own, never through a shell; the caller must not be cancelled meanwhile.

    Raises:
        OSError: it cannot be started.
        ValueError: it can be started nowhere.
    """
    for _ in range(ATTEMPTS if IS_SUPERVISED else 0):
        with suppress(_SupervisorGone):
            return await _spawn_supervised(protocol, _encode_order(argv, env, cwd, user), has_input=has_input)
    # A program that could outlive us is better than none.
    options: dict[str, Any] = {"env": dict(env), "cwd": cwd, "start_new_session": True, "close_fds": True}
    if user is not None:
        options |= {"user": user.number, "group": user.group, "extra_groups": list(user.groups)}
    stdin = subprocess.PIPE if has_input else subprocess.DEVNULL
    loop = asyncio.get_running_loop()
    transport, _ = await loop.subprocess_exec(lambda: protocol, *argv, stdin=stdin, **options)
    return transport


async def _spawn_supervised(
    protocol: asyncio.SubprocessProtocol, order: bytes, *, has_input: bool
) -> asyncio.SubprocessTransport:
    process = _Process(protocol)
    # Their ends are closed as soon as the supervisor has its own copies, or the end of a pipe would never be seen.
    with ExitStack() as ours, ExitStack() as theirs:
        ends = [_pipe(theirs, ours, is_input=number == 0, is_open=bool(number or has_input)) for number in range(3)]
        channel, their_channel = socket.socketpair()
        ours.enter_context(channel)
        theirs.enter_context(their_channel)
        file = theirs.enter_context(_open_nameless_file())
        file.write(order)
        file.seek(0)
        _supervisor.order([*(end for end, _ in ends), file.fileno(), their_channel.fileno()])
        theirs.close()
        await process.open(channel, [pipe for _, pipe in ends])
        ours.pop_all()
    return process


class _SupervisorGone(OSError):
    """The supervisor cannot be started, or has ended before it started anything."""


def _encode_order(argv: Sequence[str], env: Mapping[str, str], cwd: str | None, user: SystemUser | None) -> bytes:
    """The order to the supervisor, as `child_process_supervisor.start` takes it."""
    numbers = "" if user is None else " ".join(map(str, (user.number, user.group, *user.groups)))
    words = [cwd or "", numbers, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
    if any("\0" in word for word in words):
        raise ValueError("a null character cannot be passed to a program")
    return b"\0".join(map(os.fsencode, words))


def _open_nameless_file() -> IO[bytes]:
    """A file without a name, in memory where that can be had."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("order"), "w+b")
    return TemporaryFile()


def _pipe(theirs: ExitStack, ours: ExitStack, *, is_input: bool, is_open: bool) -> tuple[int, Any]:
    """The program's end and ours of one of its three descriptors."""
    if not is_open:
        return theirs.enter_context(open(os.devnull, "rb")).fileno(), None
    reading, writing = os.pipe()
    reader, writer = (os.fdopen(end, mode, 0) for end, mode in ((reading, "rb"), (writing, "wb")))
    theirs.enter_context(reader if is_input else writer)
    ours.enter_context(writer if is_input else reader)
    return (reading, writer) if is_input else (writing, reader)


class _Supervisor:
    """The one supervisor of this process; started when it is first needed, and again when it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0

    def order(self, descriptors: Sequence[int]) -> None:
        """Hand over what the next program needs."""
        with self._lock:
            try:
                socket.send_fds(self._running(), [b"s"], descriptors)
            except OSError as error:
                self._discard()
                raise _SupervisorGone(f"the process that starts programs cannot be reached: {error}") from error

    def _discard(self) -> None:
        """Forget a supervisor that does not listen; a killed process is gone in no time."""
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            control.close()
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        """Let the supervisor end, with what it has started."""
        with self._lock:
            control, process, is_ours = self._control, self._process, self._owner == os.getpid()
            self._control = self._process = None
        if control is not None and process is not None:
            control.close()
            if is_ours:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LEAVING)
            process.returncode = process.returncode or 0  # it ends without us, and nobody needs to be warned

    def _running(self) -> socket.socket:
        is_ours = self._owner == os.getpid()
        if is_ours and self._control is not None and self._process is not None and self._process.poll() is None:
            return self._control
        if self._control is not None:
            self._control.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-I", "-S", PROGRAM, str(os.getpid())),
                env={},
                cwd="/",
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        ours.setblocking(False)
        self._control, self._owner = ours, os.getpid()
        return ours


_supervisor = _Supervisor()
atexit.register(_supervisor.close)


class _Process(asyncio.SubprocessTransport):
    """A program that the supervisor has started, as the event loop's own processes look."""

    def __init__(self, protocol: asyncio.SubprocessProtocol) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._started: asyncio.Future[int] = loop.create_future()
        self._reports: asyncio.Transport | None = None
        self._pid = 0
        self._code: int | None = None
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._open: set[int] = set()
        self._is_made = self._is_closing = self._is_over = False

    async def open(self, channel: socket.socket, pipes: Sequence[Any]) -> None:
        """Wait for the start, and connect what is ours.

        Raises:
            OSError: there is no start.
        """
        loop = asyncio.get_running_loop()
        channel.setblocking(False)
        reports, _ = await loop.create_unix_connection(lambda: _Channel(self), sock=channel)
        self._reports = reports
        try:
            self._pid = await asyncio.wait_for(asyncio.shield(self._started), ANSWERING)
        except BaseException:
            reports.close()
            raise
        self._open = {number for number, pipe in enumerate(pipes) if pipe is not None}
        if pipes[0] is not None:
            self._pipes[0], _ = await loop.connect_write_pipe(lambda: _Pipe(self, self._protocol, 0), pipes[0])
        self._protocol.connection_made(self)
        for number in (1, 2):
            made = cast(Callable[[], asyncio.Protocol], lambda number=number: _Pipe(self, self._protocol, number))
            self._pipes[number], _ = await loop.connect_read_pipe(made, pipes[number])
        self._is_made = True
        if self._code is not None:
            self._end()

    def get_pid(self) -> int:
        return self._pid

    def get_returncode(self) -> int | None:
        return self._code

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        return self._pipes.get(fd)

    def close(self) -> None:
        """Close the pipes, and end the process if it still runs."""
        if not self._is_closing:
            self._is_closing = True
            for pipe in self._pipes.values():
                pipe.close()
            if self._code is None:
                os.kill(self._pid, signal.SIGKILL)

    def start(self, pid: int, error: int) -> None:
        """Take the news of the start."""
        if self._started.done():
            self.exit(os.waitstatus_to_exitcode(error))
        elif error:
            self._started.set_exception(OSError(error, os.strerror(error)))
        else:
            self._started.set_result(pid)

    def exit(self, code: int) -> None:
        """Take the news of the end."""
        if not self._started.done():
            self._started.set_exception(_SupervisorGone("the process that starts programs has ended"))
        if self._code is None:
            self._code = code
            if self._reports is not None:
                self._reports.close()
            if self._is_made:
                self._end()

    def lose(self, number: int, error: Exception | None) -> None:
        """Take the end of one pipe."""
        self._open.discard(number)
        self._protocol.pipe_connection_lost(number, error)
        self._finish()

    def _end(self) -> None:
        self._protocol.process_exited()
        self._finish()

    def _finish(self) -> None:
        if self._code is not None and not self._open and not self._is_over:
            self._is_over = True
            self._protocol.connection_lost(None)


class _Channel(asyncio.Protocol):
    """The supervisor's reports on one program: how it started and how it ended."""

    def __init__(self, process: _Process) -> None:
        self._process, self._buffer = process, b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= REPORT.size:
            report, self._buffer = self._buffer[: REPORT.size], self._buffer[REPORT.size :]
            self._process.start(*REPORT.unpack(report))

    def connection_lost(self, exc: Exception | None) -> None:
        # The supervisor has ended, which ends its children too.
        self._process.exit(-signal.SIGKILL)


class _Pipe(asyncio.Protocol):
    """Our end of one descriptor."""

    def __init__(self, process: _Process, protocol: asyncio.SubprocessProtocol, number: int) -> None:
        self._process, self._number = process, number
        self.data_received = partial(protocol.pipe_data_received, number)  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        self._process.lose(self._number, exc)


OUTPUT_LIMIT = 1_000_000
"""Bytes of output that are kept; what comes after them is read and thrown away."""
ERRORS_KEPT = 4_096
LAST_WORDS = 0.5
"""Seconds for output that is still in the pipes when the program has ended."""
END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a program, and its output."""

    code: int | None
    """The exit code; None when its time was up."""
    output: bytes
    written: int
    """Bytes of output in all."""
    errors: bytes
    """The end of what it wrote to stderr."""


class _Program(asyncio.SubprocessProtocol):
    def __init__(self) -> None:
        self.output, self.errors, self.written = bytearray(), b"", 0
        self.exited, self.closed = asyncio.Event(), asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            self.written += len(data)
            self.output += data[: max(0, OUTPUT_LIMIT - len(self.output))]
        else:
            self.errors = (self.errors + data)[-ERRORS_KEPT:]

    def process_exited(self) -> None:
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


async def run_program(
    argv: Sequence[str], *, environment: Mapping[str, str], folder: str | None, seconds: float
) -> Ended:
    """Start a program, wait for its end, and end everything it has started.

    Raises:
        OSError: it cannot be started.
    """
    program = _Program()
    # Shielded: a start that is broken off half-way would leave a process that nobody owns.
    with anyio.CancelScope(shield=True):
        transport = await spawn(program, argv, env=environment, cwd=folder, has_input=False)
    is_done = False
    try:
        with anyio.move_on_after(seconds):
            await program.exited.wait()
            is_done = True
            with anyio.move_on_after(LAST_WORDS):  # a process that it left in the background may hold the pipes
                await program.closed.wait()
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(END_SECONDS):
            tree = ProcessTree(transport.get_pid())
            if not program.exited.is_set():
                tree.remember()
            if tree.is_alive():
                tree.send(signal.SIGKILL)
            await program.exited.wait()
            transport.close()
            await program.closed.wait()
    return Ended(
        code=transport.get_returncode() if is_done else None,
        output=bytes(program.output),
        written=program.written,
        errors=program.errors,
    )
