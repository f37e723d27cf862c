"""The `static` surface: every permitted tool, listed, with words by which a client that searches itself may find it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import time
from weakref import WeakKeyDictionary

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.call import Caller
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import day_of
from portico.errors import CallError, NextCall
from portico.gateway import Gateway
from portico.rendering.cards import spell_call
from portico.search.learned_words import hints
from portico.surfaces.mcp.instructions import static_text
from portico.surfaces.mcp.surface import JsonObject, Surface

HINT = "anthropic/searchHint"
"""The key under which clients that load definitions late read words that are compared with theirs."""


@dataclass(slots=True)
class Static(Surface):
    """Lists what the catalog holds, under listed names."""

    name: str = "static"
    _hints: WeakKeyDictionary[CatalogSnapshot, tuple[int, Mapping[ToolId, str]]] = field(
        default_factory=WeakKeyDictionary
    )
    """The day on which the hints of a snapshot were made, and these."""

    def instructions(self, caller: Caller) -> str:
        """Says how names are made."""
        return static_text(list(self.gateway.view(caller).facets.servers))

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """Every permitted definition; waits for servers that are being asked for the first time."""
        await self.gateway.wait_until_ready()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same without waiting."""
        view = self.gateway.view(caller)
        found = self._hints_of(view.snapshot)
        return [_hinted(tool, found[tool.id]) if tool.id in found else tool.definition for tool in view.tools]

    def _hints_of(self, snapshot: CatalogSnapshot) -> Mapping[ToolId, str]:
        """The hints of a snapshot; made once a day, since clients keep lists, and pay for each that is another."""
        if not self.gateway.learning:
            return {}
        now = time()
        day, found = self._hints.get(snapshot, (-1, {}))
        if day != day_of(now):
            found = hints(self.gateway.executor.journal.learned(), snapshot.tools.values(), now)
            self._hints[snapshot] = (day_of(now), found)
        return found

    def spell(self, call: NextCall) -> str:
        """The next call is the tool itself."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spell_call(name, call.parameters.get("arguments", {}))
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return f"call one of {', '.join(listed_name(self.gateway, str(name)) for name in names)}"
        return "tools/list"


def _hinted(tool: Tool, hint: str) -> JsonObject:
    """A definition with a hint of ours, unless its server gives one; nothing else of it changes."""
    meta = tool.definition.get("_meta", {})
    if not isinstance(meta, Mapping) or HINT in meta:
        return tool.definition
    return {**tool.definition, "_meta": {**meta, HINT: hint}}


def listed_name(gateway: Gateway, spelling: str) -> str:
    """The listed name of a tool that one of our own texts spells in another way."""
    snapshot = gateway.snapshot
    try:
        return snapshot.resolver.resolve(spelling, snapshot.tools.keys()).listed
    except CallError:
        return spelling
