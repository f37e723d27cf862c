"""What servers offer beside tools: prompts, resources, templates, and what they say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import quote, unquote

from portico.errors import NextCall, UnknownItem

from .names import distinct, listable
from .server import Server

PREFIX = "portico://"
"""Begins the URI of a resource whose own URI another server has too, or that would look like one of ours."""
OWN_SCHEME = "catalog:"
"""The scheme of the resources that tell what tools there are; nothing that a server lists is shown under it."""
GUIDE = f"{OWN_SCHEME}//guide/"
"""Begins the URI of what a server says of itself, its instructions."""


class Kind(StrEnum):
    """What an item is."""

    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt, resource, resource template or document under the spelling that clients see."""

    kind: Kind
    server: str
    original: str
    listed: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """All prompts, resources and templates of one edition, in a fixed order."""

    prompts: tuple[Item, ...] = ()
    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    documents: tuple[Item, ...] = ()

    @property
    def all(self) -> tuple[Item, ...]:
        """Every item, prompts first."""
        return (*self.prompts, *self.documents, *self.resources, *self.templates)

    def find(self, spelling: str) -> Item | None:
        """The item that is listed so, or the prompt of a bare name that only one server has."""
        exact = next((item for item in self.all if item.listed == spelling), None)
        if exact is not None:
            return exact
        bare = [item for item in self.prompts if item.original == spelling]
        return bare[0] if len(bare) == 1 else None

    def prompt(self, spelling: str) -> Item:
        """The prompt of a listed name, or of a bare name that only one server has.

        Raises:
            UnknownItem: no prompt, or more than one, has that name.
        """
        return _pick(spelling, "prompt", self.prompts)

    def resource(self, uri: str) -> Item:
        """The server that a resource belongs to: by its listed URI, else by the template it fits.

        Raises:
            UnknownItem: no server lists it or has a template for it.
        """
        for item in (*self.resources, *self.documents):
            if item.listed == uri:
                return item
        for item in self.templates:
            if fits_template(uri, item.listed):
                original = uri if item.listed == item.original else _told_apart(uri)
                return Item(kind=Kind.RESOURCE, server=item.server, original=original, listed=uri, definition={})
        raise _unknown(uri, "resource", self.resources)

    def template(self, uri: str) -> Item:
        """The template that is spelled so, for completion.

        Raises:
            UnknownItem: no server has it.
        """
        return _pick(uri, "resource template", self.templates)

    def listed_uri(self, server: str, original: str) -> str:
        """How clients know a resource of a server."""
        found = (item.listed for item in self.resources if (item.server, item.original) == (server, original))
        return next(found, original)


def collect(servers: Iterable[Server]) -> Items:
    """Gather what the servers list; a spelling that two servers share is told apart, never merged."""
    known = sorted(servers, key=lambda server: server.name)
    return Items(
        prompts=_listed_prompts(known),
        resources=_listed_uris(known, Kind.RESOURCE, "uri"),
        templates=_listed_uris(known, Kind.TEMPLATE, "uriTemplate"),
        documents=tuple(_guide(server) for server in known if server.instructions.strip()),
    )


def _guide(server: Server) -> Item:
    """What a server says of itself, as a document."""
    listed = f"{GUIDE}{server.identifier}"
    about = {"uri": listed, "name": f"{server.name} guide", "mimeType": "text/markdown", "text": server.instructions}
    return Item(kind=Kind.DOCUMENT, server=server.name, original=listed, listed=listed, definition=about)


def _listed_prompts(servers: list[Server]) -> tuple[Item, ...]:
    found = {
        f"{server.name}\0{raw['name']}": (server, raw)
        for server in servers
        for raw in server.prompts
        if isinstance(raw.get("name"), str) and raw["name"]
    }
    listed = distinct((key, f"{listable(s.name)}__{listable(raw['name'])}") for key, (s, raw) in found.items())
    return tuple(
        Item(
            kind=Kind.PROMPT,
            server=server.name,
            original=raw["name"],
            listed=listed[key],
            definition={**raw, "name": listed[key]},
        )
        for key, (server, raw) in sorted(found.items())
    )


def _listed_uris(servers: list[Server], kind: Kind, key: str) -> tuple[Item, ...]:
    items: list[Item] = []
    taken: set[str] = set()
    for server in servers:
        own: set[str] = set()
        for raw in getattr(server, f"{kind}s"):
            uri = raw.get(key)
            if not isinstance(uri, str) or not uri or uri in own:
                continue
            own.add(uri)
            is_free = uri not in taken and not uri.casefold().startswith(OWN_SCHEME)
            listed = uri if is_free else f"{PREFIX}{server.identifier}/{quote(uri, safe='{}')}"
            taken.add(listed)
            definition = {**raw, key: listed}
            items.append(Item(kind=kind, server=server.name, original=uri, listed=listed, definition=definition))
    return tuple(items)


def _told_apart(uri: str) -> str:
    """The server's own URI inside one that was given a prefix of ours."""
    return unquote(uri.removeprefix(PREFIX).split("/", 1)[1])


def fits_template(uri: str, template: str) -> bool:
    """Whether an RFC 6570 template can give a URI: `{x}` stays within a path segment, `{+x}` does not.

    Both come from outside, so the ends of all readings are followed side by side: no template makes this slow.
    """
    ends = {0}
    for part in re.split(r"(\{[^{}]*\})", template):
        if part.startswith("{"):
            operator = part[1:2]
            beyond = _stretched(uri, ends, "" if operator in _CROSSING else "/?#")
            ends = beyond | ends if operator in _OPTIONAL else beyond
        else:
            ends = {end + len(part) for end in ends if uri.startswith(part, end)}
    return len(uri) in ends


_CROSSING = frozenset("+#/?&;")
_OPTIONAL = frozenset("#/?&;")
"""Operators whose expression may be empty: the query of a URI, for one."""


def _stretched(uri: str, ends: set[int], barred: str) -> set[int]:
    """Every place that one or more letters, none of them barred, lead to."""
    found: set[int] = set()
    moving = False
    for place, letter in enumerate(uri):
        moving = (moving or place in ends) and letter not in barred
        if moving:
            found.add(place + 1)
    return found


def _pick(spelling: str, kind: str, items: tuple[Item, ...]) -> Item:
    exact = [item for item in items if item.listed == spelling]
    found = exact or [item for item in items if item.original == spelling]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(item.listed for item in found)
        raise UnknownItem(spelling, details=(f"{len(found)} servers have a {kind} of that name: {names}",))
    raise _unknown(spelling, kind, items)


def _unknown(spelling: str, kind: str, items: tuple[Item, ...]) -> UnknownItem:
    return UnknownItem(
        spelling,
        details=(f"no {kind} of that name; {len(items)} are listed",),
        next_call=NextCall("list", {"kind": kind}),
    )
