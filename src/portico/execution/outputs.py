"""Whether structured content is what a tool's output schema promises."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from portico.domain.tool import Tool

from .checked_schema import CheckedSchemas
from .cost import measure


@dataclass(slots=True)
class OutputCheck:
    """Checks structured content; compiled schemas are kept for the tools whose results are shortened."""

    _schemas: CheckedSchemas = field(default_factory=CheckedSchemas)

    def allows(self, tool: Tool, structured: Any) -> bool:
        """Whether the tool's schema allows this; one without a schema, or with one that nobody can read, allows all."""
        if tool.output_schema is None:
            return True
        schema = self._schemas.of(tool, tool.output_schema)
        if schema.validator is None and schema.cost.is_compiled:
            return True
        try:
            return schema.is_valid(structured, measure(structured)) is True
        except (ValueError, RecursionError):
            return False
