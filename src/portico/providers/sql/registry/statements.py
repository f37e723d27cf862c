"""One call of a registered tool becomes one statement in the dialect of its database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, time
from enum import StrEnum
from threading import Lock
from typing import Any, Protocol

from portico.domain.call import Caller
from portico.errors import (
    CallError,
    ConfigError,
    InvalidArguments,
    InvalidDefinition,
    Refused,
    Sent,
    UpstreamError,
    UpstreamGone,
    UpstreamTimeout,
)
from portico.providers.python.functions import as_result
from portico.providers.python.provider import blamed
from portico.providers.sql import DatabaseSource, OwnConnection, OwnQuery, QueryResult

from .definition import COMPARISONS, MOST_ROWS, Aggregate, Condition, Selection, read_selection
from .rows import ObjectKind, RegisteredParameter, Registration
from .values import DATE, ParamType, UnfitValue, ValueKind, at, example_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One parameter in its place, and the SQL that stands for its value; none when it was left out."""

    parameter: RegisteredParameter
    sql: str | None


class SqlDialect(Protocol):
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


def quoted(name: str, dialect: SqlDialect) -> str:
    """A name between quotes, however harmless it looks.

    Raises:
        InvalidDefinition: it is longer than the database keeps.
    """
    if len(name) > dialect.longest_name:
        raise InvalidDefinition(f"{name!r} is longer than the {dialect.longest_name} letters that a name may have here")
    return '"{}"'.format(name.replace('"', '""'))


def qualified(registration: Registration, dialect: SqlDialect) -> str:
    """The object with the database that it lives in."""
    return f"{quoted(registration.database, dialect)}.{quoted(registration.object, dialect)}"


def positional(given: Sequence[Given], dialect: SqlDialect) -> str:
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
        raise UnfitValue(f"must be text of at most {LONGEST} characters")
    if _ESCAPE.search(value):
        # The driver reads {fn ...} as a command of its own before the database sees a quote.
        raise UnfitValue("holds '{' before a letter, which Teradata's driver takes for a command; leave it out")
    return "'{}'".format(value.replace("'", "''"))


def _integer(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UnfitValue("must be a whole number")
    return str(value)


def _float(value: Any) -> str:
    if not isinstance(value, float) or value - value != 0:
        raise UnfitValue("must be a finite number")
    digits = repr(value)
    return digits.upper() if "e" in digits else f"{digits}E0"


def _decimal(value: Any) -> str:
    return _matched(value, _DIGITS, "{}")


def _boolean(value: Any) -> str:
    if value not in (0, 1):
        raise UnfitValue("must be true or false")
    return str(int(value))


def _bytes(value: Any) -> str:
    if not isinstance(value, bytes) or len(value) > LONGEST:
        raise UnfitValue(f"must be at most {LONGEST} bytes")
    return f"'{value.hex().upper()}'XB"


def _date(value: Any) -> str:
    return _matched(value, DATE, "DATE '{}'")


def _time(value: Any) -> str:
    return _matched(value, _TIME, "TIME '{}'")


def _timestamp(value: Any) -> str:
    return _matched(value, _TIMESTAMP, "TIMESTAMP '{}'")


def _matched(value: Any, pattern: re.Pattern[str], form: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise UnfitValue("cannot be written for this database")
    return form.format(value)


_ENCODERS: Mapping[ValueKind, Callable[[Any], str]] = {
    **dict.fromkeys((ValueKind.TEXT, ValueKind.JSON, ValueKind.UUID, ValueKind.INTERVAL), _text),
    ValueKind.INTEGER: _integer,
    ValueKind.FLOAT: _float,
    ValueKind.DECIMAL: _decimal,
    ValueKind.BOOLEAN: _boolean,
    ValueKind.BYTES: _bytes,
    ValueKind.DATE: _date,
    ValueKind.TIME: _time,
    ValueKind.TIMESTAMP: _timestamp,
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


DIALECTS: Mapping[str, SqlDialect] = {
    "postgresql": Postgresql(),
    "sqlite": Sqlite(),
    "teradata": Teradata(),
    "teradatasql": Teradata(),
}
"""By the names that SQLAlchemy and people give them."""


def dialect_named(name: str) -> SqlDialect:
    """The dialect of a database.

    Raises:
        ConfigError: registries of such databases are not read.
    """
    if name not in DIALECTS:
        known = "postgresql, sqlite and teradata"
        raise ConfigError(f"a registry in a {name!r} database cannot be used", fix=f"There are: {known}")
    return DIALECTS[name]


_MARK = re.compile(r":p[0-9]+")


class Returns(StrEnum):
    """What comes back."""

    VALUE = "value"
    """One row, most often with one column."""
    ROWS = "rows"
    ANYTHING = "anything"
    """Whatever a macro or procedure has to say: rows, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bind:
    """A value that is sent beside the statement."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundStatement:
    """One statement with `:p1`, `:p2` in the order of its binds; each stands in it once."""

    sql: str
    binds: tuple[Bind, ...]
    returns: Returns
    limit: int | None = None
    """Rows that were asked for; the statement asks for one more, so that it can be told whether there are others."""

    @property
    def values(self) -> dict[str, Any]:
        """The values by the names of their placeholders, as a connection takes them."""
        return {bind.name: bind.value for bind in self.binds}

    def positional(self) -> tuple[str, tuple[Any, ...]]:
        """The statement and its values for a driver that counts its places: `?`."""
        # Where there are binds nothing of a caller is in the text, and no name can hold a colon.
        sql = _MARK.sub("?", self.sql) if self.binds else self.sql
        return sql, tuple(bind.value for bind in self.binds)


def build_registry_sql(
    registration: Registration, arguments: Mapping[str, Any], dialect: str, *, most: int = MOST_ROWS
) -> BoundStatement:
    """The statement for one call; `most` is the largest number of rows that a caller may ask of a table.

    Raises:
        InvalidArguments: every argument that does not fit is told; nothing was sent.
        InvalidDefinition: this kind of database cannot run the object.
        ConfigError: registries of this kind of database are not read.
    """
    writer = _Writer(dialect_named(dialect), registration)
    if registration.kind.has_columns:
        return writer.selected(read_selection(registration, arguments, most))
    return writer.called(arguments)


def statement_template(registration: Registration, dialect: str) -> str:
    """The statement with every parameter given, before there are values: to check, to show and to pin.

    Raises:
        InvalidDefinition: this kind of database cannot run the object.
        ConfigError: registries of this kind of database are not read.
    """
    spoken = dialect_named(dialect)
    names = ", ".join(quoted(one.name, spoken) for one in registration.parameters)
    if registration.kind.has_columns:
        return spoken.page(names or "*", f"FROM {qualified(registration, spoken)}", MOST_ROWS, lambda _: ":p1")
    given = [
        Given(parameter=one, sql=literal_example(one, spoken.name))
        if _is_written(registration, spoken)
        else Given(parameter=one, sql=spoken.typed(f":p{number}", one.type))
        for number, one in enumerate(registration.parameters, 1)
    ]
    return _call(registration, spoken, given)


def is_written_out(registration: Registration, dialect: str) -> bool:
    """Whether the values of a call become literals in its statement."""
    return _is_written(registration, dialect_named(dialect))


def literal_example(parameter: RegisteredParameter, dialect: str) -> str:
    """What a value of a parameter looks like where it is written out: its own name for a text."""
    type = parameter.type
    value = example_of(type, parameter.name)
    return written(dialect_named(dialect).bound(type.check(value), type), type)


def _is_written(registration: Registration, dialect: SqlDialect) -> bool:
    """Whether values have to be written out, because the database takes no placeholders there."""
    return registration.kind is ObjectKind.MACRO and not dialect.binds_macros


def _call(registration: Registration, dialect: SqlDialect, given: Sequence[Given]) -> str:
    is_macro = registration.kind is ObjectKind.MACRO
    return dialect.macro(registration, given) if is_macro else dialect.function(registration, given)


class _Writer:
    """Collects the binds of one statement while it is written."""

    def __init__(self, dialect: SqlDialect, registration: Registration) -> None:
        self._dialect, self._registration = dialect, registration
        self._binds: list[Bind] = []

    def called(self, arguments: Mapping[str, Any]) -> BoundStatement:
        """A function, macro or procedure with its arguments in their order."""
        known = {one.name for one in self._registration.parameters}
        wrong = [f"unknown: {str(name)[:60]}" for name in arguments if name not in known]
        given = []
        for parameter in self._registration.parameters:
            try:
                given.append(at(parameter.name, self._given, parameter, arguments.get(parameter.name)))
            except UnfitValue as error:
                wrong.append(str(error))
        if wrong:
            raise InvalidArguments(self._registration.name, details=wrong)
        kind, returns_rows = self._registration.kind, self._registration.returns_rows
        value = Returns.ROWS if returns_rows else Returns.VALUE
        sql = _call(self._registration, self._dialect, given)
        return self._statement(sql, Returns.ANYTHING if kind is ObjectKind.MACRO else value)

    def selected(self, selection: Selection) -> BoundStatement:
        """A question to a table or view."""
        rest = f"FROM {qualified(self._registration, self._dialect)}"
        try:
            conditions = [self._condition(one) for one in selection.conditions]
        except UnfitValue as error:
            raise InvalidArguments(self._registration.name, details=(str(error),)) from error
        if conditions:
            rest += f" WHERE {' AND '.join(conditions)}"
        if selection.group_by:
            rest += f" GROUP BY {', '.join(self._quoted(one.name) for one in selection.group_by)}"
        if selection.order_by:
            rest += f" ORDER BY {', '.join(f'{self._quoted(name)} {way}' for name, way in selection.order_by)}"
        sql = self._dialect.page(self._outputs(selection), rest, selection.limit + 1, self._bind)
        return self._statement(sql, Returns.ROWS, selection.limit)

    def _statement(self, sql: str, returns: Returns, limit: int | None = None) -> BoundStatement:
        return BoundStatement(sql=sql, binds=tuple(self._binds), returns=returns, limit=limit)

    def _given(self, parameter: RegisteredParameter, value: Any) -> Given:
        if value is None:
            if parameter.required:
                raise UnfitValue("is missing")
            return Given(parameter=parameter, sql=None)
        checked = parameter.type.check(value)
        if _is_written(self._registration, self._dialect):
            return Given(parameter=parameter, sql=written(self._dialect.bound(checked, parameter.type), parameter.type))
        return Given(parameter=parameter, sql=self._typed(checked, parameter.type))

    def _outputs(self, selection: Selection) -> str:
        if selection.group_by or selection.aggregates:
            groups = [self._quoted(one.name) for one in selection.group_by]
            return ", ".join([*groups, *(self._aggregate(one) for one in selection.aggregates)])
        # What was registered is what can be seen; of a table without columns nobody said more.
        return ", ".join(self._quoted(one.name) for one in selection.columns) or "*"

    def _aggregate(self, aggregate: Aggregate) -> str:
        column = self._quoted(aggregate.column.name) if aggregate.column else "*"
        is_distinct = aggregate.function == "count_distinct"
        call = f"COUNT(DISTINCT {column})" if is_distinct else f"{aggregate.function.upper()}({column})"
        return f"{call} AS {self._quoted(aggregate.name)}"

    def _condition(self, condition: Condition) -> str:
        column, values = self._quoted(condition.column.name), condition.values
        if condition.operator == "is_null":
            return f"{column} IS {'' if values[0] else 'NOT '}NULL"
        marks = [at(condition.column.name, self._typed, one, condition.type) for one in values]
        if condition.operator == "in":
            return f"{column} IN ({', '.join(marks)})"
        if condition.operator == "between":
            return f"{column} BETWEEN {marks[0]} AND {marks[1]}"
        if condition.operator == "like":
            return f"{column} LIKE {marks[0]} ESCAPE '\\'"
        return f"{column} {COMPARISONS[condition.operator]} {marks[0]}"

    def _typed(self, value: Any, type: ParamType) -> str:
        return self._dialect.typed(self._bind(self._dialect.bound(value, type)), type)

    def _bind(self, value: Any) -> str:
        name = f"p{len(self._binds) + 1}"
        self._binds.append(Bind(name=name, value=value))
        return f":{name}"

    def _quoted(self, name: str) -> str:
        return quoted(name, self._dialect)


TOO_LONG = "it took longer than the database gives it, and was stopped. Ask for less, with a narrower question"


@dataclass(slots=True, kw_only=True)
class StatementRun:
    """A call on its way through a thread; whoever waits for it may stop it."""

    source: DatabaseSource
    registration: Registration
    statement: BoundStatement
    caller: Caller
    is_over: bool = False
    """Whether there is nothing left to stop."""
    _turn: Lock = field(default_factory=Lock)
    _conn: OwnQuery | None = None
    _is_stopped: bool = False

    def run(self) -> Mapping[str, Any]:
        """Send the statement and return the tool's result object; blocks.

        Raises:
            CallError: the database refuses, fails, or is away.
        """
        is_sent = False
        try:
            if self.statement.returns is Returns.ANYTHING or self.registration.writes:
                with self.source.reading(self.caller) as conn, self._held(conn):
                    is_sent = True
                    found = self._done(conn)
            else:
                with self.source.asking(self.caller) as question, self._held(question):
                    is_sent = True
                    found = question.prepared(self.statement.sql, self.statement.values, limit=self.statement.limit)
            return as_result(answer(self.registration, self.statement, found))
        except CallError as error:
            raise told(error, self.registration, is_sent=is_sent) from error
        finally:
            self.is_over = True

    def stop(self) -> None:
        """End the statement, or keep it from being sent; blocks a moment."""
        with self._turn:
            self._is_stopped = True
            if self._conn is not None:
                self._conn.stop()

    @contextmanager
    def _held(self, conn: OwnQuery) -> Iterator[None]:
        """While this is open the connection can be stopped; afterwards it may be another caller's."""
        with self._turn:
            if self._is_stopped:
                raise UpstreamGone("the database", details=("the call was given up before it was sent",))
            self._conn = conn
        try:
            yield
        finally:
            with self._turn:
                self._conn = None

    def _done(self, conn: OwnConnection) -> QueryResult:
        sql, values = self.statement.sql, self.statement.values
        is_query = self.statement.returns is not Returns.ANYTHING
        return conn.prepared(sql, values, limit=self.statement.limit) if is_query else conn.performed(sql, values)


def answer(registration: Registration, statement: BoundStatement, found: QueryResult) -> dict[str, Any]:
    """What a tool has to say: one value as such, otherwise rows, and what to do when there are more."""
    is_value = statement.returns is Returns.VALUE and len(found.columns) == 1 and len(found.rows) == 1
    if is_value and not found.truncated:
        return {"result": found.rows[0][0]}
    if statement.returns is Returns.ANYTHING and not found.columns:
        return {"done": True}
    shown = found.shown()
    if found.truncated:
        shown["next"] = _advice(registration, statement, found)
    return shown


def _advice(registration: Registration, statement: BoundStatement, found: QueryResult) -> str:
    is_short = statement.limit is not None and len(found.rows) == statement.limit
    if not registration.kind.has_columns:
        return f"{found.note.partition('.')[0]}. Narrow it with the tool's parameters"
    if is_short:
        return f"there are more than these {len(found.rows)} rows. Raise limit, or narrow with filters and aggregates"
    return f"{found.note.partition('.')[0]}. Choose fewer columns, or a smaller limit"


def told(error: CallError, registration: Registration, *, is_sent: bool) -> CallError:
    """What a database's refusal means for somebody who wrote no SQL; what a writing tool did before is not known."""
    if isinstance(error, Refused) and error.sent is Sent.ANSWERED:
        said = [line for line in error.details if line.startswith("the database says")]
        owner = "it is registered as reading and would do more; its owner can register it with Writes = 'Y'"
        return Refused(registration.name, details=(owner, *said), sent=Sent.ANSWERED)
    if isinstance(error, InvalidArguments):
        return blamed(error, registration.name, has_values=bool(registration.parameters))
    if isinstance(error, UpstreamError):
        error.about(registration.name)
        return error
    if isinstance(error, UpstreamTimeout) and error.sent is Sent.ANSWERED:
        return UpstreamTimeout(registration.name, details=(TOO_LONG,), sent=error.sent)
    is_open = is_sent and isinstance(error, UpstreamGone | UpstreamTimeout)
    if is_open and error.sent is Sent.NOTHING:
        return type(error)(error.subject, details=error.details, sent=Sent.UNKNOWN)
    return error
