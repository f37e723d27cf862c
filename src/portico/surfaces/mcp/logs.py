"""Log messages of a server reach the client whose call they belong to, and no other.

A server does not say which call a message belongs to. So it is passed on only while that server is at work on exactly
one call, and that call wants messages; otherwise it could reach the wrong client, and is dropped.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import mcp_types as types
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from .envelopes import Context, connection_of, is_modern
from .surface import Envelope, JsonObject

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(slots=True)
class Logs:
    """Knows who wants messages, and passes them on."""

    running: Mapping[str, int]
    """How many calls each server is at work on."""
    _levels: weakref.WeakKeyDictionary[Connection, str] = field(default_factory=weakref.WeakKeyDictionary)
    _listening: list[tuple[str, Context]] = field(default_factory=list)

    async def set_level(self, ctx: Context, params: JsonObject) -> JsonObject:
        """A client of the handshake era says which messages it wants."""
        level = params.get("level")
        if level not in LEVELS:
            raise MCPError(types.INVALID_PARAMS, f"`level` is one of: {', '.join(LEVELS)}")
        self._levels[connection_of(ctx)] = str(level)
        return {}

    def are_wanted(self, connection: Connection) -> bool:
        """Whether a client of the handshake era asked for messages."""
        return connection in self._levels

    def opened(self, ctx: Context, envelope: Envelope) -> Envelope:
        """The envelope with the level that this request wants, so that the server sends messages at all."""
        level = self._level(ctx)
        if not level:
            return envelope
        return replace(envelope, meta={**envelope.meta, types.LOG_LEVEL_META_KEY: level})

    @contextmanager
    def listening(self, ctx: Context, server_of: Callable[[], str]) -> Iterator[None]:
        """While this is open, messages of the server that is called may belong to this request."""
        if not self._level(ctx):
            yield
            return
        entry = (server_of(), ctx)
        self._listening.append(entry)
        try:
            yield
        finally:
            self._listening.remove(entry)

    async def deliver(self, server: str, params: JsonObject) -> None:
        """Pass one message on, when it is plain whose it is."""
        listening = [ctx for name, ctx in self._listening if name == server]
        if len(listening) != 1 or self.running.get(server, 0) != 1:
            return
        ctx = listening[0]
        level = params.get("level")
        if level not in LEVELS or LEVELS.index(str(level)) < LEVELS.index(self._level(ctx)):
            return
        try:
            typed = types.LoggingMessageNotification(
                params=types.LoggingMessageNotificationParams.model_validate(dict(params))
            )
        except ValidationError:
            return
        await ctx.session.send_notification(typed, related_request_id=ctx.request_id)

    def _level(self, ctx: Context) -> str:
        if not is_modern(ctx):
            return self._levels.get(connection_of(ctx), "")
        meta = ctx.params.get("_meta") if ctx.params else None
        wanted = meta.get(types.LOG_LEVEL_META_KEY) if isinstance(meta, dict) else None
        return wanted if isinstance(wanted, str) and wanted in LEVELS else ""
