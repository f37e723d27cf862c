"""Connections to one server: negotiated, opened on first use, closed when idle, opened again after a failure."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from math import inf
from typing import Any

import anyio
import orjson
from anyio.abc import TaskGroup

from portico.domain.call import OnProgress, waiting_for_start
from portico.domain.server import ServerSpec
from portico.errors import Sent

from .elicitation import DECLARED, Notifications
from .param_headers import HeaderMap
from .stdio import start_child
from .transport import (
    FOREVER,
    HANDSHAKE,
    KNOWN,
    LOG_LEVEL_KEY,
    MODERN,
    SERVER_KEY,
    UNSUPPORTED_VERSION,
    BadStatus,
    ExchangeFault,
    ExchangeTimeouts,
    Expired,
    InitializeResult,
    Lost,
    OnLost,
    RequestDialect,
    RpcError,
    Transport,
    Unauthorized,
    modern_dialect,
    values_of,
)

PROBE = 2.0
"""Seconds that a server of unknown era gets to answer the probe."""


WELCOME_LIMIT = 1024 * 1024
"""Bytes of what a server says of itself."""
INSTRUCTIONS_LIMIT = 32_000
"""Characters of its instructions that are kept."""
CAPABILITIES_LIMIT = 1_000
"""Values in the capabilities that it declares; of more, only the names are kept."""


class Era(StrEnum):
    """How a server begins a connection."""

    UNKNOWN = "unknown"
    HANDSHAKE = "handshake"
    MODERN = "modern"

    @classmethod
    def of(cls, version: str) -> Era:
        """The era of a revision."""
        if version == MODERN:
            return cls.MODERN
        return cls.HANDSHAKE if version in HANDSHAKE else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class Negotiator:
    """Agrees on a revision over a fresh link."""

    client: Mapping[str, str]
    deadline: float
    """When it must be done, by the loop's clock."""

    async def agree(self, link: Transport, era: Era) -> InitializeResult:
        """Greet a server the way its era wants, or find out which that is.

        Raises:
            Fault: it speaks no revision that we know, or does not speak.
        """
        if era is Era.HANDSHAKE:
            return await self._shake_hands_or_discover(link)
        try:
            welcome = await self._discover(link, self._left if era is Era.MODERN else min(PROBE, self._left / 3))
        except RpcError as error:
            _refuse_strangers(error)
            welcome = None
        except Lost:
            raise
        except ExchangeFault:
            welcome = None
        return welcome or await self._shake_hands_or_discover(link)

    async def shake_hands(self, link: Transport) -> InitializeResult:
        """Begin a session with `initialize`."""
        link.dialect = RequestDialect()
        params = {"protocolVersion": HANDSHAKE[-1], "capabilities": DECLARED, "clientInfo": self.client}
        result = await link.request("initialize", params, ExchangeTimeouts(self._left, size=WELCOME_LIMIT))
        version = result.get("protocolVersion")
        if version not in HANDSHAKE:
            raise Lost(
                f"the server speaks protocol revision {str(version)[:40]!r}, which is not known here",
                f"known are {', '.join(KNOWN)}: use a version of the server that speaks one of them",
            )
        link.dialect = RequestDialect(version=version)
        await link.notify("notifications/initialized", {})
        return _welcome(version, result, result.get("serverInfo"))

    @property
    def _left(self) -> float:
        return max(0.01, self.deadline - asyncio.get_running_loop().time())

    async def _shake_hands_or_discover(self, link: Transport) -> InitializeResult:
        try:
            return await self.shake_hands(link)
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            # A slow starter may have answered a probe that we had given up: it is modern, and says so now.
            welcome = await self._discover(link, self._left)
            if welcome is None:
                raise
            return welcome

    async def _discover(self, link: Transport, limit: float) -> InitializeResult | None:
        link.dialect = modern_dialect(self.client)
        result = await link.request("server/discover", {}, ExchangeTimeouts(limit, size=WELCOME_LIMIT))
        versions, capabilities = result.get("supportedVersions"), result.get("capabilities")
        if not isinstance(versions, list) or MODERN not in versions or not isinstance(capabilities, dict):
            return None
        meta = result.get("_meta")
        return _welcome(MODERN, result, meta.get(SERVER_KEY) if isinstance(meta, dict) else None)


def _welcome(version: str, result: Mapping[str, Any], info: Any) -> InitializeResult:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return InitializeResult(
        version=version,
        info=info if isinstance(info, dict) else {},
        capabilities=_bounded(capabilities) if isinstance(capabilities, dict) else {},
        instructions=instructions[:INSTRUCTIONS_LIMIT] if isinstance(instructions, str) else "",
    )


def _bounded(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    with suppress(TypeError):  # nested deeper than can be written again
        if values_of(orjson.dumps(capabilities)) <= CAPABILITIES_LIMIT:
            return capabilities
    return {kind: {} for kind in ("tools", "prompts", "resources", "logging", "completions") if kind in capabilities}


def _refuse_strangers(error: RpcError) -> None:
    """Raise when a server names its revisions and there is none that we know."""
    if error.code != UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return
    supported = error.data.get("supported")
    if isinstance(supported, list) and supported and not any(version in KNOWN for version in supported):
        names = ", ".join(str(version)[:40] for version in supported[:5])
        raise Lost(
            f"the server speaks protocol revision {names}, which is not known here",
            f"known are {', '.join(KNOWN)}: use a version of the server that speaks one of them",
        ) from error


SETTLING = 2.0
"""Seconds that a server gets to take the handshake in."""
RELISTEN = 1.0
RELISTEN_CAP = 60.0

_KINDS = ("tools", "prompts", "resources")
_STANDING = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


@dataclass(slots=True)
class Subscriptions:
    """The log level and the watched resources of one server."""

    level: str = ""
    watched: set[str] = field(default_factory=set)

    def note(self, method: str, params: Mapping[str, Any]) -> None:
        """Take a request that holds for later connections too."""
        uri = str(params.get("uri", ""))
        if method == "logging/setLevel":
            self.level = str(params.get("level", ""))
        elif method == "resources/subscribe":
            self.watched.add(uri)
        elif method == "resources/unsubscribe":
            self.watched.discard(uri)


class ServerConnection:
    """One connection to a server, from the end of the handshake on."""

    def __init__(
        self, link: Transport, welcome: InitializeResult, standing: Subscriptions, inbox: Notifications, limit: float
    ) -> None:
        self.link, self.welcome = link, welcome
        self._standing, self._inbox, self._limit = standing, inbox, limit
        self._rewritten = asyncio.Event()
        self._listening = anyio.CancelScope()
        self._is_settled = False
        self._apply_level()

    @property
    def is_watching(self) -> bool:
        """Whether somebody waits for news of a resource, so that the connection must stay."""
        return bool(self._standing.watched)

    async def request(
        self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        What 2026-07-28 no longer has as a request is done in its own way, so that callers need not know the era.
        """
        if method in _STANDING:
            return await self._stand(method, params, patience)
        return await self.link.request(method, params, patience, on_progress)

    async def attend(self) -> None:
        """Hear what the server says by itself, as long as the connection lives."""
        if self.link.dialect.is_modern:
            await self._attend_modern()
        else:
            await self._restore()
            await self.link.listen()

    async def settle(self) -> None:
        """Wait until the server has taken the handshake in: what it asks until then belongs to no call."""
        if self._is_settled or self.link.dialect.is_modern:
            return
        with suppress(ExchangeFault):  # an old server that knows no ping has taken it in all the same
            await self.link.request("ping", {}, ExchangeTimeouts(SETTLING))
        self._is_settled = True

    async def aclose(self) -> None:
        """Close the link."""
        await self.link.aclose()

    async def _stand(self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts) -> dict[str, Any]:
        if not self.link.dialect.is_modern:
            result = await self.link.request(method, params, patience)
            self._standing.note(method, params)
            return result
        self._standing.note(method, params)
        self._apply_level()
        if method.startswith("resources/"):
            self._rewritten.set()
            self._listening.cancel()
        return {}

    def _apply_level(self) -> None:
        dialect = self.link.dialect
        if dialect.is_modern and self._standing.level:
            envelope = {**dialect.envelope, LOG_LEVEL_KEY: self._standing.level}
            self.link.dialect = replace(dialect, envelope=envelope)

    async def _restore(self) -> None:
        try:
            if self._standing.level:
                await self.link.request(
                    "logging/setLevel", {"level": self._standing.level}, ExchangeTimeouts(self._limit)
                )
            for uri in sorted(self._standing.watched):
                await self.link.request("resources/subscribe", {"uri": uri}, ExchangeTimeouts(self._limit))
        except ExchangeFault:
            # The server no longer offers it; whoever asks next is told.
            return

    async def _attend_modern(self) -> None:
        pause = RELISTEN
        while self.link.fault is None:
            self._rewritten.clear()
            wanted = self._wanted()
            if not wanted:
                await self._rewritten.wait()
                continue
            began = anyio.current_time()
            with anyio.CancelScope() as self._listening:
                if await self._listen(wanted):
                    return
            if self._listening.cancelled_caught:
                continue
            pause = RELISTEN if anyio.current_time() - began > RELISTEN_CAP else min(pause * 2, RELISTEN_CAP)
            await anyio.sleep(pause)
            # Nothing is replayed: what changed while nobody listened must be asked for.
            self._inbox.changed()

    async def _listen(self, wanted: Mapping[str, Any]) -> bool:
        """Listen until the stream ends; true when the server does not want to be listened to."""
        try:
            await self.link.request("subscriptions/listen", {"notifications": wanted}, FOREVER)
        except RpcError:
            return True
        except BadStatus as refused:
            return refused.status < 500
        except ExchangeFault:
            return self.link.fault is not None
        return False

    def _wanted(self) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            f"{kind}ListChanged": True for kind in _KINDS if self.welcome.notifies_changes_of(kind)
        }
        if self._standing.watched:
            wanted["resourceSubscriptions"] = sorted(self._standing.watched)
        return wanted


class Connector:
    """Opens connections to one server; what it has learned makes the next one quicker."""

    def __init__(self, spec: ServerSpec, inbox: Notifications, client: Mapping[str, str], era: Era) -> None:
        self.standing = Subscriptions()
        self.link: Transport | None = None
        """The newest link, kept for its last words."""
        self.header_maps: dict[str, HeaderMap] = {}
        """The declared headers of the tools last seen; filled in place, so that open links see it."""
        self._spec, self._inbox, self._client, self._era = spec, inbox, client, era
        self._is_sse = spec.transport == "sse"

    async def open(self, chores: TaskGroup, on_lost: OnLost) -> ServerConnection:
        """Open and negotiate one connection; its background work runs among the chores.

        Raises:
            Fault: it cannot be opened.
        """
        deadline = asyncio.get_running_loop().time() + self._spec.timeouts.start
        negotiator = Negotiator(self._client, deadline)
        if self._spec.transport == "stdio":
            welcome = await self._by_stdio(negotiator, on_lost)
        elif self._is_sse:
            welcome = await self._by_sse(negotiator, chores, on_lost)
        else:
            welcome = await self._by_http(negotiator, chores, on_lost)
        self._era = Era.of(welcome.version)
        assert self.link is not None
        connection = ServerConnection(self.link, welcome, self.standing, self._inbox, self._spec.timeouts.call)
        chores.start_soon(connection.attend)
        return connection

    async def _by_stdio(self, negotiator: Negotiator, on_lost: OnLost) -> InitializeResult:
        try:
            return await self._greet(await start_child(self._spec, self._inbox, on_lost), negotiator, self._era)
        except Lost:
            if self._era is not Era.UNKNOWN or self.link is None or self.link.fault is None:
                raise
        # Some servers end when anything but `initialize` comes first: once more, without the probe.
        child = await start_child(self._spec, self._inbox, on_lost)
        return await self._greet(child, negotiator, Era.HANDSHAKE)

    async def _by_http(self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost) -> InitializeResult:
        # aiohttp takes 0.2 s to import, which a gateway in front of stdio servers alone does not pay.
        from .http import HttpLink

        link = HttpLink(self._spec, self._inbox, chores, on_lost)
        link.header_maps = self.header_maps
        try:
            welcome = await self._greet(link, negotiator, self._era)
        except BadStatus as refused:
            if not 400 <= refused.status < 500:
                raise
            return await self._by_sse_instead(negotiator, chores, on_lost, refused)
        link.renew = partial(self._renew, link)
        return welcome

    async def _by_sse_instead(
        self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost, refused: BadStatus
    ) -> InitializeResult:
        """The rule of the specification for servers older than streamable HTTP."""
        try:
            welcome = await self._by_sse(negotiator, chores, on_lost)
        except ExchangeFault:
            raise refused from None
        self._is_sse = True
        return welcome

    async def _by_sse(self, negotiator: Negotiator, chores: TaskGroup, on_lost: OnLost) -> InitializeResult:
        from .sse import open_stream

        peer = await open_stream(self._spec, self._inbox, chores, on_lost)
        return await self._greet(peer, negotiator, Era.HANDSHAKE)

    def expect(self, era: Era) -> None:
        """Try this era first, next time."""
        self._era = era

    async def _greet(self, link: Transport, negotiator: Negotiator, era: Era) -> InitializeResult:
        self.link = link
        try:
            return await negotiator.agree(link, era)
        except Expired:
            await link.aclose()
            where = f"what it wrote to stderr is shown by: portico doctor {self._spec.name}"
            raise Lost(
                f"the server did not answer the handshake within {self._spec.timeouts.start:g} s",
                *([where] if link.stderr.strip() else []),
                "raise `timeouts.start` of this server if it needs longer",
            ) from None
        except BaseException:
            await link.aclose()
            raise

    async def _renew(self, link: Transport) -> None:
        deadline = asyncio.get_running_loop().time() + self._spec.timeouts.start
        await Negotiator(self._client, deadline).shake_hands(link)


FIRST = 0.5
CAP = 300.0
PARKED = 1800.0
"""Seconds for which refused credentials are not tried again; a person has to act."""


class Backoff:
    """The first new try is free, the next waits half a second, each further one twice as long, with jitter."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._failures = 0
        self._until = 0.0

    def fail(self, now: float, *, parked: bool = False) -> None:
        """Count one failure."""
        self._failures += 1
        delay = 0.0 if self._failures == 1 else min(FIRST * 2.0 ** min(self._failures - 2, 20), CAP)
        # Jitter only lengthens: many gateways must not come back at one moment, nor any too early.
        self._until = now + (PARKED if parked else delay * (1 + 0.1 * self._jitter()))

    def reset(self) -> None:
        """Forget all failures."""
        self._failures, self._until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next try is allowed."""
        return max(0.0, self._until - now)


logger = logging.getLogger(__name__)

DRAIN = 5.0
"""Seconds that calls in flight get when the gateway closes."""
STEADY = 60.0
"""A connection that has lived so long, or has answered a call, was no failure."""

CALLS_AT_ONCE = 256
"""Calls that one server is given at a time: a slow one must not gather all of the gateway's work."""

Outcome = ServerConnection | ExchangeFault


class Owner:
    """Keeps at most one connection to one server."""

    def __init__(self, server: str, dialler: Connector, idle: float, start: float) -> None:
        self._server, self._dialler, self._idle, self._start = server, dialler, idle, start
        self._backoff = Backoff()
        self._connection: ServerConnection | None = None
        self._opening: asyncio.Future[Outcome] | None = None
        self._opening_scope: anyio.CancelScope | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._in_flight = 0
        self._used_at = self._opened_at = 0.0
        self._has_worked = self._is_closing = False
        self.failure: ExchangeFault | None = None
        """Why there is no connection, when one was wanted or lost."""

    @property
    def connection(self) -> ServerConnection | None:
        """The open connection."""
        return self._connection

    async def request(
        self, method: str, params: Mapping[str, Any], patience: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request over the connection; what was certainly not sent is tried on one more.

        Raises:
            Fault: there is no answer.
        """
        for attempt in (1, 2):
            connection = self._connection or await self._connect()
            if self._in_flight >= CALLS_AT_ONCE:
                raise ExchangeFault(
                    f"the server is at work on {CALLS_AT_ONCE} calls already, the most that it is given at a time",
                    "make the call again when some of them have ended",
                )
            self._in_flight += 1
            try:
                result = await connection.request(method, params, patience, on_progress)
                self._has_worked = True
                return result
            except Lost as fault:
                if fault.sent is not Sent.NOTHING or attempt == 2:
                    raise
            finally:
                self._release()
        raise AssertionError("a second attempt returns or raises")

    async def use(self, work: Callable[[ServerConnection], Any]) -> Any:
        """Run some work over one connection, which stays open meanwhile.

        Raises:
            Fault: there is no connection, or the work failed.
        """
        connection = self._connection or await self._connect()
        self._in_flight += 1
        try:
            return await work(connection)
        finally:
            self._release()

    def retry_now(self) -> None:
        """Forget earlier failures: somebody has mended something."""
        self._backoff.reset()

    async def aclose(self) -> None:
        """Let calls in flight end, for a bounded time, and close the connection for good."""
        self._is_closing = True
        self._connection = None
        self._wake.set()
        if self._opening_scope is not None:
            self._opening_scope.cancel()
        if self._task is not None and not self._task.done():
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._task])

    async def _connect(self) -> ServerConnection:
        if self._is_closing:
            raise Lost("the gateway is closing")
        if self._opening is None:
            self._refuse_in_backoff()
            self._opening = asyncio.get_running_loop().create_future()
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._run(), name=f"upstream {self._server}")
        with waiting_for_start():
            outcome = await asyncio.shield(self._opening)
        if isinstance(outcome, ExchangeFault):
            raise outcome.with_traceback(None)
        return outcome

    def _refuse_in_backoff(self) -> None:
        wait = self._backoff.wait(asyncio.get_running_loop().time())
        if wait > 0:
            reason = self.failure.details if self.failure is not None else ()
            raise Lost(*reason, f"this was not tried again yet; the next try is possible in {_spell(wait)}")

    async def _run(self) -> None:
        while self._opening is not None:
            try:
                await self._live(self._opening)
            except Exception:
                logger.exception("the connection to server %r failed in a way that was not foreseen", self._server)
                self._fail(Lost("the gateway made a mistake with this server; see its log"))

    async def _live(self, opening: asyncio.Future[Outcome]) -> None:
        """One connection, from opening to closing."""
        outcome: Outcome = Lost("the gateway stopped opening the connection")
        try:
            async with anyio.create_task_group() as chores:
                outcome = await self._open(chores)
                self._opening = None
                opening.set_result(outcome)
                if isinstance(outcome, ServerConnection):
                    await self._watch(outcome)
                chores.cancel_scope.cancel()
        finally:
            self._connection = None
            if self._opening is opening:
                self._opening = None
            if not opening.done():
                opening.set_result(
                    outcome if isinstance(outcome, ExchangeFault) else Lost("the connection was stopped")
                )
            if isinstance(outcome, ServerConnection):
                await outcome.aclose()

    async def _open(self, chores: TaskGroup) -> Outcome:
        fault: ExchangeFault = Lost("the gateway is closing")
        with anyio.move_on_after(self._start + 1.0) as scope:
            self._opening_scope = scope
            if self._is_closing:
                return fault
            try:
                connection = await self._dialler.open(chores, self._on_lost)
            except ExchangeFault as found:
                # The call that waits for this connection has not been sent, whatever the handshake sent.
                kind = Unauthorized if isinstance(found, Unauthorized) else Lost
                fault = kind(*found.details)
            else:
                self._adopt(connection)
                return connection
        if scope.cancelled_caught and not self._is_closing:
            fault = Lost(f"the server did not start within {self._start:g} s", "raise its `timeouts.start`")
        self._fail(fault)
        return fault

    def _adopt(self, connection: ServerConnection) -> None:
        self._wake.clear()
        self._used_at = self._opened_at = asyncio.get_running_loop().time()
        self._has_worked, self.failure = False, None
        self._connection = None if self._is_closing else connection

    def _on_lost(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.link.fault is not None:
            self._fail(connection.link.fault)
            self._wake.set()

    def _fail(self, fault: ExchangeFault) -> None:
        now = asyncio.get_running_loop().time()
        if self._has_worked or (self._opened_at and now - self._opened_at > STEADY):
            self._backoff.reset()
        self._has_worked, self._opened_at = False, 0.0
        self.failure = fault
        self._backoff.fail(now, parked=isinstance(fault, Unauthorized))

    async def _watch(self, connection: ServerConnection) -> None:
        """Return when the connection has died, is no longer used, or is to be closed."""
        while connection.link.fault is None and not self._is_closing:
            left = self._idle_left(connection)
            if left <= 0:
                return
            with anyio.move_on_after(left):
                await self._wake.wait()
        with anyio.move_on_after(DRAIN):
            while self._in_flight and connection.link.fault is None:
                self._wake.clear()
                await self._wake.wait()

    def _idle_left(self, connection: ServerConnection) -> float:
        if not self._idle:
            return inf
        if self._in_flight or connection.is_watching:
            return self._idle
        return self._used_at + self._idle - asyncio.get_running_loop().time()

    def _release(self) -> None:
        self._in_flight -= 1
        self._used_at = asyncio.get_running_loop().time()
        if self._is_closing and not self._in_flight:
            self._wake.set()


def _spell(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
