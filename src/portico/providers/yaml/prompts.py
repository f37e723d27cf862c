"""Prompts: texts that a client fills in and hands to its model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from portico.errors import Sent, UpstreamError

from .definitions import described
from .parameters import Parameter, read_parameters, written
from .tables import Table
from .templates import filled, places

INVALID_PARAMS = -32602


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A text with places, and what may be filled in."""

    name: str
    title: str = ""
    description: str = ""
    text: str
    parameters: Mapping[str, Parameter]

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


def read_prompt(entry: Table) -> Prompt:
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
