"""Rows of the registry's views become registrations; a row that cannot be used harms no other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from portico.catalog.naming import META_TOOLS, identifier
from portico.providers.sql.sql_values import ParamType, UnfitValue, is_size, read_type


class ObjectKind(StrEnum):
    """The kind of an object; the value is the ToolType of the registry."""

    FUNCTION = "F"
    MACRO = "M"
    """A macro of Teradata, or a procedure of PostgreSQL."""
    TABLE = "T"
    VIEW = "V"

    @property
    def word(self) -> str:
        """The kind in words."""
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

SHOWN = 60
"""Characters of a strange value that a message repeats."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a row of the registry, and what to do about it."""

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


def by_place(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems in the order of tools and views."""
    return tuple(sorted(problems, key=lambda one: (one.tool, one.where, one.reason)))


class RefusedRow(Exception):
    """Ends the reading of one tool."""

    def __init__(self, reason: str, fix: str, where: str = TOOLS, *, is_withheld: bool = False) -> None:
        self._problem = Problem(tool="", where=where, reason=reason, fix=fix, is_withheld=is_withheld)
        super().__init__(reason)

    def of(self, tool: str) -> Problem:
        """The reason as a problem of a tool."""
        return replace(self._problem, tool=clean_text(tool, LONGEST_NAME))


class Row:
    """The cells of one row of a view, by the names that the registry gives its columns.

    A cell of another kind is an `UnfitValue`, and one that is needed and not there a `RefusedRow`.
    """

    def __init__(self, raw: Any, view: str) -> None:
        """Fold the columns' names."""
        pairs: Iterable[Any] | None = raw.items() if isinstance(raw, Mapping) else None
        if pairs is None and hasattr(raw, "keys"):  # rows of sqlite3 are no mappings
            pairs = [(key, raw[key]) for key in raw.keys()]  # noqa: SIM118
        if pairs is None:
            raise UnfitValue("has no column names")
        self._cells = {_folded(key): value for key, value in pairs}
        self.view = view
        self.notes: list[tuple[str, str]] = []
        """Oddities in spite of which the row is used, each with what to do."""

    @property
    def mark(self) -> tuple[Any, ...]:
        """Every cell with its column; rows with the same mark are read alike."""
        return tuple(self._cells.items())

    def text(self, column: str) -> str:
        """A cell without its padding; empty when there is none."""
        value = self._cells.get(column.casefold())
        if value is None:
            return ""
        # Drivers give these for texts and numbers.
        is_text = isinstance(value, str | bytes | bytearray | memoryview | int | float | Decimal)
        if isinstance(value, bool) or not is_text:
            raise UnfitValue(f"is no text but of the type {type(value).__name__!r}", (column,))
        if isinstance(value, int) and value.bit_length() > 100:
            raise UnfitValue("is a number with too many digits", (column,))
        return _decoded(value, column).strip(" ")

    def required(self, column: str) -> str:
        """A cell that must hold something."""
        if column.casefold() not in self._cells:
            reason = f"cannot be read, because the view has no column {column!r}"
            raise RefusedRow(reason, "Add it to the view", self.view)
        if text := self.text(column):
            return text
        raise RefusedRow(f"has no {column}", "Write one, or delete the row", self.view)

    def object_name(self, column: str) -> str:
        """The name of something in the database."""
        name = self.required(column)
        if not OBJECT_NAME.fullmatch(name):
            fix = f"Use at most {LONGEST_NAME} letters, digits, _, $ and #, and begin with a letter or _"
            raise RefusedRow(f"has the {column} {name[:SHOWN]!r}, which cannot be used in SQL", fix, self.view)
        return name

    def prose(self, column: str, most: int) -> str:
        """A text for people."""
        text = self.text(column)
        if len(text) > most:
            self.notes.append((f"has a {column} of {len(text)} characters, which is cut", f"Write at most {most}"))
        return clean_text(text, most)

    def flag(self, column: str, *, default: bool, worst: bool | None = None) -> bool:
        """Yes or no; the default where nothing is said, and the worst where it is neither."""
        value = self._cells.get(column.casefold())
        try:
            word = str(value) if isinstance(value, bool) else self.text(column)
            if word.casefold() in _YES | _NO or not word:
                return word.casefold() in _YES if word else default
            raise UnfitValue(f"is {word.casefold()[:SHOWN]!r} and neither Y nor N", (column,))
        except UnfitValue as error:
            self.notes.append((f"has a cell that is not understood: {error}", "Write Y or N"))
            return default if worst is None else worst

    def number(self, column: str) -> int:
        """A whole number above 0; 0 when there is none."""
        word = self.text(column)
        match = re.fullmatch(r"([0-9]{1,6})(?:\.0*)?", word)
        if word and (not match or int(match[1]) < 1):
            raise UnfitValue(f"is {word[:SHOWN]!r} and no whole number above 0", (column,))
        return int(match[1]) if match else 0


def clean_text(text: str, most: int) -> str:
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


Known = Mapping[tuple[Any, ...], tuple[Registration, tuple[Problem, ...]]]
"""Registrations and what is odd with them, by every cell of their rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRegistry:
    """The tools that the rows of a registry came to, and what is wrong with others."""

    registrations: tuple[Registration, ...]
    problems: tuple[Problem, ...]
    known: Known = field(compare=False, repr=False)
    """Registrations by the cells of their rows, for the next reading: most are the same then."""


def read_rows(
    tools: Iterable[Any], params: Iterable[Any], dialect: str = "", known: Known | None = None
) -> LoadedRegistry:
    """The registrations in the order of their names, and what kept others from being one."""
    reading = _Reading(dialect, known or {})
    found = reading.tools(tools, reading.by_tool(params))
    names = {one.name for one in found}
    told = {problem for problem in reading.problems if not problem.loads or problem.tool in names}
    return LoadedRegistry(registrations=found, problems=by_place(told), known=reading.known)


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
                row = Row(raw, PARAMS)
                found.setdefault(row.required("ToolName"), []).append(row)
            except (UnfitValue, RefusedRow) as error:
                self._refuse("?", error, PARAMS)
        return found

    def tools(self, rows: Iterable[Any], params: dict[str, list[Row]]) -> tuple[Registration, ...]:
        """The registrations; parameters that belong to no row are told."""
        found: dict[str, set[Registration]] = {}
        named: set[str] = set()
        for raw in rows:
            name = "?"
            try:
                row = Row(raw, TOOLS)
                name = row.required("ToolName")
                named.add(name)
                found.setdefault(name, set()).add(self._known(name, row, params.get(name, [])))
            except (UnfitValue, RefusedRow) as error:
                self._refuse(name, error, TOOLS)
        for name in params.keys() - named:
            fix = f"Add it to {TOOLS}, or delete them"
            self._refuse(name, RefusedRow("has parameters and is no tool", fix, PARAMS), PARAMS)
        # Rows that are the same are one; of others nobody can tell which is meant, and the wrong one must not run.
        for name, several in found.items():
            if len(several) > 1:
                reason = f"is registered {len(several)} times"
                self._refuse(name, RefusedRow(reason, "Keep one row, or rename the others"), TOOLS)
        kept = [next(iter(found[name])) for name in sorted(found) if len(found[name]) == 1]
        for one in kept[MOST_TOOLS : MOST_TOOLS + 1]:
            reason = f"and {len(kept) - MOST_TOOLS - 1:,} more are too many for one registry"
            self._refuse(one.name, RefusedRow(reason, f"Register at most {MOST_TOOLS:,}, by database user"), TOOLS)
        return tuple(kept[:MOST_TOOLS])

    def _known(self, name: str, row: Row, params: Sequence[Row]) -> Registration:
        """The registration of a row; that of the last reading where not a cell has changed."""
        try:
            cells = (row.mark, len(params), frozenset(one.mark for one in params))
            found = self._before.get(cells)
        except TypeError:  # a driver's cell that is no plain value
            cells, found = ((), 0, frozenset({(object(),)})), None
        if found is None:
            made = _registration(name, row, params, self._dialect)
            told = [(one.view, *note) for one in (row, *params) for note in one.notes]
            odd = [Problem(tool=name, where=view, reason=reason, fix=fix, loads=True) for view, reason, fix in told]
            found = made, tuple(odd)
        self.problems += found[1]
        self.known[cells] = found
        return found[0]

    def _refuse(self, tool: str, error: UnfitValue | RefusedRow, view: str) -> None:
        if isinstance(error, UnfitValue):
            error = RefusedRow(f"has a cell that cannot be used: {error}", "Put it right, or delete the row", view)
        self.problems.append(error.of(tool))


def _registration(name: str, row: Row, params: Sequence[Row], dialect: str) -> Registration:
    if not TOOL_NAME.fullmatch(name):
        fix = "Use at most 128 letters, digits, _, - and ., and begin with a letter"
        raise RefusedRow("cannot be the name of a tool", fix)
    if identifier(name).casefold() in META_TOOLS:
        raise RefusedRow("is the name of one of the gateway's own tools", "Rename it")
    code = row.required("ToolType")
    if code.upper() not in [kind.value for kind in ObjectKind]:
        fix = "Use F for a function, M for a macro or procedure, T for a table, V for a view"
        raise RefusedRow(f"has the ToolType {code[:SHOWN]!r}", fix)
    kind = ObjectKind(code.upper())
    words = (clean_text(part, SHOWN) for part in re.split(r"[,\s]+", row.text("Tags")))
    tags = list(dict.fromkeys(filter(None, words)))
    if len(tags) > MOST_TAGS:
        row.notes.append((f"has {len(tags)} tags, of which the first are kept", f"Write at most {MOST_TAGS}"))
    # What is not declared as writing runs where nothing can be written; a word that is neither Y nor N is Y.
    writes = row.flag("Writes", default=False, worst=True)
    if writes and kind.has_columns:
        row.notes.append((f"is a {kind.word}, which is only read", "Leave Writes out"))
    docstring = row.prose("docstring", LONGEST_DOCSTRING)
    if not docstring:
        row.notes.append(("has no docstring", "Write one: agents choose by what it says"))
    return Registration(
        name=name,
        database=row.object_name("DataBaseName"),
        object=row.object_name("TableName"),
        kind=kind,
        docstring=docstring,
        tags=tuple(tags[:MOST_TAGS]),
        example=row.prose("Example", LONGEST_EXAMPLE),
        parameters=_parameters(kind, params, dialect),
        writes=writes and not kind.has_columns,
        returns_rows=row.flag("ReturnsRows", default=False),
    )


def _parameters(kind: ObjectKind, rows: Sequence[Row], dialect: str) -> tuple[RegisteredParameter, ...]:
    if len(rows) > MOST_PARAMETERS:
        raise RefusedRow(f"has {len(rows)} parameters", f"Register at most {MOST_PARAMETERS}", PARAMS)
    found = {_parameter(kind, row, dialect) for row in rows}
    ordered = tuple(sorted(found, key=lambda one: (one.position, one.name)))
    folded = [one.name.casefold() for one in ordered]
    if twice := sorted({name for name in folded if folded.count(name) > 1}):
        raise RefusedRow(f"has two parameters {twice[0]!r}", "Rename or delete one of them", PARAMS)
    positions = [one.position for one in ordered]
    if not kind.has_columns and positions != list(range(1, len(positions) + 1)):
        told = ", ".join(str(place or "none") for place in positions[:20])
        raise RefusedRow(f"has parameters at the positions {told}", "Number them 1, 2, 3 without a gap", PARAMS)
    return ordered


def _parameter(kind: ObjectKind, row: Row, dialect: str) -> RegisteredParameter:
    name = row.object_name("ParamName")
    code, length = row.text("ParamType"), row.text("ParamLength")
    type = read_type(code[:LONGEST_NAME], length[:LONGEST_NAME], dialect)
    if not type.is_known:
        fix = "Use a code such as CV, I, F or DA, or a name such as integer or numeric(10,2)"
        row.notes.append((f"takes text for {name!r}, whose type {code[:SHOWN]!r} is not known", fix))
    if not is_size(length):
        reason = f"has no limit for {name!r}, whose ParamLength is {length[:SHOWN]!r}"
        row.notes.append((reason, "Write a number, or digits such as 10,2"))
    return RegisteredParameter(
        name=name,
        type=type,
        position=row.number("ParamPosition"),
        required=row.flag("ParamRequired", default=not kind.has_columns, worst=True),
        comment=row.prose("ParamComment", LONGEST_COMMENT),
        has_default=row.flag("ParamDefault", default=True),
    )
