"""The training pairs: a request in words, and the fields of the tool that answers it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portico.search.words_and_postings import split_description


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and the tool that answers it."""

    family: str
    """Where it comes from: operations of APIs, docstrings, or the name of a set with a training split."""
    query: str
    tool: Mapping[str, str]
    """The tool's fields as discovery reads them: name, shelf, purpose, description, parameters."""


def collected(path: Path) -> Iterator[Pair]:
    """What `collect.py` wrote."""
    for line in path.open(encoding="utf-8"):
        row = json.loads(line)
        tool = {**row, "parameters": " ".join(row["parameters"])}
        family = "operations" if "/" in row["source"] else "docstrings"
        yield Pair(family, row["query"], _fields(tool))


def training_split(folder: Path) -> Iterator[Pair]:
    """The training split of a retrieval set; its test queries are never opened here."""
    tools = {row["id"]: _definition_fields(row) for row in _rows(folder / "tools.jsonl")}
    for row in _rows(folder / "train.jsonl"):
        for gold in row["gold"]:
            if gold in tools:
                yield Pair(folder.name, row["query"], tools[gold])


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.open(encoding="utf-8"):
        yield json.loads(line)


def _definition_fields(row: Mapping[str, Any]) -> dict[str, str]:
    properties = row["input_schema"].get("properties") or {}
    return _fields({**row, "parameters": " ".join(properties)})


def _fields(row: Mapping[str, Any]) -> dict[str, str]:
    """The fields as discovery names them."""
    texts = {field: str(row.get(field) or "") for field in ("name", "parameters")}
    purpose, rest = split_description(str(row.get("description") or ""))
    return {**texts, "purpose": purpose, "description": rest, "shelf": str(row.get("server") or ""), "details": ""}
