"""The SQL of each kind of database that can hold a registry: names, typed placeholders, literals and calls.

Statements are written as text. SQLAlchemy would have to be loaded for the first call and knows no Teradata by itself,
and the calls of functions, macros and procedures are not in its language. A value that a database cannot keep is an
`UnfitValue`, and an object that it cannot have an `InvalidDefinition`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any

from portico.errors import ConfigError, InvalidDefinition
from portico.providers.sql.sql_values import ParamType, UnfitValue, ValueKind

from .registry_rows import RegisteredParameter, Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One parameter in its place, and the SQL that stands for its value; none when it was left out."""

    parameter: RegisteredParameter
    sql: str | None


class SqlDialect:
    """Writes statements of one kind of database; it is given SQL for values and never a value itself."""

    name = ""
    binds_macros = True
    """Whether a macro or procedure takes placeholders."""
    longest_name = 128
    """Characters of a name that the database keeps; a longer one would become another."""

    def typed(self, mark: str, type: ParamType) -> str:
        """A placeholder, or NULL, as a value of exactly this type."""
        raise NotImplementedError

    def bound(self, value: Any, type: ParamType) -> Any:
        """A checked value as the driver takes it."""
        return value

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that calls a function."""
        raise NotImplementedError

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that runs a macro or procedure."""
        raise NotImplementedError

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """A SELECT of so many rows at most; `bind` gives the placeholder for a value."""
        return f"SELECT {what} {rest} LIMIT {bind(rows)}"

    def quoted(self, name: str) -> str:
        """A name between quotes, however harmless it looks."""
        if len(name) > self.longest_name:
            most = self.longest_name
            raise InvalidDefinition(f"{name!r} is longer than the {most} letters that a name may have here")
        return '"{}"'.format(name.replace('"', '""'))

    def qualified(self, registration: Registration) -> str:
        """The object with the database that it lives in."""
        return f"{self.quoted(registration.database)}.{self.quoted(registration.object)}"

    def positional(self, given: Sequence[Given]) -> str:
        """Every argument in its place; one that was left out is NULL."""
        return ", ".join(one.sql or self.typed("NULL", one.parameter.type) for one in given)


LONGEST = 31_000
"""Characters of a literal."""
_ESCAPE = re.compile(r"\{\s*[A-Za-z?]")
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(?:[+-][0-9]{2}:[0-9]{2})?"
_FORMS: Mapping[ValueKind, tuple[re.Pattern[str], str]] = {
    ValueKind.DECIMAL: (re.compile(r"-?[0-9]+(?:\.[0-9]+)?"), "{}"),
    ValueKind.DATE: (re.compile(_DAY), "DATE '{}'"),
    ValueKind.TIME: (re.compile(_TIME), "TIME '{}'"),
    ValueKind.TIMESTAMP: (re.compile(f"{_DAY} {_TIME}"), "TIMESTAMP '{}'"),
}
_LITERALS: Mapping[ValueKind, tuple[Callable[[Any], bool], Callable[[Any], str], str]] = {
    ValueKind.INTEGER: (lambda value: type(value) is int, str, "must be a whole number"),
    ValueKind.FLOAT: (
        lambda value: isinstance(value, float) and value - value == 0,
        lambda value: repr(value).upper() if "e" in repr(value) else f"{value!r}E0",
        "must be a finite number",
    ),
    ValueKind.BOOLEAN: (lambda value: value in (0, 1), lambda value: str(int(value)), "must be true or false"),
    ValueKind.BYTES: (
        lambda value: isinstance(value, bytes) and len(value) <= LONGEST,
        lambda value: f"'{value.hex().upper()}'XB",
        f"must be at most {LONGEST} bytes",
    ),
}
"""A test of each kind, the literal of a value that passes, and the reason where it does not."""


def literal(value: Any, type: ParamType) -> str:
    """A checked value as a literal of its type."""
    shape = type.shape
    if shape in _FORMS:
        pattern, form = _FORMS[shape]
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise UnfitValue("cannot be written for this database")
        return form.format(value)
    if shape in _LITERALS:
        fits, write, wrong = _LITERALS[shape]
        if not fits(value):
            raise UnfitValue(wrong)
        return write(value)
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST:
        raise UnfitValue(f"must be text of at most {LONGEST} characters")
    if _ESCAPE.search(value):
        # The driver reads {fn ...} as a command of its own before the database sees a quote.
        raise UnfitValue("holds '{' before a letter, which Teradata's driver takes for a command; leave it out")
    return "'{}'".format(value.replace("'", "''"))


_PG_TYPES: Mapping[str, str] = {
    # A char without a length would be one letter; bpchar keeps all of them, and uses the same indexes.
    "char": "bpchar",
    "varchar": "text",
    **{name: name for name in "text smallint integer bigint real boolean date time interval timestamp".split()},
    **{name: name for name in "uuid json jsonb".split()},
    "byteint": "smallint",
    "double": "double precision",
    "decimal": "numeric",
    "timetz": "time with time zone",
    "timestamptz": "timestamp with time zone",
    "bytes": "bytea",
}


class _Postgresql(SqlDialect):
    name = "postgresql"
    longest_name = 63

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast; of a type that we do not know, the database settles it from where the value stands."""
        inner = f"CAST({mark} AS {_PG_TYPES[type.name]})" if type.name in _PG_TYPES and not type.is_many else mark
        own = f"{type.cast}[]" if type.is_many and type.cast else type.cast
        if not own or (own == _PG_TYPES.get(type.name) and not type.is_many):
            return inner
        return f"CAST({inner} AS {own})"

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """One form for all: behind FROM, a single value is a row with the column `result`."""
        return f'SELECT * FROM {self.qualified(registration)}({self._arguments(given)}) AS "result"'  # noqa: S608

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        return f"CALL {self.qualified(registration)}({self._arguments(given)})"

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
            named = f"{self.quoted(one.parameter.name)} => {sql}" if has_gap else sql
            written.append(f"VARIADIC {named}" if is_many else named)
        return ", ".join(written)


FUNCTIONS = frozenset(
    "abs char coalesce hex ifnull iif instr length lower ltrim max min nullif round rtrim sign substr substring trim "
    "typeof unicode upper date time datetime julianday unixepoch strftime json json_array_length json_extract "
    "json_type json_valid acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 "
    "log2 mod pi pow power radians sin sinh sqrt tan tanh trunc".split()
)
"""Functions that SQLite brings, answer quickly, and whose answer is not much longer than what they are given."""

_SQLITE_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("byteint", "smallint", "integer", "bigint", "boolean"), "INTEGER"),
    **dict.fromkeys(("real", "double"), "REAL"),
    "decimal": "NUMERIC",
    "bytes": "BLOB",
}
# Moments are texts here: a cast to DATE would make a number of them.


class _Sqlite(SqlDialect):
    name = "sqlite"

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast; a value of a type that we do not know stays what it is."""
        return mark if type.name == "other" else f"CAST({mark} AS {_SQLITE_TYPES.get(type.name, 'TEXT')})"

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """One of SQLite's own; arguments that are left out at the end are not sent."""
        if registration.object.lower() not in FUNCTIONS:
            raise InvalidDefinition(
                f"a SQLite file holds no functions, and {registration.object!r} is none of those that SQLite brings "
                "and that may be registered; register a view"
            )
        last = max((place for place, one in enumerate(given, 1) if one.sql is not None), default=0)
        return f'SELECT {self.quoted(registration.object)}({self.positional(given[:last])}) AS "result"'

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        raise InvalidDefinition("SQLite has no macros and no procedures; register a view")


LONGEST_TEXT = 32_000
"""Characters of a VARCHAR."""
LONGEST_BYTES = 64_000

_TERADATA_TYPES = {
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


class _Teradata(SqlDialect):
    name = "teradata"
    binds_macros = False

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast, since the driver loses types; text it sends as what it is, and a cast would change its letters."""
        spelled = _TERADATA_TYPES.get(type.name)
        if type.name == "decimal":
            has_digits = type.precision and type.precision <= 38
            spelled = f"DECIMAL({type.precision}, {type.scale})" if has_digits else "NUMBER"
        elif type.name == "bytes":
            spelled = f"VARBYTE({min(type.length or LONGEST_BYTES, LONGEST_BYTES)})"
        if spelled is None and mark != "NULL":
            return mark
        return f"CAST({mark} AS {spelled or f'VARCHAR({min(type.length or LONGEST_TEXT, LONGEST_TEXT)})'})"

    def bound(self, value: Any, type: ParamType) -> Any:
        """Moments as Teradata spells them, and 1 or 0 for true and false, which it does not know."""
        if isinstance(value, bool):
            return int(value)
        if type.shape is ValueKind.TIMESTAMP:
            return datetime.fromisoformat(value).isoformat(sep=" ", timespec="microseconds")
        if type.shape is ValueKind.TIME:
            return time.fromisoformat(value).isoformat(timespec="microseconds")
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise UnfitValue(f"has {len(value)} characters; this database takes at most {LONGEST_TEXT}")
        if isinstance(value, bytes) and len(value) > LONGEST_BYTES:
            raise UnfitValue(f"has {len(value)} bytes; this database takes at most {LONGEST_BYTES}")
        return value

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """A value is selected; a table is read from."""
        call = f"{self.qualified(registration)}({self.positional(given)})"
        return f'SELECT * FROM TABLE({call}) AS "t"' if registration.returns_rows else f'SELECT {call} AS "result"'  # noqa: S608

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """A macro; one without parameters has no parentheses."""
        arguments = ", ".join(one.sql or "NULL" for one in given)
        return f"EXEC {self.qualified(registration)}{f'({arguments})' if given else ''}"

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """With TOP, which takes a number and no placeholder, and goes with neither DISTINCT nor QUALIFY."""
        return f"SELECT TOP {int(rows)} {what} {rest}"


_DIALECTS: Mapping[str, SqlDialect] = {
    "postgresql": _Postgresql(),
    "sqlite": _Sqlite(),
    **dict.fromkeys(("teradata", "teradatasql"), _Teradata()),
}
"""By the names that SQLAlchemy and people give them."""


def dialect_named(name: str) -> SqlDialect:
    """The dialect of a database."""
    if name not in _DIALECTS:
        known = "postgresql, sqlite and teradata"
        raise ConfigError(f"a registry in a {name!r} database cannot be used", fix=f"There are: {known}")
    return _DIALECTS[name]
