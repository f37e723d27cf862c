"""Whether structured content is what a tool's output schema promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from portico.domain.tool import Tool

from .arguments import COMPILED_LIMIT, TRIES_LIMIT, compile_schema
from .recursion import count_branches, depth_of


@dataclass(slots=True)
class OutputCheck:
    """Checks structured content; compiled schemas are kept for the tools whose results are shortened."""

    _compiled: dict[int, tuple[Tool, jsonschema_rs.Validator | None, int]] = field(default_factory=dict)

    def allows(self, tool: Tool, structured: Any) -> bool:
        """Whether the tool's schema allows this; one without a schema, or with one that nobody can read, allows all."""
        if tool.output_schema is None:
            return True
        _, validator, branches = self._kept(tool)
        if validator is None:
            return True
        if branches > 1 and branches ** depth_of(structured) > TRIES_LIMIT:
            return False
        try:
            return validator.is_valid(structured)
        except (ValueError, RecursionError):
            return False

    def _kept(self, tool: Tool) -> tuple[Tool, jsonschema_rs.Validator | None, int]:
        kept = self._compiled.get(id(tool))
        if kept is None or kept[0] is not tool:
            if len(self._compiled) >= COMPILED_LIMIT:
                self._compiled.clear()
            schema = tool.output_schema or {}
            kept = self._compiled[id(tool)] = (tool, compile_schema(schema), count_branches(schema))
        return kept
