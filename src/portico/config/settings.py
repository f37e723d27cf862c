"""Everything that one run of Portico is told, read once and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from portico.domain.server import ServerSpec
from portico.errors import ConfigError

from .paths import Paths

SURFACES = ("discover", "static", "search")
"""The surfaces that `surface` may name."""

PORT = 8421
"""The port that Portico listens on unless it is told another."""


COUNTERS = ("estimate", "exact")
"""The token counters that `tokens` may name."""

ORDERS = ("keywords", "meaning")
"""What `search.order` may name: points for keywords, or the same order as on the other surfaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What one search may cost when the caller does not say, and the order on the `search` surface."""

    tokens: int = 800
    limit: int = 5
    order: str = "keywords"


QUESTION_SECONDS = 0.8
"""How long a search waits for the meaning of its query unless it is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantic:
    """The embedder that search may use: an endpoint when there is a url, else a local model."""

    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = QUESTION_SECONDS
    line: int | None = None
    """Where the file asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the config file says, with every variable expanded and every refused part in `problems`."""

    home: Paths
    surface: str = "discover"
    host: str = "127.0.0.1"
    port: int = PORT
    servers: tuple[ServerSpec, ...] = ()
    pins: tuple[str, ...] = ()
    categories: Mapping[str, str] = field(default_factory=dict)
    search: SearchLimits = SearchLimits()
    semantic: Semantic | None = None
    tokens: str = "estimate"
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Keys that other parts read themselves, as they were written."""
    problems: tuple[ConfigError, ...] = ()
    """What could not be used; everything else is in force."""
    file: Path | None = None
