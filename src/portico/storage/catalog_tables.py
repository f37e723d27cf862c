"""The tables of servers, tools with their tiers, and categories; an operator may query them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from operator import itemgetter
from typing import Any

import orjson

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.server import Packaging
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage_and_tiers import Standing, Tier

from .database_interface import Database, clean, key, upsert

DESCRIPTION_LENGTH = 20_000

_SERVER = upsert("mcp_servers", "server_name", replace="display_name docker_image network_mode is_active")
_TOOL = """
INSERT INTO mcp_tools (server_id, tool_name, display_name, description, parameters_schema, primary_category, mark,
    tier, tier_score, is_scored, is_active)
VALUES ((SELECT id FROM mcp_servers WHERE server_name = :server), :name, :title, :description, :schema, :category,
    :mark, :tier, :score, :scored, TRUE)
ON CONFLICT (server_id, tool_name) DO UPDATE SET display_name = excluded.display_name,
    description = excluded.description, parameters_schema = excluded.parameters_schema,
    primary_category = excluded.primary_category, mark = excluded.mark, is_active = TRUE,
    tier = CASE WHEN excluded.is_scored THEN excluded.tier ELSE mcp_tools.tier END,
    tier_score = CASE WHEN excluded.is_scored THEN excluded.tier_score ELSE mcp_tools.tier_score END,
    is_scored = (mcp_tools.is_scored OR excluded.is_scored)
"""
_POSTGRES_TOOL = _TOOL.replace(":schema", "CAST(:schema AS json)")
"""On PostgreSQL the schema is JSON, so that queries can look into it."""
_SERVER_GONE = "UPDATE mcp_servers SET is_active = FALSE WHERE server_name = :name"
_TOOL_GONE = "UPDATE mcp_tools SET is_active = FALSE WHERE id = :id"
_SERVERS = "SELECT server_name, display_name, docker_image, network_mode, is_active FROM mcp_servers"
_TOOLS = """
SELECT s.server_name, t.tool_name, t.id, t.mark, t.is_active, t.is_scored, t.tier, t.tier_score
FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id
"""
_STANDINGS = """
SELECT s.server_name, t.tool_name, t.tier, t.tier_score
FROM mcp_tools t JOIN mcp_servers s ON s.id = t.server_id WHERE t.is_scored
"""
_CATEGORY = """
INSERT INTO mcp_categories (category_name, display_name, description, sort_order, is_edited)
VALUES (:name, :title, :description, :place, :edited)
ON CONFLICT (category_name) DO UPDATE SET display_name = excluded.display_name, description = excluded.description,
    sort_order = excluded.sort_order, is_edited = excluded.is_edited
WHERE excluded.is_edited OR NOT mcp_categories.is_edited
"""

_CATEGORIES = """
SELECT category_name, display_name, description, sort_order FROM mcp_categories WHERE is_edited = :edited
"""
_DROP_CATEGORY = "DELETE FROM mcp_categories WHERE category_name = :name AND is_edited = :edited"


class TierRecords:
    """What a database keeps of the catalog: servers, tools with their standing, and categories; threads may share it.

    Only what has changed is written. Every method may raise StoreError.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tool = _POSTGRES_TOOL if database.dialect == "postgresql" else _TOOL

    def standings(self) -> dict[ToolId, Standing]:
        """How the tools stood at the last update; a tier that nobody knows any more is left out."""
        found = {}
        for server, name, tier, score in self._database.rows(_STANDINGS):
            with suppress(ValueError):
                found[ToolId(server, name)] = Standing(tier=Tier(tier), score=score)
        return found

    def keep_catalog(
        self,
        snapshot: CatalogSnapshot,
        packaging: Mapping[str, Packaging],
        standings: Mapping[ToolId, Standing] | None = None,
    ) -> None:
        """Write down servers and tools as they are now; what has not changed is passed over."""
        rows = [_tool_row(tool, (standings or {}).get(id)) for id, tool in snapshot.tools.items()]
        tools = {(row["server"], row["name"]): row for row in rows}
        servers = {row["server_name"]: row for row in _server_rows(snapshot, packaging)}
        with self._database.transaction() as work:
            kept_servers = {row[0]: row for row in work.rows(_SERVERS)}
            kept = {(server, name): rest for server, name, *rest in work.rows(_TOOLS)}
            new = [row for name, row in sorted(servers.items()) if kept_servers.get(name) != tuple(row.values())]
            work.run(_SERVER, new)
            work.run(self._tool, [row for at, row in sorted(tools.items()) if _is_new(row, kept.get(at))])
        # A transaction of its own: within one, everybody must take rows in one order, or two might wait for each other.
        with self._database.transaction() as work:
            gone = sorted(name for name, row in kept_servers.items() if name not in servers and row[-1])
            work.run(_SERVER_GONE, [{"name": name} for name in gone])
            lost = sorted((at, row[0]) for at, row in kept.items() if at not in tools and row[2])
            work.run(_TOOL_GONE, [{"id": id} for _, id in lost])

    def categories(self) -> dict[str, Category]:
        """The categories that an operator wrote down, by name."""
        rows = self._database.rows(_CATEGORIES, {"edited": True})
        return {
            name: Category(name=name, display_name=title, description=description, order=place)
            for name, title, description, place in sorted(rows, key=lambda row: (row[3], row[0]))
        }

    def keep_categories(self, categories: Iterable[Category], *, shipped: bool = False) -> None:
        """Write categories down; shipped ones stand beside what an operator wrote, in place of those shipped before."""
        rows = {
            row["name"]: row for row in sorted((_category_row(c, shipped) for c in categories), key=itemgetter("name"))
        }
        if not shipped:
            self._database.run(_CATEGORY, [*rows.values()])
            return
        kept = {row[0]: row for row in self._database.rows(_CATEGORIES, {"edited": False})}
        edited = {row[0] for row in self._database.rows(_CATEGORIES, {"edited": True})}
        new = [row for name, row in rows.items() if name not in edited and kept.get(name) != tuple(row.values())[:4]]
        gone = [{"name": name, "edited": False} for name in sorted(kept.keys() - rows.keys())]
        if new or gone:  # a start with nothing new writes nothing
            with self._database.transaction() as work:
                work.run(_CATEGORY, new)
                work.run(_DROP_CATEGORY, gone)

    def drop_category(self, name: str) -> bool:
        """Forget what an operator wrote of a category."""
        return bool(self._database.run(_DROP_CATEGORY, {"name": key(name), "edited": True}))


def _server_rows(snapshot: CatalogSnapshot, packaging: Mapping[str, Packaging]) -> Iterator[dict[str, Any]]:
    for name, server in snapshot.servers.items():
        packed = packaging.get(name, Packaging())
        yield {
            "server_name": key(name),
            "display_name": clean(server.title or name),
            "docker_image": clean(packed.docker_image),
            "network_mode": clean(packed.network_mode),
            "is_active": True,
        }


def _tool_row(tool: Tool, standing: Standing | None) -> dict[str, Any]:
    row = {
        "server": key(tool.id.server),
        "name": key(tool.id.name),
        "title": clean(tool.title or tool.name),
        "description": clean(tool.description, DESCRIPTION_LENGTH),
        "schema": _json(tool.input_schema),
        "category": key(tool.category),
    }
    return {
        **row,
        "mark": blake2b("\0".join(row.values()).encode(), digest_size=12).hexdigest(),
        "tier": str(standing.tier if standing else Tier.COLD),
        "score": standing.score if standing else 0.0,
        "scored": standing is not None,
    }


def _is_new(tool: Mapping[str, Any], kept: list[Any] | None) -> bool:
    """Whether a tool, or its standing, is not written down as it is now."""
    if kept is None or kept[1:3] != [tool["mark"], True]:
        return True
    return bool(tool["scored"]) and kept[3:] != [True, tool["tier"], tool["score"]]


def _category_row(category: Category, shipped: bool) -> dict[str, Any]:
    return {
        "name": key(category.name),
        "title": clean(category.display_name),
        "description": clean(category.description, DESCRIPTION_LENGTH),
        "place": category.order,
        "edited": not shipped,
    }


def _json(schema: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(schema).decode()
    except TypeError:  # half of a surrogate pair, or a number beyond 64 bits
        return json.dumps(schema, default=str)
