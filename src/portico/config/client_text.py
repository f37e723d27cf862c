"""The text of a client's file with entries of its table of servers set and dropped, in whichever format it is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from portico.errors import ConfigError

from . import jsontext, tomltext, yamltext
from .documents import Document, parse_document
from .masking import masked_text


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
    after = _edited_text(document, table, changes, gone)
    if _reads_as(after, document.file, whole := {**(document.data or {}), table: wanted}):
        return after
    if document.format == "json":
        return jsontext.dump(whole, indent=jsontext.indent_of(document.text)) + "\n"
    if document.format == "yaml":
        return yamltext.dump(whole)
    block = " | ".join(tomltext.put_table("", (table, n), e).strip().replace("\n", " | ") for n, e in changes.items())
    fix = f"Add this table by hand: {block}" if block else f"Delete by hand: {', '.join(gone)}."
    raise document.error("the servers are written in a way that cannot be edited here", (table,), fix=fix)


def difference(before: Document, after: Document) -> str:
    """The change as a unified diff, with secrets masked."""
    old, new = (masked_text(document).splitlines(keepends=True) for document in (before, after))
    lines = difflib.unified_diff(old, new, fromfile=str(before.file), tofile=str(after.file))
    # A last line without an end would run into the next one.
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _edited_text(document: Document, table: str, changes: Mapping[str, Any], gone: Iterable[str]) -> str:
    text = document.text
    for name in gone:
        match document.format:
            case "toml":
                text = tomltext.drop_table(text, (table, name))
            case "yaml":
                text = yamltext.drop_entry(text, table, name)
            case _:
                text = jsontext.drop_member(text, (table, name))
    for name, entry in changes.items():
        match document.format:
            case "toml":
                text = tomltext.put_table(text, (table, name), entry)
            case "yaml":
                text = _put_yaml(text, table, name, entry)
            case _:
                text = jsontext.put_member(text, (table, name), entry)
    return text


def _put_yaml(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    return yamltext.put_entry(yamltext.drop_entry(text, table, name), table, name, entry)


def _reads_as(text: str, file: Path, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(parse_document(text, file).data == wanted)
    except ConfigError:
        return False
