"""The `discover` surface: search, describe, call, read on, script; every other tool is found, not listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.catalog.naming import SEPARATORS
from portico.catalog.view import CatalogView
from portico.domain.call import Caller
from portico.domain.search_answers import Query
from portico.errors import CallError, InvalidArguments, NextCall
from portico.gateway import SEARCH_CARDS_LIMIT
from portico.rendering.cards import as_meta_tool
from portico.scripting.script_session import ScriptRunner
from portico.surfaces.mcp.instructions import (
    CALL,
    DESCRIBE,
    READ,
    RUN,
    SEARCH,
    TOOLS,
    definitions,
    discover_text,
)
from portico.surfaces.mcp.surface import (
    Envelope,
    JsonObject,
    MetaTool,
    Surface,
    as_words,
    call_tool,
    error_result,
    read_filters,
    read_result,
    run_script,
    text_result,
)
from portico.text.untrusted import one_line

DEFINITIONS: tuple[JsonObject, ...] = TOOLS
NAMES_READ, NAMES_LETTERS = 1_000, 100_000
"""Names to describe that are read, and letters of them where they are written as one text."""


@dataclass(slots=True)
class Discover(Surface):
    """Lists a few tools and the pins, whatever the catalog holds; no scripts, no tool that runs them."""

    scripts: ScriptRunner | None = None
    name: str = "discover"

    def instructions(self, caller: Caller) -> str:
        """Names the servers within the first 512 characters, as many as fit."""
        tools = self.gateway.view(caller).tools
        servers = sorted({tool.handle.split(".", 1)[0] for tool in tools})
        return discover_text(len(tools), servers, scripts=self.scripts is not None)

    @property
    def own(self) -> tuple[JsonObject, ...]:
        """The definitions of the meta-tools that there are."""
        return definitions(scripts=self.scripts is not None)

    def meta_tool(self, name: str) -> MetaTool | None:
        """One of those that are listed before the pins."""
        own: dict[str, MetaTool] = {
            SEARCH: self._search,
            DESCRIBE: self._describe,
            CALL: self._call,
            READ: lambda caller, arguments, envelope: read_result(self.gateway, caller, arguments),
            RUN: lambda caller, arguments, envelope: run_script(self.scripts, caller, RUN, arguments, self.spell),
        }
        return own.get(name)

    def spell(self, call: NextCall) -> str:
        """The next call as a call of a meta-tool."""
        return as_meta_tool(call)

    async def _search(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        loading = await self.gateway.wait_until_ready()
        query = _query(arguments)
        await self.gateway.prefetch_embedding(query.text)
        try:
            text = self.gateway.search(caller, query).text
        except CallError as error:
            return error_result(error, self.spell)
        if loading:
            text += f"\nstill starting: {', '.join(sorted(loading))}"
        return text_result(text)

    async def _describe(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        names = _names(arguments)
        if not names:
            call = NextCall("describe", {"names": ["server.tool"]})
            missing = InvalidArguments(DESCRIBE, details=("missing: names (string[])",), next_call=call)
            return error_result(missing, self.spell)
        await self.gateway.wait_until_ready()
        try:
            return text_result(self.gateway.describe(caller, names).text)
        except CallError as error:
            return error_result(error, self.spell)

    async def _call(self, caller: Caller, arguments: JsonObject, envelope: Envelope) -> JsonObject:
        return await call_tool(
            self.gateway,
            caller,
            arguments,
            envelope,
            self.spell,
            tool=CALL,
            key="name",
            example="server.tool",
            notes_on=_teach_spelling,
        )


def _teach_spelling(view: CatalogView, name: str) -> list[str]:
    """A line that teaches the handle to a model which spelled it in another way that is understood.

    A tool whose name is no identifier may be called by that name, letter by letter.
    """
    tool = view.find(name)
    if tool is None or tool.handle == name:
        return []
    server, _, identifier = tool.handle.partition(".")
    own = {f"{each}{mark}{tool.name}" for each in (tool.id.server, server) for mark in SEPARATORS}
    if tool.name != identifier and name in {tool.name, *own}:
        return []
    return [f"{one_line(name)} is spelled {tool.handle} here"]


def _query(arguments: JsonObject) -> Query:
    return replace(
        read_filters(arguments),
        text=as_words(arguments.get("query", arguments.get("q", ""))),
        limit=_limit(arguments.get("limit")),
        cursor=as_words(arguments.get("cursor")),
    )


def _limit(value: object) -> int:
    try:
        return max(1, min(SEARCH_CARDS_LIMIT, int(str(value)))) if value is not None else 0
    except ValueError:
        return 0


def _names(arguments: JsonObject) -> list[str]:
    """The names to describe: a list, a JSON list in a string, or names with commas between them."""
    value: Any = next((arguments[key] for key in ("names", "name", "tools", "tool") if key in arguments), [])
    if isinstance(value, str):
        value = value[:NAMES_LETTERS]
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
        except (ValueError, RecursionError):
            value = value.strip("[] ").split(",")
    if not isinstance(value, list):
        return []
    found = [part.get("name") if isinstance(part, Mapping) else part for part in value[:NAMES_READ]]
    return [text.strip().strip("\"'") for text in found if isinstance(text, str) and text.strip()]
