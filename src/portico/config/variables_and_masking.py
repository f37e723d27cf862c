"""Values of config files: `${...}` variables are filled in, and secrets are masked wherever an entry is shown."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.documents.document import Document, read_text, write_atomically
from portico.documents.values_with_positions import Node
from portico.errors import ConfigError
from portico.text.redaction import ASSIGNMENT, ENV_FLAGS, SECRET_NAME, TOKEN

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


def write_env_file(file: Path, values: Mapping[str, str]) -> None:
    """Write a file of variables that reads back as it was meant, for its owner alone.

    Raises:
        ConfigError: a value cannot be written so, or the file cannot be written; nothing has changed then.
    """
    lines = []
    for name, value in values.items():
        written = next((text for text in _spellings(value) if _value(text) == value), None)
        if written is None or not _LINE.fullmatch(f"{name}={written}"):
            raise ConfigError(f"the value of {name} cannot be written into a file of variables", file=str(file))
        lines.append(f"{name}={written}\n")
    write_atomically(file, "".join(lines).encode())


def _spellings(value: str) -> tuple[str, ...]:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return (f"'{value}'", f'"{escaped}"', value)


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
    files: set[Path] = field(default_factory=set)
    """Other files that were read, or would have been, had they been there."""

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


MASK = "***"

_PRIVATE_TABLES = frozenset("env environment headers http_headers requestInit hidden".split())
_NOT_SECRET = frozenset({"bearer_token_env_var", "env_http_headers", "env_vars"})
_DEFAULT = re.compile(r"(\$\{[A-Za-z_:][A-Za-z0-9_:]*?:-)[^}]+\}")
_ONLY_REFERENCES = re.compile(r"(?:(?:Bearer|Basic|Token)\s+)?(?:\$\{[^}]*\}|\$[A-Za-z_]\w*|\s)+", re.IGNORECASE)
_USER_INFO = re.compile(r"(://)[^/@\s]+@")
_QUERY_VALUE = re.compile(r"([?&;][^=&#\s]+=)[^&#\s]+")


def mask(entry: Any) -> Any:
    """An entry, or any part of a config, with every secret it may hold replaced by `***`; references stay readable."""
    return _masked(entry, "")


def masked_text(document: Document) -> str:
    """A document's text with the secrets masked where they stand."""
    changes = list(_changes(document.root, mask(document.data)))
    if document.format != "json":
        return _masked_words(document.text, [node.value for node, _ in changes])
    text = document.text
    for node, shown in sorted(changes, key=lambda change: -change[0].start):
        text = text[: node.start] + json.dumps(shown, ensure_ascii=False) + text[node.end :]
    return text


def _masked(value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        if key in _PRIVATE_TABLES:
            return {name: _hidden(item) for name, item in value.items()}
        return {name: _masked(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return _arguments(value) if key in ("args", "command") else [_masked(item, key) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if SECRET_NAME.search(key) and key not in _NOT_SECRET:
        return _hidden(value)
    return _text(value) if isinstance(value, str) else value


def _arguments(values: Any) -> list[Any]:
    shown, before = list[Any](), ""
    for value in values:
        shown.append(_argument(value, before) if isinstance(value, str) else _masked(value, ""))
        before = value if isinstance(value, str) else ""
    return shown


def _argument(value: str, before: str) -> str:
    found = ASSIGNMENT.fullmatch(value)
    if found and (before in ENV_FLAGS or SECRET_NAME.search(found["name"])):
        return found["name"] + found["sign"] + _hidden_text(found["value"])
    is_flag = before.startswith("-") and "=" not in before and not value.startswith("-")
    return _hidden_text(value) if is_flag and SECRET_NAME.search(before.lstrip("-")) else _text(value)


def _hidden(value: Any) -> Any:
    """The part that may be shown of a value that is secret by its place."""
    if isinstance(value, Mapping):
        return {name: _hidden(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    return value if value is None or value == "" else _hidden_text(str(value))


def _hidden_text(value: str) -> str:
    shown = _DEFAULT.sub(rf"\1{MASK}}}", value)
    return shown if _ONLY_REFERENCES.fullmatch(shown) else MASK


def _text(value: str) -> str:
    shown = _DEFAULT.sub(rf"\1{MASK}}}", value)
    if "://" in shown:
        shown = _QUERY_VALUE.sub(rf"\1{MASK}", _USER_INFO.sub(rf"\1{MASK}@", shown))
    return TOKEN.sub(MASK, shown)


def _changes(node: Node, shown: Any) -> Iterator[tuple[Node, Any]]:
    if node.members is not None:
        seen = set[str]()
        for member in node.members:
            # The second of two equal keys is not in the data; hide it whole.
            is_second = member.key in seen
            seen.add(member.key)
            yield from _changes(member.node, _all_hidden(member.node) if is_second else shown[member.key])
    elif node.items is not None:
        for item, item_shown in zip(node.items, shown, strict=True):
            yield from _changes(item, item_shown)
    elif node.value != shown:
        yield node, shown


def _all_hidden(node: Node) -> Any:
    """The shape of a value with every scalar hidden."""
    if node.members is not None:
        return {member.key: _all_hidden(member.node) for member in node.members}
    return [_all_hidden(item) for item in node.items] if node.items is not None else MASK


def _masked_words(text: str, values: list[Any]) -> str:
    for value in sorted((str(value) for value in values), key=len, reverse=True):
        for written in (json.dumps(value, ensure_ascii=False), f"'{value}'"):
            text = text.replace(written, f'"{MASK}"')
        if len(value) >= 8:
            text = text.replace(value, MASK)
    return text
