"""Which config file is in force, and which files in the working directory are ignored until they are trusted."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from portico.errors import ConfigError

from .paths import NAMES, absolute, find_paths
from .trust import TrustBook, is_own, location, open_trust

logger = logging.getLogger(__name__)


def find_config(named: str | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The config file to read, or None when there is none.

    One in the working directory counts only when the user trusts it; otherwise it is named in the log and left alone.

    Raises:
        ConfigError: a file that was named on the command line or in `PORTICO_CONFIG` does not exist.
    """
    for source, value in (("--config", named), ("PORTICO_CONFIG", environ.get("PORTICO_CONFIG"))):
        if value:
            return _existing(absolute(value, environ, cwd), source)
    own = (file for name in NAMES if os.path.exists(file := find_paths(environ, cwd).config / name))
    return next(found_here(NAMES, environ, cwd), None) or next(own, None)


def found_here(names: Sequence[str], environ: Mapping[str, str], cwd: Path) -> Iterator[Path]:
    """The files of these names in the working directory that may be used; the first that may not is named."""
    paths, book = find_paths(environ, cwd), open_trust(environ, cwd)
    for name in names:
        file = cwd / name
        if not os.path.lexists(file):
            continue
        if (is_own(file, paths) or _is_trusted(file, book)) and os.path.exists(file):
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


def _is_trusted(file: Path, book: TrustBook) -> bool:
    standing = book.standing(file)
    if standing != "trusted":
        _name_ignored(str(location(file)), standing)
    return standing == "trusted"


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


def _existing(file: Path, source: str) -> Path:
    if not os.path.exists(file):
        raise ConfigError(
            "there is no such file", file=str(file), where=source, fix="Check the path, or leave it out to use none."
        )
    return file
