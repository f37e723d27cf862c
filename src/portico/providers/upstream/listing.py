"""Asking a server for everything it offers, page by page and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from portico.domain.server import Offering

from .bounds import COUNTED_FROM, TooLarge, values_of
from .connection import Connection
from .faults import Fault, RpcError
from .link import Patience
from .protocol import METHOD_NOT_FOUND, VALUES_LIMIT, Welcome

PAGES = 1_000
ITEMS = 20_000
LISTS_LIMIT = 32 * 1024 * 1024
"""Bytes of all lists of one server together, of what is kept and of what is left out."""
VALUES = 1_000_000
"""JSON values in all definitions of one server that are kept."""
DEFINITION_LIMIT = 1024 * 1024
"""Bytes of one definition that is passed on at all; those who take it in have lower limits, and say so."""
BREATH = 256 * 1024
"""Bytes of definitions that are measured before others get their turn."""
CURSOR_LIMIT = 10_000
SHORT = 200
LONG = 4_000
"""Characters of what a server says of itself: its name and version, and its description."""

Items = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """One list, and why it is not complete."""

    items: Items = ()
    limited: str = ""


class Room:
    """What is left for the lists of one server, over all their pages."""

    def __init__(self) -> None:
        self.bytes, self.values = LISTS_LIMIT, VALUES
        self.left_out = 0
        """Definitions that are too large by themselves."""

    async def take(self, items: Sequence[Any]) -> list[Mapping[str, Any]]:
        """The items that fit; the first that finds no room ends the list."""
        taken: list[Mapping[str, Any]] = []
        measured = 0
        for item in items:
            if not isinstance(item, dict):
                continue
            size = self._measure(item)
            measured += size
            if self.bytes <= 0 or self.values <= 0:
                break
            if size <= DEFINITION_LIMIT:
                taken.append(item)
            else:
                self.left_out += 1
            if measured > BREATH:
                measured = 0
                await asyncio.sleep(0)
        return taken

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return self.bytes <= 0 or self.values <= 0

    def _measure(self, item: Mapping[str, Any]) -> int:
        try:
            text = orjson.dumps(item)
        except TypeError:
            # Nested deeper than can be written: it is refused by name where definitions are taken in.
            self.bytes -= BREATH
            return BREATH
        self.bytes -= len(text)
        if len(text) <= DEFINITION_LIMIT:
            self.values -= values_of(text)
        return len(text)


async def take_stock(server: str, connection: Connection, patience: Patience) -> Offering:
    """Everything that one server offers; only its tools must be readable.

    Raises:
        Fault: the tools cannot be listed.
    """
    welcome = connection.welcome
    declared = welcome.capabilities
    # A server that declares nothing at all is asked for tools nevertheless: old ones forget to say.
    has_tools = "tools" in declared or not declared.keys() & {"prompts", "resources"}
    asking = _Asking(connection, patience, Room())
    tools = await asking.list_all("tools/list", "tools") if has_tools else Listed()
    prompts = await asking.list_if("prompts" in declared, "prompts/list", "prompts")
    resources = await asking.list_if("resources" in declared, "resources/list", "resources")
    templates = await asking.list_if("resources" in declared, "resources/templates/list", "resourceTemplates")
    lists = {"tools": tools, "prompts": prompts, "resources": resources, "resource templates": templates}
    return Offering(
        server=server,
        **_about(welcome),
        tools=tools.items,
        prompts=prompts.items,
        resources=resources.items,
        templates=templates.items,
        limited="; ".join(f"{name}: {listed.limited}" for name, listed in lists.items() if listed.limited),
    )


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks one server for its lists, as far as there is room for them."""

    connection: Connection
    patience: Patience
    room: Room

    async def list_all(self, method: str, key: str) -> Listed:
        """Every page of one list; a server without that list has an empty one.

        Raises:
            Fault: a page cannot be read.
        """
        items: list[Mapping[str, Any]] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(PAGES):
            try:
                result = await self._page(method, params)
            except TooLarge as fault:
                if not items:
                    raise
                return Listed(tuple(items), f"the rest was not read: {fault.details[0]}")
            found = result.get(key)
            items += await self.room.take(found if isinstance(found, list) else ())
            params = {"cursor": result.get("nextCursor")}
            if (limited := self._end(items, params["cursor"], cursors)) is not None:
                return Listed(tuple(items[:ITEMS]), limited)
            cursors.add(params["cursor"])
        return Listed(tuple(items), f"only the first {PAGES:,} pages are read")

    async def list_if(self, declared: bool, method: str, key: str) -> Listed:
        """The same, for a list that may be missing and may fail."""
        if not declared:
            return Listed()
        try:
            return await self.list_all(method, key)
        except Fault as fault:
            if self.connection.link.fault is not None:
                raise
            return Listed((), f"not readable: {fault.details[0]}")

    async def _page(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        # What is left for all lists is the most that one page may have, and is known while it is being read.
        patience = replace(self.patience, size=max(COUNTED_FROM, self.room.bytes), values=VALUES_LIMIT)
        try:
            return await self.connection.request(method, params, patience)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return {}
            raise

    def _end(self, items: Sequence[Any], cursor: Any, cursors: set[str]) -> str | None:
        """Why a list ends here, empty when it is complete; None when there is another page."""
        if len(items) > ITEMS:
            return f"only the first {ITEMS:,} are taken"
        if self.room.is_full:
            return f"only the first {len(items):,} are taken: all lists of a server may have {_room()} together"
        if not isinstance(cursor, str) or not cursor:
            return self._omissions()
        if cursor in cursors:
            return "the server repeats a page, so the rest was not read"
        return "the server's cursor is too long, so the rest was not read" if len(cursor) > CURSOR_LIMIT else None

    def _omissions(self) -> str:
        omitted, self.room.left_out = self.room.left_out, 0
        return f"{omitted} with more than {DEFINITION_LIMIT >> 20} MiB are left out" if omitted else ""


def _room() -> str:
    return f"{LISTS_LIMIT >> 20} MiB and {VALUES:,} values"


def _about(welcome: Welcome) -> dict[str, Any]:
    info = {key: value for key, value in welcome.info.items() if isinstance(value, str)}
    return {
        "title": (info.get("title") or info.get("name", ""))[:SHORT],
        "version": info.get("version", "")[:SHORT],
        "description": info.get("description", "")[:LONG],
        "instructions": welcome.instructions,
        "protocol": welcome.version,
        "capabilities": welcome.capabilities,
    }
