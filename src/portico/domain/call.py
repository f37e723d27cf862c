"""Calls and scripts, their callers and results, kept results, and the record of each call."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter
from typing import Any, Protocol

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


SearchedWord = tuple[str, str]
"""The stem of a word of a search, and the word as it was spelled."""


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
    words: tuple[SearchedWord, ...] = ()
    """Of that search, those that may be learned as words for the tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Passed explicitly to every question and every call, never taken from a context variable."""

    name: str = "local"
    surface: str = "library"
    result_tokens: int = 0
    """What one result may cost this caller; 0 leaves it to the config."""
    client: str = field(default="", compare=False)
    """Which of several clients of the same name asks: its session, or its address and program. Shares are by client;
    rights and answers are not, so that two clients of one name are the same caller."""


START_WAIT: ContextVar[float] = ContextVar("START_WAIT", default=0.0)
"""Seconds that the call which is being made in this context has waited; whoever makes a call sets it to 0."""


@contextmanager
def waiting_for_start() -> Iterator[None]:
    """Count the time inside as a wait for the start of a server."""
    began = perf_counter()
    try:
        yield
    finally:
        START_WAIT.set(START_WAIT.get() + perf_counter() - began)


Place = tuple[str | int, ...]
"""The keys and numbers that lead to a value inside of another."""


class Text(Protocol):
    """Text of any length, read in slices; a plain string is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> str: ...


class Starts(Protocol):
    """Where units begin, in rising order; an array of numbers is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> int: ...


class Unit(StrEnum):
    """What is never cut in two while it fits: the value is the word that readers are told."""

    LINE = "lines"
    ITEM = "items"
    """One item of a JSON list."""
    FIELD = "fields"
    """One field of a JSON object, with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of units: the lines of a text, the items of one list, or fields of one object."""

    unit: Unit
    starts: Starts
    end: int
    """Where the last of them ends."""
    place: Place = ()
    """Where the list or the object stands in its part."""

    def span(self, number: int) -> tuple[int, int]:
        """Where a unit begins, and where the next one does; what stands between the two is not cut off."""
        following = number + 1
        return self.starts[number], self.starts[following] if following < len(self.starts) else self.end

    def holding(self, at: int) -> int:
        """The number of the unit that a letter of the text belongs to; -1 when it stands outside of all of them."""
        return bisect_right(self.starts, at) - 1 if at < self.end else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One text of a result: a text block, an embedded text, or the structured content."""

    text: Text
    segments: tuple[Segment, ...]
    is_json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One result that is kept for its caller, for a while."""

    id: str
    caller: str
    tool: str
    """The handle of the tool that returned it."""
    parts: tuple[Part, ...]
    seen: int = 0
    """The number of the first unit that its preview did not show whole."""
    tokens: int = 0
    """What each answer about it may cost; 0 leaves it to the caller."""
    expires_at: float = 0.0
    """In seconds since 1970."""

    @property
    def total(self) -> int:
        """How many units there are, over all parts."""
        return sum(len(segment.starts) for _, segment, _ in self.runs())

    def runs(self) -> Iterator[tuple[Part, Segment, int]]:
        """The segments of all parts in order, each with its part and the number of its first unit."""
        number = 0
        for part in self.parts:
            for segment in part.segments:
                yield part, segment, number
                number += len(segment.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLimits:
    """What results may cost: their callers in tokens, and the gateway in time and room."""

    tokens: int = 6_000
    expire_s: float = 3_600.0
    memory_mb: int = 64
    store_mb: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptLimits:
    """What one run of a script may use; all of it is enforced from outside of the script."""

    seconds: float = 30.0
    """Wall clock, from its start to its answer, the time of its calls included."""
    cpu_seconds: float = 5.0
    memory_mb: int = 64
    """What the script's own values may take together."""
    calls: int = 100
    in_flight: int = 16
    """Calls that run at once; those beyond wait for their turn."""
    output_bytes: int = 1_000_000
    """The value that it returns, as JSON."""
    printed_bytes: int = 64_000
    source_bytes: int = 256_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One run: source text, the value of its global `args`, and its limits."""

    source: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    limits: ScriptLimits = field(default_factory=ScriptLimits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A script that came to its end."""

    value: Any = None
    has_value: bool = False
    """Whether it said what its result is; JSON null is a result too."""
    printed: str = ""
    printed_cut: int = 0
    """Bytes that were printed beyond the limit."""
    unawaited: tuple[str, ...] = ()
    """What went wrong in calls that the script never awaited, one line each."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """What holds scripts in on this machine."""

    ready: int = 0
    size: int = 0
    running: int = 0
    missing: tuple[str, ...] = ()
    """Protections that this machine does not give, in words; none is missing on a current Linux."""
    problem: str = ""
    """Why scripts cannot be run at all."""

    @property
    def is_degraded(self) -> bool:
        """Whether scripts are held in by less than we want."""
        return bool(self.missing or self.problem)

    @property
    def state(self) -> str:
        """All of it in a few words: `hardened`, or what is missing."""
        if self.problem:
            return f"unavailable: {self.problem}"
        return f"degraded: {', '.join(self.missing)}" if self.missing else "hardened"
