"""Our own config file with servers added and removed and tools put on shelves; everything else is left as it was."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from portico.config.documents import json_text as jsontext
from portico.config.documents import yaml_text as yamltext
from portico.config.documents.document import Document, format_of, parse_document, read_text
from portico.errors import ConfigError

from .atomic import write_atomically
from .client_formats import recognise
from .reader import meant

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
