"""The config files of clients, as their documentation shows them, become servers of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from portico.config.edit_and_import import ImportPlan, apply_import, plan_import
from portico.errors import ConfigError

from .conftest import Home

COPILOT = {
    "mcpServers": {
        "play": {"type": "local", "command": "npx", "args": ["@playwright/mcp@latest"], "tools": ["*"]},
        "few": {"type": "http", "url": "https://h/mcp", "headers": {"K": "v"}, "tools": ["read", "list_*"]},
    }
}
OPENCODE = {
    "$schema": "https://opencode.ai/config.json",
    "mcp": {
        "here": {
            "type": "local",
            "command": ["npx", "-y", "my-mcp"],
            "enabled": True,
            "environment": {"TOKEN": "{env:MY_TOKEN}"},
            "timeout": 5000,
        },
        "there": {
            "type": "remote",
            "url": "https://h/mcp",
            "headers": {"A": "Bearer {env:MY_TOKEN}"},
            "enabled": False,
        },
    },
}
GOOSE = """
GOOSE_PROVIDER: anthropic
extensions:
  developer: {type: builtin, name: developer, enabled: true, bundled: true}
  files:
    name: files
    type: stdio
    cmd: npx
    args: [-y, "@modelcontextprotocol/server-filesystem", /tmp]
    envs: {A: b}
    env_keys: [MY_TOKEN]
    enabled: true
    timeout: 300
    available_tools: []
  web: {type: streamable_http, name: web, uri: "https://h/mcp", enabled: false, available_tools: [fetch]}
  old: {enabled: true, config: {type: stdio, name: old, cmd: uvx, args: [mcp-server-git]}}
"""
CONTINUE = """
name: My Config
mcpServers:
  - name: sqlite
    command: npx
    args: [-y, mcp-sqlite]
    env: {NPM_TOKEN: "${MY_TOKEN}"}
  - {name: docs, type: streamable-http, url: "https://h/mcp"}
"""
AMP = {"amp.mcpServers": {"play": {"command": "npx", "args": ["-y", "p"], "includeTools": ["browser_*"]}}}
KIRO = {
    "mcpServers": {
        "web": {"command": "uvx", "args": ["x"], "disabled": False, "autoApprove": ["a"], "disabledTools": ["drop"]}
    }
}
ZED = {"context_servers": {"z": {"source": "custom", "command": "npx", "args": ["z"], "env": {}}}}
CLINE = {"mcpServers": {"c": {"type": "streamableHttp", "url": "https://h/mcp", "disabled": False, "alwaysAllow": []}}}
ROO = {"mcpServers": {"r": {"type": "streamable-http", "url": "https://h/mcp", "disabledTools": ["x"], "timeout": 60}}}
WARP = {"mcpServers": {"w": {"command": "npx", "args": ["w"], "working_directory": "/tmp", "env": {"A": "b"}}}}
LM_STUDIO = {"mcpServers": {"l": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${MY_TOKEN}"}}}}

FILES: list[tuple[str, str, Any, list[str]]] = [
    ("copilot-cli", ".copilot/mcp-config.json", COPILOT, ["play", "few"]),
    ("opencode", ".config/opencode/opencode.json", OPENCODE, ["here", "there"]),
    ("goose", ".config/goose/config.yaml", GOOSE, ["files", "web", "old"]),
    ("continue", ".continue/config.yaml", CONTINUE, ["sqlite", "docs"]),
    ("amp", ".config/amp/settings.json", AMP, ["play"]),
    ("kiro", ".kiro/settings/mcp.json", KIRO, ["web"]),
    ("zed", ".config/zed/settings.json", ZED, ["z"]),
    (
        "cline",
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        CLINE,
        ["c"],
    ),
    ("roo", ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json", ROO, ["r"]),
    ("warp", ".warp/.mcp.json", WARP, ["w"]),
    ("lm-studio", ".lmstudio/mcp.json", LM_STUDIO, ["l"]),
]


def imported(home: Home, source: str) -> ImportPlan:
    home.environ["MY_TOKEN"] = "secret"
    return plan_import(source, environ=home.environ, cwd=home.project, existing={}, platform="linux")


def written(home: Home, plan: ImportPlan) -> dict[str, Any]:
    file = home.folder / "imported.yaml"
    apply_import(plan, file)
    found = home.load(file)
    assert found.problems == ()
    return {spec.name: spec for spec in found.servers}


@pytest.mark.requirement("P-IMPORT-FORMATS")
@pytest.mark.parametrize(("client", "name", "content", "servers"), FILES, ids=[row[0] for row in FILES])
@pytest.mark.parametrize("by_file", [False, True], ids=["client", "file"])
def test_every_server_of_a_clients_file_is_brought_in(
    home: Home, client: str, name: str, content: Any, servers: list[str], by_file: bool
) -> None:
    file = home.write(name, content if isinstance(content, str) else json.dumps(content))
    plan = imported(home, str(file) if by_file else client)
    assert list(plan.additions) == servers, [item.reason for item in plan.items]
    assert list(written(home, plan)) == servers


@pytest.mark.requirement("P-IMPORT-FORMATS")
def test_what_a_client_says_of_a_server_is_kept(home: Home) -> None:
    for name, content in ((row[1], row[2]) for row in FILES):
        home.write(name, content if isinstance(content, str) else json.dumps(content))
    copilot = written(home, imported(home, "copilot-cli"))
    assert (copilot["play"].tools.allow, copilot["few"].tools.allow) == ((), ("read", "list_*"))
    (home.folder / "imported.yaml").unlink()
    opencode = written(home, imported(home, "opencode"))
    assert (opencode["here"].command, opencode["here"].args) == ("npx", ("-y", "my-mcp"))
    assert opencode["here"].env == {"TOKEN": "secret"}
    assert opencode["there"].headers == {"A": "Bearer secret"}
    assert not opencode["there"].enabled
    (home.folder / "imported.yaml").unlink()
    goose = written(home, imported(home, "goose"))
    assert goose["files"].env == {"A": "b", "MY_TOKEN": "secret"}
    assert (goose["files"].tools.allow, goose["web"].tools.allow) == ((), ("fetch",))
    assert (goose["web"].url, goose["web"].enabled, goose["old"].command) == ("https://h/mcp", False, "uvx")
    skipped = {item.name: item.reason for item in imported(home, "goose").items if item.action == "skip"}
    assert skipped == {"developer": "a part of Goose itself (builtin)"}
    (home.folder / "imported.yaml").unlink()
    assert written(home, imported(home, "kiro"))["web"].tools.deny == ("drop",)
    (home.folder / "imported.yaml").unlink()
    assert written(home, imported(home, "amp"))["play"].tools.allow == ("browser_*",)
    (home.folder / "imported.yaml").unlink()
    assert written(home, imported(home, "warp"))["w"].cwd == "/tmp"


@pytest.mark.requirement("P-IMPORT-FORMATS")
def test_a_file_of_variables_comes_along_and_is_read(home: Home) -> None:
    home.write(
        "project/.env",
        '# mine\nexport A=1\nB = "two words" # said\nC=\'$x\'\nD=plain # said\nE="line\\nbreak"\nF=\n\n',
    )
    entry = {"servers": {"s": {"command": "a", "envFile": "${workspaceFolder}/.env", "env": {"A": "mine"}}}}
    home.write("project/.vscode/mcp.json", json.dumps(entry))
    spec = written(home, imported(home, "vscode"))["s"]
    assert spec.env == {"A": "mine", "B": "two words", "C": "$x", "D": "plain", "E": "line\nbreak", "F": ""}


@pytest.mark.requirement("P-IMPORT-FORMATS")
def test_a_file_of_variables_that_cannot_be_read_is_named_and_shows_no_value(home: Home) -> None:
    home.write("bad.env", "GOOD=1\nsecret-without-a-name\n")
    for name, problem in (("nowhere.env", "there is no such file"), ("bad.env", "this line is not a variable")):
        file = home.write("c.yaml", f"servers: {{s: {{command: a, envFile: {name}}}, t: {{command: b}}}}\n")
        settings = home.load(file)
        assert [spec.name for spec in settings.servers] == ["t"]
        (told,) = settings.problems
        assert (told.where, problem in str(told), "secret" in str(told)) == ("servers.s.envFile", True, False)


@pytest.mark.requirement("P-IMPORT-FORMATS")
@pytest.mark.parametrize("text", ["{}", '{"theme": "dark"}', "[1]", '"text"'])
def test_a_file_without_servers_is_an_error_that_says_where_they_should_be(home: Home, text: str) -> None:
    file = home.write("settings.json", text)
    with pytest.raises(ConfigError, match="no servers were found"):
        imported(home, str(file))
