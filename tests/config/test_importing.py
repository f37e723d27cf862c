"""A client's servers come into our config: a plan first, and nothing merged in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from portico.config.clients import CLIENTS, client_files
from portico.config.edit_and_import import ImportPlan, apply_import, plan_import, server_entries
from portico.errors import ConfigError

from .conftest import Home

SECRET = "ghp_abcdefghijklmnop0123456789"


def plan(home: Home, source: str, existing: dict[str, Any] | None = None, **options: Any) -> ImportPlan:
    return plan_import(
        source, environ=home.environ, cwd=home.project, existing=existing or {}, platform="linux", **options
    )


def test_importing_from_claude_desktop_shows_what_happens_to_each_server(home: Home) -> None:
    home.write(
        ".config/Claude/claude_desktop_config.json",
        json.dumps(
            {
                "mcpServers": {
                    "new": {"command": "npx", "args": ["-y", "n"], "env": {"T": SECRET, "U": "${UNSET}"}},
                    "same": {"command": "s", "args": []},
                    "clash": {"command": "theirs"},
                    "portico": {"command": "/usr/bin/portico", "args": ["serve", "--stdio"]},
                    "broken": {"args": ["x"]},
                }
            },
            indent=2,
        ),
    )
    existing = {"same": {"command": "s", "args": []}, "clash": {"command": "ours"}}
    found = plan(home, "claude-desktop", existing)
    assert {item.name: item.action for item in found.items} == {
        "new": "add",
        "same": "same",
        "clash": "conflict",
        "portico": "skip",
        "broken": "problem",
    }
    new, _, clash, itself, broken = found.items
    assert new.reason == "needs UNSET to be set"
    assert new.line == 3
    assert "another entry is already called 'clash'" in clash.reason
    assert itself.reason == "this is Portico itself"
    assert "claude_desktop_config.json:" in broken.reason
    assert SECRET not in repr(found) + str(new.shown)


def test_what_is_written_is_what_was_found_with_variables_and_secrets_as_they_were(home: Home) -> None:
    entry = {"command": "npx", "args": ["-y", "n"], "env": {"T": SECRET, "U": "${UNSET:-x}"}, "timeout": 30000}
    home.write(".cursor/mcp.json", json.dumps({"mcpServers": {"a": entry}}))
    file = home.folder / "portico.yaml"
    apply_import(plan(home, "cursor"), file)
    assert server_entries(file) == {"a": entry}
    again = plan(home, "cursor", server_entries(file))
    assert [item.action for item in again.items] == ["same"]
    before = file.read_bytes()
    apply_import(again, file)
    assert file.read_bytes() == before


def test_a_conflict_is_renamed_on_request_only(home: Home) -> None:
    home.write(".cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    existing = {"a": {"command": "y"}, "a-2": {"command": "z"}}
    assert plan(home, "cursor", existing).additions == {}
    renamed = plan(home, "cursor", existing, rename=True)
    assert renamed.additions == {"a-3": {"command": "x"}}
    assert "'a' is taken" in renamed.items[0].reason


def test_the_project_and_the_user_file_are_both_read(home: Home) -> None:
    home.write("project/.mcp.json", '{"mcpServers": {"a": {"command": "project"}, "b": {"command": "same"}}}')
    mine = {
        "mcpServers": {"a": {"command": "user"}, "b": {"command": "same"}, "c": {"type": "http", "url": "http://h"}}
    }
    local = {"projects": {str(home.project): {"mcpServers": {"d": {"command": "local"}}}}}
    home.write(".claude.json", json.dumps({**mine, **local}))
    found = plan(home, "claude-code")
    assert [(item.name, item.action) for item in found.items] == [
        ("a", "add"),
        ("b", "add"),
        ("a", "conflict"),
        ("b", "same"),
        ("c", "add"),
        ("d", "add"),
    ]


def test_codex_and_gemini_entries_are_written_in_our_shape(home: Home) -> None:
    home.write(
        ".codex/config.toml",
        '[mcp_servers.a]\nurl = "https://h/mcp"\nbearer_token_env_var = "T"\nstartup_timeout_sec = 5\nrequired = 1\n',
    )
    home.write(
        ".gemini/settings.json",
        '{"mcpServers": {"b": {"httpUrl": "http://h", "headers": {"A": "$T"}, "x": 1}, "c": {"url": "http://h"}}}',
    )
    assert plan(home, "codex").additions == {
        "a": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${T}"}, "timeouts": {"start": 5}}
    }
    assert plan(home, "gemini").additions == {
        "b": {"url": "http://h", "type": "http", "headers": {"A": "${T}"}},
        "c": {"url": "http://h", "type": "sse"},
    }


def test_words_that_mean_the_clients_folder_are_settled(home: Home) -> None:
    home.write(
        "project/.vscode/mcp.json",
        '{"servers": {"a": {"command": "x", "args": ["${workspaceFolder}/y"], "cwd": "${workspaceFolder}"}}}',
    )
    assert plan(home, "vscode").additions == {
        "a": {"command": "x", "args": [f"{home.project}/y"], "cwd": str(home.project)}
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "portico", "args": ["serve", "--stdio"]},
        {"command": "C:\\bin\\portico.exe", "args": ["serve"]},
        {"command": "uvx", "args": ["portico", "serve", "--stdio"]},
        {"command": "python", "args": ["-m", "portico", "serve", "--stdio"]},
        {"url": "http://localhost:8421/mcp"},
        {"url": "http://127.0.0.1:8421/mcp/static"},
    ],
)
def test_portico_does_not_import_itself(home: Home, entry: dict[str, Any]) -> None:
    home.write(
        ".cursor/mcp.json", json.dumps({"mcpServers": {"any": entry, "other": {"url": "http://localhost:1/mcp"}}})
    )
    assert [item.action for item in plan(home, "cursor").items] == ["skip", "add"]


def test_a_file_can_be_imported_by_its_path(home: Home) -> None:
    home.write("project/x.json", '{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}')
    found = plan(home, "x.json")
    assert found.additions == {"a": {"command": "x"}}
    assert [problem.where for problem in found.problems] == ["mcpServers.a"]


def test_an_unknown_client_is_answered_with_the_nearest(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"'cursr' is neither a client we know nor a file. Did you mean 'cursor'"):
        plan(home, "cursr")


def test_a_client_without_a_file_says_where_it_was_looked_for(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"Cursor has no config file\. Looked for .*\.cursor/mcp\.json"):
        plan(home, "cursor")


def test_a_broken_client_file_is_an_error_with_its_line(home: Home) -> None:
    home.write(".cursor/mcp.json", '{\n"mcpServers": {\n')
    with pytest.raises(ConfigError, match=r"mcp\.json:2: .*never closed"):
        plan(home, "cursor")


@pytest.mark.parametrize(
    ("client", "platform", "expected"),
    [
        ("claude-desktop", "linux", ".config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", ".claude.json"),
        ("cursor", "darwin", ".cursor/mcp.json"),
        ("vscode", "linux", ".config/Code/User/mcp.json"),
        ("vscode", "darwin", "Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "AppData/Roaming/Code/User/mcp.json"),
        ("codex", "linux", ".codex/config.toml"),
        ("gemini", "win32", ".gemini/settings.json"),
        ("windsurf", "linux", ".codeium/windsurf/mcp_config.json"),
    ],
)
def test_each_clients_own_file_is_known(client: str, platform: str, expected: str) -> None:
    files = client_files(CLIENTS[client], environ={"HOME": "/h"}, cwd=Path("/p"), platform=platform)
    assert files[-1] == Path("/h") / expected


def test_a_moved_client_folder_is_followed() -> None:
    environ = {"HOME": "/h", "CODEX_HOME": "/c", "APPDATA": "/roaming"}
    assert client_files(CLIENTS["codex"], environ=environ, cwd=Path("/p"))[-1] == Path("/c/config.toml")
    files = client_files(CLIENTS["vscode"], environ=environ, cwd=Path("/p"), platform="win32")
    assert files == (Path("/p/.vscode/mcp.json"), Path("/roaming/Code/User/mcp.json"))
