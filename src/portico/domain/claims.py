"""Which servers could mean a URI: by listing it, or by a template that gives it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from .uri_templates import fits_template, literal_ends, may_overlap

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
