"""Servers: what the config says of one, what it offers, and how it is doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Transport = Literal["stdio", "http", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFilter:
    """Globs over a server's tool names, for `deny` in every spelling; deny wins, an empty allow means all."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that we wait for one server; every outside call has one of these."""

    start: float = 30.0
    """Process start and handshake."""
    call: float = 60.0
    """One call without progress; progress starts the count again."""
    total: float = 600.0
    """One call, progress or not."""
    idle: float = 300.0
    """Unused for so long, a server is stopped; 0 keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How to reach one upstream server, with every variable already expanded."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values that variables have put into the command, the arguments and the address, by the variable's name."""
    enabled: bool = True
    alias: str = ""
    description: str = ""
    category: str = ""
    tools: ToolFilter = ToolFilter()
    timeouts: Timeouts = Timeouts()
    result_tokens: int = 0
    """What one result may cost; 0 leaves it to the default."""
    answer_values: int = 0
    """JSON values that one answer may have; 0 leaves it to the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaging:
    """How a server is packed, where its command says so."""

    docker_image: str = ""
    network_mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offering:
    """All that one server offers at one moment, as raw definitions."""

    server: str
    title: str = ""
    version: str = ""
    description: str = ""
    instructions: str = ""
    protocol: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    limited: str = ""
    """Why the lists are not complete, when a cap cut them."""
    users: Mapping[str, Sequence[str]] | None = None
    """Who may see each tool, by name, and `*` for everybody; None where the source restricts nobody."""


class State(StrEnum):
    """How a server is doing."""

    UNKNOWN = "unknown"
    """Configured, never asked."""
    READY = "ready"
    """Its definitions are known; it starts on first use."""
    RUNNING = "running"
    FAILED = "failed"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A server's state with the reason and the last words it wrote to stderr."""

    state: State
    reason: str = ""
    stderr: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A named group of tools, as the catalog shows it."""

    name: str
    identifier: str
    source: str = "upstream"
    title: str = ""
    version: str = ""
    description: str = ""
    instructions: str = ""
    protocol: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    prompts: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    templates: tuple[Mapping[str, Any], ...] = ()
    limited: str = ""
