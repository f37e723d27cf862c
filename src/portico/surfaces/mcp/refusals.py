"""Refusals of the HTTP listener: JSON-RPC errors on the paths of MCP, the shape of REST's errors everywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mcp_types as types
import orjson
from starlette.responses import Response

ROOT = "/mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that is not answered: why, and what to change."""

    status: int
    code: str
    message: str
    details: Sequence[str] = ()
    retry_s: int = 0
    """After how many seconds the same request may be tried again; 0 says nothing."""

    def body(self, path: str) -> bytes:
        """The JSON that says so, in the shape of what is served at this path."""
        if is_mcp(path):
            said = "; ".join((self.message, *self.details))
            error = {"code": types.INVALID_REQUEST, "message": said, "data": {"code": self.code}}
            return orjson.dumps({"jsonrpc": "2.0", "id": None, "error": error})
        told = {"code": self.code, "message": self.message, "details": list(self.details), "next": ""}
        return orjson.dumps({"error": told})

    def response(self, path: str) -> Response:
        """The whole answer."""
        return Response(self.body(path), self.status, headers=self.headers, media_type="application/json")

    @property
    def headers(self) -> Mapping[str, str]:
        """What stands beside the body."""
        again = {"retry-after": str(self.retry_s)} if self.retry_s else {}
        return {"x-content-type-options": "nosniff", **again}


def is_mcp(path: str) -> bool:
    """Whether a path is one that MCP is spoken on."""
    return path == ROOT or path.startswith(f"{ROOT}/")
