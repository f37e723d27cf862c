"""Prompts and resources of upstream servers, which are passed through beside the tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from portico.errors import NextCall, UnknownItem

from .names import distinct, listable
from .server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt, resource or resource template under the spelling that clients see."""

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
    _patterns: tuple[tuple[re.Pattern[str], Item], ...] = field(default=(), repr=False)

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
        for item in self.resources:
            if item.listed == uri:
                return item
        for pattern, item in self._patterns:
            if pattern.fullmatch(uri):
                return Item(server=item.server, original=uri, listed=uri, definition={})
        raise _unknown(uri, "resource", self.resources)

    def template(self, uri: str) -> Item:
        """The template that is spelled so, for completion.

        Raises:
            UnknownItem: no server has it.
        """
        return _pick(uri, "resource template", self.templates)


def collect(servers: Iterable[Server]) -> Items:
    """Gather what the servers list; a spelling that two servers share is told apart, never merged."""
    known = sorted(servers, key=lambda server: server.name)
    templates = _listed_uris(known, "templates", "uriTemplate")
    return Items(
        prompts=_listed_prompts(known),
        resources=_listed_uris(known, "resources", "uri"),
        templates=templates,
        _patterns=tuple((_template_pattern(item.listed), item) for item in templates),
    )


def _listed_prompts(servers: list[Server]) -> tuple[Item, ...]:
    found = {
        f"{server.name}\0{raw['name']}": (server, raw)
        for server in servers
        for raw in server.prompts
        if isinstance(raw.get("name"), str) and raw["name"]
    }
    listed = distinct((key, f"{listable(s.name)}__{listable(raw['name'])}") for key, (s, raw) in found.items())
    return tuple(
        Item(server=server.name, original=raw["name"], listed=listed[key], definition={**raw, "name": listed[key]})
        for key, (server, raw) in sorted(found.items())
    )


def _listed_uris(servers: list[Server], kind: str, key: str) -> tuple[Item, ...]:
    items: list[Item] = []
    taken: set[str] = set()
    for server in servers:
        for raw in getattr(server, kind):
            uri = raw.get(key)
            if not isinstance(uri, str) or not uri or (server.name, uri) in {(i.server, i.original) for i in items}:
                continue
            listed = uri if uri not in taken else f"portico://{server.identifier}/{quote(uri, safe='{}')}"
            taken.add(listed)
            items.append(Item(server=server.name, original=uri, listed=listed, definition={**raw, key: listed}))
    return tuple(items)


def _template_pattern(template: str) -> re.Pattern[str]:
    """A pattern for RFC 6570 templates: `{x}` stays within a path segment, `{+x}` does not."""
    parts = re.split(r"(\{[^{}]*\})", template)
    spelled = [
        (".+" if part[1:2] in {"+", "#", "/", "?", "&", ";"} else "[^/?#]+")
        if part.startswith("{")
        else re.escape(part)
        for part in parts
    ]
    return re.compile("".join(spelled))


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
