"""What a caller is told to ask next: paths of REST, or URIs of resources where there is no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from portico.domain.tool import Tool

ROOT = "/api/v1/tools"
LONGEST = 300
"""Characters of a path that is told; a longer one is described."""
QUOTED_LENGTH = 100
"""Characters of a value that an answer repeats."""

HOT = f"{ROOT}/hot"
CATEGORIES = f"{ROOT}/categories"
SEARCH = f"{ROOT}/search"
CATEGORY = "category"
"""Stands before the name of a category, where a server's name stands before that of a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where the tiers are found, as one kind of caller asks for them."""

    kind: str
    """Tells answers with these paths from answers with others."""
    word: str
    """What such a path is called."""
    hot: str
    categories: str
    category_root: str
    any_category: str
    tool_root: str
    any_tool: str
    taken: frozenset[str] = frozenset()
    """Words that mean something else where a server's name would stand: such a server goes by its identifier."""

    def asking(self, path: str, asked: Mapping[str, Any]) -> str:
        """A path with what is asked of it; where that is too long to be told, what a caller does not know yet."""
        return _asking(path, asked, self.word)

    def category(self, name: str, **asked: int | None) -> str:
        """The tools of a category."""
        return self.asking(f"{self.category_root}/{quote(name, safe='')}", asked)

    def tool(self, tool: Tool, **asked: int | None) -> str:
        """Everything about a tool."""
        server, name = tool.id
        server = tool.handle.partition(".")[0] if server in self.taken else server
        return self.asking(f"{self.tool_root}/{quote(server, safe='')}/{quote(name, safe='')}", asked)


REST = Paths(
    kind="rest",
    word="path",
    hot=HOT,
    categories=CATEGORIES,
    category_root=f"{ROOT}/{CATEGORY}",
    any_category=f"{ROOT}/{CATEGORY}/{{category}}",
    tool_root=ROOT,
    any_tool=f"{ROOT}/{{server}}/{{tool}}",
    taken=frozenset({CATEGORY}),
)
RESOURCES = Paths(
    kind="resources",
    word="URI",
    hot="catalog://hot",
    categories="catalog://categories",
    category_root="catalog://category",
    any_category="catalog://category/{name}",
    tool_root="catalog://tool",
    any_tool="catalog://tool/{server}/{tool}",
)


def tool_path(tool: Tool) -> str:
    """Everything about a tool, over REST."""
    return REST.tool(tool)


def search_path(wanted: Mapping[str, Any], **asked: int | None) -> str:
    """A search, which only REST has."""
    return REST.asking(SEARCH, {**wanted, **asked})


def _asking(path: str, asked: Mapping[str, Any], word: str) -> str:
    query = urlencode({name: spelled(value) for name, value in asked.items() if value is not None}, quote_via=quote)
    whole = f"{path}?{query}" if query else path
    if len(whole) <= LONGEST:
        return whole
    numbers = {name: value for name, value in asked.items() if isinstance(value, int) and not isinstance(value, bool)}
    return f"the same {word} with ?{urlencode(numbers)}" if numbers else f"the same {word}"


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
