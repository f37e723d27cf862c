"""The provider of one upstream MCP server: everything it offers, page by page, and its calls."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from portico.domain.call import Caller, OnProgress
from portico.domain.foreign_text import Redactor, certain_secrets_of, secrets_of
from portico.domain.server import Health, Offering, ServerSpec, State
from portico.errors import LAST_WORDS, CallError
from portico.protocols import OnChange, OnNotice

from .connect import Connector, Era, Owner, ServerConnection
from .elicitation import STATE, Asking, Notifications, ServerQuestions
from .param_headers import header_maps
from .transport import (
    CAPABILITIES_KEY,
    COUNTED_FROM,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    VALUES_LIMIT,
    ExchangeFault,
    ExchangeTimeouts,
    InitializeResult,
    Lost,
    RpcError,
    TooLarge,
    client_info,
    values_of,
)

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

Items = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class ListedItems:
    """One list, and why it is not complete."""

    items: Items = ()
    limited: str = ""


class Room:
    """What is left for the lists of one server, over all their pages."""

    def __init__(self) -> None:
        self.bytes, self.values = LISTS_LIMIT, VALUES
        self.left_out = 0
        """Definitions that are too large by themselves."""

    async def take(self, items: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The items that fit; the first that finds no room ends the list."""
        taken: list[Mapping[str, Any]] = []
        measured = 0
        for item in items:
            if not isinstance(item, dict):
                continue
            size = self._measure(item)
            measured += size
            if self.bytes <= 0 or self.values <= 0:
                break
            if size <= DEFINITION_LIMIT:
                taken.append(item)
            else:
                self.left_out += 1
            if measured > BREATH:
                measured = 0
                await asyncio.sleep(0)
        return taken

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self.bytes <= 0 or self.values <= 0

    def _measure(self, item: Mapping[str, Any]) -> int:
        try:
            text = orjson.dumps(item)
        except TypeError:
            # Nested deeper than can be written: it is refused by name where definitions are taken in.
            self.bytes -= BREATH
            return BREATH
        self.bytes -= len(text)
        if len(text) <= DEFINITION_LIMIT:
            self.values -= values_of(text)
        return len(text)


async def take_stock(server: str, connection: ServerConnection, patience: ExchangeTimeouts) -> Offering:
    """Everything that one server offers; only its tools must be readable.

    Raises:
        Fault: the tools cannot be listed.
    """
    welcome = connection.welcome
    declared = welcome.capabilities
    # A server that declares nothing at all is asked for tools nevertheless: old ones forget to say.
    has_tools = "tools" in declared or not declared.keys() & {"prompts", "resources"}
    asking = _Asking(connection, patience, Room())
    tools = await asking.list_all("tools/list", "tools") if has_tools else ListedItems()
    prompts = await asking.list_if("prompts" in declared, "prompts/list", "prompts")
    resources = await asking.list_if("resources" in declared, "resources/list", "resources")
    templates = await asking.list_if("resources" in declared, "resources/templates/list", "resourceTemplates")
    lists = {"tools": tools, "prompts": prompts, "resources": resources, "resource templates": templates}
    return Offering(
        server=server,
        **_about(welcome),
        tools=tools.items,
        prompts=prompts.items,
        resources=resources.items,
        templates=templates.items,
        limited="; ".join(f"{name}: {listed.limited}" for name, listed in lists.items() if listed.limited),
    )


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks one server for its lists, as far as there is room for them."""

    connection: ServerConnection
    patience: ExchangeTimeouts
    room: Room

    async def list_all(self, method: str, key: str) -> ListedItems:
        """Every page of one list; a server without that list has an empty one.

        Raises:
            Fault: a page cannot be read.
        """
        items: list[Mapping[str, Any]] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(PAGES):
            try:
                result = await self._page(method, params)
            except TooLarge as fault:
                if not items:
                    raise
                return ListedItems(tuple(items), f"the rest was not read: {fault.details[0]}")
            found = result.get(key)
            items += await self.room.take(found if isinstance(found, list) else ())
            params = {"cursor": result.get("nextCursor")}
            if (limited := self._end(items, params["cursor"], cursors)) is not None:
                return ListedItems(tuple(items[:ITEMS]), limited)
            cursors.add(params["cursor"])
        return ListedItems(tuple(items), f"only the first {PAGES:,} pages are read")

    async def list_if(self, declared: bool, method: str, key: str) -> ListedItems:
        """The same, for a list that may be missing and may fail."""
        if not declared:
            return ListedItems()
        try:
            return await self.list_all(method, key)
        except ExchangeFault as fault:
            if self.connection.link.fault is not None:
                raise
            return ListedItems((), f"not readable: {fault.details[0]}")

    async def _page(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        # What is left for all lists is the most that one page may have, and is known while it is being read.
        patience = replace(self.patience, size=max(COUNTED_FROM, self.room.bytes), values=VALUES_LIMIT)
        try:
            return await self.connection.request(method, params, patience)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return {}
            raise

    def _end(self, items: Sequence[Any], cursor: Any, cursors: set[str]) -> str | None:
        """Why a list ends here, empty when it is complete; None when there is another page."""
        if len(items) > ITEMS:
            return f"only the first {ITEMS:,} are taken"
        if self.room.is_full:
            return f"only the first {len(items):,} are taken: all lists of a server may have {_room()} together"
        if not isinstance(cursor, str) or not cursor:
            return self._omissions()
        if cursor in cursors:
            return "the server repeats a page, so the rest was not read"
        return "the server's cursor is too long, so the rest was not read" if len(cursor) > CURSOR_LIMIT else None

    def _omissions(self) -> str:
        omitted, self.room.left_out = self.room.left_out, 0
        return f"{omitted} with more than {DEFINITION_LIMIT >> 20} MiB are left out" if omitted else ""


def _room() -> str:
    return f"{LISTS_LIMIT >> 20} MiB and {VALUES:,} values"


def _about(welcome: InitializeResult) -> dict[str, Any]:
    info = {key: value for key, value in welcome.info.items() if isinstance(value, str)}
    return {
        "title": (info.get("title") or info.get("name", ""))[:SHORT],
        "version": info.get("version", "")[:SHORT],
        "description": info.get("description", "")[:LONG],
        "instructions": welcome.instructions,
        "protocol": welcome.version,
        "capabilities": welcome.capabilities,
    }


_ANSWERS = frozenset({"inputResponses", "requestState"})

_TEXTS = ("title", "version", "description", "instructions", "limited")
_LISTS = ("tools", "prompts", "resources", "templates")
ALL_PARTS = 10_000_000


class UpstreamProvider:
    """Offers the tools of one upstream server and runs them; nothing starts before the first use."""

    def __init__(
        self, spec: ServerSpec, *, on_change: OnChange, on_notice: OnNotice, client_version: str, protocol: str = ""
    ) -> None:
        """Prepare the server; `protocol` is the revision it spoke last time, which saves the probe."""
        self._spec, self._on_change = spec, on_change
        self._redactor = redactor = Redactor(secrets_of(spec))
        self._patience = ExchangeTimeouts(
            spec.timeouts.call, spec.timeouts.total, values=spec.answer_values or VALUES_LIMIT
        )
        self._questions = ServerQuestions(self._patience)
        self._inbox = Notifications(
            spec.name,
            on_change,
            lambda server, method, params: on_notice(server, method, redactor.data(params)),
            self._questions,
        )
        self._dialler = Connector(spec, self._inbox, client_info(client_version), Era.of(protocol))
        self._owner = Owner(spec.name, self._dialler, spec.timeouts.idle, spec.timeouts.start)
        self._was_asked = self._is_remembered = False

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
        return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]

    def health(self) -> Health:
        """How the server is doing, without starting it."""
        connection, failure, link = self._owner.connection, self._owner.failure, self._dialler.link
        words = self._redactor.text(link.stderr) if link is not None else ""
        if not self._spec.enabled:
            return Health(state=State.DISABLED, reason="it is switched off in the config")
        if connection is not None:
            return Health(state=State.RUNNING, stderr=words, pid=connection.link.pid)
        if failure is not None:
            return Health(state=State.FAILED, reason=self._redactor.text("; ".join(failure.details)), stderr=words)
        return Health(state=State.READY if self._was_asked else State.UNKNOWN, stderr=words)

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
        subject = f"the offering of {self.server}"
        try:
            self._require_enabled()
            found = self._without_secrets(
                await self._owner.use(lambda live: take_stock(self.server, live, self._patience))
            )
        except ExchangeFault as fault:
            raise fault.as_call_error(subject, self._redactor) from None
        self._was_asked, self._is_remembered = True, False
        self._dialler.header_maps.clear()
        self._dialler.header_maps.update(header_maps(found.tools))
        return found

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        on_progress: OnProgress | None,
        answers: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> Mapping[str, Any]:
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

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass on one other request."""
        try:
            self._require_enabled()
            return await self._exchange(method, params, None, None)
        except ExchangeFault as fault:
            raise fault.as_call_error(f"{method} of {self.server}", self._redactor) from None

    def remember(self, protocol: str) -> None:
        """Know the server from an earlier run: the revision it spoke saves the probe, its definitions may be old."""
        self._dialler.expect(Era.of(protocol))
        self._is_remembered = True

    def retry_now(self) -> None:
        """Let the next use try again at once, although earlier ones failed."""
        self._owner.retry_now()

    async def aclose(self) -> None:
        """Let calls in flight end, for a bounded time, and stop what was started."""
        self._questions.close()
        await self._owner.aclose()
        self._inbox.close()

    async def _run(
        self, params: Mapping[str, Any], on_progress: OnProgress | None, caller: Caller | None
    ) -> Mapping[str, Any]:
        try:
            return await self._exchange("tools/call", params, on_progress, caller)
        except RpcError as error:
            if error.code != HEADER_MISMATCH or self._dialler.header_maps:
                raise
        # The tool wants headers that only its definition names; the server refused before it did anything.
        await self._offer()
        return await self._exchange("tools/call", params, on_progress, caller)

    async def _exchange(
        self, method: str, params: Mapping[str, Any], on_progress: OnProgress | None, caller: Caller | None
    ) -> dict[str, Any]:
        """Send one request; a server of the handshake era may ask its client something meanwhile."""
        connection = self._owner.connection
        if connection is not None and connection.link.dialect.is_modern:
            return await self._owner.request(method, params, self._patience, on_progress)
        state = params.get("requestState")
        askable = params.get("_meta", {}).get(CAPABILITIES_KEY)
        if not askable and state is None:
            return await self._questions.run(self._owner.request(method, params, self._patience, on_progress))
        original = {key: value for key, value in params.items() if key not in _ANSWERS}
        whose = None if caller is None else (caller.name, caller.surface)
        bound = {key: value for key, value in original.items() if key != "_meta"}
        asking = Asking.of(askable, whose, method, bound)
        if isinstance(state, str) and state.startswith(STATE):
            return await self._questions.resume(state, asking, params.get("inputResponses"), on_progress)
        # What a server asks at its start belongs to no call, and is refused before this one is under way.
        await self._owner.use(ServerConnection.settle)
        return await self._questions.converse(asking, partial(self._owner.request, method, params), on_progress)

    def _without_secrets(self, offering: Offering) -> Offering:
        """What a server says of itself, without the secrets that its config gave it."""
        redactor = Redactor(certain_secrets_of(self._spec))
        texts: dict[str, Any] = {name: redactor.text(getattr(offering, name)) for name in _TEXTS}
        lists = {name: getattr(offering, name) for name in _LISTS}
        if redactor and redactor.is_in(str(lists)):
            lists = {name: tuple(redactor.data([*found], parts=ALL_PARTS)) for name, found in lists.items()}
        return replace(offering, **texts, **lists)

    def _require_enabled(self) -> None:
        if not self._spec.enabled:
            raise Lost("the server is switched off", "set `enabled: true` in its config to use it")
