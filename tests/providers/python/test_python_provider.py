"""Functions as tools: their values are results, their errors are the tool's own, their time is bounded."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

import anyio
import pytest

from portico.concurrency import Workers
from portico.errors import Sent, UnknownTool, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.providers.python import LocalProvider, make_tool
from portico.providers.python.functions import LIMIT, as_result


class Pair(NamedTuple):
    left: int
    right: date


class Silent(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise ValueError


def provider_of(run: Any, timeout: float = 5.0) -> LocalProvider:
    provider = LocalProvider(server="local", timeout=timeout)
    provider.add({"name": "t"}, run)
    return provider


async def call(provider: LocalProvider, name: str = "t", **arguments: Any) -> Mapping[str, Any]:
    with anyio.fail_after(20):
        return await provider.call(name, arguments, meta={}, on_progress=None)


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("hello", "hello", None),
        (None, "null", {"result": None}),
        (5, "5", {"result": 5}),
        ([1, "a"], '[1,"a"]', {"result": [1, "a"]}),
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ({1: 2}, '{"1":2}', {"1": 2}),
    ],
)
def test_a_value_becomes_a_result(value: Any, text: str, structured: Any) -> None:
    result = as_result(value)
    assert result["content"] == [{"type": "text", "text": text}]
    assert result.get("structuredContent") == structured


def test_a_whole_result_object_is_passed_on_as_it_is() -> None:
    result = {"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "isError": True}
    assert as_result(result) is result


@pytest.mark.parametrize(
    ("value", "structured"),
    [
        ({3, 1, 2}, {"result": [1, 2, 3]}),
        (Pair(1, date(2026, 1, 1)), {"left": 1, "right": "2026-01-01"}),
        (b"hi", {"result": "aGk="}),
        ({"a": Decimal("1.5"), "b": range(2)}, {"a": "1.5", "b": [0, 1]}),
        (MappingProxyType({"a": 1}), {"a": 1}),
    ],
)
def test_what_json_has_no_word_for_is_spelled_in_words_that_it_has(value: Any, structured: Any) -> None:
    assert as_result(value)["structuredContent"] == structured


def test_text_that_no_wire_can_carry_is_mended() -> None:
    assert as_result("a\ud800b")["content"][0]["text"] == "a?b"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            (x for x in "ab"),
            "TypeError: the function returned a generator, which has no end that we know: return a list",
        ),
        ({"rows": iter([1])}, "TypeError: the function returned a list_iterator"),
        ("x" * (LIMIT + 1), "ValueError: the result has 16.0 MB; the limit is 16 MB: return less"),
        (["x" * LIMIT], "ValueError: the result has 16.0 MB"),
        ({"content": [{"type": "text", "text": "x" * LIMIT}]}, "ValueError: the result has 16.0 MB"),
    ],
)
async def test_a_value_without_end_or_beyond_measure_is_the_tools_own_error(value: Any, words: str) -> None:
    result = await call(provider_of(lambda name, arguments: value))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(words)


def test_a_whole_result_object_is_put_into_words_of_json_where_it_has_others() -> None:
    block = {"type": "text", "text": "x", "when": date(2026, 1, 1)}
    assert as_result({"content": [block]}) == {"content": [{**block, "when": "2026-01-01"}]}


async def test_a_generator_function_is_told_to_return_a_list() -> None:
    async def stream(name: str, arguments: Mapping[str, Any]) -> AsyncIterator[int]:
        yield 1

    assert "return a list instead" in (await call(provider_of(stream)))["content"][0]["text"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), Silent()])
@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_even_what_would_end_a_process_is_the_tools_own_error(error: BaseException) -> None:
    def run(name: str, arguments: Mapping[str, Any]) -> None:
        raise error

    result = await call(provider_of(run))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(type(error).__name__)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("mine")])
async def test_an_async_function_cannot_end_the_process_either(error: BaseException) -> None:
    async def run(name: str, arguments: Mapping[str, Any]) -> None:
        raise error

    result = await call(provider_of(run))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(type(error).__name__)


@pytest.mark.requirement("P-LIBRARY-ERRORS")
@pytest.mark.parametrize("error", [ValueError("bad"), TimeoutError("mine"), KeyError("k"), RecursionError("deep")])
async def test_what_a_function_raises_is_the_tools_own_error(error: Exception) -> None:
    def run(name: str, arguments: Mapping[str, Any]) -> None:
        raise error

    result = await call(provider_of(run))
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith(type(error).__name__)


async def test_a_value_that_no_json_can_hold_is_the_tools_own_error() -> None:
    assert (await call(provider_of(lambda name, arguments: 10**30)))["isError"] is True


@pytest.mark.requirement("P-LIBRARY-TIMEOUT")
async def test_an_async_function_that_hangs_is_given_up() -> None:
    async def run(name: str, arguments: Mapping[str, Any]) -> None:
        await anyio.Event().wait()

    with pytest.raises(UpstreamTimeout, match=r"no result after 0.05 s") as caught:
        await call(provider_of(run, timeout=0.05))
    assert caught.value.sent is Sent.UNKNOWN


@pytest.mark.requirement("P-LIBRARY-TIMEOUT")
async def test_a_plain_function_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    with pytest.raises(UpstreamTimeout):
        await call(provider_of(lambda name, arguments: release.wait(30), timeout=0.05))
    release.set()


async def test_a_plain_function_does_not_hold_the_loop() -> None:
    release = threading.Event()
    answered: list[Mapping[str, Any]] = []
    provider = provider_of(lambda name, arguments: release.wait(10))

    async def ask() -> None:
        answered.append(await call(provider))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.lowlevel.checkpoint()
        release.set()
    assert answered[0]["structuredContent"] == {"result": True}


async def test_an_unknown_name_and_a_removed_one_are_unknown() -> None:
    provider = provider_of(lambda name, arguments: "x")
    assert provider.remove("t")
    assert not provider.remove("t")
    with pytest.raises(UnknownTool):
        await call(provider)


def handle_double(x: int) -> int:
    """Double."""
    return 2 * x


class Gate:
    """Functions that wait until they are let go, and how many are at it."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.running = threading.Semaphore(0)

    def handle_wait(self) -> str:
        """Wait."""
        self.running.release()
        assert self.open.wait(20)
        return "done"

    async def arrived(self, count: int) -> None:
        for _ in range(count):
            assert await anyio.to_thread.run_sync(self.running.acquire, True, 10)


def gated(limit: int, timeout: float) -> tuple[Gate, LocalProvider]:
    gate = Gate()
    provider = LocalProvider(workers=Workers(limit=limit), timeout=timeout)
    for function in (gate.handle_wait, handle_double):
        provider.add_tool(make_tool(function))
    return gate, provider


async def test_only_so_many_functions_run_at_once_and_the_others_wait_their_turn() -> None:
    gate, provider = gated(limit=2, timeout=20.0)
    results: list[Mapping[str, Any]] = []

    async def ask() -> None:
        results.append(await call(provider, "wait"))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
        await gate.arrived(2)
        assert not gate.running.acquire(blocking=False)
        gate.open.set()
    assert [result["content"][0]["text"] for result in results] == ["done"] * 5


@pytest.mark.requirement("P-LIBRARY-TIMEOUT")
async def test_waiting_for_a_thread_counts_towards_the_time_of_a_call() -> None:
    gate, provider = gated(limit=1, timeout=20.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, provider, "wait")
        await gate.arrived(1)
        provider.timeout = 0.05
        with pytest.raises(UpstreamTimeout, match=r"no worker thread was free for 0.05 s; all 1 are busy") as caught:
            await call(provider, "double", x=1)
        assert caught.value.sent is Sent.NOTHING
        gate.open.set()


@pytest.mark.requirement("P-LIBRARY-TIMEOUT", "P-PYTHON-SAFE")
async def test_when_every_thread_hangs_calls_fail_at_once_until_one_comes_back() -> None:
    gate, provider = gated(limit=2, timeout=0.05)
    for _ in range(2):
        with pytest.raises(UpstreamTimeout):
            await call(provider, "wait")
    assert "2 of 2 worker threads did not come back from: wait" in provider.health().reason
    with pytest.raises(
        UpstreamGone, match="all 2 worker threads are held by functions that do not return: wait"
    ) as caught:
        await call(provider, "double", x=1)
    assert caught.value.sent is Sent.NOTHING
    gate.open.set()
    with anyio.fail_after(10):
        while provider.workers.stuck:
            await anyio.lowlevel.checkpoint()
    provider.timeout = 5.0
    assert (await call(provider, "double", x=4))["structuredContent"] == {"result": 8}
    assert provider.health().reason == ""


async def test_a_call_that_is_cancelled_before_its_turn_never_runs() -> None:
    gate, provider = gated(limit=1, timeout=20.0)
    ran: list[int] = []

    def handle_mark() -> None:
        """Mark."""
        ran.append(1)

    provider.add_tool(make_tool(handle_mark))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, provider, "wait")
        await gate.arrived(1)
        with anyio.move_on_after(0.02):
            await call(provider, "mark")
        gate.open.set()
    assert (await call(provider, "double", x=1))["structuredContent"] == {"result": 2}
    assert ran == []


def test_a_function_that_hangs_does_not_keep_the_process_alive() -> None:
    script = (
        "import anyio, threading\n"
        "from portico.errors import UpstreamTimeout\n"
        "from portico.providers.python import LocalProvider, make_tool\n"
        "def handle_hang() -> None:\n"
        "    threading.Event().wait()\n"
        "provider = LocalProvider(timeout=0.05)\n"
        "provider.add_tool(make_tool(handle_hang))\n"
        "async def main():\n"
        "    try:\n"
        "        await provider.call('hang', {}, meta={}, on_progress=None)\n"
        "    except UpstreamTimeout:\n"
        "        print('given up')\n"
        "anyio.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "given up\n"


def test_one_provider_serves_one_event_loop_after_the_other() -> None:
    provider = LocalProvider()
    provider.add_tool(make_tool(handle_double))
    for x in range(3):
        found = anyio.run(lambda x=x: call(provider, "double", x=x))
        assert found["structuredContent"] == {"result": 2 * x}


@pytest.mark.requirement("S0-2", "S0-77")
async def test_functions_come_and_go_and_the_fingerprint_tells() -> None:
    provider = LocalProvider()
    empty = provider.fingerprint
    provider.add_tool(make_tool(handle_double))
    one = provider.fingerprint
    assert one != empty
    assert provider.fingerprint == one
    assert provider.remove("double")
    assert provider.fingerprint == empty
    with pytest.raises(UnknownTool):
        await call(provider, "double", x=1)


async def test_what_modules_give_is_replaced_whole_and_what_was_added_stays() -> None:
    provider = LocalProvider()
    provider.add({"name": "mine"}, lambda name, arguments: "mine")
    provider.take([make_tool(handle_double), make_tool(handle_double, "mine")])
    assert [tool["name"] for tool in provider.offering().tools] == ["mine", "double"]
    assert (await call(provider, "mine"))["content"][0]["text"] == "mine"
    provider.take([make_tool(handle_double, "twice")])
    assert [tool["name"] for tool in provider.offering().tools] == ["mine", "twice"]


async def test_other_requests_are_answered_by_whoever_was_put_there() -> None:
    async def read(params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"contents": [{"uri": params["uri"], "text": "hi"}]}

    provider = LocalProvider(resources=[{"uri": "note://a", "name": "a"}])
    provider.handlers["resources/read"] = read
    provider.handlers["prompts/get"] = lambda params: {"messages": []}
    assert provider.offering().resources == ({"uri": "note://a", "name": "a"},)
    assert (await provider.request("resources/read", {"uri": "note://a"}))["contents"][0]["text"] == "hi"
    assert await provider.request("prompts/get", {"name": "x"}) == {"messages": []}
    with pytest.raises(UpstreamError, match="completion/complete is not offered"):
        await provider.request("completion/complete", {})
