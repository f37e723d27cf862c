"""Every server and tool gets its spellings: injective, deterministic, the same after a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from portico.domain.names import LISTED_LIMIT, META_TOOLS, distinct, identifier, listable, server_identifier
from portico.domain.tool import ToolId


def name_servers(aliases: Mapping[str, str]) -> dict[str, str]:
    """Identifiers for servers; `aliases` maps each configured name to its alias, or to an empty string."""
    return distinct((name, server_identifier(alias or name)) for name, alias in aliases.items())


def name_tools(names: Iterable[str]) -> dict[str, str]:
    """Identifiers for the tools of one server."""
    return distinct((name, identifier(name)) for name in names)


def list_names(tools: Iterable[tuple[ToolId, str]], handles: Collection[str] = ()) -> dict[ToolId, str]:
    """The name that each (tool, source) has in `tools/list`; never one that is some tool's handle.

    A local tool is listed bare, unless a surface lists a tool of its own under that name.
    """
    wanted = {f"{id.server}\0{id.name}": (id, _wanted(id, source)) for id, source in tools}
    chosen = distinct(((key, spelling) for key, (_, spelling) in wanted.items()), handles)
    return {id: chosen[key] for key, (id, _) in wanted.items()}


def _wanted(id: ToolId, source: str) -> str:
    bare = listable(id.name)
    if source == "local" and identifier(bare) not in META_TOOLS:
        return _fitted(bare, id)
    return _fitted(f"{listable(id.server)}__{bare}", id)


def _fitted(spelling: str, id: ToolId) -> str:
    """A name over the limit is cut and marked with a hash of the whole, so that no cut merges two tools."""
    room = LISTED_LIMIT - 8  # for the `_2` of a collision
    if len(spelling) <= room:
        return spelling
    mark = hashlib.sha256(f"{id.server}\0{id.name}".encode()).hexdigest()[:12]
    return f"{spelling[: room - 13]}_{mark}"
