"""The command `trust`: which config files in working directories may be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from portico.config import NAMES, PROFILES, TrustBook, Trusted, location, open_trust
from portico.errors import ConfigError, PorticoError

from .browse import Json
from .desk import Exit
from .output import data, fail, say, table


def trust(
    path: Annotated[
        str | None, typer.Argument(help="A config file, or its folder; that of the working directory without one.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show what is trusted.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Trust it no longer.")] = False,
    as_json: Json = False,
) -> None:
    """Let the config file of a folder be used: as it is now, until it or a file that it names changes."""
    if show and remove:
        raise typer.BadParameter("--list and --remove exclude each other")
    book = open_trust(os.environ, Path.cwd())
    try:
        if show:
            _print_entries(book, as_json=as_json)
        elif remove:
            _remove(book, _meant(path, is_removal=True), as_json=as_json)
        else:
            _print_trusted(book.trust(_meant(path)), as_json=as_json)
    except PorticoError as error:
        raise fail(error, as_json=as_json) from error


def _meant(path: str | None, *, is_removal: bool = False) -> Path:
    """The file that is meant: one that is named, or the config of a folder.

    Raises:
        ConfigError: there is none.
    """
    given = Path.cwd() / Path(path or ".").expanduser()
    if not given.is_dir():
        if not given.exists() and not is_removal:
            raise ConfigError("there is no such file", file=str(given), fix="Name a config file, or its folder.")
        return given
    names = (*NAMES, *PROFILES)
    found = next((file for name in names if os.path.lexists(file := given / name)), None)
    if found is None and not is_removal:
        fix = f"Looked for {', '.join(names)}."
        raise ConfigError("there is no config file in this folder", file=str(given), fix=fix)
    return found or given / NAMES[0]


def _remove(book: TrustBook, file: Path, *, as_json: bool) -> None:
    was_trusted = book.remove(file)
    if as_json:
        data({"path": str(location(file)), "removed": was_trusted})
    else:
        say(f"{location(file)} is trusted no longer" if was_trusted else f"{location(file)} was not trusted")
    if not was_trusted:
        raise typer.Exit(Exit.UNKNOWN)


def _print_trusted(entry: Trusted, *, as_json: bool) -> None:
    if as_json:
        data({"path": str(entry.path), "standing": "trusted", "files": dict(entry.files)})
        return
    say(f"trusted {entry.path}")
    others = [name for name in entry.files if name != entry.path.name]
    if others:
        say("and what it names:")
        for name in others:
            say(f"  {name}")
    say("A change of any of them has to be trusted again.")


def _print_entries(book: TrustBook, *, as_json: bool) -> None:
    rows = [(entry, book.standing(entry.path) if entry.path.exists() else "missing") for entry in book.entries()]
    if as_json:
        data([{"path": str(e.path), "standing": standing, "files": dict(e.files)} for e, standing in rows])
    elif rows:
        table(("STANDING", "FILES", "CONFIG"), [(how, str(len(e.files)), str(e.path)) for e, how in rows], right=[1])
    else:
        say("nothing is trusted yet; next: portico trust, in a folder with a portico.yaml")
