"""A search and what it returns: hits, cards, and a text that fits a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from .tool import Tool, ToolId


class Level(IntEnum):
    """How much of a tool is shown."""

    NAME = 0
    SUMMARY = 1
    PARAMETERS = 2
    FULL = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Tokens and cards that a caller will spend on an answer."""

    tokens: int = 800
    cards: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A tool that answers a query, with each part of its score."""

    tool: Tool
    score: float
    why: Mapping[str, float] = field(default_factory=dict)
    copies: tuple[Hit, ...] = ()
    """Tools of other servers that do practically the same, best first."""
    need: str = ""
    """What part of the query it answers, where that asks for several things."""

    @property
    def also(self) -> tuple[str, ...]:
        """The handles of tools of other servers that do practically the same, best first."""
        return tuple(hit.handle for hit in self.copies)

    @property
    def handle(self) -> str:
        """The spelling to call it by."""
        return self.tool.handle

    @property
    def server(self) -> str:
        """The server's original name."""
        return self.tool.id.server

    @property
    def name(self) -> str:
        """The tool's name, as agents see it."""
        return self.tool.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an index answers: the hits, best first, and whether the best of them answers the query at all."""

    hits: tuple[Hit, ...] = ()
    fits: bool = False
    """False when no tool answers the query; the hits are then only the nearest ones."""
    weak: bool = False
    """True when the hits may not do what was asked for; they are shown, and marked."""
    unmatched: tuple[str, ...] = ()
    """Words of the query that no tool has which the caller may see, as they were typed."""
    subject: str = ""
    """The server that the query is about, where it names a subject and nothing that is to be done."""
    learned: Mapping[ToolId, float] = field(default_factory=dict)
    """How far the words of the query have come to stand for a tool, from 0 to 1; those of no weight are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A tool at one level, rendered."""

    handle: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSize:
    """What an answer costs, and how much it shows of what there is."""

    tokens: int = 0
    shown: int = 0
    total: int = 0
    fits: bool = True
    """False when no tool answers the question; the answer then says what is nearest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure(AnswerSize):
    """The cards that fitted, their cost, how many were withheld and how to get them."""

    text: str
    cards: tuple[Card, ...] = ()
    next: str = ""
    counter: str = ""
    """What counted the tokens."""

    @property
    def truncated(self) -> bool:
        """Whether something was withheld."""
        return self.shown < self.total


FILTERS = ("server", "category", "tag", "source", "read_only", "max_latency_ms", "min_success")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search: words, filters, and where the last page ended."""

    text: str = ""
    server: str = ""
    category: str = ""
    tag: str = ""
    source: str = ""
    """The kind of provider: upstream, database, local or library."""
    read_only: bool = False
    max_latency_ms: float = 0.0
    """The longest that calls may take on average; 0 leaves it open, and so does a tool that was never called."""
    min_success: float = 0.0
    """The share of calls that must have ended well, from 0 to 1; a tool that was never called passes."""
    limit: int = 0
    """How many tools; 0 leaves it to the settings."""
    cursor: str = ""

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that are set, by name."""
        return {name: value for name in FILTERS if (value := getattr(self, name))}

    @property
    def in_words(self) -> str:
        """The query on one line, filters included."""
        filters = "&".join(f"{name}={value}" for name, value in self.filters.items())
        return " ".join(part for part in (self.text.strip(), filters) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer as it goes over the wire, with what it costs."""

    body: bytes
    """Compact JSON, exactly what is sent and what was counted."""
    tokens: int
    """Of this answer."""
    cumulative: int
    """Of this answer and of those that a caller reads on the way to it."""
    shown: tuple[ToolId, ...] = ()
    """The tools in it, in their order."""
    total: int = 0
    """How many there are to be shown, on all pages."""
    truncated: bool = False
