"""Classes with named fields (dataclasses, typed dicts, named tuples) and enums, as JSON spells them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NotRequired, Required, get_origin, get_type_hints
from uuid import UUID

import orjson

from .docstrings import parameter_texts
from .errors import Unfit, at

_SPELLED = (datetime, date, time, UUID, Decimal, PurePath)
_JSON_SCALARS = (str, int, float, bool, type(None))
_MISSING = object()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Field:
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
class Record:
    """A class with named fields, and how one of its values is made."""

    name: str
    fields: tuple[Field, ...]
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


def record_of(hint: type) -> Record | None:
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
    record: Record, reads: Mapping[str, Callable[[Any], Any] | None], required: frozenset[str], value: Any
) -> Any:
    """Make a value of the class out of an object.

    Raises:
        Unfit: a field is missing, unknown or of the wrong kind, or the class itself refuses.
    """
    if not isinstance(value, Mapping):
        raise Unfit("must be an object")
    if missing := [name for name in sorted(required) if name not in value]:
        raise Unfit(f"lacks {', '.join(missing)}")
    if record.is_closed and (unknown := [str(name) for name in value if name not in reads]):
        raise Unfit(f"has no field {', '.join(unknown)}; it has {', '.join(reads)}")
    found = {name: at(name, read, item) if (read := reads.get(name)) else item for name, item in value.items()}
    try:
        return record.make(**found)
    except Exception as error:  # the class checks its own values, and says why in any way it likes
        raise Unfit(f"{record.name} refuses it: {error}") from error


def _dataclass(hint: Any) -> Record:
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        Field(
            name=f.name,
            hint=hints[f.name],
            is_required=f.default is f.default_factory is dataclasses.MISSING,
            default=_MISSING if f.default is dataclasses.MISSING else f.default,
        )
        for f in dataclasses.fields(hint)
        if f.init
    ]
    return _record(hint, fields, is_closed=True)


def _typed_dict(hint: Any) -> Record:
    # Where annotations are texts, the class itself cannot tell that `NotRequired[...]` was written.
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        Field(
            name=name,
            hint=kind,
            is_required=get_origin(kind) is Required
            or (name in hint.__required_keys__ and get_origin(kind) is not NotRequired),
        )
        for name, kind in hints.items()
    ]
    return _record(hint, fields, is_closed=False)


def _named_tuple(hint: Any) -> Record:
    hints = get_type_hints(hint, include_extras=True)
    fields = [
        Field(
            name=name,
            hint=hints.get(name, Any),
            is_required=name not in hint._field_defaults,
            default=hint._field_defaults.get(name, _MISSING),
        )
        for name in hint._fields
    ]
    return _record(hint, fields, is_closed=True)


def _record(hint: type, fields: list[Field], *, is_closed: bool) -> Record:
    texts = parameter_texts(inspect.getdoc(hint) or "", {field.name for field in fields})
    return Record(name=hint.__name__, fields=tuple(fields), make=hint, texts=texts, is_closed=is_closed)
