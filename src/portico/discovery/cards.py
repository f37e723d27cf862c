"""Tools rendered at falling detail, for the budgeter to choose from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from portico.domain.disclosure import Level
from portico.domain.tool import Tool
from portico.errors import NextCall

from .budgets import Rungs
from .examples import example_arguments
from .signatures import first_sentence, signature
from .spelling import Spell, as_meta_tool

_WORDY = frozenset({"description", "title", "examples", "$comment", "markdownDescription", "enumDescriptions"})


def summary_rungs(tool: Tool) -> Rungs:
    """One line: the whole signature, a shorter one, required parameters only, the handle."""
    texts = [
        (Level.PARAMETERS, signature(tool)),
        (Level.PARAMETERS, signature(tool, optional=3, summary=60)),
        (Level.PARAMETERS, signature(tool, optional=0, summary=40)),
        (Level.NAME, tool.handle),
    ]
    return Rungs(handle=tool.handle, texts=tuple(texts))


def full_rungs(tool: Tool, spell: Spell = as_meta_tool) -> Rungs:
    """Everything, then without output and example, short texts, types only, the handle."""
    head = f"## {tool.handle} [{tool.effect}]"
    schema = tool.input_schema
    brief = first_sentence(tool.description, 200)
    example = "example: " + spell(NextCall("call", {"name": tool.handle, "arguments": example_arguments(tool)}))
    output = f"\nreturns: {_json(tool.output_schema)}" if tool.output_schema else ""
    short = _json(without_words(schema))
    texts = [
        (Level.FULL, f"{head}\n{tool.description}\nparameters: {_json(schema)}{output}\n{example}"),
        (Level.FULL, f"{head}\n{tool.description}\nparameters: {_json(schema)}"),
        (Level.FULL, f"{head}\n{brief}\nparameters (texts left out): {short}"),
        (Level.PARAMETERS, f"{head}\n{signature(tool)}\n(shortened to fit)"),
        (Level.NAME, tool.handle),
    ]
    return Rungs(handle=tool.handle, texts=tuple(texts))


def without_words(schema: Any, names: bool = False) -> Any:
    """A schema with types, names and choices, but no prose; `names` says that the keys are parameter names."""
    if isinstance(schema, Mapping):
        return {
            key: without_words(value, not names and key in ("properties", "$defs", "definitions"))
            for key, value in schema.items()
            if names or key not in _WORDY or isinstance(value, Mapping)
        }
    if isinstance(schema, list):
        return [without_words(value) for value in schema]
    return schema


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
