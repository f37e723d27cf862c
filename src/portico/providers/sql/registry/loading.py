"""Reads a registry out of its views, and compares it with what the database has."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

import orjson

from portico.domain.call import Caller
from portico.errors import CallError, InvalidArguments, InvalidDefinition, Sent, UpstreamGone, UpstreamTimeout
from portico.providers.sql import DatabaseSource, OwnConnection, QueryResult

from .database_facts import HOME, DatabaseObject, Facts, Form, Named, OwnType, Views, glance, key, look, named_by
from .definition import META, tool_definition
from .rows import PARAMS, TOOLS, Known, Problem, RegisteredParameter, Registration, Row, read_rows
from .statements import statement_template
from .values import ParamType, UnfitValue, ValueKind, read_type

_NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL})
_MOMENTS = frozenset({ValueKind.DATE, ValueKind.TIMESTAMP})


def fitted(declared: ParamType, own: OwnType) -> ParamType | None:
    """The type that a caller is told of and held to, with the cast to the function's own; None when none would work.

    What is declared counts where the function takes every value of it; otherwise the function's own type does. Text may
    stand for anything, because a registry that knows nothing better declares it.
    """
    if own.is_pseudo:
        return declared if own.name.startswith("any") else None
    if own.labels:
        return replace(declared, name="text", cast=own.name, choices=own.labels) if _is_text(declared) else None
    base = read_type(own.base)
    if base.shape is ValueKind.TEXT and base.is_known:
        return replace(declared, cast=own.name)
    if _is_text(declared):
        return replace(base, code=declared.code, cast=own.name, is_known=True)
    return replace(_narrower(declared, base), cast=own.name) if base.is_known and _is_near(declared, base) else None


def _is_text(declared: ParamType) -> bool:
    return declared.shape is ValueKind.TEXT


def _is_near(declared: ParamType, base: ParamType) -> bool:
    """Whether values of one may be values of the other."""
    shapes = {declared.shape, base.shape}
    # A database without a boolean has 0 and 1.
    is_switch = declared.shape is ValueKind.INTEGER and base.shape is ValueKind.BOOLEAN
    return len(shapes) == 1 or shapes <= _NUMBERS or shapes <= _MOMENTS or is_switch


def _narrower(declared: ParamType, base: ParamType) -> ParamType:
    """What both take: the declared type, unless the function takes less than that."""
    is_whole = declared.shape is ValueKind.INTEGER
    if is_whole and base.shape in (ValueKind.FLOAT, ValueKind.DECIMAL):
        return declared
    if is_whole and base.shape is ValueKind.INTEGER:
        return declared if declared.bits <= base.bits else replace(base, code=declared.code)
    if declared.shape is ValueKind.DECIMAL and base.shape is ValueKind.DECIMAL:
        return declared
    return declared if declared.name == base.name else replace(base, code=declared.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the config says of a database, as far as it decides what is offered."""

    dialect: str
    schema: str = ""
    """The database or schema that the registry lives in."""
    writes: bool = False
    """Whether tools that were declared as writing are offered."""
    has_roles: bool = False
    """Whether callers have rights of their own, so that those of the one who logs in say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What passed, under the exact names of the database, and what did not."""

    tools: tuple[tuple[Registration, str], ...]
    """Each with a mark that changes when its object does."""
    problems: tuple[Problem, ...]


class _Refusal(Exception):
    def __init__(self, reason: str, fix: str, where: str = TOOLS, *, is_withheld: bool = False) -> None:
        self.reason, self.fix, self.where, self.is_withheld = reason, fix, where, is_withheld
        super().__init__(reason)

    def of(self, tool: str) -> Problem:
        return Problem(tool=tool, where=self.where, reason=self.reason, fix=self.fix, is_withheld=self.is_withheld)


def verify(registrations: Iterable[Registration], facts: Facts, rules: Rules) -> Verified:
    """Let through what the database has."""
    tools: list[tuple[Registration, str]] = []
    problems: list[Problem] = []
    for one in registrations:
        try:
            tools.append(_verified(one, facts, rules))
        except _Refusal as refusal:
            problems.append(refusal.of(one.name))
    return Verified(tools=tuple(tools), problems=tuple(problems))


def _verified(one: Registration, facts: Facts, rules: Rules) -> tuple[Registration, str]:
    if one.writes and not rules.writes:
        fix = "Set `writes: true` for this database in the config, or register it with Writes = 'N'"
        reason = "writes, and the config does not let tools of this database write"
        raise _Refusal(reason, fix, is_withheld=True)
    if rules.dialect == "sqlite":
        one = _at_home(one, rules)
    mark = ""
    if rules.dialect != "sqlite" or one.kind.has_columns:
        found = _found(one, facts)
        _check_use(one, found, rules)
        one, mark = _matched(one, found), found.mark
    try:
        statement_template(one, rules.dialect)
    except InvalidDefinition as error:
        raise _Refusal(f"cannot run here: {error}", "Register something else, or delete the row") from error
    return one, mark


def _at_home(one: Registration, rules: Rules) -> Registration:
    """SQLite has one schema; a row that was copied from another kind of database names the registry's."""
    if one.database.lower() not in (HOME, rules.schema.lower()):
        raise _Refusal(f"has the DataBaseName {one.database!r}", f"Write {HOME!r}, which is the file itself")
    return replace(one, database=HOME)


def _found(one: Registration, facts: Facts) -> DatabaseObject:
    candidates = facts.found.get(key(one.database, one.object, one.kind), ())
    exact = [found for found in candidates if (found.database, found.name) == (one.database, one.object)]
    if len(exact or candidates) == 1:
        return (exact or candidates)[0]
    spelled = f"{one.database}.{one.object}"
    if candidates:
        raise _Refusal(f"means one of several that are called {spelled!r}", "Write the name in its exact letters")
    fix = "Create it, or put DataBaseName, TableName and ToolType right"
    raise _Refusal(f"names the {one.kind.word} {spelled!r}, which is not in the database", fix)


def _check_use(one: Registration, found: DatabaseObject, rules: Rules) -> None:
    spelled = f"{found.database}.{found.name}"
    if found.denied:
        raise _Refusal(f"names {spelled!r}, which {found.denied}", "Register something else")
    if not found.is_permitted and not rules.has_roles:
        fix = "Grant the right to the user in the config's URL"
        raise _Refusal(f"names {spelled!r}, which the database user who asks may not use", fix)
    if found.writes and not one.writes:
        fix = "Declare it STABLE if it only reads, or register it with Writes = 'Y'"
        raise _Refusal(f"names {spelled!r}, which {found.writes}", fix)


def _matched(one: Registration, found: DatabaseObject) -> Registration:
    one = replace(one, database=found.database, object=found.name)
    if found.columns is not None:
        return replace(one, parameters=tuple(_column(parameter, found) for parameter in one.parameters))
    if found.forms is None:
        return one
    return _formed(one, _form(one, found.forms))


def _column(parameter: RegisteredParameter, found: DatabaseObject) -> RegisteredParameter:
    columns = found.columns or ()
    if parameter.name in columns:
        return parameter
    alike = [name for name in columns if name.lower() == parameter.name.lower()]
    if len(alike) == 1:
        return replace(parameter, name=alike[0])
    near = get_close_matches(parameter.name, columns, n=1)
    fix = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(columns[:20])}"
    raise _Refusal(f"has the parameter {parameter.name!r}, which is no column of {found.name!r}", fix, PARAMS)


def _form(one: Registration, forms: Sequence[Form]) -> Form:
    """The form that takes what is declared; of several the one that changes the fewest types."""
    count = len(one.parameters)
    fitting = [form for form in forms if form.least <= count <= form.most]
    if fitting:
        usable = [form for form in fitting if _misfit(one, form) is None]
        if not usable:
            raise _misdeclared(one, fitting[0])
        return min(usable, key=lambda form: _changes(one, form))
    takes = " or ".join(dict.fromkeys(_counted(form) for form in forms))
    reason = f"has {count} parameters, and {one.object!r} takes {takes}"
    raise _Refusal(reason, f"Write one row for each of them in {PARAMS}", PARAMS)


def _own_type(form: Form, place: int) -> OwnType | None:
    """The type of what is passed at a place; every place behind the last is one more of a list."""
    last = len(form.types) - 1
    return form.types[min(place, last)] if last >= 0 and (place <= last or form.is_variadic) else None


def _types(one: Registration, form: Form) -> list[ParamType | None]:
    found: list[ParamType | None] = []
    for place, parameter in enumerate(one.parameters):
        own = _own_type(form, place)
        found.append(parameter.type if own is None else fitted(parameter.type, own))
    return found


def _misfit(one: Registration, form: Form) -> int | None:
    """The place of the first parameter whose declared type cannot work."""
    return next((place for place, type in enumerate(_types(one, form)) if type is None), None)


def _misdeclared(one: Registration, form: Form) -> _Refusal:
    place = _misfit(one, form) or 0
    parameter, own = one.parameters[place], _own_type(form, place)
    name = own.name if own is not None else "something else"
    if own is not None and own.is_pseudo:
        reason = f"has the parameter {parameter.name!r}, whose type {name!r} no caller can write"
        return _Refusal(reason, "Register something else", PARAMS)
    reason = f"declares {parameter.name!r} as {parameter.type.code!r}, and {one.object!r} takes {name!r}"
    return _Refusal(reason, f"Write {name!r} as its ParamType", PARAMS)


def _changes(one: Registration, form: Form) -> int:
    """How many of the declared types a form would change."""
    pairs = zip(one.parameters, _types(one, form), strict=True)
    return sum(type is not None and type.name != parameter.type.name for parameter, type in pairs)


def _counted(form: Form) -> str:
    return str(form.most) if form.least == form.most else f"{form.least} to {form.most}"


def _formed(one: Registration, form: Form) -> Registration:
    """What the database itself knows of a form counts more than what the registry says."""
    names = form.names[: len(one.parameters)]
    told = [parameter.name.lower() for parameter in one.parameters]
    is_named = told == [name.lower() for name in names]
    types = _types(one, form)
    is_list = form.is_variadic and len(one.parameters) == len(form.types)
    parameters = tuple(
        replace(
            parameter,
            name=names[place] if is_named else parameter.name,
            type=replace(types[place] or parameter.type, is_many=is_list and place == len(one.parameters) - 1),
            # Behind a gap the others are passed by name, which they must have then.
            has_default=place >= form.least and (is_named or place == len(one.parameters) - 1),
        )
        for place, parameter in enumerate(one.parameters)
    )
    return replace(one, parameters=parameters, returns_rows=form.returns_rows or one.returns_rows)


USERS = "mcp_list_toolUsers"
"""The view of end users' rights, which need not be there."""
EVERYBODY = "*"
READER = Caller(name="registry", surface="admin")
"""Who reads the registry, for the database's own records."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """All that a registry holds at one moment."""

    tools: Mapping[str, Registration] = field(default_factory=dict)
    definitions: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[Problem, ...] = ()
    users: Mapping[str, tuple[str, ...]] | None = None
    """Who may see each tool; None where the registry restricts nobody."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """A mark of the object behind each tool."""
    mark: str = ""
    """Of everything that was read."""
    glance: str = ""
    named: Named = field(default_factory=Named)
    views: Views | None = None
    known: Known = field(default_factory=dict, compare=False, repr=False)
    """What the rows of each tool came to."""


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
            views = self._views(conn)
            tools, params = self._rows(conn, views.tools), self._rows(conn, views.params)
            users = self._rows(conn, views.users) if views.users else None
            known = previous.known if previous is not None else None
            read = read_rows(tools.records(), params.records(), self._rules.dialect, known)
            named = named_by(read.registrations)
            facts = look(conn, named, views)
        mark = _mark(tools, params, users, facts)
        if previous is not None and previous.mark == mark:
            # Something of an object has changed that concerns no tool: the next glance must not see it again.
            return previous if previous.glance == facts.mark else replace(previous, glance=facts.mark)
        fresh = self._registered(read.registrations, read.problems, users, facts, previous)
        return replace(fresh, mark=mark, glance=facts.mark, named=named, views=views, known=read.known)

    def is_same(self, previous: Registered) -> bool:
        """Whether a glance shows that nothing has changed; where there is no glance, nobody can say so.

        Raises:
            CallError: the database cannot be asked, or the registry's views are gone.
        """
        if not previous.glance or previous.views is None:
            return False
        with self._source.reading(READER) as conn:
            return glance(conn, previous.named, previous.views) == previous.glance

    def _registered(
        self,
        registrations: Iterable[Registration],
        problems: Iterable[Problem],
        users: QueryResult | None,
        facts: Facts,
        previous: Registered | None,
    ) -> Registered:
        verified = verify(registrations, facts, self._rules)
        rights, strange = _rights(users)
        kept = {one.name: one for one, _ in verified.tools}
        unseen = _unseen(kept, rights)
        if not kept:
            logger.warning("No tools found in registry database %r", self._rules.schema)
        return Registered(
            tools=kept,
            definitions=self._definitions(verified, previous),
            versions={one.name: version for one, version in verified.tools},
            problems=tuple(sorted({*problems, *verified.problems, *strange, *unseen}, key=_place)),
            users=None if rights is None else {name: rights.get(name, ()) for name in kept},
        )

    def _definitions(self, verified: Verified, previous: Registered | None) -> tuple[Mapping[str, Any], ...]:
        """Those of tools that are as they were are the same objects, which spares everybody a second look."""
        before = previous or Registered()
        known = {str(one["name"]): one for one in before.definitions}
        return tuple(
            known[one.name]
            if before.tools.get(one.name) == one and before.versions.get(one.name) == version
            else self._definition(one, version)
            for one, version in verified.tools
        )

    def _definition(self, one: Registration, version: str) -> Mapping[str, Any]:
        """Whoever approves definitions sees also when the object behind one has changed."""
        found = tool_definition(one, most=self._most)
        found["_meta"][META]["server_object"] = hashlib.sha256(version.encode()).hexdigest()[:16]
        return found

    def _views(self, conn: OwnConnection) -> Views:
        return Views(
            tools=self._view(conn, TOOLS),
            params=self._view(conn, PARAMS),
            users=self._view(conn, USERS, is_needed=False),
        )

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
            raise UpstreamGone("the registry", details=(_unread(view, error),), sent=error.sent) from error
        if found.truncated:
            limits = self._source.limits
            detail = (
                f"{view} holds more than the {limits.rows:,} rows or {limits.bytes:,} bytes that are read of a view"
            )
            raise UpstreamGone("the registry", details=(detail,), sent=Sent.ANSWERED)
        return found


def _unread(view: str, error: CallError) -> str:
    """Whose fault it is, for those who can mend a view."""
    is_late = isinstance(error, UpstreamTimeout)
    said = "it takes longer than the database gives it" if is_late else error.details[-1]
    return f"{view} cannot be read: {said}. Put the view right: what it is made of, or the rights on that"


def _place(problem: Problem) -> tuple[str, str, str]:
    return problem.tool, problem.where, problem.reason


def _mark(tools: QueryResult, params: QueryResult, users: QueryResult | None, facts: Facts) -> str:
    read = [[part.columns, part.rows] for part in (tools, params, users) if part is not None]
    known = sorted((str(spot), repr(found)) for spot, found in facts.found.items())
    return hashlib.sha256(orjson.dumps([read, users is None, known])).hexdigest()


def _rights(users: QueryResult | None) -> tuple[dict[str, tuple[str, ...]] | None, list[Problem]]:
    """Who may see each tool, as the third view says; a row that cannot be read gives nobody a right."""
    if users is None:
        return None, []
    found: dict[str, set[str]] = {}
    problems: list[Problem] = []
    for raw in users.records():
        try:
            row = Row(raw)
            tool, user = row.text("ToolName"), row.text("UserName")
        except UnfitValue as error:
            problems.append(_strange("?", f"has a cell that cannot be used: {error}"))
            continue
        if tool and user:
            found.setdefault(tool, set()).add(user)
        else:
            problems.append(_strange(tool or "?", "has a row without a ToolName or UserName"))
    return {tool: tuple(sorted(names)) for tool, names in found.items()}, problems


def _strange(tool: str, reason: str) -> Problem:
    return Problem(tool=tool, where=USERS, reason=reason, fix="Put it right, or delete the row", loads=True)


def _unseen(tools: Iterable[str], rights: Mapping[str, tuple[str, ...]] | None) -> list[Problem]:
    if rights is None:
        return []
    fix = f"Add a row for each user who may, or one with {EVERYBODY!r} for everybody"
    return [
        Problem(tool=name, where=USERS, reason="may be seen by nobody", fix=fix, loads=True)
        for name in tools
        if not rights.get(name)
    ]
