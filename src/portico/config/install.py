"""Portico entered in a client's file, and taken out again: a plan with its diff, one atomic write, a backup."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.documents import json_text as jsontext
from portico.documents import toml_text as tomltext
from portico.documents.document import Document, parse_document, read_text, write_atomically
from portico.domain.server import PORT
from portico.errors import ConfigError

from .clients import Client, Scope, Via, client_file, find_client, portico_entry, recognise
from .edit_and_import import EDITS, write_anew
from .servers import read_server
from .settings import find_paths
from .variables_and_masking import Variables, masked_text


def edited(document: Document, table: str, changes: Mapping[str, Any], dropped: Iterable[str] = ()) -> str:
    """The text of a document with entries set and others dropped; everything else stays as it is.

    Raises:
        ConfigError: its servers are written in a way that cannot be edited.
    """
    gone = [name for name in dropped if name not in changes]
    before = document.value(table) or {}
    wanted = {name: value for name, value in before.items() if name not in gone} | {
        k: dict(v) for k, v in changes.items()
    }
    if wanted == before:
        return document.text
    put, drop = EDITS[document.format]
    after = document.text
    for name in gone:
        after = drop(after, (table, name))
    for name, entry in changes.items():
        after = put(after, (table, name), entry)
    whole = {**(document.data or {}), table: wanted}
    with contextlib.suppress(ConfigError):
        if parse_document(after, document.file).data == whole:
            return after
    if document.format != "toml":
        return write_anew(document, whole)
    block = " | ".join(tomltext.put_table("", (table, n), e).strip().replace("\n", " | ") for n, e in changes.items())
    fix = f"Add this table by hand: {block}" if block else f"Delete by hand: {', '.join(gone)}."
    raise document.error("the servers are written in a way that cannot be edited here", (table,), fix=fix)


def difference(before: Document, after: Document) -> str:
    """The change as a unified diff, with secrets masked."""
    old, new = (masked_text(document).splitlines(keepends=True) for document in (before, after))
    lines = difflib.unified_diff(old, new, fromfile=str(before.file), tofile=str(after.file))
    # A last line without an end would run into the next one.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """The change of an installation; nothing is written until it is applied."""

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
    """The new entry; None where servers are only taken out."""
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
    document, is_new = _client_document(path, known)
    goes, stays = _others(document, known, environ) if replace else ((), ())
    return _plan(
        known,
        document,
        edited(document, known.table, {NAME: entry}, goes),
        is_new=is_new,
        removed=goes,
        kept=stays,
        entry=entry,
        records=find_paths(environ, cwd).data / RECORDS,
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
        document, is_new = _client_document(client_file(known, "project", environ=environ, cwd=cwd), known)
        goes, stays = _others(document, known, environ)
        after = edited(document, known.table, {}, goes) if goes else document.text
        plans.append(_plan(known, document, after, is_new=is_new, removed=goes, kept=stays))
    if known.local is not None:  # Claude Code keeps servers of one folder in the user's file, below the folder's path
        path = client_file(known, "user", environ=environ, cwd=cwd, platform=platform)
        document, is_new = _document(path)
        place = (known.local, str(cwd), known.table)
        entries = document.value(*place)
        goes = tuple(name for name in entries if name != NAME) if isinstance(entries, dict) else ()
        after = document.text
        for name in goes:
            after = jsontext.drop_member(after, (*place, name))
        plans.append(_plan(known, document, after, is_new=is_new, removed=goes))
    return tuple(plan for plan in plans if plan.removed)


def _document(path: Path) -> tuple[Document, bool]:
    """A client's file, and whether there is none yet."""
    is_new = not os.path.exists(path)
    return parse_document("" if is_new else read_text(path), path), is_new


def _client_document(path: Path, client: Client) -> tuple[Document, bool]:
    document, is_new = _document(path)
    _refuse_unusable(document, client)
    return document, is_new


def _plan(client: Client, document: Document, after: str, *, is_new: bool, **more: Any) -> InstallPlan:
    path, before = document.file, None if is_new else document.text
    diff = difference(document, parse_document(after, path)) if after != document.text else ""
    return InstallPlan(client=client.name, path=path, before=before, after=after, diff=diff, **more)


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
        record = {"entry": dict(plan.entry), "removed": list(plan.removed), "after": digest_of(plan.after)}
        known = _read(plan.records)
        known.setdefault(os.path.abspath(plan.path), []).append({**record, "backup": backup.name})
        write_atomically(plan.records, json.dumps(known, indent=1).encode())
    return backup


def _others(document: Document, client: Client, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The client's other servers: those that Portico can serve, and those that it cannot."""
    table, words = document.value(client.table), document.words(client.table)
    names = [name for name in table if name != NAME] if isinstance(table, dict) else []
    variables = Variables(environ=environ, folder=document.file.absolute().parent, lenient=True)
    dialect = recognise(document)

    def can_serve(name: str) -> bool:
        path = (client.table, name)
        found = read_server(name, words[name], document=document, path=path, variables=variables, dialect=dialect)
        return found.spec is not None

    served = {name: can_serve(name) for name in names}
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


NAME = "portico"
"""The name of the entry in every client."""
BACKUP = "portico-backup"
UNDONE = "portico-undone"
RECORDS = "installed.json"
"""The name of the file in the data folder that holds what was installed where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRecord:
    """The traces of one installation: its entry, the servers that it took out, and the whole text as a hash."""

    entry: Mapping[str, Any]
    removed: tuple[str, ...]
    after: str
    backup: str = ""
    """The name of the file that holds the text from before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """The change of an undo; nothing is written until it is applied."""

    path: Path
    before: str = field(repr=False)
    after: str | None = field(repr=False)
    """The text that is left, or None when the file goes."""
    diff: str = field(repr=False)
    backup: Path | None
    records: Path


def digest_of(text: str) -> str:
    """The SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def free_name(file: Path, suffix: str) -> Path:
    """A name beside a file that nothing has yet: `NAME.suffix`, then `NAME.suffix.2` and so on."""
    return _numbered(file, suffix, (_latest_number(file, suffix) or 0) + 1)


def latest_name(file: Path, suffix: str) -> Path | None:
    """The newest of the numbered files beside a file."""
    number = _latest_number(file, suffix)
    return _numbered(file, suffix, number) if number is not None else None


def _latest_number(file: Path, suffix: str) -> int | None:
    """The highest number among the numbered files beside a file; the plain name is number one."""
    number = None
    with contextlib.suppress(OSError):
        plain = f"{file.name}.{suffix}"
        for name in os.listdir(file.parent):
            tail = name.removeprefix(plain)
            if name == plain:
                number = max(number or 1, 1)
            elif name.startswith(plain) and tail[0] == "." and tail[1:].isdecimal():
                number = max(number or 0, int(tail[1:]))
    return number


def _numbered(file: Path, suffix: str, number: int) -> Path:
    return file.with_name(f"{file.name}.{suffix}" + (f".{number}" if number > 1 else ""))


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


def apply_undo(plan: UndoPlan) -> Path:
    """Write what a plan leaves, after saving the present text in a file beside it, whose path is returned.

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
    return kept


def _backup(path: Path, record: InstallRecord | None) -> Path | None:
    """The text from before the installation; other changes of ours may have left later ones."""
    if record is not None and record.backup:
        named = path.with_name(record.backup)
        return named if named.is_file() else None
    return latest_name(path, BACKUP)


def _refuse_changed(document: Document, client: Client, entry: Any, record: InstallRecord | None) -> None:
    words = json.dumps(entry)
    # An entry of which nothing is written down is one that we wrote if it looks like it.
    if entry == record.entry if record is not None else "portico" in words or "/mcp" in words:
        return
    fix = "Look at it, then take it out by hand, or add --force to take it out as it is."
    raise document.error("the entry has changed since it was installed", (client.table, NAME), fix=fix)


def _undone_text(document: Document, client: Client, record: InstallRecord | None, backup: Path | None) -> str | None:
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


def _latest(records: Path, path: Path) -> InstallRecord | None:
    rows = _read(records).get(os.path.abspath(path))
    if not rows:
        return None
    row = rows[-1]
    removed, after, backup = row.get("removed", ()), row.get("after", ""), row.get("backup", "")
    return InstallRecord(entry=row["entry"], removed=tuple(removed), after=str(after), backup=str(backup))


def _forget(records: Path, path: Path) -> None:
    known = _read(records)
    rows = known.get(os.path.abspath(path), [])
    if rows:
        known[os.path.abspath(path)] = rows[:-1]
        write_atomically(records, json.dumps({k: v for k, v in known.items() if v}, indent=1).encode())


def _read(records: Path) -> dict[str, list[dict[str, Any]]]:
    """The installations by file; a damaged record says nothing, and then only what looks like ours is taken out."""
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
