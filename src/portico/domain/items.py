"""What servers offer beside tools: prompts, resources, templates, and which server a URI belongs to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from portico.errors import NextCall, UnknownItem

from .foreign_text import visible
from .server import Server
from .tool import Owners, distinct, listable

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_EXPRESSION = re.compile(r"(\{[^{}]*\})")
_CROSSING = frozenset("+#/?&;")
_OPTIONAL = frozenset("#/?&;")
"""Operators whose expression may be empty: the query of a URI, for one."""
URI_LIMIT = 4_096
"""Characters of a URI or template; a longer one is neither listed nor looked for."""
EXPRESSIONS_LIMIT = 16
TEMPLATES_LIMIT = 256
"""Templates of one server that are used."""
STATES_LIMIT = 10_000
"""Pairs of places in two templates that are visited to tell whether the templates overlap."""


def has_scheme(uri: str) -> bool:
    """Whether a URI or template begins with a scheme in plain letters, before any `{`."""
    return _SCHEME.match(uri) is not None


def refusal_of(template: object) -> str:
    """Why a template cannot be used; empty when it can."""
    if not isinstance(template, str) or not template:
        return "it has no uriTemplate: give every resource template a `uriTemplate` that is a non-empty string"
    if len(template) > URI_LIMIT or template.count("{") > EXPRESSIONS_LIMIT:
        return f"its uriTemplate is too long: at most {URI_LIMIT:,} characters and {EXPRESSIONS_LIMIT} expressions"
    if visible(template) != template:
        return "its uriTemplate has control or invisible characters"
    if not has_scheme(template):
        return "its uriTemplate has no literal scheme, so it could mean every server's resources: begin it with one"
    return ""


def fits_template(uri: str, template: str) -> bool:
    """Whether an RFC 6570 template can give a URI: `{x}` stays within a path segment, `{+x}` does not.

    Both come from outside, so the ends of all readings are followed side by side: no template makes this slow.
    """
    ends = {0}
    for part in _EXPRESSION.split(template):
        if part.startswith("{"):
            operator = part[1:2]
            beyond = _stretched(uri, ends, "" if operator in _CROSSING else "/?#")
            ends = beyond | ends if operator in _OPTIONAL else beyond
        else:
            ends = {end + len(part) for end in ends if uri.startswith(part, end)}
    return len(uri) in ends


def literal_ends(template: str) -> tuple[str, str]:
    """What stands before the first expression of a template, and what after the last one."""
    parts = _EXPRESSION.split(template)
    return parts[0], parts[-1]


def may_overlap(a: str, b: str) -> bool:
    """Whether two templates could give one URI; a pair that would take long to compare counts as one that can."""
    if not _ends_agree(literal_ends(a), literal_ends(b)):
        return False
    one, two = _steps(a), _steps(b)
    return len(one) * len(two) > STATES_LIMIT or _meet(one, two)


def _ends_agree(a: tuple[str, str], b: tuple[str, str]) -> bool:
    heads_agree = a[0].startswith(b[0]) or b[0].startswith(a[0])
    return heads_agree and (a[1].endswith(b[1]) or b[1].endswith(a[1]))


class _Step(NamedTuple):
    """One letter of a template, or any letter that is not barred; a loop may be passed any number of times."""

    letter: str = ""
    barred: str = ""
    loops: bool = False

    def meets(self, other: _Step) -> bool:
        if self.letter and other.letter:
            return self.letter == other.letter
        return (self.letter or "a") not in other.barred and (other.letter or "a") not in self.barred


def _steps(template: str) -> list[_Step]:
    steps: list[_Step] = []
    for part in _EXPRESSION.split(template):
        if part.startswith("{"):
            any_letter = _Step(barred="" if part[1:2] in _CROSSING else "/?#")
            steps += [] if part[1:2] in _OPTIONAL else [any_letter]
            steps.append(any_letter._replace(loops=True))
        else:
            steps += [_Step(letter=letter) for letter in part]
    return steps


def _meet(one: list[_Step], two: list[_Step]) -> bool:
    """Whether some text passes through both: every pair of places is visited at most once."""
    waiting, seen = [(0, 0)], {(0, 0)}
    while waiting:
        i, j = waiting.pop()
        if i == len(one) and j == len(two):
            return True
        for place in _following(one, two, i, j):
            if place not in seen:
                seen.add(place)
                waiting.append(place)
    return False


def _following(one: list[_Step], two: list[_Step], i: int, j: int) -> Iterator[tuple[int, int]]:
    a, b = one[i] if i < len(one) else None, two[j] if j < len(two) else None
    if a and a.loops:
        yield i + 1, j
    if b and b.loops:
        yield i, j + 1
    if a and b and a.meets(b):
        yield i + (not a.loops), j + (not b.loops)


def _stretched(uri: str, ends: set[int], barred: str) -> set[int]:
    """Every place that one or more letters, none of them barred, lead to."""
    found: set[int] = set()
    moving = False
    for place, letter in enumerate(uri):
        moving = (moving or place in ends) and letter not in barred
        if moving:
            found.add(place + 1)
    return found


PREFIX = "portico://"
"""Begins the URI of a resource that two servers could mean, or that would look like one of ours."""
OWN_SCHEME = "catalog:"
"""The scheme of the resources that tell what tools there are; nothing that a server lists is shown under it."""
GUIDE = f"{OWN_SCHEME}//guide/"
"""Begins the URI of what a server says of itself, its instructions."""


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


EFFORT = 2_000_000
"""Letters times expressions that are compared; beyond, a template whose literal ends agree counts as fitting."""


class Claim(NamedTuple):
    """One resource or template of a server, in its original spelling."""

    server: str
    uri: str


class _Template(NamedTuple):
    claim: Claim
    folded: str
    ends: tuple[str, str]


class Claims:
    """What servers claim, compared without regard to case and percent-encoding, so that no spelling slips through.

    Both sides come from outside, so the work is bounded: a doubt counts as a claim.
    """

    def __init__(self, resources: Iterable[Claim], templates: Iterable[Claim]) -> None:
        self._listed: dict[str, list[Claim]] = {}
        self._templates: dict[str, list[_Template]] = {}
        for claim in resources:
            self._listed.setdefault(fold(claim.uri), []).append(claim)
        for claim in templates:
            folded = fold(claim.uri)
            ends = literal_ends(folded)
            self._templates.setdefault(ends[0], []).append(_Template(claim, folded, ends))
        self._lengths = sorted({len(head) for head in self._templates})

    def of(self, uri: str) -> set[Claim]:
        """Every resource and template that a URI could mean."""
        folded = fold(uri)
        return {*self._listed.get(folded, ()), *self._fitting(folded, _Effort(EFFORT // 10))}

    def contested(self) -> set[Claim]:
        """Every resource and template that could mean something of another server too."""
        return {claim for group in self._groups() if len({one.server for one in group}) > 1 for claim in group}

    def _groups(self) -> Iterator[set[Claim]]:
        """Claims that could mean the same: those of each listed URI, and each pair of templates that may overlap."""
        effort = _Effort(EFFORT)
        for folded, claims in self._listed.items():
            if self._templates or len(claims) > 1:
                yield {*claims, *self._fitting(folded, effort)}
        for head, group in self._templates.items():
            for other in self._begun(head):
                yield from (
                    {one.claim, other.claim}
                    for one in group
                    if one.claim.server != other.claim.server and effort.overlap(one, other)
                )

    def _fitting(self, folded: str, effort: _Effort) -> Iterator[Claim]:
        for found in self._begun(folded):
            if effort.fits(folded, found):
                yield found.claim

    def _begun(self, text: str) -> Iterator[_Template]:
        """The templates whose literal beginning is one of this text too."""
        for length in self._lengths:
            if length > len(text):
                return
            yield from self._templates.get(text[:length], ())


class _Effort:
    """Compares URIs with templates as long as it does not tire."""

    def __init__(self, left: int) -> None:
        self._left = left

    def fits(self, folded: str, template: _Template) -> bool:
        if not folded.endswith(template.ends[1]):
            return False
        self._left -= len(folded) * template.folded.count("{")
        return self._left < 0 or fits_template(folded, template.folded)

    def overlap(self, one: _Template, other: _Template) -> bool:
        self._left -= len(one.folded) * len(other.folded)
        return self._left < 0 or may_overlap(one.folded, other.folded)


def fold(uri: str) -> str:
    """A URI as it is compared with others."""
    return (unquote(uri) if "%" in uri else uri).casefold()
