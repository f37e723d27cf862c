"""A raw tool definition becomes one that can be named, indexed and checked, or is refused; overrides change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote

import orjson

from portico.domain.tool import Effect, ToolOverride
from portico.errors import InvalidDefinition

DEFINITION_LIMIT = 256 * 1024
DESCRIPTION_LIMIT = 8_000
NAME_LIMIT = 512
TAGS_LIMIT = 20
TAG_LENGTH = 50

_OBJECT = (dict, Mapping)
"""What counts as an object; dict comes first because it is what nearly all are, and quickly told."""


class Definition(NamedTuple):
    """A definition that passed: ready for a name of ours. A tuple, because a start makes one for every tool."""

    given: Mapping[str, Any]  # the definition as its server gave it
    name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None
    effect: Effect
    raw: Mapping[str, Any]  # the definition as it will be listed, but for its name
    notes: tuple[str, ...]
    tags: tuple[str, ...] = ()


def normalise(raw: object) -> Definition:
    """Check one definition and bring it into shape; the source object is not changed.

    Raises:
        InvalidDefinition: with a reason that the server's author can act on.
    """
    if not isinstance(raw, _OBJECT):
        raise InvalidDefinition(f"the definition is {_kind(raw)}, not an object")
    name = _name(raw)
    check = not is_harmless(_written(raw))
    notes: list[str] = []
    schema = _input_schema(raw, notes, check)
    output = _output_schema(raw, notes, check)
    description = _description(raw, notes)
    listed = {**raw, "description": description, "inputSchema": schema}
    if output is None:
        listed.pop("outputSchema", None)
    _drop_malformed(listed, notes)
    return Definition(
        given=raw,
        name=name,
        title=_title(raw),
        description=description,
        input_schema=schema,
        output_schema=output,
        effect=effect_of(raw.get("annotations")),
        raw=listed,
        notes=tuple(notes),
        tags=_tags(raw),
    )


def _drop_malformed(listed: dict[str, Any], notes: list[str]) -> None:
    """Leave out optional fields of the wrong shape: a strict client would refuse the whole list for one of them."""
    for field, (is_well_formed, shape) in _SHAPES.items():
        if field in listed and not is_well_formed(listed[field]):
            del listed[field]
            notes.append(f"its `{field}` was dropped: not {shape}")
    hints = listed.get("annotations")
    if not hints:
        return
    malformed = {key for key, kind in _HINTS.items() if key in hints and not isinstance(hints[key], kind)}
    if malformed:
        listed["annotations"] = {key: value for key, value in hints.items() if key not in malformed}
        notes.append(f"annotations of the wrong type were dropped: {', '.join(sorted(malformed))}")


_HINTS: Mapping[str, type] = {
    "title": str,
    "readOnlyHint": bool,
    "destructiveHint": bool,
    "idempotentHint": bool,
    "openWorldHint": bool,
}


def _is_icons(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(i, dict) and isinstance(i.get("src"), str) for i in value)


_SHAPES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "title": (lambda value: isinstance(value, str), "text"),
    "annotations": (lambda value: isinstance(value, dict), "an object"),
    "icons": (_is_icons, "a list of objects with a `src`"),
    "execution": (lambda value: isinstance(value, dict), "an object"),
    "_meta": (lambda value: isinstance(value, dict), "an object"),
}


def effect_of(annotations: object) -> Effect:
    """What the annotations say that a tool does; what they leave open counts as write."""
    if annotations and isinstance(annotations, _OBJECT):
        if annotations.get("readOnlyHint") is True:
            return Effect.READ
        if annotations.get("destructiveHint") is True:
            return Effect.DESTRUCTIVE
    return Effect.WRITE


def _name(raw: Mapping[str, Any]) -> str:
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip():
        raise InvalidDefinition("it has no name: give every tool a `name` that is a non-empty string")
    if len(name) > NAME_LIMIT:
        raise InvalidDefinition(f"its name has {len(name)} characters; the limit is {NAME_LIMIT}")
    if not name.isprintable():
        raise InvalidDefinition("its name has control or invisible characters")
    return name


def _written(raw: Mapping[str, Any]) -> bytes:
    try:
        text = orjson.dumps(raw)
    except (TypeError, orjson.JSONEncodeError, RecursionError) as error:
        raise InvalidDefinition(f"it cannot be written as JSON ({error})") from error
    if len(text) > DEFINITION_LIMIT:
        raise InvalidDefinition(
            f"the definition has {len(text):,} bytes; the limit is {DEFINITION_LIMIT:,} (256 KB): shorten its schema"
        )
    return text


def _input_schema(raw: Mapping[str, Any], notes: list[str], check: bool) -> Mapping[str, Any]:
    schema = raw.get("inputSchema")
    if schema is None:
        notes.append("it has no inputSchema; taken as a tool without parameters")
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise InvalidDefinition(f"its inputSchema is {_kind(schema)}, not an object")
    declared = schema.get("type", "object")
    if declared != "object" and not (isinstance(declared, list) and "object" in declared):
        raise InvalidDefinition(f"its inputSchema describes {declared!r}; a tool takes an object of parameters")
    if check:
        check_schema(schema)
    if declared != "object" or "type" not in schema:
        notes.append('its inputSchema does not say "type": "object"; added')
        schema = {**schema, "type": "object"}
    if not isinstance(schema.get("properties", {}), dict):
        notes.append("the `properties` of its inputSchema were dropped: not an object")
        schema = {key: value for key, value in schema.items() if key != "properties"}
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        notes.append("the `required` of its inputSchema was mended: not a list of names")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        schema = {**schema, "required": names}
    return schema


def _output_schema(raw: Mapping[str, Any], notes: list[str], check: bool) -> Mapping[str, Any] | None:
    schema = raw.get("outputSchema")
    if schema is None:
        return None
    try:
        if not isinstance(schema, dict):
            raise InvalidDefinition(f"{_kind(schema)}, not an object")
        if check:
            check_schema(schema)
    except InvalidDefinition as error:
        notes.append(f"its outputSchema was dropped: {error}")
        return None
    return schema


def _description(raw: Mapping[str, Any], notes: list[str]) -> str:
    text = raw.get("description")
    if not isinstance(text, str):
        if text is not None:
            notes.append("a description that is not text was dropped")
        return ""
    if len(text) <= DESCRIPTION_LIMIT:
        return text
    notes.append(f"its description has {len(text):,} characters and was cut at {DESCRIPTION_LIMIT:,}")
    return f"{text[:DESCRIPTION_LIMIT].rstrip()} […cut, {len(text) - DESCRIPTION_LIMIT:,} more characters]"


def _title(raw: Mapping[str, Any]) -> str:
    for title in (raw.get("title"), _inner(raw, "annotations").get("title")):
        if isinstance(title, str):
            return title
    return ""


def _tags(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """The tags that a definition has, wherever its author's library puts them; each once, without regard to case."""
    places = [raw, _inner(raw, "annotations")]
    if meta := _inner(raw, "_meta"):
        places += [meta, _inner(meta, "fastmcp"), _inner(meta, "_fastmcp")]
    found: dict[str, str] = {}
    for listed in [place["tags"] for place in places if "tags" in place]:
        for value in listed if isinstance(listed, list | tuple) else ():
            tag = " ".join(value.split()) if isinstance(value, str) else ""
            if tag and len(tag) <= TAG_LENGTH and tag.isprintable():
                found.setdefault(tag.casefold(), tag)
    return tuple(found.values())[:TAGS_LIMIT]


def _inner(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = raw.get(key, {})
    return found if isinstance(found, _OBJECT) else {}


def override_definition(definition: Definition, override: ToolOverride) -> Definition:
    """The definition as the config wants it to be seen; an override of nothing changes nothing."""
    raw = dict(definition.raw)
    annotations = {**_inner(raw, "annotations")}
    if override.title is not None:
        raw["title"] = override.title
        annotations.pop("title", None)
    if override.description is not None:
        raw["description"] = override.description
    if override.effect is not None:
        is_read, is_destructive = override.effect is Effect.READ, override.effect is Effect.DESTRUCTIVE
        annotations |= {"readOnlyHint": is_read, "destructiveHint": is_destructive}
    if override.idempotent:
        annotations["idempotentHint"] = True
    if annotations or "annotations" in raw:
        raw["annotations"] = annotations
    if override.defaults or override.hidden:
        raw["inputSchema"] = _overridden_schema(definition.input_schema, override)
    return definition._replace(
        name=override.name or definition.name,
        title=definition.title if override.title is None else override.title,
        description=raw["description"],
        input_schema=raw["inputSchema"],
        effect=override.effect or definition.effect,
        raw=raw,
        tags=definition.tags if override.tags is None else override.tags,
    )


def _overridden_schema(schema: Mapping[str, Any], override: ToolOverride) -> dict[str, Any]:
    """A schema without what is hidden, in which nothing is required that is sent anyway."""
    shown = _without(schema, {*override.defaults, *override.hidden}, override.hidden.keys())
    properties = dict(shown.get("properties", {}))
    for name, value in override.defaults.items():
        known = properties.get(name)
        properties[name] = {**(known if isinstance(known, Mapping) else {}), "default": value}
    return {**shown, "properties": properties}


def _without(schema: Mapping[str, Any], sent: Set[str], hidden: Set[str], depth: int = 0) -> dict[str, Any]:
    """A schema in which some names are given, and of them the hidden ones unknown; also where it has alternatives."""
    found = {**schema, **dict(_without_names(schema, sent, hidden))}
    for keyword in _IN_PLACE if depth < DEPTH_LIMIT else ():
        if isinstance(options := schema.get(keyword), list):
            found[keyword] = [
                _without(each, sent, hidden, depth + 1) if isinstance(each, dict) else each for each in options
            ]
    for keyword in _IN_PLACE_SINGLE if depth < DEPTH_LIMIT else ():
        if isinstance(inner := schema.get(keyword), dict):
            found[keyword] = _without(inner, sent, hidden, depth + 1)
    return found


def _without_names(schema: Mapping[str, Any], sent: Set[str], hidden: Set[str]) -> Iterator[tuple[str, Any]]:
    """The keywords of one schema that speak of names, without those."""
    if isinstance(required := schema.get("required"), list):
        yield "required", [name for name in required if name not in sent]
    if isinstance(properties := schema.get("properties"), dict):
        yield "properties", {name: inner for name, inner in properties.items() if name not in hidden}
    for keyword, known in (("minProperties", sent), ("maxProperties", hidden)):
        if isinstance(count := schema.get(keyword), int):
            yield keyword, max(0, count - len(known))
    for keyword in _DEPENDENT:
        if isinstance(dependent := schema.get(keyword), dict):
            left = {name: needed for name, needed in dependent.items() if name not in hidden}
            yield keyword, {name: _but(needed, sent) for name, needed in left.items()}


def _but(names: Any, sent: Set[str]) -> Any:
    return [name for name in names if name not in sent] if isinstance(names, list) else names


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """A mark that changes with a definition."""
    text = orjson.dumps(definition, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)
    return sha256(text).hexdigest()[:16]


def _kind(value: object) -> str:
    names = {
        type(None): "null",
        bool: "a boolean",
        str: "a string",
        list: "an array",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "an object")


DEPTH_LIMIT = 100
NODE_LIMIT = 50_000
EXPANSION_LIMIT = 1_000
"""Subschemas that may apply to one value: two references to two references to... double with every step."""

_DATA_KEYWORDS = frozenset({"enum", "const", "default", "example", "examples"})
_CONTAINERS = (dict, list)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_SINGLE = ("not", "if", "then", "else")
_DEPENDENT = ("dependentRequired", "dependentSchemas", "dependencies")


def check_schema(schema: Mapping[str, Any]) -> None:
    """Walk a schema once, without recursion of our own.

    Raises:
        InvalidDefinition: nested too deep, too large, a remote `$ref`, or `$ref`s that lead only to each other or
            to more subschemas than a validator could try.
    """
    if is_harmless(orjson.dumps(schema)):
        return
    nodes = list(_nodes(schema))
    references = [node[keyword] for node in nodes for keyword in _REFERENCES if keyword in node]
    if not references:
        return
    ids = {node["$id"] for node in nodes if isinstance(node.get("$id"), str)}
    for reference in references:
        _check_reference(reference, ids)
    _check_cycles(schema, nodes)


def is_harmless(text: bytes) -> bool:
    """Whether no schema in a text can have any of those faults: most have no reference, and few parts."""
    return b'ef":' not in text and text.count(b"{") + text.count(b"[") <= DEPTH_LIMIT


def _nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every object in the schema that can be a subschema; plain data (enums, defaults) is passed over."""
    stack: list[tuple[Any, int, bool]] = [(schema, 0, False)]
    seen = 0
    while stack:
        value, depth, is_name_map = stack.pop()
        seen += 1
        if depth > DEPTH_LIMIT:
            raise InvalidDefinition(f"its schema is nested deeper than {DEPTH_LIMIT} levels")
        if seen > NODE_LIMIT:
            raise InvalidDefinition(f"its schema has more than {NODE_LIMIT:,} parts")
        if isinstance(value, dict):
            if not is_name_map:
                yield value
            for key, child in value.items():
                if isinstance(child, _CONTAINERS) and (is_name_map or key not in _DATA_KEYWORDS):
                    stack.append((child, depth + 1, not is_name_map and key in _NAME_MAPS))
        else:
            stack.extend((child, depth + 1, False) for child in value if isinstance(child, _CONTAINERS))


_NAME_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names, so that a parameter called `$ref` or `default` is not mistaken for a keyword."""


def _check_reference(reference: object, ids: set[str]) -> None:
    if not isinstance(reference, str) or reference.startswith("#"):
        return
    target = reference.split("#", 1)[0]
    if target not in ids:
        raise InvalidDefinition(
            f"its schema has a remote $ref {reference!r}: references are never fetched, put the type under $defs"
        )


def _check_cycles(schema: Mapping[str, Any], nodes: list[Mapping[str, Any]]) -> None:
    """Refuse a loop that never goes down into the instance; a recursive type passes through `properties` or `items`."""
    sizes: dict[int, int] = {}
    for start in nodes:
        path: set[int] = set()
        stack: list[tuple[Mapping[str, Any], bool]] = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            key = id(node)
            if leaving:
                path.discard(key)
                sizes[key] = _expansion(schema, node, sizes)
            elif key in path:
                raise InvalidDefinition("its schema has $refs that lead only to each other")
            elif key not in sizes:
                path.add(key)
                stack.append((node, True))
                stack.extend((child, False) for child in _in_place(schema, node))


def _expansion(schema: Mapping[str, Any], node: Mapping[str, Any], sizes: Mapping[int, int]) -> int:
    """How many subschemas one value is held against here, each as often as it is reached through a reference."""
    size = max(1, sum(sizes.get(id(child), 1) for child in _in_place(schema, node)))
    if "$ref" in node and size > EXPANSION_LIMIT:
        raise InvalidDefinition(f"its schema has $refs that unfold to more than {EXPANSION_LIMIT:,} subschemas")
    return size


def _in_place(schema: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The subschemas that apply to the same value as this one."""
    reference = node.get("$ref")
    if isinstance(reference, str):
        target = _resolve(schema, reference)
        if target is not None:
            yield target
    for keyword in _IN_PLACE:
        children = node.get(keyword)
        if isinstance(children, list):
            yield from (child for child in children if isinstance(child, Mapping))
    for keyword in _IN_PLACE_SINGLE:
        child = node.get(keyword)
        if isinstance(child, Mapping):
            yield child
    dependent = node.get("dependentSchemas")
    if isinstance(dependent, Mapping):
        yield from (child for child in dependent.values() if isinstance(child, Mapping))


def _resolve(schema: Mapping[str, Any], reference: str) -> Mapping[str, Any] | None:
    """Follow a local JSON pointer; one that points nowhere is left for the validator to ignore."""
    if not reference.startswith("#"):
        return None
    found: Any = schema
    for part in filter(None, reference[1:].split("/")):
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list) and step.isascii() and step.isdigit() and len(step) < 7 and int(step) < len(found):
            found = found[int(step)]
        else:
            return None
    return found if isinstance(found, Mapping) else None
