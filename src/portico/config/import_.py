"""A client's servers brought into our own config: first a plan that can be read, then one write."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from portico.config.documents.document import Document, read_document
from portico.errors import ConfigError

from .client_formats import Dialect, Found, find_entries, has_table, normalise, recognise
from .clients import CLIENTS, client_files
from .edit import add_servers
from .reader import meant
from .redact import mask
from .servers import KNOWN, read_server
from .settings import PORT, absolute
from .variables import Variables, names_in

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
        looked = " and ".join(str(file) for file in places)
        raise ConfigError(f"{client.title} has no config file", fix=f"Looked for {looked}; name the file instead.")
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

    def judge(self, found: Found) -> ImportItem:
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
    settled: dict[str, Any] = _replaced(entry, variables)
    for key in ("cwd", "envFile"):
        path = settled.get(key)
        if isinstance(path, str) and path and not path.startswith(("$", "~")):
            settled[key] = os.fspath(variables.folder / path)
    return settled


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
