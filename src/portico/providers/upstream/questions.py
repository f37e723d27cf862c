"""Questions that a server of the handshake era asks in the middle of a call: sampling, elicitation and roots.

Such a server sends a request of its own and goes on when it has the answer. Callers know another way, that of
2026-07-28: a call returns `input_required` with the questions, and is made again with the answers. So a call that is
asked about is left waiting at the server, and the next call with its `requestState` goes on with it.

Over a pipe nothing says which call a question belongs to. It is the only one under way; when there are several, the
question is held until one is left, because the one that asked cannot end before it is answered. From then on the
server is given one call at a time. When all of several have asked by then, all but one are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from portico.domain.call import OnProgress
from portico.errors import Sent

from .faults import Fault
from .link import Patience
from .open_call import OpenCall, Question, refusal
from .waiting import expired

DECLARED: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {}}
"""What we tell servers that they may ask: all of it can be passed on, to a client that takes it."""
NEEDS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""The capability that a client needs for each question."""
STATE = "portico-call-"
"""How every `requestState` of ours begins."""
ANSWER_SECONDS = 300.0
"""How long a client may take to answer."""
SUSPENDED_LIMIT = 16
"""Calls of one server that may wait for their clients."""
PENDING_LIMIT = 8
"""Questions that one call, or a server as a whole, may have open."""
HELD_SECONDS = 30.0
"""How long a question waits until it is clear whose it is."""

Run = Callable[[Patience, OnProgress], Awaitable[dict[str, Any]]]
Reply = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Asking:
    """Whose call may be asked about: what its client can be asked, and what binds the next call to this one."""

    askable: Mapping[str, Any]
    binding: str

    @classmethod
    def of(cls, askable: Any, *parts: Any) -> Asking:
        """The same for one request, by caller, method and parameters."""
        text = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS, default=str)
        return cls(askable if isinstance(askable, Mapping) else {}, hashlib.sha256(text).hexdigest())


@dataclass(slots=True)
class _Suspended:
    call: OpenCall
    asking: Asking
    asked: tuple[str, ...]
    expiry: asyncio.TimerHandle


@dataclass(slots=True)
class Questions:
    """The questions of one server, and the calls that they belong to."""

    patience: Patience
    _is_serial: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _undisturbed: int = 0
    """Calls under way whose clients cannot be asked anything."""
    _active: list[OpenCall] = field(default_factory=list)
    _suspended: dict[str, _Suspended] = field(default_factory=dict)
    _held: list[Question] = field(default_factory=list)

    async def run(self, run: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
        """Make a call whose client cannot be asked anything."""
        try:
            has_turn = self._is_serial and await self._take_turn()
        except BaseException:
            run.close()
            raise
        self._undisturbed += 1
        try:
            return await run
        finally:
            self._undisturbed -= 1
            if has_turn or self._held:
                self._end_turn(has_turn)

    async def converse(self, asking: Asking, run: Run, on_progress: OnProgress | None) -> dict[str, Any]:
        """Make a call whose client may be asked; what the server asks is returned instead of a result."""
        has_turn = await self._take_turn()
        return await self._advance(OpenCall(run, self.patience), asking, on_progress, has_turn, {})

    async def resume(self, state: str, asking: Asking, answers: Any, on_progress: OnProgress | None) -> dict[str, Any]:
        """Go on with a call, with the answers of its client.

        Raises:
            Fault: there is no such call, or it is another client's.
        """
        found = self._suspended.get(state)
        if found is None or found.asking.binding != asking.binding:
            raise Fault(
                "the call that this answers is not waiting here: it was answered, has timed out, or was another one",
                "call the tool again without `requestState`",
                sent=Sent.UNKNOWN,
            )
        del self._suspended[state]
        found.expiry.cancel()
        try:
            has_turn = await self._take_turn()
        except BaseException:
            found.call.cancel()
            raise
        given = answers if isinstance(answers, Mapping) else {}
        chosen = {key: given.get(key) for key in found.asked}
        return await self._advance(found.call, asking, on_progress, has_turn, chosen)

    def ask(self, request: Mapping[str, Any], reply: Reply, *, is_own_stream: bool) -> Mapping[str, Any] | None:
        """Take a server's request; our answer, if it can be given at once.

        On a stream that belongs to one call, the task that reads it says which call that is.
        """
        question = Question(request.get("id"), str(request["method"])[:100], request.get("params"), reply)
        if question.method not in NEEDS:
            return refusal(question.id, f"this client does not support {question.method}")
        if is_own_stream:
            task = asyncio.current_task()
            calls = [call for call in self._open_calls() if call.task is task]
            return self._assign(question, calls[0] if calls else None)
        if len(self._active) + self._undisturbed > 1:
            return self._hold(question)
        return self._assign(question, self._only_call())

    def close(self) -> None:
        """End the calls that wait for answers."""
        for state in list(self._suspended):
            self._expire(state)

    async def _advance(
        self,
        call: OpenCall,
        asking: Asking,
        on_progress: OnProgress | None,
        has_turn: bool,
        answers: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Let a call run until it ends or asks."""
        call.askable = asking.askable
        self._active.append(call)
        try:
            await call.answer(answers)
            result = await call.advance(on_progress)
        except BaseException:
            call.cancel()
            raise
        finally:
            self._active.remove(call)
            self._end_turn(has_turn)
        return result if result is not None else self._suspend(call, asking)

    def _suspend(self, call: OpenCall, asking: Asking) -> dict[str, Any]:
        state = STATE + secrets.token_urlsafe(24)
        expiry = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, state)
        self._suspended[state] = _Suspended(call, asking, tuple(call.pending), expiry)
        requests = {key: question.shown() for key, question in call.pending.items()}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    def _expire(self, state: str) -> None:
        found = self._suspended.pop(state, None)
        if found is not None:
            found.expiry.cancel()
            found.call.cancel()

    def _open_calls(self) -> list[OpenCall]:
        return [*self._active, *(suspended.call for suspended in self._suspended.values())]

    def _only_call(self) -> OpenCall | None:
        calls = self._active or [suspended.call for suspended in self._suspended.values()]
        return calls[0] if len(calls) == 1 and not self._undisturbed else None

    def _assign(self, question: Question, call: OpenCall | None) -> Mapping[str, Any] | None:
        if call is None:
            what = "has a client that cannot be asked" if self._undisturbed else "is not under way"
            return refusal(question.id, f"{question.method} belongs to a call, and its call {what}")
        if not _takes(call.askable, question):
            return refusal(question.id, f"the client whose call this is does not support {question.capability}")
        if len(call.pending) >= PENDING_LIMIT or len(self._suspended) >= SUSPENDED_LIMIT:
            return refusal(question.id, "too many questions wait for their answers: ask again later")
        call.ask(question)
        return None

    def _hold(self, question: Question) -> Mapping[str, Any] | None:
        """Keep a question until it is clear whose it is, and let no more calls through at the same time."""
        self._is_serial = True
        if len(self._held) >= PENDING_LIMIT:
            return refusal(question.id, "too many questions wait for their answers: ask again later")
        self._held.append(question)
        asyncio.get_running_loop().call_later(HELD_SECONDS, self._drop, question)
        self._settle()
        return None

    def _drop(self, question: Question) -> None:
        if question in self._held:
            self._held.remove(question)
            said = "several calls are under way, and it is not clear whose this is: make the call again"
            question.reply_soon(refusal(question.id, said))

    def _settle(self) -> None:
        """Give held questions to the one call that is left; when every call under way has asked, none would end."""
        calls = len(self._active) + self._undisturbed
        if calls > 1:
            if len(self._held) >= calls:
                self._drop(self._held[-1])
            return
        held, self._held = self._held, []
        for question in held:
            refused = self._assign(question, self._only_call())
            if refused is not None:
                question.reply_soon(refused)

    async def _take_turn(self) -> bool:
        if not self._is_serial:
            return False
        try:
            async with asyncio.timeout(self.patience.first):
                await self._turn.acquire()
        except TimeoutError:
            raise expired(self.patience, sent=Sent.NOTHING) from None
        return True

    def _end_turn(self, has_turn: bool) -> None:
        if has_turn:
            self._turn.release()
        if self._held:
            self._settle()


def _takes(askable: Mapping[str, Any], question: Question) -> bool:
    declared = askable.get(NEEDS[question.method])
    if not isinstance(declared, Mapping):
        return False
    if question.method != "elicitation/create":
        return True
    mode = question.params.get("mode", "form") if isinstance(question.params, Mapping) else "form"
    # A client that names no mode takes forms, says the specification.
    return mode in (declared or ("form",))
