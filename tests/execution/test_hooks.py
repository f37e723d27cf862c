"""Hooks see every search and call; guards fail closed, watchers fail open, and none of them holds up Portico."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from portico.concurrency import WAITING, FunctionLoop, Workers
from portico.domain.call import Caller, Result
from portico.domain.search_answers import Findings, Hit
from portico.domain.tool import Tool
from portico.errors import ConfigError, InvalidArguments, Refused, Sent, UpstreamGone
from portico.execution.arguments import ArgumentCheck, Checked
from portico.execution.hooks import Hooks, hooks_of
from portico.providers.python.functions import prints_to_stderr
from portico.testing import AGENT, definition, tool

WEATHER = tool(definition("weather", city="string", days={"type": "integer"}))
GIVEN = {"city": "Oslo", "days": 3}
CHECK = ArgumentCheck().check
RESULT = Result({"content": [{"type": "text", "text": "rain"}]}, ("a note",))
SHORT = 0.2
"""Seconds that a hook gets where it is meant to hang."""


def hooks(*sources: Mapping[str, Callable[..., Any]], seconds: float = 5.0) -> Hooks:
    return hooks_of([SimpleNamespace(**source) for source in sources], Workers(), seconds=seconds)


async def called(found: Hooks, arguments: Mapping[str, Any] = GIVEN) -> Mapping[str, Any]:
    return (await found.before_call(AGENT, WEATHER, Checked(arguments), CHECK)).arguments


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What hanging hooks wait for, opened at the end so that no thread is left."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_nothing_is_there_without_hooks():
    assert not hooks()
    assert hooks({"on_error": lambda *_: None, "on_start": lambda: None})


@pytest.mark.requirement("P-RESTRICTIONS")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({}, "has no hook in it"),
        ({"on_start": lambda: None}, "has no hook in it"),
        ({"on_call": 5}, "'on_call' of 'SimpleNamespace' is int, not a function"),
        ({"on_call": "guard", "on_error": lambda *_: None}, "is str, not a function"),
        ({"on_call": lambda: None}, "does not take what it is called with. Write it as def on_call(caller, tool"),
        ({"on_call": lambda a, b, c, d: None}, "does not take what it is called with"),
        ({"on_result": lambda a, b, c: None}, "does not take what it is called with"),
        ({"on_cal": lambda *_: None, "on_error": lambda *_: None}, "which is no hook and would never run"),
    ],
)
def test_what_could_be_a_guard_and_cannot_run_is_refused(source: Mapping[str, Any], problem: str):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        hooks(source)


@pytest.mark.parametrize("kind", ["sync", "async", "returns an awaitable"])
async def test_a_call_is_seen_and_may_be_changed_by_one_hook_after_the_other(kind: str):
    seen: list[tuple[Caller, Tool, Mapping[str, Any]]] = []

    def watch(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> None:
        seen.append((caller, tool, dict(arguments)))

    def change(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "city": arguments["city"].upper()}

    def as_kind(function: Callable[..., Any]) -> Callable[..., Any]:
        async def later(*given: Any) -> Any:
            return function(*given)

        return {"sync": function, "async": later}.get(kind, lambda *given: later(*given))

    found = hooks({"on_call": as_kind(watch)}, {"on_call": as_kind(change)}, {"on_call": as_kind(watch)})
    assert await called(found) == {"city": "OSLO", "days": 3}
    assert seen == [(AGENT, WEATHER, GIVEN), (AGENT, WEATHER, {"city": "OSLO", "days": 3})]


async def test_what_a_hook_changes_without_returning_it_is_not_sent():
    def meddle(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> None:
        arguments["city"] = 7

    given = {"city": "Oslo", "days": 3}
    assert await called(hooks({"on_call": meddle}), given) == given == GIVEN


async def test_changed_arguments_are_checked_and_repaired_like_a_callers():
    found = hooks({"on_call": lambda *_: {"city": "Oslo", "days": "4"}})
    checked = await found.before_call(AGENT, WEATHER, Checked(GIVEN, ("before",)), CHECK)
    assert checked.arguments == {"city": "Oslo", "days": 4}
    assert checked.notes == ("before", 'days: took "4" as 4')


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"city": "Oslo"}, "hook.on_call has changed the arguments, and they do not fit any more"),
        (["city"], "hook.on_call returned list; it must return the arguments, as JSON, or nothing"),
        (True, "hook.on_call returned bool; it must return the arguments, as JSON, or nothing"),
        ({**GIVEN, "x": {1}}, "hook.on_call returned dict; it must return the arguments, as JSON, or nothing"),
    ],
)
async def test_arguments_that_do_not_fit_are_the_hooks_fault_and_refused(answer: Any, said: str):
    hook = SimpleNamespace(__name__="hook", on_call=lambda *_: answer)
    with pytest.raises(Refused) as caught:
        await called(hooks_of([hook], Workers()))
    assert caught.value.details[0] == said


async def test_a_guard_says_no_in_its_own_words():
    def sunday(*_: Any) -> None:
        raise Refused("not on Sundays")

    def by_name(caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        raise Refused(tool.handle, details=("ask Ana first",))

    for guard, reason in ((sunday, "not on Sundays"), (by_name, "ask Ana first")):
        with pytest.raises(Refused) as caught:
            await called(hooks({"on_call": guard}))
        assert (caught.value.subject, caught.value.details) == ("fake.weather", (reason,))
        assert caught.value.sent is Sent.NOTHING


@pytest.mark.parametrize(
    ("error", "is_async"),
    [
        (PermissionError("no"), True),
        (PermissionError("no"), False),
        (KeyError(), True),
        (SystemExit(3), True),
        (SystemExit(3), False),
        (asyncio.CancelledError(), False),
        (asyncio.CancelledError(), True),
        (KeyboardInterrupt(), False),
        (KeyboardInterrupt(), True),
    ],
)
async def test_a_guard_that_fails_in_any_way_refuses_and_is_logged_once(
    caplog: pytest.LogCaptureFixture, error: BaseException, is_async: bool
):
    def broken(*_: Any) -> None:
        raise error

    async def broken_later(*_: Any) -> None:
        raise error

    found = hooks({"on_call": broken_later if is_async else broken})
    for _ in range(3):
        with pytest.raises(Refused, match=r"SimpleNamespace\.on_call"):
            await called(found)
    assert len(caplog.records) == 1


async def test_a_guard_that_hangs_refuses(gate: threading.Event, caplog: pytest.LogCaptureFixture):
    async def forever(*_: Any) -> None:
        await anyio.sleep_forever()

    for guard in (forever, lambda *_: gate.wait()):
        with anyio.fail_after(5), pytest.raises(Refused, match=r"did not answer in 0\.2 s"):
            await called(hooks({"on_call": guard}, seconds=SHORT))
    assert len(caplog.records) == 2


async def test_a_guard_whose_own_request_timed_out_is_not_said_to_hang():
    def late(*_: Any) -> None:
        raise TimeoutError("the directory did not answer")

    with pytest.raises(Refused, match="the directory did not answer"):
        await called(hooks({"on_call": late}))


async def test_guards_that_hang_hold_a_bounded_number_of_threads(gate: threading.Event):
    found = hooks({"on_call": lambda *_: gate.wait()}, seconds=SHORT)
    before = threading.active_count()
    with anyio.fail_after(20):
        for _ in range(20):
            with pytest.raises(Refused):
                await called(found)
    assert threading.active_count() - before <= 16


@pytest.mark.requirement("P-STDIO-CLEAN")
async def test_what_hooks_print_stays_out_of_stdout(capsys: pytest.CaptureFixture[str]):
    is_told = threading.Event()

    async def on_call(*_: Any) -> None:
        print("called")

    def on_search(*_: Any) -> None:
        print("searched")
        is_told.set()

    hook = SimpleNamespace(on_call=on_call, on_result=lambda *_: print("answered"), on_search=on_search)
    found = hooks_of([hook], Workers(), around=prints_to_stderr)
    await called(found)
    await found.after_call(AGENT, WEATHER, GIVEN, RESULT)
    found.after_search(AGENT, "rain", Findings())
    assert is_told.wait(5)
    assert capsys.readouterr() == ("", "called\nanswered\nsearched\n")


async def test_a_cancelled_call_cancels_its_hook():
    is_here, is_gone = anyio.Event(), anyio.Event()

    async def wait(*_: Any) -> None:
        is_here.set()
        try:
            await anyio.sleep_forever()
        finally:
            is_gone.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(called, hooks({"on_call": wait}))
        with anyio.fail_after(5):
            await is_here.wait()
        tasks.cancel_scope.cancel()
    assert is_gone.is_set()


async def test_a_result_is_seen_and_may_be_replaced():
    other = {"content": [], "structuredContent": {"degrees": 5}}
    for answer, expected in ((None, RESULT), (other, Result(other, ("a note",))), (Result(other), Result(other))):
        found = hooks({"on_result": lambda *_, answer=answer: answer})
        assert await found.after_call(AGENT, WEATHER, GIVEN, RESULT) == expected
    assert await hooks({"on_call": lambda *_: None}).after_call(AGENT, WEATHER, GIVEN, RESULT) is RESULT


async def test_what_is_no_result_leaves_the_result(caplog: pytest.LogCaptureFixture):
    unsendable = {"content": [{"type": "text", "text": object()}]}
    answers = ("text", {"content": "text"}, 5, {"content": ["text"]}, unsendable, Result(unsendable))
    for answer in answers:
        found = hooks({"on_result": lambda *_, answer=answer: answer})
        assert await found.after_call(AGENT, WEATHER, GIVEN, RESULT) is RESULT
    assert len(caplog.records) == len(answers)


async def test_a_question_of_the_tool_is_no_result_yet():
    asked = Result({"resultType": "input_required", "inputRequests": {}})
    found = hooks({"on_result": lambda *_: {"content": []}})
    assert await found.after_call(AGENT, WEATHER, GIVEN, asked) is asked


async def test_an_error_is_seen_by_everybody_who_watches():
    seen: list[Exception] = []
    error = UpstreamGone("fake", sent=Sent.UNKNOWN)
    found = hooks(
        {"on_error": lambda *given: seen.append(given[3])}, {"on_error": lambda *given: seen.append(given[3])}
    )
    await found.after_error(AGENT, WEATHER, GIVEN, error)
    assert seen == [error, error]


@pytest.mark.requirement("P-HOOKS")
async def test_a_watcher_that_fails_costs_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture):
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    found = hooks({"on_result": broken, "on_error": broken})
    for _ in range(3):
        assert await found.after_call(AGENT, WEATHER, GIVEN, RESULT) is RESULT
        await found.after_error(AGENT, WEATHER, GIVEN, InvalidArguments("fake.weather"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


async def test_a_watcher_that_hangs_is_left_out_for_a_while(gate: threading.Event, caplog: pytest.LogCaptureFixture):
    begun: list[object] = []

    def hang(*_: Any) -> None:
        begun.append(None)
        gate.wait()

    found = hooks({"on_result": hang}, seconds=SHORT)
    with anyio.fail_after(5):
        for _ in range(50):
            assert await found.after_call(AGENT, WEATHER, GIVEN, RESULT) is RESULT
    assert len(begun) == len(caplog.records) == 1


@pytest.mark.requirement("S0-78")
@pytest.mark.parametrize("is_async", [True, False])
def test_a_search_is_reported_in_the_background_without_an_event_loop(is_async: bool):
    seen: list[tuple[Any, ...]] = []
    is_told = threading.Event()

    def tell(*given: Any) -> None:
        seen.append(given)
        is_told.set()

    async def tell_later(*given: Any) -> None:
        tell(*given)

    findings = Findings(hits=(Hit(tool=WEATHER, score=1.0),), fits=True)
    hooks({"on_search": tell_later if is_async else tell}).after_search(AGENT, "rain", findings)
    assert is_told.wait(5)
    assert seen == [(AGENT, "rain", findings)]


def test_a_search_never_waits_for_its_hook(gate: threading.Event, caplog: pytest.LogCaptureFixture):
    is_here = threading.Event()

    def hang(*_: Any) -> None:
        is_here.set()
        gate.wait()

    found = hooks({"on_search": hang})
    for _ in range(WAITING + 10):
        found.after_search(AGENT, "rain", Findings())
    assert is_here.wait(5)
    for _ in range(WAITING + 10):
        found.after_search(AGENT, "rain", Findings())
    assert [f"{WAITING} of its events wait" in record.getMessage() for record in caplog.records] == [True]


def test_a_search_hook_that_fails_is_logged_and_told_again(caplog: pytest.LogCaptureFixture):
    told = threading.Semaphore(0)

    def broken(*_: Any) -> None:
        told.release()
        raise SystemExit(1)

    found = hooks({"on_search": broken})
    for _ in range(3):
        found.after_search(AGENT, "rain", Findings())
    assert all(told.acquire(timeout=5) for _ in range(3))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_nothing_that_a_search_hook_raises_ends_the_telling(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    told = threading.Semaphore(0)

    def broken(*_: Any) -> None:
        told.release()
        raise error

    found = hooks({"on_search": broken})
    for _ in range(2):
        found.after_search(AGENT, "rain", Findings())
        assert told.acquire(timeout=5)
    found.wait_until_idle()
    assert len(caplog.records) == 1


def test_searches_that_wait_are_reported_before_the_end(gate: threading.Event):
    told: list[str] = []

    def tell(caller: Caller, query: str, findings: Findings) -> None:
        gate.wait()
        told.append(query)

    found = hooks({"on_search": tell})
    for text in ("rain", "sun"):
        found.after_search(AGENT, text, Findings())
    threading.Timer(0.05, gate.set).start()
    found.wait_until_idle()
    assert told == ["rain", "sun"]


def test_the_end_does_not_wait_for_a_search_hook_that_hangs(gate: threading.Event):
    found = hooks({"on_search": lambda *_: gate.wait()}, seconds=SHORT)
    found.after_search(AGENT, "rain", Findings())
    found.wait_until_idle()
    assert not gate.is_set()


async def test_an_async_guard_that_blocks_refuses_and_holds_nobody_up(gate: threading.Event):
    arrived = threading.Event()

    async def block(*_: Any) -> None:
        arrived.set()
        gate.wait()

    async def cancel(*_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    loops = FunctionLoop(held_seconds=0.01)
    for guard, said in ((block, r"did not answer in 0\.2 s"), (cancel, "it has cancelled itself")):
        found = hooks_of([SimpleNamespace(on_call=guard)], Workers(), loops=loops, seconds=SHORT)
        with anyio.fail_after(5), pytest.raises(Refused, match=said):
            await called(found)
    assert arrived.is_set()
    gate.set()
    found.close()
