"""A config file as a document: read once, bounded, in whichever format it is written."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from portico.config.settings import restricts
from portico.errors import ConfigError, RestrictionError

from . import json_text as jsonc
from . import toml_text as tomldoc
from . import yaml_text as yamldoc
from .values_with_positions import Duplicate, Node, TreePath, duplicates, line_at, node_at, plain, words

Format = Literal["json", "yaml", "toml"]

SIZE = 4 * 1024 * 1024
"""Bytes that a config file may have."""
JSON_SIZE = 32 * 1024 * 1024
"""Bytes that a JSON file may have: some clients keep their history beside their servers."""

_PARSERS = {"json": jsonc.parse, "yaml": yamldoc.parse, "toml": tomldoc.parse}
_SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The values of one file and the lines they stand on."""

    file: Path
    format: Format
    text: str = field(repr=False)
    root: Node = field(repr=False)
    data: Any = field(repr=False)
    """The values as ordinary data."""

    def value(self, *path: str | int) -> Any:
        """The values below a path as ordinary data; None when there are none."""
        node = node_at(self.root, path)
        return plain(node) if node is not None else None

    def words(self, *path: str | int) -> Any:
        """The values below a path, with numbers and switches as they were spelled."""
        node = node_at(self.root, path)
        return words(node) if node is not None else None

    def line(self, path: TreePath) -> int | None:
        """The line of a value, or of the nearest table above it."""
        return line_at(self.root, path)

    def duplicates(self, *path: str | int) -> tuple[Duplicate, ...]:
        """The keys that stand twice in one table, below a path."""
        node = node_at(self.root, path)
        return tuple(duplicates(node, path)) if node is not None else ()

    def error(self, problem: str, path: TreePath = (), *, fix: str, line: int | None = None) -> ConfigError:
        """A problem with the value at a path, with file, line and field."""
        place = line if line is not None else self.line(path)
        kind = RestrictionError if restricts(path) else ConfigError
        return kind(problem, file=str(self.file), line=place, where=dotted(path) or None, fix=fix)


def dotted(path: TreePath) -> str:
    """Spell a path as people write it: `servers.github.args[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_document(file: Path) -> Document:
    """Read one config file.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, is too large, or is not written in its format.
    """
    return parse_document(read_text(file), file)


def read_text(file: Path) -> str:
    """The text of one file, line endings as they are.

    Raises:
        ConfigError: the file cannot be read, is not UTF-8, or is too large.
    """
    size = JSON_SIZE if _SUFFIXES.get(file.suffix.lower()) == "json" else SIZE
    try:
        with file.open("rb") as stream:
            raw = stream.read(size + 1)
    except OSError as error:
        raise _unreadable(file, error) from None
    if len(raw) > size:
        limit = size // 1024 // 1024
        raise ConfigError(f"the file is larger than {limit} MB", file=str(file), fix="Name a config file.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text", file=str(file), line=line, fix="Save it as UTF-8.") from None


def parse_document(text: str, file: Path) -> Document:
    """Read a text as the document that a file of that name holds.

    Raises:
        ConfigError: the text is not written in the file's format.
    """
    format = format_of(file, text)
    try:
        root = _PARSERS[format](text, str(file))
    except ConfigError:
        # JSON pasted into a .yaml file is almost YAML: tabs and comments are what it stumbles over.
        if format != "yaml" or not text.lstrip().startswith("{"):
            raise
        root, format = jsonc.parse(text, str(file)), "json"
    return Document(file=file, format=format, text=text, root=root, data=plain(root))


def format_of(file: Path, text: str) -> Format:
    """The format that a file's name tells, or else its first sign."""
    known = _SUFFIXES.get(file.suffix.lower())
    return known or ("json" if text.lstrip().startswith(("{", "//", "/*")) else "yaml")


def _unreadable(file: Path, error: OSError) -> ConfigError:
    reasons = {
        FileNotFoundError: ("there is no such file", "Check the path."),
        IsADirectoryError: ("this is a folder, not a file", "Name the config file inside it."),
        PermissionError: ("you may not read this file", "Change its permissions, or name another file."),
    }
    reason, fix = reasons.get(type(error), (f"the file cannot be read ({error.strerror or error})", "Check the path."))
    return ConfigError(reason, file=str(file), fix=fix)


_PRIVATE = 0o600
"""Config files hold secrets: a new one is for its owner alone."""


def write_atomically(file: Path, content: bytes, *, like: Path | None = None) -> None:
    """Put content in the place of a file's, with the mode and owner of that file, or of another one it is `like`.

    A link keeps pointing at its target.

    Raises:
        ConfigError: the folder or file cannot be written; nothing has changed then.
    """
    target = Path(os.path.realpath(file))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise _unwritable(file, error) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _copy_owner(name, like or target)
        os.replace(name, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise _unwritable(file, error) from None


def _copy_owner(name: str, model: Path) -> None:
    try:
        status = os.stat(model)
    except FileNotFoundError:
        os.chmod(name, _PRIVATE)
        return
    os.chmod(name, status.st_mode & 0o7777)
    # Under sudo the file must go on belonging to its user; anyone else may not give files away, and need not.
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(name, status.st_uid, status.st_gid)


def _unwritable(file: Path, error: OSError) -> ConfigError:
    fix = "Check the folder's permissions and the free space."
    return ConfigError(f"the file cannot be written ({error.strerror or error})", file=str(file), fix=fix)
