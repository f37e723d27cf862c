"""Tool definitions of a hundred generated servers, always the same ones, with the token cost that seed 001 assumes."""

from __future__ import annotations

from functools import cache
from typing import Any

from tests.catalogue import generate

SERVERS = 100
TOOLS = 760
TOKENS = 118_000
LOWEST, HIGHEST = 95_000, 140_000
"""What all definitions together may cost, as JSON."""

Definitions = dict[str, list[dict[str, Any]]]


@cache
def hundred_servers() -> Definitions:
    """Server name -> tool definitions, as `tools/list` would give them."""
    return generate(servers=SERVERS, tools=TOOLS, seed=1, tokens=TOKENS)
