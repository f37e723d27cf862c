"""The commands that write config files: add, remove, import, install, trust."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from portico.config import NAMES, PROFILES, TrustBook, Trusted, edited, find_config, find_paths, location, open_trust
from portico.config.clients import CLIENTS, Scope, client_files
from portico.config.edit_and_import import (
    ImportPlan,
    add_server,
    add_servers,
    apply_import,
    plan_import,
    remove_server,
    server_entries,
)
from portico.config.install import InstallPlan, apply, apply_undo, plan_install, plan_local_removal, plan_undo
from portico.config.mcp_registry import RUNTIMES
from portico.config.variables_and_masking import mask
from portico.domain.server import PORT
from portico.errors import ConfigError, UnknownServer
from portico.text.untrusted import printable

from .context import Exit, Json, ListedChoice, complete_server, options
from .output_and_logs import data, problems, say, table, warn

MARKS = {"add": "+", "same": "=", "conflict": "!", "skip": "-", "problem": "x"}
"""The sign of each action of an import."""


def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What the server is to be called.")],
    target: Annotated[
        list[str] | None, typer.Argument(help="-- COMMAND ARG..., or a URL.", metavar="[-- COMMAND... | URL]")
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="KEY=VALUE for the command.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="'NAME: VALUE' for the URL.")] = None,
    as_name: Annotated[str, typer.Option("--as", help="By name: what it is to be called.")] = "",
    values: Annotated[list[str] | None, typer.Option("--set", help="By name: NAME=VALUE, or NAME for ${NAME}.")] = None,
    package: Annotated[str, typer.Option(help="By name: npm, pypi, oci or nuget.")] = "",
    remote: Annotated[bool, typer.Option("--remote", help="By name: its address, no package.")] = False,
    version: Annotated[str, typer.Option(help="By name: this version, not the newest.")] = "",
    registry: Annotated[str | None, typer.Option(help="By name: a registry's URL, or a FILE.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="By name: add it without a question.")] = False,
) -> None:
    """Add a server to the config: by its command or URL, or by its name in a registry of MCP servers."""
    choice = ListedChoice(
        name=name,
        local_name=as_name,
        wanted=_wanted(package, remote=remote),
        version=version,
        registry=registry,
        values=_values_to_set(values or []),
        is_confirmed=yes,
    )
    if not target:
        if env or header:
            raise typer.BadParameter("--env and --header go with a command or a URL; by name it is --set NAME=VALUE")
        add_listed = options(ctx).cli_context.add_by_name
        assert add_listed is not None, "the command line has been given it"
        add_listed(ctx, choice)
        return
    if choice != ListedChoice(name=name):
        raise typer.BadParameter(
            "--as, --set, --package, --remote, --version, --registry and --yes go with a name alone"
        )
    entry = _entry(target, env or [], header or [])
    file = config_file(ctx)
    with edited(file, os.environ, Path.cwd()):
        add_server(file, name, entry)
    say(f"added {name} to {file}")
    say(f"next: portico doctor {name}")


def remove(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The server, as the config calls it.", autocompletion=complete_server)],
) -> None:
    """Remove a server from the config."""
    file = config_file(ctx)
    known = server_entries(file)
    if name not in known:
        raise UnknownServer(f"no server is called {name!r} in {file}; there are: {', '.join(known) or 'none'}")
    with edited(file, os.environ, Path.cwd()):
        remove_server(file, name)
    say(f"removed {name} from {file}")
    kept = known[name].get("envFile") if isinstance(known[name], dict) else None
    if kept:
        say(f"its variables stay in {kept}; delete that file when nothing else needs it")


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
    file = config_file(ctx)
    existing = server_entries(file)
    plan = plan_import(source, environ=os.environ, cwd=Path.cwd(), existing=existing, rename=rename, project=project)
    if write and plan.additions:
        with edited(file, os.environ, Path.cwd()):
            apply_import(plan, file)
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


def _wanted(package: str, *, remote: bool) -> str:
    if package and remote:
        raise typer.BadParameter("--package and --remote exclude each other")
    if package not in ("", *RUNTIMES):
        raise typer.BadParameter(f"--package is one of {', '.join(RUNTIMES)}, not {package!r}")
    return "remote" if remote else package


def _values_to_set(pairs: list[str]) -> dict[str, list[str]]:
    """Values by name, several where a name is repeated; a name alone stands for the variable of that name."""
    found: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not (equals or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)):
            raise typer.BadParameter("--set takes NAME=VALUE, or NAME for the variable of that name")
        found.setdefault(name, []).append(value if equals else f"${{{name}}}")
    return found


def _entry(target: list[str], env: list[str], headers: list[str]) -> dict[str, Any]:
    if len(target) == 1 and target[0].startswith(("http://", "https://")):
        # Headers are written as curl takes them, or with an equals sign; the sign that comes first tells.
        named = [re.fullmatch(r"\s*([^:=\s]+)\s*(?::\s*|=)(.*)", header) for header in headers]
        if None in named:
            raise typer.BadParameter("--header takes 'NAME: VALUE' or NAME=VALUE")
        found = {match[1]: match[2].strip() for match in named if match}
        return {"url": target[0], **({"headers": found} if found else {})}
    pairs = [pair.partition("=") for pair in env]
    if not all(key and equals for key, equals, _ in pairs):
        raise typer.BadParameter("--env takes NAME=VALUE")
    values = {key: value for key, _, value in pairs}
    return {"command": target[0], "args": target[1:], **({"env": values} if values else {})}


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


def install(
    ctx: typer.Context,
    client: Annotated[str, typer.Argument(help=f"One of: {', '.join(CLIENTS)}.")],
    via: Annotated[str, typer.Option(help="stdio, or http for a gateway that is already running.")] = "stdio",
    project: Annotated[bool, typer.Option("--project", help="The project's file instead of the user's.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Take the client's other servers out.")] = False,
    local: Annotated[
        bool | None,
        typer.Option("--local/--no-local", help="With --replace: also its servers for this folder alone, or not."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The gateway's port, with --via http.")] = PORT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take our entry out again.")] = False,
    force: Annotated[bool, typer.Option("--force", help="With --undo: also when the entry has changed.")] = False,
) -> None:
    """Enter Portico in a client's config file, with a backup; --undo takes the entry out again."""
    if via not in ("stdio", "http"):
        raise typer.BadParameter(f"--via is stdio or http, not {via!r}")
    scope: Scope = "project" if project else "user"
    if undo:
        _undo(client, scope, dry_run=dry_run, force=force)
        return
    command, args = _own_command(ctx)
    plan = plan_install(
        client,
        environ=os.environ,
        cwd=Path.cwd(),
        via="http" if via == "http" else "stdio",
        port=port,
        command=command,
        args=args,
        scope=scope,
        replace=replace,
    )
    if replace:
        _warn_of_unserved(ctx, plan)
    _carry_out(plan, dry_run=dry_run)
    # Worked out only now: they may be in the file that has just been written.
    others = plan_local_removal(client, environ=os.environ, cwd=Path.cwd()) if replace and scope == "user" else ()
    for other in others:
        if _is_wanted(other, local):
            _carry_out(other, dry_run=dry_run)
    if dry_run and plan.is_change:
        warn("nothing was written (--dry-run)")
    if dry_run:
        return
    file = config_file(ctx)
    if via == "stdio" and not file.exists():  # a config that is named has to exist
        with edited(file, os.environ, Path.cwd()):
            add_servers(file, {})
        say(f"began {file}, which has no servers yet; next: portico add NAME -- COMMAND, or portico import CLIENT")
    if plan.is_change:
        say("next: restart the client; to take it back: the same command with --undo")


def _carry_out(plan: InstallPlan, *, dry_run: bool) -> None:
    backup = None if dry_run else apply(plan)
    if not plan.is_change:
        say(f"{plan.path} has Portico already; nothing to do")
        return
    _print_diff(plan.diff)
    if not dry_run:
        say(f"wrote {plan.path}" + (f"; the file as it was: {backup}" if backup else ""))


def _is_wanted(plan: InstallPlan, local: bool | None) -> bool:
    """Whether the servers of one folder go too: as the option says, else as somebody answers, else not."""
    names = ", ".join(plan.removed)
    if local is None and sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(f"{plan.path} has for this folder: {names}. Take these out too?", default=False, err=True)
    if not local:
        warn(f"{plan.path} has for this folder, and keeps: {names}; --local takes them out too")
    return bool(local)


def _warn_of_unserved(ctx: typer.Context, plan: InstallPlan) -> None:
    """Say which servers stay, and which ones go that our config does not have."""
    if plan.kept:
        warn(f"{', '.join(plan.kept)}: kept, because Portico cannot serve them")
    file = config_file(ctx)
    known = server_entries(file)
    missing = [name for name in plan.removed if name not in known]
    if missing:
        next_step = f"portico import {plan.client} --write, before the client needs them"
        warn(f"{', '.join(missing)}: not in {file}; next: {next_step}")


def _undo(client: str, scope: Scope, *, dry_run: bool, force: bool) -> None:
    plan = plan_undo(client, environ=os.environ, cwd=Path.cwd(), scope=scope, force=force)
    _print_diff(plan.diff)
    if dry_run:
        warn("nothing was written (--dry-run)")
        return
    kept, is_gone = apply_undo(plan), plan.after is None
    what = f"{plan.path} held nothing else, and is gone" if is_gone else f"took Portico out of {plan.path}"
    say(f"{what}; the file as it was: {kept}")


def _own_command(ctx: typer.Context) -> tuple[str, list[str]]:
    """The command line that starts this very installation: by its full path, since clients have a PATH of their own."""
    script = Path(sys.executable).with_name("portico")
    found = str(script) if os.access(script, os.X_OK) else shutil.which("portico")
    # Clients start it in the project's folder: -P keeps modules that lie there from being imported.
    command, args = (os.path.abspath(found), []) if found else (sys.executable, ["-P", "-m", "portico"])
    # Always by its full path: which config is meant must not depend on the folder that a client starts it in.
    return command, [*args, "--config", os.path.abspath(config_file(ctx)), "serve", "--stdio"]


def _print_diff(diff: str) -> None:
    for line in printable(diff).splitlines():
        typer.secho(line, fg={"+": "green", "-": "red"}.get(line[:1]))


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
    if show:
        _print_entries(book, as_json=as_json)
        return
    file = _find_file(path, must_exist=not remove)
    if not remove:
        _print_trusted(book.trust(file), as_json=as_json)
        return
    was_trusted = book.remove(file)
    if as_json:
        data({"path": str(location(file)), "removed": was_trusted})
    else:
        say(f"{location(file)} is trusted no longer" if was_trusted else f"{location(file)} was not trusted")
    if not was_trusted:
        raise typer.Exit(Exit.UNKNOWN)


def _find_file(path: str | None, *, must_exist: bool) -> Path:
    """The file that is meant: one that is named, or the config of a folder.

    Raises:
        ConfigError: there is none.
    """
    given = Path.cwd() / Path(path or ".").expanduser()
    if not given.is_dir():
        if must_exist and not given.exists():
            raise ConfigError("there is no such file", file=str(given), fix="Name a config file, or its folder.")
        return given
    names = (*NAMES, *PROFILES)
    found = next((file for name in names if os.path.lexists(file := given / name)), None)
    if must_exist and found is None:
        fix = f"Looked for {', '.join(names)}."
        raise ConfigError("there is no config file in this folder", file=str(given), fix=fix)
    return found or given / NAMES[0]


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
