"""What servers offer beside tools: prompts, resources, templates, and which server a URI belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any
from urllib.parse import quote, unquote

from portico.domain.server import Server
from portico.errors import NextCall, UnknownItem
from portico.text.untrusted import visible

from .naming import Owners, distinct, listable
from .uri_claims import (
    TEMPLATES_LIMIT,
    URI_LIMIT,
    Claim,
    Claims,
    fits_template,
    has_scheme,
    literal_ends,
    refusal_of,
)

PREFIX = "portico://"  # begins the URI of a resource that two servers could mean, or that would look like one of ours
OWN_SCHEME = "catalog:"
"""The scheme of the resources that tell what tools there are; nothing that a server lists is shown under it."""
GUIDE = f"{OWN_SCHEME}//guide/"  # begins the URI of what a server says of itself, its instructions


class ItemKind(StrEnum):
    """What an item is."""

    PROMPT = "prompt"
    RESOURCE = "resource"
    TEMPLATE = "template"
    DOCUMENT = "document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One prompt, resource, resource template or document under the spelling that clients see."""

    kind: ItemKind
    server: str
    original: str
    listed: str
    definition: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Items:
    """All prompts, resources and templates of one snapshot, in a fixed order.

    Every one can be asked for as `portico://SERVER/...`. A shorter spelling is understood where only one server could
    mean it, whoever came first.
    """

    prompts: tuple[Item, ...] = ()
    resources: tuple[Item, ...] = ()
    templates: tuple[Item, ...] = ()
    documents: tuple[Item, ...] = ()
    identifiers: Mapping[str, str] = field(default_factory=dict)
    """The identifier of every configured server by its name, also of those that offer nothing."""

    @property
    def all(self) -> tuple[Item, ...]:
        """Every item, prompts first."""
        return (*self.prompts, *self.documents, *self.resources, *self.templates)

    def find(self, spelling: str) -> Item | None:
        """The item that is listed so, or the prompt of a bare name that only one server has."""
        exact = self._listed.get(spelling)
        if exact is not None:
            return exact
        found = self._prompts.get(spelling, [])
        return found[0] if len(found) == 1 else None

    def prompt(self, spelling: str) -> Item:
        """The prompt of a listed name, or of a bare name that only one server has.

        Raises:
            UnknownItem: no prompt, or more than one, has that name.
        """
        exact = self._listed.get(spelling)
        found = [exact] if exact is not None and exact.kind is ItemKind.PROMPT else self._prompts.get(spelling, [])
        return _the_one(spelling, "prompt", found, self.prompts)

    def resource(self, uri: str) -> Item:
        """The resource of a URI: listed, given by a template, or spelled with its server.

        Raises:
            UnknownItem: no server has it, or several could mean it.
        """
        listed = self._readable.get(uri)
        if listed is not None:
            return listed
        if len(uri) > URI_LIMIT:
            raise _unknown(f"{uri[:80]}…", "resource", self.resources)
        if is_reserved(uri):
            found = self._qualified(uri)
        else:
            claims = sorted(self._claims.of(uri))
            self._refuse_rivals(uri, {claim.server for claim in claims})
            found = next(filter(None, (self._meant(claim.server, uri, uri) for claim in claims)), None)
        if found is None:
            raise _unknown(uri, "resource", self.resources)
        return found

    def template(self, uri: str) -> Item:
        """The template that is spelled so, for completion.

        Raises:
            UnknownItem: no server has it, or several have.
        """
        exact = [
            item for item in self.templates if uri in (item.listed, qualified(self._identifier(item.server), item))
        ]
        found = exact or [item for item in self.templates if item.original == uri and not is_reserved(uri)]
        return _the_one(uri, "resource template", found, self.templates)

    def spellings(self, server: str, original: str) -> list[str]:
        """How clients may know a resource of a server; what only another server offers is none of them."""
        item = self._own.get((server, original))
        spelled = {f"{PREFIX}{self._identifier(server)}/{quote(original, safe='')}"}
        if item is not None:
            spelled.add(item.listed)
        elif {claim.server for claim in self._claims.of(original)} == {server}:
            spelled.add(original)
        return sorted(spelled)

    @cached_property
    def _servers(self) -> dict[str, str]:
        """Servers by every name of theirs; an identifier counts more than a name."""
        return {**{name: name for name in self.identifiers}, **{own: name for name, own in self.identifiers.items()}}

    @cached_property
    def _listed(self) -> dict[str, Item]:
        return {item.listed: item for item in reversed(self.all)}

    @cached_property
    def _readable(self) -> dict[str, Item]:
        return {item.listed: item for item in (*self.resources, *self.documents)}

    @cached_property
    def _own(self) -> dict[tuple[str, str], Item]:
        return {(item.server, item.original): item for item in self.resources}

    @cached_property
    def _claims(self) -> Claims:
        return Claims(map(_claim, self.resources), map(_claim, self.templates))

    @cached_property
    def _prompts(self) -> dict[str, list[Item]]:
        """Prompts by every other spelling; a name that speaks for another server is none of them."""
        found: dict[str, list[Item]] = {}
        for item in self.prompts:
            names = {plain_prompt(item.server, item.original), qualified(self._identifier(item.server), item)}
            if not self._is_anothers(item.original, item.server):
                names.add(item.original)
            for name in names:
                found.setdefault(name, []).append(item)
        return found

    def _is_anothers(self, spelling: str, own: str) -> bool:
        return spelling.casefold().startswith(PREFIX) or self._owners.speaks_for_another(spelling, own)

    @cached_property
    def _owners(self) -> Owners:
        return Owners(self.identifiers)

    def _identifier(self, server: str) -> str:
        return self.identifiers.get(server, server)

    def _refuse_rivals(self, uri: str, servers: set[str]) -> None:
        if len(servers) > 1:
            spelled = [f"{PREFIX}{self._identifier(name)}/{quote(uri, safe='')}" for name in sorted(servers)]
            raise UnknownItem(uri, details=(f"{len(servers)} servers could mean it: {' or '.join(spelled)}",))

    def _qualified(self, uri: str) -> Item | None:
        """The resource that is spelled with its server; only that server's own are looked at."""
        spelled, _, rest = uri[len(PREFIX) :].partition("/")
        server = self._servers.get(unquote(spelled))
        if server is None or not uri.casefold().startswith(PREFIX):
            return None
        readings = [*self._expanded(server, rest), rest, unquote(rest)]
        return next(filter(None, (self._meant(server, original, uri) for original in readings)), None)

    def _expanded(self, server: str, rest: str) -> Iterator[str]:
        """The URIs that templates of a server give, when their literal beginning is percent-encoded as it is listed."""
        for item in self.templates:
            head = literal_ends(item.original)[0]
            if item.server == server and rest.startswith(quote(head, safe="")):
                yield head + rest.removeprefix(quote(head, safe=""))

    def _meant(self, server: str, original: str, asked: str) -> Item | None:
        """A server's own resource of that URI, listed or given by one of its templates."""
        known = self._own.get((server, original))
        if known is not None:
            return known if asked == known.listed else _called(known, asked)
        own = (item.original for item in self.templates if item.server == server)
        if any(fits_template(original, template) for template in own):
            return Item(kind=ItemKind.RESOURCE, server=server, original=original, listed=asked, definition={})
        return None


def collect(servers: Iterable[Server], identifiers: Mapping[str, str] | None = None) -> Items:
    """Gather what the servers list; what two servers could mean is spelled with its server, never merged.

    `identifiers` are those of every configured server; without them, only those that are here are known.
    """
    known = sorted(servers, key=lambda server: server.name)
    names = {**{server.name: server.identifier for server in known}, **(identifiers or {})}
    resources = _distinct(_uris(known, ItemKind.RESOURCE))
    templates = _distinct(_uris(known, ItemKind.TEMPLATE))
    claims = [claim for claim, _ in resources], [claim for claim, _ in templates]
    givers = {claim.server for claim in chain(*claims)}
    contested = Claims(*claims).contested() if len(givers) > 1 else set()
    return Items(
        prompts=_listed_prompts(known, names),
        resources=tuple(_listed(ItemKind.RESOURCE, claim, raw, names, contested) for claim, raw in resources),
        templates=tuple(_listed(ItemKind.TEMPLATE, claim, raw, names, contested) for claim, raw in templates),
        documents=tuple(_guide(server) for server in known if server.instructions.strip()),
        identifiers=names,
    )


def is_reserved(uri: str) -> bool:
    """Whether a URI would look like one of ours, in upper or lower case, is none at all, or hides something."""
    is_odd = not has_scheme(uri) or visible(uri) != uri
    return is_odd or uri.casefold().startswith((PREFIX.removesuffix("//"), OWN_SCHEME))


def qualified(identifier: str, item: Item) -> str:
    """An item spelled with its server, whatever else it is called; a template's expressions stay as they are."""
    if item.kind is not ItemKind.TEMPLATE:
        return f"{PREFIX}{identifier}/{quote(item.original, safe='')}"
    head = literal_ends(item.original)[0]
    return f"{PREFIX}{identifier}/{quote(head, safe='')}{item.original.removeprefix(head)}"


def plain_prompt(server: str, name: str) -> str:
    """The name under which a prompt is listed, unless another server's prompt would have it too."""
    return f"{listable(server)}__{listable(name)}"


def refusals(templates: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Templates that are not used, each with the reason."""
    for number, raw in enumerate(templates):
        template = raw.get("uriTemplate")
        reason = refusal_of(template)
        if not reason and number >= TEMPLATES_LIMIT:
            reason = f"a server may have {TEMPLATES_LIMIT} resource templates"
        if reason:
            yield str(template or "(no uriTemplate)")[:80], reason


def _guide(server: Server) -> Item:
    """What a server says of itself, as a document."""
    listed = f"{GUIDE}{server.identifier}"
    about = {"uri": listed, "name": f"{server.name} guide", "mimeType": "text/markdown", "text": server.instructions}
    return Item(kind=ItemKind.DOCUMENT, server=server.name, original=listed, listed=listed, definition=about)


def _listed_prompts(servers: list[Server], identifiers: Mapping[str, str]) -> tuple[Item, ...]:
    found = {
        (server.name, raw["name"]): raw
        for server in servers
        for raw in reversed(server.prompts)
        if isinstance(raw.get("name"), str) and raw["name"]
    }
    plain = {key: plain_prompt(*key) for key in found}
    wanted = Counter(spelling for _, spelling in {(server, spelling) for (server, _), spelling in plain.items()})
    listed = distinct(
        (key, spelling if wanted[spelling] == 1 else f"{PREFIX}{identifiers[key[0]]}/{quote(key[1], safe='')}")
        for key, spelling in plain.items()
    )
    return tuple(
        Item(
            kind=ItemKind.PROMPT,
            server=server,
            original=name,
            listed=listed[server, name],
            definition={**raw, "name": listed[server, name]},
        )
        for (server, name), raw in sorted(found.items(), key=lambda row: row[0])
    )


def _uris(servers: Iterable[Server], kind: ItemKind) -> Iterator[tuple[Claim, Mapping[str, Any]]]:
    for server in servers:
        if kind is ItemKind.RESOURCE:
            for raw in server.resources:
                uri = raw.get("uri")
                if isinstance(uri, str) and 0 < len(uri) <= URI_LIMIT:
                    yield Claim(server.name, uri), raw
        else:
            for raw in server.templates[:TEMPLATES_LIMIT]:
                if not refusal_of(raw.get("uriTemplate")):
                    yield Claim(server.name, raw["uriTemplate"]), raw


def _distinct(found: Iterable[tuple[Claim, Mapping[str, Any]]]) -> list[tuple[Claim, Mapping[str, Any]]]:
    """The first of each."""
    first: dict[Claim, Mapping[str, Any]] = {}
    for claim, raw in found:
        first.setdefault(claim, raw)
    return list(first.items())


def _listed(
    kind: ItemKind, claim: Claim, raw: Mapping[str, Any], identifiers: Mapping[str, str], contested: set[Claim]
) -> Item:
    item = Item(kind=kind, server=claim.server, original=claim.uri, listed=claim.uri, definition=raw)
    if claim not in contested and not is_reserved(claim.uri):
        return item
    return _called(item, qualified(identifiers[claim.server], item))


def _called(item: Item, listed: str) -> Item:
    key = "uriTemplate" if item.kind is ItemKind.TEMPLATE else "uri"
    return replace(item, listed=listed, definition={**item.definition, key: listed})


def _claim(item: Item) -> Claim:
    return Claim(item.server, item.original)


def _the_one(spelling: str, kind: str, found: list[Item], items: tuple[Item, ...]) -> Item:
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
