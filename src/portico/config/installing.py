"""Portico entered in a client's file: a plan with its diff, one atomic write with a backup, and the way back."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.errors import ConfigError

from . import jsontext, tomltext
from .clients import Client, Scope, Via, client_file, find_client, portico_entry
from .documents import Document, parse_document, read_text
from .masking import masked_text
from .settings import PORT
from .writing import free_name, latest_name, write_atomically

NAME = "portico"
"""What the entry is called in every client."""

BACKUP = "portico-backup"
UNDONE = "portico-undone"


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

    @property
    def is_change(self) -> bool:
        """Whether applying it would write anything."""
        return self.before != self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo did: the file, the backup it came from, and where its last text is kept."""

    path: Path
    backup: Path
    kept: Path | None
    exists: bool
    """False when there had been no file before the installation, and there is none now."""


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

    Raises:
        ConfigError: the client is not known or cannot use that transport, or its file is broken; nothing is written.
    """
    known = find_client(client)
    path = client_file(known, scope, environ=environ, cwd=cwd, platform=platform)
    entry = portico_entry(known, via=via, port=port, command=command, args=args)
    before = read_text(path) if os.path.exists(path) else None
    document = parse_document(before or "", path)
    others = _others(document, known) if replace else ()
    after = _edited(document, known, entry, others)
    diff = _diff(document, parse_document(after, path)) if after != before else ""
    return InstallPlan(client=client, path=path, before=before, after=after, diff=diff, removed=others)


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
    return backup


def undo(
    client: str, *, environ: Mapping[str, str], cwd: Path, scope: Scope = "user", platform: str = sys.platform
) -> Undone:
    """Put a client's file back as it was before the last installation; its present text is kept beside it.

    Raises:
        ConfigError: there is no backup, or the file cannot be written.
    """
    path = client_file(find_client(client), scope, environ=environ, cwd=cwd, platform=platform)
    backup = latest_name(path, BACKUP)
    if backup is None:
        fix = f"Remove the entry {NAME!r} by hand, if there is one."
        raise ConfigError("there is no backup to go back to", file=str(path), fix=fix)
    try:
        saved = backup.read_bytes()
        kept = _keep(path)
        if saved:
            write_atomically(path, saved)
        else:
            path.unlink(missing_ok=True)
        backup.unlink()
    except OSError as error:
        reason = f"the backup cannot be restored ({error.strerror or error})"
        raise ConfigError(reason, file=str(backup), fix="Copy it over the file by hand.") from None
    return Undone(path=path, backup=backup, kept=kept, exists=bool(saved))


def _keep(path: Path) -> Path | None:
    if not path.exists():
        return None
    kept = free_name(path, UNDONE)
    write_atomically(kept, path.read_bytes(), like=path)
    return kept


def _others(document: Document, client: Client) -> tuple[str, ...]:
    table = document.value(client.table)
    return tuple(name for name in table if name != NAME) if isinstance(table, dict) else ()


def _edited(document: Document, client: Client, entry: Mapping[str, Any], others: tuple[str, ...]) -> str:
    _refuse_unusable(document, client)
    table = document.value(client.table) or {}
    wanted = {name: value for name, value in table.items() if name not in others} | {NAME: dict(entry)}
    if wanted == table:
        return document.text
    edit = _edit_toml if document.format == "toml" else _edit_json
    after = edit(document.text, client.table, entry, others)
    if _reads_as(after, document.file, whole := {**(document.data or {}), client.table: wanted}):
        return after
    if document.format == "toml":
        block = tomltext.put_table("", (client.table, NAME), entry).strip().replace("\n", " | ")
        fix = f"Add this table by hand: {block}"
        raise document.error("the servers are written in a way that cannot be edited here", (client.table,), fix=fix)
    return jsontext.dump(whole, indent=jsontext.indent_of(document.text)) + "\n"


def _edit_json(text: str, table: str, entry: Mapping[str, Any], others: tuple[str, ...]) -> str:
    for name in others:
        text = jsontext.drop_member(text, (table, name))
    return jsontext.put_member(text, (table, NAME), entry)


def _edit_toml(text: str, table: str, entry: Mapping[str, Any], others: tuple[str, ...]) -> str:
    for name in others:
        text = tomltext.drop_table(text, (table, name))
    return tomltext.put_table(text, (table, NAME), entry)


def _reads_as(text: str, file: Path, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(parse_document(text, file).data == wanted)
    except ConfigError:
        return False


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


def _diff(before: Document, after: Document) -> str:
    old, new = (masked_text(document).splitlines(keepends=True) for document in (before, after))
    lines = difflib.unified_diff(old, new, fromfile=str(before.file), tofile=str(after.file))
    # A last line without an end would run into the next one.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
