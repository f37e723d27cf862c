"""The parameters of a tool that would make its results smaller."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from portico.domain.tool import Tool

SHOWN = 6
NAME_LENGTH = 40
"""Letters of a name that is worth its tokens."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NARROWING = frozenset(
    "limit offset page pages cursor filter filters field fields query since until after before count max top first last"
    " from to start end select columns properties where depth head tail size range date search skip take lines only"
    " include exclude pattern type state status labels sort".split()
)


def narrowing(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """Parameters that a call has not used yet, and whose names say that they narrow."""
    unused = (name for name in tool.properties if name not in arguments and len(name) <= NAME_LENGTH)
    return [name for name in unused if not _NARROWING.isdisjoint(map(str.lower, _WORD.findall(name)))][:SHOWN]
