"""Commands as tools: no shell, no option that nobody asked for, and nothing stays behind."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attacks import OPTIONS, SHELL, WRONG_TYPES

from portico.domain.call import Call
from portico.domain.tool import Effect
from portico.errors import InvalidArguments
from portico.providers.python import LocalProvider
from portico.providers.yaml import LoadedYaml
from portico.testing import AGENT, FakeApplication

Load = Callable[..., LoadedYaml]
Provide = Callable[..., LocalProvider]

PARROT = "import json, sys; print(json.dumps(sys.argv[1:]))"


def entry(command: list[str], **more: Any) -> str:
    """A file with one tool, written as JSON, which is YAML too."""
    return json.dumps({"run": {"type": "tool", "description": "Run it", "command": command, **more}})


async def ask(provider: LocalProvider, **arguments: Any) -> Any:
    with anyio.fail_after(20):
        return await provider.call("run", arguments, meta={}, on_progress=None)


def text(result: Any) -> str:
    return str(result["content"][0]["text"])


def is_running(pid: int) -> bool:
    """Whether a process is there; one that waits to be reaped by somebody else is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_known(pid: int) -> bool:
    """Whether a process is there, also one that nobody has reaped."""
    return Path(f"/proc/{pid}").exists()


def numbers(file: Path) -> list[int]:
    """The numbers of a file's only line; none until it is whole."""
    text = file.read_text() if file.exists() else ""
    return [int(number) for number in text.split()] if text.endswith("\n") else []


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that only the system can tell, at most ten seconds."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110  a process sends no event
            await anyio.sleep(0.01)


@pytest.mark.requirement("S0-42", "S0-44", "P-YAML-TOOLS")
async def test_a_command_is_called_like_any_tool(load: Load, make_test_app: Callable[..., FakeApplication]) -> None:
    parameters = {
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "loud": {"type": "boolean", "default": False},
    }
    command = [sys.executable, "-c", PARROT, "-n", "{count}", "--loud={loud}", "{{count}}", "a{count}b"]
    loaded = load(entry(command, parameters=parameters, read_only=True))
    assert loaded.problems == ()
    application = make_test_app(loaded)
    (tool,) = application.gateway.snapshot.tools.values()
    assert tool.effect is Effect.READ
    result = await application.gateway.call(AGENT, Call(tool="run", arguments={"count": 3}))
    assert json.loads(result.text) == ["-n", "3", "--loud=false", "{count}", "a3b"]
    with pytest.raises(InvalidArguments):
        await application.gateway.call(AGENT, Call(tool="run", arguments={"count": 10}))


@pytest.mark.requirement("T47")
async def test_whatever_a_value_holds_it_is_one_argument_and_no_shell_reads_it(
    load: Load, provide: Provide, tmp_path: Path
) -> None:
    canary = tmp_path / "canary"
    parameters = {"count": {}, "rest": {}}
    command = [sys.executable, "-c", PARROT, "{count}", "x={count}", "--", "{rest}"]
    provider = provide(load(entry(command, parameters=parameters)))
    for attack in SHELL:
        value = attack.replace("{file}", str(canary))
        result = await ask(provider, count=value, rest=value)
        assert json.loads(text(result)) == [value, f"x={value}", "--", value]
    assert not canary.exists()


async def test_no_value_becomes_an_option(load: Load, provide: Provide, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    command = ["touch", "{empty}{name}", str(canary)]
    provider = provide(load(entry(command, parameters={"name": {}, "empty": {"required": False}})))
    for attack in OPTIONS:
        with pytest.raises(InvalidArguments, match="must not begin with '-': the command would take it for an option"):
            await ask(provider, name=attack.replace("{file}", str(canary)))
    assert not canary.exists()


async def test_a_dash_is_taken_behind_two_dashes_within_an_argument_and_where_it_is_allowed(
    load: Load, provide: Provide
) -> None:
    parameters = {"one": {"allow_dash": True}, "two": {}, "three": {"type": "integer"}}
    command = [sys.executable, "-c", PARROT, "{one}", "-n{three}", "--", "{two}"]
    provider = provide(load(entry(command, parameters=parameters)))
    result = await ask(provider, one="-x", two="--y", three=-3)
    assert json.loads(text(result)) == ["-x", "-n-3", "--", "--y"]


@pytest.mark.parametrize("value", [*WRONG_TYPES, "a\0b", "\ud800", "x" * 100_001], ids=lambda value: repr(value)[:20])
async def test_a_value_that_no_command_takes_is_refused(load: Load, provide: Provide, value: object) -> None:
    is_text = isinstance(value, str) and len(value) < 50 and value.isprintable()
    kind = "integer" if is_text else "string"
    provider = provide(load(entry(["echo", "{v}"], parameters={"v": {"type": kind}})))
    with pytest.raises(InvalidArguments, match=r"v: (must|holds|has)"):
        await ask(provider, v=value)


async def test_an_exit_code_other_than_0_is_an_error_with_the_end_of_stderr(load: Load, provide: Provide) -> None:
    code = "import sys; sys.stderr.write('x' * 9000 + 'the reason'); sys.exit(3)"
    result = await ask(provide(load(entry([sys.executable, "-c", code]))))
    assert result["isError"]
    assert text(result).startswith("exit code 3: x")
    assert text(result).endswith("the reason")
    assert len(text(result)) < 5_000


async def test_a_long_output_is_cut_with_a_note(load: Load, provide: Provide) -> None:
    result = await ask(provide(load(entry([sys.executable, "-c", "print('x' * 3_000_000)"]))))
    assert len(text(result)) == 1_000_000
    note = "note: the output has 3,000,001 bytes; only the first 1,000,000 are shown"
    assert result["content"][1]["text"] == note


async def test_there_is_nothing_to_read_from_stdin(load: Load, provide: Provide) -> None:
    assert text(await ask(provide(load(entry(["cat"]))))) == ""


@pytest.mark.requirement("T48")
async def test_a_program_sees_only_the_variables_that_it_is_given(
    load: Load, provide: Provide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")
    monkeypatch.setenv("MY_OTHER", "other")
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('MY_')}))"
    seen = [
        json.loads(text(await ask(provide(load(entry([sys.executable, "-c", code], **env))))))
        for env in ({}, {"env": ["MY_OTHER"]}, {"env": {"MY_SECRET": None, "MY_OWN": "$HOME"}})
    ]
    assert seen == [{}, {"MY_OTHER": "other"}, {"MY_SECRET": "s3cret", "MY_OWN": "$HOME"}]


async def test_a_program_runs_in_the_folder_of_its_file_or_in_its_own(load: Load, provide: Provide) -> None:
    home = Path(text(await ask(provide(load(entry(["pwd"]))))).strip())
    assert home.name == "yaml"
    (home / "inner").mkdir()
    assert text(await ask(provide(load(entry(["pwd"], cwd="inner"))))).strip() == str(home / "inner")
    missing = await ask(provide(load(entry(["pwd"], cwd="nowhere"))))
    assert missing["isError"]
    assert "cannot be started: its folder is not there" in text(missing)


async def test_a_program_that_is_not_there_is_named(load: Load, provide: Provide) -> None:
    result = await ask(provide(load(entry(["no-such-program"]))))
    assert result["isError"]
    assert "the program 'no-such-program' was not found" in text(result)


async def test_a_program_that_takes_too_long_is_ended(load: Load, provide: Provide, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"echo $$ > {file}; exec sleep 1000"
    result = await ask(provide(load(entry(["sh", "-c", script], timeout=1))))
    assert result["isError"]
    assert text(result) == "stopped after 1 s, with all that it had started."
    (pid,) = numbers(file)
    assert not is_known(pid), "it was reaped"


async def test_a_call_that_is_given_up_ends_the_program_and_all_that_it_started(
    load: Load, provide: Provide, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    script = f"sleep 1000 & one=$!; setsid sleep 1000 & echo $$ $one $! > {file}; wait"
    provider = provide(load(entry(["sh", "-c", script])))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def run() -> None:
                await provider.call("run", {}, meta={}, on_progress=None)

            tasks.start_soon(run)
            await until(lambda: numbers(file))
            tasks.cancel_scope.cancel()
    leader, *_ = pids = numbers(file)
    assert not is_known(leader), "it was reaped"
    await until(lambda: not any(map(is_running, pids)))


async def test_what_a_program_leaves_in_the_background_neither_delays_the_answer_nor_stays(
    load: Load, provide: Provide
) -> None:
    result = await ask(provide(load(entry(["sh", "-c", "sleep 1000 & echo $!"]))))
    assert "isError" not in result
    await until(lambda: not is_running(int(text(result))))


async def test_no_file_stays_open(load: Load, provide: Provide) -> None:
    provider = provide(load(entry(["echo", "x"])))
    await ask(provider)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        await ask(provider)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("ls | wc", "'|' is shell syntax"),
        ("ls && id", "'&' is shell syntax"),
        ("ls; id", "';' is shell syntax"),
        ("echo $HOME", "'$' is shell syntax"),
        ('echo "$HOME"', "'$' is shell syntax"),
        ("echo `id`", "'`' is shell syntax"),
        ("ls > out", "'>' is shell syntax"),
        ("ls *.py", "'*' is shell syntax"),
        ("echo 'a", "the command cannot be split"),
        ("", "the command is empty"),
        ([], "the command is empty"),
        (["{a}", "x"], "the program itself is a place"),
        (["echo", "{b}"], "no parameter is declared for {b}"),
        (["echo", ["x"]], "'command' holds a list"),
        (["sh", "-c", "echo {a}"], "{a} would become code of an interpreter"),
        (["/usr/bin/env", "bash", "-lc", "echo {a}"], "{a} would become code of an interpreter"),
        (["sh", "-e", "-c", "echo {a}"], "{a} would become code of an interpreter"),
        (["bash", "-o", "pipefail", "-c", "{a}"], "{a} would become code of an interpreter"),
        (["python3", "-W", "ignore", "-c", "{a}"], "{a} would become code of an interpreter"),
        (["python3.11", "-c{a}"], "{a} would become code of an interpreter"),
        (["node", "--eval={a}"], "{a} would become code of an interpreter"),
    ],
)
def test_a_command_that_would_need_a_shell_is_refused(load: Load, command: object, said: str) -> None:
    loaded = load(entry(command, parameters={"a": {}}))  # type: ignore[arg-type]
    assert loaded.tools == ()
    (problem,) = loaded.problems
    assert said in str(problem)
    assert problem.fix


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "-c", 'echo "$1"', "--", "{a}"],
        ["python", "tool.py", "-e", "{a}"],
        ["python", "-m", "tool", "-c", "{a}"],
        ["grep", "-e", "{a}", "file"],
    ],
)
def test_a_value_that_is_an_argument_of_the_code_is_taken(load: Load, command: list[str]) -> None:
    loaded = load(entry(command, parameters={"a": {}}))
    assert (len(loaded.tools), loaded.problems) == (1, ())


def test_a_command_in_one_line_is_split_as_a_shell_would(load: Load) -> None:
    (tool,) = load(entry("grep -e 'a|b' \"c d\" {file}", parameters={"file": {}})).tools  # type: ignore[arg-type]
    assert tool.function.arguments == ("grep", "-e", "a|b", "c d", "{file}")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"timeout": 0}, "a timeout of 0 s"),
        ({"timeout": "soon"}, "'timeout' is 'soon', not a number"),
        ({"env": {"A=B": "x"}}, "'A=B' in `env` is no variable"),
        ({"env": {"A": ["x"]}}, "'A' in `env` is a list"),
        ({"read_only": "yes please"}, "'read_only' is a text, not true or false"),
        ({"parameters": {"a": {"default": "-x"}}, "command": ["echo", "{a}"]}, "the default of 'a' begins with '-'"),
        ({"parameters": {"a": {"type": "identifier"}}, "command": ["echo", "{a}"]}, "an identifier, which is for SQL"),
        ({"parameters": {"a": {"many": True}}, "command": ["echo", "{a}"]}, "a list, which is for SQL"),
        ({"sql": "SELECT 1"}, "either `sql` or `command`"),
    ],
)
def test_what_cannot_be_used_around_a_command_is_named(load: Load, more: dict[str, Any], said: str) -> None:
    loaded = load(entry(**{"command": ["echo"], **more}))
    assert loaded.tools == ()
    assert said in str(loaded.problems[0])
