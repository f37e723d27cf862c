"""The clients we know: where each keeps its servers, how it writes an entry, and whose file a document is."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from portico.documents.document import Document, dotted
from portico.documents.values_with_positions import Duplicate, TreePath
from portico.errors import ConfigError

from .reader import suggest
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

_REFERENCES = {"env_http_headers": "headers", "env_vars": "env", "env_keys": "env"}
"""Fields of Codex and Goose that name variables instead of referring to them, and where ours are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """An entry in Portico's own shape, with the original place of every field that was moved."""

    entry: Mapping[str, Any]
    moved: Mapping[TreePath, TreePath]


def normalise(entry: Mapping[str, Any], dialect: Dialect) -> Normal:
    """Bring one entry into Portico's shape, variables unexpanded; what does not fit stays, for the reader to refuse."""
    draft = _Draft(_flat(entry) if dialect == "goose" else entry)
    draft.open_command()
    for theirs, ours in _RENAMED.items():
        if theirs in draft.entry:
            draft.put(ours, draft.entry.pop(theirs), (theirs,))
    draft.move_references()
    draft.open_tools()
    if "httpUrl" in entry:
        draft.entry["type"] = "http"
    elif dialect == "gemini" and "url" in entry:
        draft.entry.setdefault("type", "sse")
    if dialect == "gemini":  # it expands `$NAME` too
        draft.entry = _replaced(draft.entry, _BARE_VARIABLE)
    if dialect == "opencode":  # it writes `{env:NAME}`
        draft.entry = _replaced(draft.entry, _BRACED_VARIABLE)
    return Normal(entry=draft.entry, moved=draft.moved)


class _Draft:
    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.entry = dict(entry)
        self.moved: dict[TreePath, TreePath] = {}

    def open_command(self) -> None:
        """Zed nests the whole command line; others write it as one list."""
        command = self.entry.get("command")
        if isinstance(command, dict) and "path" in command:
            self.put(("command",), command["path"], ("command", "path"))
            for field in ("args", "env"):
                if field in command:
                    self.put((field,), command[field], ("command", field))
        elif isinstance(command, list) and command and "args" not in self.entry:
            self.put(("command",), command[0], ("command", 0))
            self.put(("args",), command[1:], ("command",))

    def open_tools(self) -> None:
        """A plain list of tools, as the Copilot CLI writes it, names those that are allowed."""
        tools = self.entry.get("tools")
        if isinstance(tools, list):
            del self.entry["tools"]
            if tools != ["*"]:  # which means all of them
                self.put(("tools", "allow"), tools, ("tools",))

    def move_references(self) -> None:
        for theirs, ours in _REFERENCES.items():
            names = self.entry.pop(theirs, None)
            if isinstance(names, list):
                names = {name: name for name in names if isinstance(name, str)}
            for key, name in (names if isinstance(names, dict) else {}).items():
                self.put((ours, key), f"${{{name}}}", (theirs, key))
        variable = self.entry.pop("bearer_token_env_var", None)
        if variable:
            self.put(("headers", "Authorization"), f"Bearer ${{{variable}}}", ("bearer_token_env_var",))

    def put(self, ours: TreePath, value: Any, theirs: TreePath) -> None:
        """Set one of our fields, and note where its value was written."""
        self.moved[ours] = theirs
        field, *inner = map(str, ours)
        table = self.entry.get(field)
        if not inner:
            self.entry[field] = value
        elif table is None or isinstance(table, dict):  # of another kind it stays as it is: the reader names it
            self.entry[field] = {**(table or {}), inner[0]: value}


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Older files of Goose nest all but the switch in `config`; an empty list of tools means all of them."""
    inner = entry.get("config")
    whole = {**{k: v for k, v in entry.items() if k != "config"}, **inner} if isinstance(inner, dict) else entry
    return {key: value for key, value in whole.items() if not (key == "available_tools" and value == [])}


def _replaced(value: Any, variable: re.Pattern[str]) -> Any:
    """A value with each variable of a client's spelling written as `${NAME}`."""
    if isinstance(value, dict):
        return {key: _replaced(item, variable) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, variable) for item in value]
    return variable.sub(r"${\1}", value) if type(value) is str else value


OWN_KEYS = (
    "surface servers mcpServers databases python yaml pins store journal host port http log categories examples search"
    " semantic profiles tokens renew capabilities hooks scripts results allow_superuser mcp_registries".split()
)
"""The top-level keys of a Portico config."""

_BY_NAME = frozenset(
    "claude_desktop_config.json .mcp.json .claude.json mcp_config.json cline_mcp_settings.json mcp_settings.json"
    " mcp-config.json".split()
)
"""Files whose dialect is `mcpServers`."""
_BY_FOLDER: Mapping[str, Dialect] = {
    ".cursor": "mcpServers",
    ".vscode": "vscode",
    ".codex": "codex",
    ".gemini": "gemini",
    "zed": "zed",
    ".zed": "zed",
}
_TABLES: Mapping[Dialect, tuple[TreePath, ...]] = {
    "portico": (("servers",), ("mcpServers",)),
    "mcpServers": (("mcpServers",), ("projects", "FOLDER", "mcpServers")),
    "vscode": (("servers",), ("mcp", "servers")),
    "codex": (("mcp_servers",),),
    "gemini": (("mcpServers",),),
    "zed": (("context_servers",),),
    "opencode": (("mcp",),),
    "goose": (("extensions",),),
    "continue": (("mcpServers",),),
    "amp": (("amp.mcpServers",),),
}
"""Where each dialect keeps its servers; FOLDER stands for the working directory."""


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
    has_table: bool = False
    """Whether there is a table of servers at all, be it empty."""


def recognise(document: Document) -> Dialect:
    """The dialect that a document is written in; `portico` when it is nobody else's."""
    data, file = document.data, document.file
    if not isinstance(data, dict):
        return "portico"
    if "mcp_servers" in data:
        return "codex"
    if "context_servers" in data:
        return "zed"
    is_ours = file.name.startswith("portico.")
    if not is_ours and (shape := _by_shape(data)) is not None:
        return shape
    if _entries_with(data.get("mcpServers"), ("httpUrl",)):
        return "gemini"
    by_place = "mcpServers" if file.name in _BY_NAME else _BY_FOLDER.get(file.parent.name)
    return by_place if by_place is not None and not is_ours else _by_keys(document, data)


def find_entries(document: Document, dialect: Dialect, folder: Path) -> ServerEntries:
    """All server entries of a document; of two with one name the first counts and the second is a problem."""
    found: dict[str, FoundEntry] = {}
    unusable: list[str] = []
    tables = [tuple(str(folder) if part == "FOLDER" else part for part in path) for path in _TABLES[dialect]]
    tables = [path for path in tables if _holds(document.data, path)]
    problems = [
        repeated_key(document, twice)
        for twice in document.duplicates()
        if any(twice.path[: len(table)] == table for table in tables)
    ]
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
                first, second = (document.line(path) or 1 for path in (found[name].path, entry.path))
                problems.append(repeated_key(document, Duplicate(path=entry.path, first=first, second=second)))
    return ServerEntries(
        found=tuple(found.values()), problems=tuple(problems), unusable=tuple(unusable), has_table=bool(tables)
    )


def repeated_key(document: Document, twice: Duplicate) -> ConfigError:
    """The problem of a key that stands twice: the first one counts."""
    fix = f"Rename or delete one of the two; the one on line {twice.first} is in force."
    return document.error(f"this key already stands on line {twice.first}", twice.path, line=twice.second, fix=fix)


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


def _holds(data: Any, path: TreePath) -> bool:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True


Scope = Literal["user", "project"]
Via = Literal["stdio", "http"]
Folder = Literal["home", "config", "xdg"]


@dataclass(frozen=True, slots=True)
class Client:
    """The place and the shape of one client's entries."""

    name: str
    title: str
    dialect: Dialect
    folder: Folder
    """The base of the user's file: the home folder, where the platform keeps its applications' config, or
    `~/.config` on every platform."""
    user: str
    project: str | None = None
    home_variable: str = ""
    """An environment variable that moves the folder of the user's file."""
    url_field: str | None = "url"
    """The field of an HTTP server's address; None when the client starts programs only."""
    local: str | None = None
    """The key of the user's file that holds servers of single folders, by their paths."""
    kinds: Mapping[Via, str] = field(default_factory=dict)
    """The words of an entry's `type` for the transports; an entry without them says no type."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields that every entry of this client has."""
    starting: Mapping[str, int] = field(default_factory=dict)
    """Fields that give a program more time to start."""

    @property
    def table(self) -> str:
        """The key of its servers in its file."""
        return str(_TABLES[self.dialect][0][0])


def _kinds(stdio: str, http: str) -> Mapping[Via, str]:
    return {"stdio": stdio, "http": http}


_CLINE, _ROO = (f"Code/User/globalStorage/{name}" for name in ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline"))
_GOOSE = {"name": "portico", "enabled": True, "timeout": 300}
_PLACES: tuple[tuple[str, str, Dialect, Folder, str, str | None], ...] = (
    ("claude-desktop", "Claude Desktop", "mcpServers", "config", "Claude/claude_desktop_config.json", None),
    ("claude-code", "Claude Code", "mcpServers", "home", ".claude.json", ".mcp.json"),
    ("cursor", "Cursor", "mcpServers", "home", ".cursor/mcp.json", ".cursor/mcp.json"),
    ("vscode", "Visual Studio Code", "vscode", "config", "Code/User/mcp.json", ".vscode/mcp.json"),
    ("codex", "Codex", "codex", "home", ".codex/config.toml", ".codex/config.toml"),
    ("gemini", "Gemini CLI", "gemini", "home", ".gemini/settings.json", ".gemini/settings.json"),
    ("windsurf", "Windsurf", "mcpServers", "home", ".codeium/windsurf/mcp_config.json", None),
    ("copilot-cli", "Copilot CLI", "mcpServers", "home", ".copilot/mcp-config.json", ".github/mcp.json"),
    ("opencode", "opencode", "opencode", "xdg", "opencode/opencode.json", "opencode.json"),
    ("goose", "Goose", "goose", "xdg", "goose/config.yaml", None),
    ("zed", "Zed", "zed", "xdg", "zed/settings.json", ".zed/settings.json"),
    ("continue", "Continue", "continue", "home", ".continue/config.yaml", ".continue/mcpServers/portico.json"),
    ("cline", "Cline", "mcpServers", "config", f"{_CLINE}/settings/cline_mcp_settings.json", None),
    ("roo", "Roo Code", "mcpServers", "config", f"{_ROO}/settings/mcp_settings.json", ".roo/mcp.json"),
    ("lm-studio", "LM Studio", "mcpServers", "home", ".lmstudio/mcp.json", None),
    ("amp", "Amp", "amp", "xdg", "amp/settings.json", ".amp/settings.json"),
    ("kiro", "Kiro", "mcpServers", "home", ".kiro/settings/mcp.json", ".kiro/settings/mcp.json"),
    ("warp", "Warp", "mcpServers", "home", ".warp/.mcp.json", ".warp/.mcp.json"),
)
"""Name, title, dialect, base folder, the user's file, the project's file."""
_HABITS: Mapping[str, Mapping[str, Any]] = {
    "claude-desktop": {"url_field": None},
    "claude-code": {"home_variable": "CLAUDE_CONFIG_DIR", "kinds": _kinds("stdio", "http"), "local": "projects"},
    "vscode": {"kinds": _kinds("stdio", "http")},
    # A busy machine may need longer than the ten seconds that Codex waits by itself.
    "codex": {"home_variable": "CODEX_HOME", "starting": {"startup_timeout_sec": 30}},
    "gemini": {"url_field": "httpUrl"},
    "windsurf": {"url_field": "serverUrl"},
    "copilot-cli": {"kinds": _kinds("local", "http"), "extra": {"tools": ["*"]}},
    "opencode": {"kinds": _kinds("local", "remote"), "extra": {"enabled": True}},
    "goose": {"kinds": _kinds("stdio", "streamable_http"), "url_field": "uri", "extra": _GOOSE},
    "zed": {"extra": {"source": "custom"}},
    "continue": {"kinds": _kinds("stdio", "streamable-http")},
    "cline": {"kinds": _kinds("stdio", "streamableHttp")},
    "roo": {"kinds": _kinds("stdio", "streamable-http")},
}
CLIENTS: Mapping[str, Client] = {place[0]: Client(*place, **_HABITS.get(place[0], {})) for place in _PLACES}
"""All clients by the name that the command line uses."""


def find_client(name: str) -> Client:
    """The client of that name.

    Raises:
        ConfigError: no client has it; the nearest is named.
    """
    if name not in CLIENTS:
        raise ConfigError(f"{name!r} is not a client we know", fix=suggest(name, CLIENTS))
    return CLIENTS[name]


def client_file(
    client: Client, scope: Scope, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
) -> Path:
    """Where a client keeps its servers, for the user or for the project in a folder.

    Raises:
        ConfigError: the client has no file of that scope.
    """
    if scope == "project":
        if client.project is None:
            raise ConfigError(f"{client.title} has no config file per project", fix="Use the user's own.")
        return cwd / client.project
    moved = environ.get(client.home_variable) if client.home_variable else None
    if moved:
        return Path(moved) / Path(client.user).name
    if client.folder == "home":
        return home_folder(environ) / client.user
    return _config_folder(environ, "linux" if client.folder == "xdg" else platform) / client.user


def client_files(
    client: Client, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
) -> tuple[Path, ...]:
    """All places where a client looks for servers, the project's before the user's."""
    scopes: tuple[Scope, ...] = ("project", "user") if client.project else ("user",)
    return tuple(client_file(client, scope, environ=environ, cwd=cwd, platform=platform) for scope in scopes)


def portico_entry(client: Client, *, via: Via, port: int, command: str, args: Sequence[str]) -> dict[str, Any]:
    """The entry for Portico in a client's file.

    Raises:
        ConfigError: the client cannot reach servers over HTTP.
    """
    kind = {"type": client.kinds[via]} if client.kinds else {}
    if via == "stdio":
        match client.dialect:
            case "opencode":
                line: dict[str, Any] = {"command": [command, *args]}
            case "goose":
                line = {"cmd": command, "args": list(args)}
            case _:
                line = {"command": command, "args": list(args)}
        return {**kind, **line, **client.extra, **client.starting}
    if client.url_field is None:
        raise ConfigError(f"{client.title} starts programs only; it reads no url", fix="Install it through stdio.")
    extra = {key: value for key, value in client.extra.items() if key != "source"}
    return {**kind, client.url_field: f"http://127.0.0.1:{port}/mcp", **extra}


def _config_folder(environ: Mapping[str, str], platform: str) -> Path:
    home = home_folder(environ)
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    given = environ.get("XDG_CONFIG_HOME", "")
    return Path(given) if os.path.isabs(given) else home / ".config"
