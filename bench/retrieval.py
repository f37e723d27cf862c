"""Sets of queries with the tools that answer them, and the figures of a run over one.

A set is a folder with `tools.jsonl` (`id`, `server`, `name`, `description`, `input_schema`) and `queries.jsonl`
(`query`, `gold`, and `groups` where several tools would do for one need).
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.catalogue import generate

DEPTH = 10
"""Results that are looked at."""
QUERIES = 300
"""Queries of the set that the project makes itself."""

PARAPHRASES: Mapping[str, tuple[str, ...]] = {
    "get": ("look up the details of one {noun}", "what do we know about this {noun}"),
    "list": ("show me all {noun} entries", "which {noun} things are there"),
    "search": ("find a {noun} that mentions some words", "look for a {noun}"),
    "count": ("how many {noun} entries match", "the number of {noun} things"),
    "export": ("download the {noun} data as a csv", "save {noun} records to disk"),
    "create": ("make a new {noun}", "add another {noun}"),
    "update": ("change the fields of a {noun}", "edit a {noun}"),
    "copy": ("duplicate this {noun}", "clone a {noun}"),
    "move": ("put the {noun} somewhere else", "transfer a {noun}"),
    "assign": ("give the {noun} to a colleague", "make someone responsible for a {noun}"),
    "archive": ("put an old {noun} away but keep it", "hide a {noun} that is done"),
    "delete": ("remove a {noun} permanently", "get rid of a {noun}"),
    "validate": ("is this {noun} correct", "test a {noun} before it is saved"),
    "watch": ("tell me when a {noun} changes", "follow a {noun}"),
    "compare": ("what is different between two {noun} versions", "diff a {noun}"),
}
"""Other words for what the generated tools do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tool of a set, under a server that has no other of its name."""

    id: str
    server: str
    definition: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query and what it needs; any tool of a need meets it."""

    text: str
    needs: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSet:
    """Tools and questions about them."""

    name: str
    tools: tuple[Placed, ...]
    questions: tuple[Question, ...]
    has_training: bool = False
    """Whether there are other queries about the same tools, to train on: its figures say less about unseen tools."""


def read_sets(folder: Path) -> list[RetrievalSet]:
    """Every set in a folder, by name."""
    return [_read(found.parent) for found in sorted(folder.glob("*/queries.jsonl"))]


def generated_set() -> RetrievalSet:
    """Generated tools, and queries that say in other words what some of them do."""
    listed = [(server, tool) for server, tools in generate(100, 2000).items() for tool in tools]
    alike: dict[tuple[str, str], set[str]] = {}
    for server, tool in listed:
        alike.setdefault(verb_and_noun(tool["name"]), set()).add(f"{server}.{tool['name']}")
    rng = random.Random(3)
    questions = []
    for verb, noun in rng.sample(sorted(alike), k=QUERIES):
        text = rng.choice((f"{verb} {noun}", *PARAPHRASES[verb])).format(noun=noun)
        questions.append(Question(text=text, needs=(frozenset(alike[verb, noun]),)))
    tools = (Placed(id=f"{server}.{tool['name']}", server=server, definition=tool) for server, tool in listed)
    return RetrievalSet(name="generated", tools=tuple(tools), questions=tuple(questions))


def verb_and_noun(name: str) -> tuple[str, str]:
    """What a generated tool does, and to what."""
    parts = [part for part in re.split(r"[_-]", name) if not re.fullmatch(r"v\d+", part)]
    verb = parts[0] if parts[0] in PARAPHRASES else parts[-1]
    parts.remove(verb)
    return verb, " ".join(parts)


def by_server(tools: Sequence[Placed]) -> dict[str, list[dict[str, Any]]]:
    """The definitions of each server."""
    found: dict[str, list[dict[str, Any]]] = {}
    for tool in tools:
        found.setdefault(tool.server, []).append(tool.definition)
    return found


def figures(questions: Sequence[Question], runs: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means over all questions, given the tools that were found for each, best first."""
    met = [places(question, run) for question, run in zip(questions, runs, strict=True)]
    counts = [len(question.needs) for question in questions]
    return {
        "nDCG@10": statistics.fmean(map(_gain, met, counts)),
        "R@5": statistics.fmean(_met_within(5, at) / count for at, count in zip(met, counts, strict=True)),
        "R@1": statistics.fmean(_met_within(1, at) / count for at, count in zip(met, counts, strict=True)),
    }


def places(question: Question, run: Sequence[str]) -> list[int]:
    """Where in a run a need was met for the first time, counted from 0; a tool meets one need only."""
    unmet = list(question.needs)
    found = []
    for place, id in enumerate(run[:DEPTH]):
        need = next((need for need in unmet if id in need), None)
        if need is not None:
            unmet.remove(need)
            found.append(place)
    return found


def _gain(met: Sequence[int], needs: int) -> float:
    """Discounted gain, as a share of what the best order would have."""
    best = sum(map(_discount, range(min(needs, DEPTH))))
    return sum(map(_discount, met)) / best


def _discount(place: int) -> float:
    return 1 / math.log2(place + 2)


def _met_within(depth: int, met: Sequence[int]) -> int:
    return sum(place < depth for place in met)


def _read(folder: Path) -> RetrievalSet:
    tools = _place(_lines(folder / "tools.jsonl"), folder.name)
    questions = (Question(text=row["query"], needs=_needs(row)) for row in _lines(folder / "queries.jsonl"))
    trained = (folder / "train.jsonl").exists()
    return RetrievalSet(name=folder.name, tools=tuple(tools), questions=tuple(questions), has_training=trained)


def _needs(row: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group) for group in row.get("groups") or [[id] for id in row["gold"]])


def _place(rows: Sequence[Mapping[str, Any]], set_name: str) -> list[Placed]:
    """A second tool of one name gets a server of its own, so that none is lost."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for row in rows:
        server = row["server"] or set_name
        seen[server, row["name"]] += 1
        count = seen[server, row["name"]]
        definition = {"name": row["name"], "description": row["description"], "inputSchema": row["input_schema"]}
        where = server if count == 1 else f"{server}~{count}"
        found.append(Placed(id=row["id"], server=where, definition=definition))
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
