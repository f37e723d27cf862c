"""The decorator `@tool`, and parameters that are given to a function instead of passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, get_args, overload

from portico.domain.call import Caller

from .annotations import AnnotationKind

LOCAL = "local"  # the server of functions that name no other
MARK = "__portico_tool__"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMark:
    """The arguments of the decorator `@tool`."""

    name: str = ""
    description: str | None = None
    title: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    example: str = ""
    """A short prompt for which the tool is the right one."""
    server: str = LOCAL
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    """Arguments that it can be called with, where the required ones alone say too little."""

    def __post_init__(self) -> None:
        for key in ("name", "title", "category", "server", "example"):
            _check(key, getattr(self, key), str, "text")
        _check("description", self.description, str | None, "text")
        for key in ("read_only", "destructive", "idempotent"):
            _check(key, getattr(self, key), bool | None, "True or False")
        for tag in self.tags:
            _check("a tag", tag, str, "text")
        for example in self.examples:
            _check("an example", example, Mapping, "a dict of arguments")

    @property
    def annotations(self) -> dict[str, bool]:
        """The hints that were given, as definitions spell them."""
        hints = {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
        }
        return {hint: said for hint, said in hints.items() if said is not None}


@overload
def tool(name: _F, /) -> _F:
    """Used bare."""


@overload
def tool(
    name: str | None = None,
    *,
    description: str | None = None,
    category: str = "",
    tags: Sequence[str] = (),
    server: str = LOCAL,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    title: str = "",
    examples: Sequence[Mapping[str, Any]] = (),
    example: str = "",
) -> Callable[[_F], _F]:
    """Used with what it shall say."""


def tool(name: Any = None, *, tags: Sequence[str] = (), examples: Sequence[Mapping[str, Any]] = (), **said: Any) -> Any:
    """Make a function a tool, whatever it is called; the function itself stays as it is.

    Without arguments it is used bare, `@tool`; a name, a description or hints may be given: `@tool("rename")`.
    """
    if callable(name):
        setattr(name, MARK, ToolMark())
        return name
    if name is not None and not isinstance(name, str):
        raise TypeError(f"a tool's name is text, not {name!r}: write @tool or @tool('name')")
    if isinstance(tags, str):
        raise TypeError(f"tags are a list of texts, not {tags!r}: write tags=[{tags!r}]")
    mark = ToolMark(name=name or "", tags=tuple(tags), examples=tuple(examples), **said)

    def decorate(function: _F) -> _F:
        setattr(function, MARK, mark)
        return function

    return decorate


def _check(what: str, value: object, kind: Any, wanted: str) -> None:
    """A decorator is written by hand: what is wrong is said where it stands, and not when the catalog is made."""
    if not isinstance(value, kind):
        raise TypeError(f"{what} of @tool is {wanted}, not {value!r}")


def mark_of(function: object) -> ToolMark | None:
    """The mark that a decorator has left, if one has."""
    try:
        found = getattr(function, MARK, None)
    except BaseException:  # noqa: BLE001  a module may hold any object, and some answer no question before they are set up
        return None
    return found if isinstance(found, ToolMark) else None


CONTEXT_NAMES = frozenset({"ctx", "context", "request_context", "_request_context"})
CONNECTION_NAMES = frozenset({"conn", "connection", "tdconn"})


class ProgressReport(Protocol):
    """Tells the client how far a function has come; never waits, and may be called from any thread."""

    def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """So far, of so much, and what is being done."""
        ...


def report_nothing(progress: float, total: float | None = None, message: str | None = None) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Who asks, and what came along with the request."""

    caller: Caller
    meta: Mapping[str, Any] = field(default_factory=dict)
    report: ProgressReport = report_nothing


class Connection:
    """Marks a parameter that is given an open connection, which is closed after the call."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


Source = Callable[[RequestContext], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Opens what a function asks for; entered before the function runs and left after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedParameter:
    """One parameter that is hidden from callers and filled in for the function."""

    parameter: str
    kinds: tuple[type, ...]
    """The types of values that it may be given, best first; empty when there is nothing to give."""
    is_required: bool

    def is_given_by(self, sources: Mapping[type, Source]) -> bool:
        """Whether there is something to give."""
        return any(kind is RequestContext or kind in sources for kind in self.kinds)

    def source(self, sources: Mapping[type, Source]) -> Source | None:
        """The function that opens its value; None for the request itself, which is there already."""
        return next((sources[kind] for kind in self.kinds if kind in sources), None)

    @property
    def is_connection(self) -> bool:
        """Whether it is a connection that is needed."""
        return Connection in self.kinds

    @property
    def reason(self) -> str:
        """Why a function with this need cannot be offered, and what to do."""
        where = f"its parameter {self.parameter!r}"
        if self.is_connection:
            return (
                f"{where} needs a connection, and nobody provides one. Configure a database (in a program:"
                " Catalog(database=...) or DATABASE_URI), or give it a default."
            )
        if not self.kinds:
            return f"{where} begins with '_', so that no caller can pass it. Give it a default, or another name."
        return (
            f"{where} needs a {self.kinds[0].__qualname__}, which no JSON value can be and nobody provides."
            " Annotate it with a type that JSON can spell, or give it a default."
        )


def need_of(
    name: str, hint: Any, kind: AnnotationKind, *, is_annotated: bool, is_required: bool
) -> InjectedParameter | None:
    """The kind of value that a parameter is to be given, or None when callers pass it themselves."""
    kinds: tuple[type, ...] = (kind.foreign,) if kind.foreign else ()
    is_open = not is_annotated or (name.startswith("_") and hint in (Any, object))
    if marker := next((part for part in (hint, *get_args(hint)) if part is RequestContext or part is Connection), None):
        kinds = (marker,)
    elif name in CONTEXT_NAMES and is_open:
        kinds = (RequestContext,)
    elif name in CONNECTION_NAMES and (is_open or kinds):
        kinds = (*kinds, Connection)
    if not kinds and not name.startswith("_"):
        return None
    return InjectedParameter(parameter=name, kinds=kinds, is_required=is_required)
