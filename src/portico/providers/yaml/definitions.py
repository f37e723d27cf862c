"""What an entry says of itself as a tool, whatever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portico.providers.database import Connection
from portico.providers.local.injection import Connection as Marker
from portico.providers.local.injection import Need
from portico.providers.local.marks import LOCAL

from .tables import Table

KEYS = ("type", "description", "title", "category", "tags", "server", "example")
"""The keys that every tool may have."""

CONNECTION = "(connection)"
"""The name under which a tool is given its connection; no parameter can be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsDatabase(Need):
    """The need of a tool that asks a database."""

    @property
    def reason(self) -> str:
        """Why it cannot be offered, and what to do."""
        return "its SQL needs a database, and none is configured. Set DATABASE_URI, or delete the entry."


NEEDS = (ReadsDatabase(parameter=CONNECTION, kinds=(Connection, Marker), is_required=True),)


def definition(entry: Table, schema: Mapping[str, Any], hints: Mapping[str, bool]) -> dict[str, Any]:
    """The definition that is listed.

    Raises:
        ConfigError: one of the texts is none.
    """
    found: dict[str, Any] = {"name": entry.name, "description": described(entry)}
    if title := entry.text("title", ""):
        found["title"] = title
    found["inputSchema"] = schema
    if hints:
        found["annotations"] = dict(hints)
    said = {"tags": entry.texts("tags"), "example": entry.text("example", "")}
    if meta := {key: value for key, value in said.items() if value}:
        found["_meta"] = meta
    return found


def described(entry: Table) -> str:
    """The description; one without is noted."""
    text = entry.text("description", "")
    if not text.strip():
        entry.note("it has no description", "Add one: agents choose by what it says")
    return text


def place(entry: Table) -> dict[str, Any]:
    """Where a tool stands: its server, shelf, file and line.

    Raises:
        ConfigError: one of the texts is none.
    """
    return {
        "server": entry.text("server", LOCAL),
        "category": entry.text("category", ""),
        "file": entry.file,
        "line": entry.line,
    }
