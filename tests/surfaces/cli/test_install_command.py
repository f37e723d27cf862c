"""`portico install` as people run it: what goes, what stays, what is asked, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .shell import Shell


def servers(file: Path) -> list[str]:
    return list(json.loads(file.read_text())["mcpServers"])


@pytest.fixture
def client(shell: Shell) -> Shell:
    """A home that is the project's folder too, with servers of three scopes."""
    near = {"mcpServers": {"near": {"command": "n"}}}
    user = {"mcpServers": {"mine": {"command": "m"}, "odd": {"magic": 1}}, "projects": {str(shell.home): near}}
    (shell.home / ".claude.json").write_text(json.dumps(user, indent=2))
    (shell.home / ".mcp.json").write_text('{"mcpServers": {"team": {"command": "t"}}}')
    return shell


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_replace_keeps_what_cannot_be_served_and_leaves_the_folders_servers(client: Shell) -> None:
    done = client.run("install", "claude-code", "--replace")
    assert done.code == 0
    assert servers(client.home / ".claude.json") == ["odd", "portico"]
    assert servers(client.home / ".mcp.json") == ["team"]
    assert "odd: kept, because Portico cannot serve them" in done.err
    assert "mine: not in" in done.err
    assert "team; --local takes them out too" in done.err
    assert "near; --local takes them out too" in done.err


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_local_takes_the_folders_servers_out_too(client: Shell) -> None:
    assert client.run("install", "claude-code", "--replace", "--local").code == 0
    assert servers(client.home / ".mcp.json") == []
    data = json.loads((client.home / ".claude.json").read_text())
    assert list(data["mcpServers"]) == ["odd", "portico"]
    assert data["projects"][str(client.home)]["mcpServers"] == {}
    assert client.run("install", "claude-code", "--undo").code == 0
    assert sorted(servers(client.home / ".claude.json")) == ["mine", "odd"], "what replace took out is back"


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_undo_shows_the_difference_refuses_a_changed_entry_and_can_be_forced(client: Shell) -> None:
    client.run("install", "claude-code")
    shown = client.run("install", "claude-code", "--undo", "--dry-run")
    assert '-    "portico": {' in shown.out
    assert servers(client.home / ".claude.json") == ["mine", "odd", "portico"]
    file = client.home / ".claude.json"
    file.write_text(file.read_text().replace('"--stdio"', '"--stdio", "--reload"'))
    refused = client.run("install", "claude-code", "--undo")
    assert (refused.code, "--force" in refused.err) == (3, True)
    done = client.run("install", "claude-code", "--undo", "--force")
    assert done.code == 0
    assert servers(file) == ["mine", "odd"]
    assert client.run("install", "claude-code", "--undo").code == 3
