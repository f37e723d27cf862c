"""Asking a server for everything it offers, page by page and within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portico.domain.server import Offering

from .connection import Connection
from .faults import Fault, RpcError
from .link import Patience
from .protocol import METHOD_NOT_FOUND, Welcome

PAGES = 1_000
ITEMS = 20_000

Items = tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """One list, and why it is not complete."""

    items: Items = ()
    limited: str = ""


async def take_stock(server: str, connection: Connection, patience: Patience) -> Offering:
    """Everything that one server offers; only its tools must be readable.

    Raises:
        Fault: the tools cannot be listed.
    """
    welcome = connection.welcome
    declared = welcome.capabilities
    # A server that declares nothing at all is asked for tools nevertheless: old ones forget to say.
    has_tools = "tools" in declared or not declared.keys() & {"prompts", "resources"}
    tools = await list_all(connection, "tools/list", "tools", patience) if has_tools else Listed()
    prompts = await _list_if(connection, "prompts" in declared, "prompts/list", "prompts", patience)
    resources = await _list_if(connection, "resources" in declared, "resources/list", "resources", patience)
    templates = await _list_if(
        connection, "resources" in declared, "resources/templates/list", "resourceTemplates", patience
    )
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


async def list_all(connection: Connection, method: str, key: str, patience: Patience) -> Listed:
    """Every page of one list; a server without that list has an empty one.

    Raises:
        Fault: a page cannot be read.
    """
    items: list[Mapping[str, Any]] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {}
    for _ in range(PAGES):
        try:
            result = await connection.request(method, params, patience)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return Listed(tuple(items))
            raise
        found = result.get(key)
        items += [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        cursor = result.get("nextCursor")
        if len(items) > ITEMS:
            return Listed(tuple(items[:ITEMS]), f"only the first {ITEMS:,} are taken")
        if not isinstance(cursor, str) or not cursor:
            return Listed(tuple(items))
        if cursor in cursors:
            return Listed(tuple(items), "the server repeats a page, so the rest was not read")
        cursors.add(cursor)
        params = {"cursor": cursor}
    return Listed(tuple(items), f"only the first {PAGES:,} pages are read")


async def _list_if(connection: Connection, declared: bool, method: str, key: str, patience: Patience) -> Listed:
    if not declared:
        return Listed()
    try:
        return await list_all(connection, method, key, patience)
    except Fault as fault:
        if connection.link.fault is not None:
            raise
        return Listed((), f"not readable: {fault.details[0]}")


def _about(welcome: Welcome) -> dict[str, Any]:
    info = {key: value for key, value in welcome.info.items() if isinstance(value, str)}
    return {
        "title": info.get("title") or info.get("name", ""),
        "version": info.get("version", ""),
        "description": info.get("description", ""),
        "instructions": welcome.instructions,
        "protocol": welcome.version,
        "capabilities": welcome.capabilities,
    }
