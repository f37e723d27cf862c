"""What a surface costs: everything that a client reads from it before its first question."""

from __future__ import annotations

import orjson

from portico.domain.caller import Caller
from portico.gateway import Gateway

from .discover import DEFINITIONS, Discover
from .static import Static


def surface_tokens(gateway: Gateway, surface: str = "discover") -> int:
    """Tokens of the listed tools and of the instructions, as they go over the wire."""
    caller = Caller(surface=surface)
    if surface == "static":
        listed = [tool.definition for tool in gateway.listing(caller)]
        instructions = Static(gateway).instructions(caller)
    else:
        listed = [*DEFINITIONS, *(tool.definition for tool in gateway.pinned(caller))]
        instructions = Discover(gateway).instructions(caller)
    return gateway.counter.count(orjson.dumps(listed).decode()) + gateway.counter.count(instructions)
