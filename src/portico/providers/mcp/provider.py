"""The provider of one upstream MCP server: everything it offers, page by page, and its calls."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence, Set
from dataclasses import astuple, replace
from functools import partial
from time import time
from typing import Any

import anyio
import anyio.to_thread
import orjson

from portico.domain.call import Caller, OnProgress
from portico.domain.journal_entries import FleetEvent, OnEvent
from portico.domain.server import Asked, ClientSessionLimits, Health, Isolation, Offering, ServerSpec, State
from portico.errors import LAST_WORDS, CallError
from portico.protocols import OnChange, OnNotice, OnQuestion
from portico.text.redaction import Redactor, certain_secrets_of, secrets_of

from .client_sessions import HTTP_SESSIONS, STDIO_SESSIONS, ClientSessions, ServerSession
from .connect import Connector, Era, ServerConnection
from .lifecycle import ConnectionLifecycle
from .message_limits_and_errors import (
    COUNTED_FROM,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    VALUES_LIMIT,
    Bounds,
    ExchangeFault,
    ExchangeTimeouts,
    JsonObject,
    Lost,
    RpcError,
    TooLarge,
    count_values,
)
from .server_questions import Notifications, ServerQuestions
from .stdio import program_mark

PAGES = 1_000
ITEMS = 20_000
LISTS_LIMIT = 32 * 1024 * 1024
"""Bytes of all lists of one server together, of what is kept and of what is left out."""
VALUES = 1_000_000
"""JSON values in all definitions of one server that are kept."""
DEFINITION_LIMIT = 1024 * 1024
"""Bytes of one definition that is passed on at all; those who take it in have lower limits, and say so."""
BREATH = 256 * 1024
"""Bytes of definitions that are measured before others get their turn."""
CURSOR_LIMIT = 10_000
SHORT = 200
LONG = 4_000
"""Characters of what a server says of itself: its name and version, and its description."""

RENEWED_AFTER = 86_400.0
"""Seconds after which a server of which an earlier run knew is asked again, although nothing tells of a change."""
MARK_SECONDS = 2.0
NEVER = Asked()

Items = tuple[JsonObject, ...]


class ServerLists:
    """Asks one server for its lists, as far as there is room for them."""

    def __init__(self, connection: ServerConnection, timeouts: ExchangeTimeouts) -> None:
        self._connection, self._timeouts = connection, timeouts
        self._bytes, self._values = LISTS_LIMIT, VALUES
        """The room that is left for all lists together, over all their pages."""
        self._left_out = 0
        """Definitions of the current list that are too large by themselves."""
        self.limited: list[str] = []
        """The reasons that lists are not complete."""

    async def offering(self, server: str) -> Offering:
        """Everything that the server offers; only its tools must be readable.

        Raises:
            ExchangeFault: the tools cannot be listed.
        """
        about = self._connection.about
        declared = about.capabilities
        info = {key: value for key, value in about.info.items() if isinstance(value, str)}
        # A server that declares nothing at all is asked for tools nevertheless: old ones forget to say.
        has_tools = "tools" in declared or not declared.keys() & {"prompts", "resources"}
        return Offering(
            server=server,
            title=(info.get("title") or info.get("name", ""))[:SHORT],
            version=info.get("version", "")[:SHORT],
            description=info.get("description", "")[:LONG],
            instructions=about.instructions,
            protocol=about.version,
            capabilities=declared,
            tools=await self._list("tools", "tools/list", "tools") if has_tools else (),
            prompts=await self._list_if("prompts" in declared, "prompts", "prompts/list", "prompts"),
            resources=await self._list_if("resources" in declared, "resources", "resources/list", "resources"),
            templates=await self._list_if(
                "resources" in declared, "resource templates", "resources/templates/list", "resourceTemplates"
            ),
            limited="; ".join(self.limited),
        )

    async def _list_if(self, declared: bool, name: str, method: str, key: str) -> Items:
        """Every page of a list that may be missing and may fail."""
        try:
            return await self._list(name, method, key) if declared else ()
        except ExchangeFault as fault:
            if self._connection.transport.fault is not None:
                raise
            self.limited.append(f"{name}: not readable: {fault.details[0]}")
            return ()

    async def _list(self, name: str, method: str, key: str) -> Items:
        """Every page of one list; a server without that list has an empty one.

        Raises:
            ExchangeFault: a page cannot be read.
        """
        items: list[JsonObject] = []
        cursors: set[str] = set()
        cursor: Any = None
        limited: str | None = None
        self._left_out = 0
        while limited is None:
            if len(cursors) == PAGES:
                limited = f"only the first {PAGES:,} pages are read"
                break
            try:
                result = await self._read_page(method, {"cursor": cursor} if cursors else {})
            except TooLarge as fault:
                if not items:
                    raise
                limited = f"the rest was not read: {fault.details[0]}"
                break
            found, cursor = result.get(key), result.get("nextCursor")
            items += await self._take(found if isinstance(found, list) else ())
            limited = self._why_it_ends(len(items), cursor, cursors)
            if limited is None:
                cursors.add(cursor)
        if limited:
            self.limited.append(f"{name}: {limited}")
        return tuple(items[:ITEMS])

    async def _read_page(self, method: str, params: JsonObject) -> JsonObject:
        # What is left for all lists is the most that one page may have, and is known while it is being read.
        bounds = Bounds(max(COUNTED_FROM, self._bytes), VALUES_LIMIT)
        try:
            return await self._connection.request(method, params, replace(self._timeouts, bounds=bounds))
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return {}
            raise

    async def _take(self, items: Sequence[Any]) -> list[JsonObject]:
        """The items that fit; the first that finds no room ends the list."""
        taken: list[JsonObject] = []
        measured = 0
        for item in items:
            if not isinstance(item, dict):
                continue
            size = self._measure(item)
            measured += size
            if self._is_full:
                break
            if size <= DEFINITION_LIMIT:
                taken.append(item)
            else:
                self._left_out += 1
            if measured > BREATH:
                measured = 0
                await asyncio.sleep(0)
        return taken

    def _measure(self, item: JsonObject) -> int:
        try:
            text = orjson.dumps(item)
        except TypeError:
            # Nested deeper than can be written: it is refused by name where definitions are taken in.
            self._bytes -= BREATH
            return BREATH
        self._bytes -= len(text)
        if len(text) <= DEFINITION_LIMIT:
            self._values -= count_values(text)
        return len(text)

    @property
    def _is_full(self) -> bool:
        return self._bytes <= 0 or self._values <= 0

    def _why_it_ends(self, items: int, cursor: Any, cursors: Set[str]) -> str | None:
        """The reason that a list ends here, empty when it is complete; None when there is another page."""
        if items > ITEMS:
            return f"only the first {ITEMS:,} are taken"
        if self._is_full:
            room = f"{LISTS_LIMIT >> 20} MiB and {VALUES:,} values"
            return f"only the first {items:,} are taken: all lists of a server may have {room} together"
        if not isinstance(cursor, str) or not cursor:
            return (
                f"{self._left_out} with more than {DEFINITION_LIMIT >> 20} MiB are left out" if self._left_out else ""
            )
        if cursor in cursors:
            return "the server repeats a page, so the rest was not read"
        return "the server's cursor is too long, so the rest was not read" if len(cursor) > CURSOR_LIMIT else None


_TEXTS = ("title", "version", "description", "instructions", "limited")
_LISTS = ("tools", "prompts", "resources", "templates")
ALL_PARTS = 10_000_000
CALL = "tools/call"


class UpstreamProvider:
    """Offers the tools of one upstream server and runs them; nothing starts before the first use."""

    def __init__(
        self,
        spec: ServerSpec,
        *,
        on_change: OnChange,
        on_notice: OnNotice,
        client_version: str,
        protocol: str = "",
        on_event: OnEvent = lambda event: None,
        on_question: OnQuestion | None = None,
    ) -> None:
        """Prepare the server; `protocol` is the revision it spoke last time, which saves the probe."""
        self._spec, self._on_change = spec, on_change
        self._redactor = Redactor(secrets_of(spec))
        bounds = Bounds(values=spec.limits.answer_values or VALUES_LIMIT)
        self._timeouts = ExchangeTimeouts(spec.timeouts.call, spec.timeouts.total, bounds)
        self._tool_timeouts = {
            name: replace(self._timeouts, idle=own.timeout, total=max(own.timeout, self._timeouts.total), tool=name)
            for name, own in spec.labels.overrides.items()
            if own.timeout
        }
        for name, own in spec.labels.overrides.items():
            # What a server itself says of its tools (`readOnlyHint`) is no reason to call one twice.
            if own.is_repeatable:
                terms = self._tool_timeouts.get(name, self._timeouts)
                self._tool_timeouts[name] = replace(terms, is_repeatable=True)
        self._on_notice, self._on_event, self._on_question = on_notice, on_event, on_question
        self._client_info = {"name": "portico", "title": "Portico", "version": client_version}
        limits = spec.limits.client_sessions
        self._main = self._new_session(spec, Era.of(protocol), None if limits is None else "")
        self._clients = None if limits is None else self._client_sessions(limits)
        self._sessions = self._main if self._clients is None else self._clients
        self._was_asked = self._is_remembered = False
        self._asked = Asked()

    @property
    def server(self) -> str:
        """The server's name in the config."""
        return self._spec.name

    @property
    def source(self) -> str:
        """The kind of provider."""
        return "upstream"

    @property
    def fingerprint(self) -> str:
        """Changes with what is started or reached, not with secrets, names or limits."""
        spec = self._spec
        parts = [spec.transport, spec.command, spec.args, spec.cwd, spec.url, sorted(spec.env), sorted(spec.headers)]
        if spec.isolation != Isolation():  # without one, what earlier versions have stored is still true
            parts.append(list(astuple(spec.isolation)))
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]

    def health(self) -> Health:
        """The state of the server, without starting it."""
        connection, failure = self._main.lifecycle.connection, self._main.lifecycle.failure
        transport = self._main.connector.transport
        words = self._redactor.text(transport.stderr) if transport is not None else ""
        reason = self._redactor.text("; ".join(self._main.lifecycle.trouble))
        if not self._spec.enabled:
            return Health(state=State.DISABLED, reason="it is switched off in the config")
        own = None if self._clients is None else len(self._clients.open)
        if connection is not None or own:
            pid = None if connection is None else connection.transport.pid
            told = f"{own} of at most {self._clients.most} sessions of single clients are open" if self._clients else ""
            reason = "; ".join(filter(None, (told, reason)))
            return Health(state=State.RUNNING, reason=reason, stderr=words, pid=pid, client_sessions=own)
        if failure is not None:
            return Health(state=State.FAILED, reason=reason, stderr=words, cause=failure.cause)
        return Health(state=State.READY if self._was_asked else State.UNKNOWN, reason=reason, stderr=words)

    async def offer(self) -> Offering:
        """Ask the server for everything it offers, whole; an error also tells what it wrote to stderr."""
        try:
            return await self._offer()
        except CallError as error:
            words = [line.strip() for line in self.health().stderr.splitlines() if line.strip()][-5:]
            if words:
                error.add(LAST_WORDS + " | ".join(words)[-1000:])
            raise

    async def _offer(self) -> Offering:
        try:
            self._require_enabled()
            asked = Asked(at=time(), mark=await self._mark())  # before it starts: it may be replaced meanwhile
            found = await self._main.lifecycle.use(lambda live: ServerLists(live, self._timeouts).offering(self.server))
        except ExchangeFault as fault:
            raise fault.as_call_error(f"the offering of {self.server}", self._redactor) from None
        found = self._without_secrets(found)
        self._was_asked, self._is_remembered, self._asked = True, False, asked
        self._main.connector.learn_headers(found.tools)
        return replace(found, asked=asked)

    async def is_outdated(self) -> bool:
        """Whether what is known of the server may be old: it runs something else since, or nobody has asked it lately.

        A server over HTTP of which an earlier run knew is asked at once: a connection costs little.
        """
        is_old = bool(self._spec.url) or time() - self._asked.at > RENEWED_AFTER
        return (self._is_remembered and is_old) or await self._mark() != self._asked.mark

    async def _mark(self) -> str:
        """The mark of the server's program; none where it has none, or its files do not answer."""
        if not self._spec.command:
            return ""
        with anyio.move_on_after(MARK_SECONDS):
            return await anyio.to_thread.run_sync(program_mark, self._spec, abandon_on_cancel=True)
        return self._asked.mark

    async def call(
        self,
        name: str,
        arguments: JsonObject,
        *,
        meta: JsonObject,
        on_progress: OnProgress | None,
        answers: JsonObject | None = None,
        caller: Caller | None = None,
    ) -> JsonObject:
        """Run one tool by its original name and return its result object unchanged."""
        params: dict[str, Any] = {"name": name, "arguments": arguments, **(answers or {})}
        if meta:
            params["_meta"] = meta
        try:
            self._require_enabled()
            result = await self._run(params, on_progress, caller)
        except ExchangeFault as fault:
            raise fault.as_call_error(f"{self.server}.{name}", self._redactor) from None
        if self._is_remembered:
            # What is known of it comes from an earlier run; it may have been upgraded since.
            self._is_remembered = False
            self._on_change(self.server)
        # Only what failed is read: a result is the tool's, and would take time to look through.
        return self._redactor.data(result) if result.get("isError") and self._redactor else result

    async def request(self, method: str, params: JsonObject, *, caller: Caller | None = None) -> JsonObject:
        """Pass on one other request."""
        try:
            self._require_enabled()
            return await self._sessions.exchange(method, params, self._timeouts, None, caller)
        except ExchangeFault as fault:
            raise fault.as_call_error(f"{method} of {self.server}", self._redactor) from None

    def remember(self, protocol: str, asked: Asked = NEVER) -> None:
        """Know the server from an earlier run: the revision it spoke saves the probe, its definitions may be old."""
        self._main.connector.era = Era.of(protocol)
        self._is_remembered, self._asked = True, asked

    def retry_now(self) -> None:
        """Let the next use try again at once, although earlier ones failed."""
        self._sessions.retry_now()

    @property
    def is_per_client(self) -> bool:
        """Whether each client has a session of its own with the server."""
        return self._clients is not None

    def forget_client(self, client: str) -> None:
        """Close what was opened for a client that is gone; does not wait."""
        if self._clients is not None:
            self._clients.forget(client)

    async def wait_until_idle(self) -> None:
        """Return when no call is in flight; each of them is bounded by its own timeouts."""
        await self._sessions.wait_until_idle()

    async def aclose(self) -> None:
        """Let calls in flight end, for a bounded time, and stop what was started."""
        await self._sessions.aclose()

    async def _run(self, params: JsonObject, on_progress: OnProgress | None, caller: Caller | None) -> JsonObject:
        timeouts = self._tool_timeouts.get(params["name"], self._timeouts)
        try:
            return await self._sessions.exchange(CALL, params, timeouts, on_progress, caller)
        except RpcError as error:
            if error.code != HEADER_MISMATCH or self._main.connector.header_maps:
                raise
        # The tool wants headers that only its definition names; the server refused before it did anything.
        await self._offer()
        return await self._sessions.exchange(CALL, params, timeouts, on_progress, caller)

    def _client_sessions(self, limits: ClientSessionLimits) -> ClientSessions:
        """The bounded sessions of single clients; what one connection has learned of the server helps all others."""
        spec, idle = self._spec, limits.idle
        own = spec if idle is None else replace(spec, timeouts=replace(spec.timeouts, idle=idle))

        def new_session(client: str) -> ServerSession:
            session = self._new_session(own, self._main.connector.era, client)
            session.connector.header_maps = self._main.connector.header_maps
            return session

        default = STDIO_SESSIONS if spec.transport == "stdio" else HTTP_SESSIONS
        return ClientSessions(main=self._main, most=limits.most or default, new_session=new_session)

    def _new_session(self, spec: ServerSpec, era: Era, client: str | None) -> ServerSession:
        """A session that is not open yet; notices over it are for one client, or for all where it is None."""
        ask = partial(self._on_question, client) if self._on_question is not None and client else None
        questions = ServerQuestions(self._timeouts, ask)
        whose = () if client is None else (client,)

        def pass_notice(server: str, method: str, params: JsonObject) -> None:
            self._on_notice(server, method, self._redactor.data(params), *whose)

        def tell(kind: str, text: str, stderr: str = "") -> None:
            self._tell(kind, f"the session of one client: {text}" if client else text, stderr)

        notifications = Notifications(spec.name, self._on_change, pass_notice, questions)
        connector = Connector(spec, notifications, self._client_info, era, tell)
        return ServerSession(
            connector=connector,
            lifecycle=ConnectionLifecycle(spec, connector),
            questions=questions,
            notifications=notifications,
            is_one_clients=bool(client),
        )

    def _tell(self, kind: str, text: str, stderr: str = "") -> None:
        """Pass on what happened to the server, without the secrets that the config gave it."""
        redact = self._redactor.text
        self._on_event(FleetEvent(kind=kind, server=self.server, text=redact(text), stderr=redact(stderr)))

    def _without_secrets(self, offering: Offering) -> Offering:
        """The offering without the secrets that the config gave the server."""
        redactor = Redactor(certain_secrets_of(self._spec))
        texts: dict[str, Any] = {name: redactor.text(getattr(offering, name)) for name in _TEXTS}
        lists = {name: getattr(offering, name) for name in _LISTS}
        if redactor and redactor.is_in(str(lists)):
            lists = {name: tuple(redactor.data([*found], parts=ALL_PARTS)) for name, found in lists.items()}
        return replace(offering, **texts, **lists)

    def _require_enabled(self) -> None:
        if not self._spec.enabled:
            raise Lost("the server is switched off", "set `enabled: true` in its config to use it")
