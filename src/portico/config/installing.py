"""Portico entered in a client's file: a plan with its diff, one atomic write with a backup, and the way back."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.errors import ConfigError

from . import jsontext
from .client_text import difference, edited
from .clients import Client, Scope, Via, client_file, find_client, portico_entry
from .documents import Document, parse_document, read_text
from .expansion import Variables
from .paths import find_paths
from .servers import read_server
from .settings import PORT
from .shapes import recognise
from .undoing import BACKUP, NAME, RECORDS, Record, digest_of, remember_install
from .writing import free_name, write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """What an installation would change; nothing is written until it is applied."""

    client: str
    path: Path
    before: str | None = field(repr=False)
    """The text of the file, or None when there is none."""
    after: str = field(repr=False)
    diff: str = field(repr=False)
    """The change as a unified diff, with secrets masked."""
    removed: tuple[str, ...] = ()
    """The client's other servers that go."""
    kept: tuple[str, ...] = ()
    """Those that stay although all others go, because Portico cannot serve them."""
    entry: Mapping[str, Any] | None = field(default=None, repr=False)
    """What is entered; None where servers are only taken out."""
    records: Path | None = None
    """Where it is written down what was installed."""

    @property
    def is_change(self) -> bool:
        """Whether applying it would write anything."""
        return self.before != self.after


def plan_install(
    client: str,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    via: Via = "stdio",
    port: int = PORT,
    command: str = "portico",
    args: Sequence[str] = ("serve", "--stdio"),
    scope: Scope = "user",
    replace: bool = False,
    platform: str = sys.platform,
) -> InstallPlan:
    """Work out a client's file with Portico in it; with `replace`, the client's other servers go.

    Servers that Portico cannot serve stay.

    Raises:
        ConfigError: the client is not known or cannot use that transport, or its file is broken; nothing is written.
    """
    known = find_client(client)
    path = client_file(known, scope, environ=environ, cwd=cwd, platform=platform)
    if known.dialect == "continue" and scope == "user":
        fix = "Add --project, or write a list item with name, command and args under mcpServers by hand."
        raise ConfigError("Continue's own file holds a list, which is not edited here", file=str(path), fix=fix)
    entry = portico_entry(known, via=via, port=port, command=command, args=args)
    before = read_text(path) if os.path.exists(path) else None
    document = parse_document(before or "", path)
    _refuse_unusable(document, known)
    goes, stays = _others(document, known, environ) if replace else ((), ())
    after = edited(document, known.table, {NAME: entry}, goes)
    diff = difference(document, parse_document(after, path)) if after != before else ""
    records = find_paths(environ, cwd).data / RECORDS
    return InstallPlan(
        client=client,
        path=path,
        before=before,
        after=after,
        diff=diff,
        removed=goes,
        kept=stays,
        entry=entry,
        records=records,
    )


def plan_local_removal(
    client: str, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform
) -> tuple[InstallPlan, ...]:
    """Work out how the servers go that a client has for this folder alone: in the project's file, and as local scope.

    Raises:
        ConfigError: one of the files is broken.
    """
    known = find_client(client)
    plans: list[InstallPlan] = []
    if known.project is not None:
        plans.append(_removal(known, client_file(known, "project", environ=environ, cwd=cwd), known.table, environ))
    if known.local is not None:
        user = client_file(known, "user", environ=environ, cwd=cwd, platform=platform)
        plans.append(_local_removal(known, user, cwd, environ))
    return tuple(plan for plan in plans if plan.removed)


def _removal(client: Client, path: Path, table: str, environ: Mapping[str, str]) -> InstallPlan:
    before = read_text(path) if os.path.exists(path) else None
    document = parse_document(before or "", path)
    _refuse_unusable(document, client)
    goes, stays = _others(document, client, environ)
    after = edited(document, table, {}, goes) if goes else document.text
    diff = difference(document, parse_document(after, path))
    return InstallPlan(client=client.name, path=path, before=before, after=after, diff=diff, removed=goes, kept=stays)


def _local_removal(client: Client, path: Path, cwd: Path, environ: Mapping[str, str]) -> InstallPlan:
    """Claude Code keeps servers of one folder in the user's file, below the folder's path."""
    before = read_text(path) if os.path.exists(path) else None
    document = parse_document(before or "", path)
    place = (str(client.local), str(cwd), client.table)
    entries = document.value(*place)
    goes = tuple(name for name in entries if name != NAME) if isinstance(entries, dict) else ()
    after = document.text
    for name in goes:
        after = jsontext.drop_member(after, (*place, name))
    diff = difference(document, parse_document(after, path))
    return InstallPlan(client=client.name, path=path, before=before, after=after, diff=diff, removed=goes)


def apply(plan: InstallPlan) -> Path | None:
    """Write a plan's text after saving a backup beside the file; the backup's path, or None when nothing changed.

    Raises:
        ConfigError: the file has changed since the plan was made, or cannot be written; nothing has changed then.
    """
    if not plan.is_change:
        return None
    current = read_text(plan.path) if os.path.exists(plan.path) else None
    if current != plan.before:
        raise ConfigError(
            "the file has changed since the plan was made", file=str(plan.path), fix="Run the command again."
        )
    backup = free_name(plan.path, BACKUP)
    # An empty backup says that there was no file.
    write_atomically(backup, plan.path.read_bytes() if current is not None else b"", like=plan.path)
    write_atomically(plan.path, plan.after.encode())
    if plan.records is not None and plan.entry is not None:
        digest = digest_of(plan.after)
        record = Record(entry=plan.entry, removed=plan.removed, after=digest, backup=backup.name)
        remember_install(plan.records, plan.path, record)
    return backup


def _others(document: Document, client: Client, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The client's other servers: those that Portico can serve, and those that it cannot."""
    table, words = document.value(client.table), document.words(client.table)
    names = [name for name in table if name != NAME] if isinstance(table, dict) else []
    variables = Variables(environ=environ, folder=document.file.absolute().parent, lenient=True)
    dialect = recognise(document)
    served = {
        name: read_server(
            name,
            words[name],
            document=document,
            path=(client.table, name),
            variables=variables,
            dialect=dialect,
        ).spec
        is not None
        for name in names
    }
    return tuple(n for n in names if served[n]), tuple(n for n in names if not served[n])


def _refuse_unusable(document: Document, client: Client) -> None:
    if not isinstance(document.data, dict | None):
        raise document.error("the client's file is not a table", line=1, fix="Mend it, or move it away.")
    if not isinstance(document.value(client.table), dict | None):
        raise document.error("the client's servers are not a table", (client.table,), fix="Mend it, or delete it.")
    for twice in document.duplicates():
        # Clients take the last of two equal keys, and an edit would reach the first only.
        if twice.path[0] == client.table and len(twice.path) <= 2:
            problem = f"this key already stands on line {twice.first}"
            raise document.error(problem, twice.path, line=twice.second, fix="Delete one of the two.")
