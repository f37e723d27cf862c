"""The clients we know: where each keeps its servers, how it writes an entry, and whose file a document is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, assert_never

from portico.documents.document import Document, dotted
from portico.documents.tree import TreePath
from portico.errors import ConfigError

from .reader import meant
from .settings import home_folder

Dialect = Literal["portico", "mcpServers", "vscode", "codex", "gemini", "zed", "opencode", "goose", "continue", "amp"]

_BRACED_VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_VARIABLE = re.compile(r"(?<![\\$])\$(?=[A-Za-z_])([A-Za-z_][A-Za-z0-9_]*)")

_RENAMED: Mapping[str, TreePath] = {
    "httpUrl": ("url",),
    "serverUrl": ("url",),
    "http_headers": ("headers",),
    "environment": ("env",),
    "working_directory": ("cwd",),
    "cmd": ("command",),
    "envs": ("env",),
    "uri": ("url",),
    "available_tools": ("tools", "allow"),
    "startup_timeout_sec": ("timeouts", "start"),
    "tool_timeout_sec": ("timeouts", "call"),
    "enabled_tools": ("tools", "allow"),
    "disabled_tools": ("tools", "deny"),
    "includeTools": ("tools", "allow"),
    "excludeTools": ("tools", "deny"),
    "enabledTools": ("tools", "allow"),
    "disabledTools": ("tools", "deny"),
}
"""Fields that clients spell in their own way, and where ours are."""

_REFERENCES: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "env_http_headers": ("headers", lambda name: f"${{{name}}}"),
    "env_vars": ("env", lambda name: f"${{{name}}}"),
    "env_keys": ("env", lambda name: f"${{{name}}}"),
}
"""Fields of Codex and Goose that name variables instead of referring to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """An entry in Portico's own shape, with the original place of every field that was moved."""

    entry: Mapping[str, Any]
    moved: Mapping[TreePath, TreePath]


def normalise(entry: Mapping[str, Any], dialect: Dialect) -> Normal:
    """Bring one entry into Portico's shape, variables unexpanded; what does not fit stays, for the reader to refuse."""
    draft = _Draft(_flat(entry) if dialect == "goose" else entry)
    draft.open_command()
    draft.move_renamed()
    draft.move_references()
    draft.open_tools()
    if "httpUrl" in entry:
        draft.entry["type"] = "http"
    if dialect == "gemini":
        if "url" in entry and "httpUrl" not in entry:
            draft.entry.setdefault("type", "sse")
        draft.entry = _braced(draft.entry)
    if dialect == "opencode":
        draft.entry = _with_variables(draft.entry)
    return Normal(entry=draft.entry, moved=draft.moved)


class _Draft:
    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.entry = dict(entry)
        self.moved: dict[TreePath, TreePath] = {}

    def open_command(self) -> None:
        """Zed nests the whole command line; others write it as one list."""
        command = self.entry.get("command")
        if isinstance(command, dict) and "path" in command:
            self._put(("command",), command["path"], ("command", "path"))
            for field in ("args", "env"):
                if field in command:
                    self._put((field,), command[field], ("command", field))
        elif isinstance(command, list) and command and "args" not in self.entry:
            self._put(("command",), command[0], ("command", 0))
            self._put(("args",), command[1:], ("command",))

    def move_renamed(self) -> None:
        for theirs, ours in _RENAMED.items():
            if theirs in self.entry:
                self._put(ours, self.entry.pop(theirs), (theirs,))

    def open_tools(self) -> None:
        """A plain list of tools, as the Copilot CLI writes it, names those that are allowed."""
        tools = self.entry.get("tools")
        if isinstance(tools, list):
            del self.entry["tools"]
            if tools != ["*"]:  # which means all of them
                self._put(("tools", "allow"), tools, ("tools",))

    def move_references(self) -> None:
        for theirs, (ours, refer) in _REFERENCES.items():
            names = self.entry.pop(theirs, None)
            if isinstance(names, list):
                names = {name: name for name in names if isinstance(name, str)}
            for key, name in (names if isinstance(names, dict) else {}).items():
                self._put((ours, key), refer(str(name)), (theirs, key))
        variable = self.entry.pop("bearer_token_env_var", None)
        if variable:
            self._put(("headers", "Authorization"), f"Bearer ${{{variable}}}", ("bearer_token_env_var",))

    def _put(self, ours: TreePath, value: Any, theirs: TreePath) -> None:
        self.moved[ours] = theirs
        if len(ours) == 1:
            self.entry[str(ours[0])] = value
            return
        field, key = str(ours[0]), ours[1]
        table = self.entry.get(field)
        # A field of the wrong kind stays as it is: the reader names it.
        if table is None or isinstance(table, dict):
            self.entry[field] = {**(table or {}), key: value}


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files of Goose nest all but the switch in `config`; an empty list of tools means all of them."""
    inner = entry.get("config")
    whole = {**{k: v for k, v in entry.items() if k != "config"}, **inner} if isinstance(inner, dict) else entry
    return {key: value for key, value in whole.items() if not (key == "available_tools" and value == [])}


def _with_variables(value: Any) -> Any:
    """opencode writes `{env:NAME}`."""
    if isinstance(value, dict):
        return {key: _with_variables(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_variables(item) for item in value]
    return _BRACED_VARIABLE.sub(r"${\1}", value) if type(value) is str else value


def _braced(value: Any) -> Any:
    """Gemini also expands `$NAME`; Portico wants the braces."""
    if isinstance(value, dict):
        return {key: _braced(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_braced(item) for item in value]
    return _BARE_VARIABLE.sub(r"${\1}", value) if type(value) is str else value


OWN_KEYS = (
    "surface servers mcpServers databases python yaml pins store journal host port http log categories examples search"
    " semantic profiles tokens capabilities hooks scripts results allow_superuser".split()
)
"""The top-level keys of a Portico config."""

_BY_NAME: Mapping[str, Dialect] = {
    "claude_desktop_config.json": "mcpServers",
    ".mcp.json": "mcpServers",
    ".claude.json": "mcpServers",
    "mcp_config.json": "mcpServers",
    "cline_mcp_settings.json": "mcpServers",
    "mcp_settings.json": "mcpServers",
    "mcp-config.json": "mcpServers",
}
_BY_FOLDER: Mapping[str, Dialect] = {
    ".cursor": "mcpServers",
    ".vscode": "vscode",
    ".codex": "codex",
    ".gemini": "gemini",
    "zed": "zed",
    ".zed": "zed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEntry:
    """One server entry where it stands: as data, and with numbers and switches as they were spelled."""

    name: str
    path: TreePath
    words: Any = field(repr=False)
    raw: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEntries:
    """The server entries of one document, and what was wrong with the tables that hold them."""

    found: tuple[FoundEntry, ...]
    problems: tuple[ConfigError, ...]
    unusable: tuple[str, ...] = ()
    """Where servers should be, and something else stands."""


def recognise(document: Document) -> Dialect:
    """The dialect that a document is written in; `portico` when it is nobody else's."""
    data, file = document.data, document.file
    if not isinstance(data, dict):
        return "portico"
    if "mcp_servers" in data:
        return "codex"
    if "context_servers" in data:
        return "zed"
    if not file.name.startswith("portico.") and (told := _by_shape(data)) is not None:
        return told
    if _has_http_url(data.get("mcpServers")):
        return "gemini"
    by_place = _BY_NAME.get(file.name) or _BY_FOLDER.get(file.parent.name)
    if by_place is not None and not file.name.startswith("portico."):
        return by_place
    return _by_keys(document, data)


def find_entries(document: Document, dialect: Dialect, folder: Path) -> ServerEntries:
    """All server entries of a document; of two with one name the first counts and the second is a problem."""
    found: dict[str, FoundEntry] = {}
    problems: list[ConfigError] = []
    unusable: list[str] = []
    tables = _server_tables(document.data, dialect, folder)
    problems += (
        again(document, twice.path, first=twice.first, second=twice.second)
        for twice in document.duplicates()
        if any(twice.path[: len(table)] == table for table in tables)
    )
    for table in tables:
        raw, words = document.value(*table) or {}, document.words(*table)
        if isinstance(raw, list) and dialect == "continue":
            for index, entry in enumerate(raw):
                name = str(entry.get("name", "")) if isinstance(entry, dict) else ""
                found.setdefault(name, FoundEntry(name=name, path=(*table, index), words=words[index], raw=entry))
            continue
        if not isinstance(raw, dict):
            fix = "Write a name for each server, with its entry below it."
            problems.append(document.error("the servers must be a table", table, fix=fix))
            unusable.append(dotted(table))
            continue
        for name in raw:
            entry = FoundEntry(name=name, path=(*table, name), words=words[name], raw=raw[name])
            if found.setdefault(name, entry) is not entry:
                first, second = document.line(found[name].path), document.line(entry.path)
                problems.append(again(document, entry.path, first=first or 1, second=second or 1))
    return ServerEntries(found=tuple(found.values()), problems=tuple(problems), unusable=tuple(unusable))


def has_table(document: Document, dialect: Dialect, folder: Path) -> bool:
    """Whether a document has a table of servers at all, be it empty."""
    return bool(_server_tables(document.data, dialect, folder))


def again(document: Document, path: TreePath, *, first: int, second: int) -> ConfigError:
    """The problem of a key that stands twice: the first one counts."""
    fix = f"Rename or delete one of the two; the one on line {first} is in force."
    return document.error(f"this key already stands on line {first}", path, line=second, fix=fix)


def _server_tables(data: Any, dialect: Dialect, folder: Path) -> tuple[TreePath, ...]:
    candidates: dict[Dialect, tuple[TreePath, ...]] = {
        "portico": (("servers",), ("mcpServers",)),
        "mcpServers": (("mcpServers",), ("projects", str(folder), "mcpServers")),
        "vscode": (("servers",), ("mcp", "servers")),
        "codex": (("mcp_servers",),),
        "gemini": (("mcpServers",),),
        "zed": (("context_servers",),),
        "opencode": (("mcp",),),
        "goose": (("extensions",),),
        "continue": (("mcpServers",),),
        "amp": (("amp.mcpServers",),),
    }
    return tuple(path for path in candidates[dialect] if _holds(data, path))


def _by_shape(data: dict[str, Any]) -> Dialect | None:
    """Files that look like no other: of opencode, Goose, Amp and Continue."""
    if "amp.mcpServers" in data:
        return "amp"
    if _entries_with(data.get("extensions"), ("cmd", "uri", "config", "bundled")) or "GOOSE_PROVIDER" in data:
        return "goose"
    is_opencode = "opencode" in str(data.get("$schema", "")) or _entries_with(data.get("mcp"), ("type", "command"))
    if is_opencode and not _holds(data, ("mcp", "servers")):
        return "opencode"
    servers = data.get("mcpServers")
    is_list = isinstance(servers, list) and bool(servers) and all(isinstance(s, dict) and "name" in s for s in servers)
    return "continue" if is_list else None


def _entries_with(table: Any, fields: tuple[str, ...]) -> bool:
    entries = table.values() if isinstance(table, dict) else ()
    return any(isinstance(entry, dict) and any(field in entry for field in fields) for entry in entries)


def _by_keys(document: Document, data: dict[str, Any]) -> Dialect:
    own = set(data) & set(OWN_KEYS)
    if _holds(data, ("mcp", "servers")) or (own == {"servers"} and "inputs" in data):
        return "vscode"
    if own == {"servers"} and document.file.name == "mcp.json":
        return "vscode"
    return "mcpServers" if own == {"mcpServers"} and document.format == "json" else "portico"


def _has_http_url(table: Any) -> bool:
    entries = table.values() if isinstance(table, dict) else ()
    return any(isinstance(entry, dict) and "httpUrl" in entry for entry in entries)


def _holds(data: Any, path: TreePath) -> bool:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


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
