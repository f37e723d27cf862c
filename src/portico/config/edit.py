"""Our own config file edited: servers added, removed and imported, and the file replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from portico.documents import json_text as jsontext
from portico.documents import yaml_text as yamltext
from portico.documents.document import Document, format_of, parse_document, read_document, read_text
from portico.errors import ConfigError

from .clients import CLIENTS, Dialect, FoundEntry, client_files, find_entries, has_table, normalise, recognise
from .reader import meant
from .redact import mask
from .servers import KNOWN, read_server
from .settings import PORT, absolute
from .variables import Variables, names_in

_PRIVATE = 0o600
"""Config files hold secrets: a new one is for its owner alone."""


def write_atomically(file: Path, content: bytes, *, like: Path | None = None) -> None:
    """Put content in the place of a file's, with the mode and owner of that file, or of another one it is `like`.

    A link keeps pointing at its target.

    Raises:
        ConfigError: the folder or file cannot be written; nothing has changed then.
    """
    target = Path(os.path.realpath(file))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise _unwritable(file, error) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _dress(name, like or target)
        os.replace(name, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise _unwritable(file, error) from None


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


def _dress(name: str, model: Path) -> None:
    try:
        status = os.stat(model)
    except FileNotFoundError:
        os.chmod(name, _PRIVATE)
        return
    os.chmod(name, status.st_mode & 0o7777)
    # Under sudo the file must go on belonging to its user; anyone else may not give files away, and need not.
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(name, status.st_uid, status.st_gid)


def _unwritable(file: Path, error: OSError) -> ConfigError:
    fix = "Check the folder's permissions and the free space."
    return ConfigError(f"the file cannot be written ({error.strerror or error})", file=str(file), fix=fix)


_TABLES = ("servers", "mcpServers")


def add_server(file: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Add one server to a config file, which is created when it is missing.

    Raises:
        ConfigError: a server of that name is there already, or the file cannot be read or written; nothing has changed.
    """
    add_servers(file, {name: entry})


def add_servers(file: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Add several servers at once, all or none.

    Raises:
        ConfigError: one of the names is there already, or the file cannot be read or written; nothing has changed.
    """
    text = read_text(file) if os.path.exists(file) else ""
    for name, entry in entries.items():
        text = with_server(text, file, name, entry)
    write_atomically(file, text.encode())


def remove_server(file: Path, name: str) -> None:
    """Remove one server from a config file.

    Raises:
        ConfigError: there is no such server, or the file cannot be read or written; nothing has changed.
    """
    write_atomically(file, without_server(read_text(file), file, name).encode())


def assign_category(file: Path, key: str, category: str) -> None:
    """Put a server, a `server.tool` or the tools of a `prefix*` on a shelf in a config file, created when missing.

    Raises:
        ConfigError: the file is a client's own, or it cannot be read or written; nothing has changed.
    """
    text = read_text(file) if os.path.exists(file) else ""
    write_atomically(file, with_category(text, file, key, category).encode())


def with_category(text: str, file: Path, key: str, category: str) -> str:
    """The text of a config file with one key of its `categories` set.

    Raises:
        ConfigError: it is a client's own file, which has no categories, or the text cannot be read.
    """
    document = _table_document(text, file)
    if not isinstance(document.value("categories"), dict | None):
        fix = "Write it as {SERVER: category}."
        raise document.error("the categories must be a table", ("categories",), fix=fix)
    wanted = dict(document.data or {})
    wanted["categories"] = {**(wanted.get("categories") or {}), key: category}
    if document.format == "json":
        edited = _verified(document, wanted, lambda: jsontext.put_member(text, ("categories", key), category))
    else:
        edited = _verified(document, wanted, lambda: yamltext.put_text(text, "categories", key, category))
    if recognise(parse_document(edited, file)) != "portico":
        fix = "Keep a portico.yaml of your own, for example with: portico import FILE --write"
        raise ConfigError("this is a client's own file, and categories are not read from it", file=str(file), fix=fix)
    return edited


def with_server(text: str, file: Path, name: str, entry: Mapping[str, Any]) -> str:
    """The text of a config file with one more server.

    Raises:
        ConfigError: a server of that name is there already, or the text cannot be read.
    """
    document = _table_document(text, file)
    for table in _TABLES:
        if name in _names(document, table):
            fix = f"Choose another name, or remove {name!r} first."
            raise document.error("a server of that name is there already", (table, name), fix=fix)
    table = next((table for table in _TABLES if _names(document, table)), _empty_table(document))
    wanted = dict(document.data or {})
    wanted[table] = {**(wanted.get(table) or {}), name: dict(entry)}
    if document.format == "json":
        return _verified(document, wanted, lambda: jsontext.put_member(text, (table, name), entry))
    return _verified(document, wanted, lambda: yamltext.put_entry(text, table, name, entry))


def without_server(text: str, file: Path, name: str) -> str:
    """The text of a config file without one server.

    Raises:
        ConfigError: there is no such server, or the text cannot be read.
    """
    document = _table_document(text, file)
    table = next((table for table in _TABLES if name in _names(document, table)), None)
    if table is None:
        known = [known for table in _TABLES for known in _names(document, table)]
        fix = meant(name, known) if known else "There are no servers to remove."
        raise document.error(f"there is no server {name!r}", fix=fix)
    wanted = dict(document.data)
    wanted[table] = {key: value for key, value in wanted[table].items() if key != name}
    if document.format == "json":
        return _verified(document, wanted, lambda: jsontext.drop_member(text, (table, name)))
    return _verified(document, wanted, lambda: yamltext.drop_entry(text, table, name))


def server_entries(file: Path) -> dict[str, Any]:
    """The raw entries of our own config file by name, variables unexpanded; none when there is no file.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not os.path.exists(file):
        return {}
    document = _table_document(read_text(file), file)
    return {name: entry for table in reversed(_TABLES) for name, entry in (document.value(table) or {}).items()}


def _table_document(text: str, file: Path) -> Document:
    if format_of(file, text) == "toml":
        raise ConfigError("a TOML config is read but not edited", file=str(file), fix="Use portico.yaml.")
    document = parse_document(text, file)
    if not isinstance(document.data, dict | None):
        raise document.error("a config file must be a table", line=1, fix="Write keys such as servers: first.")
    for table in _TABLES:
        if not isinstance(document.value(table), dict | None):
            raise document.error("the servers must be a table", (table,), fix="Write a name for each server.")
    return document


def _names(document: Document, table: str) -> Iterable[str]:
    return document.value(table) or {}


def _empty_table(document: Document) -> str:
    return next((table for table in _TABLES if table in (document.data or {})), _TABLES[0])


def _verified(document: Document, wanted: Mapping[str, Any], edit: Callable[[], str]) -> str:
    """The edited text when it reads back as wanted; or else the whole file written anew, without its comments."""
    try:
        edited = edit()
        if _same(parse_document(edited, document.file).data, wanted):
            return edited
    except ConfigError:
        pass
    if document.format == "json":
        return jsontext.dump(wanted, indent=jsontext.indent_of(document.text)) + "\n"
    return yamltext.dump(wanted)


def _same(data: Any, wanted: Mapping[str, Any]) -> bool:
    return isinstance(data, dict) and _filled(data) == _filled(wanted)


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    # A table that lost its last entry reads as null.
    return {key: (value or {}) if key in (*_TABLES, "categories") else value for key, value in data.items()}


Action = Literal["add", "same", "conflict", "skip", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One server that was found, and what happens to it."""

    name: str
    action: Action
    file: Path
    line: int | None
    entry: Mapping[str, Any] = field(repr=False)
    """What is written into our config, variables unexpanded."""
    reason: str = ""

    @property
    def shown(self) -> Any:
        """The entry as it may be displayed."""
        return mask(self.entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """What an import would do; nothing is written until it is applied."""

    source: str
    files: tuple[Path, ...]
    items: tuple[ImportItem, ...]
    problems: tuple[ConfigError, ...] = ()
    """What was wrong with the files beside single entries, such as a name that stands twice."""

    @property
    def additions(self) -> dict[str, Mapping[str, Any]]:
        """The entries that are written, by name."""
        return {item.name: item.entry for item in self.items if item.action == "add"}


def plan_import(
    source: str,
    *,
    environ: Mapping[str, str],
    cwd: Path,
    existing: Mapping[str, Any],
    rename: bool = False,
    port: int = PORT,
    platform: str = sys.platform,
    project: bool = True,
) -> ImportPlan:
    """Look at a client's servers (by the client's name or a file's path) beside the entries that are there already.

    A name that is taken by a different entry is left out, or with `rename` added under the next free name. Without
    `project`, what a client's file in the working directory holds is left out too: a clone brings its own.

    Raises:
        ConfigError: the client or file is not known, or a file cannot be read.
    """
    files = _files(source, environ, cwd, platform)
    known = {name: _comparable(entry, "portico") for name, entry in existing.items()}
    items, problems = list[ImportItem](), list[ConfigError]()
    for document in map(read_document, files):
        dialect = recognise(document)
        look = _Look(document=document, dialect=dialect, environ=environ, port=port)
        entries = find_entries(document, dialect, cwd)
        problems += entries.problems
        if source not in CLIENTS and not has_table(document, dialect, cwd):
            fix = "Its servers should stand under mcpServers, servers, mcp, mcp_servers, context_servers or extensions."
            raise ConfigError("no servers were found: this is no config that we know", file=str(document.file), fix=fix)
        is_held = not project and document.file in _project_files(source, environ, cwd, platform)
        for found in entries.found:
            item = _held(look.judge(found)) if is_held else _beside(look.judge(found), known, rename)
            if item.action == "add":
                known[item.name] = _comparable(item.entry, "portico")
            items.append(item)
    return ImportPlan(source=source, files=files, items=tuple(items), problems=tuple(problems))


def apply_import(plan: ImportPlan, file: Path) -> None:
    """Write the planned additions into our config, all or none.

    Raises:
        ConfigError: the file cannot be read or written, or has one of the names by now.
    """
    if plan.additions:
        add_servers(file, plan.additions)


def _files(source: str, environ: Mapping[str, str], cwd: Path, platform: str) -> tuple[Path, ...]:
    client = CLIENTS.get(source)
    if client is None:
        file = absolute(source, environ, cwd)
        if not os.path.exists(file):
            fix = f"{meant(source, CLIENTS)} Or name a file."
            raise ConfigError(f"{source!r} is neither a client we know nor a file", file=str(file), fix=fix)
        return (file,)
    places = client_files(client, environ=environ, cwd=cwd, platform=platform)
    # The project's file may be the user's own, in the home folder.
    found = tuple(dict.fromkeys(file for file in places if os.path.exists(file)))
    if not found:
        searched = " and ".join(str(file) for file in places)
        raise ConfigError(f"{client.title} has no config file", fix=f"Looked for {searched}; name the file instead.")
    return found


def _project_files(source: str, environ: Mapping[str, str], cwd: Path, platform: str) -> tuple[Path, ...]:
    """The files of a client in the working directory that are not the user's own."""
    client = CLIENTS.get(source)
    if client is None or client.project is None:
        return ()
    theirs, own = client_files(client, environ=environ, cwd=cwd, platform=platform)
    return () if theirs == own else (theirs,)


def _held(item: ImportItem) -> ImportItem:
    if item.action != "add":
        return item
    return replace(item, action="skip", reason="it is of this folder; add --project to bring it in")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    document: Document
    dialect: Dialect
    environ: Mapping[str, str] = field(repr=False)
    port: int

    def judge(self, found: FoundEntry) -> ImportItem:
        """What one entry would become if nothing else were there."""
        folder = self.document.file.absolute().parent
        variables = Variables(environ=self.environ, folder=folder, lenient=True)
        outcome = read_server(
            found.name,
            found.words,
            document=self.document,
            path=found.path,
            variables=variables,
            dialect=self.dialect,
        )
        own = _own_part(found.raw) if self.dialect == "goose" else ""
        item = ImportItem(
            name=found.name,
            action="skip" if own else "add",
            file=self.document.file,
            line=self.document.line(found.path),
            entry=_settled(_comparable(found.raw, self.dialect), variables),
            reason=own or _missing(found.raw, self.environ),
        )
        if own:
            return item
        if outcome.spec is None:
            return replace(item, action="problem", reason="; ".join(map(str, outcome.problems)))
        if _is_portico(outcome.spec.command, outcome.spec.args, outcome.spec.url, self.port):
            return replace(item, action="skip", reason="this is Portico itself")
        return item


def _own_part(entry: Any) -> str:
    """Why an extension of Goose is no server of its own."""
    inner = entry.get("config", entry) if isinstance(entry, Mapping) else {}
    kind = inner.get("type") if isinstance(inner, Mapping) else None
    return f"a part of Goose itself ({kind})" if kind in ("builtin", "platform", "frontend", "inline_python") else ""


def _beside(item: ImportItem, known: Mapping[str, Any], rename: bool) -> ImportItem:
    if item.action != "add" or item.name not in known:
        return item
    if known[item.name] == _comparable(item.entry, "portico"):
        return replace(item, action="same", reason="an identical entry is there already")
    if not rename:
        return replace(item, action="conflict", reason=f"another entry is already called {item.name!r}; not merged")
    number = 2
    while f"{item.name}-{number}" in known:
        number += 1
    return replace(item, name=f"{item.name}-{number}", reason=f"{item.name!r} is taken by another entry")


def _comparable(entry: Any, dialect: Dialect) -> dict[str, Any]:
    """An entry in our shape, without what clients keep for themselves."""
    if not isinstance(entry, Mapping):
        return {}
    normal = normalise(entry, dialect).entry
    return {key: value for key, value in normal.items() if key in KNOWN and value is not None}


def _settled(entry: dict[str, Any], variables: Variables) -> dict[str, Any]:
    """The entry without words that mean the folder of the file it came from."""
    wait_until_ready: dict[str, Any] = _replaced(entry, variables)
    for key in ("cwd", "envFile"):
        path = wait_until_ready.get(key)
        if isinstance(path, str) and path and not path.startswith(("$", "~")):
            wait_until_ready[key] = os.fspath(variables.folder / path)
    return wait_until_ready


def _replaced(value: Any, variables: Variables) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, variables) for item in value]
    if isinstance(value, str):
        for word in ("${workspaceFolder}", "${workspaceFolderBasename}"):
            if word in value:
                value = value.replace(word, variables.expand(word))
    return value


def _missing(entry: Any, environ: Mapping[str, str]) -> str:
    names = [name for text in _texts(entry) for name in names_in(text) if name not in environ]
    unique = [name for name in dict.fromkeys(names) if not name.startswith(("workspace", "userHome", "pathSep"))]
    return f"needs {', '.join(unique)} to be set" if unique else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for child in children:
        yield from _texts(child)


def _is_portico(command: str, args: tuple[str, ...], url: str, port: int) -> bool:
    if url:
        parts = urlsplit(url)
        is_here = parts.hostname in ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104
        return is_here and parts.port == port and parts.path.startswith("/mcp")
    words = [Path(word).name.removesuffix(".exe") for word in (command.replace("\\", "/"), *args)]
    if words[0] == "portico":
        return True
    return "portico" in words[1:] and "serve" in words[1:]
