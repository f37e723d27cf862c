"""Our own config file edited: servers added, removed and imported, and the file replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from portico.documents import json_text as jsontext
from portico.documents import toml_text as tomltext
from portico.documents import yaml_text as yamltext
from portico.documents.document import (
    Document,
    Format,
    format_of,
    parse_document,
    read_document,
    read_text,
    write_atomically,
)
from portico.domain.server import PORT
from portico.errors import ConfigError

from .clients import CLIENTS, Dialect, FoundEntry, client_files, find_entries, normalise, recognise
from .reader import suggest
from .servers import KNOWN, EntryOutcome, read_server
from .settings import absolute
from .variables_and_masking import Variables, mask, names_in

_TABLES = ("servers", "mcpServers")
EDITS: Mapping[Format, tuple[Callable[..., str], Callable[..., str]]] = {
    "json": (jsontext.put_member, jsontext.drop_member),
    "toml": (tomltext.put_table, tomltext.drop_table),
    "yaml": (yamltext.put_entry, yamltext.drop_entry),
}
"""Functions that put an entry into a text of a format, and that drop one, by its path."""


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
    """Put a server, a `server.tool` or the tools of a `prefix*` into a category in a config file, created when missing.

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
    categories = document.value("categories") or {}
    if not isinstance(categories, dict):
        fix = "Write it as {SERVER: category}."
        raise document.error("the categories must be a table", ("categories",), fix=fix)
    put, _ = EDITS[document.format]
    edited = _verified(
        document, "categories", {**categories, key: category}, lambda: put(text, ("categories", key), category)
    )
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
    tables = {table: document.value(table) or {} for table in _TABLES}
    for table, servers in tables.items():
        if name in servers:
            fix = f"Choose another name, or remove {name!r} first."
            raise document.error("a server of that name is there already", (table, name), fix=fix)
    filled = (table for table, servers in tables.items() if servers)
    written = (table for table in _TABLES if table in (document.data or {}))
    table = next(iter((*filled, *written, "servers")))
    put, _ = EDITS[document.format]
    return _verified(document, table, {**tables[table], name: dict(entry)}, lambda: put(text, (table, name), entry))


def without_server(text: str, file: Path, name: str) -> str:
    """The text of a config file without one server.

    Raises:
        ConfigError: there is no such server, or the text cannot be read.
    """
    document = _table_document(text, file)
    tables = {table: document.value(table) or {} for table in _TABLES}
    table = next((table for table, servers in tables.items() if name in servers), None)
    if table is None:
        known = [known for servers in tables.values() for known in servers]
        fix = suggest(name, known) if known else "There are no servers to remove."
        raise document.error(f"there is no server {name!r}", fix=fix)
    _, drop = EDITS[document.format]
    rest = {key: value for key, value in tables[table].items() if key != name}
    return _verified(document, table, rest, lambda: drop(text, (table, name)))


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


def _verified(document: Document, table: str, content: Mapping[str, Any], edit: Callable[[], str]) -> str:
    """The edited text when it reads back as wanted; or else the whole file written anew, without its comments."""
    wanted = {**(document.data or {}), table: content}
    with contextlib.suppress(ConfigError):
        edited = edit()
        data = parse_document(edited, document.file).data
        if isinstance(data, dict) and _filled(data) == _filled(wanted):
            return edited
    return write_anew(document, wanted)


def write_anew(document: Document, data: Mapping[str, Any]) -> str:
    """Data as the whole text of a JSON or YAML document, without its comments."""
    if document.format == "json":
        return jsontext.dump(data, indent=jsontext.indent_of(document.text)) + "\n"
    return yamltext.dump(data)


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
    """The entry for our config, variables unexpanded."""
    reason: str = ""

    @property
    def shown(self) -> Any:
        """The entry as it may be displayed."""
        return mask(self.entry)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """The outcome of an import; nothing is written until it is applied."""

    source: str
    files: tuple[Path, ...]
    items: tuple[ImportItem, ...]
    problems: tuple[ConfigError, ...] = ()
    """Problems of the files beside single entries, such as a name that stands twice."""

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
        entries = find_entries(document, dialect, cwd)
        problems += entries.problems
        if source not in CLIENTS and not entries.has_table:
            fix = "Its servers should stand under mcpServers, servers, mcp, mcp_servers, context_servers or extensions."
            raise ConfigError("no servers were found: this is no config that we know", file=str(document.file), fix=fix)
        is_held = not project and document.file in _project_files(source, environ, cwd, platform)
        for found in entries.found:
            item = _judge(document, dialect, found, environ, port)
            if is_held and item.action == "add":
                item = replace(item, action="skip", reason="it is of this folder; add --project to bring it in")
            elif not is_held:
                item = _beside(item, known, rename)
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
            fix = f"{suggest(source, CLIENTS)} Or name a file."
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


def _judge(
    document: Document, dialect: Dialect, found: FoundEntry, environ: Mapping[str, str], port: int
) -> ImportItem:
    """The outcome for one entry if nothing else were there."""
    variables = Variables(environ=environ, folder=document.file.absolute().parent, lenient=True)
    outcome = EntryOutcome(spec=None)
    own = _own_part(found.raw) if dialect == "goose" else ""
    if not own:
        outcome = read_server(
            found.name, found.words, document=document, path=found.path, variables=variables, dialect=dialect
        )
    spec = outcome.spec
    action: Action = "skip" if own else "add" if spec else "problem"
    reason = own or (_missing(found.raw, environ) if spec else "; ".join(map(str, outcome.problems)))
    if spec and _is_portico(spec.command, spec.args, spec.url, port):
        action, reason = "skip", "this is Portico itself"
    return ImportItem(
        name=found.name,
        action=action,
        file=document.file,
        line=document.line(found.path),
        entry=_absolute(_comparable(found.raw, dialect), variables),
        reason=reason,
    )


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


def _absolute(entry: dict[str, Any], variables: Variables) -> dict[str, Any]:
    """The entry without words that mean the folder of the file it came from."""
    found: dict[str, Any] = _replaced(entry, variables)
    for key in ("cwd", "envFile"):
        path = found.get(key)
        if isinstance(path, str) and path and not path.startswith(("$", "~")):
            found[key] = os.fspath(variables.folder / path)
    return found


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
