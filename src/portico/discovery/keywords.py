"""Points for keywords: a second ranker, whose scores a reader can add up by hand.

| part | points | when |
|---|---|---|
| exact name | 200 | a token is a whole name of the tool |
| partial name | 100 | otherwise, when a token stands in the name |
| exact category | 75 | a token, or the whole query, is the category |
| partial category | 50 | otherwise, when a token stands in the category |
| keyword | 10 each | a token that the name does not have is a word of the description, a parameter or the listed name |
| description | 20 | the whole query, or every word of it, stands in the description |
| parameter | 15 each | the whole query stands in the parameter's name |

No score depends on other tools, so that what a caller may not see cannot be felt in what it sees.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

from portico.domain.disclosure import Findings, Hit
from portico.domain.edition import Edition
from portico.domain.tool import Tool, ToolId
from portico.ports import Index

from .words import words

EXACT_NAME, PARTIAL_NAME = 200, 100
EXACT_CATEGORY, PARTIAL_CATEGORY = 75, 50
KEYWORD, DESCRIPTION, PARAMETER = 10, 20, 15

QUERY_LIMIT = 1_000
"""Characters of a query that are read."""
TOKEN_LIMIT = 24
"""Tokens of a query that count, so that no query costs more than others by much."""

_TOKEN = re.compile(r"[^\s,;!?()\[\]{}<>|\"'`]+")
_PUNCTUATION = re.compile(r"\W")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tool, taken apart once."""

    tool: Tool
    name: str
    names: frozenset[str]
    category: str
    description: str
    description_words: frozenset[str]
    keywords: frozenset[str]
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, taken apart once."""

    phrase: str
    joined: str
    """The phrase as a name would be written, `_` for everything that is no letter and no digit."""
    tokens: tuple[tuple[str, frozenset[str]], ...]
    """Each token as a name would be written, with the stems of its words."""


class KeywordIndex:
    """Finds tools by adding up points for the query's tokens."""

    def __init__(self, entries: list[_Entry]) -> None:
        self.entries = entries
        self._named: dict[str, list[ToolId]] = defaultdict(list)
        for entry in entries:
            for name in entry.names:
                self._named[name].append(entry.tool.id)

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The permitted tools that have any points, most points first; ties are settled by name."""
        asked = _asked(text)
        if not asked.tokens:
            return Findings()
        found = [(_points(asked, entry), entry.tool) for entry in self.entries if entry.tool.id in within]
        hits = [Hit(tool=tool, score=sum(why.values()), why=why) for why, tool in found if why]
        hits.sort(key=lambda hit: (-hit.score, hit.tool.listed))
        return Findings(hits=tuple(hits[:limit]), fits=bool(hits))

    def names(self, text: str, *, within: Set[ToolId]) -> bool:
        """Whether the whole text is the name of a permitted tool, in whatever case."""
        return any(id in within for id in self._named.get(_plain(text), ()))


def build_keyword_index(edition: Edition, previous: Index | None) -> KeywordIndex:
    """Index an edition; tools that did not change are taken from the previous index."""
    known = {id(e.tool): e for e in previous.entries} if isinstance(previous, KeywordIndex) else {}
    return KeywordIndex([known.get(id(tool)) or _entry(tool) for tool in edition.tools.values()])


def _entry(tool: Tool) -> _Entry:
    said = frozenset(words(tool.description))
    parameters = tuple(str(name) for name in tool.properties)
    return _Entry(
        tool=tool,
        name=_plain(tool.id.name),
        names=frozenset(map(_plain, (tool.id.name, tool.listed, tool.handle))),
        category=_plain(tool.category),
        description=" ".join(tool.description.casefold().split()),
        description_words=said,
        keywords=said.union(words(tool.listed), *map(words, parameters)),
        parameters=tuple(map(_plain, parameters)),
    )


def _asked(text: str) -> _Asked:
    phrase = " ".join(text[:QUERY_LIMIT].casefold().split())
    spelled = dict.fromkeys(raw.strip(".:/-") for raw in _TOKEN.findall(text[:QUERY_LIMIT]))
    tokens = [(_plain(token), frozenset(words(token))) for token in spelled if any(map(str.isalnum, token))]
    telling = [(token, stems) for token, stems in tokens if stems]  # the others are words such as `of`
    return _Asked(phrase=phrase, joined=_plain(phrase), tokens=tuple((telling or tokens)[:TOKEN_LIMIT]))


def _points(asked: _Asked, entry: _Entry) -> dict[str, float]:
    """Each part of a tool's score that is not nothing."""
    tokens = asked.tokens
    in_name = {token for token, _ in tokens if token in entry.name or token in entry.names}
    parts = {
        "name": _name_points(asked, entry, in_name),
        "category": _category_points(asked, entry),
        "keywords": KEYWORD * sum(bool(s) and t not in in_name and s <= entry.keywords for t, s in tokens),
        "description": DESCRIPTION * _is_described(asked, entry),
        "parameters": PARAMETER * sum(asked.joined in name for name in entry.parameters),
    }
    return {part: points for part, points in parts.items() if points}


def _name_points(asked: _Asked, entry: _Entry, in_name: set[str]) -> int:
    if any(token in entry.names for token, _ in asked.tokens):
        return EXACT_NAME
    return PARTIAL_NAME if in_name else 0


def _category_points(asked: _Asked, entry: _Entry) -> int:
    tokens = [asked.joined, *(token for token, _ in asked.tokens)]
    if entry.category in tokens:
        return EXACT_CATEGORY
    return PARTIAL_CATEGORY if any(token in entry.category for token in tokens) else 0


def _is_described(asked: _Asked, entry: _Entry) -> bool:
    if asked.phrase in entry.description:
        return True
    return all(stems and stems <= entry.description_words for _, stems in asked.tokens)


def _plain(name: str) -> str:
    """A name without regard to case and punctuation; letters of every alphabet stay what they are."""
    return _PUNCTUATION.sub("_", name.strip().casefold())
