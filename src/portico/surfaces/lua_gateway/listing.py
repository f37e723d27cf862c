"""Servers, their tools, and one tool with an example that runs, for those who write scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import orjson

from portico.catalog.naming import server_identifier
from portico.catalog.view import CatalogView
from portico.domain.journal_entries import Look
from portico.domain.search_answers import Disclosure, Level
from portico.domain.server import Server
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Tool, ToolId
from portico.errors import NextCall, UnknownServer, UnknownTool
from portico.gateway import Gateway
from portico.rendering.budget import Variants, balance, fit
from portico.rendering.cards import (
    CHOICES_SHOWN,
    argument_fields,
    as_json_text,
    example_arguments,
    example_value,
    first_sentence,
    follow,
    object_fields,
    type_text,
)
from portico.scripting.script_session import as_lua, lua_key, lua_name
from portico.text.untrusted import fence, one_line

SERVERS_TOKENS = 3_000
TOOLS_TOKENS = 4_000
TOOLS_LISTED = TOOLS_TOKENS // 5  # tools of which a list is made; no more would fit, whatever they are called
DETAILS_TOKENS = 6_000
NAMED = 10  # identifiers that an error names
FAILED = "Connection failed"  # all that is said of a server that could not be asked: the reason is for operators
BRIEF = 200  # characters of a description where it is one line
SHORT = 80
INSTRUCTIONS = 2_000  # characters of a server's own instructions that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingPage:
    """One answer: a text for models, and the same as data for programs."""

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerListing:
    """Answers within what a caller may see; a server without a visible tool is not there."""

    gateway: Gateway

    def servers(self, view: CatalogView, starting: Sequence[str] = ()) -> ListingPage:
        """Every server with its identifier, and what it says of itself; one that cannot be reached is named too."""
        since, counts = perf_counter(), view.facets.servers
        known = [server for name, server in view.snapshot.servers.items() if name in counts]
        failed = {name: self._identifier(name) for name in self.gateway.unavailable()}
        cards = [*map(_server_lines, known), *(_failed_lines(name, lua) for name, lua in failed.items())]
        told = self._fit(
            balance(cards, SERVERS_TOKENS, self.gateway.counter),
            SERVERS_TOKENS,
            head="Available MCP Servers:",
            tail=f"Still starting: {', '.join(sorted(starting))}" if starting else "",
            separator="\n\n",
        )
        self.gateway.record_lookup(view, Look.BROWSE, "", told, since=since)
        shown = {card.handle: card.level for card in told.cards}
        rows = [_server_row(s, counts[s.name], shown[s.identifier]) for s in known if s.identifier in shown]
        rows += [{"name": n, "luaName": lua, "status": FAILED} for n, lua in failed.items() if lua in shown]
        text = told.text if cards else "No MCP servers are available."
        return ListingPage(text=text, data={"servers": rows, **_left(told)})

    def tools(self, view: CatalogView, server: str, cursor: str = "") -> ListingPage:
        """The tools of one server, a line each; `cursor` is the identifier of the tool to begin with.

        Raises:
            UnknownServer: no such server; those that there are are named.
        """
        since = perf_counter()
        found, tools = self._server(view, server)
        start = next((place for place, tool in enumerate(tools) if lua_name(tool) == cursor), 0)
        told = self._fit_tools(found, tools[start:])
        self.gateway.record_lookup(view, Look.BROWSE, found.name, told, since=since)
        levels = {card.handle: card.level for card in told.cards}
        rows = []
        for tool in tools[start:]:
            if tool.handle in levels:
                about = first_sentence(tool.description, BRIEF) if levels[tool.handle] > Level.NAME else ""
                row = {"name": tool.name, "luaName": lua_name(tool)}
                rows.append({**row, "description": about} if about else row)
        data = {"server": found.name, "luaServerName": found.identifier, "tools": rows, **_left(told)}
        return ListingPage(text=told.text, data=data)

    def details(self, view: CatalogView, server: str, name: str) -> ListingPage:
        """One tool in full, with the learned shape of its results where it declares none.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        since = perf_counter()
        tool = self.tool(view, server, name)
        known = tool.output_schema or self.gateway.executor.learned_schemas.shape_of(tool)
        card = _details(tool, known)
        told = self._fit([card], DETAILS_TOKENS)
        self.gateway.record_lookup(view, Look.DESCRIBE, tool.handle, told, since=since)
        text = told.text
        if told.cards and told.cards[0].text != card.card(0).text:
            script = f'result(_gateway.describe("{tool.handle}"):await())'
            text += f"\n\n(shortened to fit; whole: execute({orjson.dumps({'script': script}).decode()}))"
        return ListingPage(text=text, data=self._details_data(tool, known))

    def tool(self, view: CatalogView, server: str, name: str) -> Tool:
        """A tool by the identifiers of its server and its own.

        Raises:
            UnknownServer: no such server; those that there are are named.
            UnknownTool: the server has no such tool; those that it has are named.
        """
        found, tools = self._server(view, server)
        own = {tool.id: tool for tool in tools}
        spelling = f"{found.identifier}.{name.strip()}"
        try:
            return view.tool(spelling, own.keys())
        except UnknownTool:
            raise self._unknown_tool(found, spelling, own) from None

    def _server(self, view: CatalogView, name: str) -> tuple[Server, list[Tool]]:
        """A server by its identifier or its own name, and the visible tools of it."""
        wanted = name.strip()
        for section in view.snapshot.sections.values():
            if wanted in (section.server.identifier, section.server.name):
                tools = [tool for id, tool in section.tools.items() if id in view.visible]
                if tools:
                    return section.server, tools
        away = self.gateway.unavailable()
        if wanted in (*away, *map(self._identifier, away)):
            raise UnknownServer(f"the server {name!r} cannot be used now: {FAILED}")
        known = sorted(view.snapshot.servers[server].identifier for server in view.facets.servers)
        near = nearest_names(name, known, len(known), cutoff=0)
        raise UnknownServer(f"no server has the Lua name {name[:100]!r}; available: {_some(near) or 'none'}")

    def _unknown_tool(self, server: Server, spelling: str, own: Mapping[ToolId, Tool]) -> UnknownTool:
        near = self.gateway.snapshot.resolver.near(spelling, own.keys(), limit=NAMED)
        others = [tool for tool in own.values() if tool not in near]
        names = _some([lua_name(tool) for tool in (*near, *others)])
        return UnknownTool(
            spelling[:200],
            details=(f"tools of {server.identifier}: {names}",),
            next_call=NextCall("browse", {"server": server.identifier}),
        )

    def _fit_tools(self, server: Server, tools: Sequence[Tool]) -> Disclosure:
        """As many tools as fit; when some do not, the last line is the call that shows them."""
        head, tail = f"Tools for {server.name}:\n", ""
        cards = [_tool_line(tool) for tool in tools[:TOOLS_LISTED]]
        while True:
            told = self._fit(cards, TOOLS_TOKENS, head=head, tail=tail, total=len(tools))
            if told.shown in (0, len(tools)) or (tail and told.shown == len(cards)):
                return told
            cards = cards[: told.shown]
            call = {"luaServerName": server.identifier, "cursor": lua_name(tools[told.shown])}
            tail = f"{len(tools) - told.shown} more: list-server-tools({orjson.dumps(call).decode()})"

    def _fit(self, cards: Sequence[Variants], tokens: int, **around: Any) -> Disclosure:
        return fit(cards, tokens=tokens, counter=self.gateway.counter, **around)

    def _details_data(self, tool: Tool, returns: Mapping[str, Any] | None) -> dict[str, Any]:
        """A tool as data; schemas that would cost more than the text may are left out."""
        data: dict[str, Any] = {
            "name": tool.name,
            "luaName": lua_name(tool),
            "handle": tool.handle,
            "effect": str(tool.effect),
            "example": example_script(tool, optional=False),
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
        return server_identifier(self.gateway.publisher.aliases.get(name) or name)


def _server_row(server: Server, tools: int, level: Level) -> dict[str, Any]:
    row: dict[str, Any] = {"name": server.name, "luaName": server.identifier, "tools": tools}
    if server.version:
        row["version"] = server.version
    if server.description and level > Level.NAME:
        row["description"] = server.description if level > Level.SUMMARY else first_sentence(server.description, BRIEF)
    if server.instructions and level is Level.FULL:
        row["instructions"] = server.instructions.strip()[:INSTRUCTIONS]
    return row


def _left(told: Disclosure) -> dict[str, Any]:
    return {"truncated": True, "shown": told.shown, "total": told.total} if told.truncated else {}


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _server_lines(server: Server) -> Variants:
    head = f"## {server.name} (Lua: {server.identifier})"
    about = one_line(server.description or ("" if server.title.casefold() == server.name.casefold() else server.title))
    version = f"Version: {one_line(server.version)}" if server.version else ""
    told = server.instructions.strip()
    told = told if len(told) <= INSTRUCTIONS else f"{told[:INSTRUCTIONS].rsplit(' ', 1)[0]}…"
    # On the line of the label, or fenced below it.
    beside = f" {one_line(told)}" if len(told.splitlines()) == 1 else f"\n{fence(told)}"
    instructions = f"Instructions:{beside}" if told else ""
    return Variants(
        handle=server.identifier,
        texts=(
            (Level.FULL, _join(head, fence(about), version, instructions)),
            (Level.PARAMETERS, _join(head, fence(about), version)),
            (Level.SUMMARY, _join(head, fence(first_sentence(about, SHORT)), version)),
            (Level.NAME, head),
        ),
    )


def _failed_lines(name: str, identifier: str) -> Variants:
    head = f"## {name} (Lua: {identifier})"
    return Variants(handle=identifier, texts=((Level.SUMMARY, f"{head}\n{FAILED}"), (Level.NAME, f"{head} {FAILED}")))


def _tool_line(tool: Tool) -> Variants:
    head = f"- {tool.name} (Lua: {lua_name(tool)})"
    text = tool.description or tool.title
    return Variants(
        handle=tool.handle,
        texts=(
            (Level.SUMMARY, lambda: _label(head, first_sentence(text, BRIEF))),
            (Level.SUMMARY, lambda: _label(head, first_sentence(text, SHORT))),
            (Level.NAME, head),
            (Level.NAME, f"- {lua_name(tool)}"),
        ),
    )


DEPTH = 3  # objects inside objects whose fields are told line by line

_PLAIN_ROOT = frozenset({"type", "properties", "required", "title", "description", "additionalProperties", "$schema"})
_PLAIN_FIELD = frozenset({"type", "title", "description", "default", "enum", "const", "items"})


def _details(tool: Tool, returns: Mapping[str, Any] | None = None) -> Variants:
    """A tool in full: description, parameters, and an example that runs; `returns` is what is known of its answers."""
    head = f"## {tool.name}"

    def text(words: int | None, *more: str, depth: int = DEPTH, description: str, optional: bool = True) -> str:
        lines = list(_fields(tool.input_schema, tool.input_schema, words, depth))
        parameters = "### Parameters\n\n" + ("\n".join(lines) or "None")
        usage = f"### Example Usage\n\n{example_script(tool, optional=optional)}"
        return _join(head, fence(description), parameters, *more, usage, separator="\n\n")

    def whole() -> str:
        schema = "" if _is_plain(tool.input_schema) else f"### Input Schema\n\n{as_json_text(tool.input_schema)}"
        output = f"### Returns\n\n{as_json_text(returns)}" if returns else ""
        return text(None, schema, output, description=tool.description)

    def brief(words: int, length: int) -> str:
        return text(words, depth=1, description=first_sentence(tool.description, length), optional=False)

    return Variants(
        handle=tool.handle,
        texts=(
            (Level.FULL, whole),
            (Level.FULL, lambda: text(None, description=tool.description)),
            (Level.PARAMETERS, lambda: brief(SHORT, BRIEF)),
            (Level.PARAMETERS, lambda: brief(0, SHORT)),
            (Level.NAME, head),
        ),
    )


def _fields(schema: Mapping[str, Any], root: Mapping[str, Any], words: int | None, depth: int) -> Iterator[str]:
    """Every field on a line of its own, those of an object inside it below it."""
    found = object_fields(schema, root)
    for name in dict.fromkeys((*found.required, *found.fields)):
        field = found.fields.get(name)
        told = _follow(field, root)
        need = "required" if name in found.required else "optional"
        default = f", default {as_json_text(told['default'])}" if told.get("default") is not None else ""
        shown = name if name.isprintable() else as_json_text(name)
        text = told.get("description")
        text = text if isinstance(text, str) and words != 0 else ""
        about = one_line(text) if words is None else first_sentence(text, words)
        # A type in a word where its fields follow below, else in as few characters as it takes.
        inner, mark = (_follow(told["items"], root), "[]") if isinstance(told.get("items"), Mapping) else (told, "")
        kind = (
            "object" if "properties" in told else f"object{mark}" if "properties" in inner else type_text(field, root)
        )
        yield _label(f"- {shown} ({kind}, {need}{default})", about)
        if depth > 1 and "properties" in inner:
            yield from (f"  {line}" for line in _fields(inner, root, words, depth - 1))


def _follow(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    return follow(schema, root) if isinstance(schema, Mapping) else {}


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether the list of parameters says all that the schema says."""
    fields = schema.get("properties")
    inner = fields.values() if isinstance(fields, Mapping) else ()
    return schema.keys() <= _PLAIN_ROOT and all(map(_is_plain_field, inner))


def _is_plain_field(field: object) -> bool:
    if not isinstance(field, Mapping) or not field.keys() <= _PLAIN_FIELD:
        return False
    items, choices = field.get("items", {"type": "string"}), field.get("enum", ())
    is_simple = isinstance(items, Mapping) and items.keys() <= {"type", "title"} and len(choices) <= CHOICES_SHOWN
    return is_simple and isinstance(field.get("type", "any"), str)


NUMBER = 42  # stands for a number of which nothing is known
_OWN = ("const", "examples", "enum", "default", "minimum", "exclusiveMinimum", "multipleOf")
"""Keywords by which a schema says its own values; a placeholder is none of them."""


def example_script(tool: Tool, *, optional: bool = True) -> str:
    """A script that runs as it is: every required parameter with a value of its type, the others behind comments."""
    found, root = argument_fields(tool), tool.input_schema
    made = example_arguments(tool)
    if made is None:
        made = {name: example_value(found.fields.get(name), root) for name in found.required}

    def field(name: str) -> str:
        schema = found.fields.get(name)
        value = made[name] if name in made else example_value(schema, root)
        return f"{lua_key(name)} = {as_lua(_placeholder(schema, root, value))}"

    needed = [field(name) for name in made]
    spare = [f"-- {field(name)}," for name in found.fields if name not in made] if optional else []
    if not needed and not spare:
        return f"local res = {tool.handle}({{}}):await()\nresult(res)"
    lines = [f"{text}," for text in needed[:-1]] + [f"{text}{',' if spare else ''}" for text in needed[-1:]] + spare
    inner = "\n".join(f"  {line}" for line in lines)
    return f"local res = {tool.handle}({{\n{inner}\n}}):await()\nresult(res)"


def _placeholder(schema: object, root: Mapping[str, Any], value: Any) -> Any:
    """A value of a parameter; a number of which nothing is known is one that looks like a placeholder."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(schema, Mapping):
        return value
    told = follow(schema, root)
    highest = told.get("maximum", told.get("exclusiveMaximum", NUMBER + 1))
    is_free = told.keys().isdisjoint(_OWN) and isinstance(highest, int | float) and highest > NUMBER
    return NUMBER if is_free else value


def _join(*parts: str, separator: str = "\n") -> str:
    return separator.join(part for part in parts if part)


def _label(head: str, text: str) -> str:
    return f"{head}: {text}" if text else head
