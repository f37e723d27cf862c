"""Variables in config values, and files of variables that a server entry names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from portico.documents.document import read_text
from portico.errors import ConfigError

_LINE = re.compile(r"\s*(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?P<value>.*)")
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>.*?)(?<!\\)(?P=quote)\s*(?:#.*)?$""")
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_ESCAPES = {"\\n": "\n", "\\t": "\t", '\\"': '"', "\\\\": "\\"}


def read_env_file(file: Path) -> dict[str, str]:
    """The variables of a file; comments and empty lines are left out. No message ever shows a value.

    Raises:
        ConfigError: the file cannot be read, or a line is not `NAME=value`.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            fix = "Write NAME=value on each line."
            raise ConfigError("this line is not a variable", file=str(file), line=number, fix=fix)
        found[match["name"]] = _value(match["value"])
    return found


def _value(text: str) -> str:
    quoted = _QUOTED.fullmatch(text.strip())
    if quoted is None:
        return _COMMENT.sub("", text).strip()
    if quoted["quote"] == "'":
        return quoted["text"]
    return re.sub(r"\\[nt\"\\]", lambda found: _ESCAPES[found[0]], quoted["text"])


_START = re.compile(r"\$\$\{|\\\$\{|\$\{")
_NAME = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-)?")
_EDITOR_FOLDERS = {".vscode", ".cursor", ".gemini", ".codex"}
_NESTING = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """The variables that `${...}` may refer to while one file is read."""

    environ: Mapping[str, str] = field(repr=False)
    folder: Path
    lenient: bool = False
    """Read a missing variable as empty: for entries that are switched off or only looked at."""
    used: dict[str, str] = field(default_factory=dict, repr=False)
    """The variables that were put into texts, with their values, which may be secret."""

    def expand(self, text: str) -> str:
        """Put the value in the place of every variable; `$${` and a backslash before `${` stand for a plain `${`.

        Raises:
            ConfigError: a variable is missing, or the text after `${` is not understood; never shows a value.
        """
        return self._expand(text, 0)

    def _expand(self, text: str, depth: int) -> str:
        parts, at = list[str](), 0
        while start := _START.search(text, at):
            parts.append(text[at : start.start()])
            if start.group() != "${":
                parts.append("${")
                at = start.end()
                continue
            end = _closing(text, start.end())
            parts.append(self._value(text[start.end() : end], depth))
            at = end + 1
        return "".join(parts) + text[at:]

    def _value(self, inside: str, depth: int) -> str:
        if inside.startswith("input:"):
            safe = re.sub(r"\W+", "_", inside.removeprefix("input:")).strip("_").upper() or "NAME"
            raise ConfigError(
                f"${{{inside}}} asks a question in the editor, and there is nobody to answer it here",
                fix=f"Set an environment variable and write ${{{safe}}} instead.",
            )
        if (known := self._editor_word(inside)) is not None:
            return known
        found = _NAME.match(inside)
        if found is None or depth > _NESTING or (found["default"] is None and found.end() != len(inside)):
            shown = f"${{{found['name']}...}}" if found else "${...}"
            fix = "Write ${NAME} or ${NAME:-default}, or $${ for a plain ${."
            raise ConfigError(f"{shown} is not understood", fix=fix)
        name = found["name"]
        if found["default"] is not None and not self.environ.get(name):
            return self._expand(inside[found.end() :], depth + 1)
        if name in self.environ:
            self.used[name] = self.environ[name]
            return self.environ[name]
        if self.lenient:
            return ""
        raise ConfigError(
            f"the variable {name} is not set", fix=f"Export {name}, or write ${{{name}:-default}} to give it a default."
        )

    def _editor_word(self, word: str) -> str | None:
        if word in ("workspaceFolder", "workspaceFolderBasename"):
            folder = self.folder.parent if self.folder.name in _EDITOR_FOLDERS else self.folder
            return str(folder) if word == "workspaceFolder" else folder.name
        if word == "userHome":
            return self.environ.get("HOME") or self.environ.get("USERPROFILE")
        return os.sep if word in ("pathSeparator", "/") else None


def names_in(text: str) -> tuple[str, ...]:
    """The variables that a text refers to and gives no default for."""
    found = (_NAME.match(text, start.end()) for start in _START.finditer(text) if start.group() == "${")
    return tuple(match["name"] for match in found if match and not match["default"] and text[match.end() :][:1] == "}")


def _closing(text: str, start: int) -> int:
    open_braces = 1
    for at in range(start, len(text)):
        if text.startswith("${", at):
            open_braces += 1
        elif text[at] == "}":
            open_braces -= 1
            if not open_braces:
                return at
    raise ConfigError("a ${ is never closed", fix="Write ${NAME}, or $${ for a plain ${.")
