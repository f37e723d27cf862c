"""Async functions run in a loop aside: whatever one of them does, the gateway and the others go on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from portico.concurrency import FunctionLoop
from portico.errors import InvalidArguments, Sent, UpstreamGone, UpstreamTimeout
from portico.providers.python import LocalProvider, make_tool


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What blocking functions wait for, opened at the end so that no thread is left."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def loops() -> Iterator[FunctionLoop]:
    found = FunctionLoop(limit=2, held_seconds=0.05)
    yield found
    found.close()


def provider_of(loops: FunctionLoop, *functions: Callable[..., Any], timeout: float = 10.0) -> LocalProvider:
    provider = LocalProvider(timeout=timeout, loops=loops)
    for function in functions:
        provider.add_tool(make_tool(function))
    return provider


async def call(provider: LocalProvider, name: str, **arguments: Any) -> Mapping[str, Any]:
    with anyio.fail_after(20):
        return await provider.call(name, arguments, meta={}, on_progress=None)


def text(result: Mapping[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def handle_thread() -> str:
    """Say where it runs."""
    return threading.current_thread().name


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_an_async_function_that_blocks_holds_up_neither_the_gateway_nor_the_others(
    loops: FunctionLoop, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    arrived = threading.Event()

    async def handle_block() -> str:
        """Block without awaiting."""
        arrived.set()
        gate.wait()
        return "done"

    provider = provider_of(loops, handle_block, handle_thread)
    results: list[Mapping[str, Any]] = []

    async def block() -> None:
        results.append(await call(provider, "block"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(block)
        await anyio.to_thread.run_sync(arrived.wait, 10)
        assert text(await call(provider, "thread")) == "portico async tools"
        assert loops.held == ("block",)
        assert provider.health().reason == "async functions that block their event loop: block"
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "the async tool 'block' blocks its event loop" in caplog.text
        gate.set()
    assert [text(result) for result in results] == ["done"]
    with anyio.fail_after(10):
        while loops.held:
            await anyio.lowlevel.checkpoint()
    assert provider.health().reason == ""


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_when_every_loop_is_held_calls_fail_and_say_by_what(loops: FunctionLoop, gate: threading.Event) -> None:
    arrived = threading.Semaphore(0)

    async def handle_block() -> None:
        """Block without awaiting."""
        arrived.release()
        gate.wait()

    provider = provider_of(loops, handle_block, handle_thread)
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(call, provider, "block")
            assert await anyio.to_thread.run_sync(lambda: arrived.acquire(timeout=10))
        with pytest.raises(UpstreamGone) as caught:
            await call(provider, "thread")
        gate.set()
    assert caught.value.sent is Sent.NOTHING
    assert "all 2 event loops are held by async functions that block: block" in str(caught.value)


async def test_async_functions_share_one_loop_and_see_the_callers_context(loops: FunctionLoop) -> None:
    seen: list[Any] = []
    word = ContextVar("word", default="")

    async def handle_look() -> str:
        """Look around."""
        seen.append(asyncio.get_running_loop())
        return word.get()

    provider = provider_of(loops, handle_look)
    word.set("hello")
    assert [text(await call(provider, "look")) for _ in range(3)] == ["hello"] * 3
    assert len(set(seen)) == 1
    assert seen[0] is not asyncio.get_running_loop()


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_a_function_that_cancels_itself_or_ends_its_loop_costs_nobody_else_anything(
    loops: FunctionLoop, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle_cancel() -> None:
        """Cancel itself."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def handle_cancel_late() -> str:
        """Cancel itself, and return all the same."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned"

    async def handle_stop() -> str:
        """Stop the loop."""
        asyncio.get_running_loop().stop()
        return "stopped"

    async def handle_leave() -> str:
        """Leave a task behind that ends its loop."""

        async def leave() -> None:
            raise SystemExit(1)

        task = asyncio.ensure_future(leave())
        await asyncio.wait([task])
        assert isinstance(task.exception(), SystemExit)
        return "left"

    async def handle_close() -> None:
        """Raise what no function raises."""
        raise GeneratorExit

    provider = provider_of(loops, handle_cancel, handle_cancel_late, handle_stop, handle_leave, handle_close)
    for name, said in (
        ("cancel", "CancelledError: "),
        ("cancel_late", "returned"),
        ("stop", "stopped"),
        ("leave", "left"),
        ("close", "GeneratorExit: "),
        ("cancel_late", "returned"),
    ):
        assert text(await call(provider, name)) == said
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert "a task that an async function has left behind failed" in caplog.text


async def test_a_function_whose_call_is_given_up_is_cancelled(loops: FunctionLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def handle_wait() -> None:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    provider = provider_of(loops, handle_wait, timeout=0.05)
    with pytest.raises(UpstreamTimeout, match=r"no result after 0\.05 s"):
        await call(provider, "wait")
    assert begun.is_set()
    assert await anyio.to_thread.run_sync(ended.wait, 10)


async def test_what_is_at_work_is_cancelled_when_the_loops_are_closed(loops: FunctionLoop) -> None:
    begun = threading.Event()

    async def handle_wait() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    provider = provider_of(loops, handle_wait)
    results: list[Mapping[str, Any]] = []

    async def wait() -> None:
        results.append(await call(provider, "wait"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        assert await anyio.to_thread.run_sync(begun.wait, 10)
        loops.close()
    assert [result["isError"] for result in results] == [True]
    assert (await call(provider_of(loops, handle_thread), "thread"))["content"], "and a new one is there when needed"


async def test_a_plain_function_that_returns_a_coroutine_is_awaited_aside(loops: FunctionLoop) -> None:
    def handle_later() -> Any:
        """Give a coroutine."""
        return handle_thread()

    assert text(await call(provider_of(loops, handle_later), "later")) == "portico async tools"


async def test_arguments_are_read_aside_and_whatever_a_class_raises_is_said_of_the_argument(
    loops: FunctionLoop,
) -> None:
    class Even(int):
        def __new__(cls, value: int) -> Even:
            if value % 2:
                raise RuntimeError(f"odd, in {threading.current_thread().name}")
            return super().__new__(cls, value)

    def handle_halve(x: Even) -> int:
        """Halve."""
        return x // 2

    async def handle_halve_later(x: Even) -> int:
        """Halve."""
        return x // 2

    handle_halve.__annotations__["x"] = handle_halve_later.__annotations__["x"] = Even
    provider = provider_of(loops, handle_halve, handle_halve_later)
    for name, thread in (("halve", "portico tool"), ("halve_later", "portico async tools")):
        assert (await call(provider, name, x=4))["structuredContent"] == {"result": 2}
        with pytest.raises(InvalidArguments, match=f"x: it was refused with RuntimeError: odd, in {thread}"):
            await call(provider, name, x=3)
