"""Annotations as JSON: the schema of their values, and how a value becomes what the function gets."""

from __future__ import annotations

import base64
import binascii
import math
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, TypeVar, Union, get_args, get_origin
from uuid import UUID

from . import pydantic_models as models
from . import record_types as records
from .record_types import UnfitArgument, at


@dataclass(frozen=True, slots=True)
class Scalar:
    """One class: its schema, and how a value of it is read."""

    schema: Mapping[str, Any]
    read: Callable[[Any], Any]


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
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise UnfitArgument("is too large a number") from error
    raise UnfitArgument("must be a number")


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


def _spelled(make: Callable[[str], Any], wanted: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        text = _text(value)
        try:
            return make(text)
        except ValueError as error:
            raise UnfitArgument(f"{text[:60]!r} is not {wanted}") from error

    return read


def _format(name: str) -> dict[str, str]:
    return {"type": "string", "format": name}


SCALARS: Mapping[Any, Scalar] = {
    str: Scalar({"type": "string"}, _text),
    int: Scalar({"type": "integer"}, _whole_number),
    float: Scalar({"type": "number"}, _number),
    bool: Scalar({"type": "boolean"}, _flag),
    type(None): Scalar({"type": "null"}, _nothing),
    None: Scalar({"type": "null"}, _nothing),
    date: Scalar(_format("date"), _spelled(date.fromisoformat, "a date; write it like 2026-01-31")),
    datetime: Scalar(
        _format("date-time"), _spelled(datetime.fromisoformat, "a date with time; write it like 2026-01-31T12:00:00Z")
    ),
    time: Scalar(_format("time"), _spelled(time.fromisoformat, "a time of day; write it like 12:30:00")),
    UUID: Scalar(_format("uuid"), _spelled(UUID, "a UUID")),
    Decimal: Scalar(_format("decimal"), _decimal),
    bytes: Scalar(_format("base64"), _bytes),
    Path: Scalar(_format("path"), _spelled(Path, "a path")),
}
"""How each class is spelled in JSON."""

EXACT = frozenset({int, float, bool, type(None)})
"""The classes that JSON tells apart by itself."""


def key_reader(schema: Mapping[str, Any], read: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """How the key of an object is read: JSON has text there, whatever the annotation asks for."""
    kind = schema.get("type")
    if read is None or schema == {"type": "string"}:
        return None
    if kind not in ("integer", "number"):
        return read
    number = _spelled(int if kind == "integer" else _finite, f"{'a whole' if kind == 'integer' else 'a'} number")
    return lambda key: number(key) if isinstance(key, str) else read(key)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


Read = Callable[[Any], Any]
"""A value as JSON gives it -> what the function expects; raises Unfit."""

_LISTS = {list: list, Sequence: list, MutableSequence: list, Iterable: list, Collection: list, deque: deque}
_ARRAYS: Mapping[Any, Callable[[Iterable[Any]], Any]] = {**_LISTS, set: set, frozenset: frozenset, Set: frozenset}
_MAPPINGS = (dict, Mapping, MutableMapping)
_ANYTHING = (Any, object)
_WRAPPERS = (NotRequired, Required)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationKind:
    """One annotation, understood."""

    schema: Mapping[str, Any]
    read: Read | None = None
    """None where a value is passed on as it is."""
    text: str = ""
    """What the annotation itself says of the parameter."""
    foreign: type | None = None
    """The class that no JSON value can become, if the annotation is one."""
    form: Literal["object", "text", "other"] = "other"
    """What a function that returns it gives: an object, text (or perhaps text), or some other value."""


ANYTHING = AnnotationKind(schema={}, form="text")


def type_schema(hint: Any) -> Mapping[str, Any]:
    """The JSON Schema of an annotation; one that says nothing to JSON, or that is inside itself, is left open."""
    return kind_of(hint).schema


def kind_of(hint: Any, inside: tuple[Any, ...] = ()) -> AnnotationKind:
    """Understand an annotation; `inside` are the classes that it stands in."""
    if hint in _ANYTHING or isinstance(hint, TypeVar):
        return ANYTHING
    if models.is_modelled(hint):
        return replace(_modelled(hint), text=_said(getattr(hint, "__metadata__", ())))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments, inside)
    if origin in _WRAPPERS:
        return kind_of(arguments[0], inside)
    if alias := getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None):
        return kind_of(alias, inside)
    if origin is Literal:
        return _choice([(records.plain_value(option), option) for option in arguments])
    if origin in (Union, types.UnionType):
        return _union([kind_of(option, inside) for option in arguments], arguments)
    return _container(hint, origin, arguments, inside) or _class(origin or hint, inside)


def _annotated(arguments: tuple[Any, ...], inside: tuple[Any, ...]) -> AnnotationKind:
    kind = kind_of(arguments[0], inside)
    return replace(kind, text=_said(arguments[1:]) or kind.text)


def _said(metadata: Iterable[Any]) -> str:
    """The texts among an annotation's metadata: plain ones, and those of `Doc`."""
    texts = [said if isinstance(said, str) else getattr(said, "documentation", "") for said in metadata]
    return " ".join(text for text in texts if isinstance(text, str) and text)


def _modelled(hint: Any) -> AnnotationKind:
    adapter = models.adapter_of(hint)
    if adapter is None:
        return ANYTHING
    schema = models.schema_of(adapter)
    form: Literal["object", "other"] = "object" if models.is_object(schema) else "other"
    may_be_text = schema.get("type") == "string" or any(o.get("type") == "string" for o in schema.get("anyOf", ()))
    return AnnotationKind(schema=schema, read=partial(models.read, adapter), form="text" if may_be_text else form)


def _choice(options: list[tuple[Any, Any]]) -> AnnotationKind:
    """One of some values, each given as JSON has it and as the function wants it."""
    values = [value for value, _ in options]
    form: Literal["text", "other"] = "text" if any(isinstance(value, str) for value in values) else "other"
    return AnnotationKind(schema={"enum": values}, read=partial(_read_choice, options), form=form)


def _read_choice(options: list[tuple[Any, Any]], value: Any) -> Any:
    for given, wanted in options:
        if given == value and isinstance(given, bool) == isinstance(value, bool):
            return wanted
    raise UnfitArgument(f"must be one of {', '.join(repr(given) for given, _ in options[:20])}")


def _union(kinds: list[AnnotationKind], hints: tuple[Any, ...]) -> AnnotationKind:
    """Alternatives; one that JSON cannot spell is left out, unless nothing else is left."""
    usable = [(hint, kind) for hint, kind in zip(hints, kinds, strict=True) if kind.foreign is None]
    foreign = next((kind.foreign for kind in kinds if kind.foreign), None)
    if foreign and all(hint is type(None) for hint, _ in usable):
        return AnnotationKind(schema={}, foreign=foreign, form="text")
    forms = {kind.form for _, kind in usable}
    is_object = forms == {"object"}
    return AnnotationKind(
        schema=_any_of([kind.schema for _, kind in usable]),
        read=partial(_read_union, {hint for hint, _ in usable if hint in EXACT}, [kind.read for _, kind in usable]),
        form="object" if is_object else "text" if forms & {"text", "object"} else "other",
    )


def _any_of(schemas: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    distinct = [schema for place, schema in enumerate(schemas) if schema not in schemas[:place]]
    if any(schema == {} for schema in distinct):
        return {}
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


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
    if holder is tuple:
        return _tuple(arguments, inside)
    if make is not None:
        return _array(make, kind_of(arguments[0], inside) if arguments else None)
    if holder in _MAPPINGS:
        return _mapping(*[kind_of(argument, inside) for argument in arguments[:2]])
    return None


def _array(make: Callable[[Iterable[Any]], Any], item: AnnotationKind | None) -> AnnotationKind:
    schema = {"type": "array", **({"items": item.schema} if item else {})}
    read = partial(_read_array, make, item.read if item else None)
    return AnnotationKind(schema=schema, read=read, foreign=item.foreign if item else None)


def _read_array(make: Callable[[Iterable[Any]], Any], read: Read | None, value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise UnfitArgument("must be a list")
    found = value if read is None else [at(place, read, item) for place, item in enumerate(value)]
    try:
        return make(found)
    except TypeError as error:  # a set of lists, say
        raise UnfitArgument(str(error)) from error


def _tuple(arguments: tuple[Any, ...], inside: tuple[Any, ...]) -> AnnotationKind:
    if not arguments or arguments[-1] is Ellipsis:
        return _array(tuple, kind_of(arguments[0], inside) if arguments else None)
    kinds = [kind_of(argument, inside) for argument in arguments if argument != ()]
    schema = {"type": "array", "prefixItems": [k.schema for k in kinds], "minItems": len(kinds), "maxItems": len(kinds)}
    foreign = next((kind.foreign for kind in kinds if kind.foreign), None)
    return AnnotationKind(schema=schema, read=partial(_read_tuple, [kind.read for kind in kinds]), foreign=foreign)


def _read_tuple(reads: list[Read | None], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or len(value) != len(reads):
        raise UnfitArgument(f"must be a list of {len(reads)} values")
    pairs = enumerate(zip(reads, value, strict=True))
    return tuple(at(place, read, item) if read else item for place, (read, item) in pairs)


def _mapping(key: AnnotationKind | None = None, value: AnnotationKind | None = None) -> AnnotationKind:
    said = {"additionalProperties": value.schema} if value and value.schema else {}
    key_read = key_reader(key.schema, key.read) if key else None
    read = partial(_read_mapping, key_read, value.read if value else None)
    foreign = next((kind.foreign for kind in (key, value) if kind and kind.foreign), None)
    return AnnotationKind(schema={"type": "object", **said}, read=read, foreign=foreign, form="object")


def _read_mapping(key_read: Read | None, read: Read | None, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise UnfitArgument("must be an object")
    if key_read is None and read is None:
        return value
    return {
        at(key, key_read, key) if key_read else key: at(key, read, item) if read else item
        for key, item in value.items()
    }


def _class(hint: Any, inside: tuple[Any, ...]) -> AnnotationKind:
    if hint in SCALARS:
        scalar = SCALARS[hint]
        return AnnotationKind(schema=scalar.schema, read=scalar.read, form="text" if hint is str else "other")
    if not isinstance(hint, type):
        return ANYTHING
    if hint in inside:
        return AnnotationKind(schema={}, read=partial(_read_later, hint))
    if choices := records.choices_of(hint):
        return _choice(choices)
    for plain in (str, int, float):
        if issubclass(hint, plain):
            schema, read = SCALARS[plain].schema, SCALARS[plain].read
            return AnnotationKind(
                schema=schema, read=partial(_read_derived, hint, read), form="text" if plain is str else "other"
            )
    record = records.record_of(hint)
    return _record(hint, record, inside) if record else AnnotationKind(schema={}, foreign=hint, form="text")


def _read_derived(hint: Callable[[Any], Any], read: Read, value: Any) -> Any:
    plain = read(value)
    try:
        return hint(plain)
    except ValueError as error:
        raise UnfitArgument(str(error)) from error


@lru_cache(maxsize=256)
def _whole(hint: type) -> AnnotationKind:
    return kind_of(hint)


def _read_later(hint: type, value: Any) -> Any:
    """A class that holds itself: how it is read is known only when it has been understood."""
    read = _whole(hint).read
    return read(value) if read else value


def _record(hint: type, record: records.RecordType, inside: tuple[Any, ...]) -> AnnotationKind:
    """A class with named fields, as an object."""
    properties: dict[str, Any] = {}
    reads: dict[str, Read | None] = {}
    foreign: type | None = None
    for field in record.fields:
        kind = kind_of(field.hint, (*inside, hint))
        if kind.foreign:
            foreign = hint if field.is_required else foreign
            continue  # what JSON cannot spell keeps its default
        text = kind.text or record.texts.get(field.name, "")
        said = {**({"description": text} if text else {}), **field.default_schema}
        properties[field.name] = {**kind.schema, **said}
        reads[field.name] = kind.read
    required = [field.name for field in record.fields if field.is_required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    if record.is_closed:
        schema["additionalProperties"] = False
    read = partial(records.read_record, record, reads, frozenset(required))
    return AnnotationKind(schema=schema, read=read, foreign=foreign, form="object")
