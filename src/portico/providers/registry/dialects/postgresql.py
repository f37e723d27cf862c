"""PostgreSQL: functions are read like tables, procedures are called, and what is left out keeps its default."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portico.providers.registry.registration import Registration
from portico.providers.registry.types import ParamType

from .dialect import Given, qualified, quoted

_TYPES: Mapping[str, str] = {
    # A char without a length would be one letter; bpchar keeps all of them, and uses the same indexes.
    "char": "bpchar",
    "varchar": "text",
    "text": "text",
    "byteint": "smallint",
    "smallint": "smallint",
    "integer": "integer",
    "bigint": "bigint",
    "real": "real",
    "double": "double precision",
    "decimal": "numeric",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    "timetz": "time with time zone",
    "interval": "interval",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "jsonb",
    "bytes": "bytea",
}


class Postgresql:
    """The SQL of PostgreSQL."""

    name = "postgresql"
    binds_macros = True
    longest_name = 63

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast; of a type that we do not know, the database settles it from where the value stands."""
        inner = f"CAST({mark} AS {_TYPES[type.name]})" if type.name in _TYPES and not type.is_many else mark
        own = f"{type.cast}[]" if type.is_many and type.cast else type.cast
        if not own or (own == _TYPES.get(type.name) and not type.is_many):
            return inner
        return f"CAST({inner} AS {own})"

    def bound(self, value: Any, type: ParamType) -> Any:
        """As it is."""
        return value

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """One form for all: behind FROM, a single value is a row with the column `result`."""
        return f'SELECT * FROM {qualified(registration, self)}({self._arguments(given)}) AS "result"'  # noqa: S608

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """A procedure."""
        return f"CALL {qualified(registration, self)}({self._arguments(given)})"

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """With LIMIT at the end."""
        return f"SELECT {what} {rest} LIMIT {bind(rows)}"

    def _arguments(self, given: Sequence[Given]) -> str:
        """In their places, since those of a function need not have names; behind a gap by name."""
        written: list[str] = []
        has_gap = False
        for one in given:
            is_many = one.parameter.type.is_many
            if one.sql is None and one.parameter.has_default and not is_many:
                has_gap = True
                continue
            # What takes a list must be given one; an empty one stands for nothing.
            sql = one.sql or self.typed("'{}'" if is_many else "NULL", one.parameter.type)
            named = f"{quoted(one.parameter.name, self)} => {sql}" if has_gap else sql
            written.append(f"VARIADIC {named}" if is_many else named)
        return ", ".join(written)
