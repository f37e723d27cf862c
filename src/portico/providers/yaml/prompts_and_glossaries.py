"""Prompts and glossaries of a YAML file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson

from portico.documents.values_with_positions import Member
from portico.domain.suggestions import nearest_names
from portico.errors import Sent, UnknownItem, UpstreamError

from .tool_entries import YamlParameter, YamlTable, as_text, fill_places, place_names, read_description, read_parameters

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
        """The prompt with its values."""
        problems = [
            f"missing: {name}" for name, p in self.parameters.items() if p.is_required and name not in arguments
        ]
        for name, value in arguments.items():
            problems += self._problems(name, value)
        if problems:
            raise _invalid(self.name, f"the prompt {self.name!r} cannot be filled in: {'; '.join(problems)}")
        given = {name: arguments.get(name, one.default) for name, one in self.parameters.items()}
        values = {name: "" if value is None else as_text(value) for name, value in given.items()}
        message = {"role": "user", "content": {"type": "text", "text": fill_places(self.text, values)}}
        return {**({"description": self.description} if self.description else {}), "messages": [message]}

    def _problems(self, name: str, value: Any) -> list[str]:
        parameter = self.parameters.get(name)
        if parameter is None:
            near = nearest_names(name, self.parameters, limit=1)
            hint = f"did you mean {near[0]}?" if near else f"it takes: {', '.join(self.parameters) or 'nothing'}"
            return [f"unknown: {name[:60]}; {hint}"]
        if not isinstance(value, str):
            return [f"{name}: must be text"]
        choices = [as_text(choice) for choice in parameter.choices]
        return [f"{name}: must be one of {', '.join(choices)}"] if choices and value not in choices else []


def read_prompt(entry: YamlTable) -> Prompt:
    """The prompt of an entry."""
    entry.note_unknown(("type", "title", "description", "parameters", "prompt", "category", "tags"))
    text, parameters = entry.text("prompt"), read_parameters(entry)
    used = place_names(text)
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
        description=read_description(entry),
        text=text,
        parameters=parameters,
    )


def _invalid(subject: str, message: str) -> UpstreamError:
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
    """The terms of a glossary."""
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


class PromptsAndTerms:
    """The prompts and terms of all files, as requests ask for them."""

    def __init__(self, prompts: Iterable[Prompt], terms: Iterable[GlossaryTerm]) -> None:
        self._prompts, self._terms = {prompt.name: prompt for prompt in prompts}, list(terms)
        synonyms = {synonym.casefold(): term for term in reversed(self._terms) for synonym in term.synonyms}
        self._known: Mapping[str, GlossaryTerm] = {**synonyms, **{term.name.casefold(): term for term in self._terms}}

    def get_prompt(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `prompts/get`."""
        arguments = params.get("arguments")
        if arguments is not None and not isinstance(arguments, Mapping):
            raise _invalid("prompts/get", "`arguments` must be an object of texts")
        return self._prompt(params.get("name")).get(arguments or {})

    def read_resource(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `resources/read`."""
        uri = str(params.get("uri"))
        if uri == ALL:
            return _contents(uri, {"terms": [term.shown() for term in self._terms]})
        if not uri.startswith(TERM):
            raise UnknownItem(uri[:200], details=(f"there is {ALL}, and {TEMPLATE}",))
        name = unquote(uri.removeprefix(TERM)).strip().casefold()
        if name in self._known:
            return _contents(uri, self._known[name].shown())
        near = [self._known[one].name for one in nearest_names(name, self._known, limit=5, cutoff=50)]
        told = ", ".join(dict.fromkeys(near)) or f"see {ALL}"
        raise UnknownItem(uri[:200], details=(f"no term is called {name[:100]!r}; did you mean: {told}",))

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `completion/complete`: the declared choices of an argument, or the terms that a text leads to."""
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, Mapping) or not isinstance(argument, Mapping):
            raise _invalid("completion/complete", "completion/complete needs `ref` and `argument`")
        name, begun, found = str(argument.get("name")), str(argument.get("value", "")).casefold(), list[str]()
        if ref.get("type") == "ref/prompt":
            parameter = self._prompt(ref.get("name")).parameters.get(name)
            choices = map(as_text, parameter.choices if parameter else ())
            found = [choice for choice in choices if choice.casefold().startswith(begun)]
        elif (ref.get("uri"), name) == (TEMPLATE, "name"):
            names = [term.name for term in self._terms if term.name.casefold().startswith(begun)]
            names += [term.name for spelled, term in self._known.items() if spelled.startswith(begun)]
            found = list(dict.fromkeys(names))
        return {"completion": {"values": found[:COMPLETED], "total": len(found), "hasMore": len(found) > COMPLETED}}

    def _prompt(self, name: Any) -> Prompt:
        found = self._prompts.get(name) if isinstance(name, str) else None
        if found is None:
            near = nearest_names(str(name), self._prompts, cutoff=50) or list(self._prompts)[:5]
            raise _invalid(str(name)[:100], f"no prompt is called {str(name)[:100]!r}; there are: {', '.join(near)}")
        return found


def _contents(uri: str, value: Any) -> dict[str, Any]:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return {"contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}
