"""What the HTTP listener accepts: by which names it may be called, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass, field

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits:
    """What clients may use before anybody has looked at their request."""

    max_body: int = 4 * MEGABYTE
    """Bytes of one request's body."""
    max_head: int = 32 * 1024
    """Bytes of one request's first line and headers."""
    head_s: float = 10.0
    """How long a head may take, from its first byte; a new connection's first head from the start."""
    body_s: float = 30.0
    """How long a body may take as a whole."""
    body_idle_s: float = 10.0
    """How long a body may stand still."""
    body_memory_mb: int = 16
    """What bodies that are being received may take together."""
    keep_alive_s: float = 5.0
    """How long a connection stays open without a request."""
    connections: int = 1_000
    requests: int = 256
    """Requests that are worked on at once, event streams not included."""
    streams: int = 512
    """Event streams that are open at once."""
    sessions: int = 1_000
    """Sessions of all surfaces together; a new one takes the place of the one that was unused longest."""
    session_idle_s: float = 1_800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The names that requests may use for this endpoint and for their own, and the limits."""

    allowed_hosts: tuple[str, ...] = ()
    """Host names beside the loopback ones: `name` with any port, `name:port` with that one."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may send requests, as `https://name` or `https://name:port`."""
    limits: HttpLimits = field(default_factory=HttpLimits)
