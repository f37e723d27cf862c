"""What is stored of servers between starts: definitions, failures, vectors of texts, learned schemas of results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from time import time
from typing import Any

import orjson

from portico.domain.server import Asked, Offering
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Learned
from portico.errors import StoreError

from .database_interface import Database, clean, key, one_of, upsert

VECTORS_KEPT = 20_000
USE_SECONDS = 86_400.0
"""How exactly the last use of a vector is known: a start that only reads writes nothing for a day."""
REASON_LENGTH = 4_000

_SAVE = upsert("offerings", "server", replace="fingerprint saved_at offering")
_SAVE_FAILURE = upsert("failures", "server", replace="fingerprint failed_at reason")
_SAVE_VECTOR = upsert("vectors", "model hash", replace="used_at vector")
_SAVE_SHAPE = upsert("shapes", "server tool", replace="fingerprint shape results")
_FORGET_OFFERING = "DELETE FROM offerings WHERE server = :server"
_FORGET_FAILURE = "DELETE FROM failures WHERE server = :server"
_DROP_VECTORS = """
DELETE FROM vectors WHERE (model, hash) IN
    (SELECT model, hash FROM vectors ORDER BY used_at, model, hash LIMIT :surplus)
"""


class DatabaseDefinitions:
    """Offerings, failures and vectors in a database."""

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
        row = {"server": server, "fingerprint": key(fingerprint), "saved_at": time(), "offering": blob}
        with self.database.transaction() as work:
            work.run(_SAVE, row)
            work.run(_FORGET_FAILURE, {"server": server})

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked."""
        row = {"server": key(server), "fingerprint": key(fingerprint), "failed_at": time()}
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
        new = [{"model": model, "hash": key(hash), "used_at": now, "vector": rows[hash]} for hash in sorted(rows)]
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
        fields["asked"] = Asked(**fields.get("asked", {}))
        return Offering(**fields)
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return None


SHAPE_LENGTH = 100_000
"""Letters of one shape; a larger one is not worth keeping."""


class LearnedSchemas:
    """Shapes of results that were learned, each under the fingerprint of its tool's definition."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def shapes(self) -> dict[ToolId, Learned]:
        """All that is known."""
        rows = self._database.rows("SELECT server, tool, fingerprint, shape, results FROM shapes")
        return {
            ToolId(server, tool): Learned(fingerprint=mark, shape=json.loads(text), results=results)
            for server, tool, mark, text, results in rows
        }

    def save_shapes(self, learned: Mapping[ToolId, Learned]) -> None:
        """Write shapes down in the place of older ones."""
        rows = [
            {
                "server": key(id.server),
                "tool": key(id.name),
                "fingerprint": found.fingerprint,
                "shape": json.dumps(found.shape),  # plain letters: a name may hold what a database does not take
                "results": found.results,
            }
            for id, found in sorted(learned.items())
        ]
        rows = [row for row in rows if len(str(row["shape"])) <= SHAPE_LENGTH]
        if rows:
            self._database.run(_SAVE_SHAPE, rows)
