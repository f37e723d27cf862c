"""The `capabilities` surface: an inventory of all tools, one schema at a time, and direct calls by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from portico.catalog.categories_and_order import SHIPPED
from portico.catalog.naming import identifier
from portico.domain.call import Caller
from portico.domain.journal_entries import Look
from portico.domain.search_answers import AnswerSize
from portico.errors import CallError, InvalidArguments, NextCall, UnknownTool
from portico.rendering.cards import spell_call
from portico.results.own_blocks import own_block
from portico.surfaces.mcp.instructions import capabilities_text
from portico.surfaces.mcp.surface import Envelope, JsonObject, MetaTool, Surface, error_result, text_result
from portico.surfaces.static import listed_name

from .inventory import BUDGET, CAPABILITIES, TOOL_SCHEMA, InventoryAnswer, ToolRegistry, create_tool_registry

TOOL_KEYS = ("tool", "name", "tool_name")  # where models write the name of a tool


@dataclass(slots=True)
class Capabilities(Surface):
    """Lists two tools and the pins; every other tool is called by its name without being listed."""

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
        view = self.gateway.view(caller)
        categories = self.registry.seen_by(view).categories()
        inventory, schema = f"{self.prefix}{CAPABILITIES}", f"{self.prefix}{TOOL_SCHEMA}"
        return capabilities_text(len(view.tools), categories, inventory=inventory, schema=schema)

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The meta-tools, then the pins; waits for servers that are asked for the first time: the enum names all."""
        await self.gateway.wait_until_ready()
        return self.listed(caller)

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same without waiting; a pin under the name of a meta-tool is left out."""
        view = self.gateway.view(caller)
        own = self.registry.seen_by(view).definitions()
        taken = {definition["name"] for definition in own}
        return [*own, *(tool.definition for tool in view.pinned if tool.listed not in taken)]

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of inventory and schema."""
        return {f"{self.prefix}{CAPABILITIES}": self._capabilities, f"{self.prefix}{TOOL_SCHEMA}": self._schema}.get(
            name
        )

    @property
    def own(self) -> Sequence[JsonObject]:
        """Inventory and schema."""
        return self.registry.definitions()

    def spell(self, call: NextCall) -> str:
        """The next call: the tool itself, its schema, or the inventory."""
        if call.action == "call":
            name = listed_name(self.gateway, str(call.parameters.get("name", "")))
            return spell_call(name, call.parameters.get("arguments", {}))
        names = call.parameters.get("names")
        if call.action == "describe" and isinstance(names, list) and names:
            return spell_call(f"{self.prefix}{TOOL_SCHEMA}", {"tool": listed_name(self.gateway, str(names[0]))})
        category = call.parameters.get("category")
        return spell_call(f"{self.prefix}{CAPABILITIES}", {"category": category} if category else {})

    async def _capabilities(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        loading = await self.gateway.wait_until_ready()
        category, cursor = arguments.get("category"), arguments.get("cursor")
        asked = None if category in (None, "") else category if isinstance(category, str) else repr(category)

        def answer(registry: ToolRegistry) -> InventoryAnswer:
            told = "" if cursor is None else cursor if isinstance(cursor, str) else repr(cursor)  # which is no cursor
            return registry.capabilities(asked, cursor=told)

        result = self._answer(caller, Look.BROWSE, asked or "", answer)
        if loading and not result.get("isError"):
            result["content"].append(own_block(f"note: still starting: {', '.join(sorted(loading))}"))
        return result

    async def _schema(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        name = next((arguments[key] for key in TOOL_KEYS if arguments.get(key)), "")
        if not isinstance(name, str) or not name.strip():
            wanted = ("tool: must be the name of one tool, a string that is not empty",)
            error = InvalidArguments(f"{self.prefix}{TOOL_SCHEMA}", details=wanted, next_call=NextCall("search"))
            return self._refuse(error)
        await self.gateway.wait_until_ready()
        return self._answer(caller, Look.DESCRIBE, name, lambda registry: registry.schema(name))

    def _answer(
        self, caller: Caller, look: Look, text: str, make: Callable[[ToolRegistry], InventoryAnswer]
    ) -> dict[str, Any]:
        """An answer as text for models and as data for programs, written to the journal."""
        started, view = perf_counter(), self.gateway.view(caller)
        try:
            answer = make(self.registry.seen_by(view))
        except CallError as error:
            return self._refuse(error)
        told = AnswerSize(tokens=answer.tokens, shown=answer.shown, total=answer.total)
        self.gateway.record_lookup(view, look, text, told, since=started)
        return {**text_result(answer.text), "structuredContent": answer.as_data()}

    def _refuse(self, error: CallError) -> dict[str, Any]:
        for server, reason in self.gateway.unavailable().items() if isinstance(error, UnknownTool) else ():
            if identifier(error.subject).casefold().startswith(identifier(server).casefold()):
                error.add(f"the server {server!r} is not available: {reason}")
        told: dict[str, Any] = {"code": error.code, "subject": error.subject, "details": list(error.details)}
        if error.outcome:
            told["outcome"] = error.outcome
        if error.next_call is not None:
            told["next"] = self.spell(error.next_call)
        return {**error_result(error, self.spell), "structuredContent": {"error": told}}
