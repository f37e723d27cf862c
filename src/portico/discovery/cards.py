"""Tools rendered at one level, and at falling detail for the budgeter to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from portico.domain.disclosure import Card, Level
from portico.domain.tool import Tool
from portico.errors import NextCall
from portico.fencing import fence, json_text

from .budgets import Rungs, Texts
from .examples import NO_EXAMPLE, example_arguments
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
    steps = [(Level(step), render) for step in range(level, -1, -1) for render in _RENDERED[Level(step)]]
    texts = Texts([(step, partial(_rendered, tool, spell, level, step, render)) for step, render in steps])
    return Rungs(handle=tool.handle, texts=texts)


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


def _rendered(tool: Tool, spell: Spell, top: Level, level: Level, render: Render) -> str:
    # Whoever asks for everything is told when there is less.
    cut = "\n(shortened to fit)" if top is Level.FULL and Level.NAME < level < top else ""
    return render(tool, spell) + cut


def _whole(tool: Tool, spell: Spell) -> str:
    arguments = example_arguments(tool)
    call = spell(NextCall("call", {"name": tool.handle, "arguments": arguments}))
    example = f"example: {call}" if arguments is not None else f"example: none could be made; {NO_EXAMPLE}"
    output = f"returns: {_json(tool.output_schema)}\n" if tool.output_schema else ""
    return f"{_without_example(tool, spell)}\n{output}{example}"


def _without_example(tool: Tool, spell: Spell) -> str:
    return f"{_headed(tool, tool.description)}\nparameters: {_json(tool.input_schema)}"


def _with_short_texts(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts shortened): {_json(shortened(tool.input_schema, WORDS_LENGTH))}"


def _types_only(tool: Tool, spell: Spell) -> str:
    return f"{_brief(tool)}\nparameters (texts left out): {_json(shortened(tool.input_schema))}"


def _brief(tool: Tool) -> str:
    return _headed(tool, first_sentence(tool.description, BRIEF_LENGTH))


def _headed(tool: Tool, says: str) -> str:
    """Name and effect, and below them what the tool says of itself, which is not ours."""
    head, said = f"## {tool.handle} [{tool.effect}]", fence(says)
    return f"{head}\n{said}" if said else head


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
    return json_text(orjson.dumps(value).decode())
