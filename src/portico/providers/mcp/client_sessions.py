"""Sessions with one server: the one that all clients share, or one for each client, bounded in number and time."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from portico.domain.call import Caller, OnProgress
from portico.errors import Busy

from .connect import Connector, ServerConnection
from .lifecycle import CLOSING, ConnectionLifecycle
from .message_limits_and_errors import CAPABILITIES_KEY, ExchangeFault, ExchangeTimeouts, JsonObject, Lost
from .server_questions import STATE, AskableClient, Notifications, ServerQuestions

logger = logging.getLogger(__name__)

STDIO_SESSIONS, HTTP_SESSIONS = 16, 64
"""The most sessions of single clients, where the config says nothing: a process costs more than a connection."""
UNSUBSCRIBE = "resources/unsubscribe"


@dataclass(slots=True, eq=False, kw_only=True)
class ServerSession:
    """One session with a server: its connection, what it has asked, and what it tells."""

    connector: Connector
    lifecycle: ConnectionLifecycle
    questions: ServerQuestions
    notifications: Notifications
    is_one_clients: bool = False
    """Whether all calls over it are the same client's, so that whatever the server asks is meant for that client."""
    users: int = 0
    """Requests of its client that are under way, counted where sessions are bounded."""
    waits_for: frozenset[asyncio.Task[None]] = frozenset()
    """Sessions that must have ended before this one is opened."""

    @property
    def is_unused(self) -> bool:
        """Whether nothing is lost for anybody who waits, when it is closed now."""
        return not (self.users or self.questions.is_waiting or self.connector.subscriptions.watched)

    async def exchange(
        self,
        method: str,
        params: JsonObject,
        timeouts: ExchangeTimeouts,
        on_progress: OnProgress | None,
        caller: Caller | None,
    ) -> dict[str, Any]:
        """Send one request; a server of the handshake era may ask its client something meanwhile.

        Raises:
            ExchangeFault: there is no answer.
        """
        connection = self.lifecycle.connection
        if connection is not None and connection.transport.dialect.is_modern:
            return await self.lifecycle.request(method, params, timeouts, on_progress)
        state = params.get("requestState")
        askable = params.get("_meta", {}).get(CAPABILITIES_KEY)
        if not askable and state is None:
            return await self.questions.run(self.lifecycle.request(method, params, timeouts, on_progress))
        whose = None if caller is None else (caller.name, caller.surface)
        bound = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
        client = AskableClient.of(askable, whose, method, bound)
        if isinstance(state, str) and state.startswith(STATE):
            return await self.questions.resume(state, client, params.get("inputResponses"), on_progress)
        if not self.is_one_clients:
            # What a shared server asks at its start belongs to no call, and is refused before this one is under way.
            await self.lifecycle.use(ServerConnection.settle)
        run = partial(self.lifecycle.request, method, params)
        return await self.questions.converse(client, run, on_progress, timeouts)

    def retry_now(self) -> None:
        """Let the next use try again at once, although earlier ones failed."""
        self.lifecycle.retry_now()

    async def wait_until_idle(self) -> None:
        """Return when no request is in flight."""
        await self.lifecycle.wait_until_idle()

    async def aclose(self) -> None:
        """Let requests in flight end, for a bounded time, and close the connection for good."""
        self.questions.close()
        await self.lifecycle.aclose()
        self.notifications.close()


class NewSession(Protocol):
    """Makes the session of one client, without opening it."""

    def __call__(self, client: str, /) -> ServerSession: ...


class NoRoom(ExchangeFault):
    """Every session that may be open is in use."""

    error = Busy


@dataclass(slots=True, kw_only=True)
class ClientSessions:
    """The sessions that a server's clients have of their own; a new one takes the place of the one unused longest.

    Whoever has no name shares the main session, which also lists what the server offers.
    """

    main: ServerSession
    most: int
    new_session: NewSession
    _by_client: dict[str, ServerSession] = field(default_factory=dict)
    """The session unused longest comes first."""
    _leaving: set[str] = field(default_factory=set)
    """Clients that are gone while a request of theirs is still under way."""
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _is_closed: bool = False

    @property
    def all(self) -> list[ServerSession]:
        """Every session, the main one first."""
        return [self.main, *self._by_client.values()]

    @property
    def open(self) -> list[ServerSession]:
        """The clients' sessions that have a connection now."""
        return [session for session in self._by_client.values() if session.lifecycle.connection is not None]

    async def exchange(
        self,
        method: str,
        params: JsonObject,
        timeouts: ExchangeTimeouts,
        on_progress: OnProgress | None,
        caller: Caller | None,
    ) -> dict[str, Any]:
        """Send one request over the session of its client.

        Raises:
            ExchangeFault: there is no answer, or no room for one more session.
        """
        client = caller.client if caller is not None else ""
        if not client:
            return await self.main.exchange(method, params, timeouts, on_progress, caller)
        if method == UNSUBSCRIBE and self._unsubscribes(client, params):
            return {}
        session = self._session_of(client)
        session.users += 1
        try:
            while session.waits_for:
                await asyncio.wait(session.waits_for)
                session.waits_for = frozenset()
            return await session.exchange(method, params, timeouts, on_progress, caller)
        finally:
            session.users -= 1
            if client in self._leaving:
                self.forget(client)

    def forget(self, client: str) -> None:
        """Close the session of a client that is gone, as soon as nothing of it is under way; does not wait."""
        session = self._by_client.get(client)
        if session is not None and session.users:
            self._leaving.add(client)
            return
        self._leaving.discard(client)
        if session is not None:
            self._close_soon(client)

    def retry_now(self) -> None:
        """Let the next use of each session try again at once."""
        for session in self.all:
            session.retry_now()

    async def wait_until_idle(self) -> None:
        """Return when no request is in flight in any session."""
        await asyncio.gather(*(session.wait_until_idle() for session in self.all))

    async def aclose(self) -> None:
        """Close all sessions at once; each gets the same bounded time."""
        self._is_closed = True
        for client in list(self._by_client):
            self._close_soon(client)
        await asyncio.gather(self.main.aclose(), *self._closing, return_exceptions=True)

    def _unsubscribes(self, client: str, params: JsonObject) -> bool:
        """End a subscription that no server knows of: none is started to be told."""
        session = self._by_client.get(client)
        if session is not None and session.lifecycle.connection is None:
            session.connector.subscriptions.note(UNSUBSCRIBE, params)
        return session is None or session.lifecycle.connection is None

    def _session_of(self, client: str) -> ServerSession:
        """The session of a client, which is the one used last from now on."""
        session = self._by_client.pop(client, None)
        if session is None:
            if self._is_closed:
                raise Lost(CLOSING)
            self._make_room()
            session = self.new_session(client)
            # A process that is still ending counts: there are never more of them than the limit says.
            if len(self._by_client) + len(self._closing) >= self.most:
                session.waits_for = frozenset(self._closing)
        self._by_client[client] = session
        return session

    def _make_room(self) -> None:
        if len(self._by_client) < self.most:
            return
        unused = next((name for name, session in self._by_client.items() if session.is_unused), None)
        if unused is None:
            raise NoRoom(
                f"each client has a session of its own with this server, and all {self.most} are in use",
                "make the call again in a while, or raise `sessions: {per: client, limit: ...}` of this server",
            )
        self._close_soon(unused)

    def _close_soon(self, client: str) -> None:
        closing = asyncio.get_running_loop().create_task(_close(self._by_client.pop(client)))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _close(session: ServerSession) -> None:
    try:
        await session.aclose()
    except Exception:
        logger.exception("the session of one client could not be closed")
