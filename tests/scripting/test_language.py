"""The language that scripts are written in, as an author meets it."""

from __future__ import annotations

import pytest

from tests.scripting.fake_api import Runner

pytestmark = pytest.mark.requirement("S3-22")


@pytest.mark.requirement("S3-23", "S3-24", "S3-29")
def test_a_script_combines_tools_of_several_servers(run: Runner):
    source = """
    local sum = calculator.add({ a = 10, b = 20 }):await()
    local product = data_server.multiply({ a = sum.result, b = 2 }):await()
    result({ sum = sum, product = product })
    """
    assert run.value(source) == {"sum": {"result": 30}, "product": {"result": 60}}
    assert run.fake.calls == [
        ("calculator", "add", {"a": 10, "b": 20}),
        ("data_server", "multiply", {"a": 30, "b": 2}),
    ]


@pytest.mark.requirement("S3-23", "S3-24")
def test_one_line_is_a_script(run: Runner):
    assert run.value("result(calculator.add({a=5,b=3}):await())") == {"result": 8}


@pytest.mark.requirement("S3-24")
def test_the_last_result_wins_and_is_copied_when_it_is_set(run: Runner):
    assert run.value("local t = {1} result('first') result(t) t[1] = 2 return 'not this'") == [1]


def test_what_a_script_returns_is_its_result(run: Runner):
    assert run.value("return {answer = 42}") == {"answer": 42}
    assert run.value("return 1, nil, 'x'") == [1, None, "x"]
    assert run.value("return nil") is None
    assert run.value("result(null)") is None


def test_a_script_may_have_no_result(run: Runner):
    ran = run("local x = 1")
    assert not ran.has_value


def test_a_call_without_arguments_passes_an_empty_object(run: Runner):
    run("calculator.echo():await() calculator.echo({}):await()")
    assert [arguments for _, _, arguments in run.fake.calls] == [{}, {}]


def test_calls_run_at_the_same_time(run: Runner):
    source = """
    local waiting = {}
    for i = 1, 10 do waiting[i] = calculator.wait({ crowd = 10, i = i }) end -- none returns before all are there
    local got = await_all(waiting)
    return { first = got[1].i, last = got[10].i, count = #got }
    """
    assert run.value(source) == {"first": 1, "last": 10, "count": 10}
    assert run.fake.most_in_flight == 10


def test_calls_beyond_the_limit_of_those_in_flight_wait_for_their_turn(run: Runner):
    run("for i = 1, 9 do calculator.wait({ crowd = 3 }) end", in_flight=3)
    assert (len(run.fake.calls), run.fake.most_in_flight) == (9, 3)


def test_await_all_keeps_keys(run: Runner):
    source = """
    local add = calculator.add
    local got = await_all({ add({ a = 1, b = 1 }), add({ a = 2, b = 2 }), plain = 7, sum = add({ a = 3, b = 3 }) })
    return { got[1].result, got[2].result, got.sum.result, got.plain }
    """
    assert run.value(source) == [2, 4, 6, 7]
    assert run.value("return await_all({})") == []


def test_await_all_raises_the_first_error_after_all_are_done(run: Runner):
    source = """
    local fail = calculator.fail
    local ok, why = pcall(await_all, { calculator.echo({}), fail({ why = "one" }), x = fail({ why = "two" }) })
    return { ok, why }
    """
    assert run.value(source) == [
        False,
        "script:3: calculator.fail: call_failed; the call was sent and the server answered\n- one",
    ]
    assert len(run.fake.calls) == 3


def test_a_future_can_be_awaited_again_in_a_coroutine_and_in_pcall(run: Runner):
    source = """
    local f = calculator.add({a=1,b=2})
    local co = coroutine.wrap(function() coroutine.yield(f:await().result) return f:await().result end)
    local ok, got = pcall(function() return f:await() end)
    return { co(), co(), ok, got == f:await() }
    """
    assert run.value(source) == [3, 3, True, True]


def test_an_error_of_a_call_names_tool_and_line_and_can_be_caught(run: Runner):
    error = run.error("local x = 1\n\nreturn calculator.fail({why='too hot'}):await()")
    assert error.line == 3
    assert error.reason == "calculator.fail: call_failed; the call was sent and the server answered\n- too hot"
    assert run.value("return (pcall(function() calculator.fail():await() end))") is False


def test_errors_of_calls_that_nobody_awaited_are_reported(run: Runner):
    ran = run("calculator.add({a=1,b=1})\ncalculator.fail({why='lost'})\nreturn 1")
    assert ran.value == 1
    assert ran.unawaited == ("line 2: calculator.fail: call_failed; the call was sent and the server answered\n- lost",)
    assert len(run.fake.calls) == 2
    assert run.fake.cancelled == 0


@pytest.mark.parametrize(
    "use",
    ["f.result", "f + 1", "1 - f", "f .. 'x'", "#f", "f < 1", "f()", "-f", "f[1]", "pairs(f)", "json.encode({f})"],
)
def test_a_call_that_was_not_awaited_says_so_when_it_is_used(run: Runner, use: str):
    error = run.error(f"local f = calculator.add({{a=1,b=1}})\nreturn {use}, 1")
    assert error.line == 2
    assert "not awaited: write :await() after the call" in error.reason


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        ("calculator.add(1, 2)", "one table of named arguments: calculator.add({ name = value })"),
        ("calculator.add('x')", "one table of named arguments"),
        ("calculator.add(null)", "one table of named arguments"),
        ("calculator.add({1, 2})", "takes named arguments"),
        ("calculator:add({a=1})", "is called with a dot"),
        ("calculator({a=1})", "is a server: call one of its tools"),
        ("calculator.add({a=1,b=1}).await()", "called with a colon"),
        ("calculator[1]()", "a tool's name is text"),
        ("calculator.add = print", "cannot be changed"),
        ("calculator = 1", "cannot be replaced"),
        ("result = 1", "sets the result"),
        ("print = 1", "cannot be replaced"),
        ("await_all(calculator.echo(), calculator.echo())", "takes one table of calls"),
        ("_gateway.nothing()", "it has: search, describe"),
        ("_gateway.search = 1", "cannot be changed"),
        ("for k in pairs(calculator) do end", "_gateway.search"),
        ("collectgarbage('stop')", 'only collectgarbage("count")'),
        ("array(5)", "array takes a plain table"),
        ("base64.decode('?')", "not base64"),
        ("base64.encode(1)", "takes text"),
        ("json.decode('{')", "json.decode: byte 2"),
        ("string.format('%p', {})", "'%p' is not available"),
        ("local x = null.field", "this value is null"),
        ("local x = json.decode('99999999999999999999') + 1", "more than 64 bits"),
    ],
)
def test_a_mistake_is_reported_with_what_to_write(run: Runner, call: str, advice: str):
    error = run.error(f"-- first\n{call}")
    assert advice in error.reason
    assert error.line == 2


def test_the_arguments_of_a_run_and_its_servers_are_globals(run: Runner):
    assert run.value("return args.n + 1", {"n": 41}) == 42
    assert run.value("return args") == {}
    assert run.value("return servers") == ["calculator", "data_server"]
    assert run.value("return unknown_global == nil") is True


def test_the_gateway_is_asked_like_a_tool(run: Runner):
    source = """
    local names = { "search", "describe", "read_result", "list_resources", "read_resource" }
    local waiting = array()
    for i, name in ipairs(names) do waiting[i] = _gateway[name]({ n = i }) end
    waiting[6] = _gateway.search("open a bug")
    return await_all(waiting)[6]
    """
    assert run.value(source) == {"question": "search", "arguments": "open a bug"}
    asked = [question for question, _ in run.fake.questions]
    assert asked == ["search", "describe", "read_result", "list_resources", "read_resource", "search"]


def test_printed_text_is_kept_and_cut_at_its_limit(run: Runner):
    assert run("print('a', 1, nil, true) print()").printed == "a\t1\tnil\ttrue\n\n"
    ran = run("for i = 1, 10 do print('äöü') end", printed_bytes=16)
    assert (ran.printed, ran.printed_cut) == ("äöü\näöü\nä", 54)
    assert run("print('\\xff ok')").printed == "\ufffd ok\n"


def test_what_was_printed_before_a_script_failed_is_reported(run: Runner):
    error = run.error("print('half way') while true do end", cpu_seconds=0.1)
    assert error.limit == "cpu_seconds"
    assert error.details[1] == "it had printed: half way"


def test_text_of_values_has_no_addresses(run: Runner):
    source = """
    local made = { tostring({}), tostring(print), string.format('%s %s', {}, coroutine.create(print)), tostring(null) }
    return table.concat(made, '; ')
    """
    assert run.value(source) == "table: 1; function: 2; table: 3 thread: 4; null"


def test_times_are_those_of_utc(run: Runner):
    assert run.value("return os.date('%Y-%m-%d %H:%M', 86400)") == "1970-01-02 00:00"
    assert run.value("return os.time({year=1970, month=1, day=2, hour=0})") == 86400


def test_base64_is_that_of_everyone(run: Runner):
    assert run.value("return base64.encode('\\0\\xff~')") == "AP9+"
    assert run.value("return base64.decode('AP9-') == '\\0\\xff~' and base64.decode(' YQ == ')") == "a"


def test_a_text_can_be_loaded_and_sees_the_same_globals(run: Runner):
    assert run.value("return load('return calculator.add({a=1,b=1}):await().result')()") == 2
    assert run.value("return load('x = 5')(), x") == [None, 5]
    assert run.value("local f, why = load('x x') return why") == "[string \"x x\"]:1: syntax error near 'x'"
    assert run.value("return load('return y', 'name', 't', { y = 3 })()") == 3


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("error('plain')", "plain"),
        ("error('no place', 0)", "no place"),
        ("error({ code = 7 })", 'an error value: {"code":7}'),
        ("error(setmetatable({}, { __tostring = function() return 'spoken' end }))", "an error value: spoken"),
        ("error()", "an error value: null"),
        ("error(print)", "an error value: a function"),
        ("local x = nil; x.y = 1", "attempt to index a nil value (local 'x')"),
        ("string.rep()", "bad argument #1 to 'rep' (string expected, got no value)"),
        ("x x", "syntax error near 'x'"),
        ("goto nowhere", "no visible label 'nowhere'"),
    ],
)
def test_an_error_of_a_script_has_its_line(run: Runner, source: str, reason: str):
    error = run.error(f"\n\n{source}")
    assert error.reason.startswith(reason)
    assert error.line == 3
    assert error.limit == ""
