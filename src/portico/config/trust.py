"""Which configs in working directories are trusted: asked once, and again after any change.

A repository that somebody cloned may hold a `portico.yaml`. It can start programs and import code, so it is used only
after `portico trust`. What is trusted is the text of the config and of every file that it names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from portico.errors import ConfigError

from .named_files import digest, fingerprints
from .paths import Paths, find_paths
from .writing import write_atomically

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
    """What one user has trusted; whatever cannot be read or was tampered with trusts nothing."""

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
        if not _is_book(data):
            raise self._unusable("it does not look as Portico wrote it")
        return {path: dict(files) for path, files in data["trusted"].items()}

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


def is_own(config: Path, paths: Paths) -> bool:
    """Whether a config lies in the user's own config folder, where nobody else puts files."""
    return os.path.realpath(config.parent) == os.path.realpath(paths.config)


def _is_book(data: Any) -> bool:
    trusted = data.get("trusted") if isinstance(data, dict) and data.get("version") == _VERSION else None
    return isinstance(trusted, dict) and all(
        isinstance(files, dict) and files and all(isinstance(mark, str) for mark in files.values())
        for files in trusted.values()
    )
