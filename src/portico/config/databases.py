"""Databases whose registries hold tools: the key `databases`, and a profile's `registry` with DATABASE_URI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from portico.domain.database import DatabaseSpec
from portico.errors import ConfigError

from .documents import Document
from .fields import Fields, meant
from .paths import absolute
from .settings import Settings

KEYS = "url registry refresh_s role roles registry_override writes allow_superuser rows bytes seconds".split()
"""The fields of a database."""
NAME_LENGTH = 128
LEAST_REFRESH = 0.1
"""Seconds between two looks at a registry, which would otherwise follow each other without a pause."""
MOST_SECONDS = 3_600
"""Of one call; databases keep their limits in small numbers."""

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///", re.IGNORECASE)


def read_databases(fields: Fields, document: Document) -> tuple[DatabaseSpec, ...]:
    """The databases that can be used; what is wrong with the others is reported, and never shows a URL."""
    table = fields.table.get("databases")
    if table is None:
        return ()
    if not isinstance(table, dict):
        fix = "Write a name for each database, with its url and registry below it."
        fields.report("the databases must be a table", "databases", fix=fix)
        return ()
    return tuple(_read(fields, document, table))


def with_registry(settings: Settings) -> Settings:
    """The settings with the databases that the chosen profile leaves, and with the one that its `registry` asks for."""
    profile = settings.selected
    databases = tuple(spec for spec in settings.databases if profile.permits_server(spec.name))
    settings = replace(settings, databases=databases)
    schema = profile.registry
    if not schema or any(schema in (spec.registry, spec.name) for spec in databases):
        return settings
    if not settings.database_uri:
        fix = "Set DATABASE_URI, or name the database under databases in the config."
        problem = ConfigError(
            f"it asks for the registry {schema!r}, and no database is named", where=f"profile {profile.name!r}", fix=fix
        )
        return replace(settings, problems=(*settings.problems, problem))
    allowed = settings.allow_superuser
    spec = DatabaseSpec(name=schema, url=settings.database_uri, registry=schema, allow_superuser=allowed)
    return replace(settings, databases=(*databases, spec))


def _read(fields: Fields, document: Document, table: dict[str, Any]) -> Iterator[DatabaseSpec]:
    for name, entry in table.items():
        path = ("databases", name)
        if not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
            fields.report("this cannot be a database's name", *path, fix="Give it a short, plain name.")
        elif not isinstance(entry, dict):
            fields.report("a database must be a table", *path, fix=f"Use some of: {', '.join(KEYS)}.")
        else:
            inner = Fields(entry, document=document, path=path, variables=fields.variables)
            spec = _spec(name, inner, document)
            fields.problems += inner.problems
            if inner.is_usable:
                yield spec


def _spec(name: str, fields: Fields, document: Document) -> DatabaseSpec:
    for key in fields.table:
        if key not in KEYS and not key.startswith("x-"):
            fields.report("this key is not known", key, fix=meant(key, KEYS))
    defaults = DatabaseSpec(name=name, url="")
    override, writes = fields.switch("registry_override"), fields.switch("writes")
    return DatabaseSpec(
        name=name,
        url=_url(fields, document),
        registry=_registry(fields),
        refresh_s=fields.number("refresh_s", least=LEAST_REFRESH) or defaults.refresh_s,
        role=fields.text("role").strip(),
        roles={caller: role for caller, role in fields.pairs("roles").items() if role},
        registry_override=defaults.registry_override if override is None else override,
        writes=defaults.writes if writes is None else writes,
        allow_superuser=fields.switch("allow_superuser") or False,
        rows=fields.whole("rows", least=1, most=100_000) or defaults.rows,
        bytes=fields.whole("bytes", least=1_000, most=10_000_000) or defaults.bytes,
        seconds=_seconds(fields) or defaults.seconds,
        file=str(document.file),
        line=document.line(("databases", name)),
    )


def _seconds(fields: Fields) -> float | None:
    found = fields.number("seconds", above=0)
    if found is not None and found > MOST_SECONDS:
        fields.report("this is longer than a call may take", "seconds", fix=f"Write at most {MOST_SECONDS}.")
    return found


def _registry(fields: Fields) -> str:
    found = fields.text("registry").strip()
    if not found and fields.is_usable:
        fix = "Name the database or schema that holds the registry, such as mcp."
        fields.report("a database needs a registry", "registry", fix=fix)
    return found


def _url(fields: Fields, document: Document) -> str:
    """A URL as it is; the file of SQLite is one beside the config."""
    text = fields.text("url").strip()
    if not text and fields.is_usable:
        fields.report(
            "a database needs a url", "url", fix="Write sqlite:///file.db or postgresql://user@host/database."
        )
    match = _SQLITE.match(text)
    if not match:
        return text
    name, mark, query = text[match.end() :].partition("?")
    file = absolute(name, fields.variables.environ, document.file.absolute().parent)
    return f"sqlite:///{file}{mark}{query}" if name else text
