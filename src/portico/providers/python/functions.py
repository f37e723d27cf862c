"""A plain function becomes a tool: its definition, results from what it returns, and prints that go to stderr.

Stdout may carry the protocol.
"""

from __future__ import annotations

import base64
import enum
import functools
import inspect
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from inspect import Parameter
from threading import Lock
from types import SimpleNamespace
from typing import Annotated, Any, TextIO, get_type_hints

import jsonschema_rs
import orjson

from portico.domain.docstrings import parameter_texts

from .annotations import (
    AnnotationKind,
    Read,
    UnfitArgument,
    description_and_default,
    is_modelled,
    is_pydantic_field,
    is_spellable,
    kind_of,
    output_schema_of_model,
)
from .annotations import type_schema as type_schema
from .decorator_and_injection import CONNECTION_NAMES, LOCAL, InjectedParameter, ToolMark, mark_of, need_of

LIMIT = 16 * 1024 * 1024  # bytes of JSON that one result may have
ERROR_LENGTH = 10_000
_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


def as_result(value: Any) -> Mapping[str, Any]:
    """A function's value as a result object; a whole result object is passed on as it is.

    Raises:
        TypeError: the value cannot be written as JSON; says what to return instead.
        ValueError: it is too large.
    """
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        text = value if value.isascii() else value.encode("utf-8", "replace").decode()
        _check_size(len(text))
        return {"content": [{"type": "text", "text": text}]}
    is_whole = isinstance(value, Mapping) and isinstance(value.get("content"), list)
    if is_whole:
        try:
            _check_size(len(orjson.dumps(value, option=_PLAIN)))
            return value  # type: ignore[no-any-return]
        except orjson.JSONEncodeError:  # it has something else in it, which is written in JSON's own words
            pass
    try:
        written = orjson.dumps(value, default=_as_json, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError as error:
        cause = error.__cause__ or error
        raise TypeError(str(cause) or f"what it returned cannot be written as JSON: {type(cause).__name__}") from error
    _check_size(len(written))
    plain = orjson.loads(written)
    if is_whole:
        return plain  # type: ignore[no-any-return]
    structured = plain if isinstance(plain, dict) else {"result": plain}
    return {"content": [{"type": "text", "text": written.decode()}], "structuredContent": structured}


def _check_size(size: int) -> None:
    if size > LIMIT:
        raise ValueError(
            f"the result has {size / 1024 / 1024:,.1f} MB; the limit is {LIMIT // 1024 // 1024} MB:"
            " return less, or a part at a time"
        )


def _as_json(value: Any) -> Any:
    """Convert a value that JSON has no type for."""
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    if isinstance(value, float):
        return float(value)  # a class of somebody's own, such as numpy's
    if callable(plain := getattr(value, "tolist", None)) and not isinstance(value, type | memoryview):
        return plain()
    if isinstance(value, set | frozenset):
        return _ordered(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Iterator | AsyncIterator):
        raise TypeError(
            f"the function returned a {type(value).__name__}, which has no end that we know: return a list instead"
        )
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, deque | range):
        return list(value)
    if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
        return dump(mode="json", by_alias=True)
    return str(value)


def _ordered(values: set[Any] | frozenset[Any]) -> list[Any]:
    """The members of a set, in the same order every time where they have one."""
    try:
        return sorted(values)
    except TypeError:
        return list(values)


def as_error(error: BaseException) -> Mapping[str, Any]:
    """An exception of a function, as the tool's answer."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  an error that cannot even say what it is
        text = type(error).__name__
    if len(text) > ERROR_LENGTH:
        text = f"{text[:ERROR_LENGTH]}…"
    return {"content": [{"type": "text", "text": text.encode("utf-8", "replace").decode()}], "isError": True}


@dataclass(slots=True, eq=False)
class Output:
    """The output schema of one tool, and results that are checked against it."""

    schema: Mapping[str, Any] | None = None
    """None where nothing is promised."""
    _validator: jsonschema_rs.Validator | None = field(default=None, init=False)

    def result(self, value: Any) -> Mapping[str, Any]:
        """A function's value as a result object; one that breaks the promise is shown, and is an error.

        Raises:
            TypeError: the value cannot be written as JSON.
            ValueError: it is too large.
        """
        found = as_result(value)
        reason = "" if self.schema is None or found.get("isError") else self._misfit(found.get("structuredContent"))
        if not reason:
            return found
        explanation = (
            f"the function has run, but what it returned does not fit its return annotation: {reason}."
            " Mend the one or the other (JSON has null for NaN, and no infinity)"
        )
        return {"content": [*found["content"], {"type": "text", "text": explanation}], "isError": True}

    def _misfit(self, structured: Any) -> str:
        if structured is None:
            return "it has no structured value"
        if self._validator is None:  # made for those tools only that are really called
            self._validator = jsonschema_rs.validator_for(dict(self.schema or {}), offline=True)
        if self._validator.is_valid(structured):
            return ""
        error = next(iter(self._validator.iter_errors(structured)))
        return f"{'.'.join(map(str, error.instance_path))}: {error.message[:500]}"


def allow_more_fields(schema: Any) -> Any:
    """The schema of what is returned: a class that is derived from the annotation's may have more fields."""
    if isinstance(schema, list):
        return [allow_more_fields(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: allow_more_fields(part)
        for key, part in schema.items()
        if not (key == "additionalProperties" and part is False and "properties" in schema)
    }


PREFIX = "handle_"
NO_TEXT = "it has no docstring, and agents choose tools by what their docstrings say"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalTool:
    """A function, the definition that is made of it, and how a call reaches it."""

    name: str
    definition: Mapping[str, Any]
    function: Callable[..., Any]
    server: str = LOCAL
    category: str = ""
    is_async: bool = False
    reads: Mapping[str, Read] = field(default_factory=dict)
    """Converts the value of each parameter to what the function expects."""
    needs: tuple[InjectedParameter, ...] = ()
    positional: Mapping[str, Any] = field(default_factory=dict)
    """The parameters that have no keyword, with their defaults."""
    fallbacks: Mapping[str, Any] = field(default_factory=dict)
    """The values of defaults that are pydantic's `Field(...)`, which no function can use itself."""
    output: Output = field(default_factory=Output)
    notes: tuple[str, ...] = ()
    """Hints for its author; the tool works all the same."""
    file: str = ""
    line: int = 0

    def read(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The values that the function expects, and a line for each argument that cannot become one."""
        values = dict(arguments)
        # `**more` would let a caller pass what only we may give.
        wrong = [f"unknown: {need.parameter}" for need in self.needs if need.parameter in values]
        for name, read in self.reads.items():
            if name in values:
                try:
                    values[name] = read(values[name])
                except UnfitArgument as error:
                    where = ".".join([name, *map(str, error.path)])
                    wrong.append(f"{where}: {error.reason}")
                except Exception as error:  # noqa: BLE001  classes check their values with code of their own
                    wrong.append(f"{name}: it was refused with {type(error).__name__}: {error}")
        return {**self.fallbacks, **values} if self.fallbacks else values, wrong

    def invoke(self, values: dict[str, Any]) -> Any:
        """Call the function."""
        if not self.positional:
            return self.function(**values)
        given = {name: values.pop(name) for name in self.positional if name in values}
        last = max((place for place, name in enumerate(self.positional, 1) if name in given), default=0)
        leading = [given.get(name, default) for name, default in list(self.positional.items())[:last]]
        return self.function(*leading, **values)


def define(function: Callable[..., Any], name: str = "") -> dict[str, Any]:
    """The definition of a function; `handle_` at the start of its name is dropped."""
    return dict(make_tool(function, name).definition)


def make_tool(function: Callable[..., Any], name: str = "") -> LocalTool:
    """Make a tool of a function; what a decorator said of it counts more than what it says itself."""
    named: Any = function
    while isinstance(named, functools.partial) and "__name__" not in vars(named):
        named = named.func  # a partial is called after its function, unless it was given a name of its own
    mark = mark_of(function) or mark_of(named) or ToolMark()
    # A docstring counts if it is the object's own, and not that of its class, such as `partial`.
    is_described = inspect.isroutine(named) or inspect.isclass(named) or "__doc__" in getattr(named, "__dict__", {})
    doc = inspect.getdoc(named) or "" if is_described else ""
    name = name or mark.name or getattr(named, "__name__", type(named).__name__).removeprefix(PREFIX)
    signature = _Signature(function, doc)
    definition = _definition(name, doc, mark, signature)
    code = getattr(inspect.unwrap(_annotated(function)), "__code__", None)
    return LocalTool(
        name=name,
        definition=definition,
        output=Output(definition.get("outputSchema")),
        function=function,
        server=mark.server or LOCAL,
        category=mark.category,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        reads={parameter: kind.read for parameter, kind in signature.kinds.items() if kind.read},
        needs=tuple(signature.needs),
        fallbacks=signature.fallbacks,
        positional={p.name: p.default for p in signature.parameters if p.kind is p.POSITIONAL_ONLY},
        notes=(*signature.notes, *([] if doc or mark.description else [NO_TEXT])),
        file=code.co_filename if code else "",
        line=code.co_firstlineno if code else 0,
    )


def _definition(name: str, doc: str, mark: ToolMark, signature: _Signature) -> dict[str, Any]:
    schema = signature.input_schema()
    if mark.examples:
        schema["examples"] = [*map(dict, mark.examples)]
    meta = {"tags": list(mark.tags), "example": mark.example}
    optional = {
        "outputSchema": _output_schema(signature.hints.get("return", Any)),
        "annotations": mark.annotations,
        "_meta": {key: value for key, value in meta.items() if value},
    }
    return {
        "name": name,
        "description": doc if mark.description is None else mark.description,
        **({"title": mark.title} if mark.title else {}),
        "inputSchema": schema,
        **{key: value for key, value in optional.items() if value},
    }


class _Signature:
    """The parameters of a function: those that callers pass, and those that are given to it."""

    def __init__(self, function: Callable[..., Any], doc: str) -> None:
        self.notes: list[str] = []
        self.needs: list[InjectedParameter] = []
        self.kinds: dict[str, AnnotationKind] = {}
        self.fallbacks: dict[str, Any] = {}
        self.bound = function.keywords.keys() if isinstance(function, functools.partial) else ()
        parameters, self.is_open = _parameters(function)
        self.hints, unread = read_hints(function)
        # A type that only type checkers can see, on a parameter of that name, is a connection's.
        unread = {name: why for name, why in unread.items() if name not in CONNECTION_NAMES}
        self.parameters = [self._without_field(parameter) for parameter in parameters]
        self.texts = parameter_texts(doc, {parameter.name for parameter in parameters})
        for parameter in self.parameters:
            self._add(parameter, is_annotated=parameter.name in self.hints or parameter.name in unread)
        self.notes += [
            f"the annotation of {name!r} cannot be read ({why}): it takes anything" for name, why in unread.items()
        ]

    def input_schema(self) -> dict[str, Any]:
        """The schema of the arguments; pydantic's definitions are gathered at its root."""
        properties: dict[str, Any] = {}
        definitions: dict[str, Any] = {}
        for parameter in self.parameters:
            if kind := self.kinds.get(parameter.name):
                schema = hoist_definitions(kind.schema, parameter.name, definitions)
                text = kind.text or self.texts.get(parameter.name, "")
                default = () if parameter.default is parameter.empty else (parameter.default,)
                properties[parameter.name] = {**schema, **description_and_default(text, *default)}
        required = [p.name for p in self.parameters if p.name in properties and p.default is p.empty]
        found = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": self.is_open,
        }
        return {**found, "$defs": definitions} if definitions else found

    def _without_field(self, parameter: Parameter) -> Parameter:
        """A parameter as its author means it: `x: int = Field(3, ge=1)` is a constraint and the default 3."""
        if not is_pydantic_field(parameter.default):
            return parameter
        self.hints[parameter.name] = Annotated[self.hints.get(parameter.name, Any), parameter.default]
        if parameter.default.is_required():
            return parameter.replace(default=parameter.empty)
        default = parameter.default.get_default(call_default_factory=True)
        self.fallbacks[parameter.name] = default
        return parameter.replace(default=default)

    def _add(self, parameter: Parameter, *, is_annotated: bool) -> None:
        name, hint = parameter.name, self.hints.get(parameter.name, Any)
        kind = kind_of(hint)
        is_required = parameter.default is parameter.empty
        need = need_of(name, hint, kind, is_annotated=is_annotated, is_required=is_required)
        if need is not None:
            # What a partial has bound already is given by nobody else.
            self.needs.append(replace(need, kinds=()) if name in self.bound else need)
            return
        self.kinds[name] = kind
        if not is_annotated:
            self.notes.append(f"its parameter {name!r} has no annotation: it takes anything")
        if not is_required and not is_spellable(parameter.default):
            self.notes.append(f"the default of {name!r} is not JSON: the schema does not say it")


def hoist_definitions(schema: Mapping[str, Any], parameter: str, definitions: dict[str, Any]) -> Mapping[str, Any]:
    """A schema without its `$defs`, which join those at the root; one whose name is taken gets another."""
    own = schema.get("$defs")
    if not own:
        return schema
    names = {name: name if definitions.get(name, one) == one else f"{parameter}_{name}" for name, one in own.items()}
    definitions.update({names[name]: _renamed(one, names) for name, one in own.items()})
    found: Mapping[str, Any] = _renamed({key: value for key, value in schema.items() if key != "$defs"}, names)
    return found


def _renamed(schema: Any, names: Mapping[str, str]) -> Any:
    if isinstance(schema, list):
        return [_renamed(part, names) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {key: _renamed(part, names) for key, part in schema.items()}
    reference = found.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        found["$ref"] = f"#/$defs/{names.get(name, name)}"
    return found


def _output_schema(hint: Any) -> dict[str, Any] | None:
    """The schema of `structuredContent`: an object as it is, another value under `result`, and none for text."""
    kind = kind_of(hint)
    if kind.form == "text" or kind.foreign or hint is type(None):
        return None
    schema = output_schema_of_model(hint) if is_modelled(hint) else dict(allow_more_fields(kind.schema))
    if kind.form == "object":
        return {**schema, "type": "object"} if schema.keys() - {"type"} else None
    definitions = schema.pop("$defs", None)
    wrapped = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
    return {**wrapped, "$defs": definitions} if definitions else wrapped


def _parameters(function: Callable[..., Any]) -> tuple[list[Parameter], bool]:
    """The parameters that a function declares, and whether it takes more; one without a signature takes anything."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return [], True
    declared = [p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return declared, any(p.kind is p.VAR_KEYWORD for p in found)


def read_hints(function: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The annotations of a function, and why some of them cannot be read."""
    target = _annotated(function)
    try:
        return get_type_hints(target, include_extras=True), {}
    except Exception:  # noqa: BLE001  an annotation is an expression, and may fail in any way; each is tried alone below
        raw = getattr(target, "__annotations__", {})
    scope = getattr(inspect.unwrap(target), "__globals__", {})
    found: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for name, hint in raw.items():
        try:
            found |= get_type_hints(SimpleNamespace(__annotations__={name: hint}), scope, include_extras=True)
        except Exception as error:  # noqa: BLE001
            unread[name] = str(error)
    return found, unread


def _annotated(function: Any) -> Any:
    """The object with the annotations: of a partial its function, of an object that can be called its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


_goes_to_stderr: ContextVar[bool] = ContextVar("portico_prints_go_to_stderr", default=False)
_lock = Lock()
_users = 0
_diversions = 0
_kept: int | None = None
"""A copy of file descriptor 1, as it was before."""


class _StdoutSwitch:
    """Replaces stdout; leads to stderr for whoever runs a tool's function, and to stdout for everybody else."""

    def __init__(self, before: TextIO) -> None:
        self.before = before

    def write(self, text: str) -> int:
        """Write to the one or the other."""
        return (sys.stderr if _goes_to_stderr.get() else self.before).write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _goes_to_stderr.get() else self.before, name)


@contextmanager
def prints_to_stderr() -> Iterator[None]:
    """Within the block, and in tasks and threads that inherit its context, prints go to stderr."""
    global _users
    with _lock:
        _users += 1
        if not isinstance(sys.stdout, _StdoutSwitch):  # somebody may have put another stream there meanwhile
            sys.stdout = _StdoutSwitch(sys.stdout)
    token = _goes_to_stderr.set(True)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away ends in another context than it began in
            _goes_to_stderr.reset(token)
        with _lock:
            _users -= 1
            if not _users and isinstance(sys.stdout, _StdoutSwitch):
                sys.stdout = sys.stdout.before


@contextmanager
def stdout_diverted() -> Iterator[None]:
    """Within the block, what anybody writes to file descriptor 1 goes to stderr; at its end stdout is what it was.

    For imports, which happen before anything is served: child processes and C libraries know no other stdout.
    """
    global _diversions, _kept
    stream = sys.stdout
    with suppress(OSError, ValueError, AttributeError):
        stream.flush()
    with _lock:
        _diversions += 1
        if _diversions == 1:
            with suppress(OSError):  # there may be no stdout, or no stderr
                _kept = os.dup(1)
                os.dup2(2, 1)
    try:
        yield
    finally:
        if not isinstance(sys.stdout, _StdoutSwitch):  # a module may have wrapped or replaced it
            sys.stdout = stream
        with _lock:
            _diversions -= 1
            if not _diversions and _kept is not None:
                os.dup2(_kept, 1)
                os.close(_kept)
                _kept = None
