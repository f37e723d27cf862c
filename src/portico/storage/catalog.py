"""Definitions of servers, tools with their tiers, and categories, as stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import blake2b
from time import time
from typing import Any

import orjson

from portico.domain.server import Offering, Packaging
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage import Standing, Tier
from portico.errors import StoreError

from .database import Database, Row, Work, clean, key, one_of

VECTORS_KEPT = 20_000
USE_SECONDS = 86_400.0
"""How exactly the last use of a vector is known: a start that only reads writes nothing for a day."""
REASON_LENGTH = 4_000

_SAVE = """
INSERT INTO offerings (server, fingerprint, saved_at, offering) VALUES (:server, :fingerprint, :at, :offering)
ON CONFLICT (server) DO UPDATE SET
    fingerprint = excluded.fingerprint, saved_at = excluded.saved_at, offering = excluded.offering
"""
_SAVE_FAILURE = """
INSERT INTO failures (server, fingerprint, failed_at, reason) VALUES (:server, :fingerprint, :at, :reason)
ON CONFLICT (server) DO UPDATE SET
    fingerprint = excluded.fingerprint, failed_at = excluded.failed_at, reason = excluded.reason
"""
_FORGET_OFFERING = "DELETE FROM offerings WHERE server = :server"
_FORGET_FAILURE = "DELETE FROM failures WHERE server = :server"
_SAVE_VECTOR = """
INSERT INTO vectors (model, hash, used_at, vector) VALUES (:model, :hash, :at, :vector)
ON CONFLICT (model, hash) DO UPDATE SET used_at = excluded.used_at, vector = excluded.vector
"""
_DROP_VECTORS = """
DELETE FROM vectors WHERE (model, hash) IN
    (SELECT model, hash FROM vectors ORDER BY used_at, model, hash LIMIT :surplus)
"""


class DatabaseStore:
    """The `Store` in a database."""

    def __init__(self, database: Database, *, vectors_kept: int = VECTORS_KEPT) -> None:
        self.database = database
        self._vectors_kept = vectors_kept

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        """The offerings whose fingerprint is still the same; a row that cannot be read is as good as missing."""
        names = {key(name): name for name in servers}
        found = {}
        for server, fingerprint, blob in self.database.rows("SELECT server, fingerprint, offering FROM offerings"):
            name = names.get(server)
            if name is None or key(servers[name]) != fingerprint:
                continue
            if (offering := _decoded(blob)) is not None:
                found[name] = offering
        return found

    def save(self, offering: Offering, fingerprint: str) -> None:
        """Remember one server's offering, whole, in one transaction.

        Raises:
            StoreError: the database cannot be written, or the offering is not JSON.
        """
        try:
            blob = orjson.dumps(asdict(offering))
        except (TypeError, RecursionError) as error:
            raise StoreError(f"the offering of {offering.server!r} cannot be written as JSON: {error}") from error
        server = key(offering.server)
        row = {"server": server, "fingerprint": key(fingerprint), "at": time(), "offering": blob}
        with self.database.transaction() as work:
            work.run(_SAVE, row)
            work.run(_FORGET_FAILURE, {"server": server})

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked."""
        row = {"server": key(server), "fingerprint": key(fingerprint), "at": time()}
        self.database.run(_SAVE_FAILURE, {**row, "reason": clean(reason, REASON_LENGTH)})

    def failures(self, servers: Mapping[str, str], *, within: float) -> dict[str, str]:
        """Why servers could not be asked, as long as that is recent."""
        names = {key(name): name for name in servers}
        rows = self.database.rows(
            "SELECT server, fingerprint, reason FROM failures WHERE failed_at >= :since", {"since": time() - within}
        )
        named = ((names.get(server), mark, reason) for server, mark, reason in rows)
        return {name: reason for name, mark, reason in named if name is not None and key(servers[name]) == mark}

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is remembered of these servers."""
        gone = [{"server": key(server)} for server in servers]
        if gone:
            with self.database.transaction() as work:
                work.run(_FORGET_OFFERING, gone)
                work.run(_FORGET_FAILURE, gone)

    def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The vectors that are remembered under these hashes."""
        names = {key(hash): hash for hash in hashes}
        binds = {"model": key(model), "wanted": orjson.dumps(list(names)).decode()}
        wanted, now = f"model = :model AND hash {one_of(self.database, 'wanted')}", time()
        found = self.database.rows(f"SELECT hash, vector, used_at FROM vectors WHERE {wanted}", binds)  # noqa: S608 - words of ours
        if any(used_at < now - USE_SECONDS for _, _, used_at in found):
            self.database.run(f"UPDATE vectors SET used_at = :now WHERE {wanted}", {**binds, "now": now})  # noqa: S608
        return {names[hash]: vector for hash, vector, _ in found}

    def save_vectors(self, model: str, rows: Mapping[str, bytes]) -> None:
        """Remember vectors in one transaction; those not used for longest make room."""
        model, now = key(model), time()
        new = [{"model": model, "hash": key(hash), "at": now, "vector": rows[hash]} for hash in sorted(rows)]
        if not new:
            return
        with self.database.transaction() as work:
            work.run(_SAVE_VECTOR, new)
            ((kept,),) = work.rows("SELECT count(*) FROM vectors")
            if kept > self._vectors_kept:
                work.run(_DROP_VECTORS, {"surplus": kept - self._vectors_kept})

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def _decoded(blob: bytes) -> Offering | None:
    try:
        fields: dict[str, Any] = orjson.loads(blob)
        for name in ("tools", "prompts", "resources", "templates"):
            fields[name] = tuple(fields.get(name, ()))
        users = fields.get("users")
        fields["users"] = None if users is None else {tool: tuple(names) for tool, names in users.items()}
        return Offering(**fields)
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return None


DESCRIPTION_LENGTH = 20_000

_SERVER = """
INSERT INTO mcp_servers (server_name, display_name, docker_image, network_mode, is_active)
VALUES (:name, :title, :image, :network, TRUE)
ON CONFLICT (server_name) DO UPDATE SET display_name = excluded.display_name, docker_image = excluded.docker_image,
    network_mode = excluded.network_mode, is_active = TRUE
"""
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

_Key = tuple[str, str]


class DatabaseTiers:
    """The `TierRecords` in a database; only what has changed is written."""

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
        tools = dict(_tool_rows(snapshot, standings or {}))
        servers = {row["name"]: row for row in _server_rows(snapshot, packaging)}
        with self._database.transaction() as work:
            kept_servers = {row[0]: row for row in work.rows(_SERVERS)}
            kept = {(server, name): rest for server, name, *rest in work.rows(_TOOLS)}
            _run(
                work, _SERVER, [row for name, row in sorted(servers.items()) if _is_other(row, kept_servers.get(name))]
            )
            _run(work, self._tool, [row for at, row in sorted(tools.items()) if _is_new(row, kept.get(at))])
        # A transaction of its own: within one, everybody must take rows in one order, or two might wait for each other.
        with self._database.transaction() as work:
            gone = [name for name, row in kept_servers.items() if name not in servers and row[-1]]
            _run(work, _SERVER_GONE, [{"name": name} for name in sorted(gone)])
            lost = [(at, row[0]) for at, row in kept.items() if at not in tools and row[2]]
            _run(work, _TOOL_GONE, [{"id": id} for _, id in sorted(lost)])

    def categories(self) -> dict[str, Category]:
        """The categories that an operator wrote down, by name."""
        rows = self._database.rows(_CATEGORIES, {"edited": True})
        return {
            name: Category(name=name, display_name=title, description=description, order=place)
            for name, title, description, place in sorted(rows, key=lambda row: (row[3], row[0]))
        }

    def keep_categories(self, categories: Iterable[Category], *, shipped: bool = False) -> None:
        """Write categories down; shipped ones stand beside what an operator wrote, in place of those shipped before."""
        rows = {key(category.name): _category_row(category, shipped) for category in categories}
        if shipped:
            self._keep_shipped(rows)
        elif rows:
            self._database.run(_CATEGORY, [rows[name] for name in sorted(rows)])

    def drop_category(self, name: str) -> bool:
        """Forget what an operator wrote of a category."""
        return bool(self._database.run(_DROP_CATEGORY, {"name": key(name), "edited": True}))

    def _keep_shipped(self, rows: Mapping[str, dict[str, Any]]) -> None:
        """Write what has changed; a start with nothing new writes nothing."""
        kept = {row[0]: row for row in self._database.rows(_CATEGORIES, {"edited": False})}
        edited = {row[0] for row in self._database.rows(_CATEGORIES, {"edited": True})}
        new = [row for name, row in sorted(rows.items()) if name not in edited and kept.get(name) != _words(row)]
        gone = [{"name": name, "edited": False} for name in sorted(kept.keys() - rows.keys())]
        if new or gone:
            with self._database.transaction() as work:
                _run(work, _CATEGORY, new)
                _run(work, _DROP_CATEGORY, gone)


def _server_rows(snapshot: CatalogSnapshot, packaging: Mapping[str, Packaging]) -> Iterator[dict[str, Any]]:
    for name, server in snapshot.servers.items():
        packed = packaging.get(name, Packaging())
        yield {
            "name": key(name),
            "title": clean(server.title or name),
            "image": clean(packed.docker_image),
            "network": clean(packed.network_mode),
        }


def _tool_rows(
    snapshot: CatalogSnapshot, standings: Mapping[ToolId, Standing]
) -> Iterator[tuple[_Key, dict[str, Any]]]:
    for id, tool in snapshot.tools.items():
        row, standing = _tool_row(tool), standings.get(id)
        row["tier"] = str(standing.tier if standing else Tier.COLD)
        row["score"] = standing.score if standing else 0.0
        row["scored"] = standing is not None
        yield (row["server"], row["name"]), row


def _tool_row(tool: Tool) -> dict[str, Any]:
    row = {
        "server": key(tool.id.server),
        "name": key(tool.id.name),
        "title": clean(tool.title or tool.id.name),
        "description": clean(tool.description, DESCRIPTION_LENGTH),
        "schema": _json(tool.input_schema),
        "category": key(tool.category),
    }
    return {**row, "mark": blake2b("\0".join(row.values()).encode(), digest_size=12).hexdigest()}


def _is_other(server: Mapping[str, Any], kept: Row | None) -> bool:
    """Whether a server is not written down as it is now."""
    return kept != (*server.values(), True)


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


def _words(category: Mapping[str, Any]) -> Row:
    return (category["name"], category["title"], category["description"], category["place"])


def _run(work: Work, sql: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        work.run(sql, rows)


def _json(schema: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(schema).decode()
    except TypeError:  # half of a surrogate pair, or a number beyond 64 bits
        return json.dumps(schema, default=str)
