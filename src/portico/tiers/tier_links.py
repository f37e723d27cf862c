"""Where the tiers are found: the paths of REST, and the URIs of resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from portico.domain.tool import Tool

ROOT = "/api/v1/tools"
HOT = f"{ROOT}/hot"
CATEGORIES = f"{ROOT}/categories"
SEARCH = f"{ROOT}/search"
CATEGORY = "category"  # stands before the name of a category, where a server's name stands before that of a tool
LONGEST = 300  # characters of a path that is told; a longer one is described
QUOTED_LENGTH = 100  # characters of a value that an answer repeats


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLinks:
    """Where the tiers are found, as one kind of caller asks for them."""

    kind: str  # tells answers with these paths from answers with others
    word: str  # what such a path is called
    hot: str
    categories: str
    category_root: str
    any_category: str
    tool_root: str
    any_tool: str
    taken: frozenset[str] = frozenset()
    """Words that mean something else where a server's name would stand: such a server goes by its identifier."""

    def ask(self, path: str, asked: Mapping[str, Any]) -> str:
        """A path with what is asked of it; where that is too long to be told, what a caller does not know yet."""
        given = {name: value for name, value in asked.items() if value is not None}
        query = urlencode({name: _as_text(value) for name, value in given.items()}, quote_via=quote)
        whole = f"{path}?{query}" if query else path
        if len(whole) <= LONGEST:
            return whole
        numbers = {name: value for name, value in given.items() if type(value) is int}
        return f"the same {self.word} with ?{urlencode(numbers)}" if numbers else f"the same {self.word}"

    def category(self, name: str, **asked: int | None) -> str:
        """The tools of a category."""
        return self.ask(f"{self.category_root}/{quote(name, safe='')}", asked)

    def tool(self, tool: Tool, **asked: int | None) -> str:
        """Everything about a tool."""
        server, name = tool.id.server, tool.name
        server = tool.handle.partition(".")[0] if server in self.taken else server
        return self.ask(f"{self.tool_root}/{quote(server, safe='')}/{quote(name, safe='')}", asked)


REST = TierLinks(
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
RESOURCES = TierLinks(
    kind="resources",
    word="URI",
    hot="catalog://hot",
    categories="catalog://categories",
    category_root="catalog://category",
    any_category="catalog://category/{name}",
    tool_root="catalog://tool",
    any_tool="catalog://tool/{server}/{tool}",
)


def search_path(wanted: Mapping[str, Any], **asked: int | None) -> str:
    """A search, which only REST has."""
    return REST.ask(SEARCH, {**wanted, **asked})


def echo(wanted: Mapping[str, Any]) -> str:
    """Filters as `category=files&tag=python`, in the order of their names; long values are cut."""
    shown = {name: _as_text(value) for name, value in sorted(wanted.items())}
    cut = {name: v if len(v) <= QUOTED_LENGTH else f"{v[: QUOTED_LENGTH - 1]}…" for name, v in shown.items()}
    return "&".join(f"{name}={value}" for name, value in cut.items())


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)
