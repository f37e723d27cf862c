"""What servers send on their own: changes, notices, and requests that we answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from portico.ports import OnChange, OnNotice

from .open_call import Reply, refusal
from .questions import Questions

logger = logging.getLogger(__name__)

CHANGE_INTERVAL = 1.0
"""Seconds between two reports of a change, however many the server sends."""

NOTICES_PER_SECOND = 200
"""Notices passed on per second; a flood beyond that is dropped and counted."""

ID_LIMIT = 1_000
"""Characters of the id of a server's own request."""

CHANGES = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
NOTICES = frozenset({"notifications/message", "notifications/resources/updated"})


class Inbox:
    """Sorts one server's notifications: list changes are gathered, notices passed on, the rest dropped."""

    def __init__(
        self, server: str, on_change: OnChange, on_notice: OnNotice, questions: Questions | None = None
    ) -> None:
        self._server, self._on_change, self._on_notice = server, on_change, on_notice
        self._changed_at = float("-inf")
        self._due: asyncio.TimerHandle | None = None
        self._window_at, self._in_window = float("-inf"), 0
        self.dropped = 0
        self._questions = questions

    def receive(self, method: str, params: Any) -> None:
        """Take one notification; never waits and never raises."""
        if method in CHANGES:
            self.changed()
        elif method in NOTICES and isinstance(params, Mapping) and self._has_room():
            # Through the loop: what a listener raises must not end the reading of this server.
            asyncio.get_running_loop().call_soon(self._on_notice, self._server, method, params)

    def answer(
        self, request: Mapping[str, Any], reply: Reply, *, is_own_stream: bool = False
    ) -> Mapping[str, Any] | None:
        """Our answer to a server's request; None when there is none, or when `reply` will send it later.

        On a stream that belongs to one call (`is_own_stream`), its reader's task says which call that is.
        """
        id = request.get("id")
        if not isinstance(id, int | float | str) or (isinstance(id, str) and len(id) > ID_LIMIT):
            return None  # whoever writes such an id gets no copy of it back
        if request.get("method") == "ping":
            return {"jsonrpc": "2.0", "id": id, "result": {}}
        if self._questions is None:
            return refusal(id, f"this client does not support {str(request.get('method'))[:100]}")
        return self._questions.ask(request, reply, is_own_stream=is_own_stream)

    def changed(self) -> None:
        """Report that the lists have changed, now or when a second has passed since the last report."""
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._changed_at + CHANGE_INTERVAL), self._report)

    def close(self) -> None:
        """Report nothing more."""
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _report(self) -> None:
        self._due, self._changed_at = None, asyncio.get_running_loop().time()
        self._on_change(self._server)

    def _has_room(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._window_at >= 1.0:
            self._window_at, self._in_window = now, 0
        self._in_window += 1
        if self._in_window <= NOTICES_PER_SECOND:
            return True
        if not self.dropped:
            logger.warning("server %r sends more than %d notices a second; dropped", self._server, NOTICES_PER_SECOND)
        self.dropped += 1
        return False
