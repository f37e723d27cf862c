"""The server that misbehaves by plan does what its plan says, over both transports, and counts what it has run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from portico.domain.server import ServerSpec, Timeouts
from portico.errors import CallError, Sent
from portico.providers.mcp import UpstreamProvider
from portico.testing import FaultPlan, FaultyServer, PlannedFault, faulty_http
from portico.testing.faulty_server import ANSWERS, STARTS
from tests.house.source import ROOT

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("P-FAULT-KIT")]
BRIEF = Timeouts(start=10, call=0.5, total=20, idle=0)


@asynccontextmanager
async def serving(
    plan: FaultPlan, transport: str, folder: Path
) -> AsyncIterator[tuple[FaultyServer, UpstreamProvider]]:
    """A faulty server over one transport, and the provider that asks it."""
    async with AsyncExitStack() as stack:
        at_once = await stack.enter_async_context(faulty_http(plan)) if transport == "http" else None
        server = at_once or FaultyServer(plan, folder / "log")
        provider = provider_of(server)
        stack.push_async_callback(provider.aclose)
        yield server, provider


def provider_of(server: FaultyServer, timeouts: Timeouts = BRIEF) -> UpstreamProvider:
    transport: dict[str, Any] = {"transport": "http", "url": server.url}
    if not server.url:
        entry = server.stdio()
        transport = {"transport": "stdio", "command": entry["command"], "args": tuple(entry["args"])}
    spec = ServerSpec(name="faulty", timeouts=timeouts, **transport)
    return UpstreamProvider(spec, on_change=lambda _: None, on_notice=lambda *_: None, client_version="1")


async def outcome(provider: UpstreamProvider, **arguments: Any) -> Any:
    """The arguments that came back, the result where others did, or the error."""

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        pass

    try:
        with anyio.fail_after(20):
            result = await provider.call("echo", arguments, meta={}, on_progress=on_progress)
    except CallError as error:
        return error
    try:
        return json.loads(result["content"][0]["text"])
    except (ValueError, LookupError):
        return result


ANSWERED, OTHER, ERROR = "the arguments", "another result", "an error"
EXPECTED = {
    **dict.fromkeys(("delay", "leave", "twice", "unknown_ids", "swap", "progress", "notify", "ask"), (ANSWERED, 1)),
    **dict.fromkeys(("failed", "large"), (OTHER, 1)),
    **dict.fromkeys(("not_utf8", "same_keys"), (OTHER, 0)),
    **dict.fromkeys(("late", "cut", "drip"), (ERROR, 1)),
    **dict.fromkeys(("hang", "crash", "raw", "garbage", "nan", "huge_number", "no_result"), (ERROR, 0)),
    **dict.fromkeys(("respond", "error", "reset"), (ERROR, 0)),
}
"""By kind, what the caller of the tool gets, and how often the tool has run."""


@pytest.mark.requirement("F06", "F14", "F15", "F17", "F20")
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("kind", EXPECTED)
async def test_a_fault_of_a_call_is_what_its_kind_says_and_the_next_call_works(
    kind: str, transport: str, tmp_path: Path
) -> None:
    plan = FaultPlan(faults=(PlannedFault(kind=kind, numbers=(2,)),))
    async with serving(plan, transport, tmp_path) as (server, provider):
        assert await outcome(provider, n=1) == {"n": 1}
        found = await outcome(provider, n=2)
        said = ERROR if isinstance(found, CallError) else ANSWERED if found == {"n": 2} else OTHER
        assert (said, server.executions["echo"] - 1) == EXPECTED[kind], found
        assert await until_answered(provider, n=3) == {"n": 3}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("kind", ["hang", "crash", "garbage", "error"])
async def test_a_tool_may_run_before_it_goes_wrong(kind: str, transport: str, tmp_path: Path) -> None:
    async with serving(FaultPlan(faults=(PlannedFault(kind=kind, after=True),)), transport, tmp_path) as (
        server,
        provider,
    ):
        assert isinstance(await outcome(provider, n=1), CallError)
        assert server.executions == {"echo": 1}


async def until_answered(provider: UpstreamProvider, **arguments: Any) -> Any:
    """The end of a server after its answer may be noticed by the call that follows."""
    found = await outcome(provider, **arguments)
    return await outcome(provider, **arguments) if isinstance(found, CallError) else found


async def test_a_lost_session_is_begun_again(tmp_path: Path) -> None:
    plan = FaultPlan(faults=(PlannedFault(kind="lose_session", numbers=(2,)),))
    async with serving(plan, "http", tmp_path) as (server, provider):
        for number in range(3):
            assert await outcome(provider, n=number) == {"n": number}
        assert server.methods().count("initialize") == 2
        assert server.executions == {"echo": 3}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("kind", ["garbage", "error", "crash", "version"])
async def test_a_handshake_can_go_wrong(kind: str, transport: str, tmp_path: Path) -> None:
    async with serving(FaultPlan(faults=(PlannedFault(kind=kind, at="handshake"),)), transport, tmp_path) as (
        _,
        provider,
    ):
        found = await outcome(provider)
        assert isinstance(found, CallError)
        assert found.sent is Sent.NOTHING


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (PlannedFault(kind="exit", at="start", status=7, text="no license"), "exited with code 7"),
        (PlannedFault(kind="hang", at="start"), "did not answer the handshake within 1 s"),
        (PlannedFault(kind="long_line", at="start", size=70 << 20), "more than 64 MiB"),
    ],
)
async def test_a_start_can_go_wrong(fault: PlannedFault, words: str, tmp_path: Path) -> None:
    server = FaultyServer(FaultPlan(faults=(fault,)), tmp_path / "log")
    provider = provider_of(server, Timeouts(start=1 if fault.kind == "hang" else 20, call=5, total=20, idle=0))
    try:
        assert words in str(await outcome(provider))
        assert server.starts != []
    finally:
        await provider.aclose()


async def test_starts_are_counted_over_the_life_of_a_log(tmp_path: Path) -> None:
    server = FaultyServer(FaultPlan(faults=(PlannedFault(kind="exit", at="start", numbers=(1, 2)),)), tmp_path / "log")
    provider = provider_of(server)
    try:
        assert isinstance(await outcome(provider, n=1), CallError)
        assert await outcome(provider, n=2) == {"n": 2}
        assert len(server.starts) == 3
    finally:
        await provider.aclose()


@pytest.mark.requirement("F04", "F05")
@pytest.mark.parametrize(
    "fault",
    [
        PlannedFault(kind="write", at="start", text="\ufeffStarting 99 %\r\n", count=100),
        PlannedFault(kind="stderr", at="start", size=100 << 20, text="the end"),
        PlannedFault(kind="delay", at="start", seconds=0.1),
        PlannedFault(kind="stay", at="start"),
    ],
)
async def test_some_odd_starts_do_no_harm(fault: PlannedFault, tmp_path: Path) -> None:
    server = FaultyServer(FaultPlan(faults=(fault,)), tmp_path / "log")
    provider = provider_of(server)
    try:
        assert await outcome(provider, n=1) == {"n": 1}
    finally:
        await provider.aclose()


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_both_eras_are_spoken(transport: str, tmp_path: Path) -> None:
    async with serving(FaultPlan(era="modern"), transport, tmp_path) as (server, provider):
        assert (await provider.offer()).protocol == "2026-07-28"
        assert await outcome(provider, n=1) == {"n": 1}
        assert "initialize" not in server.methods()


async def test_a_plan_with_a_chance_is_the_same_every_time_and_differs_by_its_seed(tmp_path: Path) -> None:
    async def failures(seed: int) -> list[int]:
        plan = FaultPlan(seed=seed, faults=(PlannedFault(kind="error", chance=0.3),))
        async with serving(plan, "http", tmp_path) as (_, provider):
            found = [await outcome(provider, n=n) for n in range(60)]
        return [n for n, one in enumerate(found) if isinstance(one, CallError)]

    first = await failures(1)
    assert 5 < len(first) < 35
    assert await failures(1) == first
    assert await failures(2) != first


def test_a_plan_survives_its_json() -> None:
    faults = (
        PlannedFault(kind="respond", status=503, numbers=(1, 2), headers={"Retry-After": "7"}),
        PlannedFault(kind="hang"),
    )
    plan = FaultPlan(tools=("a", {"name": "b", "inputSchema": {"type": "object"}}), faults=faults, seed=3, era="both")
    assert FaultPlan.read(plan.json()) == plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"faults": [{"kind": "nap"}]}', "there is no fault 'nap' at call: it is one of hang, delay,"),
        ('{"faults": [{"kind": "hang", "at": "noon"}]}', "there is no moment 'noon'"),
        ('{"faults": [{"kind": "hang", "sekonds": 1}]}', "sekonds"),
        ('{"moon": 1}', "moon"),
        ("[1]", "this is no plan"),
    ],
)
def test_a_plan_that_cannot_be_used_says_why(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FaultPlan.read(text)


def test_a_process_without_a_log_is_not_counted_as_never_run() -> None:
    with pytest.raises(ValueError, match="needs a `log`"):
        print(FaultyServer(FaultPlan()).executions)


async def test_it_serves_over_http_as_a_program_and_tells_its_executions(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"tools": ["look"]}')
    command = [sys.executable, "-m", "portico.testing.faulty_server", "--plan", str(tmp_path / "plan.json"), "--port"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        address = f"http://127.0.0.1:{int(process.stdout.readline())}"
        try:
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look"}}
            async with aiohttp.ClientSession() as session:
                async with session.post(f"{address}/mcp", json=call) as answer:
                    assert (await answer.json())["id"] == 1
                async with session.get(f"{address}/executions") as answer:
                    assert await answer.json() == {"look": 1}
        finally:
            process.kill()


def test_the_program_starts_without_the_gateway() -> None:
    program = "import sys, portico.testing.faulty_server as s; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in modules if name.startswith("portico.")] == [
        "portico.testing",
        "portico.testing.faulty_server",
    ]
    assert not {"anyio", "orjson", "aiohttp", "mcp", "numpy"} & set(modules)


def test_the_kinds_are_in_the_guide() -> None:
    page = (ROOT / "docs" / "guides" / "testing-with-faults.md").read_text(encoding="utf-8")
    assert [kind for kind in (*ANSWERS, *STARTS) if f"`{kind}`" not in page] == []
