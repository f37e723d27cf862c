"""Parameters that nobody passes: a function asks for the request or for a connection, and is given it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, get_args

from portico.domain.caller import Caller

from .kinds import Kind

CONTEXT_NAMES = frozenset({"ctx", "context", "request_context", "_request_context"})
CONNECTION_NAMES = frozenset({"conn", "connection", "tdconn"})


class Report(Protocol):
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
    report: Report = report_nothing


class Connection:
    """Marks a parameter that is given an open connection, which is closed after the call."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


Source = Callable[[RequestContext], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Opens what a function asks for; entered before the function runs and left after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One parameter that is hidden from callers and filled in for the function."""

    parameter: str
    kinds: tuple[type, ...]
    """What it may be given, best first; empty when there is nothing to give."""
    is_required: bool

    def met_by(self, sources: Mapping[type, Source]) -> bool:
        """Whether the function can be called: there is a source, or the parameter has a default."""
        return self.is_given_by(sources) or not self.is_required

    def is_given_by(self, sources: Mapping[type, Source]) -> bool:
        """Whether there is something to give."""
        return any(kind is RequestContext or kind in sources for kind in self.kinds)

    def source(self, sources: Mapping[type, Source]) -> Source | None:
        """What opens it; None for the request itself, which is there already."""
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


def need_of(name: str, hint: Any, kind: Kind, *, is_annotated: bool, is_required: bool) -> Need | None:
    """What a parameter is to be given, or None when callers pass it themselves."""
    kinds = _wanted(name, hint, kind, is_annotated)
    if not kinds and not name.startswith("_"):
        return None
    return Need(parameter=name, kinds=kinds, is_required=is_required)


def _wanted(name: str, hint: Any, kind: Kind, is_annotated: bool) -> tuple[type, ...]:
    for marker in (RequestContext, Connection):
        if any(part is marker for part in (hint, *get_args(hint))):
            return (marker,)
    is_open = not is_annotated or (name.startswith("_") and hint in (Any, object))
    foreign = (kind.foreign,) if kind.foreign else ()
    if name in CONTEXT_NAMES and is_open:
        return (RequestContext,)
    if name in CONNECTION_NAMES and (is_open or foreign):
        return (*foreign, Connection)
    return foreign
