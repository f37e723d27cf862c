"""Catalogues of any size with words as diverse as real ones, and queries made from them; the same every time."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from bench.editions import NoIndex
from bench.retrieval import PARAPHRASES, by_server, read_sets, verb_and_noun
from tests.catalogue import generate, load_fleet

from portico.catalog.publisher import Publisher
from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.server import Offering
from portico.search.word_vectors import shipped_table

SMALL = 538
QUERIES = 200
EXTRA_WORDS = 6
"""Words that make a generated description unlike all others."""

Catalogue = dict[str, list[dict[str, Any]]]


class Catalogues:
    """Real tools first, where they are given, then generated ones."""

    def __init__(self, fleet: str | None, sets: str | None) -> None:
        self._fleet = load_fleet(fleet) if fleet else None
        self._sets = read_sets(Path(sets)) if sets else []

    def of(self, size: int) -> Catalogue:
        """So many tools, by server."""
        real: Catalogue = dict(self._fleet or {})
        if size <= SMALL:
            return _first(real or generate(26, SMALL), size)
        for one in self._sets:
            real |= {f"{one.name} {server}": own for server, own in by_server(one.tools).items()}
        real = _first(real, size)
        missing = size - _count(real)
        return real | (varied(missing) if missing else {})

    def told(self) -> str:
        """What the catalogues are made of."""
        real = f"{_count(self._fleet)} given definitions" if self._fleet else f"{SMALL} generated tools"
        sets = sum(len(one.tools) for one in self._sets)
        more = [f"{sets:,} tools of the retrieval sets"] if sets else []
        start = [real] if self._fleet else []
        return f"{real} at {SMALL}; larger: {', '.join([*start, *more, 'generated ones with varied words'])}"


def varied(size: int, seed: int = 7) -> Catalogue:
    """Generated tools whose nouns differ from server to server, each described with some words of its own."""
    rng = random.Random(seed)
    draw = _drawer(rng)
    return {
        f"made {server}": list(_vary(tools, draw))
        for server, tools in generate(max(1, size // 100), size, seed).items()
    }


def edition_of(catalogue: Mapping[str, list[dict[str, Any]]]) -> CatalogSnapshot:
    """An edition without an index."""
    return editions_of(catalogue).current.snapshot


def editions_of(catalogue: Mapping[str, list[dict[str, Any]]]) -> Publisher:
    """What holds an edition without an index, for a change of it."""
    publisher = Publisher(build_index=lambda snapshot, previous: NoIndex())
    publisher.accept([(Offering(server=server, tools=tuple(own)), "bench") for server, own in catalogue.items()])
    return publisher


def queries_for(catalogue: Catalogue, count: int = QUERIES) -> list[str]:
    """Queries of one word to some forty, made from tools all over the catalogue."""
    rng = random.Random(11)
    tools = [tool for own in catalogue.values() for tool in own]
    return [_QUERIES[number % len(_QUERIES)](rng, rng.sample(tools, k=3)) for number in range(count)]


def _first(catalogue: Catalogue, size: int) -> Catalogue:
    left = size
    found: Catalogue = {}
    for server, tools in catalogue.items():
        if left > 0:
            found[server] = tools[:left]
            left -= len(found[server])
    return found


def _count(catalogue: Catalogue | None) -> int:
    return sum(map(len, (catalogue or {}).values()))


def _drawer(rng: random.Random) -> Callable[[], str]:
    """Draws words of the shipped table, a few of them often and most of them seldom, as in any language."""
    words = [word for word in shipped_table().words.words if word.isalpha() and 4 <= len(word) <= 12]
    rng.shuffle(words)
    weights = list(accumulate(1 / (rank + 30) for rank in range(len(words))))
    return lambda: rng.choices(words, cum_weights=weights)[0]


def _vary(tools: Sequence[dict[str, Any]], draw: Callable[[], str]) -> Iterator[dict[str, Any]]:
    nouns: dict[str, str] = {}
    for tool in tools:
        _, noun = verb_and_noun(tool["name"])
        other = nouns[noun] if noun in nouns else nouns.setdefault(noun, _unlike(nouns, noun, draw))
        text = re.sub(rf"(?<![a-z]){noun}(?![a-rt-z])", other, json.dumps(tool))
        text = re.sub(rf"(?<![a-z]){noun.replace(' ', '_')}(?![a-rt-z])", other.replace(" ", "_"), text)
        changed = json.loads(text)
        changed["description"] += f" Made for {' '.join(draw() for _ in range(EXTRA_WORDS))}."
        yield changed


def _unlike(nouns: Mapping[str, str], noun: str, draw: Callable[[], str]) -> str:
    """Another noun that the server does not have yet: of two tools with one name, one would be lost."""
    while (found := " ".join(draw() for _ in noun.split())) in nouns.values():
        pass
    return found


def _words_of_name(tool: Mapping[str, Any]) -> str:
    return " ".join(word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", tool["name"]))


def _sentence(tool: Mapping[str, Any], words: int) -> str:
    """The beginning of a description, as someone might ask for it."""
    first = re.split(r"(?<=[.!?])\s", tool.get("description") or _words_of_name(tool))[0]
    return " ".join(first.split()[:words]).strip(" .:").lower()


def paraphrase(tool: Mapping[str, Any], rng: random.Random) -> str:
    verb, _, noun = _words_of_name(tool).partition(" ")
    known = PARAPHRASES.get(verb)
    return rng.choice(known).format(noun=noun) if known else f"how can I do {verb} {noun}"


def _typo(text: str, rng: random.Random) -> str:
    """A text with two neighbouring letters swapped."""
    at = rng.randrange(max(1, len(text) - 1))
    return text[:at] + text[at : at + 2][::-1] + text[at + 2 :]


def _long(tools: Sequence[Mapping[str, Any]]) -> str:
    first, second, third = (_sentence(tool, 12) for tool in tools)
    return f"{first} for the file /srv/data/report-2024.csv, then {second} and also {third}; tell me when it is done"


Tools = Sequence[Mapping[str, Any]]
_QUERIES: tuple[Callable[[random.Random, Tools], str], ...] = (
    lambda rng, tools: _words_of_name(tools[0]),
    lambda rng, tools: paraphrase(tools[0], rng),
    lambda rng, tools: _sentence(tools[0], 6),
    lambda rng, tools: f"I need a tool to {_sentence(tools[0], 10)}",
    lambda rng, tools: _words_of_name(tools[0]).split()[-1],
    lambda rng, tools: paraphrase(tools[0], rng),
    lambda rng, tools: f"{_words_of_name(tools[0])} and then {_words_of_name(tools[1])}",
    lambda rng, tools: _sentence(tools[0], 14),
    lambda rng, tools: _typo(_words_of_name(tools[0]), rng),
    lambda rng, tools: _long(tools),
)
