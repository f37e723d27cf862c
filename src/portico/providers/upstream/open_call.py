"""A call that its server may ask about: it goes on in a task of its own while its client is away for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from portico.domain.call import OnProgress

from .link import Patience
from .protocol import METHOD_NOT_FOUND
from .waiting import expired

_LONG = 1e6
"""Seconds: the exchange itself is timed here, where it is known when its client is being asked."""

Reply = Callable[[Mapping[str, Any]], Awaitable[None]]


def refusal(id: Any, said: str) -> dict[str, Any]:
    """Our answer to a server's request that cannot be passed on."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": METHOD_NOT_FOUND, "message": said}}


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One request of a server, and the way back for its answer."""

    id: Any
    method: str
    params: Any
    reply: Reply

    @property
    def capability(self) -> str:
        """What a client must support for it, in words."""
        mode = self.params.get("mode") if isinstance(self.params, Mapping) else None
        return f"{self.method} ({mode})" if isinstance(mode, str) else self.method

    def shown(self) -> dict[str, Any]:
        """The question as a client is asked it."""
        return {"method": self.method, **({"params": self.params} if isinstance(self.params, Mapping) else {})}

    def reply_soon(self, message: Mapping[str, Any]) -> None:
        """Answer without waiting."""
        task = asyncio.get_running_loop().create_task(self._reply_quietly(message))
        _replying.add(task)
        task.add_done_callback(_replying.discard)

    async def _reply_quietly(self, message: Mapping[str, Any]) -> None:
        with suppress(Exception):  # the server is gone, or does not read: nobody waits for this
            await self.reply(message)


_replying: set[asyncio.Task[None]] = set()
"""Answers on their way; the event loop itself keeps no task alive."""


class OpenCall:
    """One call at a server, with the questions that it has asked and that are not answered yet."""

    def __init__(self, run: Callable[[Patience, OnProgress], Awaitable[dict[str, Any]]], patience: Patience) -> None:
        self.askable: Mapping[str, Any] = {}
        self.pending: dict[str, Question] = {}
        self._patience = patience
        self._asked = 0
        self._left = patience.total
        self._news = asyncio.Event()
        self._on_progress: OnProgress | None = None
        self._timer: asyncio.Timeout | None = None
        self._ends = 0.0
        long = replace(patience, idle=_LONG, total=_LONG)
        self.task = asyncio.ensure_future(run(long, self._progress))
        self.task.add_done_callback(self._end)

    def ask(self, question: Question) -> None:
        """Take a question of the server."""
        self._asked += 1
        self.pending[str(self._asked)] = question
        self._news.set()

    async def answer(self, answers: Mapping[str, Any]) -> None:
        """Send the client's answers to the server; a question without one is refused."""
        for key, given in answers.items():
            question = self.pending.pop(key, None)
            if question is not None:
                await question.reply(_message(question, given))

    async def advance(self, on_progress: OnProgress | None) -> dict[str, Any] | None:
        """The result, or None when the server has asked something.

        Raises:
            Fault: there is no result.
        """
        loop = asyncio.get_running_loop()
        self._on_progress, began = on_progress, loop.time()
        self._ends = began + self._left
        try:
            async with asyncio.timeout_at(min(began + self._patience.idle, self._ends)) as self._timer:
                while not self.task.done() and not self.pending:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            await self._stop()
            raise expired(self._patience, at_end=loop.time() >= self._ends) from None
        except asyncio.CancelledError:
            await self._stop()
            raise
        finally:
            self._timer = self._on_progress = None
            self._left -= loop.time() - began
        return self.task.result() if self.task.done() else None

    def cancel(self) -> None:
        """End the call; the server is told, and what it has asked is refused."""
        self.task.cancel()
        for question in self.pending.values():
            question.reply_soon(refusal(question.id, "the client has not answered in time, or is gone"))
        self.pending.clear()

    async def _stop(self) -> None:
        self.cancel()
        await asyncio.wait([self.task])

    def _end(self, task: asyncio.Future[dict[str, Any]]) -> None:
        if not task.cancelled():
            task.exception()  # so that nobody is warned when the client never comes back for it
        self._news.set()

    async def _progress(self, done: float, total: float | None, message: str | None) -> None:
        if self._timer is not None:
            self._timer.reschedule(min(asyncio.get_running_loop().time() + self._patience.idle, self._ends))
        if self._on_progress is not None:
            await self._on_progress(done, total, message)


def _message(question: Question, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return refusal(question.id, "the client has given no answer")
    if isinstance(given.get("error"), Mapping) and len(given) == 1:
        return {"jsonrpc": "2.0", "id": question.id, "error": given["error"]}
    result = {key: value for key, value in given.items() if key != "resultType"}
    return {"jsonrpc": "2.0", "id": question.id, "result": result}
