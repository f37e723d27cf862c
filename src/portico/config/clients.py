"""The clients we know: where each keeps its servers, and how it wants an entry written."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, assert_never

from portico.errors import ConfigError

from .client_formats import Dialect
from .reader import meant
from .settings import home_folder

Scope = Literal["user", "project"]
Via = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client's habits."""

    name: str
    title: str
    dialect: Dialect
    table: str
    """The key of its servers in its file."""
    folder: Literal["home", "config", "xdg"]
    """What the user's file is relative to: the home folder, where the platform keeps its applications' config, or
    `~/.config` on every platform."""
    user: str
    project: str | None = None
    home_variable: str = ""
    """An environment variable that moves the folder of the user's file."""
    typed: bool = False
    """Whether an entry says its transport in `type`."""
    url_field: str | None = "url"
    """The field of an HTTP server's address; None when the client starts programs only."""
    starting: tuple[tuple[str, int], ...] = ()
    """Fields that give a program more time to start."""
    local: str | None = None
    """The key of the user's file that holds servers of single folders, by their paths."""
    kinds: Mapping[Via, str] = field(default_factory=dict)
    """What a typed entry calls its transports, where it has words of its own."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields that every entry of this client has."""


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client(
            name="claude-desktop",
            title="Claude Desktop",
            dialect="mcpServers",
            table="mcpServers",
            folder="config",
            user="Claude/claude_desktop_config.json",
            url_field=None,
        ),
        Client(
            name="claude-code",
            title="Claude Code",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".claude.json",
            project=".mcp.json",
            home_variable="CLAUDE_CONFIG_DIR",
            typed=True,
            local="projects",
        ),
        Client(
            name="cursor",
            title="Cursor",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".cursor/mcp.json",
            project=".cursor/mcp.json",
        ),
        Client(
            name="vscode",
            title="Visual Studio Code",
            dialect="vscode",
            table="servers",
            folder="config",
            user="Code/User/mcp.json",
            project=".vscode/mcp.json",
            typed=True,
        ),
        Client(
            name="codex",
            title="Codex",
            dialect="codex",
            table="mcp_servers",
            folder="home",
            user=".codex/config.toml",
            project=".codex/config.toml",
            home_variable="CODEX_HOME",
            # A busy machine may need longer than the ten seconds that Codex waits by itself.
            starting=(("startup_timeout_sec", 30),),
        ),
        Client(
            name="gemini",
            title="Gemini CLI",
            dialect="gemini",
            table="mcpServers",
            folder="home",
            user=".gemini/settings.json",
            project=".gemini/settings.json",
            url_field="httpUrl",
        ),
        Client(
            name="windsurf",
            title="Windsurf",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".codeium/windsurf/mcp_config.json",
            url_field="serverUrl",
        ),
        Client(
            name="copilot-cli",
            title="Copilot CLI",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".copilot/mcp-config.json",
            project=".github/mcp.json",
            typed=True,
            kinds={"stdio": "local"},
            extra={"tools": ["*"]},
        ),
        Client(
            name="opencode",
            title="opencode",
            dialect="opencode",
            table="mcp",
            folder="xdg",
            user="opencode/opencode.json",
            project="opencode.json",
            typed=True,
            kinds={"stdio": "local", "http": "remote"},
            extra={"enabled": True},
        ),
        Client(
            name="goose",
            title="Goose",
            dialect="goose",
            table="extensions",
            folder="xdg",
            user="goose/config.yaml",
            typed=True,
            kinds={"http": "streamable_http"},
            url_field="uri",
            extra={"name": "portico", "enabled": True, "timeout": 300},
        ),
        Client(
            name="zed",
            title="Zed",
            dialect="zed",
            table="context_servers",
            folder="xdg",
            user="zed/settings.json",
            project=".zed/settings.json",
            extra={"source": "custom"},
        ),
        Client(
            name="continue",
            title="Continue",
            dialect="continue",
            table="mcpServers",
            folder="home",
            user=".continue/config.yaml",
            project=".continue/mcpServers/portico.json",
            typed=True,
            kinds={"http": "streamable-http"},
        ),
        Client(
            name="cline",
            title="Cline",
            dialect="mcpServers",
            table="mcpServers",
            folder="config",
            user="Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            typed=True,
            kinds={"http": "streamableHttp"},
        ),
        Client(
            name="roo",
            title="Roo Code",
            dialect="mcpServers",
            table="mcpServers",
            folder="config",
            user="Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
            project=".roo/mcp.json",
            typed=True,
            kinds={"http": "streamable-http"},
        ),
        Client(
            name="lm-studio",
            title="LM Studio",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".lmstudio/mcp.json",
        ),
        Client(
            name="amp",
            title="Amp",
            dialect="amp",
            table="amp.mcpServers",
            folder="xdg",
            user="amp/settings.json",
            project=".amp/settings.json",
        ),
        Client(
            name="kiro",
            title="Kiro",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".kiro/settings/mcp.json",
            project=".kiro/settings/mcp.json",
        ),
        Client(
            name="warp",
            title="Warp",
            dialect="mcpServers",
            table="mcpServers",
            folder="home",
            user=".warp/.mcp.json",
            project=".warp/.mcp.json",
        ),
    )
}
"""All clients by the name that the command line uses."""


def find_client(name: str) -> Client:
    """The client of that name.

    Raises:
        ConfigError: no client has it; the nearest is named.
    """
    if name not in CLIENTS:
        raise ConfigError(f"{name!r} is not a client we know", fix=meant(name, CLIENTS))
    return CLIENTS[name]


def client_file(
    client: Client, scope: Scope, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
) -> Path:
    """Where a client keeps its servers, for the user or for the project in a folder.

    Raises:
        ConfigError: the client has no file of that scope.
    """
    match scope:
        case "project":
            if client.project is None:
                raise ConfigError(f"{client.title} has no config file per project", fix="Use the user's own.")
            return cwd / client.project
        case "user":
            moved = environ.get(client.home_variable) if client.home_variable else None
            if moved:
                return Path(moved) / Path(client.user).name
            return _base(client, environ, platform) / client.user
        case _:
            assert_never(scope)


def client_files(
    client: Client, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
) -> tuple[Path, ...]:
    """All places where a client looks for servers, the project's before the user's."""
    scopes: tuple[Scope, ...] = ("project", "user") if client.project else ("user",)
    return tuple(client_file(client, scope, environ=environ, cwd=cwd, platform=platform) for scope in scopes)


def portico_entry(client: Client, *, via: Via, port: int, command: str, args: Sequence[str]) -> dict[str, Any]:
    """How the entry for Portico looks in a client's file.

    Raises:
        ConfigError: the client cannot reach servers over HTTP.
    """
    kind = {"type": client.kinds.get(via, via)} if client.typed else {}
    extra = dict(client.extra)
    if via == "stdio":
        return {**kind, **_command_line(client, command, args), **extra, **dict(client.starting)}
    if client.url_field is None:
        raise ConfigError(f"{client.title} starts programs only; it reads no url", fix="Install it through stdio.")
    extra.pop("source", None)
    return {**kind, client.url_field: f"http://127.0.0.1:{port}/mcp", **extra}


def _command_line(client: Client, command: str, args: Sequence[str]) -> dict[str, Any]:
    match client.dialect:
        case "opencode":
            return {"command": [command, *args]}
        case "goose":
            return {"cmd": command, "args": list(args)}
        case _:
            return {"command": command, "args": list(args)}


def _base(client: Client, environ: Mapping[str, str], platform: str) -> Path:
    match client.folder:
        case "home":
            return home_folder(environ)
        case "config":
            return _config_folder(environ, platform)
        case "xdg":
            return _config_folder(environ, "linux")
        case _:
            assert_never(client.folder)


def _config_folder(environ: Mapping[str, str], platform: str) -> Path:
    home = home_folder(environ)
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    given = environ.get("XDG_CONFIG_HOME", "")
    return Path(given) if os.path.isabs(given) else home / ".config"
