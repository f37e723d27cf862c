"""The command `install`: Portico entered in a client's config file, and taken out again."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from portico.config import (
    CLIENTS,
    PORT,
    InstallPlan,
    Scope,
    add_servers,
    apply,
    apply_undo,
    edited,
    plan_install,
    plan_local_removal,
    plan_undo,
    server_entries,
)
from portico.domain.printable import printable
from portico.errors import PorticoError

from .configure import config_file
from .output import fail, say, warn


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
    try:
        if undo:
            _undo(client, scope, dry_run=dry_run, force=force)
            return
        plan = _plan(ctx, client, scope, via=via, port=port, replace=replace)
        _carry_out(plan, dry_run=dry_run)
        # Worked out only now: they may be in the file that has just been written.
        others = plan_local_removal(client, environ=os.environ, cwd=Path.cwd()) if replace and scope == "user" else ()
        for other in others:
            if _is_wanted(other, local):
                _carry_out(other, dry_run=dry_run)
        if not dry_run and via == "stdio":
            _begin_config(ctx)
    except PorticoError as error:
        raise fail(error) from error
    _print_next(is_change=plan.is_change, written=not dry_run)


def _carry_out(plan: InstallPlan, *, dry_run: bool) -> None:
    backup = None if dry_run else apply(plan)
    _print_install(plan, written=not dry_run, backup=backup)


def _plan(ctx: typer.Context, client: str, scope: Scope, *, via: str, port: int, replace: bool) -> InstallPlan:
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
        _name_unserved(ctx, plan)
    return plan


def _is_wanted(plan: InstallPlan, local: bool | None) -> bool:
    """Whether the servers of one folder go too: as the option says, else as somebody answers, else not."""
    names = ", ".join(plan.removed)
    if local is None and sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(f"{plan.path} has for this folder: {names}. Take these out too?", default=False, err=True)
    if not local:
        warn(f"{plan.path} has for this folder, and keeps: {names}; --local takes them out too")
    return bool(local)


def _name_unserved(ctx: typer.Context, plan: InstallPlan) -> None:
    """Say which servers stay, and which ones go that our config does not have."""
    if plan.kept:
        warn(f"{', '.join(plan.kept)}: kept, because Portico cannot serve them")
    known = server_entries(file) if (file := config_file(ctx)).exists() else {}
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
    done = apply_undo(plan)
    what = f"took Portico out of {done.path}" if done.exists else f"{done.path} held nothing else, and is gone"
    say(what + (f"; the file as it was: {done.kept}" if done.kept else ""))


def _own_command(ctx: typer.Context) -> tuple[str, list[str]]:
    """How a client starts this very installation: by its full path, since clients have a PATH of their own."""
    script = Path(sys.executable).with_name("portico")
    found = str(script) if os.access(script, os.X_OK) else shutil.which("portico")
    # Clients start it in the project's folder: -P keeps modules that lie there from being imported.
    command, args = (os.path.abspath(found), []) if found else (sys.executable, ["-P", "-m", "portico"])
    # Always by its full path: which config is meant must not depend on the folder that a client starts it in.
    return command, [*args, "--config", os.path.abspath(config_file(ctx)), "serve", "--stdio"]


def _begin_config(ctx: typer.Context) -> None:
    """Write an empty config where there is none yet: one that is named has to exist."""
    file = config_file(ctx)
    if not file.exists():
        with edited(file, os.environ, Path.cwd()):
            add_servers(file, {})
        say(f"began {file}, which has no servers yet; next: portico add NAME -- COMMAND, or portico import CLIENT")


def _print_install(plan: InstallPlan, *, written: bool, backup: Path | None) -> None:
    if not plan.is_change:
        say(f"{plan.path} has Portico already; nothing to do")
        return
    _print_diff(plan.diff)
    if written:
        say(f"wrote {plan.path}" + (f"; the file as it was: {backup}" if backup else ""))


def _print_diff(diff: str) -> None:
    for line in printable(diff).splitlines():
        typer.secho(line, fg={"+": "green", "-": "red"}.get(line[:1]))


def _print_next(*, is_change: bool, written: bool) -> None:
    if not is_change:
        return
    if not written:
        warn("nothing was written (--dry-run)")
        return
    say("next: restart the client; to take it back: the same command with --undo")
