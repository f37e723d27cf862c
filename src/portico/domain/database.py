"""What the config says of one database whose registry holds tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSpec:
    """A database, the registry in it, and what its tools may do, with every variable already expanded."""

    name: str
    """The server that its tools belong to."""
    url: str = field(repr=False)
    registry: str = "mcp"
    """The database or schema that holds the registry's views."""
    refresh_s: float = 60.0
    """Seconds between two looks at the registry; a database that can tell of changes is heard at once."""
    role: str = ""
    """What PostgreSQL becomes for callers without a role of their own."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """What PostgreSQL becomes for each caller; `*` means all others."""
    registry_override: bool = True
    """Whether its tools take the place of code tools of the same name."""
    allow_superuser: bool = False
    """Whether PostgreSQL may be asked with a login that is a superuser, or may read files of the server."""
    writes: bool = False
    """Whether tools that are registered as writing are offered, and may write."""
    rows: int = 1_000
    bytes: int = 1_000_000
    seconds: float = 30.0
    file: str = ""
    """The config file that names it; empty where the environment does."""
    line: int | None = None
