"""What a surface is: it decides what is listed and how the next call is spelled, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from portico.domain.call import OnProgress
from portico.domain.caller import Caller
from portico.errors import NextCall

JsonObject = Mapping[str, Any]


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

    def meta_tool(self, name: str) -> MetaTool | None:
        """The surface's own tool of that name; all other names are tools of the catalog."""
        ...

    def schema_of(self, name: str) -> JsonObject | None:
        """The input schema of one of the surface's own tools."""
        ...

    def spell(self, call: NextCall) -> str:
        """The next call in the words of this surface."""
        ...


MetaTool = Callable[[Caller, JsonObject, JsonObject, OnProgress | None], Awaitable[JsonObject]]
"""Caller, arguments, request meta, progress -> a tool result."""
