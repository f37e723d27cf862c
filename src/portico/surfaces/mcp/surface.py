"""What a surface is: it decides what is listed and how the next call is spelled, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from portico.domain.call import Call, Caller, OnProgress
from portico.errors import NextCall

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What travels beside the arguments of a call."""

    meta: JsonObject = field(default_factory=dict)
    on_progress: OnProgress | None = None
    answers: JsonObject | None = None

    def around(self, tool: str, arguments: JsonObject, *, needs_structured: bool = False) -> Call:
        """The call with all of it."""
        return Call(
            tool=tool,
            arguments=arguments,
            meta=self.meta,
            on_progress=self.on_progress,
            answers=self.answers,
            needs_structured=needs_structured,
        )


class Surface(Protocol):
    """One way in over MCP."""

    @property
    def name(self) -> str:
        """The name in paths and options."""
        ...

    def instructions(self, caller: Caller) -> str:
        """What a client reads first; its first 512 characters stand alone."""
        ...

    async def tools(self, caller: Caller) -> list[JsonObject]:
        """The definitions that are listed, in a fixed order."""
        ...

    def listed(self, caller: Caller) -> list[JsonObject]:
        """The same for the edition of this moment, without waiting for servers that have not been asked yet."""
        ...

    def meta_tool(self, name: str) -> MetaTool | None:
        """The surface's own tool of that name; all other names are tools of the catalog."""
        ...

    def schema_of(self, name: str) -> JsonObject | None:
        """The input schema of one of the surface's own tools."""
        ...

    def spell(self, call: NextCall) -> str:
        """The next call in the words of this surface."""
        ...


MetaTool = Callable[[Caller, JsonObject, Envelope], Awaitable[JsonObject]]
"""Caller, arguments and what travels beside them -> a tool result."""
