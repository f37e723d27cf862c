"""What a function returns is held to its return annotation: clients throw away a result that breaks its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from .results import as_result


@dataclass(slots=True, eq=False)
class Output:
    """What one tool promises, and the results that keep the promise."""

    schema: Mapping[str, Any] | None = None
    """None where nothing is promised."""
    _validator: jsonschema_rs.Validator | None = field(default=None, init=False)

    def result(self, value: Any) -> Mapping[str, Any]:
        """A function's value as a result object; one that breaks the promise is shown, and is an error.

        Raises:
            TypeError: the value cannot be written as JSON.
            ValueError: it is too large.
        """
        found = as_result(value)
        if self.schema is None or found.get("isError"):
            return found
        reason = self._misfit(found.get("structuredContent"))
        return found if not reason else _broken(found, reason)

    def _misfit(self, structured: Any) -> str:
        if structured is None:
            return "it has no structured value"
        if self._validator is None:  # made for those tools only that are really called
            self._validator = jsonschema_rs.validator_for(dict(self.schema or {}), offline=True)
        if self._validator.is_valid(structured):
            return ""
        error = next(iter(self._validator.iter_errors(structured)))
        return f"{'.'.join(map(str, error.instance_path))}: {error.message[:500]}"


def _broken(found: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
    said = (
        f"the function has run, but what it returned does not fit its return annotation: {reason}."
        " Mend the one or the other (JSON has null for NaN, and no infinity)"
    )
    return {"content": [*found["content"], {"type": "text", "text": said}], "isError": True}


def opened(schema: Any) -> Any:
    """The schema of what is returned: a class that is derived from the annotation's may have more fields."""
    if isinstance(schema, list):
        return [opened(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: opened(part)
        for key, part in schema.items()
        if not (key == "additionalProperties" and part is False and "properties" in schema)
    }
