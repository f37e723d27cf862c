"""What a question returns: hits, cards, and a text that fits a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from .tool import Tool


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
        """The tool's original name."""
        return self.tool.id.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an index answers: the hits, best first, and whether the best of them answers the query at all."""

    hits: tuple[Hit, ...] = ()
    fits: bool = False
    """False when no tool answers the query; the hits are then only the nearest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A tool at one level, rendered."""

    handle: str
    level: Level
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """The cards that fitted, their cost, how many were withheld and how to get them."""

    text: str
    tokens: int
    cards: tuple[Card, ...] = ()
    shown: int = 0
    total: int = 0
    next: str = ""
    counter: str = ""
    """What counted the tokens."""
    fits: bool = True
    """False when no tool answers the question; the text then says what is nearest."""

    @property
    def truncated(self) -> bool:
        """Whether something was withheld."""
        return self.shown < self.total
