"""Which config file is in force, and which ones in working directories are trusted with the files that they name."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from portico.documents.document import Document, read_document, write_atomically
from portico.errors import ConfigError

from .settings import NAMES, InstallationPaths, absolute, find_paths
from .variables_and_masking import Variables

CODE = ("python", "hooks")
"""The keys whose files are imported."""
PROFILES = ("profiles.yml", "profiles.yaml")
"""Names of a file of profiles that is read without being named."""
MOST_FILES = 2_000
MOST_BYTES = 64 * 1024 * 1024
_GLOB = frozenset("*?[")
Value = TypeVar("Value")
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
        for text in _values(data.get(key), str):
            yield from _source(key, _expanded(text, variables), folder, variables)


def _source(key: str, text: str, folder: Path, variables: Variables) -> Iterator[Path]:
    """The files behind one entry of `python`, `hooks` or `yaml`: a path, a pattern or a module."""
    path = folder / Path(text).expanduser()
    found = [*map(Path, sorted(glob.glob(str(path), recursive=True)))] if _GLOB & set(text) else [path]
    for file in filter(Path.is_file, found):
        yield file
        if key == "yaml" and file.suffix.lower() in _DEFINITIONS:
            # A definition may name files itself, such as the program that a command tool starts.
            with suppress(ConfigError):
                yield from _mentioned(read_document(file).data, file.parent, variables)
    if key not in CODE:
        return
    # Imported code may import what lies beside it, and the whole of its package.
    for place in dict.fromkeys([folder, *(file.parent for file in found)]):
        yield from sorted(path for path in place.glob("*.py") if path.is_file())
    package = folder / text.partition(".")[0]
    if text.replace(".", "").isidentifier() and package.is_dir():
        yield from sorted(path for path in package.rglob("*.py") if path.is_file())


def _mentioned(data: Any, folder: Path, variables: Variables) -> Iterator[Path]:
    """Every text that is the path of a file in the folder: a program, its arguments, a file of variables."""
    # What the entries of servers and commands call `cwd`: their arguments are relative to it.
    working = [table["cwd"] for table in _values(data, dict) if isinstance(table.get("cwd"), str)]
    folders = [folder, *(folder / _expanded(text, variables) for text in working)]
    for text in _values(data, str):
        # A command line may be one text; a word of a longer text is a path only where it looks like one.
        for word in dict.fromkeys((text, *(word for word in text.split() if "/" in word or "." in word))):
            for place in folders:
                path = _local_path(_expanded(word, variables), place, folder)
                if path is not None and path.is_file():
                    yield path


def _local_path(text: str, place: Path, folder: Path) -> Path | None:
    """A relative path, or one inside the folder; what is elsewhere on the machine did not come with the folder."""
    if not text or len(text) > 1024 or "\0" in text or "\n" in text:
        return None
    path = Path(os.path.normpath(place / text))
    return path if not os.path.isabs(text) or path.is_relative_to(folder) else None


def _values(data: Any, kind: type[Value]) -> Iterator[Value]:
    """Every value of one type in a tree of values, keys excluded."""
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, kind):
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


FILE = "trusted.json"
"""The name of the file in the data folder that holds what is trusted."""
_VERSION = 1
_OTHERS_WRITE = 0o022

Standing = Literal["trusted", "changed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusted:
    """One config that was trusted: where it is, and the files that were trusted with it."""

    path: Path
    files: Mapping[str, str]
    """SHA-256 by path relative to the config's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustBook:
    """The configs that one user trusts; a file that cannot be read or was tampered with trusts nothing."""

    file: Path
    environ: Mapping[str, str]

    def standing(self, config: Path) -> Standing:
        """Whether a config may be used: trusted as it is now, changed since, or never trusted."""
        place = location(config)
        try:
            known = self._read().get(str(place))
            if known is None:
                return "unknown"
            # The text alone first: a config that has changed must not choose which files are read.
            if digest(place) != known.get(place.name):
                return "changed"
            return "trusted" if fingerprints(place, self.environ) == known else "changed"
        except ConfigError:
            return "unknown"

    def trust(self, config: Path) -> Trusted:
        """Trust a config as it is now.

        Raises:
            ConfigError: the config or a file that it names cannot be read, or the book cannot be read or written.
        """
        place = location(config)
        entry = Trusted(path=place, files=fingerprints(place, self.environ))
        self._write({**self._read(), str(place): dict(entry.files)})
        return entry

    def remove(self, config: Path) -> bool:
        """Trust a config no longer; False when it was not trusted.

        Raises:
            ConfigError: the book cannot be read or written.
        """
        known = self._read()
        found = known.pop(str(location(config)), None)
        if found is not None:
            self._write(known)
        return found is not None

    def entries(self) -> list[Trusted]:
        """Everything that was trusted, by path.

        Raises:
            ConfigError: the book cannot be read.
        """
        return [Trusted(path=Path(path), files=files) for path, files in sorted(self._read().items())]

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            with self.file.open("rb") as stream:
                status = os.fstat(stream.fileno())
                data = json.loads(stream.read())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise self._unusable("it cannot be read") from error
        if os.name == "posix" and (status.st_mode & _OTHERS_WRITE or status.st_uid not in (os.getuid(), 0)):
            raise self._unusable("others may write to it")
        trusted = data.get("trusted") if isinstance(data, dict) and data.get("version") == _VERSION else None
        if not isinstance(trusted, dict) or not all(map(_is_entry, trusted.values())):
            raise self._unusable("it does not look as Portico wrote it")
        return {path: dict(files) for path, files in trusted.items()}

    def _write(self, known: Mapping[str, Mapping[str, str]]) -> None:
        text = json.dumps({"version": _VERSION, "trusted": known}, indent=1, sort_keys=True) + "\n"
        write_atomically(self.file, text.encode())

    def _unusable(self, why: str) -> ConfigError:
        fix = "Nothing is trusted until you delete this file and run `portico trust` again."
        return ConfigError(f"what is trusted cannot be told: {why}", file=str(self.file), fix=fix)


def open_trust(environ: Mapping[str, str], cwd: Path) -> TrustBook:
    """The book of the user whose environment this is."""
    return TrustBook(file=find_paths(environ, cwd).data / FILE, environ=environ)


def location(config: Path) -> Path:
    """Where a config lies, by the real path of its folder.

    The name itself is not resolved: paths in a config are relative to where it lies, also when it is a link.
    """
    return Path(os.path.realpath(config.parent)) / config.name


def is_own(config: Path, paths: InstallationPaths) -> bool:
    """Whether a config lies in the user's own config folder, where nobody else puts files."""
    return os.path.realpath(config.parent) == os.path.realpath(paths.config)


def _is_entry(files: Any) -> bool:
    return isinstance(files, dict) and bool(files) and all(isinstance(mark, str) for mark in files.values())


logger = logging.getLogger(__name__)


def find_config(named: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The config file to read, or None when there is none.

    One in the working directory counts only when the user trusts it; otherwise it is named in the log and left alone.

    Raises:
        ConfigError: a file that was named on the command line or in `PORTICO_CONFIG` does not exist.
    """
    for source, value in (("--config", named), ("PORTICO_CONFIG", environ.get("PORTICO_CONFIG"))):
        if value:
            file = absolute(value, environ, cwd)
            if os.path.exists(file):
                return file
            fix = "Check the path, or leave it out to use none."
            raise ConfigError("there is no such file", file=str(file), where=source, fix=fix)
    own = (file for name in NAMES if os.path.exists(file := find_paths(environ, cwd).config / name))
    return next(found_here(NAMES, environ, cwd), None) or next(own, None)


def found_here(names: Sequence[str], environ: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    """The files of these names in the working directory that may be used; the first that may not is named."""
    paths, book = find_paths(environ, cwd), open_trust(environ, cwd)
    for name in names:
        file = cwd / name
        if not os.path.lexists(file):
            continue
        standing = "trusted" if is_own(file, paths) else book.standing(file)
        if standing != "trusted":
            _name_ignored(str(location(file)), standing)
        elif os.path.exists(file):
            yield file


def trusts(config: Path, environ: Mapping[str, str], cwd: Path) -> bool:
    """Whether a config that lies anywhere would be used if one worked in its folder."""
    return is_own(config, find_paths(environ, cwd)) or open_trust(environ, cwd).standing(config) == "trusted"


@contextmanager
def edited(file: Path, environ: Mapping[str, str], cwd: Path) -> Iterator[None]:
    """Edit a config at the user's command: one that was trusted, or that is new, is trusted with the change.

    A config that was not trusted before stays so: the rest of it is not the user's word.

    Raises:
        ConfigError: what is trusted cannot be read or written.
    """
    is_ours = file.name in NAMES and not is_own(file, find_paths(environ, cwd))
    keeps = is_ours and (not os.path.lexists(file) or trusts(file, environ, cwd))
    yield
    if keeps:
        open_trust(environ, cwd).trust(file)


@cache
def _name_ignored(path: str, standing: str) -> None:
    """Say once per process that a file is ignored, whatever asks for it."""
    why = "has changed since it was trusted" if standing == "changed" else "is not trusted"
    logger.warning(
        "%s was found in the working directory, %s and is ignored; to use it, look at it and run: portico trust %s",
        path,
        why,
        shlex.quote(path),
    )
