"""Annotations as JSON: the schema of their values, and how a JSON value becomes what the function expects.

Pydantic reads only what is its own: to load it takes a twentieth of a second, and to describe a tool with it ten times
as long.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import inspect
import json
import math
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from pathlib import Path, PurePath
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import orjson

from portico.domain.docstrings import parameter_texts

Read = Callable[[Any], Any]
"""A JSON value -> what the function expects; raises UnfitArgument."""
Form = Literal["object", "text", "other"]
"""The kind of result of a function that returns it: an object, text (or perhaps text), or some other value."""


class UnfitArgument(ValueError):
    """A value that does not fit; the message speaks of the value, `path` leads to it."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        self.reason, self.path = reason, path
        super().__init__(reason)

    def __str__(self) -> str:
        where = ".".join(str(step) for step in self.path)
        return f"{where}: {self.reason}" if where else self.reason


def read_part(step: str | int, read: Read, value: Any) -> Any:
    """Read one part of a value.

    Raises:
        UnfitArgument: with the way to the part.
    """
    try:
        return read(value)
    except UnfitArgument as error:
        raise UnfitArgument(error.reason, (step, *error.path)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationKind:
    """One annotation, understood."""

    schema: Mapping[str, Any]
    read: Read | None = None
    """None where a value is passed on as it is."""
    text: str = ""
    """The description of the parameter in the annotation itself."""
    foreign: type | None = None
    """The class that no JSON value can become, if the annotation is one."""
    form: Form = "other"


ANYTHING = AnnotationKind(schema={}, form="text")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UnfitArgument("must be text")


def _whole_number(value: Any) -> int:
    """JSON Schema counts 5.0 among the integers; a function that wants an integer does not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise UnfitArgument("must be a whole number")


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UnfitArgument("must be a number")
    try:
        return float(value)
    except OverflowError as error:
        raise UnfitArgument("is too large a number") from error


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise UnfitArgument("must be true or false")


def _nothing(value: Any) -> None:
    if value is not None:
        raise UnfitArgument("must be null")


def _decimal(value: Any) -> Decimal:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return Decimal(str(value) if is_number else _text(value).strip())
    except InvalidOperation as error:
        raise UnfitArgument("must be a decimal number as text, such as '12.50'") from error


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnfitArgument("must be bytes in base64") from error


def _spelled(make: Callable[[str], Any], wanted: str) -> Read:
    def read(value: Any) -> Any:
        text = _text(value)
        try:
            return make(text)
        except ValueError as error:
            raise UnfitArgument(f"{text[:60]!r} is not {wanted}") from error

    return read


def _scalar(type_name: str, read: Read, format: str = "", form: Form = "other") -> AnnotationKind:
    return AnnotationKind(schema={"type": type_name, **({"format": format} if format else {})}, read=read, form=form)


_SCALARS: Mapping[Any, AnnotationKind] = {
    str: _scalar("string", _text, form="text"),
    int: _scalar("integer", _whole_number),
    float: _scalar("number", _number),
    bool: _scalar("boolean", _flag),
    type(None): _scalar("null", _nothing),
    None: _scalar("null", _nothing),
    date: _scalar("string", _spelled(date.fromisoformat, "a date; write it like 2026-01-31"), "date"),
    datetime: _scalar(
        "string",
        _spelled(datetime.fromisoformat, "a date with time; write it like 2026-01-31T12:00:00Z"),
        "date-time",
    ),
    time: _scalar("string", _spelled(time.fromisoformat, "a time of day; write it like 12:30:00"), "time"),
    UUID: _scalar("string", _spelled(UUID, "a UUID"), "uuid"),
    Decimal: _scalar("string", _decimal, "decimal"),
    bytes: _scalar("string", _bytes, "base64"),
    Path: _scalar("string", _spelled(Path, "a path"), "path"),
}
_EXACT = frozenset({int, float, bool, type(None)})  # the classes that JSON tells apart by itself
_ARRAYS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {
    **dict.fromkeys((list, Sequence, MutableSequence, Iterable, Collection), list),
    deque: deque,
    set: set,
    frozenset: frozenset,
    Set: frozenset,
}
_MAPPINGS = (dict, Mapping, MutableMapping)


def type_schema(hint: Any) -> Mapping[str, Any]:
    """The JSON Schema of an annotation; one that says nothing to JSON, or that is inside itself, is left open."""
    return kind_of(hint).schema


def kind_of(hint: Any, inside: tuple[Any, ...] = ()) -> AnnotationKind:
    """Understand an annotation; `inside` are the classes that it stands in."""
    if hint in (Any, object) or isinstance(hint, TypeVar):
        return ANYTHING
    if is_modelled(hint):
        return replace(_modelled(hint), text=_texts_of(getattr(hint, "__metadata__", ())))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        kind = kind_of(arguments[0], inside)
        return replace(kind, text=_texts_of(arguments[1:]) or kind.text)
    if origin in (NotRequired, Required):
        return kind_of(arguments[0], inside)
    if alias := getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None):
        return kind_of(alias, inside)
    if origin is Literal:
        return _choice([(plain_value(option), option) for option in arguments])
    if origin in (Union, types.UnionType):
        return _union([kind_of(option, inside) for option in arguments], arguments)
    return _container(hint, origin, arguments, inside) or _class(origin or hint, inside)


def _texts_of(metadata: Iterable[Any]) -> str:
    """The texts among an annotation's metadata: plain ones, and those of `Doc`."""
    texts = [entry if isinstance(entry, str) else getattr(entry, "documentation", "") for entry in metadata]
    return " ".join(text for text in texts if isinstance(text, str) and text)


def _choice(options: list[tuple[Any, Any]]) -> AnnotationKind:
    """One of some values, each given as JSON has it and as the function wants it."""
    values = [value for value, _ in options]
    is_text = any(isinstance(value, str) for value in values)

    def read(value: Any) -> Any:
        for given, wanted in options:
            if given == value and isinstance(given, bool) == isinstance(value, bool):
                return wanted
        raise UnfitArgument(f"must be one of {', '.join(map(repr, values[:20]))}")

    return AnnotationKind(schema={"enum": values}, read=read, form="text" if is_text else "other")


def _union(kinds: list[AnnotationKind], hints: tuple[Any, ...]) -> AnnotationKind:
    """Alternatives; one that JSON cannot spell is left out, unless nothing else is left."""
    usable = [(hint, kind) for hint, kind in zip(hints, kinds, strict=True) if kind.foreign is None]
    foreign = next((kind.foreign for kind in kinds if kind.foreign), None)
    if foreign and all(hint is type(None) for hint, _ in usable):
        return AnnotationKind(schema={}, foreign=foreign, form="text")
    forms = {kind.form for _, kind in usable}
    schemas: list[Mapping[str, Any]] = []
    for _, kind in usable:
        if kind.schema not in schemas:
            schemas.append(kind.schema)
    exact = {hint for hint, _ in usable if hint in _EXACT}
    return AnnotationKind(
        schema={} if {} in schemas else schemas[0] if len(schemas) == 1 else {"anyOf": schemas},
        read=partial(_read_union, exact, [kind.read for _, kind in usable]),
        form="object" if forms == {"object"} else "text" if forms & {"text", "object"} else "other",
    )


def _read_union(exact: Collection[type], reads: list[Read | None], value: Any) -> Any:
    """The first alternative that takes the value; a number stays the kind of number that it is."""
    if type(value) in exact:
        return value
    reasons = []
    for read in reads:
        try:
            return read(value) if read else value
        except UnfitArgument as error:
            reasons.append(str(error))
    raise UnfitArgument(", or ".join(dict.fromkeys(reasons)))


def _container(hint: Any, origin: Any, arguments: tuple[Any, ...], inside: tuple[Any, ...]) -> AnnotationKind | None:
    holder = origin or hint
    try:
        make = _ARRAYS.get(holder)
    except TypeError:  # an annotation that cannot be hashed is no type at all
        return ANYTHING
    if make is None and holder is not tuple and holder not in _MAPPINGS:
        return None
    kinds = [kind_of(argument, inside) for argument in arguments if argument not in ((), Ellipsis)]
    if holder in _MAPPINGS:
        return _mapping(*kinds[:2])
    if holder is tuple and arguments and arguments[-1] is not Ellipsis:
        return _tuple(kinds)
    return _array(make or tuple, kinds[0] if kinds else None)


def _first_foreign(*kinds: AnnotationKind | None) -> type | None:
    return next((kind.foreign for kind in kinds if kind and kind.foreign), None)


def _array(make: Callable[[Iterable[Any]], Any], item: AnnotationKind | None) -> AnnotationKind:
    def read(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise UnfitArgument("must be a list")
        if item and item.read:
            value = [read_part(place, item.read, one) for place, one in enumerate(value)]
        try:
            return make(value)
        except TypeError as error:  # a set of lists, say
            raise UnfitArgument(str(error)) from error

    schema = {"type": "array", **({"items": item.schema} if item else {})}
    return AnnotationKind(schema=schema, read=read, foreign=_first_foreign(item))


def _tuple(kinds: list[AnnotationKind]) -> AnnotationKind:
    count = len(kinds)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != count:
            raise UnfitArgument(f"must be a list of {count} values")
        pairs = enumerate(zip(kinds, value, strict=True))
        return tuple(read_part(place, kind.read, one) if kind.read else one for place, (kind, one) in pairs)

    schema = {"type": "array", "prefixItems": [kind.schema for kind in kinds], "minItems": count, "maxItems": count}
    return AnnotationKind(schema=schema, read=read, foreign=_first_foreign(*kinds))


def _mapping(key: AnnotationKind | None = None, value: AnnotationKind | None = None) -> AnnotationKind:
    read_key = _key_reader(key)
    read_value = value.read if value else None

    def read(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise UnfitArgument("must be an object")
        if read_key is None and read_value is None:
            return given
        return {
            read_part(name, read_key, name) if read_key else name: (
                read_part(name, read_value, item) if read_value else item
            )
            for name, item in given.items()
        }

    extra = {"additionalProperties": value.schema} if value and value.schema else {}
    schema = {"type": "object", **extra}
    return AnnotationKind(schema=schema, read=read, foreign=_first_foreign(key, value), form="object")


def _key_reader(key: AnnotationKind | None) -> Read | None:
    """Read the key of an object: JSON has text there, whatever the annotation asks for."""
    if key is None or key.read is None or key.schema == {"type": "string"}:
        return None
    read, type_name = key.read, key.schema.get("type")
    if type_name not in ("integer", "number"):
        return read
    number = _spelled(int, "a whole number") if type_name == "integer" else _spelled(_finite, "a number")
    return lambda name: number(name) if isinstance(name, str) else read(name)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def _class(hint: Any, inside: tuple[Any, ...]) -> AnnotationKind:
    if hint in _SCALARS:
        return _SCALARS[hint]
    if not isinstance(hint, type):
        return ANYTHING
    if hint in inside:
        return AnnotationKind(schema={}, read=partial(_read_later, hint))
    if issubclass(hint, enum.Enum) and (members := list(hint)):
        by_value = all(isinstance(member.value, str | int | float | bool | None) for member in members)
        return _choice([(member.value if by_value else member.name, member) for member in members])
    for plain, read in ((str, _text), (int, _whole_number), (float, _number)):
        if issubclass(hint, plain):
            return replace(_SCALARS[plain], read=partial(_read_derived, hint, read))
    return _record(hint, inside) or AnnotationKind(schema={}, foreign=hint, form="text")


def _read_derived(hint: Callable[[Any], Any], read: Read, value: Any) -> Any:
    plain = read(value)
    try:
        return hint(plain)
    except ValueError as error:
        raise UnfitArgument(str(error)) from error


@lru_cache(maxsize=256)
def _kind_of_class(hint: type) -> AnnotationKind:
    return kind_of(hint)


def _read_later(hint: type, value: Any) -> Any:
    """A class that holds itself: how it is read is known only when it has been understood."""
    read = _kind_of_class(hint).read
    return read(value) if read else value


_MISSING = object()


@dataclass(frozen=True, slots=True)
class _RecordField:
    name: str
    hint: Any
    is_required: bool
    default: Any = _MISSING


def _record_fields(hint: Any) -> tuple[list[_RecordField], bool] | None:
    """The fields of a class that has named ones, and whether a further field is a mistake; None for any other."""
    try:
        if dataclasses.is_dataclass(hint):
            hints = get_type_hints(hint, include_extras=True)
            return [_dataclass_field(field, hints) for field in dataclasses.fields(hint) if field.init], True
        if issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
            hints = get_type_hints(hint, include_extras=True)
            # Where annotations are texts, the class itself cannot tell that `NotRequired[...]` was written.
            always = {name for name, kind in hints.items() if get_origin(kind) is Required}
            never = {name for name, kind in hints.items() if get_origin(kind) is NotRequired}
            required = (hint.__required_keys__ | always) - never
            return [_RecordField(name, kind, name in required) for name, kind in hints.items()], False
        if issubclass(hint, tuple) and hasattr(hint, "_fields"):
            hints, defaults = get_type_hints(hint, include_extras=True), hint._field_defaults
            return [
                _RecordField(name, hints.get(name, Any), name not in defaults, defaults.get(name, _MISSING))
                for name in hint._fields
            ], True
    except (NameError, TypeError, AttributeError):  # its own annotations cannot be read
        return None
    return None


def _dataclass_field(field: dataclasses.Field[Any], hints: Mapping[str, Any]) -> _RecordField:
    has_default = field.default is not dataclasses.MISSING
    is_required = not has_default and field.default_factory is dataclasses.MISSING
    return _RecordField(field.name, hints[field.name], is_required, field.default if has_default else _MISSING)


def _record(hint: type, inside: tuple[Any, ...]) -> AnnotationKind | None:
    """A class with named fields, as an object."""
    found = _record_fields(hint)
    if found is None:
        return None
    fields, is_closed = found
    texts = parameter_texts(inspect.getdoc(hint) or "", {field.name for field in fields})
    properties: dict[str, Any] = {}
    reads: dict[str, Read | None] = {}
    foreign: type | None = None
    for field in fields:
        kind = kind_of(field.hint, (*inside, hint))
        if kind.foreign:
            foreign = hint if field.is_required else foreign
            continue  # what JSON cannot spell keeps its default
        reads[field.name] = kind.read
        properties[field.name] = {
            **kind.schema,
            **description_and_default(kind.text or texts.get(field.name, ""), field.default),
        }
    required = [field.name for field in fields if field.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if is_closed:
        schema["additionalProperties"] = False
    read = partial(_read_record, hint, reads, sorted(required), is_closed)
    return AnnotationKind(schema=schema, read=read, foreign=foreign, form="object")


def _read_record(
    make: type, reads: Mapping[str, Read | None], required: Sequence[str], is_closed: bool, value: Any
) -> Any:
    if not isinstance(value, Mapping):
        raise UnfitArgument("must be an object")
    if missing := [name for name in required if name not in value]:
        raise UnfitArgument(f"lacks {', '.join(missing)}")
    if is_closed and (unknown := [str(name) for name in value if name not in reads]):
        raise UnfitArgument(f"has no field {', '.join(unknown)}; it has {', '.join(reads)}")
    found = {name: read_part(name, read, item) if (read := reads.get(name)) else item for name, item in value.items()}
    try:
        return make(**found)
    except Exception as error:  # the class checks its own values, and says why in any way it likes
        raise UnfitArgument(f"{make.__name__} refuses it: {error}") from error


def description_and_default(text: str, default: Any = _MISSING) -> dict[str, Any]:
    """A description and a default as a schema says them; no default where JSON has no word for it."""
    found: dict[str, Any] = {"description": text} if text else {}
    if default is not _MISSING and is_spellable(default):
        found["default"] = _json_value(default)
    return found


def is_spellable(value: Any) -> bool:
    """Whether JSON has a word for a default."""
    return _json_value(value) is not _MISSING


def plain_value(value: Any) -> Any:
    """An enum member as JSON spells it, and everything else as it is."""
    return value.value if isinstance(value, enum.Enum) else value


def _json_value(value: Any) -> Any:
    value = plain_value(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal | PurePath):
        return str(value)
    try:
        written = json.dumps(value, allow_nan=False)
        # What is too large a number or no text for the wire is found here. A copy, because functions change defaults.
        return orjson.loads(orjson.dumps(json.loads(written)))
    except (TypeError, ValueError, RecursionError):
        return _MISSING


_PYDANTIC_METADATA = ("pydantic", "pydantic_core", "annotated_types")


def is_modelled(hint: Any, inside: tuple[Any, ...] = ()) -> bool:
    """Whether an annotation, or anything in it, is pydantic's; only who has loaded pydantic can have written it."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(hint, type) and hasattr(hint, "__get_pydantic_core_schema__"):
        return True
    metadata = getattr(hint, "__metadata__", ())
    if any(type(entry).__module__.partition(".")[0] in _PYDANTIC_METADATA for entry in metadata):
        return True
    if hint in inside:
        return False
    parts = list(get_args(hint))
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "__required_keys__")):
        with suppress(NameError, TypeError):
            parts += get_type_hints(hint, include_extras=True).values()
    return any(is_modelled(part, (*inside, hint)) for part in parts if not isinstance(part, str | int | list | dict))


def is_pydantic_field(value: Any) -> bool:
    """Whether a default is pydantic's `Field(...)`."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.fields.FieldInfo)


def output_schema_of_model(hint: Any) -> dict[str, Any]:
    """The schema of values of pydantic's as they are returned, definitions under `$defs`; empty when it cannot tell."""
    pydantic = sys.modules["pydantic"]
    try:
        return _model_schema(pydantic.TypeAdapter(hint), "serialization")
    except pydantic.errors.PydanticUserError:
        return {}


def _modelled(hint: Any) -> AnnotationKind:
    pydantic = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(hint)
    except pydantic.errors.PydanticUserError:
        return ANYTHING
    try:
        schema = _model_schema(adapter, "validation")
    except pydantic.errors.PydanticUserError:
        schema = {}
    target = schema.get("$ref", "").removeprefix("#/$defs/")
    is_object = (schema.get("$defs", {}).get(target, {}) if target else schema).get("type") == "object"
    may_be_text = schema.get("type") == "string" or any(one.get("type") == "string" for one in schema.get("anyOf", ()))

    def read(value: Any) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise UnfitArgument(str(first["msg"]), tuple(first["loc"])) from error

    return AnnotationKind(schema=schema, read=read, form="text" if may_be_text else "object" if is_object else "other")


def _model_schema(adapter: Any, mode: str) -> dict[str, Any]:
    return cast(dict[str, Any], _without_titles(adapter.json_schema(mode=mode)))


def _without_titles(schema: Any, is_names: bool = False) -> Any:
    """Pydantic titles every field with its own name once more; a reader needs it once."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, part in schema.items():
        if is_names:
            found[key] = _without_titles(part)
        elif key in ("default", "enum", "const", "examples"):
            found[key] = part
        elif key != "title" or not isinstance(part, str):
            found[key] = _without_titles(part, is_names=key in ("properties", "$defs"))
    return found
