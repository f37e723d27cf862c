"""Prompts and glossaries of a YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote

import orjson

from portico.documents.tree import Member
from portico.errors import Sent, UnknownItem, UpstreamError

from .parameters import YamlParameter, YamlTable, described, filled, places, read_parameters, written

INVALID_PARAMS = -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text with places, and what may be filled in."""

    name: str
    title: str = ""
    description: str = ""
    text: str
    parameters: Mapping[str, YamlParameter]

    @property
    def definition(self) -> dict[str, Any]:
        """The prompt as it is listed."""
        arguments = [
            {"name": name, "description": parameter.description, "required": parameter.is_required}
            for name, parameter in self.parameters.items()
        ]
        found = {"name": self.name, "title": self.title, "description": self.description, "arguments": arguments}
        return {key: value for key, value in found.items() if value or key == "arguments"}

    def get(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The prompt with its values.

        Raises:
            UpstreamError: a value is missing or not known; the code is that of invalid parameters.
        """
        problems = [
            f"missing: {name}" for name, p in self.parameters.items() if p.is_required and name not in arguments
        ]
        for name, value in arguments.items():
            problems += self._problems(name, value)
        if problems:
            raise invalid(self.name, f"the prompt {self.name!r} cannot be filled in: {'; '.join(problems)}")
        values = {name: self._value(name, arguments) for name in self.parameters}
        message = {"role": "user", "content": {"type": "text", "text": filled(self.text, values)}}
        return {**({"description": self.description} if self.description else {}), "messages": [message]}

    def _value(self, name: str, arguments: Mapping[str, Any]) -> str:
        value = arguments.get(name, self.parameters[name].default)
        return "" if value is None else written(value)

    def _problems(self, name: str, value: Any) -> list[str]:
        parameter = self.parameters.get(name)
        if parameter is None:
            near = get_close_matches(name, self.parameters, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes: {', '.join(self.parameters) or 'nothing'}"
            return [f"unknown: {name[:60]}{hint}"]
        if not isinstance(value, str):
            return [f"{name}: must be text"]
        choices = [written(choice) for choice in parameter.choices]
        return [f"{name}: must be one of {', '.join(choices)}"] if choices and value not in choices else []


def read_prompt(entry: YamlTable) -> Prompt:
    """The prompt of an entry.

    Raises:
        ConfigError: it has no text, or a parameter cannot be used.
    """
    entry.note_unknown(("type", "title", "description", "parameters", "prompt", "category", "tags"))
    text, parameters = entry.text("prompt"), read_parameters(entry)
    used = places(text)
    for name in dict.fromkeys(used):
        if name not in parameters:
            fix = f"Declare it under `parameters`, or write {{{{{name}}}}} if it is meant so"
            entry.note(f"{{{name}}} is no parameter and stays as it is", fix)
    for name, parameter in parameters.items():
        if parameter.is_many:
            raise entry.wrong(f"{name!r} takes a list, which is for SQL", "Delete `many`")
        if name not in used:
            entry.note(f"its parameter {name!r} stands nowhere in its text", f"Write {{{name}}} in it, or delete it")
    return Prompt(
        name=entry.name,
        title=entry.text("title", ""),
        description=described(entry),
        text=text,
        parameters=parameters,
    )


@dataclass(frozen=True, slots=True)
class Prompts:
    """All prompts by name, as requests ask for them."""

    by_name: Mapping[str, Prompt]

    def get(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `prompts/get`.

        Raises:
            UpstreamError: no such prompt, or its values do not fit.
        """
        arguments = params.get("arguments")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise invalid("prompts/get", "`arguments` must be an object of texts")
        return self._named(params.get("name")).get(arguments or {})

    def complete(self, name: Any, argument: str, value: str) -> list[str]:
        """What an argument may be completed to: its declared choices.

        Raises:
            UpstreamError: no such prompt.
        """
        parameter = self._named(name).parameters.get(argument)
        choices: Iterable[str] = map(written, parameter.choices) if parameter else ()
        return [choice for choice in choices if choice.casefold().startswith(value.casefold())]

    def _named(self, name: Any) -> Prompt:
        found = self.by_name.get(name) if isinstance(name, str) else None
        if found is None:
            near = get_close_matches(str(name)[:100], self.by_name, n=3, cutoff=0.5) or list(self.by_name)[:5]
            raise invalid(str(name)[:100], f"no prompt is called {str(name)[:100]!r}; there are: {', '.join(near)}")
        return found


def invalid(subject: str, message: str) -> UpstreamError:
    """The error of a request whose parameters do not fit."""
    return UpstreamError(subject, rpc_code=INVALID_PARAMS, message=message, sent=Sent.NOTHING)


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
class GlossaryTerm:
    """A word, what it means, and what else it is called."""

    name: str
    definition: str
    synonyms: tuple[str, ...] = ()
    line: int = 0

    def shown(self) -> dict[str, Any]:
        """The term as JSON says it."""
        found: dict[str, Any] = {"term": self.name, "definition": self.definition}
        return {**found, "synonyms": list(self.synonyms)} if self.synonyms else found


def read_terms(entry: YamlTable) -> list[GlossaryTerm]:
    """The terms of a glossary.

    Raises:
        ConfigError: one has no definition.
    """
    entry.note_unknown(("type", "description", "terms"))
    found: dict[str, GlossaryTerm] = {}
    for member in entry.members("terms"):
        term = _term(entry, member)
        first = found.setdefault(member.key.casefold(), term)
        if first is not term:
            entry.note(f"the term {member.key!r} is there already, in line {first.line}", "Delete one", member.line)
    if not found:
        raise entry.wrong("it has no terms", "Add lines `word: what it means` below `terms`")
    return list(found.values())


def _term(entry: YamlTable, member: Member) -> GlossaryTerm:
    name, node, line = member.key, member.node, member.line
    if not name.strip() or not name.isprintable() or len(name) > 200:
        raise entry.wrong(f"a term cannot be called {name[:60]!r}", "Use up to 200 letters that can be seen", line)
    if node.is_scalar:
        return GlossaryTerm(name=name, definition=node.spelling, line=line)
    table = YamlTable(node, name=f"{entry.name}.terms.{name[:60]}", file=entry.file, notes=entry.notes, line=line)
    table.note_unknown(("definition", "synonyms"))
    return GlossaryTerm(
        name=name, definition=table.text("definition"), synonyms=tuple(table.texts("synonyms")), line=line
    )


class Glossary:
    """All terms of all files."""

    def __init__(self, terms: Iterable[GlossaryTerm]) -> None:
        self.terms = list(terms)
        synonyms = {synonym.casefold(): term for term in reversed(self.terms) for synonym in term.synonyms}
        self._known: Mapping[str, GlossaryTerm] = {**synonyms, **{term.name.casefold(): term for term in self.terms}}

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

    def _find(self, uri: str) -> GlossaryTerm:
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
