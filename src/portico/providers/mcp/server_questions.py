"""Messages that servers send on their own: changes, notices, and questions in the middle of a call."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from portico.domain.call import OnProgress
from portico.errors import Sent
from portico.protocols import OnChange, OnNotice

from .message_limits_and_errors import METHOD_NOT_FOUND, ExchangeFault, ExchangeTimeouts, JsonObject, ProgressTimer

logger = logging.getLogger(__name__)

Reply = Callable[[JsonObject], Awaitable[None]]


def refusal(id: Any, said: str) -> dict[str, Any]:
    """Our answer to a server's request that cannot be passed on."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": METHOD_NOT_FOUND, "message": said}}


@dataclass(frozen=True, slots=True, eq=False)
class ServerQuestion:
    """One request of a server, and the way back for its answer."""

    id: Any
    method: str
    params: Any
    reply: Reply

    def as_request(self) -> dict[str, Any]:
        """The question as a client is asked it."""
        return {"method": self.method, **({"params": self.params} if isinstance(self.params, Mapping) else {})}

    async def answer(self, given: Any) -> None:
        """Send the client's answer to the server."""
        if not isinstance(given, Mapping):
            await self.reply(refusal(self.id, "the client has given no answer"))
        elif isinstance(given.get("error"), Mapping) and len(given) == 1:
            await self.reply({"jsonrpc": "2.0", "id": self.id, "error": given["error"]})
        else:
            result = {key: value for key, value in given.items() if key != "resultType"}
            await self.reply({"jsonrpc": "2.0", "id": self.id, "result": result})

    def refuse_soon(self, said: str) -> None:
        """Refuse it without waiting."""

        async def reply_quietly() -> None:
            with suppress(Exception):  # the server is gone, or does not read: nobody waits for this
                await self.reply(refusal(self.id, said))

        task = asyncio.get_running_loop().create_task(reply_quietly())
        _replying.add(task)
        task.add_done_callback(_replying.discard)


_replying: set[asyncio.Task[None]] = set()
"""Answers on their way; the event loop itself keeps no task alive."""

Run = Callable[[ExchangeTimeouts, OnProgress], Awaitable[dict[str, Any]]]

_LONG = 1e6
"""Seconds: the exchange itself is timed here, where it is known when its client is being asked."""


class OpenCall:
    """One call at a server, with the questions that it has asked and that are not answered yet."""

    def __init__(self, run: Run, timeouts: ExchangeTimeouts) -> None:
        self.askable: JsonObject = {}
        self.pending: dict[str, ServerQuestion] = {}
        self._timeouts = timeouts
        self._asked = 0
        self._left = timeouts.total
        self._news = asyncio.Event()
        self._on_progress: OnProgress | None = None
        self._timer: ProgressTimer | None = None
        self.task = asyncio.ensure_future(run(replace(timeouts, idle=_LONG, total=_LONG), self._progress))
        self.task.add_done_callback(self._end)

    def ask(self, question: ServerQuestion) -> None:
        """Take a question of the server."""
        self._asked += 1
        self.pending[str(self._asked)] = question
        self._news.set()

    async def advance(self, answers: JsonObject, on_progress: OnProgress | None) -> dict[str, Any] | None:
        """Send the client's answers to the server; the result, or None when the server has asked something more.

        Raises:
            ExchangeFault: there is no result.
        """
        for key, given in answers.items():
            if (question := self.pending.pop(key, None)) is not None:
                await question.answer(given)
        loop = asyncio.get_running_loop()
        self._on_progress, began = on_progress, loop.time()
        self._timer = timer = ProgressTimer(self._timeouts.idle, self._left)
        try:
            async with timer.timeout:
                while not self.task.done() and not self.pending:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            await self._stop()
            raise self._timeouts.expired(at_end=timer.is_at_end) from None
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
            question.refuse_soon("the client has not answered in time, or is gone")
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
            self._timer.put_off()
        if self._on_progress is not None:
            await self._on_progress(done, total, message)


DECLARED: JsonObject = {"elicitation": {"form": {}, "url": {}}, "roots": {}, "sampling": {}}
"""The questions that we tell servers they may ask: all can be passed on, to a client that takes them."""
NEEDS = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}
"""The capability that a client needs for each question."""
STATE = "portico-call-"
"""The beginning of every `requestState` of ours."""
ANSWER_SECONDS = 300.0
"""The time that a client has to answer."""
SUSPENDED_LIMIT = 16
"""Calls of one server that may wait for their clients."""
PENDING_LIMIT = 8
"""Questions that one call, or a server as a whole, may have open."""
HELD_SECONDS = 30.0
"""The time that a question waits until it is clear whose it is."""
TOO_MANY = "too many questions wait for their answers: ask again later"


@dataclass(frozen=True, slots=True)
class AskableClient:
    """The client of a call: what it can be asked, and what binds its next call to this one."""

    askable: JsonObject
    binding: str

    @classmethod
    def of(cls, askable: Any, *parts: Any) -> AskableClient:
        """The client of one request, by caller, method and parameters."""
        text = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS, default=str)
        return cls(askable if isinstance(askable, Mapping) else {}, hashlib.sha256(text).hexdigest())


@dataclass(slots=True)
class _Suspended:
    call: OpenCall
    binding: str
    asked: tuple[str, ...]
    expiry: asyncio.TimerHandle


AskClient = Callable[[JsonObject], Awaitable[JsonObject]]
"""Asks one client a question of a server beside its calls; the answer, or an error as a server is told it."""


@dataclass(slots=True)
class ServerQuestions:
    """The questions of one server, and the calls that they belong to."""

    timeouts: ExchangeTimeouts
    ask_client: AskClient | None = None
    """Asks the client whose session this is what belongs to no call; None where nobody can be asked."""
    _beside: set[asyncio.Task[None]] = field(default_factory=set)
    """Questions beside calls that wait for their answers."""
    _is_serial: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _undisturbed: int = 0
    """Calls under way whose clients cannot be asked anything."""
    _active: list[OpenCall] = field(default_factory=list)
    _suspended: dict[str, _Suspended] = field(default_factory=dict)
    _held: list[ServerQuestion] = field(default_factory=list)

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

    async def converse(
        self, client: AskableClient, run: Run, on_progress: OnProgress | None, timeouts: ExchangeTimeouts | None = None
    ) -> dict[str, Any]:
        """Make a call whose client may be asked; what the server asks is returned instead of a result."""
        has_turn = await self._take_turn()
        return await self._advance(OpenCall(run, timeouts or self.timeouts), client, on_progress, has_turn, {})

    async def resume(
        self, state: str, client: AskableClient, answers: Any, on_progress: OnProgress | None
    ) -> dict[str, Any]:
        """Go on with a call, with the answers of its client.

        Raises:
            ExchangeFault: there is no such call, or it is another client's.
        """
        found = self._suspended.get(state)
        if found is None or found.binding != client.binding:
            raise ExchangeFault(
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
        return await self._advance(found.call, client, on_progress, has_turn, chosen)

    def ask(self, request: JsonObject, reply: Reply, *, is_own_stream: bool) -> JsonObject | None:
        """Take a server's request; our answer, if it can be given at once.

        On a stream that belongs to one call, the task that reads it says which call that is.
        """
        question = ServerQuestion(request.get("id"), str(request["method"])[:100], request.get("params"), reply)
        if question.method not in NEEDS:
            return refusal(question.id, f"this client does not support {question.method}")
        if is_own_stream:
            task = asyncio.current_task()
            calls = [*self._active, *(suspended.call for suspended in self._suspended.values())]
            said = self._assign(question, next((call for call in calls if call.task is task), None))
        elif len(self._active) + self._undisturbed > 1:
            said = self._hold(question)
        else:
            said = self._assign(question, self._only_call())
        return refusal(question.id, said) if said else None

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits for a client's answer."""
        return bool(self._suspended or self._beside)

    def close(self) -> None:
        """End the calls that wait for answers."""
        for state in list(self._suspended):
            self._expire(state)
        for asking in self._beside:
            asking.cancel()

    async def _advance(
        self,
        call: OpenCall,
        client: AskableClient,
        on_progress: OnProgress | None,
        has_turn: bool,
        answers: JsonObject,
    ) -> dict[str, Any]:
        """Let a call run until it ends or asks."""
        call.askable = client.askable
        self._active.append(call)
        try:
            result = await call.advance(answers, on_progress)
        except BaseException:
            call.cancel()
            raise
        finally:
            self._active.remove(call)
            self._end_turn(has_turn)
        if result is not None:
            self._pass_on(call)
            return result
        state = STATE + secrets.token_urlsafe(24)
        expiry = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, state)
        self._suspended[state] = _Suspended(call, client.binding, tuple(call.pending), expiry)
        requests = {key: question.as_request() for key, question in call.pending.items()}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    def _expire(self, state: str) -> None:
        found = self._suspended.pop(state, None)
        if found is not None:
            found.expiry.cancel()
            found.call.cancel()

    def _only_call(self) -> OpenCall | None:
        calls = self._active or [suspended.call for suspended in self._suspended.values()]
        return calls[0] if len(calls) == 1 and not self._undisturbed else None

    def _assign(self, question: ServerQuestion, call: OpenCall | None) -> str:
        """Give a question to the call that it belongs to; why it is refused, or nothing."""
        if call is None and self.ask_client is not None:
            return self._ask_beside(question, self.ask_client)
        if call is None:
            what = "has a client that cannot be asked" if self._undisturbed else "is not under way"
            return f"{question.method} belongs to a call, and its call {what}"
        if not _can_be_asked(call.askable, question):
            mode = question.params.get("mode") if isinstance(question.params, Mapping) else None
            capability = f"{question.method} ({mode})" if isinstance(mode, str) else question.method
            return f"the client whose call this is does not support {capability}"
        if len(call.pending) >= PENDING_LIMIT or len(self._suspended) >= SUSPENDED_LIMIT:
            return TOO_MANY
        call.ask(question)
        return ""

    def _pass_on(self, call: OpenCall) -> None:
        """See to questions that a call has ended without: they were another's, or nobody's."""
        for question in call.pending.values():
            said = "the call that this seemed to belong to has ended"
            if self.ask_client is not None:
                said = self._ask_beside(question, self.ask_client)
            if said:
                question.refuse_soon(said)
        call.pending.clear()

    def _ask_beside(self, question: ServerQuestion, ask: AskClient) -> str:
        """Ask the client of this session what belongs to none of its calls; why it is refused, or nothing."""
        if len(self._beside) >= PENDING_LIMIT:
            return TOO_MANY

        async def pass_answer() -> None:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    answer = await ask(question.as_request())
                await question.answer(answer)
            except Exception as error:  # noqa: BLE001  the client is gone, or the server
                logger.debug("a question beside calls has no answer: %s", type(error).__name__)
                question.refuse_soon("the client has not answered in time, or is gone")

        asking = asyncio.get_running_loop().create_task(pass_answer())
        self._beside.add(asking)
        asking.add_done_callback(self._beside.discard)
        return ""

    def _hold(self, question: ServerQuestion) -> str:
        """Keep a question until it is clear whose it is, and let no more calls through at the same time."""
        self._is_serial = True
        if len(self._held) >= PENDING_LIMIT:
            return TOO_MANY
        self._held.append(question)
        asyncio.get_running_loop().call_later(HELD_SECONDS, self._drop, question)
        self._assign_held()
        return ""

    def _drop(self, question: ServerQuestion) -> None:
        if question in self._held:
            self._held.remove(question)
            question.refuse_soon("several calls are under way, and it is not clear whose this is: make the call again")

    def _assign_held(self) -> None:
        """Give held questions to the one call that is left; when every call under way has asked, none would end."""
        calls = len(self._active) + self._undisturbed
        if calls > 1:
            if len(self._held) >= calls:
                self._drop(self._held[-1])
            return
        held, self._held = self._held, []
        for question in held:
            if said := self._assign(question, self._only_call()):
                question.refuse_soon(said)

    async def _take_turn(self) -> bool:
        if not self._is_serial:
            return False
        try:
            async with asyncio.timeout(self.timeouts.first):
                await self._turn.acquire()
        except TimeoutError:
            raise self.timeouts.expired(sent=Sent.NOTHING) from None
        return True

    def _end_turn(self, has_turn: bool) -> None:
        if has_turn:
            self._turn.release()
        if self._held:
            self._assign_held()


def _can_be_asked(askable: JsonObject, question: ServerQuestion) -> bool:
    declared = askable.get(NEEDS[question.method])
    if not isinstance(declared, Mapping):
        return False
    if question.method != "elicitation/create":
        return True
    mode = question.params.get("mode", "form") if isinstance(question.params, Mapping) else "form"
    # A client that names no mode takes forms, says the specification.
    return mode in (declared or ("form",))


CHANGE_INTERVAL = 1.0
"""Seconds between two reports of a change, however many the server sends."""
NOTICES_PER_SECOND = 200
"""Notices passed on per second; a flood beyond that is dropped."""
ID_LIMIT = 1_000
"""Characters of the id of a server's own request."""
CHANGES = frozenset(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
NOTICES = frozenset({"notifications/message", "notifications/resources/updated"})


class Notifications:
    """Sorts one server's notifications: list changes are gathered, notices passed on, the rest dropped."""

    def __init__(self, server: str, on_change: OnChange, on_notice: OnNotice, questions: ServerQuestions) -> None:
        self._server, self._on_change, self._on_notice = server, on_change, on_notice
        self._questions = questions
        self._changed_at = float("-inf")
        self._due: asyncio.TimerHandle | None = None
        self._window_at, self._in_window = float("-inf"), 0
        self._has_warned = False

    def receive(self, method: str, params: Any) -> None:
        """Take one notification; never waits and never raises."""
        if method in CHANGES:
            self.changed()
        elif method in NOTICES and isinstance(params, Mapping) and self._has_room():
            # Through the loop: what a listener raises must not end the reading of this server.
            asyncio.get_running_loop().call_soon(self._on_notice, self._server, method, params)

    def answer(self, request: JsonObject, reply: Reply, *, is_own_stream: bool = False) -> JsonObject | None:
        """Our answer to a server's request; None when there is none, or when `reply` will send it later.

        On a stream that belongs to one call (`is_own_stream`), its reader's task says which call that is.
        """
        id = request.get("id")
        if not isinstance(id, int | float | str) or (isinstance(id, str) and len(id) > ID_LIMIT):
            return None  # whoever writes such an id gets no copy of it back
        if request.get("method") == "ping":
            return {"jsonrpc": "2.0", "id": id, "result": {}}
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
        is_full = self._in_window > NOTICES_PER_SECOND
        if is_full and not self._has_warned:
            self._has_warned = True
            logger.warning("server %r sends more than %d notices a second; dropped", self._server, NOTICES_PER_SECOND)
        return not is_full
