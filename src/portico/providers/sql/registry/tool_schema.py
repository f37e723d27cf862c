"""The definition of a registered tool as agents see it: its texts and the schema of its arguments."""

from __future__ import annotations

from typing import Any

from portico.providers.sql.sql_values import ParamType, ValueKind
from portico.providers.sql.table_query import LIMIT, operators_of

from .call_statements import AGGREGATES, MOST_ROWS, OWN
from .registry_rows import RegisteredParameter, Registration

_FILTERS = 'By column, such as {"x": {"ge": 5}}: eq, ne, lt, le, gt, ge, like (text), in, between, is_null; all hold'
META = "portico/registry"
"""The key under which a definition tells the object that it was made of."""


def tool_definition(registration: Registration, *, most: int = MOST_ROWS) -> dict[str, Any]:
    """The definition that is listed; `most` is the largest number of rows that a caller may ask for."""
    verb = "Reads" if registration.kind.has_columns else "Runs"
    described = f"{verb} the {registration.kind.word} {registration.database}.{registration.object}."
    parameters = registration.parameters
    if registration.kind.has_columns:
        schema = _columns(parameters, most)
    else:
        known = {one.name: _schema(one) if one.required else _or_null(_schema(one)) for one in parameters}
        schema = _object(known, [one.name for one in parameters if one.required])
    found: dict[str, Any] = {
        "name": registration.name,
        "description": registration.docstring or described,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": not registration.writes},
        "_meta": {
            META: {
                "database": registration.database,
                "object": registration.object,
                "kind": registration.kind.value,
                "fingerprint": registration.fingerprint,
            }
        },
    }
    said = {"tags": list(registration.tags), "example": registration.example}
    found["_meta"] |= {key: value for key, value in said.items() if value}
    return found


def _columns(columns: tuple[RegisteredParameter, ...], most: int) -> dict[str, Any]:
    """A column that is called like one of our own parameters stands in `filters` alone."""
    plain = [one for one in columns if one.name not in OWN and "eq" in operators_of(one.type)]
    hidden = [one for one in columns if one.required and one not in plain]
    properties: dict[str, Any] = {one.name: _plain(one) for one in plain}
    required = [one.name for one in plain if one.required] + (["filters"] if hidden else [])
    properties |= _choosing([one.name for one in hidden], columns) if columns else {}
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(LIMIT, most)}
    found = _object({**properties, "limit": limit}, required)
    if columns:
        shared = {_shared(one.type): _condition_schema(one.type) for one in columns}
        found["$defs"] = {"column": {"type": "string", "enum": [one.name for one in columns]}, **shared}
    return found


def _choosing(hidden: list[str], columns: tuple[RegisteredParameter, ...]) -> dict[str, Any]:
    """The parameters of our own, for what a value per column cannot say."""
    column = {"$ref": "#/$defs/column"}
    filters = _object({one.name: {"$ref": f"#/$defs/{_shared(one.type)}"} for one in columns}, hidden)
    direction = {"type": "string", "enum": ["asc", "desc"]}
    order = _open({"column": {"type": "string"}, "direction": direction}, ["column"])
    functions = {"type": "string", "enum": list(AGGREGATES)}
    aggregate = _open({"function": functions, "column": column, "as": {"type": "string"}}, ["function"])
    return {
        "filters": {**filters, "description": _FILTERS},
        "columns": _listed(column, "To return; all by default"),
        "group_by": _listed(column),
        "aggregates": _listed(aggregate, "For each group; sum and avg take numbers"),
        "order_by": _listed(order, "Columns or aggregates"),
    }


def _shared(type: ParamType) -> str:
    """The name of a shared schema; sizes do not matter to a condition."""
    is_sized = type.shape in (ValueKind.TEXT, ValueKind.INTEGER, ValueKind.FLOAT) and type.name != "other"
    return type.shape.name.lower() if is_sized else type.name


def _condition_schema(type: ParamType) -> dict[str, Any]:
    """Comparisons with one value are named in the description of `filters`, once for all types."""
    one = type.schema(bounds=False)
    many = {"type": "array", "items": one}
    written = {"in": many, "between": many, "is_null": {"type": "boolean"}}
    known = operators_of(type)
    found = _object({name: written[name] for name in known if name in written}, [])
    return {**found, "additionalProperties": one} if "eq" in known else found


def _plain(column: RegisteredParameter) -> dict[str, Any]:
    """One value, which the column is to equal; a column that must be filtered also takes conditions here."""
    found = _schema(column, bounds=False)
    if not column.required:
        return found
    told = {"description": found.pop("description")} if "description" in found else {}
    return {"anyOf": [found, {"$ref": f"#/$defs/{_shared(column.type)}"}], **told}


def _schema(parameter: RegisteredParameter, *, bounds: bool = True) -> dict[str, Any]:
    found = parameter.type.schema(bounds=bounds)
    text = ", ".join(part for part in (parameter.comment, parameter.type.hint) if part)
    return {**found, "description": text} if text else found


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter that may be left out: null does that too."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    choices = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, "type": [*types, "null"], **choices}


def _listed(items: dict[str, Any], text: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"type": "array", "items": items}
    return {**found, "description": text} if text else found


def _open(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """An object in a list: what else stands in it is refused when it is read, and the schema saves the words."""
    return {"type": "object", "properties": properties, "required": required}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found
