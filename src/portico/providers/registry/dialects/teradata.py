"""Teradata: TOP in place of LIMIT, TABLE(...) around functions that return one, and literals behind EXEC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, time
from typing import Any

from portico.providers.registry.registration import Registration
from portico.providers.registry.shapes import Shape
from portico.providers.registry.types import ParamType
from portico.providers.registry.unfit import Unfit

from .dialect import Given, positional, qualified

LONGEST_TEXT = 32_000
"""Characters of a VARCHAR."""
LONGEST_BYTES = 64_000

_TYPES = {
    "byteint": "BYTEINT",
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "real": "FLOAT",
    "double": "FLOAT",
    "boolean": "BYTEINT",
    # How dates are spelled is a setting of the session, unless the cast says it.
    "date": "DATE FORMAT 'YYYY-MM-DD'",
    "time": "TIME(6)",
    "timetz": "TIME(6) WITH TIME ZONE",
    "timestamp": "TIMESTAMP(6)",
    "timestamptz": "TIMESTAMP(6) WITH TIME ZONE",
    "json": "JSON",
    "jsonb": "JSON",
}


class Teradata:
    """The SQL of Teradata."""

    name = "teradata"
    binds_macros = False
    longest_name = 128

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast, since the driver loses types; text it sends as what it is, and a cast would change its letters."""
        is_text = type.name not in _TYPES and type.name not in ("decimal", "bytes")
        return mark if is_text and mark != "NULL" else f"CAST({mark} AS {_spelled(type)})"

    def bound(self, value: Any, type: ParamType) -> Any:
        """Moments as Teradata spells them, and 1 or 0 for true and false, which it does not know."""
        if isinstance(value, bool):
            return int(value)
        if type.shape is Shape.TIMESTAMP:
            return datetime.fromisoformat(value).isoformat(sep=" ", timespec="microseconds")
        if type.shape is Shape.TIME:
            return time.fromisoformat(value).isoformat(timespec="microseconds")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise Unfit(f"has {len(value)} characters; this database takes at most {LONGEST_TEXT}")
        if isinstance(value, bytes) and len(value) > LONGEST_BYTES:
            raise Unfit(f"has {len(value)} bytes; this database takes at most {LONGEST_BYTES}")
        return value

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """A value is selected; a table is read from."""
        call = f"{qualified(registration, self)}({positional(given, self)})"
        return f'SELECT * FROM TABLE({call}) AS "t"' if registration.returns_rows else f'SELECT {call} AS "result"'  # noqa: S608

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """A macro; one without parameters has no parentheses."""
        arguments = ", ".join(one.sql or "NULL" for one in given)
        return f"EXEC {qualified(registration, self)}{f'({arguments})' if given else ''}"

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """With TOP, which takes a number and no placeholder, and goes with neither DISTINCT nor QUALIFY."""
        return f"SELECT TOP {int(rows)} {what} {rest}"


def _spelled(type: ParamType) -> str:
    if type.name in _TYPES:
        return _TYPES[type.name]
    if type.name == "decimal":
        return f"DECIMAL({type.precision}, {type.scale})" if type.precision and type.precision <= 38 else "NUMBER"
    if type.name == "bytes":
        return f"VARBYTE({min(type.length or LONGEST_BYTES, LONGEST_BYTES)})"
    return f"VARCHAR({min(type.length or LONGEST_TEXT, LONGEST_TEXT)})"
