"""The paths of the tiers: what a caller is told to ask next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

ROOT = "/api/v1/tools"
LONGEST = 300
"""Characters of a path that is told; a longer one is described."""
QUOTED_LENGTH = 100
"""Characters of a value that an answer repeats."""

HOT = f"{ROOT}/hot"
CATEGORIES = f"{ROOT}/categories"
ANY_CATEGORY = f"{ROOT}/category/{{category}}"
ANY_TOOL = f"{ROOT}/{{server}}/{{tool}}"
SEARCH = f"{ROOT}/search"


def category_path(name: str, **asked: int | None) -> str:
    """The tools of a category."""
    return asking(f"{ROOT}/category/{quote(name, safe='')}", asked)


def tool_path(server: str, tool: str, **asked: int | None) -> str:
    """Everything about a tool."""
    return asking(f"{ROOT}/{quote(server, safe='')}/{quote(tool, safe='')}", asked)


def search_path(wanted: Mapping[str, Any], **asked: int | None) -> str:
    """A search."""
    return asking(SEARCH, {**wanted, **asked})


def asking(path: str, asked: Mapping[str, Any]) -> str:
    """A path with what is asked of it; where that is too long to be told, the part that a caller does not know yet."""
    query = urlencode({name: spelled(value) for name, value in asked.items() if value is not None}, quote_via=quote)
    whole = f"{path}?{query}" if query else path
    if len(whole) <= LONGEST:
        return whole
    numbers = {name: value for name, value in asked.items() if isinstance(value, int) and not isinstance(value, bool)}
    return f"the same path with ?{urlencode(numbers)}" if numbers else "the same path"


def echo(wanted: Mapping[str, Any]) -> str:
    """What was asked for, as `category=files&tag=python`, in the order of the names; long values are cut."""
    shown = {name: spelled(value) for name, value in sorted(wanted.items())}
    return "&".join(f"{name}={_cut(value)}" for name, value in shown.items())


def spelled(value: object) -> str:
    """A value as it stands in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cut(value: str) -> str:
    return value if len(value) <= QUOTED_LENGTH else f"{value[: QUOTED_LENGTH - 1]}…"
