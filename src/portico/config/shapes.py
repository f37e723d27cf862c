"""Whose file a document is, told by its name and shape, and where its servers stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

from portico.errors import ConfigError
from portico.trees.tree import Path

from .dialects import Dialect
from .documents import Document, dotted

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
class Found:
    """One server entry where it stands: as data, and with numbers and switches as they were spelled."""

    name: str
    path: Path
    words: Any = field(repr=False)
    raw: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """The server entries of one document, and what was wrong with the tables that hold them."""

    found: tuple[Found, ...]
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


def find_entries(document: Document, dialect: Dialect, folder: File) -> Entries:
    """All server entries of a document; of two with one name the first counts and the second is a problem."""
    found: dict[str, Found] = {}
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
                found.setdefault(name, Found(name=name, path=(*table, index), words=words[index], raw=entry))
            continue
        if not isinstance(raw, dict):
            fix = "Write a name for each server, with its entry below it."
            problems.append(document.error("the servers must be a table", table, fix=fix))
            unusable.append(dotted(table))
            continue
        for name in raw:
            entry = Found(name=name, path=(*table, name), words=words[name], raw=raw[name])
            if found.setdefault(name, entry) is not entry:
                first, second = document.line(found[name].path), document.line(entry.path)
                problems.append(again(document, entry.path, first=first or 1, second=second or 1))
    return Entries(found=tuple(found.values()), problems=tuple(problems), unusable=tuple(unusable))


def has_table(document: Document, dialect: Dialect, folder: File) -> bool:
    """Whether a document has a table of servers at all, be it empty."""
    return bool(_server_tables(document.data, dialect, folder))


def again(document: Document, path: Path, *, first: int, second: int) -> ConfigError:
    """The problem of a key that stands twice: the first one counts."""
    fix = f"Rename or delete one of the two; the one on line {first} is in force."
    return document.error(f"this key already stands on line {first}", path, line=second, fix=fix)


def _server_tables(data: Any, dialect: Dialect, folder: File) -> tuple[Path, ...]:
    candidates: dict[Dialect, tuple[Path, ...]] = {
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


def _holds(data: Any, path: Path) -> bool:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return False
        data = data[part]
    return True
