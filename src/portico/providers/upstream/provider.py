"""The provider of one upstream MCP server."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from portico.domain.call import OnProgress
from portico.domain.caller import Caller
from portico.domain.redaction import Redactor, certain_secrets_of, secrets_of
from portico.domain.server import Health, Offering, ServerSpec, State
from portico.errors import LAST_WORDS, CallError
from portico.ports import OnChange, OnNotice

from .connection import Connection
from .dialling import Dialler
from .faults import Fault, Lost, RpcError
from .inbox import Inbox
from .link import Patience
from .listing import take_stock
from .negotiation import Era
from .owner import Owner
from .param_headers import header_maps
from .protocol import CAPABILITIES_KEY, HEADER_MISMATCH, VALUES_LIMIT, client_info
from .questions import STATE, Asking, Questions

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
        self._patience = Patience(spec.timeouts.call, spec.timeouts.total, values=spec.answer_values or VALUES_LIMIT)
        self._questions = Questions(self._patience)
        self._inbox = Inbox(
            spec.name,
            on_change,
            lambda server, method, params: on_notice(server, method, redactor.data(params)),
            self._questions,
        )
        self._dialler = Dialler(spec, self._inbox, client_info(client_version), Era.of(protocol))
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
        except Fault as fault:
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
        except Fault as fault:
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
        except Fault as fault:
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
        await self._owner.use(Connection.settle)
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
