"""The four tiers of disclosure as MCP resources, `catalog://hot` and its siblings, and the guides of servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, unquote

from portico.discovery.paths import RESOURCES
from portico.discovery.tiers import LARGEST_PAGE, SMALLEST_BUDGET
from portico.domain.caller import Caller
from portico.domain.items import GUIDE, OWN_SCHEME, Item
from portico.domain.view import View
from portico.errors import CallError, InvalidArguments, UnknownItem
from portico.walk import Walk

from .surface import JsonObject

HOT, CATEGORIES = RESOURCES.hot, RESOURCES.categories
CATEGORY, TOOL = RESOURCES.any_category, RESOURCES.any_tool
ANY_GUIDE = GUIDE + "{server}"
JSON = "application/json"
MARKDOWN = "text/markdown"
COMPLETIONS = 100
"""Values in one answer, as MCP allows."""
SHOWN_LENGTH, DETAILS = 80, 5
"""Characters of a strange option that are repeated, and how many of them are."""
LARGEST_BUDGET = 1_000_000
LAST_PAGE = 999_999_999
_BUDGET = {"budget": (SMALLEST_BUDGET, LARGEST_BUDGET)}
_OPTIONS = {"page": (1, LAST_PAGE), "page_size": (1, LARGEST_PAGE), **_BUDGET}
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
    {
        "uriTemplate": ANY_GUIDE,
        "name": "guide",
        "title": "What a server says of itself",
        "description": "The instructions of one server",
        "mimeType": MARKDOWN,
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
            InvalidArguments: there is, and what follows its `?` cannot be; what can is told.
        """
        if uri.startswith(GUIDE):
            text = str(self._guide(uri).definition["text"])
            return {"contents": [{"uri": uri, "mimeType": MARKDOWN, "text": text}]}
        view = await self._found(uri, self.walk.as_resources())
        return {"contents": [{"uri": uri, "mimeType": JSON, "text": view.body.decode()}]}

    async def mark(self, uri: str) -> bytes:
        """What tells the resource as it is now from what it was; nobody has read it by this.

        Raises:
            UnknownItem: there is no such resource, or nothing of that name that the caller may see.
        """
        if uri.startswith(GUIDE):
            body = str(self._guide(uri).definition["text"]).encode("utf-8", "replace")
        else:
            body = (await self._found(uri, self.walk.as_resources(is_quiet=True))).body
        return blake2b(body, digest_size=12).digest()

    def complete(self, template: str, argument: JsonObject, context: object) -> JsonObject:
        """Names that begin with what was typed, among what the caller may see.

        Raises:
            UnknownItem: there is no such template.
        """
        if template not in (CATEGORY, TOOL, ANY_GUIDE):
            raise _unknown(template)
        typed = argument.get("value")
        typed = typed.casefold() if isinstance(typed, str) else ""
        names = self._names(template, argument.get("name"), context)
        found = sorted({name for spellings in names if (name := _beginning(spellings, typed))})
        shown = found[:COMPLETIONS]
        return {"completion": {"values": shown, "total": len(found), "hasMore": len(found) > len(shown)}}

    def _guide(self, uri: str) -> Item:
        found = self.walk.gateway.guide(self.caller, uri)
        if found is None:
            raise UnknownItem(uri, details=("no server of that name says something of itself",))
        return found

    async def _found(self, uri: str, walk: Walk) -> View:
        try:
            return await self._view(uri, walk)
        except InvalidArguments as error:
            raise InvalidArguments(uri, details=error.details) from error
        except UnknownItem:
            raise
        except CallError as error:
            raise UnknownItem(uri, details=error.details) from error

    async def _view(self, uri: str, walk: Walk) -> View:
        place, _, query = uri.partition("?")
        if place == HOT:
            return await walk.hot(self.caller, **_options(query, _BUDGET))
        if place == CATEGORIES:
            return await walk.categories(self.caller, **_options(query, _BUDGET))
        kind, *parts = [unquote(part) for part in place.removeprefix(f"{OWN_SCHEME}//").split("/")]
        if kind == "category" and len(parts) == 1:
            return await walk.category(self.caller, parts[0], **_options(query, _OPTIONS))
        if kind == "tool" and len(parts) >= 2:
            return await walk.tool(self.caller, parts[0], "/".join(parts[1:]), **_options(query, _BUDGET))
        raise _unknown(uri)

    def _names(self, template: str, argument: object, context: object) -> Iterator[tuple[str, ...]]:
        """What an argument can be, each in all spellings that are understood."""
        chosen = _chosen(context, "server").casefold()
        for tool in self.walk.gateway.listing(self.caller):
            if template == CATEGORY and argument == "name":
                yield (tool.category,)
            elif template in (TOOL, ANY_GUIDE) and argument == "server":
                yield self._spellings(tool.id.server)
            elif template == TOOL and argument == "tool" and (not chosen or self._is_called(tool.id.server, chosen)):
                yield (tool.id.name,)

    def _is_called(self, server: str, chosen: str) -> bool:
        return chosen in map(str.casefold, self._spellings(server))

    def _spellings(self, server: str) -> tuple[str, ...]:
        """A server by its name, its alias and its identifier."""
        gateway = self.walk.gateway
        return (server, gateway.editions.aliases.get(server, ""), gateway.edition.servers[server].identifier)


def is_ours(uri: str) -> bool:
    """Whether a URI has our scheme, in upper or lower case."""
    return uri.casefold().startswith(OWN_SCHEME)


def _options(query: str, allowed: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """What follows a `?`, in numbers.

    Raises:
        InvalidArguments: with what is allowed.
    """
    found: dict[str, Any] = {}
    wrong: list[str] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        low, high = allowed.get(name, (1, 0))
        is_number = value.isascii() and value.isdigit() and len(value) < 10
        if name not in allowed:
            wrong.append(f"{name[:SHOWN_LENGTH]!r} is not asked here; what may follow the `?`: {', '.join(allowed)}")
        elif name in found:
            wrong.append(f"{name} is given more than once")
        elif not is_number or not low <= int(value) <= high:
            wrong.append(f"{name} is a number from {low:,} to {high:,}, not {value[:SHOWN_LENGTH]!r}")
        else:
            found[name] = int(value)
    if wrong:
        raise InvalidArguments("?", details=wrong[:DETAILS])
    return found


def _beginning(spellings: Iterable[str], typed: str) -> str:
    """The first spelling that begins with what was typed; empty when none does."""
    return next((name for name in spellings if name and name.casefold().startswith(typed)), "")


def _chosen(context: object, name: str) -> str:
    """An argument that was filled in before."""
    arguments = context.get("arguments") if isinstance(context, Mapping) else None
    value = arguments.get(name) if isinstance(arguments, Mapping) else None
    return value if isinstance(value, str) else ""


def _unknown(uri: str) -> UnknownItem:
    known = ", ".join((HOT, CATEGORIES, CATEGORY, TOOL, ANY_GUIDE))
    return UnknownItem(uri, details=(f"what there is under {OWN_SCHEME}: {known}",))
