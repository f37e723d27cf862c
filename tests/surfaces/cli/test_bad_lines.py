"""Bad command lines and bad configs end in one message and a documented exit code, never in a traceback."""

from __future__ import annotations

import gc
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer

from portico import __main__
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    NextCall,
    Refused,
    StoreError,
    UnknownFilter,
    UnknownServer,
)
from portico.surfaces.cli.context import Exit
from portico.surfaces.cli.output_and_logs import error_text, fail, spell
from portico.surfaces.cli.tool_commands import read_arguments
from portico.text.untrusted import printable

from .shell import Ended, Shell

LINES: dict[str, tuple[list[str], Exit]] = {
    "no such command": (["frobnicate"], Exit.USAGE),
    "no such option": (["list", "--frobnicate"], Exit.USAGE),
    "search without a query": (["search"], Exit.USAGE),
    "limit of nothing": (["search", "x", "--limit", "0"], Exit.USAGE),
    "limit that is no number": (["search", "x", "--limit", "many"], Exit.USAGE),
    "search a category that is none": (["search", "x", "--category", "nobody", "--json"], Exit.UNKNOWN),
    "search with a success above all": (["search", "x", "--min-success", "2"], Exit.USAGE),
    "search with a latency below nothing": (["search", "x", "--max-latency-ms", "-1"], Exit.USAGE),
    "describe nothing": (["describe"], Exit.USAGE),
    "describe an unknown tool": (["describe", "nobody.knows"], Exit.UNKNOWN),
    "describe an unknown tool as data": (["describe", "nobody.knows", "--json"], Exit.UNKNOWN),
    "call nothing": (["call"], Exit.USAGE),
    "call an unknown tool": (["call", "nobody.knows"], Exit.UNKNOWN),
    "call with a word": (["call", "tiny.read_file", "word"], Exit.USAGE),
    "call with broken json": (["call", "tiny.read_file", "{"], Exit.USAGE),
    "call with a list": (["call", "tiny.read_file", "[1]"], Exit.USAGE),
    "call with nan": (["call", "tiny.read_file", '{"limit": NaN}'], Exit.USAGE),
    "call with deep json": (["call", "tiny.read_file", "[" * 50_000], Exit.USAGE),
    "call with a missing file": (["call", "tiny.read_file", "@/no/such/file"], Exit.USAGE),
    "call with a folder": (["call", "tiny.read_file", "@."], Exit.USAGE),
    "call with a pair and json": (["call", "tiny.read_file", "a=1", "{}"], Exit.USAGE),
    "call with nothing on stdin": (["call", "tiny.read_file", "-"], Exit.USAGE),
    "call without what is required": (["call", "tiny.read_file"], Exit.INVALID),
    "call with a wrong type": (["call", "tiny.read_file", "path=x", "limit=many", "--json"], Exit.INVALID),
    "call with control characters": (["call", "\x1b[31mred"], Exit.UNKNOWN),
    "list an unknown server": (["list", "nobody"], Exit.UNKNOWN),
    "list an unknown server as data": (["list", "nobody", "--json"], Exit.UNKNOWN),
    "refresh an unknown server": (["refresh", "nobody"], Exit.UNKNOWN),
    "doctor of an unknown server": (["doctor", "nobody", "--json"], Exit.UNKNOWN),
    "remove an unknown server": (["remove", "nobody"], Exit.UNKNOWN),
    "add nothing": (["add"], Exit.USAGE),
    "add from no registry": (["add", "name", "--registry", "no-such-file.json"], Exit.CONFIG),
    "find in no registry": (["find-server", "name", "--registry", "no-such-file.json"], Exit.CONFIG),
    "add a bad environment": (["add", "name", "--env", "novalue", "--", "x"], Exit.USAGE),
    "add a name that is taken": (["add", "tiny", "--", "x"], Exit.CONFIG),
    "import a missing file": (["import", "no-such-file.json"], Exit.CONFIG),
    "install for nobody": (["install", "nobody"], Exit.CONFIG),
    "install by pigeon": (["install", "cursor", "--via", "pigeon"], Exit.USAGE),
    "undo what was not done": (["install", "cursor", "--undo"], Exit.CONFIG),
    "a config that is not there": (["--config", "nowhere.yaml", "list"], Exit.CONFIG),
    "serve no such surface": (["serve", "--surface", "moon"], Exit.CONFIG),
    "serve a port that is none": (["serve", "--port", "99999"], Exit.USAGE),
    "serve for everybody": (["serve", "--host", "0.0.0.0"], Exit.CONFIG),
}

CONFIGS: dict[str, tuple[str, Exit]] = {
    "not yaml": ("servers: [unclosed", Exit.CONFIG),
    "a list": ("- a\n- b", Exit.CONFIG),
    "a number": ("5", Exit.CONFIG),
    "a tab": ("servers:\n\tx: 1", Exit.CONFIG),
    "control characters": ("servers:\n  \x1b[31m: 1", Exit.CONFIG),
    "servers as text": ("servers: hello", Exit.CONFIG),
    "a server as text": ("servers:\n  a: hello", Exit.CONFIG),
    "a server without a command": ("servers:\n  a: {args: [x]}", Exit.CONFIG),
    "a variable that is not set": ("servers:\n  a: {command: x, env: {T: '${NOT_SET_ANYWHERE}'}}", Exit.CONFIG),
    "an alias bomb": ("a: &a [x]\nb: &b [*a,*a]\nservers: *b", Exit.CONFIG),
    "one of two": ("servers:\n  a: {args: [x]}\n  b: {command: x, enabled: false}", Exit.OK),
    "an unknown store": ("store: punchcards", Exit.CONFIG),
    "nothing": ("", Exit.OK),
}


@pytest.fixture(scope="module")
def ended(known: Shell, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """All processes, two at a time: most of their life is the start of an interpreter."""

    def configured(name: str) -> Ended:
        shell = Shell(tmp_path_factory.mktemp("config"))
        shell.configure(CONFIGS[name][0])
        return shell.run("list", "--json")

    with ThreadPoolExecutor(2) as pool:
        lines = {name: pool.submit(known.run, *LINES[name][0]) for name in LINES}
        configs = {name: pool.submit(configured, name) for name in CONFIGS}
        return {name: done.result() for name, done in {**lines, **configs}.items()}


@pytest.mark.requirement("P-CLI-NO-TRACEBACK", "P-CLI-EXIT-CODES")
@pytest.mark.parametrize("name", LINES)
def test_a_bad_command_line_ends_with_its_exit_code_and_a_message(name: str, ended: dict[str, Ended]) -> None:
    arguments, code = LINES[name]
    found = ended[name]
    assert found.code == code, found
    assert found.err or found.out
    if "--json" in arguments:
        assert json.loads(found.out)["error"]["code"]
    else:
        assert found.out == ""


@pytest.mark.requirement("P-CLI-NO-TRACEBACK", "P-CLI-EXIT-CODES")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_config_is_explained_and_stops_no_more_than_it_must(name: str, ended: dict[str, Ended]) -> None:
    found = ended[name]
    assert found.code == CONFIGS[name][1], found
    json.loads(found.out)
    if name != "nothing" and found.code == 0:
        assert found.err.startswith("config: "), found


@pytest.mark.requirement("P-STORE-ADVICE")
def test_a_home_that_cannot_be_written_is_explained(shell: Shell) -> None:
    (shell.home / "file").write_text("")
    config = shell.serve_tiny()
    found = shell.run("--config", str(config), "list", PORTICO_HOME=str(shell.home / "file"))
    assert found.code == Exit.CONFIG
    assert "set PORTICO_HOME to a folder that can be written" in found.err


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], {}),
        (["a=1", "b="], {"a": "1", "b": ""}),
        (['{"a": 1}'], {"a": 1}),
        (['{"a": "x=y"}'], {"a": "x=y"}),
        (["a={}"], {"a": "{}"}),
    ],
)
def test_arguments_are_read_from_the_line(given: list[str], expected: dict[str, object]) -> None:
    assert read_arguments(given).values == expected


@pytest.mark.parametrize("given", [["=1"], ["a"], ["a=1", "b"], ['"text"'], ["null"], ["@"]])
def test_arguments_that_are_none_are_a_usage_error(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        read_arguments(given)


def test_a_file_that_is_not_text_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(typer.BadParameter):
        read_arguments([f"@{tmp_path / 'x'}"])


@pytest.mark.requirement("P-CLI-EXIT-CODES")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), Exit.CONFIG),
        (StoreError("x"), Exit.CONFIG),
        (UnknownServer("x"), Exit.UNKNOWN),
        (UnknownFilter("x"), Exit.UNKNOWN),
        (InvalidArguments("x"), Exit.INVALID),
        (Refused("x"), Exit.FAILED),
        (CallError("x"), Exit.FAILED),
    ],
)
def test_each_error_has_its_exit_code(error: ConfigError, code: Exit, capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(error).exit_code == code
    assert capsys.readouterr().err


def test_the_next_call_is_spelled_as_a_command() -> None:
    call = NextCall("call", {"name": "a.b", "arguments": {"x": "it's"}})
    assert spell(call) == """portico call a.b '{"x":"it'"'"'s"}'"""
    assert spell(NextCall("describe", {"names": ["a.b", "c.d"]})) == "portico describe a.b c.d"
    assert spell(NextCall("search", {"query": "it's é"})) == 'portico search "it\'s é"'
    page = {"query": "x", "server": "a b", "read_only": True, "min_success": 0.9, "limit": 5, "cursor": "5:abcdef"}
    assert spell(NextCall("search", page)) == (
        "portico search \"x\" --server 'a b' --read-only --min-success 0.9 --limit 10"
    )
    assert spell(NextCall("list", {"kind": "prompt"})) == 'portico search "what you want to do"'
    text = error_text(InvalidArguments("a.b", details=("missing: x",), next_call=call))
    assert text.startswith("error invalid_arguments for a.b; nothing was sent\n- missing: x\nnext: portico call a.b ")


@pytest.mark.requirement("T28")
def test_text_from_outside_is_made_safe() -> None:
    assert printable("a\x1b[31mb\x9bc\u202ed\re") == "a\ufffd[31mb\ufffdc\ufffdd\ufffde"
    assert printable("tab\tand\nline stay, and so does é") == "tab\tand\nline stay, and so does é"


def test_an_interrupt_while_something_is_loaded_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch):
    def interrupted(pipe: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(__main__, "_run", interrupted)
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    assert ended.value.code == 130
