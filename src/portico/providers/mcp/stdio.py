"""The stdio transport: a child process that speaks one JSON message per line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import cast

import anyio

from portico.domain.foreign_text import Redactor, secrets_of
from portico.domain.server import Packaging, ServerSpec
from portico.errors import Sent
from portico.providers.processes import ProcessTree, spawn

from .elicitation import Notifications
from .jsonrpc import Peer
from .transport import MESSAGE_LIMIT, ExchangeTimeouts, Incoming, Lost, OnLost, TooLarge, expired

_POSIX = "PATH HOME LANG TERM USER LOGNAME SHELL TMPDIR TZ"
_WINDOWS = (
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP"
    " USERNAME USERPROFILE TZ"
)
_NETWORK = "SSL_CERT_FILE NODE_EXTRA_CA_CERTS HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy"

INHERITED = frozenset(f"{_WINDOWS if sys.platform == 'win32' else _POSIX} {_NETWORK}".split())
"""The variables of ours that every child sees; `LC_*` comes on top."""


def child_environment(declared: Mapping[str, str], ours: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child: nothing of ours but the frozen list, then what is declared."""
    inherited = {
        name: value
        for name, value in ours.items()
        # "()" begins an exported shell function, which is code.
        if (name in INHERITED or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**inherited, **declared}


def executable(spec: ServerSpec, environment: Mapping[str, str]) -> str:
    """The file that a server's command means, looked for where the child would look.

    Raises:
        Lost: there is none, or the working directory is missing.
    """
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        raise Lost(f"the working directory {spec.cwd!r} does not exist", "check the `cwd` field")
    command = os.path.expanduser(spec.command)
    if os.path.dirname(command):
        command = os.path.join(spec.cwd or "", command)
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if os.path.exists(command) and os.path.dirname(command):
        raise Lost(f"{spec.command!r} is not an executable file", "check its permissions or the `command` field")
    raise Lost(f"the command {spec.command!r} was not found", "check PATH or the `command` field")


_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    "--rm --interactive --tty --detach --init --privileged --read-only --publish-all --no-healthcheck --quiet"
    " --oom-kill-disable --sig-proxy --use-api-socket".split()
)
"""Options without a value; all others take the word that follows."""
_LETTERS = frozenset("ditqP")
"""The short ones, which may stand together."""
_CONTAINER_NETWORK = ("--network", "--net")


def packaging_of(spec: ServerSpec) -> Packaging:
    """What the command says; nothing when it starts no container."""
    engine = PurePath(spec.command).name.removesuffix(".exe")
    if engine not in _ENGINES or "run" not in spec.args:
        return Packaging()
    return _read(spec.args[spec.args.index("run") + 1 :])


def _read(words: Sequence[str]) -> Packaging:
    network, place = "", 0
    while place < len(words) and words[place].startswith("-"):
        option, has_value, value = words[place].partition("=")
        if not has_value and not _is_switch(option):
            place += 1
            value = words[place] if place < len(words) else ""
        if option in _CONTAINER_NETWORK:
            network = value
        place += 1
    return Packaging(docker_image=words[place] if place < len(words) else "", network_mode=network)


def _is_switch(option: str) -> bool:
    return option in _SWITCHES or (not option.startswith("--") and set(option[1:]) <= _LETTERS)


logger = logging.getLogger(__name__)

STDERR_KEPT = 4096
EXIT_GRACE = 2.0
"""Seconds that a child gets to end by itself, and again after SIGTERM."""
LAST_WORDS = 0.2
"""Seconds between the end of a process and its report: its last output may still be in the pipes."""
POLL = 0.02


async def start_child(spec: ServerSpec, inbox: Notifications, on_lost: OnLost) -> Peer:
    """Start a server's process, in a group of its own and never through a shell.

    Raises:
        Lost: it cannot be started.
    """
    environment = child_environment(spec.env)
    program = executable(spec, environment)
    peer = Peer(spec.name, inbox, on_lost)
    child = Child(spec, peer)
    peer.wire = child
    try:
        # Shielded: a start that is broken off half-way would leave a process that nobody owns.
        with anyio.CancelScope(shield=True):
            await spawn(child, [program, *spec.args], env=environment, cwd=spec.cwd)
    except (OSError, ValueError) as error:
        raise Lost(f"{spec.command!r} cannot be started: {error}", "check the `command` and `args` fields") from error
    return peer


class Child(asyncio.SubprocessProtocol):
    """A child process as a wire; its output is read in the loop's own callbacks, without a task."""

    def __init__(self, spec: ServerSpec, peer: Peer) -> None:
        self._spec, self._peer = spec, peer
        self._transport: asyncio.SubprocessTransport
        self._stdin: asyncio.WriteTransport
        self._line = Incoming(peer.bound)
        self._skipped = 0
        """Bytes of a line that is being skipped."""
        self._last_words = b""
        self._room: asyncio.Future[None] | None = None
        self._exited, self._closed = asyncio.Event(), asyncio.Event()
        self._is_lost = False
        self._reported: asyncio.Future[Lost] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the process that was started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    @property
    def pid(self) -> int | None:
        """The child process."""
        return self._transport.get_pid()

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        return self._last_words.decode("utf-8", "replace")

    async def send(self, data: bytes, patience: ExchangeTimeouts) -> None:
        """Write one line, waiting while the child does not read."""
        if self._room is not None:
            await self._wait_for_room(patience)
        if self._is_lost or self._stdin.is_closing():
            raise await self._obituary()
        self._stdin.write(data)

    def send_soon(self, data: bytes) -> None:
        """Write one line, unless the child does not read."""
        if self._room is None and not self._is_lost and not self._stdin.is_closing():
            self._stdin.write(data)

    async def aclose(self) -> None:
        """Close its input, then ask, then force it and everything it started to end."""
        with anyio.CancelScope(shield=True):
            self._is_lost = True
            tree = ProcessTree(self._transport.get_pid())
            tree.remember()
            self._stdin.close()
            await self._wait_for_exit(tree)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if tree.is_alive():
                    tree.send(number)
                    await self._wait_for_exit(tree)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._transport.close()
            with anyio.move_on_after(1.0):
                await self._closed.wait()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take output of the child."""
        if fd == 1:
            self._take_output(data)
        else:
            self._last_words = (self._last_words + data[-STDERR_KEPT:])[-STDERR_KEPT:]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Take the end of one of its pipes."""
        if fd != 2 and not self._is_lost:
            self._report_later("it closed its output" if fd == 1 else "it closed its input")

    def process_exited(self) -> None:
        """Take the end of the process."""
        self._exited.set()
        self._report_later("")

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the process and of all its pipes."""
        self._closed.set()
        self.resume_writing()
        self._report("")

    def pause_writing(self) -> None:
        """Note that the child does not read as fast as we write."""
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """Note that the child reads again."""
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _take_output(self, data: bytes) -> None:
        if self._is_lost:
            return
        *lines, rest = data.split(b"\n")
        if lines and (self._line.data or self._skipped):
            self._extend(lines.pop(0))
            first, self._line, self._skipped = self._line.data, Incoming(self._peer.bound), 0
            self._deliver(first)
        for line in lines:
            self._deliver(line)
        if rest:
            self._extend(rest)

    def _deliver(self, line: bytes | bytearray) -> None:
        if line and not line.isspace() and not self._is_lost:
            self._peer.receive(line)

    def _extend(self, part: bytes) -> None:
        """Take a part of a line that is not complete yet."""
        if self._skipped:
            self._skip(part)
            return
        try:
            self._line.feed(part)
        except TooLarge as fault:
            self._refuse_line(fault)

    def _refuse_line(self, fault: TooLarge) -> None:
        line, self._line = self._line.data, Incoming(self._peer.bound)
        if len(line) > MESSAGE_LIMIT:
            self._give_up(_too_long())
        elif self._peer.refuse(line, fault):
            self._skipped = len(line)
        else:
            self._give_up(Lost(*fault.details))

    def _skip(self, part: bytes) -> None:
        self._skipped += len(part)
        if self._skipped > MESSAGE_LIMIT:
            self._give_up(_too_long())

    def _report_later(self, reason: str) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._report, reason)

    def _report(self, reason: str) -> None:
        code = self._transport.get_returncode()
        happened = reason if code is None else _ending(code)
        if not self._is_lost and (words := self.stderr.strip()):
            said = Redactor(secrets_of(self._spec)).text(words)
            logger.info("server %r is gone (%s); its last words on stderr: %s", self._spec.name, happened, said)
        self._give_up(Lost(f"the process of {self._spec.command!r} is gone: {happened}", *self._hints()))

    def _give_up(self, fault: Lost) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._reported.set_result(fault)
            self._peer.lose(fault)

    async def _obituary(self) -> Lost:
        """Why nothing can be written any more; its report follows the end of a pipe within moments."""
        with anyio.move_on_after(5 * LAST_WORDS):
            return Lost(*(await asyncio.shield(self._reported)).details)
        return Lost("the server's process has ended")

    def _hints(self) -> tuple[str, ...]:
        """Where to look; what it wrote itself is for operators, and not part of an error that agents read."""
        if self.stderr.strip():
            return (f"what it wrote to stderr is shown by: portico doctor {self._spec.name}",)
        return ("it wrote nothing to stderr; run the command by hand to see why",)

    async def _wait_for_room(self, patience: ExchangeTimeouts) -> None:
        room = self._room
        assert room is not None
        with anyio.move_on_after(patience.first) as scope:
            await asyncio.shield(room)
        if scope.cancelled_caught:
            raise expired(patience, sent=Sent.NOTHING)

    async def _wait_for_exit(self, tree: ProcessTree) -> None:
        with anyio.move_on_after(EXIT_GRACE):
            await self._exited.wait()
            while tree.is_alive():  # noqa: ASYNC110 - the system tells nobody when a grandchild ends
                await anyio.sleep(POLL)


def _too_long() -> Lost:
    return Lost(f"the server wrote a line of more than {MESSAGE_LIMIT >> 20} MiB, which is not accepted")


def _ending(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"
