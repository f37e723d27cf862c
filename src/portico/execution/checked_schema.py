"""A schema with its validator, which is only asked what it can answer in no time to speak of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import jsonschema_rs
import orjson

from portico.domain.tool import Tool

from .cost import CHECK_UNITS, Cost, Size, cost_of

COMPILED_LIMIT = 4_096
LISTED_UNITS = 2_000
"""What a check may cost whose errors are all listed: an error costs a thousand times what a check costs."""
FIRST_UNITS = 200_000
"""What a check may cost whose first error is told."""
ERRORS_READ = 50
TOLD_LETTERS = 200_000
"""Letters of a value whose errors are told at all: each error holds a copy of what is wrong."""


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """One schema of a tool, compiled where that is cheap."""

    tool: Tool
    validator: jsonschema_rs.Validator | None
    cost: Cost
    letters: int = 0
    """Values of so many letters, written as JSON, are surely checked in time."""

    def allows_small(self, value: Any) -> bool:
        """Whether a value is surely small enough to be checked, and fits: the way of nearly all calls.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None:
            return False
        try:
            is_small = len(orjson.dumps(value)) <= self.letters
        except TypeError:  # integers beyond 64 bits, too many levels, or a library user's own objects
            return False
        return is_small and self.validator.is_valid(value)

    def is_valid(self, value: Any, size: Size) -> bool | None:
        """Whether the schema allows a value; None where nobody can tell in time.

        Raises:
            ValueError: the value is not JSON.
        """
        if self.validator is None or not self.cost.affords(size) or not self.cost.reaches(value, size):
            return None
        return self.validator.is_valid(value)

    def errors(self, value: Any, size: Size) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with a value: all of it, the first thing, or nothing, by how long that would take."""
        is_short = size.letters <= TOLD_LETTERS and self.cost.affords(size, FIRST_UNITS)
        if self.validator is None or not is_short or not self.cost.reaches(value, size):
            return []
        if self.cost.affords(size, LISTED_UNITS):
            return [*islice(self.validator.iter_errors(value), ERRORS_READ)]
        if self.cost.has_alternatives:
            return []
        try:
            self.validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


@dataclass(slots=True)
class CheckedSchemas:
    """The schemas of the tools that are really used."""

    _kept: dict[int, CheckedSchema] = field(default_factory=dict)

    def of(self, tool: Tool, schema: Mapping[str, Any]) -> CheckedSchema:
        """The schema of a tool, compiled at its first use."""
        kept = self._kept.get(id(tool))
        if kept is None or kept.tool is not tool:
            if len(self._kept) >= COMPILED_LIMIT:
                self._kept.clear()
            cost = cost_of(schema)
            validator = compile_schema(schema) if cost.is_compiled else None
            letters = CHECK_UNITS // cost.per_letter if cost.per_letter else 0
            kept = self._kept[id(tool)] = CheckedSchema(tool, validator, cost, letters)
        return kept


def compile_schema(schema: Mapping[str, Any]) -> jsonschema_rs.Validator | None:
    """A validator that never touches the network; None when the schema is not valid JSON Schema.

    A server with such a schema still gets its calls, unchecked: it knows better than we do what it meant.
    """
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=50_000)
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return None
