"""No script gets more than it may have, whatever it does."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from portico.domain.call import Script, ScriptLimits
from portico.errors import Busy, ScriptError
from portico.scripting.engine import LuaEngine
from portico.scripting.script_session import ScriptRunner
from portico.testing import AGENT, make_test_app
from tests.scripting.exhaustion_scripts import DENIALS, DONE, WALL
from tests.scripting.fake_api import FakeApi, children, fork_servers, until

SMALL = ScriptLimits(
    seconds=30.0, cpu_seconds=0.15, memory_mb=16, calls=50, in_flight=4, output_bytes=50_000, printed_bytes=5_000
)


@pytest.mark.requirement("S3-E12", "T55")
async def test_every_denial_is_ended_by_its_limit_and_leaves_nothing(engine: LuaEngine):
    before = fork_servers()
    await engine.wake()
    (fork_server,) = fork_servers() - before
    wrong: dict[str, str] = {}
    gate = anyio.Semaphore(2)

    async def end(name: str) -> None:
        wanted, source = DENIALS[name]
        fake = FakeApi()
        async with gate:
            limits = replace(SMALL, seconds=0.5) if wanted == (WALL,) else SMALL
            limit = await _limit_of(engine, Script(source=source, limits=limits), fake)
        if limit not in wanted:
            wrong[name] = f"ended by {limit!r}, not by {wanted}"
        if len(fake.calls) > SMALL.calls or fake.in_flight:
            wrong[name] = f"{len(fake.calls)} calls, {fake.in_flight} of them still under way"

    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for name in DENIALS:
                tasks.start_soon(end, name)
    assert wrong == {}
    await until(lambda: len(children(fork_server)) == 2)  # the pool, and nothing else
    assert (await engine.sandbox()).ready == 2
    await engine.aclose()
    assert fork_servers() == before


@pytest.mark.requirement("S3-E12", "T56")
async def test_no_call_is_accepted_after_the_deadline(engine: LuaEngine):
    source = """
    while true do
      pcall(function() local x <close> = setmetatable({}, { __close = function() calculator.echo() end }) error() end)
    end
    """
    fake = FakeApi()
    with pytest.raises(ScriptError) as caught:
        await engine.run(Script(source=source, limits=ScriptLimits(seconds=1.0, cpu_seconds=20, calls=10**9)), fake)
    made = len(fake.calls)
    assert caught.value.limit == "seconds"
    assert made > 0
    await engine.run(Script(source="return 1"), FakeApi())
    assert len(fake.calls) == made


@pytest.mark.requirement("S3-E12", "T61")
async def test_calls_stop_exactly_at_their_limit(engine: LuaEngine):
    fake = FakeApi()
    script = Script(
        source="local n = 0 for i = 1, 100 do if pcall(calculator.echo, {}) then n = n + 1 end end return n",
        limits=ScriptLimits(calls=7),
    )
    assert (await engine.run(script, fake)).value == 7
    assert len(fake.calls) == 7


@pytest.mark.requirement("S3-E12", "F44")
async def test_a_hundred_endless_scripts_do_not_stop_others(engine: LuaEngine):
    limits = ScriptLimits(seconds=60, cpu_seconds=0.05)
    scripts = ScriptRunner(gateway=make_test_app({}).gateway, engine=engine, limits=limits)
    refused, stopped = [], []

    async def endless() -> None:
        try:
            await scripts.run(AGENT, "while true do end")
        except Busy as error:
            refused.append(str(error))
        except ScriptError as error:
            stopped.append(error.limit)

    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(endless)
    assert stopped == ["cpu_seconds"] * (8 + 32)
    assert len(refused) == 60
    assert all("8 are at work and 32 wait" in reason for reason in refused)
    assert (await engine.run(Script(source="return 1"), FakeApi())).value == 1


async def _limit_of(engine: LuaEngine, script: Script, fake: FakeApi) -> str:
    try:
        await engine.run(script, fake)
    except ScriptError as error:
        return error.limit
    return DONE
