"""The `static` surface: every permitted tool, listed."""

from __future__ import annotations

from dataclasses import dataclass

from portico.domain.call import Caller
from portico.errors import CallError, NextCall
from portico.gateway import Gateway
from portico.rendering.cards import spell_call
from portico.surfaces.mcp.instructions import static_text
from portico.surfaces.mcp.surface import JsonObject, Surface


@dataclass(slots=True)
class Static(Surface):
    """Lists what the catalog holds, under listed names."""

    name: str = "static"

    def instructions(self, caller: Caller) -> str:
        """Says how names are made."""
        return static_text(list(self.gateway.view(caller).facets.servers))

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """Every permitted definition; waits for servers that are being asked for the first time."""
        await self.gateway.wait_until_ready()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same without waiting."""
        return [tool.definition for tool in self.gateway.view(caller).tools]

    def spell(self, call: NextCall) -> str:
        """The next call is the tool itself."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spell_call(name, call.parameters.get("arguments", {}))
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return f"call one of {', '.join(listed_name(self.gateway, str(name)) for name in names)}"
        return "tools/list"


def listed_name(gateway: Gateway, spelling: str) -> str:
    """The listed name of a tool that one of our own texts spells in another way."""
    snapshot = gateway.snapshot
    try:
        return snapshot.resolver.resolve(spelling, snapshot.tools.keys()).listed
    except CallError:
        return spelling
