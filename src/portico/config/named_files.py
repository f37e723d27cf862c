"""The files that a config names: what runs or is read with it, and so is trusted together with it."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from portico.errors import ConfigError

from .documents import Document, read_document
from .expansion import Variables

CODE = ("python", "hooks")
"""The keys whose files are imported."""
PROFILES = ("profiles.yml", "profiles.yaml")
"""Names of a file of profiles that is read without being named."""
MOST_FILES = 2_000
MOST_BYTES = 64 * 1024 * 1024
_GLOB = frozenset("*?[")
_DEFINITIONS = (".yml", ".yaml", ".json", ".json5", ".jsonc", ".toml")


def fingerprints(file: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of a config and of every file that it names, by path relative to its folder.

    Raises:
        ConfigError: the config or one of the files cannot be read, or there are too many of them.
    """
    files = [file, *named_files(file, environ)]
    return {os.path.relpath(path, file.parent): digest(path) for path in dict.fromkeys(files)}


def named_files(file: Path, environ: Mapping[str, str]) -> list[Path]:
    """The files that a config names; none for a config that cannot be parsed, because nothing of it is used.

    Raises:
        ConfigError: there are more files than can be watched.
    """
    try:
        document = read_document(file)
    except ConfigError:
        return []
    found: dict[Path, None] = {}
    for path in _named(document, Variables(environ=environ, folder=file.parent, lenient=True)):
        found[path] = None
        if len(found) > MOST_FILES:
            fix = "Name it with --config, which needs no trust, or keep its tools in a folder of their own."
            raise ConfigError(f"the config names more than {MOST_FILES} files", file=str(file), fix=fix)
    return sorted(found)


def digest(path: Path) -> str:
    """The SHA-256 of a regular file.

    Raises:
        ConfigError: it is no regular file, is too large, or cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
                fix = "Only regular files of up to 64 MB can be trusted."
                raise ConfigError("this is not a file that can be trusted", file=str(path), fix=fix)
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        reason = f"the file cannot be read ({error.strerror or error})"
        raise ConfigError(reason, file=str(path), fix="Check the path and its permissions.") from None


def _named(document: Document, variables: Variables) -> Iterator[Path]:
    folder, data = variables.folder, document.data if isinstance(document.data, dict) else {}
    yield from (path for name in PROFILES if (path := folder / name).is_file())
    yield from _mentioned(data, folder, variables)
    for key in (*CODE, "yaml"):
        for text in _texts(data.get(key)):
            yield from _source(key, _expanded(text, variables), folder, variables)


def _source(key: str, text: str, folder: Path, variables: Variables) -> Iterator[Path]:
    """The files behind one entry of `python`, `hooks` or `yaml`: a path, a pattern or a module."""
    path = folder / Path(text).expanduser()
    found = [*map(Path, sorted(glob.glob(str(path), recursive=True)))] if _GLOB & set(text) else [path]
    for file in filter(Path.is_file, found):
        yield file
        if key == "yaml":
            yield from _mentioned_by(file, variables)
    if key in CODE:
        yield from _importable(text, folder, found)


def _importable(text: str, folder: Path, found: Iterable[Path]) -> Iterator[Path]:
    """What imported code may import from where it lies: the files beside it, and the whole of its package."""
    folders = dict.fromkeys([folder, *(file.parent for file in found)])
    for place in folders:
        yield from sorted(path for path in place.glob("*.py") if path.is_file())
    package = folder / text.partition(".")[0]
    if text.replace(".", "").isidentifier() and package.is_dir():
        yield from sorted(path for path in package.rglob("*.py") if path.is_file())


def _mentioned_by(file: Path, variables: Variables) -> Iterator[Path]:
    """The files that a definition names, such as the program that a command tool starts."""
    if file.suffix.lower() not in _DEFINITIONS:
        return
    try:
        data = read_document(file).data
    except ConfigError:
        return
    yield from _mentioned(data, file.parent, variables)


def _mentioned(data: Any, folder: Path, variables: Variables) -> Iterator[Path]:
    """Every text that is the path of a file in the folder: a program, its arguments, a file of variables."""
    texts = [*_texts(data)]
    folders = [folder, *(folder / _expanded(text, variables) for text in _working_folders(data))]
    for text in texts:
        # A command line may be one text; a word of a longer text is a path only where it looks like one.
        for word in dict.fromkeys((text, *(word for word in text.split() if "/" in word or "." in word))):
            for place in folders:
                path = _local_path(_expanded(word, variables), place, folder)
                if path is not None and path.is_file():
                    yield path


def _working_folders(data: Any) -> list[str]:
    """What the entries of servers and commands call `cwd`: their arguments are relative to it."""
    tables = [value for value in _values(data) if isinstance(value, dict)]
    return [table["cwd"] for table in tables if isinstance(table.get("cwd"), str)]


def _local_path(text: str, place: Path, folder: Path) -> Path | None:
    """A relative path, or one inside the folder; what is elsewhere on the machine did not come with the folder."""
    if not text or len(text) > 1024 or "\0" in text or "\n" in text:
        return None
    path = Path(os.path.normpath(place / text))
    return path if not os.path.isabs(text) or path.is_relative_to(folder) else None


def _texts(data: Any) -> Iterator[str]:
    """Every text in a tree of values, keys excluded."""
    return (value for value in _values(data) if isinstance(value, str))


def _values(data: Any) -> Iterator[Any]:
    waiting = [data]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _expanded(text: str, variables: Variables) -> str:
    try:
        return variables.expand(text)
    except ConfigError:
        return text
