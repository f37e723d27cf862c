"""Servers, databases and the HTTP listener as the config describes them, and what a server offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from .tool import ToolOverride

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
    """Unused for so long, a server is stopped, later where it is used often; 0 keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """Who the process of a server runs as, and the container that it runs in."""

    run_as: str = ""
    """A user by name, or `uid:gid`; empty means ours."""
    image: str = ""
    """Empty means no container."""
    network: str = ""
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLabels:
    """Another name for a server in handles, a description, a category of its tools, and overrides of single tools."""

    alias: str = ""
    description: str = ""
    category: str = ""
    overrides: Mapping[str, ToolOverride] = field(default_factory=dict)
    """By the tool's original name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSessionLimits:
    """The bounds of the sessions that a server's clients have of their own."""

    most: int = 0
    """How many are open at once; 0 leaves it to the default of the transport."""
    idle: float | None = None
    """Seconds that one stays open unused, 0 without an end; None leaves it to `timeouts.idle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server is given at once, when it is given nothing, and the most of its answers and sessions."""

    calls_at_once: int = 256
    queue: int = 256
    """Calls that wait for one of these to end; what comes on top is refused."""
    failures: int = 5
    """Calls in a row that fail through the server's own fault and open its breaker; 0 means never."""
    cooldown_s: float = 30.0
    """Seconds that an open breaker refuses calls, at least; at most twice as long."""
    result_tokens: int = 0
    """The most tokens of one result; 0 leaves it to the default."""
    answer_values: int = 0
    """JSON values that one answer may have; 0 leaves it to the default."""
    client_sessions: ClientSessionLimits | None = None
    """None where all clients share one session of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """One upstream server of the config, with every variable already expanded."""

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
    labels: ServerLabels = ServerLabels()
    tools: ToolFilter = ToolFilter()
    timeouts: Timeouts = Timeouts()
    limits: ServerLimits = ServerLimits()
    isolation: Isolation = Isolation()

    def runs_like(self, other: ServerSpec) -> bool:
        """Whether the same process or connection serves both: they differ at most in what we make of its answers.

        Overrides have limits of time that the connection keeps.
        """
        labels = replace(other.labels, overrides=self.labels.overrides)
        limits = replace(self.limits, result_tokens=other.limits.result_tokens)
        return replace(self, labels=labels, tools=other.tools, limits=limits) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaging:
    """The packaging of a server, where its command says so."""

    docker_image: str = ""
    network_mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """When a server was asked for what it offers, and what it ran then."""

    at: float = 0.0
    """In seconds since 1970."""
    mark: str = ""
    """Changes with the program that was started; empty where that cannot be told."""


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
    seen: Mapping[str, str] = field(default_factory=dict)
    """By overridden tool: the mark of the override, a colon, and the mark of the definition that it met first."""
    users: Mapping[str, Sequence[str]] | None = None
    """Who may see each tool, by name, and `*` for everybody; None where the source restricts nobody."""
    asked: Asked = field(default=Asked(), compare=False)


class State(StrEnum):
    """The state of a server."""

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
    cause: str = ""
    """The reason in one word for programs, where it is known."""
    client_sessions: int | None = None
    """Sessions of single clients that are open; None where all clients share one."""


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

    def short_name(self, aliases: Mapping[str, str]) -> str:
        """The part before `::`: the server's alias as an identifier, or its name."""
        return self.identifier if aliases.get(self.name) else self.name


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
    """The role in PostgreSQL for callers without one of their own."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """The role in PostgreSQL for each caller; `*` means all others."""
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
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """The difference that reading a config again has made: servers by name, everything else by its key."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Other keys whose new value is in force."""
    restart: tuple[str, ...] = ()
    """Keys whose new value is in force after a restart."""

    @property
    def is_live(self) -> bool:
        """Whether something else is in force now."""
        return bool(self.added or self.removed or self.changed or self.settings)

    def __str__(self) -> str:
        """The difference in one line."""
        said = {
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "set": self.settings,
            "needs a restart": self.restart,
        }
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in said.items() if names) or "nothing"


MEGABYTE = 1024 * 1024
PORT = 8421
"""The port that Portico listens on unless it is told another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """Limits for clients before anybody has looked at their request."""

    max_body: int = 4 * MEGABYTE
    """Bytes of one request's body."""
    max_head: int = 32 * 1024
    """Bytes of one request's first line and headers."""
    head_s: float = 10.0
    """Seconds that a head may take, from its first byte; a new connection's first head from the start."""
    body_s: float = 30.0
    """Seconds that a body may take as a whole."""
    body_idle_s: float = 10.0
    """Seconds that a body may stand still."""
    body_memory_mb: int = 16
    """The most memory of bodies that are being received."""
    keep_alive_s: float = 5.0
    """Seconds that a connection stays open without a request."""
    connections: int = 1_000
    requests: int = 256
    """Requests that are worked on at once, event streams not included."""
    streams: int = 512
    """Event streams that are open at once."""
    sessions: int = 1_000
    """Sessions of all surfaces together; a new one takes the place of the one that was unused longest."""
    session_idle_s: float = 1_800.0
    drain_s: float = 10.0
    """Seconds that calls in flight get when the gateway is asked to stop, over stdio too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The address to listen on, the names that requests may use for it and for their own, and the limits."""

    host: str = "127.0.0.1"
    port: int = PORT
    allowed_hosts: tuple[str, ...] = ()
    """Host names beside the loopback ones: `name` with any port, `name:port` with that one."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may send requests, as `https://name` or `https://name:port`."""
    limits: HttpLimits = field(default_factory=HttpLimits)


def pause_after(failures: int, first: float, longest: float) -> float:
    """Seconds to wait before a server is asked again, after so many failures in a row: doubled up to the longest."""
    return min(first * 2.0 ** min(max(failures - 1, 0), 30), longest)
