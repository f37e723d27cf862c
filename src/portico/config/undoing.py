"""The way back from an installation: our own entry is taken out, and nothing that came later is lost."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.errors import ConfigError

from .client_text import difference, edited
from .clients import Client, Scope, client_file, find_client
from .documents import Document, parse_document, read_text
from .paths import find_paths
from .writing import free_name, latest_name, write_atomically

NAME = "portico"
"""What the entry is called in every client."""
BACKUP = "portico-backup"
UNDONE = "portico-undone"
RECORDS = "installed.json"
"""The name of the file in the data folder that holds what was installed where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one installation wrote: its entry, the servers that it took out, and the whole text as a hash."""

    entry: Mapping[str, Any]
    removed: tuple[str, ...]
    after: str
    backup: str = ""
    """The name of the file that holds the text from before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """What an undo would change; nothing is written until it is applied."""

    path: Path
    before: str = field(repr=False)
    after: str | None = field(repr=False)
    """The text that is left, or None when the file goes."""
    diff: str = field(repr=False)
    backup: Path | None
    records: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What an undo did: the file, the backup that is no longer needed, and where the file's last text is kept."""

    path: Path
    backup: Path | None
    kept: Path | None
    exists: bool
    """False when the file held nothing but our entry, and there is none now."""
    diff: str = field(default="", repr=False)


def remember_install(records: Path, path: Path, record: Record) -> None:
    """Write down what was installed, so that it can be told later whether it has changed."""
    known = _read(records)
    rows = known.setdefault(os.path.abspath(path), [])
    rows.append({"entry": dict(record.entry), "removed": list(record.removed), "after": record.after})
    rows[-1]["backup"] = record.backup
    write_atomically(records, json.dumps(known, indent=1).encode())


def digest_of(text: str) -> str:
    """What tells one text from another."""
    return hashlib.sha256(text.encode()).hexdigest()


def plan_undo(
    client: str,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    scope: Scope = "user",
    platform: str = sys.platform,
    force: bool = False,
) -> UndoPlan:
    """Work out a client's file without our entry; servers that the installation took out come back.

    Raises:
        ConfigError: there is no such entry, or it has changed since, and `force` is not given.
    """
    known = find_client(client)
    path = client_file(known, scope, environ=environ, cwd=cwd, platform=platform)
    records = find_paths(environ, cwd).data / RECORDS
    document = parse_document(read_text(path), path) if os.path.exists(path) else None
    if document is None or not isinstance(table := document.value(known.table), dict) or NAME not in table:
        fix = "There is nothing to take back."
        raise ConfigError(f"there is no entry {NAME!r} in it", file=str(path), fix=fix)
    record = _latest(records, path)
    backup = _backup(path, record)
    if not force:
        _refuse_changed(document, known, table[NAME], record)
    after = _undone_text(document, known, record, backup)
    shown = difference(document, parse_document(after or "", path))
    return UndoPlan(path=path, before=document.text, after=after, diff=shown, backup=backup, records=records)


def apply_undo(plan: UndoPlan) -> Undone:
    """Write what a plan leaves, after saving the present text beside it.

    Raises:
        ConfigError: the file has changed since the plan was made, or cannot be written.
    """
    if read_text(plan.path) != plan.before:
        fix = "Run the command again."
        raise ConfigError("the file has changed since the plan was made", file=str(plan.path), fix=fix)
    kept = free_name(plan.path, UNDONE)
    write_atomically(kept, plan.path.read_bytes(), like=plan.path)
    try:
        if plan.after is None:
            plan.path.unlink(missing_ok=True)
        else:
            write_atomically(plan.path, plan.after.encode())
        if plan.backup is not None:
            plan.backup.unlink(missing_ok=True)
    except OSError as error:
        reason = f"the file cannot be changed ({error.strerror or error})"
        raise ConfigError(reason, file=str(plan.path), fix="Check the permissions of its folder.") from None
    _forget(plan.records, plan.path)
    return Undone(path=plan.path, backup=plan.backup, kept=kept, exists=plan.after is not None, diff=plan.diff)


def undo(
    client: str,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    scope: Scope = "user",
    platform: str = sys.platform,
    force: bool = False,
) -> Undone:
    """Take our entry out of a client's file; its present text is kept beside it.

    Raises:
        ConfigError: there is no such entry, it has changed since, or the file cannot be written.
    """
    return apply_undo(plan_undo(client, environ=environ, cwd=cwd, scope=scope, platform=platform, force=force))


def _backup(path: Path, record: Record | None) -> Path | None:
    """The text from before the installation; other changes of ours may have left later ones."""
    if record is not None and record.backup:
        named = path.with_name(record.backup)
        return named if named.is_file() else None
    return latest_name(path, BACKUP)


def _refuse_changed(document: Document, client: Client, entry: Any, record: Record | None) -> None:
    if record is not None and entry == record.entry:
        return
    if record is None and _looks_like_ours(entry):
        return
    fix = "Look at it, then take it out by hand, or add --force to take it out as it is."
    raise document.error("the entry has changed since it was installed", (client.table, NAME), fix=fix)


def _looks_like_ours(entry: Any) -> bool:
    """Whether an entry of which nothing is written down is one that we wrote."""
    words = json.dumps(entry)
    return "portico" in words or "/mcp" in words


def _undone_text(document: Document, client: Client, record: Record | None, backup: Path | None) -> str | None:
    saved = backup.read_text(encoding="utf-8") if backup is not None else None
    if record is not None and saved is not None and digest_of(document.text) == record.after:
        return saved or None  # nothing else was changed: the file is as it was, to the letter
    old = parse_document(saved, document.file).value(client.table) if saved else None
    old = old if isinstance(old, dict) else {}
    table = document.value(client.table)
    names = [name for name in (*(record.removed if record else ()), NAME) if name in old]
    back = {name: old[name] for name in names if name == NAME or name not in table}
    after = edited(document, client.table, back, () if NAME in back else (NAME,))
    was_created = saved == ""
    return None if was_created and _is_empty(parse_document(after, document.file).data, client) else after


def _is_empty(data: Any, client: Client) -> bool:
    return not data or (isinstance(data, dict) and set(data) == {client.table} and not data[client.table])


def _latest(records: Path, path: Path) -> Record | None:
    rows = _read(records).get(os.path.abspath(path))
    if not rows:
        return None
    row = rows[-1]
    removed, after, backup = row.get("removed", ()), row.get("after", ""), row.get("backup", "")
    return Record(entry=row["entry"], removed=tuple(removed), after=str(after), backup=str(backup))


def _forget(records: Path, path: Path) -> None:
    known = _read(records)
    rows = known.get(os.path.abspath(path), [])
    if rows:
        known[os.path.abspath(path)] = rows[:-1]
        write_atomically(records, json.dumps({k: v for k, v in known.items() if v}, indent=1).encode())


def _read(records: Path) -> dict[str, list[dict[str, Any]]]:
    """What was installed where; a damaged file says nothing, and then only what looks like ours is taken out."""
    try:
        data = json.loads(records.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        path: rows
        for path, rows in data.items()
        if isinstance(rows, list) and all(isinstance(row, dict) and isinstance(row.get("entry"), dict) for row in rows)
    }
