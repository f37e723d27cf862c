"""The decorator `@tool`, for those who prefer to say which functions are tools, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

LOCAL = "local"
"""The server of functions that name no other."""
MARK = "__portico_tool__"

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMark:
    """What a decorator says of a function."""

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
        return _marked(name, ToolMark())
    if name is not None and not isinstance(name, str):
        raise TypeError(f"a tool's name is text, not {name!r}: write @tool or @tool('name')")
    if isinstance(tags, str):
        raise TypeError(f"tags are a list of texts, not {tags!r}: write tags=[{tags!r}]")
    mark = ToolMark(name=name or "", tags=tuple(tags), examples=tuple(examples), **said)
    return lambda function: _marked(function, mark)


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


def _marked(function: _F, mark: ToolMark) -> _F:
    setattr(function, MARK, mark)
    return function
