"""A registry as it is read out of its views, and compared with what the database has."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from portico.domain.call import Caller
from portico.domain.suggestions import did_you_mean
from portico.errors import CallError, InvalidArguments, InvalidDefinition, Sent, UpstreamGone, UpstreamTimeout
from portico.providers.sql import DatabaseSource, OwnConnection, QueryResult
from portico.providers.sql.sql_values import ParamType, UnfitValue, ValueKind, read_type

from .call_statements import META, statement_template, tool_definition
from .database_objects import (
    HOME,
    DatabaseObject,
    Facts,
    Form,
    Names,
    OwnType,
    Views,
    key,
    look_up_objects,
    names_in,
    quick_mark,
)
from .registry_rows import (
    PARAMS,
    TOOLS,
    Known,
    Problem,
    RefusedRow,
    RegisteredParameter,
    Registration,
    Row,
    by_place,
    read_rows,
)

_FAMILIES = (
    frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL}),
    frozenset({ValueKind.DATE, ValueKind.TIMESTAMP}),
)
"""Kinds of which values of one may be values of another."""
_TAKEN = (
    (ValueKind.INTEGER, ValueKind.FLOAT),
    (ValueKind.INTEGER, ValueKind.DECIMAL),
    (ValueKind.DECIMAL, ValueKind.DECIMAL),
)
"""Declared kinds of which a function's own kind takes every value."""


def fit_type(declared: ParamType, own: OwnType) -> ParamType | None:
    """The type that a caller is told of and held to, with the cast to the function's own; None when none would work.

    What is declared counts where the function takes every value of it; otherwise the function's own type does. Text may
    stand for anything, because a registry that knows nothing better declares it.
    """
    is_text = declared.shape is ValueKind.TEXT
    if own.is_pseudo:
        return declared if own.name.startswith("any") else None
    if own.labels:
        return replace(declared, name="text", cast=own.name, choices=own.labels) if is_text else None
    base = read_type(own.base)
    if base.shape is ValueKind.TEXT and base.is_known:
        return replace(declared, cast=own.name)
    if is_text:
        return replace(base, code=declared.code, cast=own.name, is_known=True)
    shapes = (declared.shape, base.shape)
    # A database without a boolean has 0 and 1.
    is_switch = shapes == (ValueKind.INTEGER, ValueKind.BOOLEAN)
    is_near = is_switch or shapes[0] is shapes[1] or any(frozenset(shapes) <= family for family in _FAMILIES)
    if not base.is_known or not is_near:
        return None
    is_taken = declared.name == base.name or shapes in _TAKEN
    if shapes == (ValueKind.INTEGER, ValueKind.INTEGER):
        is_taken = declared.bits <= base.bits
    return replace(declared if is_taken else replace(base, code=declared.code), cast=own.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of a database that decide what is offered."""

    dialect: str
    schema: str = ""
    """The database or schema that the registry lives in."""
    writes: bool = False
    """Whether tools that were declared as writing are offered."""
    has_roles: bool = False
    """Whether callers have rights of their own, so that those of the one who logs in say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Registrations under the exact names of the database, and the problems of others."""

    tools: tuple[tuple[Registration, str], ...]
    """Each with a mark that changes when its object does."""
    problems: tuple[Problem, ...]


def verify(registrations: Iterable[Registration], facts: Facts, rules: Rules) -> Verified:
    """Let through what the database has."""
    tools: list[tuple[Registration, str]] = []
    problems: list[Problem] = []
    for one in registrations:
        try:
            tools.append(_verify(one, facts, rules))
        except RefusedRow as refusal:
            problems.append(refusal.of(one.name))
    return Verified(tools=tuple(tools), problems=tuple(problems))


def _verify(one: Registration, facts: Facts, rules: Rules) -> tuple[Registration, str]:
    if one.writes and not rules.writes:
        fix = "Set `writes: true` for this database in the config, or register it with Writes = 'N'"
        reason = "writes, and the config does not let tools of this database write"
        raise RefusedRow(reason, fix, is_withheld=True)
    mark = ""
    if rules.dialect == "sqlite":
        # There is one schema; a row that was copied from another kind of database names the registry's.
        if one.database.lower() not in (HOME, rules.schema.lower()):
            raise RefusedRow(f"has the DataBaseName {one.database!r}", f"Write {HOME!r}, which is the file itself")
        one = replace(one, database=HOME)
    if rules.dialect != "sqlite" or one.kind.has_columns:
        found = _found(one, facts)
        _check_use(one, found, rules)
        one, mark = _match(one, found), found.mark
    try:
        statement_template(one, rules.dialect)
    except InvalidDefinition as error:
        raise RefusedRow(f"cannot run here: {error}", "Register something else, or delete the row") from error
    return one, mark


def _found(one: Registration, facts: Facts) -> DatabaseObject:
    candidates = facts.found.get(key(one.database, one.object, one.kind), ())
    exact = [found for found in candidates if (found.database, found.name) == (one.database, one.object)]
    if len(exact or candidates) == 1:
        return (exact or candidates)[0]
    spelled = f"{one.database}.{one.object}"
    if candidates:
        raise RefusedRow(f"means one of several that are called {spelled!r}", "Write the name in its exact letters")
    fix = "Create it, or put DataBaseName, TableName and ToolType right"
    raise RefusedRow(f"names the {one.kind.word} {spelled!r}, which is not in the database", fix)


def _check_use(one: Registration, found: DatabaseObject, rules: Rules) -> None:
    spelled = f"{found.database}.{found.name}"
    if found.denied:
        raise RefusedRow(f"names {spelled!r}, which {found.denied}", "Register something else")
    if not found.is_permitted and not rules.has_roles:
        fix = "Grant the right to the user in the config's URL"
        raise RefusedRow(f"names {spelled!r}, which the database user who asks may not use", fix)
    if found.writes and not one.writes:
        fix = "Declare it STABLE if it only reads, or register it with Writes = 'Y'"
        raise RefusedRow(f"names {spelled!r}, which {found.writes}", fix)


def _match(one: Registration, found: DatabaseObject) -> Registration:
    one = replace(one, database=found.database, object=found.name)
    if found.columns is not None:
        return replace(one, parameters=tuple(_column(parameter, found) for parameter in one.parameters))
    if found.forms is None:
        return one
    return _apply_form(one, _form(one, found.forms))


def _column(parameter: RegisteredParameter, found: DatabaseObject) -> RegisteredParameter:
    columns = found.columns or ()
    if parameter.name in columns:
        return parameter
    alike = [name for name in columns if name.lower() == parameter.name.lower()]
    if len(alike) == 1:
        return replace(parameter, name=alike[0])
    near = did_you_mean(parameter.name, columns, limit=1)
    fix = near.replace("did", "Did", 1) if near else f"There are: {', '.join(columns[:20])}"
    raise RefusedRow(f"has the parameter {parameter.name!r}, which is no column of {found.name!r}", fix, PARAMS)


def _form(one: Registration, forms: Sequence[Form]) -> Form:
    """The form that takes what is declared; of several the one that changes the fewest types."""
    count = len(one.parameters)
    fitting = [form for form in forms if form.least <= count <= form.most]
    if not fitting:
        takes = " or ".join(
            dict.fromkeys(str(f.most) if f.least == f.most else f"{f.least} to {f.most}" for f in forms)
        )
        reason = f"has {count} parameters, and {one.object!r} takes {takes}"
        raise RefusedRow(reason, f"Write one row for each of them in {PARAMS}", PARAMS)
    usable = [form for form in fitting if None not in _types(one, form)]
    if not usable:
        raise _declaration_error(one, fitting[0])
    return min(usable, key=lambda form: _changes(one, form))


def _own_type(form: Form, place: int) -> OwnType | None:
    """The type of what is passed at a place; every place behind the last is one more of a list."""
    last = len(form.types) - 1
    return form.types[min(place, last)] if last >= 0 and (place <= last or form.is_variadic) else None


def _types(one: Registration, form: Form) -> list[ParamType | None]:
    """The type of each parameter; None for one whose declared type cannot work."""
    pairs = [(parameter.type, _own_type(form, place)) for place, parameter in enumerate(one.parameters)]
    return [declared if own is None else fit_type(declared, own) for declared, own in pairs]


def _changes(one: Registration, form: Form) -> int:
    """The number of declared types that a form would change."""
    pairs = zip(one.parameters, _types(one, form), strict=True)
    return sum(type is not None and type.name != parameter.type.name for parameter, type in pairs)


def _declaration_error(one: Registration, form: Form) -> RefusedRow:
    place = _types(one, form).index(None)
    parameter, own = one.parameters[place], _own_type(form, place)
    name = own.name if own is not None else "something else"
    if own is not None and own.is_pseudo:
        reason = f"has the parameter {parameter.name!r}, whose type {name!r} no caller can write"
        return RefusedRow(reason, "Register something else", PARAMS)
    reason = f"declares {parameter.name!r} as {parameter.type.code!r}, and {one.object!r} takes {name!r}"
    return RefusedRow(reason, f"Write {name!r} as its ParamType", PARAMS)


def _apply_form(one: Registration, form: Form) -> Registration:
    """The registration with what the database itself knows of a form, which counts more than the registry."""
    last = len(one.parameters) - 1
    names = form.names[: last + 1]
    is_named = [parameter.name.lower() for parameter in one.parameters] == [name.lower() for name in names]
    types = _types(one, form)
    is_list = form.is_variadic and len(one.parameters) == len(form.types)
    parameters = tuple(
        replace(
            parameter,
            name=names[place] if is_named else parameter.name,
            type=replace(types[place] or parameter.type, is_many=is_list and place == last),
            # Behind a gap the others are passed by name, which they must have then.
            has_default=place >= form.least and (is_named or place == last),
        )
        for place, parameter in enumerate(one.parameters)
    )
    return replace(one, parameters=parameters, returns_rows=form.returns_rows or one.returns_rows)


USERS = "mcp_list_toolUsers"
"""The view of end users' rights, which need not be there."""
EVERYBODY = "*"
READER = Caller(name="registry", surface="admin")
"""The caller that reads the registry, for the database's own records."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """All that a registry holds at one moment."""

    tools: Mapping[str, Registration] = field(default_factory=dict)
    definitions: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Problem, ...] = ()
    users: Mapping[str, tuple[str, ...]] | None = None
    """The users who may see each tool; None where the registry restricts nobody."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """A mark of the object behind each tool."""
    mark: str = ""
    """Of everything that was read."""
    glance: str = ""
    names: Names = field(default_factory=dict)
    views: Views | None = None
    known: Known = field(default_factory=dict, compare=False, repr=False)
    """The registrations by the cells of their rows."""


class RegistryLoader:
    """Loads the tools of one registry; every method blocks.

    The source must be a steady one, so that a change in the meantime cannot leave half of itself here.
    """

    def __init__(self, source: DatabaseSource, rules: Rules, *, most: int = 1_000) -> None:
        """`most` is the largest number of rows that a caller may ask for."""
        self._source, self._rules, self._most = source, rules, most

    def load_tools(self) -> dict[str, Mapping[str, Any]]:
        """Query both views and return the definition of each tool by its name."""
        return {str(one["name"]): one for one in self.load().definitions}

    def load(self, previous: Registered | None = None) -> Registered:
        """Everything that is registered now; the same object as before when nothing has changed.

        Raises:
            CallError: the database cannot be asked, or it holds no registry.
        """
        with self._source.reading(READER) as conn:
            views = Views(
                tools=self._view(conn, TOOLS),
                params=self._view(conn, PARAMS),
                users=self._view(conn, USERS, is_needed=False),
            )
            tools, params = self._rows(conn, views.tools), self._rows(conn, views.params)
            users = self._rows(conn, views.users) if views.users else None
            known = previous.known if previous is not None else None
            read = read_rows(tools.records(), params.records(), self._rules.dialect, known)
            names = names_in(read.registrations)
            facts = look_up_objects(conn, names, views)
        cells = [[part.columns, part.rows] for part in (tools, params, users) if part is not None]
        objects = sorted((str(key), repr(found)) for key, found in facts.found.items())
        mark = hashlib.sha256(orjson.dumps([cells, users is None, objects])).hexdigest()
        if previous is not None and previous.mark == mark:
            # Something of an object has changed that concerns no tool: the next glance must not see it again.
            return previous if previous.glance == facts.mark else replace(previous, glance=facts.mark)
        verified = verify(read.registrations, facts, self._rules)
        rights, odd = _rights(users, [one.name for one, _ in verified.tools])
        if not verified.tools:
            logger.warning("No tools found in registry database %r", self._rules.schema)
        return Registered(
            tools={one.name: one for one, _ in verified.tools},
            definitions=self._definitions(verified, previous or Registered()),
            problems=by_place({*read.problems, *verified.problems, *odd}),
            users=rights,
            versions={one.name: version for one, version in verified.tools},
            mark=mark,
            glance=facts.mark,
            names=names,
            views=views,
            known=read.known,
        )

    def is_same(self, previous: Registered) -> bool:
        """Whether a glance shows that nothing has changed; where there is no glance, nobody can say so.

        Raises:
            CallError: the database cannot be asked, or the registry's views are gone.
        """
        if not previous.glance or previous.views is None:
            return False
        with self._source.reading(READER) as conn:
            return quick_mark(conn, previous.names, previous.views) == previous.glance

    def _definitions(self, verified: Verified, before: Registered) -> tuple[Mapping[str, Any], ...]:
        """Definitions of tools; an unchanged one is the same object as before, which spares everybody a second look."""
        known = {str(one["name"]): one for one in before.definitions}
        found: list[Mapping[str, Any]] = []
        for one, version in verified.tools:
            if before.tools.get(one.name) == one and before.versions.get(one.name) == version:
                found.append(known[one.name])
                continue
            fresh = tool_definition(one, most=self._most)
            # Whoever approves definitions sees also when the object behind one has changed.
            fresh["_meta"][META]["server_object"] = hashlib.sha256(version.encode()).hexdigest()[:16]
            found.append(fresh)
        return tuple(found)

    def _view(self, conn: OwnConnection, name: str, *, is_needed: bool = True) -> str:
        """A view as it can stand in SQL; what the config calls it must be in the database."""
        schema = "" if self._rules.dialect == "sqlite" else self._rules.schema
        try:
            return conn.quoted(conn.find(name, schema))
        except InvalidArguments as error:
            if not is_needed:
                return ""
            detail = f"the registry {self._rules.schema!r} cannot be read: {'; '.join(error.details)}"
            fix = "Make it with: portico registry init NAME, where NAME is the database in the config"
            raise UpstreamGone("the registry", details=(f"{detail}. {fix}",), sent=Sent.ANSWERED) from error

    def _rows(self, conn: OwnConnection, view: str) -> QueryResult:
        try:
            found = conn.prepared(f"SELECT * FROM {view}", {})  # noqa: S608 - a name that the database has, quoted
        except CallError as error:
            if error.sent is not Sent.ANSWERED or isinstance(error, UpstreamGone):
                raise
            # Whose fault it is, for those who can mend a view.
            is_late = isinstance(error, UpstreamTimeout)
            said = "it takes longer than the database gives it" if is_late else error.details[-1]
            detail = f"{view} cannot be read: {said}. Put the view right: what it is made of, or the rights on that"
            raise UpstreamGone("the registry", details=(detail,), sent=error.sent) from error
        if found.truncated:
            most = f"{self._source.limits.rows:,} rows or {self._source.limits.bytes:,} bytes"
            detail = f"{view} holds more than the {most} that are read of a view"
            raise UpstreamGone("the registry", details=(detail,), sent=Sent.ANSWERED)
        return found


def _rights(
    users: QueryResult | None, tools: Sequence[str]
) -> tuple[Mapping[str, tuple[str, ...]] | None, list[Problem]]:
    """The users of each tool, as the third view says; a row that cannot be read gives nobody a right."""
    if users is None:
        return None, []
    found: dict[str, set[str]] = {}
    odd: list[tuple[str, str, str]] = []
    fix = "Put it right, or delete the row"
    for raw in users.records():
        try:
            row = Row(raw, USERS)
            tool, user = row.text("ToolName"), row.text("UserName")
        except UnfitValue as error:
            odd.append(("?", f"has a cell that cannot be used: {error}", fix))
            continue
        if tool and user:
            found.setdefault(tool, set()).add(user)
        else:
            odd.append((tool or "?", "has a row without a ToolName or UserName", fix))
    advice = f"Add a row for each user who may, or one with {EVERYBODY!r} for everybody"
    odd += [(name, "may be seen by nobody", advice) for name in tools if name not in found]
    problems = [Problem(tool=tool, where=USERS, reason=reason, fix=fix, loads=True) for tool, reason, fix in odd]
    return {name: tuple(sorted(found.get(name, ()))) for name in tools}, problems
