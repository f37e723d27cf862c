"""The SQL dialects that registered objects are called in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from typing import Any, Protocol

from portico.errors import ConfigError, InvalidDefinition

from .rows import Parameter, Registration
from .values import DATE, ParamType, Shape, Unfit


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One parameter in its place, and the SQL that stands for its value; none when it was left out."""

    parameter: Parameter
    sql: str | None


class Dialect(Protocol):
    """Writes statements of one kind of database; it is given SQL for values and never a value itself."""

    name: str
    binds_macros: bool
    """Whether a macro or procedure takes placeholders."""
    longest_name: int
    """Characters of a name that the database keeps; a longer one would become another."""

    def typed(self, mark: str, type: ParamType) -> str:
        """A placeholder, or NULL, as a value of exactly this type."""
        ...

    def bound(self, value: Any, type: ParamType) -> Any:
        """A checked value as the driver takes it.

        Raises:
            Unfit: this database cannot keep it.
        """
        ...

    def function(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that calls a function.

        Raises:
            InvalidDefinition: this database has no such thing.
        """
        ...

    def macro(self, registration: Registration, given: Sequence[Given]) -> str:
        """The statement that runs a macro or procedure.

        Raises:
            InvalidDefinition: this database has no such thing.
        """
        ...

    def page(self, what: str, rest: str, rows: int, bind: Callable[[Any], str]) -> str:
        """A SELECT of so many rows at most; `bind` gives the placeholder for a value."""
        ...


def quoted(name: str, dialect: Dialect) -> str:
    """A name between quotes, however harmless it looks.

    Raises:
        InvalidDefinition: it is longer than the database keeps.
    """
    if len(name) > dialect.longest_name:
        raise InvalidDefinition(f"{name!r} is longer than the {dialect.longest_name} letters that a name may have here")
    return '"{}"'.format(name.replace('"', '""'))


def qualified(registration: Registration, dialect: Dialect) -> str:
    """The object with the database that it lives in."""
    return f"{quoted(registration.database, dialect)}.{quoted(registration.object, dialect)}"


def positional(given: Sequence[Given], dialect: Dialect) -> str:
    """Every argument in its place; one that was left out is NULL."""
    return ", ".join(one.sql or dialect.typed("NULL", one.parameter.type) for one in given)


LONGEST = 31_000
"""Characters of a literal."""

_ESCAPE = re.compile(r"\{\s*[A-Za-z?]")
_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}(?:[+-][0-9]{2}:[0-9]{2})?")
_TIMESTAMP = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} {_TIME.pattern}")


def written(value: Any, type: ParamType) -> str:
    """A value as a literal of its type.

    Raises:
        Unfit: nobody has said how such a value is written.
    """
    return _ENCODERS[type.shape](value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST:
        raise Unfit(f"must be text of at most {LONGEST} characters")
    if _ESCAPE.search(value):
        # The driver reads {fn ...} as a command of its own before the database sees a quote.
        raise Unfit("holds '{' before a letter, which Teradata's driver takes for a command; leave it out")
    return "'{}'".format(value.replace("'", "''"))


def _integer(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit("must be a whole number")
    return str(value)


def _float(value: Any) -> str:
    if not isinstance(value, float) or value - value != 0:
        raise Unfit("must be a finite number")
    digits = repr(value)
    return digits.upper() if "e" in digits else f"{digits}E0"


def _decimal(value: Any) -> str:
    return _matched(value, _DIGITS, "{}")


def _boolean(value: Any) -> str:
    if value not in (0, 1):
        raise Unfit("must be true or false")
    return str(int(value))


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) > LONGEST:
        raise Unfit(f"must be at most {LONGEST} bytes")
    return f"'{value.hex().upper()}'XB"


def _date(value: Any) -> str:
    return _matched(value, DATE, "DATE '{}'")


def _time(value: Any) -> str:
    return _matched(value, _TIME, "TIME '{}'")


def _timestamp(value: Any) -> str:
    return _matched(value, _TIMESTAMP, "TIMESTAMP '{}'")


def _matched(value: Any, pattern: re.Pattern[str], form: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise Unfit("cannot be written for this database")
    return form.format(value)


_ENCODERS: Mapping[Shape, Callable[[Any], str]] = {
    **dict.fromkeys((Shape.TEXT, Shape.JSON, Shape.UUID, Shape.INTERVAL), _text),
    Shape.INTEGER: _integer,
    Shape.FLOAT: _float,
    Shape.DECIMAL: _decimal,
    Shape.BOOLEAN: _boolean,
    Shape.BYTES: _bytes,
    Shape.DATE: _date,
    Shape.TIME: _time,
    Shape.TIMESTAMP: _timestamp,
}


_PG_TYPES: Mapping[str, str] = {
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
        inner = f"CAST({mark} AS {_PG_TYPES[type.name]})" if type.name in _PG_TYPES and not type.is_many else mark
        own = f"{type.cast}[]" if type.is_many and type.cast else type.cast
        if not own or (own == _PG_TYPES.get(type.name) and not type.is_many):
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


class Sqlite:
    """The SQL of SQLite."""

    name = "sqlite"
    binds_macros = True
    longest_name = 128

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast; a value of a type that we do not know stays what it is."""
        return mark if type.name == "other" else f"CAST({mark} AS {_SQLITE_TYPES.get(type.name, 'TEXT')})"

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


class Teradata:
    """The SQL of Teradata."""

    name = "teradata"
    binds_macros = False
    longest_name = 128

    def typed(self, mark: str, type: ParamType) -> str:
        """A cast, since the driver loses types; text it sends as what it is, and a cast would change its letters."""
        is_text = type.name not in _TERADATA_TYPES and type.name not in ("decimal", "bytes")
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
    if type.name in _TERADATA_TYPES:
        return _TERADATA_TYPES[type.name]
    if type.name == "decimal":
        return f"DECIMAL({type.precision}, {type.scale})" if type.precision and type.precision <= 38 else "NUMBER"
    if type.name == "bytes":
        return f"VARBYTE({min(type.length or LONGEST_BYTES, LONGEST_BYTES)})"
    return f"VARCHAR({min(type.length or LONGEST_TEXT, LONGEST_TEXT)})"


DIALECTS: Mapping[str, Dialect] = {
    "postgresql": Postgresql(),
    "sqlite": Sqlite(),
    "teradata": Teradata(),
    "teradatasql": Teradata(),
}
"""By the names that SQLAlchemy and people give them."""


def dialect_named(name: str) -> Dialect:
    """The dialect of a database.

    Raises:
        ConfigError: registries of such databases are not read.
    """
    if name not in DIALECTS:
        known = "postgresql, sqlite and teradata"
        raise ConfigError(f"a registry in a {name!r} database cannot be used", fix=f"There are: {known}")
    return DIALECTS[name]
