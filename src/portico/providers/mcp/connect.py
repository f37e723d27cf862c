"""The connection to one server: opened, negotiated, listened to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import orjson
from anyio.abc import TaskGroup

from portico.domain.call import OnProgress
from portico.domain.server import ServerSpec, pause_after

from .message_limits_and_errors import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    HANDSHAKE,
    LOG_LEVEL_KEY,
    MODERN,
    SERVER_KEY,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    BadStatus,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    Expired,
    JsonObject,
    Lost,
    OnLost,
    RequestDialect,
    RpcError,
    Transport,
    count_values,
)
from .server_questions import DECLARED, Notifications
from .stdio import Launch, start_process

if TYPE_CHECKING:
    from .streamable_http import HeaderMap

Result = TypeVar("Result")

Tell = Callable[..., None]
"""Takes the kind of an event, its text and what was written to stderr."""
PROBE = 2.0
"""Seconds that a server of unknown era gets to answer the probe."""
INITIALIZE_BOUNDS = Bounds(1024 * 1024)
"""The most that a server may say of itself."""
INSTRUCTIONS_LIMIT = 32_000
"""Characters of its instructions that are kept."""
CAPABILITIES_LIMIT = 1_000
"""Values in the capabilities that it declares; of more, only the names are kept."""


class Era(StrEnum):
    """The way in which a server begins a connection."""

    UNKNOWN = "unknown"
    HANDSHAKE = "handshake"
    MODERN = "modern"

    @classmethod
    def of(cls, version: str) -> Era:
        """The era of a revision."""
        if version == MODERN:
            return cls.MODERN
        return cls.HANDSHAKE if version in HANDSHAKE else cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeResult:
    """The server's description of itself when a connection opens."""

    version: str
    info: JsonObject = field(default_factory=dict)
    capabilities: JsonObject = field(default_factory=dict)
    instructions: str = ""

    @classmethod
    def read(cls, version: str, result: JsonObject, info: Any) -> InitializeResult:
        """The kept part of an answer to `initialize` or `server/discover`."""
        capabilities, instructions = result.get("capabilities"), result.get("instructions")
        return cls(
            version=version,
            info=info if isinstance(info, dict) else {},
            capabilities=_bound_capabilities(capabilities) if isinstance(capabilities, dict) else {},
            instructions=instructions[:INSTRUCTIONS_LIMIT] if isinstance(instructions, str) else "",
        )

    def notifies_changes_of(self, kind: str) -> bool:
        """Whether the server tells when its `tools`, `prompts` or `resources` change."""
        declared = self.capabilities.get(kind)
        return isinstance(declared, dict) and declared.get("listChanged") is True


def _bound_capabilities(capabilities: JsonObject) -> JsonObject:
    with suppress(TypeError):  # nested deeper than can be written again
        if count_values(orjson.dumps(capabilities)) <= CAPABILITIES_LIMIT:
            return capabilities
    return {kind: {} for kind in ("tools", "prompts", "resources", "logging", "completions") if kind in capabilities}


@dataclass(frozen=True, slots=True)
class Negotiator:
    """Agrees on a revision over a fresh transport."""

    client: Mapping[str, str]
    deadline: float
    """When it must be done, by the loop's clock."""

    async def agree(self, transport: Transport, era: Era) -> InitializeResult:
        """Greet a server the way its era wants, or find out which that is.

        Raises:
            ExchangeFault: it speaks no revision that we know, or does not speak.
        """
        found = None
        if era is not Era.HANDSHAKE:
            try:
                left = self._left
                found = await self._discover(transport, left if era is Era.MODERN else min(PROBE, left / 3))
            except RpcError as error:
                supported = error.data.get("supported") if isinstance(error.data, dict) else None
                named = supported if error.code == UNSUPPORTED_VERSION and isinstance(supported, list) else []
                if named and not any(version in (*HANDSHAKE, MODERN) for version in named):
                    raise _unknown_revision(", ".join(str(version)[:40] for version in named[:5])) from error
            except Lost:
                raise
            except ExchangeFault:
                pass
        if found is not None:
            return found
        try:
            return await self.initialize(transport)
        except RpcError as error:
            # A slow starter may have answered a probe that we had given up: it is modern, and says so now.
            if error.code != UNSUPPORTED_VERSION or (found := await self._discover(transport, self._left)) is None:
                raise
            return found

    async def initialize(self, transport: Transport) -> InitializeResult:
        """Begin a session with `initialize`."""
        transport.dialect = RequestDialect()
        params = {"protocolVersion": HANDSHAKE[-1], "capabilities": DECLARED, "clientInfo": self.client}
        limits = ExchangeTimeouts(self._left, bounds=INITIALIZE_BOUNDS)
        result = await transport.request("initialize", params, limits)
        version = result.get("protocolVersion")
        if version not in HANDSHAKE:
            raise _unknown_revision(repr(str(version)[:40]))
        transport.dialect = RequestDialect(version=version)
        await transport.notify("notifications/initialized", {})
        return InitializeResult.read(version, result, result.get("serverInfo"))

    @property
    def _left(self) -> float:
        return max(0.01, self.deadline - asyncio.get_running_loop().time())

    async def _discover(self, transport: Transport, limit: float) -> InitializeResult | None:
        # What the client of a call can be asked goes along with that call.
        envelope = {VERSION_KEY: MODERN, CLIENT_KEY: self.client, CAPABILITIES_KEY: {}}
        transport.dialect = RequestDialect(version=MODERN, envelope=envelope)
        limits = ExchangeTimeouts(limit, bounds=INITIALIZE_BOUNDS)
        result = await transport.request("server/discover", {}, limits)
        versions, capabilities = result.get("supportedVersions"), result.get("capabilities")
        if not isinstance(versions, list) or MODERN not in versions or not isinstance(capabilities, dict):
            return None
        meta = result.get("_meta")
        return InitializeResult.read(MODERN, result, meta.get(SERVER_KEY) if isinstance(meta, dict) else None)


def _unknown_revision(named: str) -> Lost:
    return Lost(
        f"the server speaks protocol revision {named}, which is not known here",
        f"known are {', '.join((*HANDSHAKE, MODERN))}: use a version of the server that speaks one of them",
        cause="revision",
    )


SETTLING = 2.0
"""Seconds that a server gets to take the handshake in."""
RELISTEN, RELISTEN_CAP = 1.0, 60.0
_SUBSCRIBING = frozenset({"ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})


@dataclass(slots=True)
class Subscriptions:
    """The log level and the watched resources of one server; they hold for later connections too."""

    level: str = ""
    watched: set[str] = field(default_factory=set)

    def note(self, method: str, params: JsonObject) -> None:
        """Take a request that changes them."""
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
        self,
        transport: Transport,
        about: InitializeResult,
        subscriptions: Subscriptions,
        notifications: Notifications,
        limit: float,
    ) -> None:
        self.transport, self.about, self.subscriptions = transport, about, subscriptions
        self._notifications, self._limit = notifications, limit
        self._rewritten = asyncio.Event()
        self._listening = anyio.CancelScope()
        self._is_settled = False
        self._apply_level()

    async def request(
        self, method: str, params: JsonObject, timeouts: ExchangeTimeouts, on_progress: OnProgress | None = None
    ) -> dict[str, Any]:
        """Send one request and return the result object of its answer.

        What 2026-07-28 no longer has as a request is done in its own way, so that callers need not know the era.
        """
        if method not in _SUBSCRIBING:
            return await self.transport.request(method, params, timeouts, on_progress)
        if not self.transport.dialect.is_modern:
            result = await self.transport.request(method, params, timeouts)
            self.subscriptions.note(method, params)
            return result
        self.subscriptions.note(method, params)
        self._apply_level()
        if method.startswith("resources/"):
            self._rewritten.set()
            self._listening.cancel()
        return {}

    async def attend(self) -> None:
        """Hear what the server says by itself, as long as the connection lives."""
        if self.transport.dialect.is_modern:
            await self._attend_modern()
        else:
            await self._restore()
            await self.transport.listen()

    async def settle(self) -> None:
        """Wait until the server has taken the handshake in: what it asks until then belongs to no call."""
        if self._is_settled or self.transport.dialect.is_modern:
            return
        with suppress(ExchangeFault):  # an old server that knows no ping has taken it in all the same
            await self.transport.request("ping", {}, ExchangeTimeouts(SETTLING))
        self._is_settled = True

    def _apply_level(self) -> None:
        dialect = self.transport.dialect
        if dialect.is_modern and self.subscriptions.level:
            envelope = {**dialect.envelope, LOG_LEVEL_KEY: self.subscriptions.level}
            self.transport.dialect = replace(dialect, envelope=envelope)

    async def _restore(self) -> None:
        requests = [("logging/setLevel", {"level": self.subscriptions.level})] if self.subscriptions.level else []
        requests += [("resources/subscribe", {"uri": uri}) for uri in sorted(self.subscriptions.watched)]
        # If the server no longer offers it, whoever asks next is told.
        with suppress(ExchangeFault):
            for method, params in requests:
                await self.transport.request(method, params, ExchangeTimeouts(self._limit))

    async def _attend_modern(self) -> None:
        failures = 0
        while self.transport.fault is None:
            self._rewritten.clear()
            kinds = [kind for kind in ("tools", "prompts", "resources") if self.about.notifies_changes_of(kind)]
            wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
            if self.subscriptions.watched:
                wanted["resourceSubscriptions"] = sorted(self.subscriptions.watched)
            if not wanted:
                await self._rewritten.wait()
                continue
            began = anyio.current_time()
            with anyio.CancelScope() as self._listening:
                if await self._listen(wanted):
                    return
            if self._listening.cancelled_caught:
                continue
            failures = 0 if anyio.current_time() - began > RELISTEN_CAP else failures + 1
            await anyio.sleep(pause_after(failures + 1, RELISTEN, RELISTEN_CAP))
            # Nothing is replayed: what changed while nobody listened must be asked for.
            self._notifications.changed()

    async def _listen(self, wanted: JsonObject) -> bool:
        """Listen until the stream ends; true when the server does not want to be listened to."""
        try:
            await self.transport.request("subscriptions/listen", {"notifications": wanted}, ExchangeTimeouts())
        except RpcError:
            return True
        except BadStatus as refused:
            return refused.status < 500
        except ExchangeFault:
            return self.transport.fault is not None
        return False


class Connector:
    """Opens connections to one server; what it has learned makes the next one quicker."""

    def __init__(
        self, spec: ServerSpec, notifications: Notifications, client: Mapping[str, str], era: Era, tell: Tell
    ) -> None:
        self.subscriptions, self.tell = Subscriptions(), tell
        self.transport: Transport | None = None
        """The newest one, kept for its last words."""
        self.header_maps: dict[str, HeaderMap] = {}
        """The declared headers of the tools last seen; filled in place, so that open transports see it."""
        self.era = era
        """Tried first, next time."""
        self.spec, self._notifications, self._client = spec, notifications, client
        self._is_sse = spec.transport == "sse"

    async def open(self, tasks: TaskGroup, on_lost: OnLost) -> ServerConnection:
        """Open and negotiate one connection; its background work runs in the task group.

        Raises:
            ExchangeFault: it cannot be opened.
        """
        negotiator = self._negotiator()
        if self.spec.transport == "stdio":
            about = await self._open_stdio(negotiator, on_lost)
        elif self._is_sse:
            about = await self._open_sse(negotiator, tasks, on_lost)
        else:
            about = await self._open_http(negotiator, tasks, on_lost)
        self.era = Era.of(about.version)
        assert self.transport is not None
        connection = ServerConnection(
            self.transport, about, self.subscriptions, self._notifications, self.spec.timeouts.call
        )
        tasks.start_soon(connection.attend)
        return connection

    def is_there(self) -> bool:
        """Whether what a stdio server is started with can be found now."""
        try:
            Launch.plan(self.spec)
        except Lost:
            return False
        return True

    def learn_headers(self, tools: Iterable[JsonObject]) -> None:
        """Take the tools that a server offers, some of which may want headers."""
        self.header_maps.clear()
        if self.spec.transport != "stdio":
            from .streamable_http import header_maps

            self.header_maps.update(header_maps(tools))

    def _negotiator(self) -> Negotiator:
        return Negotiator(self._client, asyncio.get_running_loop().time() + self.spec.timeouts.start)

    async def _open_stdio(self, negotiator: Negotiator, on_lost: OnLost) -> InitializeResult:
        start = partial(start_process, self.spec, self._notifications, on_lost)
        try:
            return await self._negotiate(await start(), negotiator, self.era)
        except Lost:
            if self.era is not Era.UNKNOWN or self.transport is None or self.transport.fault is None:
                raise
        # Some servers end when anything but `initialize` comes first: once more, without the probe.
        return await self._negotiate(await start(), negotiator, Era.HANDSHAKE)

    async def _open_http(self, negotiator: Negotiator, tasks: TaskGroup, on_lost: OnLost) -> InitializeResult:
        # aiohttp takes 0.2 s to import, which a gateway in front of stdio servers alone does not pay.
        from .streamable_http import HttpTransport

        transport = HttpTransport(self.spec, self._notifications, tasks, on_lost)
        transport.header_maps = self.header_maps
        try:
            about = await self._negotiate(transport, negotiator, self.era)
        except BadStatus as refused:
            if not 400 <= refused.status < 500:
                raise
            # The rule of the specification for servers older than streamable HTTP.
            try:
                about = await self._open_sse(negotiator, tasks, on_lost)
            except ExchangeFault:
                raise refused from None
            self._is_sse = True
            return about

        async def renew() -> None:
            await self._negotiator().initialize(transport)

        transport.renew = renew
        return about

    async def _open_sse(self, negotiator: Negotiator, tasks: TaskGroup, on_lost: OnLost) -> InitializeResult:
        from .sse import open_stream

        transport = await open_stream(self.spec, self._notifications, tasks, on_lost)
        return await self._negotiate(transport, negotiator, Era.HANDSHAKE)

    async def _negotiate(self, transport: Transport, negotiator: Negotiator, era: Era) -> InitializeResult:
        self.transport = transport
        try:
            return await negotiator.agree(transport, era)
        except BaseException as error:
            await transport.aclose()
            if not isinstance(error, Expired):
                raise
            where = f"what it wrote to stderr is shown by: portico doctor {self.spec.name}"
            raise Lost(
                f"the server did not answer the handshake within {self.spec.timeouts.start:g} s",
                *([where] if transport.stderr.strip() else []),
                "raise `timeouts.start` of this server if it needs longer",
                cause="timeout",
            ) from None
