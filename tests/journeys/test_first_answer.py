"""A client over stdio is answered before anything heavy is loaded, and nothing that it sends is lost."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from portico.config import find_paths
from portico.config.load import load_settings
from portico.server.early_answers import UNDERSTOOD, StdioRequest, asked_over_stdio
from portico.surfaces.cli.app import app
from portico.surfaces.cli.context import CliContext, Options

from .kit import definition, serving
from .running import environment

CPU_SECONDS = 0.35
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
HEAVY = {"mcp", "mcp_types", "pydantic", "numpy", "sqlalchemy", "anyio", "typer", "starlette", "orjson", "sqlite3"}

OPENING = """
import os, sys, time
from pathlib import Path
from portico.server.early_answers import open_early
pipe = open_early(["serve", "--stdio"], os.environ, Path.cwd())
seconds = time.process_time()
print(seconds, len(pipe.answers.given), *sys.modules, file=sys.stderr)
"""


@contextmanager
def served(home: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """`portico serve --stdio`, until its client goes away."""
    command = [sys.executable, "-m", "portico", "serve", "--stdio", *args]
    process = subprocess.Popen(
        command, env=environment(home), cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def leave(process: subprocess.Popen[str]) -> None:
    """Close stdin, as clients do, and wait for the end."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def send(process: subprocess.Popen[str], *messages: Any) -> None:
    """Send messages in one piece."""
    assert process.stdin is not None
    process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
    process.stdin.flush()


def received(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    """The next messages, by id."""
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def answers_to(process: subprocess.Popen[str], ids: set[int | str]) -> list[dict[str, Any]]:
    """All answers until each of these requests has one."""
    found: list[dict[str, Any]] = []
    while not ids <= {message["id"] for message in found}:
        found += [message for message in received(process, 1) if "id" in message]
    return found


def in_one_run(home: Path, *messages: Any, answers: int, args: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What a new process answers to these."""
    with served(home, *args) as process:
        send(process, *messages)
        return received(process, answers)


@pytest.mark.timed
@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("message", [INITIALIZE, DISCOVER], ids=["initialize", "discover"])
def test_the_first_answer_needs_little_of_the_processor(tmp_path: Path, message: dict[str, Any]) -> None:
    then = {**LIST, "params": {"_meta": META}} if message is DISCOVER else LIST
    servers = {f"server-{number}": {"command": "none"} for number in range(20)}
    (tmp_path / "portico.yaml").write_text(json.dumps({"servers": servers}))
    done = subprocess.run(
        [sys.executable, "-c", OPENING], env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True,
        input="".join(json.dumps(sent) + "\n" for sent in (message, then)), timeout=60, check=True,
    )  # fmt: skip
    seconds, given, *modules = done.stderr.split()
    assert (given, HEAVY & set(modules)) == ("2", set())
    assert float(seconds) <= CPU_SECONDS
    answer, listed = (json.loads(line) for line in done.stdout.splitlines())
    assert "20 servers" in answer["result"]["instructions"]
    assert listed["result"]["tools"][0]["name"] == "search_tools"


@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("surface", ["discover", "static", "search", "capabilities", "gateway"])
def test_every_message_gets_one_answer(tmp_path: Path, surface: str) -> None:
    (tmp_path / "portico.yaml").write_text(
        json.dumps({"servers": {"shop": serving(tmp_path / "t", [definition("buy")])}})
    )
    pings = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(10, 30)]
    for _ in range(2):
        with served(tmp_path, "--surface", surface) as process:
            send(process, INITIALIZE, INITIALIZED, LIST, *pings)
            answers = answers_to(process, {1, 2, *range(10, 30)})
            send(process, {"jsonrpc": "2.0", "id": "last", "method": "ping"})
            answers += answers_to(process, {"last"})
            leave(process)
        assert all("result" in message for message in answers)
        assert len(answers) == 23


@pytest.mark.requirement("P-FIRST-ANSWER")
def test_the_second_start_knows_what_the_first_has_learned(tmp_path: Path) -> None:
    (tmp_path / "portico.yaml").write_text(
        json.dumps({"servers": {"shop": serving(tmp_path / "t", [definition("buy")])}})
    )
    search = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "search_tools"}}
    search["params"] = {"name": "search_tools", "arguments": {"query": "buy"}}
    with served(tmp_path) as process:
        send(process, INITIALIZE, INITIALIZED)
        assert "tools of 1 servers" in received(process, 1)[0]["result"]["instructions"]
        send(process, search)
        received(process, 1)
        leave(process)
    early, late = in_one_run(tmp_path, INITIALIZE, INITIALIZED, LIST, answers=2)
    assert "1 tools of 1 servers" in early["result"]["instructions"]
    assert late["result"]["tools"][0]["name"] == "search_tools"


@pytest.mark.requirement("P-FIRST-ANSWER")
def test_a_list_that_was_told_too_early_is_said_to_have_changed(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def handle_greet(name: str) -> str:\n    '''Greets.'''\n    return name\n")
    (tmp_path / "portico.yaml").write_text(json.dumps({"python": ["tools.py"], "pins": ["greet"]}))
    with served(tmp_path) as process:
        send(process, INITIALIZE, INITIALIZED, LIST)
        received(process, 2)
        leave(process)
    (tmp_path / "tools.py").write_text(
        "def handle_greet(name: str, loud: bool) -> str:\n    '''Greets.'''\n    return name\n"
    )
    with served(tmp_path) as process:
        send(process, INITIALIZE, INITIALIZED, LIST)
        _, stale = received(process, 2)
        assert "loud" not in json.dumps(stale)
        assert received(process, 1) == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]
        send(process, {**LIST, "id": 3})
        assert "loud" in json.dumps(received(process, 1))


def test_a_terminal_is_served_in_the_usual_way(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-c", OPENING.replace("len(pipe.answers.given)", "pipe")], env=environment(tmp_path),
        cwd=tmp_path, stdin=theirs, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.stderr.split()[1] == "None"


def test_what_tools_print_does_not_reach_the_client(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "import os\nprint('loaded')\nos.write(1, b'raw')\n"
        "def handle_say() -> str:\n    '''Says.'''\n    os.system('echo shell')\n    print('called')\n    return 'x'\n"
    )
    (tmp_path / "portico.yaml").write_text(json.dumps({"python": ["tools.py"]}))
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "say", "arguments": {}}}
    for _ in range(2):
        found = in_one_run(tmp_path, INITIALIZE, INITIALIZED, call, answers=2)
        assert [message["id"] for message in found] == [1, 3]


@pytest.mark.parametrize(
    ("config", "args", "code"),
    [("surface: [", (), 3), ("{}", ("--surface", "none"), 3), ("{}", ("--profile", "none"), 3),
     ("{}", ("--config", "none.yaml"), 3), ("{}", ("--wrong",), 2), ("hooks: [none.py]", (), 3)],
)  # fmt: skip
def test_a_bad_start_ends_as_it_did(tmp_path: Path, config: str, args: tuple[str, ...], code: int) -> None:
    (tmp_path / "portico.yaml").write_text(config)
    done = subprocess.run(
        [sys.executable, "-m", "portico", "serve", "--stdio", *args], env=environment(tmp_path), cwd=tmp_path,
        input=json.dumps(INITIALIZE) + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr
    assert done.stdout.count("\n") <= ("hooks" in config)


LINES = [
    ["serve", "--stdio"],
    ["--config", "f", "serve", "--stdio"],
    ["serve", "--stdio", "--surface", "static", "--profile=p", "--config", "g"],
    ["serve", "--surface=search", "--progressive_disclosure", "--stdio", "--reload"],
    ["serve", "--progressive_disclosure", "--stdio"],
    ["--config", "f", "serve", "--stdio", "--config", "g"],
    ["serve", "--stdio", "--surface", "static", "--surface", "search"],
    ["--config=f", "serve", "--stdio"],
]
OTHERS = [
    [], ["serve"], ["demo"], ["list", "--stdio"], ["serve", "--stdio", "--help"], ["--help", "serve", "--stdio"],
    ["serve", "--stdio", "more"], ["serve", "--stdio", "--surface"], ["serve", "--stdio", "--port", "x"],
    ["serve", "--stdio", "--surface", "static", "--progressive_disclosure"], ["serve", "--stdio", "--surface", "--x"],
    ["--stdio", "serve"], ["--surface", "static", "serve", "--stdio"], ["--config", "serve", "serve", "--stdio"],
    ["--config", "serve", "--stdio"], ["serve", "--stdio=1"], ["serve", "--std"], ["serve", "--", "--stdio"],
]  # fmt: skip


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_command_line_is_read_as_the_real_parser_reads_it(line: list[str]) -> None:
    seen: dict[str, Any] = {}

    def serve(config: str | None, **options: Any) -> None:
        seen.update(options, config=config)

    cli_context = CliContext(open_app=None, serve=serve, demo=None, version="", surface_tokens=None)  # type: ignore[arg-type]
    typer.main.get_command(app).main(line, obj=Options(cli_context=cli_context), standalone_mode=False)
    assert seen.pop("stdio")
    assert asked_over_stdio(line) == StdioRequest(
        config=seen["config"], surface=seen["surface"], profile=seen["profile"]
    )


@pytest.mark.parametrize("line", OTHERS, ids=" ".join)
def test_other_command_lines_are_left_to_the_real_parser(line: list[str]) -> None:
    assert asked_over_stdio(line) is None


def test_every_option_of_serve_is_understood_or_left_to_the_real_parser() -> None:
    front = typer.main.get_command(app)
    serve = front.commands["serve"]  # type: ignore[attr-defined]
    names = {name for command in (front, serve) for option in command.params for name in option.opts}
    left = {"--host", "--port", "--version", "--install-completion", "--show-completion", "--help"}
    assert names - left - UNDERSTOOD == set(), "an option that is new here makes the first answer late"


def test_the_same_settings_are_read_twice(tmp_path: Path) -> None:
    first, second = (load_settings(None, environment(tmp_path), tmp_path) for _ in range(2))
    assert repr(first) == repr(second)
    assert first.home == find_paths(environment(tmp_path), tmp_path)
