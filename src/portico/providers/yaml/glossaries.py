"""Glossaries: what the words of a business mean, as resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote

import orjson

from portico.errors import UnknownItem
from portico.trees.tree import Member

from .tables import Table

ALL = "glossary://all"
TERM = "glossary://term/"
TEMPLATE = "glossary://term/{name}"
COMPLETED = 100
"""The most that a completion may name."""

RESOURCE = {
    "uri": ALL,
    "name": "glossary",
    "description": "All business terms with their definitions and synonyms",
    "mimeType": "application/json",
}
TERM_TEMPLATE = {
    "uriTemplate": TEMPLATE,
    "name": "glossary term",
    "description": "What one business term means; synonyms lead to it too",
    "mimeType": "application/json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A word, what it means, and what else it is called."""

    name: str
    definition: str
    synonyms: tuple[str, ...] = ()
    line: int = 0

    def shown(self) -> dict[str, Any]:
        """The term as JSON says it."""
        found: dict[str, Any] = {"term": self.name, "definition": self.definition}
        return {**found, "synonyms": list(self.synonyms)} if self.synonyms else found


def read_terms(entry: Table) -> list[Term]:
    """The terms of a glossary.

    Raises:
        ConfigError: one has no definition.
    """
    entry.note_unknown(("type", "description", "terms"))
    found: dict[str, Term] = {}
    for member in entry.members("terms"):
        term = _term(entry, member)
        first = found.setdefault(member.key.casefold(), term)
        if first is not term:
            entry.note(f"the term {member.key!r} is there already, in line {first.line}", "Delete one", member.line)
    if not found:
        raise entry.wrong("it has no terms", "Add lines `word: what it means` below `terms`")
    return list(found.values())


def _term(entry: Table, member: Member) -> Term:
    name, node, line = member.key, member.node, member.line
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise entry.wrong(f"a term cannot be called {name[:60]!r}", "Use up to 200 letters that can be seen", line)
    if node.is_scalar:
        return Term(name=name, definition=node.spelling, line=line)
    table = Table(node, name=f"{entry.name}.terms.{name[:60]}", file=entry.file, notes=entry.notes, line=line)
    table.note_unknown(("definition", "synonyms"))
    return Term(name=name, definition=table.text("definition"), synonyms=tuple(table.texts("synonyms")), line=line)


class Glossary:
    """All terms of all files."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms = list(terms)
        synonyms = {synonym.casefold(): term for term in reversed(self.terms) for synonym in term.synonyms}
        self._known: Mapping[str, Term] = {**synonyms, **{term.name.casefold(): term for term in self.terms}}

    def read(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `resources/read`.

        Raises:
            UnknownItem: no such resource or term; the nearest are named.
        """
        uri = str(params.get("uri"))
        if uri == ALL:
            return _contents(uri, {"terms": [term.shown() for term in self.terms]})
        if uri.startswith(TERM):
            return _contents(uri, self._find(uri).shown())
        raise UnknownItem(uri[:200], details=(f"there is {ALL}, and {TEMPLATE}",))

    def complete(self, value: str) -> list[str]:
        """The terms that begin so, and those that a synonym that begins so leads to."""
        begun = value.casefold()
        found = [term.name for term in self.terms if term.name.casefold().startswith(begun)]
        found += [term.name for spelled, term in self._known.items() if spelled.startswith(begun)]
        return list(dict.fromkeys(found))

    def _find(self, uri: str) -> Term:
        name = unquote(uri.removeprefix(TERM)).strip().casefold()
        found = self._known.get(name)
        if found is not None:
            return found
        near = [self._known[one].name for one in get_close_matches(name[:100], self._known, n=5, cutoff=0.5)]
        told = ", ".join(dict.fromkeys(near)) or f"see {ALL}"
        raise UnknownItem(uri[:200], details=(f"no term is called {name[:100]!r}; did you mean: {told}",))


def _contents(uri: str, value: Any) -> dict[str, Any]:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
