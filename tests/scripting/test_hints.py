"""Hints name what the author probably meant, and stay silent otherwise."""

from __future__ import annotations

import pytest

from portico.scripting.hints import hints
from tests.scripting.fake_api import Runner

SERVERS = ("calculator", "data_server")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param(
            "local result = calculator.add({a=1,b=2}):await()\nresult(result)",
            "hides the function result()",
            marks=pytest.mark.requirement("S3-E1"),
        ),
        ("local x, result = 1, 2 result(x)", "hides the function result()"),
        ("local f = calculator.add({a=1,b=2}) return f.result", "returns a future at once"),
        ("return calculator.add({a=1,b=2}).await()", "with a colon instead of .await()"),
        ("local x = await calculator.add({a=1,b=2}) return x.result", "Lua has no await keyword"),
        ("return calcluator.add({a=1}):await()", "did you mean calculator?"),
        ("return dataserver.add({a=1}):await()", "did you mean data_server?"),
        ("return weather.today():await()", "the servers are calculator, data_server"),
        ("io.open('x')", "'io' is not available"),
        ("require('json')", "'require' is not available"),
        ("debug.traceback()", "there is no debug library"),
        ("os.execute('ls')", "'os.execute' is not available"),
        ("os.getenv('HOME')", "'os.getenv' is not available"),
        ("loadstring('x')", "write load(text)"),
        ("return unpack({1})", "write table.unpack"),
        ("console.log('x')", "write print(value)"),
        ("return 'a' + 'b'", "joined with .."),
        ("local n = 'x' return n + 1", "joined with .."),
        ("if 1 != 2 then end", "write ~= instead of !="),
        ("if true && false then end", "write and instead of &&"),
        ("if true || false then end", "write or instead of ||"),
        ("local i = 0 i += 1", "Lua has no +="),
        ("if true then else if false then end", "write elseif"),
        ("const x = 1", "write local name = value"),
        ('local t = {"a": 1}', "fields of a table are written"),
        ("local t = {a: 1}", "fields of a table are written"),
        ("return `x`", "texts are written in quotes"),
        ("// a comment", "comments begin with --"),
        ("if !x then end", "write not instead of !"),
        ("return calculator.echo({value={a=null}}):await().a.b", "null is the global null"),
        ("return calculator.echo({value={}}):await().items.first", "a field that an answer does not have is nil"),
        ("return _gateway.serch('x')", "did you mean _gateway.search?"),
        ("result(('x'):rep(2000000))", "a small table of what is needed"),
        ("return calculator.fail({ why = ... }):await()", "... stands for no value here"),
    ],
)
def test_a_mistake_is_recognised(run: Runner, source: str, told: str):
    error = run.error(source)
    found = hints(source, error.reason, SERVERS)
    assert told in found[0], (error.reason, found)


@pytest.mark.parametrize(
    "source",
    [
        "error('my own')",
        "-- != && io.open\nerror('my own')",
        "local s = 'a != b && c' error('my own')",
        "local s = [[ local result = x ]] error('my own')",
        "local function f(...) return { n = select('#', ...), ... } end error('my own')",
        "calculator.fail():await()",
        "local result_of = 1 result(result_of) error('my own')",
    ],
)
def test_nothing_is_said_without_a_reason(run: Runner, source: str):
    error = run.error(source)
    assert hints(source, error.reason, SERVERS) == []


def test_each_hint_is_said_once():
    found = hints("if a != b && c != d then end", "unexpected symbol near '!'", SERVERS)
    assert len(found) == len(set(found)) == 2
