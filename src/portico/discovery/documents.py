"""What is read of a tool: the texts of its fields, and the words of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from portico.domain.tool import Tool

from .words import pieces, stems

DETAIL_LIMIT = 20_000
"""Characters of parameter text that are read from one tool, so that no schema can buy itself a place."""
CHOICES_READ = 50
NAME_MARK = "="
"""Begins a whole name among the words, where no word can begin with it."""

_PUNCTUATION = re.compile(r"\W")


def fields(tool: Tool) -> dict[str, str]:
    """The texts of a tool's fields."""
    names, details = _parameter_text(tool.properties)
    category = "" if tool.category in ("misc", tool.id.server) else tool.category
    return {
        "name": f"{tool.id.name} {tool.title}",
        "shelf": " ".join((tool.id.server, category, *tool.tags)),
        "description": tool.description,
        "parameters": names,
        "details": details,
    }


def read(tool: Tool) -> dict[str, list[str]]:
    """The words of a tool's fields as they stand there."""
    return {field: pieces(text) for field, text in fields(tool).items()}


def document(tool: Tool, found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The stems of each field's words, and the whole names."""
    whole = [f"{NAME_MARK}{name}" for name in {plain(spelling) for spelling in _spellings(tool)}]
    return {**{field: stems(listed) for field, listed in found.items()}, "whole": whole}


def _spellings(tool: Tool) -> tuple[str, ...]:
    return tool.handle, tool.id.name, tool.listed, str(tool.id)


def plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())


def _parameter_text(properties: Mapping[str, Any]) -> tuple[str, str]:
    details = [text for schema in properties.values() for text in _texts(schema)]
    return " ".join(properties)[:DETAIL_LIMIT], " ".join(details)[:DETAIL_LIMIT]


def _texts(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    description = schema.get("description")
    if isinstance(description, str):
        yield description
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from (choice for choice in choices[:CHOICES_READ] if isinstance(choice, str))
    inner = schema.get("properties")
    if isinstance(inner, dict):
        yield from (str(name) for name in inner)
