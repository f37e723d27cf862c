"""The `capabilities` surface: an inventory of all tools, one schema at a time, and direct calls by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from portico.catalog.categories import SHIPPED
from portico.domain.call import Caller
from portico.domain.disclosure import Disclosure
from portico.domain.foreign_text import own_block
from portico.domain.journal import Look
from portico.domain.tool import identifier
from portico.errors import CallError, InvalidArguments, NextCall, UnknownTool
from portico.gateway import Gateway
from portico.rendering.cards import spelled
from portico.surfaces.mcp.meta_tools import error_result, text_result
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool, capabilities_text
from portico.surfaces.static import listed_name

from .inventory import BUDGET, CAPABILITIES, TOOL_SCHEMA, Answer, ToolRegistry, create_tool_registry

TOOL_KEYS = ("tool", "name", "tool_name")
"""Where models write the name of a tool."""


@dataclass(slots=True)
class Capabilities:
    """Lists two tools and the pins; every other tool is called by its name without being listed."""

    gateway: Gateway
    prefix: str = ""
    quick_actions: tuple[str, ...] = ()
    budget: int = BUDGET
    name: str = "capabilities"
    registry: ToolRegistry = field(init=False)

    def __post_init__(self) -> None:
        self.registry = create_tool_registry(
            self.gateway,
            caller=Caller(surface=self.name),
            prefix=self.prefix,
            quick_actions=self.quick_actions,
            budget=self.budget,
            shipped=SHIPPED,
            cache=self.gateway.answers,
        )

    def instructions(self, caller: Caller) -> str:
        """Names the categories within the first 512 characters, as many as fit."""
        tools = self.gateway.listing(caller)
        categories = self.registry.seen_by(caller).categories()
        inventory, schema = f"{self.prefix}{CAPABILITIES}", f"{self.prefix}{TOOL_SCHEMA}"
        return capabilities_text(len(tools), categories, inventory=inventory, schema=schema)

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The meta-tools, then the pins; waits for servers that are asked for the first time: the enum names all."""
        await self.gateway.wait_until_ready()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same without waiting; a pin under the name of a meta-tool is left out."""
        own = self.registry.seen_by(caller).definitions()
        taken = {definition["name"] for definition in own}
        return [*own, *(tool.definition for tool in self.gateway.pinned(caller) if tool.listed not in taken)]

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of inventory and schema."""
        return {f"{self.prefix}{CAPABILITIES}": self._capabilities, f"{self.prefix}{TOOL_SCHEMA}": self._schema}.get(
            name
        )

    def schema_of(self, name: str) -> JsonObject | None:
        """The schema of a meta-tool."""
        return next((d["inputSchema"] for d in self.registry.definitions() if d["name"] == name), None)

    def spell(self, call: NextCall) -> str:
        """The next call: the tool itself, its schema, or the inventory."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spelled(name, call.parameters.get("arguments", {}))
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return spelled(f"{self.prefix}{TOOL_SCHEMA}", {"tool": listed_name(self.gateway, str(names[0]))})
        category = call.parameters.get("category")
        return spelled(f"{self.prefix}{CAPABILITIES}", {"category": category} if category else {})

    async def _capabilities(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        loading = await self.gateway.wait_until_ready()
        category, cursor = arguments.get("category"), arguments.get("cursor")
        asked = None if category in (None, "") else category if isinstance(category, str) else repr(category)

        def answer() -> Answer:
            told = "" if cursor is None else cursor if isinstance(cursor, str) else repr(cursor)  # which is no cursor
            return self.registry.seen_by(caller).capabilities(asked, cursor=told)

        result = self._answered(caller, Look.BROWSE, asked or "", answer)
        if loading and not result.get("isError"):
            result["content"].append(own_block(f"note: still starting: {', '.join(sorted(loading))}"))
        return result

    async def _schema(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        name = next((arguments[key] for key in TOOL_KEYS if arguments.get(key)), "")
        if not isinstance(name, str) or not name.strip():
            wanted = ("tool: must be the name of one tool, a string that is not empty",)
            error = InvalidArguments(f"{self.prefix}{TOOL_SCHEMA}", details=wanted, next_call=NextCall("search"))
            return self._refused(error)
        await self.gateway.wait_until_ready()
        return self._answered(caller, Look.DESCRIBE, name, lambda: self.registry.seen_by(caller).schema(name))

    def _answered(self, caller: Caller, look: Look, text: str, make: Callable[[], Answer]) -> dict[str, Any]:
        """An answer as text for models and as data for programs, written to the journal."""
        started = perf_counter()
        try:
            answer = make()
        except CallError as error:
            return self._refused(error)
        told = Disclosure(text="", tokens=answer.tokens, shown=answer.shown, total=answer.total)
        self.gateway.record_lookup(caller, look, text, told, since=started)
        return {**text_result(answer.text), "structuredContent": answer.as_data()}

    def _refused(self, error: CallError) -> dict[str, Any]:
        """An error as text and as data."""
        for server, reason in self.gateway.unavailable().items() if isinstance(error, UnknownTool) else ():
            if identifier(error.subject).casefold().startswith(identifier(server).casefold()):
                error.add(f"the server {server!r} is not available: {reason}")
        told: dict[str, Any] = {"code": error.code, "subject": error.subject, "details": list(error.details)}
        if error.next_call is not None:
            told["next"] = self.spell(error.next_call)
        return {**error_result(error, self.spell), "structuredContent": {"error": told}}
