"""What operators see: servers, the token bill, how tools stand, what is on which shelf, and the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from .journal import Losses
from .server import Health, Server
from .tool import Category, Rejected, Tool
from .usage import Tier, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """One server as an operator sees it."""

    name: str
    health: Health
    source: str
    tools: tuple[Tool, ...] = ()
    """Those that an agent can see."""
    hidden: int = 0
    """How many the config's filter keeps out."""
    rejected: tuple[Rejected, ...] = ()
    server: Server | None = None
    target: str = ""
    """The command or URL, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """What one server's definitions cost in a context window."""

    server: str
    tools: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a client reads before its first question, without and with Portico."""

    lines: tuple[BillLine, ...]
    after: int
    counter: str

    @property
    def before(self) -> int:
        """Tokens of every definition together."""
        return sum(line.tokens for line in self.lines)

    @property
    def saved(self) -> float:
        """The part that is saved, from 0 to 1."""
        return 1 - self.after / self.before if self.before else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLine:
    """One tool, how it stands, and what that follows from."""

    tool: Tool
    tier: Tier
    score: float
    usage: Usage = field(default_factory=Usage)
    is_pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryOverview:
    """One shelf, how much stands on it, and who says what it is called."""

    category: Category
    tools: int = 0
    servers: int = 0
    origin: str = "tools"
    """`edited` by an operator, `shipped` with Portico, named in the `config`, or only by `tools`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """How the store and the journal are doing."""

    store: str
    journal: str
    problem: str = ""
    losses: Losses = field(default_factory=Losses)
