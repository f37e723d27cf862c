"""The four tiers of disclosure as MCP resources: `catalog://hot`, its siblings, and two templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, unquote

from portico.discovery.paths import RESOURCES
from portico.discovery.tiers import LARGEST_PAGE, SMALLEST_BUDGET
from portico.domain.caller import Caller
from portico.domain.items import OWN_SCHEME
from portico.domain.view import View
from portico.errors import CallError, UnknownItem
from portico.walk import Walk

from .surface import JsonObject

HOT, CATEGORIES = RESOURCES.hot, RESOURCES.categories
CATEGORY, TOOL = RESOURCES.any_category, RESOURCES.any_tool
JSON = "application/json"
COMPLETIONS = 100
"""Values in one answer, as MCP allows."""
LARGEST_BUDGET = 1_000_000
_OPTIONS = {"page": (1, 10**9), "page_size": (1, LARGEST_PAGE), "budget": (SMALLEST_BUDGET, LARGEST_BUDGET)}
"""What may follow a `?`, and from where to where."""

LISTED: tuple[JsonObject, ...] = (
    {
        "uri": HOT,
        "name": "hot",
        "title": "Hot tools",
        "description": "The tools that are used most and best, at most 15",
        "mimeType": JSON,
    },
    {
        "uri": CATEGORIES,
        "name": "categories",
        "title": "Categories of tools",
        "description": "All categories with how many tools they have",
        "mimeType": JSON,
    },
)
TEMPLATES: tuple[JsonObject, ...] = (
    {
        "uriTemplate": CATEGORY,
        "name": "category",
        "title": "Tools of a category",
        "description": "Summaries of the tools of one category; ?page=2 and ?page_size=50 lead on",
        "mimeType": JSON,
    },
    {
        "uriTemplate": TOOL,
        "name": "tool",
        "title": "One tool",
        "description": "Description, schema, examples and performance of one tool",
        "mimeType": JSON,
    },
)


@dataclass(slots=True)
class CatalogResources:
    """Answers what is asked of the scheme `catalog:`, which is ours whatever servers offer under it."""

    walk: Walk
    caller: Caller

    async def read(self, uri: str) -> JsonObject:
        """One of the four, as JSON.

        Raises:
            UnknownItem: there is no such resource, or nothing of that name that the caller may see.
        """
        view = await self._found(uri, self.walk.as_resources())
        return {"contents": [{"uri": uri, "mimeType": JSON, "text": view.body.decode()}]}

    async def mark(self, uri: str) -> bytes:
        """What tells the resource as it is now from what it was; nobody has read it by this.

        Raises:
            UnknownItem: there is no such resource, or nothing of that name that the caller may see.
        """
        view = await self._found(uri, self.walk.as_resources(is_quiet=True))
        return blake2b(view.body, digest_size=12).digest()

    def complete(self, template: str, argument: JsonObject, context: object) -> JsonObject:
        """Names that begin with what was typed, among what the caller may see.

        Raises:
            UnknownItem: there is no such template.
        """
        if template not in (CATEGORY, TOOL):
            raise _unknown(template)
        typed = argument.get("value")
        typed = typed.casefold() if isinstance(typed, str) else ""
        names = self._names(template, argument.get("name"), context)
        found = sorted({name for name in names if name.casefold().startswith(typed)})
        shown = found[:COMPLETIONS]
        return {"completion": {"values": shown, "total": len(found), "hasMore": len(found) > len(shown)}}

    async def _found(self, uri: str, walk: Walk) -> View:
        try:
            return await self._view(uri, walk)
        except UnknownItem:
            raise
        except CallError as error:
            raise UnknownItem(uri, details=error.details) from error

    async def _view(self, uri: str, walk: Walk) -> View:
        place, _, query = uri.partition("?")
        options = _options(query, uri)
        is_paged = bool(options.keys() - {"budget"})
        if place == HOT and not is_paged:
            return await walk.hot(self.caller, **options)
        if place == CATEGORIES and not is_paged:
            return await walk.categories(self.caller, **options)
        kind, *parts = [unquote(part) for part in place.removeprefix(f"{OWN_SCHEME}//").split("/")]
        if kind == "category" and len(parts) == 1:
            return await walk.category(self.caller, parts[0], **options)
        if kind == "tool" and len(parts) >= 2 and not is_paged:
            return await walk.tool(self.caller, parts[0], "/".join(parts[1:]), **options)
        raise _unknown(uri)

    def _names(self, template: str, argument: object, context: object) -> Iterable[str]:
        tools = self.walk.gateway.listing(self.caller)
        if template == CATEGORY:
            return (tool.category for tool in tools) if argument == "name" else ()
        if argument == "server":
            return (tool.id.server for tool in tools)
        server = _chosen(context, "server")
        return (tool.id.name for tool in tools if server in ("", tool.id.server)) if argument == "tool" else ()


def is_ours(uri: str) -> bool:
    """Whether a URI has our scheme, in upper or lower case."""
    return uri.casefold().startswith(OWN_SCHEME)


def _options(query: str, uri: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        low, high = _OPTIONS.get(name, (1, 0))
        is_number = value.isascii() and value.isdigit() and len(value) < 10
        if not is_number or not low <= int(value) <= high:
            raise _unknown(uri)
        found[name] = int(value)
    return found


def _chosen(context: object, name: str) -> str:
    """An argument that was filled in before."""
    arguments = context.get("arguments") if isinstance(context, Mapping) else None
    value = arguments.get(name) if isinstance(arguments, Mapping) else None
    return value if isinstance(value, str) else ""


def _unknown(uri: str) -> UnknownItem:
    known = ", ".join((HOT, CATEGORIES, CATEGORY, TOOL))
    return UnknownItem(uri, details=(f"what there is under {OWN_SCHEME}: {known}",))
