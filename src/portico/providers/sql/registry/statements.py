"""One call of a registered tool: names are quoted, values are bound, and one statement is sent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Any

from portico.domain.call import Caller
from portico.errors import CallError, InvalidArguments, Refused, Sent, UpstreamError, UpstreamGone, UpstreamTimeout
from portico.providers.python.calling import blamed
from portico.providers.python.functions import as_result
from portico.providers.sql import DatabaseSource, OwnConnection, Question, Result

from .definition import COMPARISONS, MOST_ROWS, Aggregate, Condition, Selection, read_selection
from .dialects import Dialect, Given, dialect_named, qualified, quoted, written
from .rows import Kind, Parameter, Registration
from .values import ParamType, Unfit, at, example_of

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
class Statement:
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
) -> Statement:
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


def literal_example(parameter: Parameter, dialect: str) -> str:
    """What a value of a parameter looks like where it is written out: its own name for a text."""
    type = parameter.type
    value = example_of(type, parameter.name)
    return written(dialect_named(dialect).bound(type.check(value), type), type)


def _is_written(registration: Registration, dialect: Dialect) -> bool:
    """Whether values have to be written out, because the database takes no placeholders there."""
    return registration.kind is Kind.MACRO and not dialect.binds_macros


def _call(registration: Registration, dialect: Dialect, given: Sequence[Given]) -> str:
    is_macro = registration.kind is Kind.MACRO
    return dialect.macro(registration, given) if is_macro else dialect.function(registration, given)


class _Writer:
    """Collects the binds of one statement while it is written."""

    def __init__(self, dialect: Dialect, registration: Registration) -> None:
        self._dialect, self._registration = dialect, registration
        self._binds: list[Bind] = []

    def called(self, arguments: Mapping[str, Any]) -> Statement:
        """A function, macro or procedure with its arguments in their order."""
        known = {one.name for one in self._registration.parameters}
        wrong = [f"unknown: {str(name)[:60]}" for name in arguments if name not in known]
        given = []
        for parameter in self._registration.parameters:
            try:
                given.append(at(parameter.name, self._given, parameter, arguments.get(parameter.name)))
            except Unfit as error:
                wrong.append(str(error))
        if wrong:
            raise InvalidArguments(self._registration.name, details=wrong)
        kind, returns_rows = self._registration.kind, self._registration.returns_rows
        value = Returns.ROWS if returns_rows else Returns.VALUE
        sql = _call(self._registration, self._dialect, given)
        return self._statement(sql, Returns.ANYTHING if kind is Kind.MACRO else value)

    def selected(self, selection: Selection) -> Statement:
        """A question to a table or view."""
        rest = f"FROM {qualified(self._registration, self._dialect)}"
        try:
            conditions = [self._condition(one) for one in selection.conditions]
        except Unfit as error:
            raise InvalidArguments(self._registration.name, details=(str(error),)) from error
        if conditions:
            rest += f" WHERE {' AND '.join(conditions)}"
        if selection.group_by:
            rest += f" GROUP BY {', '.join(self._quoted(one.name) for one in selection.group_by)}"
        if selection.order_by:
            rest += f" ORDER BY {', '.join(f'{self._quoted(name)} {way}' for name, way in selection.order_by)}"
        sql = self._dialect.page(self._outputs(selection), rest, selection.limit + 1, self._bind)
        return self._statement(sql, Returns.ROWS, selection.limit)

    def _statement(self, sql: str, returns: Returns, limit: int | None = None) -> Statement:
        return Statement(sql=sql, binds=tuple(self._binds), returns=returns, limit=limit)

    def _given(self, parameter: Parameter, value: Any) -> Given:
        if value is None:
            if parameter.required:
                raise Unfit("is missing")
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
    statement: Statement
    caller: Caller
    is_over: bool = False
    """Whether there is nothing left to stop."""
    _turn: Lock = field(default_factory=Lock)
    _conn: Question | None = None
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
    def _held(self, conn: Question) -> Iterator[None]:
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

    def _done(self, conn: OwnConnection) -> Result:
        sql, values = self.statement.sql, self.statement.values
        is_query = self.statement.returns is not Returns.ANYTHING
        return conn.prepared(sql, values, limit=self.statement.limit) if is_query else conn.performed(sql, values)


def answer(registration: Registration, statement: Statement, found: Result) -> dict[str, Any]:
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


def _advice(registration: Registration, statement: Statement, found: Result) -> str:
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
