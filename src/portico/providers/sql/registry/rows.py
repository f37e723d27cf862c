"""Rows of the registry's views become registrations; a row that cannot be used harms no other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from portico.domain.tool import META_TOOLS, identifier

from .values import ParamType, UnfitValue, is_size, read_type


class ObjectKind(StrEnum):
    """What the object is; the value is the ToolType of the registry."""

    FUNCTION = "F"
    MACRO = "M"
    """A macro of Teradata, or a procedure of PostgreSQL."""
    TABLE = "T"
    VIEW = "V"

    @property
    def word(self) -> str:
        """What people call it."""
        return "macro or procedure" if self is ObjectKind.MACRO else self.name.lower()

    @property
    def has_columns(self) -> bool:
        """Whether its parameters are columns that rows are chosen by."""
        return self in (ObjectKind.TABLE, ObjectKind.VIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredParameter:
    """One parameter of a function or macro, or one column of a table or view."""

    name: str
    type: ParamType
    position: int
    required: bool = False
    comment: str = ""
    has_default: bool = True
    """Whether the object itself knows what to do when this is left out; otherwise NULL is sent."""

    @property
    def length(self) -> int | None:
        """Characters or bytes at most."""
        return self.type.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One row of the registry with its parameters in their order."""

    name: str
    database: str
    """The database or schema in which the object lives."""
    object: str
    kind: ObjectKind
    docstring: str = ""
    tags: tuple[str, ...] = ()
    example: str = ""
    parameters: tuple[RegisteredParameter, ...] = ()
    writes: bool = False
    returns_rows: bool = False
    """Whether a function returns a table; Teradata calls it in another way then."""

    @property
    def fingerprint(self) -> str:
        """Changes when anything that was registered changes, and with nothing else."""
        # The text of a dataclass has every field, and is made ten times as fast as a copy of it.
        return hashlib.sha256(repr(self).encode("utf-8", "replace")).hexdigest()[:32]


_YES = frozenset({"y", "yes", "true", "t", "1"})
_NO = frozenset({"n", "no", "false", "f", "0"})
_BAD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""Signs that turn the direction of what follows: a reader would see another text than an agent."""

_WRITTEN = str | bytes | bytearray | memoryview | int | float | Decimal
"""What drivers give for texts and numbers."""

SHOWN = 60
"""Characters of a strange value that a message repeats."""


class Row:
    """The cells of one row, by the names that the registry gives its columns."""

    def __init__(self, raw: Any) -> None:
        """Fold the columns' names.

        Raises:
            Unfit: it is no row with named columns.
        """
        pairs: Iterable[Any] | None = raw.items() if isinstance(raw, Mapping) else None
        if pairs is None and hasattr(raw, "keys"):  # rows of sqlite3 are no mappings
            pairs = [(key, raw[key]) for key in raw.keys()]  # noqa: SIM118
        if pairs is None:
            raise UnfitValue("has no column names")
        self._cells = {_folded(key): value for key, value in pairs}

    @property
    def mark(self) -> tuple[Any, ...]:
        """Every cell with its column; rows with the same mark are read alike."""
        return tuple(self._cells.items())

    def has(self, column: str) -> bool:
        """Whether the view has such a column."""
        return column.casefold() in self._cells

    def text(self, column: str) -> str:
        """A cell without its padding; empty when there is none.

        Raises:
            Unfit: it holds something else than text.
        """
        value = self._cells.get(column.casefold())
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, _WRITTEN):
            raise UnfitValue(f"is no text but of the type {type(value).__name__!r}", (column,))
        if isinstance(value, int) and value.bit_length() > 100:
            raise UnfitValue("is a number with too many digits", (column,))
        return _decoded(value, column).strip(" ")

    def flag(self, column: str) -> bool | None:
        """Yes, no, or nothing said.

        Raises:
            Unfit: it is neither.
        """
        value = self._cells.get(column.casefold())
        if isinstance(value, bool):
            return value
        word = self.text(column).casefold()
        if not word or word in _YES | _NO:
            return word in _YES if word else None
        raise UnfitValue(f"is {word[:SHOWN]!r} and neither Y nor N", (column,))

    def number(self, column: str) -> int | None:
        """A whole number above 0; None when there is none.

        Raises:
            Unfit: it is something else.
        """
        word = self.text(column)
        if not word:
            return None
        match = re.fullmatch(r"([0-9]{1,6})(?:\.0*)?", word)
        if not match or int(match[1]) < 1:
            raise UnfitValue(f"is {word[:SHOWN]!r} and no whole number above 0", (column,))
        return int(match[1])


def cleaned(text: str, most: int) -> str:
    """A text for people without what terminals and JSON cannot take, cut where it is too long."""
    text = _BIDI.sub("", _BAD.sub(" ", text.replace("\r\n", "\n"))).strip()
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


@lru_cache(maxsize=256)  # every row of a view has the same few
def _folded(column: Any) -> str:
    return _decoded(column).strip(" ").casefold()


def _decoded(value: Any, column: str = "") -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        return str(value)
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise UnfitValue("is no UTF-8", (column,) if column else ()) from None


TOOLS = "mcp_list_tools"
PARAMS = "mcp_list_toolParams"

LONGEST_NAME = 128
LONGEST_DOCSTRING = 8_000
LONGEST_COMMENT = 1_000
LONGEST_EXAMPLE = 200
MOST_PARAMETERS = 200
MOST_TAGS = 20
MOST_TOOLS = 20_000
"""Of one registry; every new snapshot of the catalog goes through all of them."""

TOOL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
OBJECT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$#]{0,127}")
_LETTERS = f"Use at most {LONGEST_NAME} letters, digits, _, $ and #, and begin with a letter or _"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with a row of the registry, and what to do about it."""

    tool: str
    where: str
    reason: str
    fix: str
    loads: bool = False
    """Whether the tool is there in spite of it."""
    is_withheld: bool = False
    """Whether nothing is wrong with the row, and the config keeps the tool back."""

    def __str__(self) -> str:
        return f"{self.where}: {self.tool!r} {self.reason}. {self.fix}"


Known = Mapping[tuple[Any, ...], tuple[Registration, tuple[Problem, ...]]]
"""Registrations and what is odd with them, by every cell of their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRegistry:
    """What the rows of a registry came to."""

    registrations: tuple[Registration, ...]
    problems: tuple[Problem, ...]
    known: Known = field(compare=False, repr=False)
    """What each tool's rows came to, for the next reading: most are the same then."""


class _Wrong(Exception):
    """Ends the reading of one tool."""

    def __init__(self, reason: str, fix: str, where: str = TOOLS) -> None:
        self.reason, self.fix, self.where = reason, fix, where
        super().__init__(reason)


def read_rows(
    tools: Iterable[Any], params: Iterable[Any], dialect: str = "", known: Known | None = None
) -> LoadedRegistry:
    """The registrations in the order of their names, and what kept others from being one."""
    reading = _Reading(dialect, known or {})
    found = reading.tools(tools, reading.by_tool(params))
    names = {one.name for one in found}
    told = {problem for problem in reading.problems if not problem.loads or problem.tool in names}
    problems = tuple(sorted(told, key=lambda one: (one.tool, one.where, one.reason)))
    return LoadedRegistry(registrations=found, problems=problems, known=reading.known)


class _Reading:
    """The problems of one reading, beside what was read."""

    def __init__(self, dialect: str, before: Known) -> None:
        self._dialect, self._before = dialect, before
        self.known: dict[tuple[Any, ...], tuple[Registration, tuple[Problem, ...]]] = {}
        self.problems: list[Problem] = []

    def by_tool(self, params: Iterable[Any]) -> dict[str, list[Row]]:
        """The rows of parameters under the names of their tools."""
        found: dict[str, list[Row]] = {}
        for raw in params:
            try:
                row = Row(raw)
                found.setdefault(_named(row, "ToolName", PARAMS), []).append(row)
            except (UnfitValue, _Wrong) as error:
                self._refuse("?", error, PARAMS)
        return found

    def tools(self, rows: Iterable[Any], params: dict[str, list[Row]]) -> tuple[Registration, ...]:
        """The registrations; parameters that belong to no row are told."""
        found: dict[str, set[Registration]] = {}
        named: set[str] = set()
        for raw in rows:
            name = "?"
            try:
                row = Row(raw)
                name = _named(row, "ToolName", TOOLS)
                named.add(name)
                found.setdefault(name, set()).add(self._known(name, row, params.get(name, [])))
            except (UnfitValue, _Wrong) as error:
                self._refuse(name, error, TOOLS)
        for name in params.keys() - named:
            problem = _Wrong("has parameters and is no tool", f"Add it to {TOOLS}, or delete them", PARAMS)
            self._refuse(name, problem, PARAMS)
        kept = [next(iter(found[name])) for name in sorted(found) if self._is_one(name, found[name])]
        for one in kept[MOST_TOOLS : MOST_TOOLS + 1]:
            reason = f"and {len(kept) - MOST_TOOLS - 1:,} more are too many for one registry"
            self._refuse(one.name, _Wrong(reason, f"Register at most {MOST_TOOLS:,}, by database user"), TOOLS)
        return tuple(kept[:MOST_TOOLS])

    def _is_one(self, name: str, rows: set[Registration]) -> bool:
        """Rows that are the same are one; of others nobody can tell which is meant, and the wrong one must not run."""
        if len(rows) > 1:
            self._refuse(name, _Wrong(f"is registered {len(rows)} times", "Keep one row, or rename the others"), TOOLS)
        return len(rows) == 1

    def _known(self, name: str, row: Row, params: Sequence[Row]) -> Registration:
        """The same as before where not a cell has changed."""
        try:
            spot = (row.mark, len(params), frozenset(one.mark for one in params))
            found = self._before.get(spot)
        except TypeError:  # a driver's cell that is no plain value
            return self._registration(name, row, params)
        if found is None:
            told = len(self.problems)
            made = self._registration(name, row, params)
            found = made, tuple(self.problems[told:])
        else:
            self.problems += found[1]
        self.known[spot] = found
        return found[0]

    def _registration(self, name: str, row: Row, params: Sequence[Row]) -> Registration:
        _check_tool_name(name)
        kind = _kind(row)
        found = Registration(
            name=name,
            database=_object_name(row, "DataBaseName"),
            object=_object_name(row, "TableName"),
            kind=kind,
            docstring=self._prose(name, row, "docstring", LONGEST_DOCSTRING),
            tags=self._tags(name, row),
            example=self._prose(name, row, "Example", LONGEST_EXAMPLE),
            parameters=self._parameters(name, kind, params),
            writes=self._writes(name, row, kind),
            returns_rows=bool(self._flag(name, row, "ReturnsRows", TOOLS, default=False)),
        )
        if not found.docstring:
            self._note(name, "has no docstring", "Write one: agents choose by what it says")
        return found

    def _parameters(self, tool: str, kind: ObjectKind, rows: Sequence[Row]) -> tuple[RegisteredParameter, ...]:
        if len(rows) > MOST_PARAMETERS:
            raise _Wrong(f"has {len(rows)} parameters", f"Register at most {MOST_PARAMETERS}", PARAMS)
        found = {self._parameter(tool, kind, row) for row in rows}
        ordered = tuple(sorted(found, key=lambda one: (one.position, one.name)))
        folded = [one.name.casefold() for one in ordered]
        if twice := sorted({name for name in folded if folded.count(name) > 1}):
            raise _Wrong(f"has two parameters {twice[0]!r}", "Rename or delete one of them", PARAMS)
        if not kind.has_columns:
            _check_positions([one.position for one in ordered])
        return ordered

    def _parameter(self, tool: str, kind: ObjectKind, row: Row) -> RegisteredParameter:
        name = _object_name(row, "ParamName", PARAMS)
        code, length = row.text("ParamType"), row.text("ParamLength")
        type = read_type(code[:LONGEST_NAME], length[:LONGEST_NAME], self._dialect)
        if not type.is_known:
            fix = "Use a code such as CV, I, F or DA, or a name such as integer or numeric(10,2)"
            self._note(tool, f"takes text for {name!r}, whose type {code[:SHOWN]!r} is not known", fix, PARAMS)
        if not is_size(length):
            reason = f"has no limit for {name!r}, whose ParamLength is {length[:SHOWN]!r}"
            self._note(tool, reason, "Write a number, or digits such as 10,2", PARAMS)
        position = row.number("ParamPosition")
        return RegisteredParameter(
            name=name,
            type=type,
            position=position or 0,
            required=self._flag(tool, row, "ParamRequired", PARAMS, default=not kind.has_columns, worst=True),
            comment=self._prose(tool, row, "ParamComment", LONGEST_COMMENT, PARAMS),
            has_default=self._flag(tool, row, "ParamDefault", PARAMS, default=True),
        )

    def _prose(self, tool: str, row: Row, column: str, most: int, where: str = TOOLS) -> str:
        text = row.text(column)
        if len(text) > most:
            self._note(tool, f"has a {column} of {len(text)} characters, which is cut", f"Write at most {most}", where)
        return cleaned(text, most)

    def _tags(self, tool: str, row: Row) -> tuple[str, ...]:
        found = dict.fromkeys(cleaned(part, SHOWN) for part in re.split(r"[,\s]+", row.text("Tags")) if part)
        tags = tuple(tag for tag in found if tag)
        if len(tags) > MOST_TAGS:
            self._note(tool, f"has {len(tags)} tags, of which the first are kept", f"Write at most {MOST_TAGS}")
        return tags[:MOST_TAGS]

    def _writes(self, tool: str, row: Row, kind: ObjectKind) -> bool:
        """What is not declared as writing runs where nothing can be written; a word that is neither Y nor N is Y."""
        told = self._flag(tool, row, "Writes", TOOLS, default=False, worst=True)
        if told and kind.has_columns:
            self._note(tool, f"is a {kind.word}, which is only read", "Leave Writes out")
        return told and not kind.has_columns

    def _flag(self, tool: str, row: Row, column: str, where: str, *, default: bool, worst: bool | None = None) -> bool:
        try:
            told = row.flag(column)
        except UnfitValue as error:
            self._note(tool, f"has a cell that is not understood: {error}", "Write Y or N", where)
            return default if worst is None else worst
        return default if told is None else told

    def _note(self, tool: str, reason: str, fix: str, where: str = TOOLS) -> None:
        self.problems.append(Problem(tool=tool, where=where, reason=reason, fix=fix, loads=True))

    def _refuse(self, tool: str, error: UnfitValue | _Wrong, where: str) -> None:
        tool = cleaned(tool, LONGEST_NAME)
        if isinstance(error, _Wrong):
            problem = Problem(tool=tool, where=error.where, reason=error.reason, fix=error.fix)
        else:
            reason = f"has a cell that cannot be used: {error}"
            problem = Problem(tool=tool, where=where, reason=reason, fix="Put it right, or delete the row")
        self.problems.append(problem)


def _named(row: Row, column: str, where: str) -> str:
    if not row.has(column):
        raise _Wrong(f"cannot be read, because the view has no column {column!r}", "Add it to the view", where)
    if text := row.text(column):
        return text
    raise _Wrong(f"has no {column}", "Write one, or delete the row", where)


def _check_tool_name(name: str) -> None:
    if not TOOL_NAME.fullmatch(name):
        raise _Wrong(
            "cannot be the name of a tool", "Use at most 128 letters, digits, _, - and ., and begin with a letter"
        )
    if identifier(name).casefold() in META_TOOLS:
        raise _Wrong("is the name of one of the gateway's own tools", "Rename it")


def _object_name(row: Row, column: str, where: str = TOOLS) -> str:
    name = _named(row, column, where)
    if not OBJECT_NAME.fullmatch(name):
        raise _Wrong(f"has the {column} {name[:SHOWN]!r}, which cannot be used in SQL", _LETTERS, where)
    return name


def _kind(row: Row) -> ObjectKind:
    code = _named(row, "ToolType", TOOLS)
    try:
        return ObjectKind(code.upper())
    except ValueError:
        fix = "Use F for a function, M for a macro or procedure, T for a table, V for a view"
        raise _Wrong(f"has the ToolType {code[:SHOWN]!r}", fix) from None


def _check_positions(positions: Sequence[int]) -> None:
    if list(positions) != list(range(1, len(positions) + 1)):
        told = ", ".join(str(place or "none") for place in positions[:20])
        raise _Wrong(f"has parameters at the positions {told}", "Number them 1, 2, 3 without a gap", PARAMS)
