"""The directory: which servers there are, the tools of one, and one tool in full, for callers who write scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from portico.domain.call import Caller
from portico.domain.disclosure import Disclosure, Level
from portico.domain.journal import Look
from portico.domain.names import server_identifier
from portico.domain.section import Chapter, pairs
from portico.domain.server import Server
from portico.domain.tool import Tool, ToolId
from portico.errors import NextCall, UnknownServer, UnknownTool
from portico.gateway import Gateway
from portico.rendering.budget import Rungs, fair, fit
from portico.rendering.lua import (
    BRIEF,
    FAILED,
    INSTRUCTIONS,
    details,
    example,
    failed_lines,
    lua_name,
    server_lines,
    tool_line,
)
from portico.rendering.summaries import first_sentence

SERVERS_TOKENS = 3_000
TOOLS_TOKENS = 4_000
TOOLS_LISTED = TOOLS_TOKENS // 5
"""Tools of which a list is made; no more would fit, whatever they are called."""
DETAILS_TOKENS = 6_000
NAMED = 10
"""Identifiers that an error names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer: a text for models, and the same as data for programs."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Directory:
    """Answers within what a caller may see; a server without a visible tool is not there."""

    gateway: Gateway

    def shelves(self, caller: Caller) -> dict[str, list[Tool]]:
        """The visible tools of each server that has some, by the server's identifier."""
        edition = self.gateway.edition
        visible = self.gateway.policy.visible(caller, edition)
        found = {chapter.server.identifier: _seen(chapter, visible) for chapter in edition.chapters.values()}
        return {identifier: tools for identifier, tools in found.items() if tools}

    def servers(self, caller: Caller, starting: Sequence[str] = ()) -> Page:
        """Every server with its identifier, and what it says of itself; one that cannot be reached is named too."""
        since = perf_counter()
        shelves = self.shelves(caller)
        known = [s for s in self.gateway.edition.servers.values() if s.identifier in shelves]
        failed = {name: self._identifier(name) for name in self.gateway.unavailable()}
        cards = [*map(server_lines, known), *(failed_lines(name, lua) for name, lua in failed.items())]
        told = self._fit(
            fair(cards, SERVERS_TOKENS, self.gateway.counter),
            SERVERS_TOKENS,
            head="Available MCP Servers:",
            tail=f"Still starting: {', '.join(sorted(starting))}" if starting else "",
            separator="\n\n",
        )
        self.gateway.looked(caller, Look.BROWSE, "", told, since=since)
        shown = {card.handle: card.level for card in told.cards}
        rows = [_server_row(s, len(shelves[s.identifier]), shown[s.identifier]) for s in known if s.identifier in shown]
        rows += [{"name": n, "luaName": lua, "status": FAILED} for n, lua in failed.items() if lua in shown]
        text = told.text if cards else "No MCP servers are available."
        return Page(text=text, data={"servers": rows, **_left(told)})

    def tools(self, caller: Caller, server: str, cursor: str = "") -> Page:
        """The tools of one server, a line each; `cursor` is the identifier of the tool to begin with.

        Raises:
            UnknownServer: no such server; those that there are are named.
        """
        since = perf_counter()
        found, tools = self.shelf(caller, server)
        start = next((place for place, tool in enumerate(tools) if lua_name(tool) == cursor), 0)
        told = self._listed(found, tools, start)
        self.gateway.looked(caller, Look.BROWSE, found.name, told, since=since)
        levels = {card.handle: card.level for card in told.cards}
        rows = [_tool_row(tool, levels[tool.handle]) for tool in tools[start:] if tool.handle in levels]
        data = {"server": found.name, "luaServerName": found.identifier, "tools": rows, **_left(told)}
        return Page(text=told.text, data=data)

    def details(self, caller: Caller, server: str, name: str, returns: Mapping[str, Any] | None = None) -> Page:
        """One tool in full; `returns` is what is known of its answers where it declares nothing.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        since = perf_counter()
        tool = self.tool(caller, server, name)
        known = tool.output_schema or returns
        card = details(tool, known)
        told = self._fit([card], DETAILS_TOKENS, separator="\n")
        self.gateway.looked(caller, Look.DESCRIBE, tool.handle, told, since=since)
        text = told.text
        if told.cards and told.cards[0].text != card.card(0).text:
            text += f"\n\n{_shortened(tool)}"
        return Page(text=text, data=self._details_data(tool, known))

    def shelf(self, caller: Caller, name: str) -> tuple[Server, list[Tool]]:
        """A server by its identifier or its own name, and the visible tools of it.

        Raises:
            UnknownServer: no such server; those that there are are named.
        """
        edition = self.gateway.edition
        visible = self.gateway.policy.visible(caller, edition)
        for chapter in edition.chapters.values():
            if name.strip() in (chapter.server.identifier, chapter.server.name) and (tools := _seen(chapter, visible)):
                return chapter.server, tools
        raise self._unknown_server(name, list(self.shelves(caller)))

    def tool(self, caller: Caller, server: str, name: str) -> Tool:
        """A tool by the identifiers of its server and its own.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        found, tools = self.shelf(caller, server)
        own = {tool.id: tool for tool in tools}
        spelling = f"{found.identifier}.{name.strip()}"
        try:
            return self.gateway.edition.resolver.resolve(spelling, own.keys())
        except UnknownTool:
            raise self._unknown_tool(found, spelling, own) from None

    def _unknown_server(self, name: str, known: list[str]) -> UnknownServer:
        away = self.gateway.unavailable()
        if name.strip() in (*away, *map(self._identifier, away)):
            return UnknownServer(f"the server {name!r} cannot be used now: {FAILED}")
        alike = {identifier: _alikeness(identifier, name) for identifier in known}
        near = sorted(known, key=lambda identifier: (-alike[identifier], identifier))
        return UnknownServer(f"no server has the Lua name {name[:100]!r}; available: {_some(near) or 'none'}")

    def _unknown_tool(self, server: Server, spelling: str, own: Mapping[ToolId, Tool]) -> UnknownTool:
        near = self.gateway.edition.resolver.near(spelling, own.keys(), limit=NAMED)
        others = [tool for tool in own.values() if tool not in near]
        names = _some([lua_name(tool) for tool in (*near, *others)])
        return UnknownTool(
            spelling[:200],
            details=(f"tools of {server.identifier}: {names}",),
            next_call=NextCall("browse", {"server": server.identifier}),
        )

    def _listed(self, server: Server, tools: Sequence[Tool], start: int) -> Disclosure:
        """The tools from one on, as many as fit; when some do not, the last line is the call that shows them."""
        head = f"Tools for {server.name}:\n"
        rest = tools[start:]
        cards = [tool_line(tool) for tool in rest[:TOOLS_LISTED]]
        told = self._fit(cards, TOOLS_TOKENS, head=head, total=len(rest))
        shown = told.shown
        while 0 < shown < len(rest):
            call = {"luaServerName": server.identifier, "cursor": lua_name(rest[shown])}
            tail = f"{len(rest) - shown} more: list-server-tools({orjson.dumps(call).decode()})"
            told = self._fit(cards[:shown], TOOLS_TOKENS, head=head, tail=tail, total=len(rest))
            if told.shown == shown:
                break
            shown = told.shown
        return told

    def _fit(self, cards: Sequence[Rungs], tokens: int, **around: Any) -> Disclosure:
        return fit(cards, tokens=tokens, counter=self.gateway.counter, **around)

    def _details_data(self, tool: Tool, returns: Mapping[str, Any] | None) -> dict[str, Any]:
        """A tool as data; schemas that would cost more than the text may are left out."""
        data: dict[str, Any] = {
            "name": tool.id.name,
            "luaName": lua_name(tool),
            "handle": tool.handle,
            "effect": str(tool.effect),
            "example": example(tool, optional=False),
        }
        room = DETAILS_TOKENS
        for key, value in (("inputSchema", tool.input_schema), ("outputSchema", returns)):
            cost = self.gateway.counter.count(orjson.dumps(value).decode()) if value else 0
            if value and cost <= room:
                data[key], room = value, room - cost
            elif value:
                data["truncated"] = True
        return data

    def _identifier(self, name: str) -> str:
        """How a server that nothing is known of would be called in scripts."""
        return server_identifier(self.gateway.editions.aliases.get(name) or name)


def _seen(chapter: Chapter, visible: Set[ToolId]) -> list[Tool]:
    return [tool for id, tool in chapter.tools.items() if id in visible]


def _server_row(server: Server, tools: int, level: Level) -> dict[str, Any]:
    row: dict[str, Any] = {"name": server.name, "luaName": server.identifier, "tools": tools}
    if server.version:
        row["version"] = server.version
    if server.description and level > Level.NAME:
        row["description"] = server.description if level > Level.SUMMARY else first_sentence(server.description, BRIEF)
    if server.instructions and level is Level.FULL:
        row["instructions"] = server.instructions.strip()[:INSTRUCTIONS]
    return row


def _tool_row(tool: Tool, level: Level) -> dict[str, Any]:
    row = {"name": tool.id.name, "luaName": lua_name(tool)}
    if level > Level.NAME and (about := first_sentence(tool.description, BRIEF)):
        row["description"] = about
    return row


def _left(told: Disclosure) -> dict[str, Any]:
    return {"truncated": True, "shown": told.shown, "total": told.total} if told.truncated else {}


def _shortened(tool: Tool) -> str:
    script = f'result(_gateway.describe("{tool.handle}"):await())'
    return f"(shortened to fit; whole: execute({orjson.dumps({'script': script}).decode()}))"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _alikeness(identifier: str, name: str) -> float:
    """How many pairs of letters two names share, of those that they have."""
    one, other = set(pairs(identifier.casefold())), set(pairs(name[:100].casefold()))
    return 2 * len(one & other) / (len(one) + len(other))
