"""Compares registrations with what the database has: only what is there, and may be used, becomes a tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from portico.errors import InvalidDefinition

from .facts import Facts, Form, Found, OwnType
from .facts.fact import key
from .facts.sqlite import HOME
from .fitting import fitted
from .registration import Parameter, Registration
from .rows import PARAMS, TOOLS, Problem
from .statements import statement_template
from .types import ParamType


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


def _found(one: Registration, facts: Facts) -> Found:
    candidates = facts.found.get(key(one.database, one.object, one.kind), ())
    exact = [found for found in candidates if (found.database, found.name) == (one.database, one.object)]
    if len(exact or candidates) == 1:
        return (exact or candidates)[0]
    spelled = f"{one.database}.{one.object}"
    if candidates:
        raise _Refusal(f"means one of several that are called {spelled!r}", "Write the name in its exact letters")
    fix = "Create it, or put DataBaseName, TableName and ToolType right"
    raise _Refusal(f"names the {one.kind.word} {spelled!r}, which is not in the database", fix)


def _check_use(one: Registration, found: Found, rules: Rules) -> None:
    spelled = f"{found.database}.{found.name}"
    if found.denied:
        raise _Refusal(f"names {spelled!r}, which {found.denied}", "Register something else")
    if not found.is_permitted and not rules.has_roles:
        fix = "Grant the right to the user in the config's URL"
        raise _Refusal(f"names {spelled!r}, which the database user who asks may not use", fix)
    if found.writes and not one.writes:
        fix = "Declare it STABLE if it only reads, or register it with Writes = 'Y'"
        raise _Refusal(f"names {spelled!r}, which {found.writes}", fix)


def _matched(one: Registration, found: Found) -> Registration:
    one = replace(one, database=found.database, object=found.name)
    if found.columns is not None:
        return replace(one, parameters=tuple(_column(parameter, found) for parameter in one.parameters))
    if found.forms is None:
        return one
    return _formed(one, _form(one, found.forms))


def _column(parameter: Parameter, found: Found) -> Parameter:
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
