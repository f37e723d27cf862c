"""Scripts with a caller's tools: the one executor, the caller's own eyes, and errors that teach."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from portico.domain.call import Outcome, Result, Sandbox, ScriptLimits
from portico.domain.server import Offering, ServerSpec, ToolFilter
from portico.errors import Busy, CallError, ScriptError, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.execution.executor import FairLimiter
from portico.library import Catalog
from portico.scripting.engine import LuaEngine
from portico.scripting.script_session import ScriptRunner
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.surface import Envelope
from portico.testing import AGENT, FakeApplication, definition, make_test_app

READ = {"annotations": {"readOnlyHint": True}}
ADD = {**definition("add", "Add two numbers", a="number", b="number"), **READ}
WRITE = {
    **definition("write-file", "Write a file", path="string", text="string?"),
    "annotations": {"destructiveHint": False},
}


@pytest.fixture
async def engine() -> AsyncIterator[LuaEngine]:
    made = LuaEngine(pool_size=1)
    yield made
    await made.aclose()


@pytest.fixture
def application() -> FakeApplication:
    made = make_test_app({"calculator": [ADD, definition("multiply", a="number", b="number")], "files": [WRITE]})
    made.provider("calculator").returns("add", {"content": [], "structuredContent": {"result": 30}})
    made.provider("calculator").returns("multiply", {"content": [], "structuredContent": {"result": 60}})
    return made


def scripts_of(application: FakeApplication, engine: LuaEngine, **limits: Any) -> ScriptRunner:
    return ScriptRunner(gateway=application.gateway, engine=engine, limits=ScriptLimits(**limits))


async def run(application: FakeApplication, engine: LuaEngine, source: str, /, **arguments: Any) -> Result:
    with anyio.fail_after(30):
        return await scripts_of(application, engine).run(AGENT, source, arguments)


async def value(application: FakeApplication, engine: LuaEngine, source: str, /, **arguments: Any) -> Any:
    return (await run(application, engine, f"result({{ v = {source} }})", **arguments)).structured["v"]


async def failure(application: FakeApplication, engine: LuaEngine, source: str, /, **limits: Any) -> ScriptError:
    with anyio.fail_after(30), pytest.raises(ScriptError) as caught:
        await scripts_of(application, engine, **limits).run(AGENT, source)
    return caught.value


def text_block(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


@pytest.mark.requirement("S3-22", "S3-23", "S3-24", "S3-26", "S3-27", "S3-29")
async def test_the_golden_script_combines_calls(application: FakeApplication, engine: LuaEngine):
    result = await run(
        application,
        engine,
        """
        local sum = calculator.add({ a = 10, b = 20 }):await()
        local product = calculator.multiply({ a = sum.result, b = 2 }):await()
        result({ sum = sum, product = product })
        """,
    )
    assert result.structured == {"sum": {"result": 30}, "product": {"result": 60}}
    assert json.loads(result.text) == result.structured
    assert application.provider("calculator").calls == [("add", {"a": 10, "b": 20}), ("multiply", {"a": 30, "b": 2})]


@pytest.mark.requirement("S3-25", "S3-26")
@pytest.mark.parametrize(
    ("source", "text", "structured"),
    [
        ("result('plain')", "plain", None),
        ("result(8)", "8", None),
        ("result(null)", "null", None),
        ("result({ 1, 2 })", "[1,2]", None),
        ("result({ result = 8 })", '{"result":8}', {"result": 8}),
        ("return { result = 8 }", '{"result":8}', {"result": 8}),
    ],
)
async def test_text_is_always_there_and_structured_content_for_objects(
    source: str, text: str, structured: Any, application: FakeApplication, engine: LuaEngine
):
    result = await run(application, engine, source)
    assert (result.text, result.structured) == (text, structured)


@pytest.mark.requirement("S3-E10")
async def test_a_script_without_a_result_learns_how_to_give_one(application: FakeApplication, engine: LuaEngine):
    result = await run(application, engine, "local x = 1 print('seen', x)")
    assert not result.is_error
    first, printed = (block["text"] for block in result.content)
    assert first.startswith("No result returned\nhint: end the script with result(value)")
    assert printed == "printed:\nseen\t1"


async def test_what_is_printed_comes_after_the_value_and_is_bounded(application: FakeApplication, engine: LuaEngine):
    with anyio.fail_after(30):
        result = await scripts_of(application, engine, printed_bytes=100).run(
            AGENT, "for i = 1, 100 do print('line ' .. i) end result('done')"
        )
    answer, printed = (block["text"] for block in result.content)
    assert answer == "done"
    assert "line 1\n" in printed
    assert "bytes more were printed" in printed
    assert len(printed) < 300


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ({"content": [], "structuredContent": {"a": [1]}}, {"a": [1]}),
        (text_block("plain words"), "plain words"),
        (text_block('{"a": 1}'), {"a": 1}),
        (text_block("[1, 2]"), [1, 2]),
        (text_block('"quoted"'), '"quoted"'),
        (text_block("{ broken"), "{ broken"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, None),
        ({"content": [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]}, None),
        ({"content": []}, []),
    ],
)
async def test_a_script_sees_the_plainest_form_of_a_result(
    raw: dict[str, Any], seen: Any, application: FakeApplication, engine: LuaEngine
):
    application.provider("calculator").returns("add", raw)
    expected = raw["content"] if seen is None else seen
    assert await value(application, engine, "calculator.add({ a = 1, b = 2 }):await()") == expected


@pytest.mark.requirement("P-SCRIPTS-DOORS")
async def test_a_script_sees_data_whole_and_only_its_own_result_has_to_fit(
    application: FakeApplication, engine: LuaEngine
):
    rows = [{"id": number, "name": f"row number {number}"} for number in range(10_000)]
    application.provider("calculator").returns("add", {"content": [], "structuredContent": {"rows": rows}})
    assert await value(application, engine, "#calculator.add({ a = 1, b = 2 }):await().rows") == 10_000
    source = "result(calculator.add({ a = 1, b = 2 }):await())"
    fitting = await run(application, engine, source)
    assert "shortened: " in fitting.text
    assert "next: read_result(" in fitting.text
    with anyio.fail_after(30):
        whole = await scripts_of(application, engine).run(AGENT, source, whole=True)
    assert whole.structured == {"rows": rows}


@pytest.mark.requirement("P-SCRIPTS-IDENTITY")
async def test_a_tools_own_error_can_be_caught(application: FakeApplication, engine: LuaEngine):
    application.provider("calculator").returns("add", {**text_block("too large"), "isError": True})
    caught = await value(
        application, engine,
        "(function() local ok, e = pcall(function() return calculator.add({ a = 1, b = 2 }):await() end)"
        " return { ok = ok, e = tostring(e) } end)()"
    )  # fmt: skip
    assert caught["ok"] is False
    assert "calculator.add" in caught["e"]
    assert "too large" in caught["e"]


async def test_arguments_are_checked_before_anything_is_sent(application: FakeApplication, engine: LuaEngine):
    error = await failure(application, engine, "result(calculator.add({ a = 1 }):await())")
    assert "missing: b (number)" in str(error)
    assert error.sent is Sent.NOTHING
    assert application.provider("calculator").calls == []


@pytest.mark.requirement("P-SCRIPTS-IDENTITY", "T64")
async def test_a_hidden_tool_and_a_missing_one_look_alike(engine: LuaEngine):
    specs = [
        ServerSpec(name="calculator", transport="stdio", tools=ToolFilter(deny=("add",))),
        ServerSpec(name="secret", transport="stdio", tools=ToolFilter(deny=("*",))),
    ]
    servers = {"calculator": [ADD, definition("multiply", a="number", b="number")], "secret": [ADD]}
    application = make_test_app(servers, specs=specs)
    hidden = await failure(application, engine, "result(calculator.add({ a = 1, b = 2 }):await())")
    missing = await failure(application, engine, "result(calculator.adx({ a = 1, b = 2 }):await())")
    assert hidden.reason.replace("add", "_") == missing.reason.replace("adx", "_")
    assert await value(application, engine, "tostring(secret)") == "nil"
    found = await value(application, engine, "_gateway.search({ query = 'add two numbers' }):await()")
    assert {hit["handle"] for hit in found} <= {"calculator.multiply"}
    assert application.provider("calculator").calls == application.provider("secret").calls == []


@pytest.mark.requirement("P-SCRIPTS-IDENTITY")
async def test_every_call_is_one_invocation_of_the_caller_under_its_script(
    application: FakeApplication, engine: LuaEngine
):
    await run(application, engine, "calculator.add({ a = 1, b = 2 }):await() files.write_file({ path = 'x' }):await()")
    *calls, script = application.invocations
    assert [str(call.tool) for call in calls] == ["calculator::add", "files::write-file"]
    assert {(entry.caller, entry.surface) for entry in application.invocations} == {(AGENT.name, AGENT.surface)}
    assert {entry.parent for entry in application.invocations} == {script.parent}
    assert script.parent.startswith("script-")
    assert (script.tool, script.spelled, script.outcome) == (None, "script", Outcome.DONE)
    assert script.tokens_in > 0


@pytest.mark.requirement("T61")
async def test_a_script_cannot_run_scripts(application: FakeApplication, engine: LuaEngine):
    error = await failure(application, engine, "result(_gateway.run_script({ script = 'result(1)' }):await())")
    assert "run_script" in error.reason
    assert await value(application, engine, "tostring(run_script)") == "nil"


@pytest.mark.requirement("P-SCRIPTS-TEACH")
async def test_an_error_tells_what_had_been_done_by_then(application: FakeApplication, engine: LuaEngine):
    error = await failure(
        application,
        engine,
        """
        calculator.add({ a = 1, b = 2 }):await()
        calculator.add({ a = 1, b = 2 }):await()
        files.write_file({ path = "x" }):await()
        error("stopped by me")
        """,
    )
    assert error.line == 5
    assert "stopped by me" in error.reason
    assert error.sent is Sent.ANSWERED
    assert "made before it failed: calculator.add [read] done (2 times); files.write_file [write] done" in str(error)


@pytest.mark.requirement("P-SCRIPTS-TEACH")
async def test_a_call_that_was_under_way_is_reported_as_unknown(application: FakeApplication, engine: LuaEngine):
    application.provider("files").hold()
    error = await failure(application, engine, "files.write_file({ path = 'x' }):await()", seconds=0.5)
    assert error.limit == "seconds"
    assert error.sent is Sent.UNKNOWN
    assert "files.write_file [write] sent, outcome unknown" in str(error)
    assert [(entry.spelled, entry.outcome) for entry in application.invocations] == [
        ("files.write_file", Outcome.CANCELLED),
        ("script", Outcome.TIMED_OUT),
    ]


@pytest.mark.requirement("P-SCRIPTS-TEACH", "S3-E1")
@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("local result = calculator.add({ a = 1, b = 2 }):await()\nresult(result)", "result"),
        ("result(calculater.add({ a = 1, b = 2 }):await())", "calculator"),
        ("local sum = calculator.add({ a = 1, b = 2 })\nresult(sum.result)", ":await()"),
        ("result(calculator.add({ a = ..., b = ... }):await())", "..."),
    ],
)
async def test_an_error_gives_a_hint(source: str, hint: str, application: FakeApplication, engine: LuaEngine):
    error = await failure(application, engine, source)
    assert any("hint: " in line and hint in line for line in error.details), error.details


async def test_a_server_that_is_gone_is_an_error_that_can_be_read(application: FakeApplication, engine: LuaEngine):
    application.provider("calculator").fails(UpstreamGone("calculator", details=("it died",), sent=Sent.UNKNOWN))
    error = await failure(application, engine, "result(calculator.add({ a = 1, b = 2 }):await())")
    assert "it died" in error.reason
    assert error.sent is Sent.UNKNOWN


@pytest.mark.requirement("P-SCRIPTS-TEACH", "T64")
@pytest.mark.parametrize(
    "inside",
    [
        "the process of '/opt/servers/bin/python' is gone: it exited with code 1",
        'its last words on stderr: File "server.py", line 22, in <module>',
        "no answer from http://tools.internal:9000/mcp",
        "connecting to 10.0.0.7 port 5432 took too long",
        r"C:\servers\run.exe could not be started",
    ],
)
async def test_a_script_learns_nothing_of_the_machine_that_a_server_failed_on(
    inside: str, application: FakeApplication, engine: LuaEngine
):
    for kind in (UpstreamGone, UpstreamTimeout):
        application.provider("calculator").fails(kind("calculator", details=("it died", inside), sent=Sent.UNKNOWN))
        error = await failure(application, engine, "result(calculator.add({ a = 1, b = 2 }):await())")
        assert "it died" in str(error)
        assert "portico doctor" in str(error)
        assert inside not in str(error)


@pytest.mark.requirement("P-RESULTS-WHOLE")
async def test_a_script_sees_a_large_answer_whole(application: FakeApplication, engine: LuaEngine):
    numbers = [10**6 + n for n in range(150_000)]
    application.provider("calculator").returns("add", text_block(json.dumps({"numbers": numbers})))
    source = "local r = calculator.add({ a = 1, b = 2 }):await().numbers result({ v = { #r, r[1], r[#r] } })"
    found = (await run(application, engine, source)).structured["v"]
    assert found == [150_000, numbers[0], numbers[-1]]


@pytest.mark.parametrize(
    "asking",
    [{"resultType": "input_required", "inputRequests": {}}, UpstreamError("x", rpc_code=-32021, message="elicitation")],
)
async def test_a_tool_that_asks_its_client_something_says_so(
    asking: Any, application: FakeApplication, engine: LuaEngine
):
    if isinstance(asking, CallError):
        application.provider("calculator").fails(asking)
    else:
        application.provider("calculator").returns("add", asking)
    error = await failure(application, engine, "result(calculator.add({ a = 1, b = 2 }):await())")
    assert "asks its client something, which a script cannot answer" in error.reason


async def test_errors_of_calls_that_were_never_awaited_are_notes(application: FakeApplication, engine: LuaEngine):
    application.provider("calculator").returns("add", {**text_block("too large"), "isError": True})
    result = await run(application, engine, "calculator.add({ a = 1, b = 2 }) result('done')")
    assert result.text == "done"
    assert any("too large" in note for note in result.notes)


async def test_a_script_finds_tools_by_what_they_do(application: FakeApplication, engine: LuaEngine):
    found = await value(application, engine, "_gateway.search({ query = 'add two numbers', limit = 1 }):await()")
    assert [(hit["handle"], hit["server"], hit["tool"], hit["effect"]) for hit in found] == [
        ("calculator.add", "calculator", "add", "read")
    ]
    assert found[0]["signature"].startswith("calculator.add(a: number, b: number) [read]")
    assert await value(application, engine, "_gateway.search('write a file'):await()[1].handle") == "files.write_file"


async def test_a_found_tool_is_called_by_its_names(application: FakeApplication, engine: LuaEngine):
    source = "(function() local hit = _gateway.search('add two numbers'):await()[1]"
    source += " return _ENV[hit.server][hit.tool]({ a = 1, b = 2 }):await() end)()"
    assert await value(application, engine, source) == {"result": 30}


async def test_a_script_reads_about_a_tool(application: FakeApplication, engine: LuaEngine):
    card = await value(application, engine, "_gateway.describe('calculator.add'):await()")
    assert card["inputSchema"] == ADD["inputSchema"]
    assert card["example"] == "calculator.add({ a = 1.0, b = 1.0 }):await()"
    cards = await value(application, engine, "_gateway.describe({ 'calculator.add', 'files.write_file' }):await()")
    assert [card["effect"] for card in cards] == ["read", "write"]
    error = await failure(application, engine, "_gateway.describe('nothing.here'):await()")
    assert "unknown_tool" in error.reason or "no tool" in error.reason


async def test_a_script_reads_resources(engine: LuaEngine):
    application = make_test_app({"notes": []})
    offering = Offering(server="notes", tools=(ADD,), resources=({"uri": "notes://a", "name": "A"},))
    application.gateway.publisher.accept([(offering, "upstream")])
    listed = await value(application, engine, "_gateway.list_resources():await()")
    assert listed == [{"uri": "notes://a", "name": "A", "server": "notes"}]
    error = await failure(application, engine, "_gateway.read_resource('notes://b'):await()")
    assert "no resource of that name" in error.reason


async def test_arguments_of_a_run_are_data(application: FakeApplication, engine: LuaEngine):
    given = {"text": '"]] error() --', "n": 2**60, "list": [], "nothing": None}
    assert await value(application, engine, "args", **given) == given


async def test_a_caller_asks_for_seconds_within_the_bound(application: FakeApplication, engine: LuaEngine):
    scripts = ScriptRunner(gateway=application.gateway, engine=engine, limits=ScriptLimits(seconds=5), max_seconds=0.5)
    with anyio.fail_after(20), pytest.raises(ScriptError) as caught:
        await scripts.run(AGENT, "while true do end", seconds=1_000)
    assert caught.value.limit == "seconds"


@pytest.mark.requirement("P-SCRIPTS-CANCEL")
async def test_a_cancelled_run_takes_its_calls_with_it(application: FakeApplication, engine: LuaEngine):
    application.provider("files").hold()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scripts_of(application, engine).run, AGENT, "files.write_file({ path = 'x' }):await()")
            await application.provider("files").arrived()
            tasks.cancel_scope.cancel()
    assert [entry.outcome for entry in application.invocations] == [Outcome.CANCELLED, Outcome.CANCELLED]
    application.provider("files").release()
    assert (await run(application, engine, "result(1)")).text == "1"


async def test_the_sandbox_is_examined_once_and_remembered(application: FakeApplication, engine: LuaEngine):
    scripts = scripts_of(application, engine)
    assert scripts.state == "not examined yet"
    assert not scripts.is_degraded
    async with anyio.create_task_group() as tasks:
        scripts.watch(tasks)
        scripts.examine_soon()
        scripts.examine_soon()
    assert scripts.state == "hardened" or scripts.state.startswith("degraded: ")
    await scripts.aclose()


@pytest.mark.parametrize(
    ("sandbox", "state"),
    [
        (Sandbox(), "hardened"),
        (Sandbox(missing=("seccomp", "Landlock")), "degraded: seccomp, Landlock"),
        (Sandbox(problem="no lupa"), "unavailable: no lupa"),
    ],
)
def test_a_sandbox_is_reported_in_a_few_words(sandbox: Sandbox, state: str):
    assert sandbox.state == state


@pytest.mark.requirement("P-SCRIPTS-DOORS")
async def test_run_script_on_discover_runs_a_script(application: FakeApplication, engine: LuaEngine):
    surface = Discover(application.gateway, scripts_of(application, engine))
    assert "run_script" in [tool["name"] for tool in await surface.tools(AGENT)]
    run_script = surface.meta_tool("run_script")
    assert run_script is not None
    with anyio.fail_after(30):
        answer = await run_script(AGENT, {"script": "result(calculator.add({ a = 1, b = 2 }):await())"}, Envelope())
        assert answer["structuredContent"] == {"result": 30}
        failed = await run_script(AGENT, {"script": "while true do end", "timeout_s": 0.3}, Envelope())
    assert failed["isError"]
    assert failed["content"][0]["text"].startswith("error script_failed for the script; nothing was sent\n- ")
    missing = await run_script(AGENT, {}, Envelope())
    assert "next: run_script(" in missing["content"][0]["text"]


async def test_discover_without_scripts_does_not_list_them(application: FakeApplication):
    assert "run_script" not in [tool["name"] for tool in await Discover(application.gateway).tools(AGENT)]


@pytest.mark.requirement("P-SCRIPTS-DOORS")
async def test_a_program_runs_scripts_over_its_catalog():
    catalog = Catalog()
    catalog.add_tools("calculator", [ADD], lambda name, given: {"result": given["a"] + given["b"]})
    with anyio.fail_after(60):
        async with catalog:
            for number in range(3):
                source = "result(calculator.add({ a = args.n, b = 1 }):await())"
                result = await catalog.run_script(source, {"n": number})
                assert result.structured == {"result": number + 1}
        assert (await catalog.run_script("result(1)")).text == "1"


@pytest.mark.requirement("P-FAIR-SHARES")
async def test_a_script_of_another_client_runs_while_those_of_the_first_wait(
    application: FakeApplication, engine: LuaEngine
):
    scripts = ScriptRunner(gateway=application.gateway, engine=engine, limiter=FairLimiter(2, queue=32))
    refused: list[Busy] = []
    application.provider("calculator").hold()

    async def flood(source: str) -> None:
        try:
            await scripts.run(replace(AGENT, client="a"), source)
        except Busy as error:
            refused.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for _ in range(200):
                tasks.start_soon(flood, "result(calculator.add({ a = 1, b = 2 }):await())")
            while len(refused) < 200 - 1 - 24:
                await anyio.lowlevel.checkpoint()
            await application.provider("calculator").arrived()
            result = await scripts.run(replace(AGENT, client="b"), "result({ v = 7 })")
            assert result.structured["v"] == 7
            assert (scripts.limiter.running, scripts.limiter.waiting) == (1, 24), "those of the first are still there"
            tasks.cancel_scope.cancel()


def _one_at_once(application: FakeApplication, engine: LuaEngine) -> ScriptRunner:
    application.provider("calculator").hold()
    return ScriptRunner(gateway=application.gateway, engine=engine, limiter=FairLimiter(1, queue=32))


async def test_a_run_that_waits_for_its_turn_can_be_cancelled(application: FakeApplication, engine: LuaEngine):
    scripts = _one_at_once(application, engine)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scripts.run, AGENT, "calculator.add({ a = 1, b = 2 }):await()")
            await application.provider("calculator").arrived()
            with anyio.move_on_after(0.05):
                await scripts.run(AGENT, "calculator.add({ a = 3, b = 4 }):await()")
            assert len(application.provider("calculator").calls) == 1
            tasks.cancel_scope.cancel()
        assert (await scripts.run(AGENT, "result(1)")).text == "1"


async def test_a_run_that_gets_no_turn_says_so(application: FakeApplication, engine: LuaEngine):
    scripts = _one_at_once(application, engine)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scripts.run, AGENT, "calculator.add({ a = 1, b = 2 }):await()")
            await application.provider("calculator").arrived()
            with pytest.raises(Busy, match="no place became free"):
                await scripts.run(AGENT, "result(1)", seconds=0.05)
            tasks.cancel_scope.cancel()
