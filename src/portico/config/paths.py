"""Where the config file and the state of one installation live."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

NAMES = ("portico.yaml", "portico.yml", "portico.json")
"""Names of a config file, in the order they are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The folders of one installation; nothing is created by knowing them."""

    config: Path
    """Folder of the user's own config file."""
    data: Path
    """Folder of everything that is remembered."""

    @property
    def config_file(self) -> Path:
        """The config file that is written when there is none yet."""
        return self.config / NAMES[0]


def find_paths(environ: Mapping[str, str], cwd: Path) -> Paths:
    """The folders that the environment asks for: `PORTICO_HOME` for everything, or else XDG."""
    home = environ.get("PORTICO_HOME")
    if home:
        everything = absolute(home, environ, cwd)
        return Paths(config=everything, data=everything)
    return Paths(
        config=_xdg(environ, "XDG_CONFIG_HOME", ".config") / "portico",
        data=_xdg(environ, "XDG_DATA_HOME", ".local/share") / "portico",
    )


def home_folder(environ: Mapping[str, str]) -> Path:
    """The user's home folder, as the environment says."""
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())


def absolute(path: str, environ: Mapping[str, str], folder: Path) -> Path:
    """A path as written in a config, with `~` resolved, relative to a folder."""
    if path == "~" or path.startswith(("~/", "~\\")):
        return home_folder(environ) / path[2:]
    return folder / path


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # The XDG specification says that a relative path is to be ignored.
    given = environ.get(variable, "")
    return Path(given) if os.path.isabs(given) else home_folder(environ) / default
