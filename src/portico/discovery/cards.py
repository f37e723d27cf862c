"""Tools rendered at one level, and at falling detail for the budgeter to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import orjson

from portico.domain.disclosure import Card, Level
from portico.domain.tool import Tool
from portico.errors import NextCall

from .budgets import Rungs
from .examples import example_arguments
from .sentences import first_sentence
from .signatures import signature, summary_line
from .spelling import Spell, as_meta_tool

BRIEF_LENGTH = 200
"""Characters of a tool's description where descriptions are short."""
WORDS_LENGTH = 60
"""Characters of a parameter's description where descriptions are short."""

_WORDY = frozenset({"title", "examples", "$comment", "markdownDescription", "enumDescriptions"})
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired"})


def card(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Card:
    """A tool at one level: 0 its handle, 1 a summary line, 2 a signature, 3 everything."""
    return ladder(tool, level, spell).card(0)


def ladder(tool: Tool, level: Level, spell: Spell = as_meta_tool) -> Rungs:
    """A tool from one level down to its handle, in every detail between them; a rung is rendered when it is read."""
    steps = [Level(step) for step in range(level, -1, -1)]
    return Rungs(
        handle=tool.handle, texts=_Texts(tool, spell, [(step, render) for step in steps for render in _RENDERED[step]])
    )


def shortened(schema: Any, words: int = 0, *, names: bool = False) -> Any:
    """A schema with types, names and choices, its descriptions cut to so many characters; `names` says what keys are.

    Prose beside the descriptions is left out. Values that a schema quotes stay as they are.
    """
    if isinstance(schema, list):
        return [shortened(value, words) for value in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, value in schema.items():
        if names or not (key in _DATA or key in _WORDY or key == "description"):
            found[key] = shortened(value, words, names=not names and key in _NAMED)
        elif key in _DATA:
            found[key] = value
        elif key == "description" and isinstance(value, str) and words:
            found[key] = first_sentence(value, words)
    return found


Render = Callable[[Tool, Spell], str]


class _Texts(Sequence[tuple[Level, str]]):
    """The rungs of one tool: most answers need only the first."""

    def __init__(self, tool: Tool, spell: Spell, rungs: Sequence[tuple[Level, Render]]) -> None:
        self._tool, self._spell, self._rungs = tool, spell, rungs
        self._top = rungs[0][0]

    def __len__(self) -> int:
        return len(self._rungs)

    @overload
    def __getitem__(self, rung: int) -> tuple[Level, str]: ...
    @overload
    def __getitem__(self, rung: slice) -> Sequence[tuple[Level, str]]: ...
    def __getitem__(self, rung: int | slice) -> tuple[Level, str] | Sequence[tuple[Level, str]]:
        if isinstance(rung, slice):
            return [self._read(level, render) for level, render in self._rungs[rung]]
        return self._read(*self._rungs[rung])

    def _read(self, level: Level, render: Render) -> tuple[Level, str]:
        # Whoever asks for everything is told when there is less.
        cut = "\n(shortened to fit)" if self._top is Level.FULL and Level.NAME < level < self._top else ""
        return level, render(self._tool, self._spell) + cut


def _whole(tool: Tool, spell: Spell) -> str:
    example = "example: " + spell(NextCall("call", {"name": tool.handle, "arguments": example_arguments(tool)}))
    output = f"returns: {_json(tool.output_schema)}\n" if tool.output_schema else ""
    return f"{_without_example(tool, spell)}\n{output}{example}"


def _without_example(tool: Tool, spell: Spell) -> str:
    return f"## {tool.handle} [{tool.effect}]\n{tool.description}\nparameters: {_json(tool.input_schema)}"


def _with_short_texts(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts shortened): {_json(shortened(tool.input_schema, WORDS_LENGTH))}"


def _types_only(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts left out): {_json(shortened(tool.input_schema))}"


def _brief(tool: Tool) -> str:
    return f"## {tool.handle} [{tool.effect}]\n{first_sentence(tool.description, BRIEF_LENGTH)}"


_RENDERED: Mapping[Level, tuple[Render, ...]] = {
    Level.FULL: (_whole, _without_example, _with_short_texts, _types_only),
    Level.PARAMETERS: (
        lambda tool, spell: signature(tool),
        lambda tool, spell: signature(tool, optional=3, words=60),
        lambda tool, spell: signature(tool, optional=0, words=40),
    ),
    Level.SUMMARY: (lambda tool, spell: summary_line(tool),),
    Level.NAME: (lambda tool, spell: tool.handle,),
}
"""What a level shows, in falling detail."""


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
