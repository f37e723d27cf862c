"""Functions as tools: their values are results, their errors are the tool's own, their time is bounded."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from portico.errors import Sent, UnknownTool, UpstreamTimeout
from portico.providers.local.provider import LocalProvider, as_result


def provider_of(run: Any, timeout: float = 5.0) -> LocalProvider:
    provider = LocalProvider(server="local", timeout=timeout)
    provider.add({"name": "t"}, run)
    return provider


async def call(provider: LocalProvider, name: str = "t") -> Mapping[str, Any]:
    with anyio.fail_after(10):
        return await provider.call(name, {}, meta={}, on_progress=None)


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
