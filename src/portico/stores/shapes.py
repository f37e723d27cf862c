"""What the results of tools look like, as it was learned."""

from __future__ import annotations

import json
from collections.abc import Mapping

from portico.domain.shape import Learned
from portico.domain.tool import ToolId

from .database import Database
from .texts import key

SHAPE_LENGTH = 100_000
"""Letters of one shape; a larger one is not worth keeping."""

_SAVE = """
INSERT INTO shapes (server, tool, fingerprint, shape, results) VALUES (:server, :tool, :fingerprint, :shape, :results)
ON CONFLICT (server, tool) DO UPDATE SET
    fingerprint = excluded.fingerprint, shape = excluded.shape, results = excluded.results
"""


class DatabaseShapes:
    """The `ShapeStore` in a database."""

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
                "shape": _text(found),
                "results": found.results,
            }
            for id, found in sorted(learned.items())
        ]
        rows = [row for row in rows if len(str(row["shape"])) <= SHAPE_LENGTH]
        if rows:
            self._database.run(_SAVE, rows)


def _text(found: Learned) -> str:
    # Plain letters only: a name may hold what a database does not take.
    return json.dumps(found.shape)
