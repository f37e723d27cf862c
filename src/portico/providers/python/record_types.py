"""Classes with named fields and enums as JSON, and what docstrings say of parameters."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NotRequired, Required, get_origin, get_type_hints
from uuid import UUID

import orjson


class UnfitArgument(ValueError):
    """A value that does not fit; the message speaks of the value, `path` leads to it."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        self.reason, self.path = reason, path
        super().__init__(reason)

    def __str__(self) -> str:
        where = ".".join(str(step) for step in self.path)
        return f"{where}: {self.reason}" if where else self.reason


def at(step: str | int, read: Callable[[Any], Any], value: Any) -> Any:
    """Read one part of a value.

    Raises:
        Unfit: with the way to the part.
    """
    try:
        return read(value)
    except UnfitArgument as error:
        raise UnfitArgument(error.reason, (step, *error.path)) from error


_TITLES = r"args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes"
_HEADER = re.compile(rf"^\s*(?:{_TITLES})\s*:\s*$", re.IGNORECASE)
_NUMPY_HEADER = re.compile(r"^\s*(?:parameters|other parameters|attributes)\s*$", re.IGNORECASE)
_RULE = re.compile(r"^\s*(?:-{3,}|={3,})\s*$")
_TYPE = r"(?:\((?:[^()]|\([^()]*\))*\)|<[^<>]*>)"
_ENTRY = re.compile(
    rf"^\s*(?:[-*+]\s+)?\*{{0,2}}`{{0,2}}(\w+)`{{0,2}}\s*{_TYPE}?(?:\s*:(?!:)|\s+[-–—]{{1,2}}\s)\s*(.*)$"
)
_DASHED = re.compile(r"^\s*(?:[-*+]\s+)?`{0,2}(\w+)`{0,2}\s+[-–—]{1,2}\s+(\S.*)$")
_NUMPY_ENTRY = re.compile(r"^\s*(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"^\s*[:@](?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_ANY_FIELD = re.compile(r"^\s*[:@]\w+[^:]*:")


def parameter_texts(doc: str, names: Collection[str]) -> dict[str, str]:
    """The text of each parameter that the docstring speaks of; only these names are looked for."""
    lines = doc.expandtabs(4).splitlines()
    found: dict[str, list[str]] = {}
    for read in (_sections, _numpy, _fields, _dashed):
        for name, parts in read(lines):
            found.setdefault(name, parts)
    texts = {name: " ".join(part for part in parts if part) for name, parts in found.items() if name in names}
    return {name: text for name, text in texts.items() if text}


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _sections(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Entries below `Args:` and the like; deeper lines belong to the entry before them."""
    for place, line in enumerate(lines):
        if _HEADER.match(line):
            yield from _entries(lines[place + 1 :], _depth(line))


def _entries(lines: Sequence[str], outer: int) -> Iterator[tuple[str, list[str]]]:
    depth, parts = -1, [""]
    for line in lines:
        if not line.strip():
            continue
        entry = _ENTRY.match(line)
        if parts and depth >= 0 and _depth(line) > depth:
            parts.append(line.strip())
        elif entry and _depth(line) >= outer and depth in (-1, _depth(line)):
            depth, parts = _depth(line), [entry[2].strip()]
            yield entry[1], parts
        elif depth in (-1, _depth(line)) and _depth(line) > outer:
            parts = []  # a line among the entries that is none of them: what is deeper belongs to it
        else:
            return


def _numpy(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`name : type` lines below a ruled header, with their texts indented below them."""
    for place, line in enumerate(lines[:-1]):
        if not (_NUMPY_HEADER.match(line) and _RULE.match(lines[place + 1])):
            continue
        outer, parts = _depth(line), [""]
        for number, below in enumerate(lines[place + 2 :], place + 2):
            if not below.strip():
                continue
            if _depth(below) > outer:
                parts.append(below.strip())
                continue
            entry = _NUMPY_ENTRY.match(below)
            if entry is None or (number + 1 < len(lines) and _RULE.match(lines[number + 1])):
                break
            parts = []
            yield from ((name.strip(" *"), parts) for name in entry[1].split(","))


def _fields(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`:param name: text`, `:param type name: text`; the text goes on until a blank line or the next field."""
    parts: list[str] = []
    for line in lines:
        if field := _FIELD.match(line):
            parts = [field[2].strip()]
            yield field[1], parts
        elif not line.strip() or _ANY_FIELD.match(line):
            parts = []
        else:
            parts.append(line.strip())


def _dashed(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """`name - text` wherever it stands, for docstrings without any section."""
    for line in lines:
        if entry := _DASHED.match(line):
            yield entry[1], [entry[2].strip()]


_SPELLED = (datetime, date, time, UUID, Decimal, PurePath)
_JSON_SCALARS = (str, int, float, bool, type(None))
_MISSING = object()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordField:
    """One field of a record."""

    name: str
    hint: Any
    is_required: bool
    default: Any = _MISSING

    @property
    def default_schema(self) -> dict[str, Any]:
        """The default as a schema says it; nothing where JSON has no word for it."""
        found = json_value(self.default)
        return {} if found is _MISSING else {"default": found}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    """A class with named fields, and how one of its values is made."""

    name: str
    fields: tuple[RecordField, ...]
    make: Callable[..., Any]
    texts: Mapping[str, str]
    is_closed: bool
    """Whether a field that is not declared is a mistake."""


def plain_value(value: Any) -> Any:
    """An enum member as JSON spells it, and everything else as it is."""
    return value.value if isinstance(value, enum.Enum) else value


def json_value(value: Any) -> Any:
    """A default as JSON spells it, or a mark that JSON has no word for it; see `is_spellable`."""
    value = plain_value(value)
    if isinstance(value, _SPELLED):
        return value.isoformat() if isinstance(value, date | time) else str(value)
    try:
        written = json.dumps(value, allow_nan=False)
        # What is too large a number or no text for the wire is found here. A copy, because functions change defaults.
        return orjson.loads(orjson.dumps(json.loads(written)))
    except (TypeError, ValueError, RecursionError):
        return _MISSING


def is_spellable(value: Any) -> bool:
    """Whether JSON has a word for a default."""
    return json_value(value) is not _MISSING


def choices_of(hint: type) -> list[tuple[Any, Any]]:
    """The members of an enum by value, or by name where a value is nothing that JSON has."""
    if not issubclass(hint, enum.Enum):
        return []
    members = list(hint)
    by_value = all(isinstance(member.value, _JSON_SCALARS) for member in members)
    return [(member.value if by_value else member.name, member) for member in members]


def record_of(hint: type) -> RecordType | None:
    """The fields of a class that has named ones, and None for any other."""
    try:
        if dataclasses.is_dataclass(hint):
            return _dataclass(hint)
        if issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
            return _typed_dict(hint)
        if issubclass(hint, tuple) and hasattr(hint, "_fields"):
            return _named_tuple(hint)
    except (NameError, TypeError, AttributeError):  # its own annotations cannot be read
        return None
    return None


def read_record(
    record: RecordType, reads: Mapping[str, Callable[[Any], Any] | None], required: frozenset[str], value: Any
) -> Any:
    """Make a value of the class out of an object.

    Raises:
        Unfit: a field is missing, unknown or of the wrong kind, or the class itself refuses.
    """
    if not isinstance(value, Mapping):
        raise UnfitArgument("must be an object")
    if missing := [name for name in sorted(required) if name not in value]:
        raise UnfitArgument(f"lacks {', '.join(missing)}")
    if record.is_closed and (unknown := [str(name) for name in value if name not in reads]):
        raise UnfitArgument(f"has no field {', '.join(unknown)}; it has {', '.join(reads)}")
    found = {name: at(name, read, item) if (read := reads.get(name)) else item for name, item in value.items()}
    try:
        return record.make(**found)
    except Exception as error:  # the class checks its own values, and says why in any way it likes
        raise UnfitArgument(f"{record.name} refuses it: {error}") from error


def _dataclass(hint: Any) -> RecordType:
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        RecordField(
            name=f.name,
            hint=hints[f.name],
            is_required=f.default is f.default_factory is dataclasses.MISSING,
            default=_MISSING if f.default is dataclasses.MISSING else f.default,
        )
        for f in dataclasses.fields(hint)
        if f.init
    ]
    return _record(hint, fields, is_closed=True)


def _typed_dict(hint: Any) -> RecordType:
    # Where annotations are texts, the class itself cannot tell that `NotRequired[...]` was written.
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        RecordField(
            name=name,
            hint=kind,
            is_required=get_origin(kind) is Required
            or (name in hint.__required_keys__ and get_origin(kind) is not NotRequired),
        )
        for name, kind in hints.items()
    ]
    return _record(hint, fields, is_closed=False)


def _named_tuple(hint: Any) -> RecordType:
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        RecordField(
            name=name,
            hint=hints.get(name, Any),
            is_required=name not in hint._field_defaults,
            default=hint._field_defaults.get(name, _MISSING),
        )
        for name in hint._fields
    ]
    return _record(hint, fields, is_closed=True)


def _record(hint: type, fields: list[RecordField], *, is_closed: bool) -> RecordType:
    texts = parameter_texts(inspect.getdoc(hint) or "", {field.name for field in fields})
    return RecordType(name=hint.__name__, fields=tuple(fields), make=hint, texts=texts, is_closed=is_closed)
