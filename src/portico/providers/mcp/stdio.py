"""The stdio transport: a child process that speaks one JSON message per line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast

import anyio

from portico.domain.server import Packaging, ServerSpec
from portico.errors import Sent
from portico.providers.child_process_supervisor import read_processes
from portico.providers.processes import ProcessTree, SystemUser, may_change_user, run_program, spawn
from portico.text.redaction import Redactor, secrets_of

from .jsonrpc import JsonRpcTransport
from .message_limits_and_errors import (
    MESSAGE_LIMIT,
    ExchangeTimeouts,
    IncomingMessage,
    Lost,
    Missing,
    OnLost,
    Permanent,
    TooLarge,
)
from .server_questions import Notifications

_POSIX = "PATH HOME LANG TERM USER LOGNAME SHELL TMPDIR TZ"
_WINDOWS = (
    "APPDATA HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE SYSTEMDRIVE SYSTEMROOT TEMP"
    " USERNAME USERPROFILE TZ"
)
_NETWORK = "SSL_CERT_FILE NODE_EXTRA_CA_CERTS HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy"

INHERITED = frozenset(f"{_WINDOWS if sys.platform == 'win32' else _POSIX} {_NETWORK}".split())
"""The variables of ours that every child sees; `LC_*` comes on top."""


ENGINE_VARIABLES = frozenset(
    "DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_TLS_VERIFY CONTAINER_HOST XDG_RUNTIME_DIR".split()
)
"""Those that a program which starts containers sees too; the container sees none of ours."""


def child_environment(
    declared: Mapping[str, str], ours: Mapping[str, str] = os.environ, more: Set[str] = frozenset()
) -> dict[str, str]:
    """The whole environment of a child: nothing of ours but the frozen list, then what is declared."""
    inherited = {
        name: value
        for name, value in ours.items()
        # "()" begins an exported shell function, which is code.
        if (name in INHERITED or name in more or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**inherited, **declared}


def executable(spec: ServerSpec, environment: Mapping[str, str]) -> str:
    """The file that a server's command means, looked for where the child would look.

    Raises:
        Missing: there is none, or the working directory is missing.
    """
    if spec.cwd is not None and not os.path.isdir(spec.cwd):
        raise Missing(f"the working directory {spec.cwd!r} does not exist", "check the `cwd` field")
    command = os.path.expanduser(spec.command)
    if os.path.dirname(command):
        command = os.path.join(spec.cwd or "", command)
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is not None:
        return os.path.abspath(found)
    if os.path.exists(command) and os.path.dirname(command):
        raise Missing(f"{spec.command!r} is not an executable file", "check its permissions or the `command` field")
    raise Missing(f"the command {spec.command!r} was not found", "check PATH or the `command` field")


def program_mark(spec: ServerSpec) -> str:
    """Changes with the file that a server's command means, and with the files that its arguments name."""
    try:
        program = os.path.realpath(executable(spec, child_environment(spec.env)))
    except Lost:
        return ""
    facts = [_file_facts(path) for path in (program, *(os.path.join(spec.cwd or "", word) for word in spec.args))]
    return hashlib.sha256(repr(facts).encode(errors="replace")).hexdigest()[:32]


def _file_facts(path: str) -> tuple[object, ...]:
    """What changes when a file is replaced or written; nothing for what is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return (path, found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else ()


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
    if spec.isolation.image:
        return Packaging(docker_image=spec.isolation.image, network_mode=spec.isolation.network)
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


ENGINES = ("docker", "podman")
"""The programs that start containers; the first that is there is used."""
HOST_LABEL = "portico.host"
ENGINE_SECONDS = 10.0
"""Seconds that an engine gets to list or to remove containers."""
_reaped: set[str] = set()
"""The engines that have been asked for containers of gateways which are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All that a server's process is started with."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str | None
    user: SystemUser | None = None
    container: str = ""
    """The container's name; empty where there is none."""

    @classmethod
    def plan(cls, spec: ServerSpec) -> Launch:
        """What a server is to be started with.

        Raises:
            Missing: some of it is not there, or not allowed.
        """
        if spec.isolation.image:
            return cls._plan_container(spec)
        user = _user_of(spec)
        own = {} if user is None else {"HOME": user.home, "USER": user.name, "LOGNAME": user.name}
        environment = child_environment({**own, **spec.env})
        argv = (executable(spec, environment), *spec.args)
        folder = spec.cwd
        if user is not None and folder is None:  # ours may be closed to it
            folder = user.home if os.path.isdir(user.home) else os.sep
        return cls(argv=argv, environment=environment, folder=folder, user=user)

    @classmethod
    def _plan_container(cls, spec: ServerSpec) -> Launch:
        ours = child_environment({}, more=ENGINE_VARIABLES)
        engine = next((found for name in ENGINES if (found := shutil.which(name, path=ours.get("PATH")))), None)
        if engine is None:
            raise Missing("neither docker nor podman was found", "install one of them, or delete `container`")
        name, isolation = _container_name(spec.name), spec.isolation
        argv = [engine, "run", "-i", "--rm", "--init", "--name", name, "--label", f"{HOST_LABEL}={_host()}"]
        argv += [f"--network={isolation.network}"] if isolation.network else []
        argv += [f"--volume={volume}" for volume in isolation.volumes]
        argv += [f"--workdir={spec.cwd}"] if spec.cwd else []
        # Values stay out of the list of processes: the engine takes them from its own environment.
        argv += [f"--env={name}" for name in spec.env]
        argv += [isolation.image, *([spec.command] if spec.command else []), *spec.args]
        return cls(argv=tuple(argv), environment={**ours, **spec.env}, folder=None, container=name)

    async def remove_container(self) -> None:
        """Remove what an engine that was killed may have left."""
        if self.container:
            await _ask_engine(self.argv[0], ("rm", "-f", self.container), self.environment)

    async def reap(self) -> None:
        """Remove the containers of gateways on this machine that are no more, once for each engine."""
        engine = self.argv[0]
        if not self.container or engine in _reaped:
            return
        _reaped.add(engine)
        processes = {(str(each.pid), each.start.decode()) for each in read_processes()}
        asked = ("ps", "--all", "--filter", f"label={HOST_LABEL}={_host()}", "--format", "{{.Names}}")
        for name in (await _ask_engine(engine, asked, self.environment)).split():
            prefix, pid, start, *_ = (*name.split("-"), "", "")
            is_ours = prefix == "portico" and pid.isdecimal() and start.isdecimal()
            if is_ours and processes and (pid, start) not in processes:
                await _ask_engine(engine, ("rm", "-f", name), self.environment)


def _user_of(spec: ServerSpec) -> SystemUser | None:
    run_as = spec.isolation.run_as
    if not run_as:
        return None
    try:
        user = SystemUser.find(run_as)
    except OSError as error:
        raise Missing(str(error), "delete `run_as`") from error
    if user is None:
        raise Missing(f"there is no user {run_as!r} on this machine", "check `run_as`")
    if may_change_user():
        return user
    if (user.number, user.group) != (os.geteuid(), os.getegid()) or not {*os.getgroups()} <= {*user.groups}:
        fix = "run it as root, or with the capabilities to set users and groups, or delete `run_as`"
        raise Missing(f"the gateway may not start programs as {run_as!r}", fix)
    return None  # as we are


def _container_name(server: str) -> str:
    """A name that says which process has made it, and for what."""
    pid = os.getpid()
    start = next((each.start.decode() for each in read_processes() if each.pid == pid), "0")
    return f"portico-{pid}-{start}-{secrets.token_hex(4)}-{re.sub(r'[^A-Za-z0-9_.]+', '_', server)[:40]}"


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", socket.gethostname()) or "unnamed"


async def _ask_engine(engine: str, words: Sequence[str], environment: Mapping[str, str]) -> str:
    """What an engine says; nothing where it cannot be asked, for it is about leftovers only."""
    try:
        ended = await run_program([engine, *words], environment=environment, folder=None, seconds=ENGINE_SECONDS)
    except OSError as error:
        logger.warning("%s cannot be asked: %s", engine, error)
        return ""
    return ended.output.decode("utf-8", "replace")


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
    launch = Launch.plan(spec)
    await launch.reap()
    transport = StdioTransport(spec, notifications, on_lost, launch)
    try:
        # Shielded: a start that is broken off half-way would leave a process that nobody owns.
        with anyio.CancelScope(shield=True):
            await spawn(transport, launch.argv, env=launch.environment, cwd=launch.folder, user=launch.user)
    except PermissionError as error:
        whom = f"{spec.isolation.run_as!r} may not" if launch.user is not None else "we may not"
        said = f"{whom} run {spec.command!r}, or not enter its working directory {launch.folder or '.'!r}"
        raise Permanent(said, "check their permissions and those of the folders above them") from error
    except (OSError, ValueError) as error:
        raise Lost(f"{spec.command!r} cannot be started: {error}", "check the `command` and `args` fields") from error
    return transport


class StdioTransport(JsonRpcTransport, asyncio.SubprocessProtocol):
    """A child process; its output is read in the loop's own callbacks, without a task."""

    def __init__(self, spec: ServerSpec, notifications: Notifications, on_lost: OnLost, launch: Launch) -> None:
        super().__init__(spec.name, notifications, on_lost)
        self._spec, self._launch = spec, launch
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
            await self._launch.remove_container()

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
        program = self._spec.command or self._spec.isolation.image
        self._give_up(Lost(f"the process of {program!r} is gone: {happened}", hint, cause="exited"))

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
