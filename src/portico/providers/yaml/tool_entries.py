"""Entries of a YAML file, read key by key: the parameters of a tool, and the definition that is listed.

What cannot be used is a `ConfigError` with its file and line, and an argument that does not fit an `UnfitValue`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from portico.documents.values_with_positions import Member, Node
from portico.domain.suggestions import did_you_mean
from portico.errors import ConfigError, InvalidArguments
from portico.providers.python import LocalTool
from portico.providers.python.decorator_and_injection import LOCAL, InjectedParameter
from portico.providers.python.decorator_and_injection import Connection as Marker
from portico.providers.sql import ReadConnection
from portico.providers.sql.sql_lexer import VALUES
from portico.providers.sql.sql_values import ParamType, UnfitValue, at

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")
"""Names of parameters, dimensions and measures; PostgreSQL cuts longer ones."""


class YamlTable:
    """An entry of a file, or a table within one."""

    def __init__(self, node: Node, *, name: str, file: str, notes: list[ConfigError], line: int = 0) -> None:
        """Take a node."""
        self.name, self.file, self.notes, self.line = name, file, notes, line or node.line
        if node.members is None:
            raise self.wrong(f"this is {node.kind}, not a table", "Write `key: value` lines, indented below the name")
        self._members: dict[str, Member] = {}
        for member in node.members:
            first = self._members.setdefault(member.key, member)
            if first is not member:
                fix = f"Rename or delete one; the first is in line {first.line}"
                raise self.wrong(f"{member.key!r} is there twice", fix, member.line)

    def wrong(self, problem: str, fix: str, line: int = 0) -> ConfigError:
        """An error with this place, to be raised."""
        return ConfigError(problem, file=self.file, line=line or self.line, where=self.name, fix=fix)

    def note(self, problem: str, fix: str, line: int = 0) -> None:
        """Say what the author should know; the entry is offered all the same."""
        self.notes.append(self.wrong(f"it is offered, but {problem}", fix, line))

    def note_unknown(self, known: Collection[str]) -> None:
        """Say which keys mean nothing here."""
        for key, member in self._members.items():
            if key not in known:
                near = did_you_mean(key, known, limit=1)
                fix = near.replace("did", "Did", 1) if near else f"Known here: {', '.join(sorted(known))}"
                self.note(f"the key {key[:60]!r} means nothing here", fix, member.line)

    def get(self, key: str) -> Node | None:
        """The value of a key; None when it is not there or is nothing."""
        member = self._members.get(key)
        is_nothing = member is None or (member.node.value is None and member.node.kind == "nothing")
        return None if member is None or is_nothing else member.node

    def has(self, key: str) -> bool:
        """Whether a key is there, with or without a value."""
        return key in self._members

    def text(self, key: str, default: str | None = None) -> str:
        """A text."""
        node = self.get(key)
        if node is None:
            if default is not None:
                return default
            raise self.wrong(f"it has no {key!r}", f"Add a line `{key}: ...`")
        if not node.is_scalar:
            raise self.wrong(f"{key!r} is {node.kind}, not a text", "Write it as text", node.line)
        return node.spelling

    def flag(self, key: str) -> bool | None:
        """True or false; None when nothing is said."""
        node = self.get(key)
        if node is None or isinstance(node.value, bool):
            return node.value if node is not None else None
        raise self.wrong(f"{key!r} is {node.kind}, not true or false", "Write true or false", node.line)

    def number(self, key: str) -> float | None:
        """A finite number; None when nothing is said."""
        node = self.get(key)
        if node is None:
            return None
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        if not is_number or not math.isfinite(node.value) or abs(node.value) > 2**63 - 1:
            raise self.wrong(f"{key!r} is {node.spelling[:40]!r}, not a number", "Write a number", node.line)
        return node.value  # type: ignore[no-any-return]

    def texts(self, key: str) -> list[str]:
        """A list of texts; a single one counts as a list."""
        return [node.spelling for node in self._scalars(key)]

    def values(self, key: str) -> list[Any]:
        """A list of values as YAML reads them."""
        return [node.value for node in self._scalars(key)]

    def tables(self, key: str) -> Iterator[tuple[Member, YamlTable]]:
        """The tables below a key, each with its name; one that says nothing is an empty table."""
        for member in self.members(key):
            node = member.node if member.node.kind != "nothing" else Node(line=member.line, members=())
            path = f"{self.name}.{key}.{member.key[:60]}"
            yield member, YamlTable(node, name=path, file=self.file, notes=self.notes, line=member.line)

    def members(self, key: str) -> list[Member]:
        """The members of the table below a key."""
        node = self.get(key)
        if node is None:
            return []
        found = YamlTable(node, name=f"{self.name}.{key}", file=self.file, notes=self.notes)
        return list(found._members.values())

    def _scalars(self, key: str) -> list[Node]:
        node = self.get(key)
        if node is None:
            return []
        found = list(node.items) if node.items is not None else [node]
        for item in found:
            if not item.is_scalar:
                raise self.wrong(f"{key!r} holds {item.kind}", "Write a list of single values", item.line)
        return found


_PLACE = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def place_names(text: str) -> list[str]:
    """The names of the places that are to be filled; `{{name}}` is none."""
    return [match[2] for match in _PLACE.finditer(text) if match[2]]


def leading_places(text: str) -> list[str]:
    """The places that the text begins with: nothing but other places stands before them."""
    found, end = list[str](), 0
    for match in _PLACE.finditer(text):
        if match.start() != end or not match[2]:
            break
        found.append(match[2])
        end = match.end()
    return found


def fill_places(text: str, values: Mapping[str, str]) -> str:
    """The text with its values; what a value holds is never looked at again, and `{{name}}` becomes `{name}`."""
    return _PLACE.sub(lambda match: f"{{{match[1]}}}" if match[1] else values.get(match[2], match[0]), text)


TYPES: Mapping[str, str] = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float", "decimal"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    "date": "date",
    **dict.fromkeys(("datetime", "timestamp"), "datetime"),
    "identifier": "identifier",
}
"""Types as authors write them, and their meaning."""

_VALUE_TYPES: Mapping[str, ParamType] = {
    **dict.fromkeys(("string", "identifier"), ParamType(code="", name="text")),
    "integer": ParamType(code="", name="bigint"),
    "number": ParamType(code="", name="double"),
    **{name: ParamType(code="", name=name) for name in ("boolean", "date", "datetime")},
}
_PLAIN = ("integer", "number", "boolean")
"""Types whose values YAML itself can spell."""
_KEYS = tuple("type type_hint description required default enum minimum maximum allow_dash of many".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlParameter:
    """One parameter as its author declared it."""

    name: str
    kind: str = "string"
    description: str = ""
    is_required: bool = True
    default: Any = None
    choices: tuple[Any, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    allow_dash: bool = False
    """Whether a value may look like an option of the command."""
    of: str = ""
    """The table, or the parameter that names it, whose column this identifier is."""
    bars_dash: bool = False
    """Whether it stands where a command would take a value with a dash for an option."""
    is_many: bool = False
    """Whether it takes a list of such values."""

    def schema(self) -> dict[str, Any]:
        """The parameter as JSON Schema says it."""
        found = _VALUE_TYPES[self.kind].schema(bounds=False)
        found |= _said(minimum=self.minimum, maximum=self.maximum, enum=list(self.choices) or None)
        if self.is_many:
            found = {"type": "array", "items": found, "minItems": 1, "maxItems": VALUES}
        return found | _said(description=self.description or None, default=self.default)

    def read(self, value: Any) -> Any:
        """The value, when it is what the author asked for."""
        if not self.is_many:
            return self._read_one(value)
        if not isinstance(value, list) or not 1 <= len(value) <= VALUES:
            raise UnfitValue(f"must be a list of 1 to {VALUES} values")
        return [at(place, self._read_one, one) for place, one in enumerate(value)]

    def _read_one(self, value: Any) -> Any:
        value = read_value(self.kind, value)
        if self.choices and value not in self.choices:
            raise UnfitValue(f"must be one of {', '.join(map(repr, self.choices))}")
        if self.minimum is not None and value < self.minimum:
            raise UnfitValue(f"must be at least {self.minimum:g}")
        if self.maximum is not None and value > self.maximum:
            raise UnfitValue(f"must be at most {self.maximum:g}")
        if self.bars_dash and as_text(value).startswith("-"):
            raise UnfitValue("must not begin with '-': the command would take it for an option")
        return value


def _said(**found: Any) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}


def read_value(kind: str, value: Any) -> Any:
    """A value of one kind, without any guess at what may have been meant."""
    is_whole = kind == "number" and isinstance(value, int) and not isinstance(value, bool)
    return _VALUE_TYPES["integer" if is_whole else kind].check(value)


def as_text(value: Any) -> str:
    """A value as text: in a command or a prompt."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_parameters(entry: YamlTable) -> dict[str, YamlParameter]:
    """The parameters of an entry."""
    found = {}
    for member, table in entry.tables("parameters"):
        if not WORD.fullmatch(member.key):
            fix = "Use at most 60 letters, digits and _, and begin with a letter"
            raise entry.wrong(f"a parameter cannot be called {member.key[:60]!r}", fix, member.line)
        found[member.key] = _parameter(member.key, table)
    return found


def input_schema(parameters: Mapping[str, YamlParameter]) -> dict[str, Any]:
    """The schema of the arguments."""
    return {
        "type": "object",
        "properties": {name: parameter.schema() for name, parameter in parameters.items()},
        "required": [name for name, parameter in parameters.items() if parameter.is_required],
        "additionalProperties": False,
    }


def complete(tool: str, parameters: Mapping[str, YamlParameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the defaults of those that were not given."""
    missing = [name for name, parameter in parameters.items() if parameter.is_required and name not in values]
    unknown = [name for name in values if name not in parameters]
    if missing or unknown:
        lines = [f"missing: {name}" for name in missing] + [f"unknown: {name}" for name in unknown]
        raise InvalidArguments(tool, details=lines)
    return {name: values.get(name, parameter.default) for name, parameter in parameters.items()}


def _parameter(name: str, table: YamlTable) -> YamlParameter:
    table.note_unknown(_KEYS)
    spelled = table.text("type", table.text("type_hint", "string"))
    kind = TYPES.get(spelled.lower())
    if kind is None:
        known = ", ".join(dict.fromkeys(TYPES.values()))
        raise table.wrong(f"there is no type {spelled[:40]!r}", f"Use one of {known}")
    bounds = {key: table.number(key) for key in ("minimum", "maximum")}
    for key, bound in bounds.items():
        if bound is not None and kind not in ("integer", "number"):
            raise table.wrong(f"{key!r} is for numbers", "Delete it, or change the type")
    node, required = table.get("default"), table.flag("required")
    found = YamlParameter(
        name=name,
        kind=kind,
        description=table.text("description", ""),
        is_required=node is None if required is None else required,
        choices=tuple(_choices(table, kind)),
        minimum=bounds["minimum"],
        maximum=bounds["maximum"],
        allow_dash=bool(table.flag("allow_dash")),
        of=table.text("of", ""),
        is_many=bool(table.flag("many")),
    )
    _check_sense(table, found)
    return found if node is None else replace(found, default=_default(table, node, found), is_required=False)


def _choices(table: YamlTable, kind: str) -> Iterator[Any]:
    for value in table.values("enum") if kind in _PLAIN else table.texts("enum"):
        try:
            yield read_value(kind, value)
        except UnfitValue as error:
            raise table.wrong(f"the choice {str(value)[:40]!r} {error}", "Change it, or the type") from error


def _check_sense(table: YamlTable, parameter: YamlParameter) -> None:
    is_identifier = parameter.kind == "identifier"
    if is_identifier and not parameter.is_required and table.get("default") is None:
        raise table.wrong("an identifier cannot be left out", "Give it a `default`, or delete `required: false`")
    if parameter.is_many and (is_identifier or not (parameter.is_required or table.get("default"))):
        raise table.wrong("`many` is for values that are always there", "Give it a `default`, or delete `many`")
    if parameter.minimum is not None and parameter.maximum is not None and parameter.minimum > parameter.maximum:
        raise table.wrong("`minimum` lies above `maximum`, so that no value fits", "Swap them")


def _default(table: YamlTable, node: Node, parameter: YamlParameter) -> Any:
    items = node.items if parameter.is_many and node.items is not None else (node,)
    if not all(item.is_scalar for item in items):
        raise table.wrong(f"the default is {node.kind}", "Write a single value", node.line)
    values = [item.value if parameter.kind in _PLAIN else item.spelling for item in items]
    default = values if parameter.is_many else values[0]
    try:
        return parameter.read(default)
    except UnfitValue as error:
        what = f"the default {str(default)[:40]!r} does not fit: it {error}"
        raise table.wrong(what, "Change one of them") from error


KEYS = ("type", "description", "title", "category", "tags", "server", "example")
"""The keys that every tool may have."""

CONNECTION = "(connection)"
"""The name under which a tool is given its connection; no parameter can be called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadsDatabase(InjectedParameter):
    """The need of a tool that asks a database."""

    @property
    def reason(self) -> str:
        """Why it cannot be offered, and what to do."""
        return "its SQL needs a database, and none is configured. Set DATABASE_URI, or delete the entry."


NEEDS = (ReadsDatabase(parameter=CONNECTION, kinds=(ReadConnection, Marker), is_required=True),)


def read_description(entry: YamlTable) -> str:
    """The description; one without is noted."""
    text = entry.text("description", "")
    if not text.strip():
        entry.note("it has no description", "Add one: agents choose by what it says")
    return text


def local_tool(
    entry: YamlTable,
    function: Callable[..., Any],
    schema: Mapping[str, Any],
    reads: Mapping[str, Callable[[Any], Any]],
    hints: Mapping[str, bool],
    **more: Any,
) -> LocalTool:
    """The tool of an entry: its definition as it is listed, its function, and where it stands."""
    found: dict[str, Any] = {"name": entry.name, "description": read_description(entry)}
    if title := entry.text("title", ""):
        found["title"] = title
    found["inputSchema"] = schema
    if hints:
        found["annotations"] = dict(hints)
    said = {"tags": entry.texts("tags"), "example": entry.text("example", "")}
    if meta := {key: value for key, value in said.items() if value}:
        found["_meta"] = meta
    return LocalTool(
        name=entry.name,
        definition=found,
        function=function,
        server=entry.text("server", LOCAL),
        category=entry.text("category", ""),
        reads=reads,
        file=entry.file,
        line=entry.line,
        **more,
    )
