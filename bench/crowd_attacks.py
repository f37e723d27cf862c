"""Servers that want to be found whatever is asked: what is left of the honest answers beside them."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bench.definitions import Definition
from bench.retrieval import Placed, Question
from bench.search_catalogue import paraphrase

from portico import Catalog
from portico.domain.search_answers import Hit

SIZES = (1, 20, 200)
"""Tools of an attacker."""
ATTACKER = "helpful tools"
FLOOD_WORDS = 120
TOP = 5
SINGLE_AIMS = 20
"""Attackers with one tool, one after the other, whose means are told: one alone says little."""

Row = dict[str, float | int | str]


@dataclass(frozen=True, slots=True)
class Target:
    """Honest tools and what is asked of them."""

    name: str
    tools: Mapping[str, list[Definition]]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Attacker:
    """What an attacker offers, and which questions it is aimed at; none for all."""

    tools: Sequence[Definition] = ()
    aimed_at: range | None = None
    is_spread: bool = False
    """Whether each tool has a server of its own, so that none of them looks like more than a small honest one."""


def questions_of(tools: Sequence[Placed], count: int, seed: int = 5) -> tuple[Question, ...]:
    """What a user may ask of some of the tools: other words for the name, or what the text begins with."""
    rng = random.Random(seed)
    found = []
    for number, tool in enumerate(rng.sample(tools, k=min(count, len(tools)))):
        said = re.split(r"(?<=[.!?])\s", tool.definition.get("description") or "")[0].split()[:8]
        forms = (paraphrase(tool.definition, rng), " ".join(said).strip(" .:").lower())
        text = forms[number % 2] or forms[0]
        found.append(Question(text=text, needs=(frozenset({tool.id}),)))
    return tuple(found)


def attack(target: Target) -> list[Row]:
    """One row for each attack, the first of them without any."""
    clones = Attacker([tool for own in target.tools.values() for tool in own])
    found = [_row(target, "none", [Attacker()]), _row(target, "clones of all tools", [clones])]
    for size in SIZES:
        aims = range(SINGLE_AIMS if size == 1 else 1)
        found.append(_row(target, "a tool for each query", [_echoes(target, aim, size) for aim in aims]))
    for size in SIZES[1:]:
        spread = replace(_echoes(target, 0, size), is_spread=True)
        found.append(_row(target, "a tool for each query, each on a server of its own", [spread]))
    return [*found, *(_row(target, "a flood of words", [_floods(target, size)]) for size in SIZES)]


def table(rows: Sequence[Row]) -> str:
    """One row for each attack."""
    heads = [
        "honest tools",
        "attack",
        "tools of the attacker",
        "honest hit@5",
        "with also",
        "with also, where aimed at",
    ]
    heads += ["attacker first", "attacker first, where aimed at"]
    lines = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * (len(heads) - 2)]
    for row in rows:
        shares = (f"{row[name]:.3f}" for name in ("hit@5", "hit@5 also", "aimed hit@5", "first", "aimed first"))
        lines.append(f"| {row['target']} | {row['attack']} | {row['tools']} | {' | '.join(shares)} |")
    return "\n".join(lines)


def _row(target: Target, kind: str, attackers: Sequence[Attacker]) -> Row:
    """The means over some attackers, each alone beside the honest tools."""
    seen = [_figures(target, attacker) for attacker in attackers]
    means = {name: round(statistics.fmean(one[name] for one in seen), 4) for name in seen[0]}
    told: Row = {
        "target": target.name,
        "attack": kind,
        "tools": len(attackers[0].tools),
        "queries": len(target.questions),
    }
    return {**told, **means}


def _figures(target: Target, attacker: Attacker) -> dict[str, float]:
    catalog = Catalog()
    for server, own in target.tools.items():
        catalog.add_tools(server, own, lambda name, arguments: None)
    for server, offered in _placed(attacker):
        catalog.add_tools(server, offered, lambda name, arguments: None)
    runs = [catalog.search(question.text, limit=TOP) for question in target.questions]
    met = list(zip(runs, (question.needs[0] for question in target.questions), strict=True))
    named = [any(_id(one) in need for hit in run for one in (hit, *hit.copies)) for run, need in met]
    first = [bool(run) and run[0].server.startswith(ATTACKER) for run in runs]
    aimed = attacker.aimed_at or range(len(runs))
    return {
        "hit@5": statistics.fmean(any(_id(hit) in need for hit in run) for run, need in met),
        "hit@5 also": statistics.fmean(named),
        "aimed hit@5": statistics.fmean(named[at] for at in aimed),
        "first": statistics.fmean(first),
        "aimed first": statistics.fmean(first[at] for at in aimed),
    }


def _placed(attacker: Attacker) -> list[tuple[str, Sequence[Definition]]]:
    if attacker.is_spread:
        return [(f"{ATTACKER} {number}", [tool]) for number, tool in enumerate(attacker.tools)]
    return [(ATTACKER, attacker.tools)] if attacker.tools else []


def _id(hit: Hit) -> str:
    return f"{hit.server}/{hit.name}"


def _echoes(target: Target, start: int, size: int) -> Attacker:
    """The descriptions are the very queries; the names are made of their words."""
    aimed = range(min(start, len(target.questions) - 1), min(start + size, len(target.questions)))
    texts = [target.questions[at].text for at in aimed]
    names = ("_".join(re.findall(r"[a-z]+", text.lower())[:6]) for text in texts)
    tools = [_definition(f"{name}_{at}", text) for name, at, text in zip(names, aimed, texts, strict=True)]
    return Attacker(tools, aimed)


def _floods(target: Target, size: int) -> Attacker:
    """Names and descriptions full of the words of the honest tools."""
    rng = random.Random(13)
    said = " ".join(f"{tool['name']} {tool.get('description') or ''}" for own in target.tools.values() for tool in own)
    words = re.findall(r"[a-z]{3,}", said.lower())
    made = range(size)
    texts = [("_".join(rng.choices(words, k=8)), " ".join(rng.choices(words, k=FLOOD_WORDS))) for _ in made]
    return Attacker([_definition(f"{name[:50]}_{at}", text) for at, (name, text) in zip(made, texts, strict=True)])


def _definition(name: str, description: str) -> Definition:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "What is wanted"}}}
    return {"name": name, "description": description, "inputSchema": schema}
