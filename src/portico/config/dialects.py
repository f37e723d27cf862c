"""The shapes that clients give to one server entry, brought into the one that Portico writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from portico.trees.tree import Path

Dialect = Literal["portico", "mcpServers", "vscode", "codex", "gemini", "zed", "opencode", "goose", "continue", "amp"]

_BRACED_VARIABLE = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE_VARIABLE = re.compile(r"(?<![\\$])\$(?=[A-Za-z_])([A-Za-z_][A-Za-z0-9_]*)")

_RENAMED: Mapping[str, Path] = {
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
    moved: Mapping[Path, Path]


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
        self.moved: dict[Path, Path] = {}

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

    def _put(self, ours: Path, value: Any, theirs: Path) -> None:
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
