"""What a surface costs: everything that a client reads from it before its first question."""

from __future__ import annotations

import orjson

from portico.domain.caller import Caller
from portico.gateway import Gateway

from . import discover, search
from .capabilities import Capabilities
from .static import Static


def surface_tokens(gateway: Gateway, surface: str = "discover") -> int:
    """Tokens of the listed tools and of the instructions, as they go over the wire."""
    caller = Caller(surface=surface)
    if surface == "static":
        listed = [tool.definition for tool in gateway.listing(caller)]
        instructions = Static(gateway).instructions(caller)
    elif surface == "capabilities":
        shelves = Capabilities(gateway)
        listed, instructions = shelves.listed(caller), shelves.instructions(caller)
    else:
        own = search.DEFINITIONS if surface == "search" else discover.DEFINITIONS
        listed = [*own, *(tool.definition for tool in gateway.pinned(caller))]
        shown = search.Search(gateway) if surface == "search" else discover.Discover(gateway)
        instructions = shown.instructions(caller)
    return gateway.counter.count(orjson.dumps(listed).decode()) + gateway.counter.count(instructions)
