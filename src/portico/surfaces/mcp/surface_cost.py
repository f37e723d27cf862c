"""What a surface costs: everything that a client reads from it before its first question."""

from __future__ import annotations

import orjson

from portico.domain.call import Caller
from portico.gateway import Gateway
from portico.scripting.session import Scripts
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.discover import surface as discover
from portico.surfaces.lua_gateway import surface as gateway_tools
from portico.surfaces.lua_gateway.surface import GatewaySurface
from portico.surfaces.search import surface as search
from portico.surfaces.static import Static


def surface_tokens(gateway: Gateway, surface: str = "discover", scripts: Scripts | None = None) -> int:
    """Tokens of the listed tools and of the instructions, as they go over the wire."""
    caller = Caller(surface=surface)
    if surface == "static":
        listed = [tool.definition for tool in gateway.listing(caller)]
        instructions = Static(gateway).instructions(caller)
    elif surface == "capabilities":
        shelves = Capabilities(gateway)
        listed, instructions = shelves.listed(caller), shelves.instructions(caller)
    elif surface == "gateway":
        listed, instructions = list(gateway_tools.DEFINITIONS), GatewaySurface(gateway, scripts).instructions(caller)
    else:
        plain = discover.Discover(gateway, scripts)
        own = search.DEFINITIONS if surface == "search" else plain.own
        listed = [*own, *(tool.definition for tool in gateway.pinned(caller))]
        shown = search.Search(gateway) if surface == "search" else plain
        instructions = shown.instructions(caller)
    return gateway.counter.count(orjson.dumps(listed).decode()) + gateway.counter.count(instructions)
