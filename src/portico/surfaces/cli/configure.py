"""Commands that write our config file: add, remove, import."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from portico.config import (
    CLIENTS,
    ImportPlan,
    add_server,
    apply_import,
    client_files,
    edited,
    find_config,
    find_paths,
    mask,
    plan_import,
    remove_server,
    server_entries,
)
from portico.errors import PorticoError, UnknownServer

from .browse import Json
from .completing import complete_server
from .desk import Exit, options
from .output import data, fail, problems, say

MARKS = {"add": "+", "same": "=", "conflict": "!", "skip": "-", "problem": "x"}
"""What an import would do to each server."""


def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What the server is to be called.")],
    target: Annotated[list[str], typer.Argument(help="-- COMMAND ARG..., or a URL.", metavar="-- COMMAND... | URL")],
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="KEY=VALUE for the command.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="'NAME: VALUE' for the URL.")] = None,
) -> None:
    """Add a server to the config."""
    entry = _entry(target, env or [], header or [])
    try:
        file = config_file(ctx)
        with edited(file, os.environ, Path.cwd()):
            add_server(file, name, entry)
    except PorticoError as error:
        raise fail(error) from error
    say(f"added {name} to {file}")
    say(f"next: portico doctor {name}")


def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The server, as the config calls it.", autocompletion=complete_server)],
) -> None:
    """Remove a server from the config."""
    try:
        file = config_file(ctx)
        known = server_entries(file) if file.exists() else {}
        if name not in known:
            raise UnknownServer(f"no server is called {name!r} in {file}; there are: {', '.join(known) or 'none'}")
        with edited(file, os.environ, Path.cwd()):
            remove_server(file, name)
    except PorticoError as error:
        raise fail(error) from error
    say(f"removed {name} from {file}")


def import_(
    ctx: typer.Context,
    source: Annotated[str | None, typer.Argument(help=f"{', '.join(CLIENTS)}, or a FILE.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Do it; without this, only show what would be done.")] = False,
    project: Annotated[
        bool, typer.Option("--project", help="Also what the client's file in this folder holds.")
    ] = False,
    rename: Annotated[bool, typer.Option("--rename", help="Add a server whose name is taken as NAME-2.")] = False,
    as_json: Json = False,
) -> None:
    """Bring in the servers of a client's config file (JSON, JSONC, YAML or TOML)."""
    if source is None:
        _show_clients(as_json=as_json)
        return
    try:
        file = config_file(ctx)
        existing = server_entries(file) if file.exists() else {}
        plan = plan_import(
            source, environ=os.environ, cwd=Path.cwd(), existing=existing, rename=rename, project=project
        )
        if write and plan.additions:
            with edited(file, os.environ, Path.cwd()):
                apply_import(plan, file)
    except PorticoError as error:
        raise fail(error, as_json=as_json) from error
    if as_json:
        data(_plan_data(plan, file, written=write))
    else:
        _print_plan(plan, file, written=write)
    if any(item.action == "problem" for item in plan.items):
        raise typer.Exit(Exit.CONFIG)


def config_file(ctx: typer.Context) -> Path:
    """The config file in use, or the one to create.

    Raises:
        ConfigError: a file that was named does not exist.
    """
    found = find_config(options(ctx).config, os.environ, Path.cwd())
    return found or find_paths(os.environ, Path.cwd()).config_file


def _entry(target: list[str], env: list[str], headers: list[str]) -> dict[str, Any]:
    if len(target) == 1 and target[0].startswith(("http://", "https://")):
        return {"url": target[0], **({"headers": _headers(headers)} if headers else {})}
    entry: dict[str, Any] = {"command": target[0], "args": target[1:]}
    return entry | ({"env": _pairs(env, "--env")} if env else {})


def _headers(given: list[str]) -> dict[str, str]:
    """Headers as curl takes them, `Name: value`, or as `Name=value`; the sign that comes first tells."""
    found: dict[str, str] = {}
    for header in given:
        match = re.fullmatch(r"\s*([^:=\s]+)\s*(?::\s*|=)(.*)", header)
        if match is None:
            raise typer.BadParameter("--header takes 'NAME: VALUE' or NAME=VALUE")
        found[match[1]] = match[2].strip()
    return found


def _pairs(given: list[str], option: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in given]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise typer.BadParameter(f"{option} takes NAME=VALUE")
    return {key: value for key, _, value in pairs}


def _show_clients(*, as_json: bool) -> None:
    found = {
        name: [str(file) for file in client_files(client, environ=os.environ, cwd=Path.cwd()) if file.exists()]
        for name, client in CLIENTS.items()
    }
    if as_json:
        data(found)
        return
    for name, files in found.items():
        say(f"{name}: {', '.join(files) or 'no config file here'}")
    say("next: portico import CLIENT, which shows what it would do; --write does it")


def _print_plan(plan: ImportPlan, file: Path, *, written: bool) -> None:
    problems(plan.problems)
    for item in plan.items:
        entry = item.shown if isinstance(item.shown, dict) else {}
        how = entry.get("url") or " ".join([str(entry.get("command", "")), *map(str, entry.get("args", []) or [])])
        say(f"{MARKS[item.action]} {item.name}: {item.action}{f' ({item.reason})' if item.reason else ''}  {how}"[:240])
    count = len(plan.additions)
    if not plan.items:
        say(f"no servers in {', '.join(map(str, plan.files)) or plan.source}")
    elif written and count:
        say(f"{count} servers written to {file}")
        say("next: portico doctor")
    elif count:
        say(f"{count} servers would be written to {file}; add --write to do it")


def _plan_data(plan: ImportPlan, file: Path, *, written: bool) -> dict[str, Any]:
    return {
        "source": plan.source,
        "files": [str(name) for name in plan.files],
        "target": str(file),
        "written": written and bool(plan.additions),
        "items": [
            {"name": i.name, "action": i.action, "reason": i.reason, "file": str(i.file), "entry": mask(i.entry)}
            for i in plan.items
        ],
        "problems": [str(problem) for problem in plan.problems],
    }
