"""What clients write into a server entry, and the specification it becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from portico.domain.server import ServerSpec, Timeouts, ToolFilter

from .conftest import Home


def read(home: Home, entry: dict[str, Any], table: str = "servers") -> ServerSpec:
    settings = home.load(home.write("c.json", json.dumps({table: {"s": entry}})))
    assert settings.problems == ()
    (spec,) = settings.servers
    return spec


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"command": "a"}, "stdio"),
        ({"command": "a", "type": "stdio"}, "stdio"),
        ({"url": "http://h/mcp"}, "http"),
        ({"url": "http://h/sse"}, "sse"),
        ({"url": "http://h/sse/", "type": "http"}, "http"),
        ({"url": "http://h", "type": "sse"}, "sse"),
        ({"url": "http://h", "type": "streamable-http"}, "http"),
        ({"url": "http://h", "transport": "streamableHttp"}, "http"),
        ({"url": "http://h", "type": "http", "transport": "streamable-http"}, "http"),
        ({"httpUrl": "http://h/sse"}, "http"),
        ({"serverUrl": "http://h/mcp"}, "http"),
    ],
)
def test_the_transport_is_declared_or_told_by_the_fields(home: Home, entry: dict[str, Any], transport: str) -> None:
    assert read(home, entry).transport == transport


def test_a_whole_command_line_in_command_is_split(home: Home) -> None:
    spec = read(home, {"command": "npx -y 'my server'"})
    assert (spec.command, spec.args) == ("npx", ("-y", "my server"))


def test_a_program_with_a_space_in_its_name_is_not_split(home: Home) -> None:
    program = str(home.write("My Programs/run it", ""))
    spec = read(home, {"command": program})
    assert (spec.command, spec.args) == (program, ())


def test_a_command_with_arguments_is_not_split(home: Home) -> None:
    assert read(home, {"command": "a b", "args": ["c"]}).command == "a b"


def test_a_command_written_as_a_list_is_understood(home: Home) -> None:
    spec = read(home, {"command": ["npx", "-y", 1]})
    assert (spec.command, spec.args) == ("npx", ("-y", "1"))


def test_paths_in_the_home_folder_are_found(home: Home) -> None:
    spec = read(home, {"command": "~/bin/x", "cwd": "~"})
    assert (spec.command, spec.cwd) == (str(home.folder / "bin/x"), str(home.folder))


@pytest.mark.parametrize(("timeout", "call"), [(30, 30), (1000, 1000), (30000, 30), (1.5, 1.5), ("20", 20)])
def test_a_plain_timeout_is_seconds_and_large_ones_milliseconds(home: Home, timeout: Any, call: float) -> None:
    assert read(home, {"command": "a", "timeout": timeout}).timeouts.call == call


def test_a_disabled_server_needs_no_variables(home: Home) -> None:
    spec = read(home, {"command": "a", "env": {"T": "${NOT_SET}"}, "disabled": True})
    assert not spec.enabled


def test_codex_fields_are_understood(home: Home) -> None:
    home.environ |= {"TOKEN": "t", "ORG": "o", "PASSED": "p"}
    file = home.write(
        ".codex/config.toml",
        """
[mcp_servers.remote]
url = "https://h/mcp"
bearer_token_env_var = "TOKEN"
http_headers = { "X-One" = "1" }
env_http_headers = { "X-Org" = "ORG" }
startup_timeout_sec = 20
tool_timeout_sec = 90.5
enabled_tools = ["get"]
disabled_tools = ["drop"]

[mcp_servers.local]
command = "npx"
args = ["-y", "x"]
env_vars = ["PASSED"]
enabled = false

[mcp_servers.local.env]
A = "b"
""",
    )
    settings = home.load(file)
    remote, local = settings.servers
    assert settings.problems == ()
    assert remote.headers == {"X-One": "1", "X-Org": "o", "Authorization": "Bearer t"}
    assert remote.timeouts == Timeouts(start=20, call=90.5)
    assert remote.tools == ToolFilter(allow=("get",), deny=("drop",))
    assert (local.command, local.args, local.env, local.enabled) == (
        "npx",
        ("-y", "x"),
        {"A": "b", "PASSED": "p"},
        False,
    )


def test_a_problem_in_a_clients_spelling_is_named_in_that_spelling(home: Home) -> None:
    file = home.write(".codex/config.toml", '[mcp_servers.a]\nurl = "http://h"\nbearer_token_env_var = "NOPE"\n')
    (problem,) = home.load(file).problems
    assert (problem.line, problem.where) == (3, "mcp_servers.a.bearer_token_env_var")
    assert "Export NOPE" in str(problem)


def test_gemini_variables_need_no_braces(home: Home) -> None:
    home.environ["TOKEN"] = "t"
    text = '{"mcpServers": {"a": {"httpUrl": "http://h", "headers": {"A": "Bearer $TOKEN", "B": "${TOKEN}"}}}}'
    (spec,) = home.load(home.write(".gemini/settings.json", text)).servers
    assert spec.headers == {"A": "Bearer t", "B": "t"}


def test_zed_nests_its_command(home: Home) -> None:
    entry = {"source": "custom", "command": {"path": "x", "args": ["y"], "env": {"A": "b"}}, "settings": {}}
    spec = read(home, entry, "context_servers")
    assert (spec.command, spec.args, spec.env) == ("x", ("y",), {"A": "b"})


def test_vscode_inputs_are_a_problem_that_says_what_to_do(home: Home) -> None:
    home.environ["KEY"] = "k"
    file = home.write(
        "p/.vscode/mcp.json",
        """{
  "inputs": [{"id": "gh-token", "type": "promptString", "password": true}],
  "servers": {
    "asks": {"command": "a", "env": {"T": "${input:gh-token}"}},
    "reads": {"command": "a", "cwd": "${workspaceFolder}/sub", "env": {"T": "${env:KEY}"}}, // fine
  }
}""",
    )
    settings = home.load(file)
    (reads,) = settings.servers
    assert (reads.cwd, reads.env) == (str(home.folder / "p/sub"), {"T": "k"})
    assert str(settings.problems[0]).startswith(f"{file}:4: servers.asks.env.T: ${{input:gh-token}} asks a question")
    assert "${GH_TOKEN}" in str(settings.problems[0])
