"""Annotations that pydantic understands, used only where somebody's module has loaded pydantic already.

Loading pydantic takes a tenth of a second, which nobody pays who does not use it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, cast, get_args, get_type_hints

from .record_types import UnfitArgument

_METADATA = ("pydantic", "pydantic_core", "annotated_types")


def is_modelled(hint: Any, inside: tuple[Any, ...] = ()) -> bool:
    """Whether an annotation, or anything in it, is pydantic's."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(hint, type) and hasattr(hint, "__get_pydantic_core_schema__"):
        return True
    if any(type(said).__module__.partition(".")[0] in _METADATA for said in getattr(hint, "__metadata__", ())):
        return True
    if hint in inside:
        return False
    parts = [*get_args(hint), *_field_hints(hint)]
    return any(is_modelled(part, (*inside, hint)) for part in parts if not isinstance(part, str | int | list | dict))


def is_field(value: Any) -> bool:
    """Whether a default is pydantic's `Field(...)`."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(value, pydantic.fields.FieldInfo)


def adapter_of(hint: Any) -> Any:
    """What checks, reads and describes values of an annotation; None when pydantic cannot."""
    pydantic = sys.modules["pydantic"]
    try:
        return pydantic.TypeAdapter(hint)
    except pydantic.errors.PydanticUserError:
        return None


def schema_of(adapter: Any, *, is_output: bool = False) -> dict[str, Any]:
    """The JSON Schema of an annotation's values, definitions under `$defs`; empty when pydantic cannot tell."""
    try:
        schema = adapter.json_schema(mode="serialization" if is_output else "validation")
    except sys.modules["pydantic"].errors.PydanticUserError:
        return {}
    return cast(dict[str, Any], _without_titles(schema))


def is_object(schema: Mapping[str, Any]) -> bool:
    """Whether a schema of pydantic's describes objects."""
    target = schema.get("$ref", "").removeprefix("#/$defs/")
    return bool((schema.get("$defs", {}).get(target, {}) if target else schema).get("type") == "object")


def read(adapter: Any, value: Any) -> Any:
    """Make what the annotation asks for out of a value.

    Raises:
        Unfit: the first thing that does not fit.
    """
    try:
        return adapter.validate_python(value)
    except sys.modules["pydantic"].ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnfitArgument(str(first["msg"]), tuple(first["loc"])) from error


def _field_hints(hint: Any) -> list[Any]:
    if not isinstance(hint, type) or not (dataclasses.is_dataclass(hint) or hasattr(hint, "__required_keys__")):
        return []
    try:
        return list(get_type_hints(hint, include_extras=True).values())
    except (NameError, TypeError):
        return []


def _without_titles(schema: Any, is_names: bool = False) -> Any:
    """Pydantic titles every field with its own name once more; a reader needs it once."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: part if key in ("default", "enum", "const", "examples") and not is_names else _inner(key, part, is_names)
        for key, part in schema.items()
        if is_names or key != "title" or not isinstance(part, str)
    }


def _inner(key: str, part: Any, is_names: bool) -> Any:
    return _without_titles(part, is_names=not is_names and key in ("properties", "$defs"))
