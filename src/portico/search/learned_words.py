"""Words learned from use: which words of a search may be learned, and what they add to the next one."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from portico.domain.call import SearchedWord
from portico.domain.search_answers import Findings, Hit
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import LearnedWords
from portico.text.redaction import PRIVATE_WORD, TOKEN

from .groups_and_doubt import AMONG, DOUBTED, DOUBTED_MORE, LEARNED_PART, STRONG
from .words_and_postings import query_words, stem_of, words

TEXT_READ = 200  # characters of the longest query that is learned from: a longer one tells a story
WORDS_READ = 12  # words of the longest one
HALF = 2.0  # uses of a word that count half of what any number of them does
HINT_LENGTH = 100  # characters of the words that are told of a tool

_LITERAL = re.compile(
    r"\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)|[\u201c\u201e\u00ab][^\u201c\u201d\u00bb]*(?:[\u201c\u201d\u00bb]|$)"
    r"|(?<!\w)['\u2018].*?(?:['\u2019](?!\w)|$)",
    re.DOTALL,
)
"""What is quoted, also where the closing sign is missing."""
_PRIVATE = re.compile(rf"{PRIVATE_WORD}\w*(?:[\s\"']*(?:=|:|\bis\b|\bwas\b))+\s*\S+", re.IGNORECASE)
"""A secret with its name before it."""
_PLAIN = re.compile(r"[^\W\d_]{1,24}(?:-[^\W\d_]{1,24}){0,2}")
"""A word or up to three: no number, name of a file, path, address, identifier or mail address looks like this."""
_CASED = re.compile(r"(?:.[^A-Z]*|[A-Z]{2,6})")
_MARKS = ".,;:!?()[]{}<>*'\u2019\u3002\uff01\uff1f\u2026"


class Said(NamedTuple):
    """The words of a query that may be learned, and how many words it has in all."""

    words: tuple[SearchedWord, ...] = ()
    size: int = 0


def read_said(text: str) -> Said:
    """The words of a query that may be learned; none of a long one."""
    return _read(text) if len(text) <= TEXT_READ else Said()


@lru_cache(512)
def _read(text: str) -> Said:
    left = _PRIVATE.sub(" ", _LITERAL.sub(" ", text))
    found: dict[str, str] = {}
    for written in left.split():
        token = written.strip(_MARKS)
        if _PLAIN.fullmatch(token) and not TOKEN.search(token):
            parts = [part.lower() for part in token.split("-") if len(part) > 1 and _CASED.fullmatch(part)]
            found |= {stem: part for part in parts if (stem := stem_of(part))}
    size = sum(weight == 1.0 for weight in query_words(text).values())
    return Said(tuple(found.items()) if len(found) <= WORDS_READ else (), max(size, len(found)))


def words_searched(query: str, need: str = "") -> tuple[SearchedWord, ...]:
    """The words of a query that may be learned; of one that asks for several things, those of the need."""
    whole = read_said(query).words
    # A need may be cut off, and with it the end of a quotation: so the whole query says what may be learned.
    needed = {stem for stem, _ in read_said(need).words} if need else set()
    return tuple(word for word in whole if word[0] in needed) if need else whole


def strengths(text: str, known: LearnedWords, caller: str, within: Set[ToolId], now: float) -> dict[ToolId, float]:
    """How far the words of a query have come to stand for tools: together never more than 1.

    Each word has its share, and gives it to the tools that it is used for, by how often it is.
    """
    found, said = defaultdict[ToolId, float](float), read_said(text)
    for word, _ in said.words:
        uses = {tool: weight for tool, weight in known.of(word, caller, now).items() if tool in within}
        total = sum(uses.values())
        for tool, weight in uses.items():
            found[tool] += weight / total * weight / (weight + HALF) / said.size
    return dict(found)


def with_learned(
    found: Findings, learned: Mapping[ToolId, float], tools: Mapping[ToolId, Tool], *, size: int, limit: int
) -> Findings:
    """The findings with the one tool, if any, that the words stand for more than for all others together.

    It stands where hits begin to be doubted: behind what fits plainly better, and where nothing fits, it is the answer.
    Its place does not depend on how strong the words are, so that few uses move a tool from page to page. `size` is how
    many tools may be found.
    """
    found = replace(found, learned=learned)
    strong = next((tool for tool, strength in learned.items() if strength >= STRONG), None)
    hits = found.hits if found.fits else ()
    if strong is None or any(one.need or _is_among(strong, one.copies) for one in hits):
        return found
    level = round(DOUBTED + DOUBTED_MORE * math.log2(max(size / AMONG, 1)), 4)
    own = next((hit for hit in hits if hit.tool.id == strong), None)
    if own is not None and own.score >= level:
        return found
    raised = Hit(tool=tools[strong], score=level, why={LEARNED_PART: level}) if own is None else _raised(own, level)
    others = [hit for hit in hits if hit is not own]
    place = next((place for place, hit in enumerate(others) if hit.score < level), len(others))
    is_first = place == 0
    hits = (*others[:place], raised, *others[place:])[: max(limit, 0)]
    return replace(
        found,
        hits=hits,
        fits=bool(hits),
        weak=found.weak and not is_first,
        unmatched=() if is_first else found.unmatched,
    )


def _raised(hit: Hit, level: float) -> Hit:
    return replace(hit, score=level, why={**hit.why, LEARNED_PART: round(level - hit.score, 4)})


def _is_among(tool: ToolId, hits: Sequence[Hit]) -> bool:
    return any(hit.tool.id == tool for hit in hits)


def hints(known: LearnedWords, tools: Iterable[Tool], now: float) -> dict[ToolId, str]:
    """Words that count for everybody and that a tool's own texts do not have, in the order of the alphabet."""
    shared, found = known.shared(now), {}
    for tool in tools if shared else ():
        if tool.id in shared:
            told = {*words(tool.name), *words(tool.title), *words(tool.description)}
            if text := _first_words([word for word in shared[tool.id] if stem_of(word) not in told]):
                found[tool.id] = text
    return found


def _first_words(found: Iterable[str]) -> str:
    """As many of the first words as may be told, in the order of the alphabet: so nobody can write a sentence."""
    chosen: list[str] = []
    for word in found:
        if len(" ".join([*chosen, word])) > HINT_LENGTH:
            break
        chosen.append(word)
    return " ".join(sorted(chosen))
