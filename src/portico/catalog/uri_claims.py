"""URI templates (RFC 6570) from outside: which URIs they can give, and which servers a URI could mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from portico.text.untrusted import visible

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_EXPRESSION = re.compile(r"(\{[^{}]*\})")
_CROSSING = frozenset("+#/?&;")
_OPTIONAL = frozenset("#/?&;")
"""Operators whose expression may be empty: the query of a URI, for one."""
URI_LIMIT = 4_096  # characters of a URI or template; a longer one is neither listed nor looked for
EXPRESSIONS_LIMIT = 16
TEMPLATES_LIMIT = 256  # templates of one server that are used
STATES_LIMIT = 10_000  # pairs of places in two templates that are visited to tell whether the templates overlap


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
