"""Reads a registry out of its views, all of it at one moment, and says whether there is anything new."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from portico.domain.caller import Caller
from portico.errors import CallError, InvalidArguments, Sent, UpstreamGone, UpstreamTimeout
from portico.providers.database import DatabaseSource, OwnConnection, Result

from .cells import Row
from .definition import META, tool_definition
from .facts import Facts, Named, Views, glance, look, named_by
from .registration import Registration
from .rows import PARAMS, TOOLS, Known, Problem, read_rows
from .unfit import Unfit
from .verifying import Rules, Verified, verify

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
        users: Result | None,
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

    def _rows(self, conn: OwnConnection, view: str) -> Result:
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


def _mark(tools: Result, params: Result, users: Result | None, facts: Facts) -> str:
    read = [[part.columns, part.rows] for part in (tools, params, users) if part is not None]
    known = sorted((str(spot), repr(found)) for spot, found in facts.found.items())
    return hashlib.sha256(orjson.dumps([read, users is None, known])).hexdigest()


def _rights(users: Result | None) -> tuple[dict[str, tuple[str, ...]] | None, list[Problem]]:
    """Who may see each tool, as the third view says; a row that cannot be read gives nobody a right."""
    if users is None:
        return None, []
    found: dict[str, set[str]] = {}
    problems: list[Problem] = []
    for raw in users.records():
        try:
            row = Row(raw)
            tool, user = row.text("ToolName"), row.text("UserName")
        except Unfit as error:
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
