"""A server in the shape of seed 002's: fourteen tools in five categories, and two more that the surface adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from portico.domain.server import Offering
from portico.testing import FakeApplication, FakeProvider, parts_of
from portico.wiring import assemble

SERVER = "tana"
PREFIX = "tana_"
QUICK_ACTIONS = ("search: find nodes by text", "create: add a node")

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "query": ("tana_search", "tana_tagged", "tana_semantic_search", "tana_field_values"),
    "explore": ("tana_supertags", "tana_stats", "tana_supertag_info", "tana_node"),
    "transcript": ("tana_transcript_list", "tana_transcript_show", "tana_transcript_search"),
    "mutate": ("tana_create", "tana_sync"),
    "system": ("tana_cache_clear", "tana_capabilities", "tana_tool_schema"),
}
"""Which tool stands where; the last two are the surface's own."""
OWN = ("tana_capabilities", "tana_tool_schema")
NAMES = tuple(name for names in CATEGORIES.values() for name in names)

EXPLICIT = {f"{SERVER}.{name}": category for category, names in CATEGORIES.items() for name in names if name not in OWN}
"""The same as the config writes it."""


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _count(description: str, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "default": default, "description": description}


_WORKSPACE = _text("Workspace alias; the default workspace without one")
_LIMIT = _count("Most results", 20)
_SINCE = _text("Only nodes created after this date", format="date")


def _tool(name: str, description: str, example: str = "", needs: str = "", /, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {**properties, "workspace": _WORKSPACE}, "required": needs.split()}
    found = {"name": name, "description": description, "inputSchema": schema}
    return {**found, "_meta": {"example": example}} if example else found


_OUTPUT = {"type": "object", "properties": {"nodes": {"type": "array", "items": {"type": "object"}}}}
_FIELDS = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "description": "Values by name of the field",
}
_CHILD = {
    "type": "object",
    "properties": {"name": _text("Text of the child"), "children": {"type": "array", "items": {"type": "object"}}},
    "required": ["name"],
}

DEFINITIONS: tuple[dict[str, Any], ...] = (
    {
        **_tool(
            "tana_search",
            "Full-text search of nodes. Ranks by relevance, and understands quoted phrases.",
            "Find notes on project plans",
            "query",
            query=_text("Words or a quoted phrase"),
            limit=_LIMIT,
            created_after=_SINCE,
        ),
        "outputSchema": _OUTPUT,
    },
    _tool("tana_tagged", "Find nodes by supertag", "Show all todos", "tagname", tagname=_text("Name"), limit=_LIMIT),
    _tool(
        "tana_semantic_search",
        "Find nodes by meaning",
        "Notes like this idea",
        "query",
        query=_text("What it is about"),
        limit=_LIMIT,
        min_similarity={"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
    ),
    _tool(
        "tana_field_values",
        "Query values of fields",
        "",
        "mode",
        mode=_text("What to do", enum=["list", "query", "search"]),
        field=_text("Name of the field"),
        query=_text("Text in the values"),
    ),
    _tool("tana_supertags", "List supertags by use", "", limit=_LIMIT),
    _tool("tana_stats", "Count nodes, tags and fields"),
    _tool("tana_supertag_info", "Show fields and inheritance of a tag", "", "tagname", tagname=_text("Name")),
    _tool("tana_node", "Show a node with its children", "", "id", id=_text("Identifier"), depth=_count("Levels", 1)),
    _tool("tana_transcript_list", "List meetings with transcripts", "", limit=_LIMIT),
    _tool("tana_transcript_show", "Show a transcript", "", "meeting", meeting=_text("Identifier"), limit=_LIMIT),
    _tool("tana_transcript_search", "Search spoken words", "Who spoke of budgets", "query", query=_text("Words")),
    _tool(
        "tana_create",
        "Create a node with tags and fields",
        "Add a todo",
        "name",
        name=_text("Text of the node"),
        supertag=_text("Supertags, with commas between them"),
        fields=_FIELDS,
        children={"type": "array", "items": _CHILD, "description": "Nodes below it, as deep as you like"},
        target=_text("Where it goes: INBOX, SCHEMA or an identifier", default="INBOX"),
        dry_run={"type": "boolean", "default": False, "description": "Check it without sending it"},
    ),
    _tool("tana_sync", "Update the index", "", action=_text("What to do", enum=["index", "status"], default="index")),
    _tool("tana_cache_clear", "Clear cached data"),
)


def tana_app(*definitions: Mapping[str, Any], source: str = "local", **parts: Any) -> FakeApplication:
    """An application that offers these tools, or all of them; local ones are listed under their bare names."""
    tools = definitions or DEFINITIONS
    provider = FakeProvider(server=SERVER, source=source, tools=list(tools))
    application = assemble(parts_of(providers={SERVER: provider}, explicit_categories=EXPLICIT, **parts))
    application.gateway.publisher.accept([(Offering(server=SERVER, tools=tuple(tools)), source)])
    return FakeApplication(application.gateway, application.admin)
