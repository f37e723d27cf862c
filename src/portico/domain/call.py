"""Calls, what came of them, and the record that is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .tool import ToolId

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Progress, total, message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool as the caller spelled it, and the arguments."""

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any] = field(default_factory=dict)
    """The request's own `_meta`, less what belongs to its connection."""
    on_progress: OnProgress | None = None
    answers: Mapping[str, Any] | None = None
    """What a client sends when it answers a tool's question: `inputResponses` and `requestState`."""
    parent: str = ""
    """The script that makes the call, if one does."""
    whole: bool = False
    """Whether the result is given whole, however large: to a script, or to a program that reads it."""
    needs_structured: bool = False
    """Whether the client was given the tool's output schema, and may refuse a result without structured content."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool returned: the raw result object, passed on unchanged, or shortened to fit."""

    raw: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    """What was repaired in the call, one line each."""

    @property
    def is_error(self) -> bool:
        """Whether the tool itself says that it failed."""
        return bool(self.raw.get("isError"))

    @property
    def content(self) -> list[Any]:
        """The content blocks."""
        found = self.raw.get("content")
        return found if isinstance(found, list) else []

    @property
    def structured(self) -> Any:
        """The structured content, or None."""
        return self.raw.get("structuredContent")

    @property
    def text(self) -> str:
        """All text blocks, one after the other."""
        return "\n".join(b["text"] for b in self.content if isinstance(b, dict) and isinstance(b.get("text"), str))


class Outcome(StrEnum):
    """How a call ended."""

    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    INVALID = "invalid"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A call with its outcome, written once to the journal."""

    tool: ToolId | None
    spelled: str
    caller: str
    surface: str
    outcome: Outcome
    seconds: float
    code: str = ""
    at: float = 0.0
    """When it began, in seconds since 1970."""
    tokens_in: int = 0
    tokens_out: int = 0
    parent: str = ""
    """The script that made the call, if one did."""
    rank: int = 0
    """The tool's place in the caller's last search that showed it, from 1; 0 when none did."""
