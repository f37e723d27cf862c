"""A view as a response: its bytes as they are, with a tag that spares a caller what it has already."""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import Response

KEEPING = "private, no-cache"
"""A caller may keep an answer, and asks whether it is still the same before it uses it again."""


def answer(request: Request, body: bytes) -> Response:
    """The body, or 304 when the caller has it."""
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": KEEPING}
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _has(known: str, tag: str) -> bool:
    """Whether one of the tags that a caller has is this one; `*` is any."""
    tags = [part.strip().removeprefix("W/") for part in known.split(",")] if known else []
    return tag in tags or "*" in tags
