"""The stdio transport: a child process that speaks one JSON message per line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import cast

import anyio

from portico.domain.server import Packaging, ServerSpec
from portico.errors import Sent
from portico.providers.processes import ProcessTree, spawn
from portico.text.redaction import Redactor, secrets_of

from .jsonrpc import JsonRpcTransport
from .message_limits_and_errors import MESSAGE_LIMIT, ExchangeTimeouts, IncomingMessage, Lost, OnLost, TooLarge
from .server_questions import Notifications

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
        raise Lost(f"the working directory {spec.cwd!r} does not exist", "check the `cwd` field", cause="command")
    command = os.path.expanduser(spec.command)
    if os.path.dirname(command):
        command = os.path.join(spec.cwd or "", command)
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if os.path.exists(command) and os.path.dirname(command):
        raise Lost(
            f"{spec.command!r} is not an executable file",
            "check its permissions or the `command` field",
            cause="command",
        )
    raise Lost(f"the command {spec.command!r} was not found", "check PATH or the `command` field", cause="command")


_ENGINES = frozenset({"docker", "podman", "nerdctl"})
_SWITCHES = frozenset(
    "--rm --interactive --tty --detach --init --privileged --read-only --publish-all --no-healthcheck --quiet"
    " --oom-kill-disable --sig-proxy --use-api-socket".split()
)
"""Options without a value; all others take the word that follows."""
_LETTERS = frozenset("ditqP")
"""The short ones, which may stand together."""


def packaging_of(spec: ServerSpec) -> Packaging:
    """The container image and network that the command names; empty when it starts no container."""
    engine = PurePath(spec.command).name.removesuffix(".exe")
    if engine not in _ENGINES or "run" not in spec.args:
        return Packaging()
    words, network = iter(spec.args[spec.args.index("run") + 1 :]), ""
    for word in words:
        if not word.startswith("-"):
            return Packaging(docker_image=word, network_mode=network)
        option, has_value, value = word.partition("=")
        is_switch = option in _SWITCHES or (not option.startswith("--") and set(option[1:]) <= _LETTERS)
        if not has_value and not is_switch:
            value = next(words, "")
        if option in ("--network", "--net"):
            network = value
    return Packaging(network_mode=network)


logger = logging.getLogger(__name__)

STDERR_KEPT = 4096
EXIT_GRACE = 2.0
"""Seconds that a child gets to end by itself, and again after SIGTERM."""
LAST_WORDS = 0.2
"""Seconds between the end of a process and its report: its last output may still be in the pipes."""
POLL = 0.02


async def start_process(spec: ServerSpec, notifications: Notifications, on_lost: OnLost) -> StdioTransport:
    """Start a server's process, in a group of its own and never through a shell.

    Raises:
        Lost: it cannot be started.
    """
    environment = child_environment(spec.env)
    program = executable(spec, environment)
    transport = StdioTransport(spec, notifications, on_lost)
    try:
        # Shielded: a start that is broken off half-way would leave a process that nobody owns.
        with anyio.CancelScope(shield=True):
            await spawn(transport, [program, *spec.args], env=environment, cwd=spec.cwd)
    except (OSError, ValueError) as error:
        raise Lost(f"{spec.command!r} cannot be started: {error}", "check the `command` and `args` fields") from error
    return transport


class StdioTransport(JsonRpcTransport, asyncio.SubprocessProtocol):
    """A child process; its output is read in the loop's own callbacks, without a task."""

    def __init__(self, spec: ServerSpec, notifications: Notifications, on_lost: OnLost) -> None:
        super().__init__(spec.name, notifications, on_lost)
        self._spec = spec
        self._process: asyncio.SubprocessTransport
        self._stdin: asyncio.WriteTransport
        self._line = IncomingMessage(self.bounds_of)
        self._skipped = 0
        """Bytes of a line that is being skipped."""
        self._last_words = b""
        self._room: asyncio.Future[None] | None = None
        """Ends when the child reads again; None while it does."""
        self._exited, self._closed = asyncio.Event(), asyncio.Event()
        self._is_lost = False
        self._reported: asyncio.Future[Lost] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the process that was started."""
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._stdin = cast(asyncio.WriteTransport, self._process.get_pipe_transport(0))

    @property
    def pid(self) -> int | None:
        """The child process."""
        return self._process.get_pid()

    @property
    def stderr(self) -> str:
        """The last words of the child process."""
        return self._last_words.decode("utf-8", "replace")

    async def send(self, data: bytes, timeouts: ExchangeTimeouts) -> None:
        """Write one line, waiting while the child does not read."""
        if self._room is not None:
            with anyio.move_on_after(timeouts.first) as scope:
                await asyncio.shield(self._room)
            if scope.cancelled_caught:
                raise timeouts.expired(sent=Sent.NOTHING)
        if not self._is_lost and not self._stdin.is_closing():
            self._stdin.write(data)
            return
        # Its report follows the end of a pipe within moments.
        with anyio.move_on_after(5 * LAST_WORDS):
            reported = await asyncio.shield(self._reported)
            raise Lost(*reported.details, cause=reported.cause)
        raise Lost("the server's process has ended")

    def send_soon(self, data: bytes) -> None:
        """Write one line, unless the child does not read."""
        if self._room is None and not self._is_lost and not self._stdin.is_closing():
            self._stdin.write(data)

    async def aclose(self) -> None:
        """Close its input, then ask, then force it and everything it started to end."""
        self.close_requests()
        with anyio.CancelScope(shield=True):
            self._is_lost = True
            tree = ProcessTree(self._process.get_pid())
            if not self._exited.is_set():  # of a process that is gone, nothing but its group can still be found
                await anyio.to_thread.run_sync(tree.remember)
            self._stdin.close()
            await self._wait_for_exit(tree)
            for number in (signal.SIGTERM, signal.SIGKILL):
                if await anyio.to_thread.run_sync(tree.is_alive):
                    tree.send(number)
                    await self._wait_for_exit(tree)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                self._process.close()
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
            self._report_soon("it closed its output" if fd == 1 else "it closed its input")

    def process_exited(self) -> None:
        """Take the end of the process."""
        self._exited.set()
        self._report_soon("")

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
        *lines, rest = data.split(b"\n")
        if lines and (self._line.data or self._skipped):
            self._extend_line(lines.pop(0))
            first, self._line, self._skipped = self._line.data, IncomingMessage(self.bounds_of), 0
            self._take_line(first)
        for line in lines:
            self._take_line(line)
        if rest:
            self._extend_line(rest)

    def _take_line(self, line: bytes | bytearray) -> None:
        if line and not line.isspace() and not self._is_lost:
            self.receive(line)

    def _extend_line(self, part: bytes) -> None:
        """Take a part of a line that is not complete yet; the rest of one that is refused is skipped."""
        if self._is_lost:
            return
        try:
            if not self._skipped:
                self._line.feed(part)
                return
            self._skipped += len(part)
        except TooLarge as fault:
            line, self._line = self._line.data, IncomingMessage(self.bounds_of)
            self._skipped = len(line)
            if self._skipped <= MESSAGE_LIMIT and not self.refuse(line, fault):
                self._give_up(Lost(*fault.details))
        if self._skipped > MESSAGE_LIMIT:
            said = f"the server wrote a line of more than {MESSAGE_LIMIT >> 20} MiB, which is not accepted"
            self._give_up(Lost(said))

    def _report_soon(self, reason: str) -> None:
        asyncio.get_running_loop().call_later(LAST_WORDS, self._report, reason)

    def _report(self, reason: str) -> None:
        code, words = self._process.get_returncode(), self.stderr.strip()
        happened = reason if code is None else _describe_end(code)
        if not self._is_lost and words:
            said = Redactor(secrets_of(self._spec)).text(words)
            logger.info("server %r is gone (%s); its last words on stderr: %s", self._spec.name, happened, said)
        # What it wrote itself is for operators, and not part of an error that agents read.
        hint = f"what it wrote to stderr is shown by: portico doctor {self._spec.name}"
        hint = hint if words else "it wrote nothing to stderr; run the command by hand to see why"
        self._give_up(Lost(f"the process of {self._spec.command!r} is gone: {happened}", hint, cause="exited"))

    def _give_up(self, fault: Lost) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._reported.set_result(fault)
            self.lose(fault)

    async def _wait_for_exit(self, tree: ProcessTree) -> None:
        with anyio.move_on_after(EXIT_GRACE):
            await self._exited.wait()
            while await anyio.to_thread.run_sync(tree.is_alive):  # noqa: ASYNC110 - the system tells nobody when a grandchild ends
                await anyio.sleep(POLL)


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"it exited with code {code}"
    with contextlib.suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"
