"""SQLite: tables and views, and those of its own functions that only work out a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portico.errors import InvalidDefinition
from portico.providers.registry.registration import Registration
from portico.providers.registry.types import ParamType

from .dialect import Given, positional, quoted

FUNCTIONS = frozenset(
    "abs char coalesce hex ifnull iif instr length lower ltrim max min nullif round rtrim sign substr substring trim "
    "typeof unicode upper date time datetime julianday unixepoch strftime json json_array_length json_extract "
    "json_type json_valid acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 "
    "log2 mod pi pow power radians sin sinh sqrt tan tanh trunc".split()
)
"""Functions that SQLite brings, answer quickly, and whose answer is not much longer than what they are given."""

_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("byteint", "smallint", "integer", "bigint", "boolean"), "INTEGER"),
    **dict.fromkeys(("real", "double"), "REAL"),
    "decimal": "NUMERIC",
    "bytes": "BLOB",
}
# Moments are texts here: a cast to DATE would make a number of them.


class Sqlite:
    """The SQL of SQLite."""

    name = "sqlite"
    binds_macros = True
    longest_name = 128

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast; a value of a type that we do not know stays what it is."""
        return mark if type.name == "other" else f"CAST({mark} AS {_TYPES.get(type.name, 'TEXT')})"

    def bound(self, value: Any, type: ParamType) -> Any:
        """As it is."""
        return value

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """One of SQLite's own; what is left out at the end is not sent."""
        if registration.object.lower() not in FUNCTIONS:
            raise InvalidDefinition(
                f"a SQLite file holds no functions, and {registration.object!r} is none of those that SQLite brings "
                "and that may be registered; register a view"
            )
        last = max((place for place, one in enumerate(given, 1) if one.sql is not None), default=0)
        return f'SELECT {quoted(registration.object, self)}({positional(given[:last], self)}) AS "result"'

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """There are none."""
        raise InvalidDefinition("SQLite has no macros and no procedures; register a view")

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """With LIMIT at the end."""
        return f"SELECT {what} {rest} LIMIT {bind(rows)}"
