"""The one category rule: explicit config, a registry's tag, longest name prefix, first part of a local name, server
default, `misc`.

A server's default is what the config gives it, or the shelf that an upstream server's name speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from portico.domain.category import is_category_name

from .shelves import FALLBACK, shelf_of

PREFIXES: Mapping[str, str] = {
    prefix: prefix.rstrip("_") for prefix in "base_ dba_ fs_ qlty_ sec_ tdvs_ plot_ rag_ sql_opt_ chat_ bar_".split()
}
"""Name prefixes that mean a category wherever local and database tools use them."""


_NONE: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRule:
    """Says on which shelf a tool stands."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    """From the config: a server, `server.tool` or a tool-name prefix ending in `*`, to a category."""
    servers: Mapping[str, str] = field(default_factory=dict)
    """Each server's default."""
    prefixes: Mapping[str, str] = field(default_factory=lambda: PREFIXES)

    def category(self, server: str, name: str, source: str) -> str:
        """The one category of a tool."""
        return self.categories(server, (name,), source)[name]

    def categories(
        self,
        server: str,
        names: Iterable[str],
        source: str,
        title: str = "",
        tags: Mapping[str, Sequence[str]] = _NONE,
    ) -> dict[str, str]:
        """The one category of each tool of a server; `title` is what the server calls itself.

        `tags` are those of tools in a registry, of which the first is a category.
        """
        wide = {key[:-1]: category for key, category in self.explicit.items() if key.endswith("*")}
        prefixes = self.prefixes if source != "upstream" else {}
        spoken = shelf_of(server, title) if source == "upstream" else ""
        default = self.servers.get(server) or spoken or FALLBACK
        return {
            name: self.explicit.get(f"{server}.{name}")
            or _longest(name, wide)
            or self.explicit.get(server)
            or _first_tag(tags.get(name, ()))
            or _longest(name, prefixes)
            or (_first_part(name) if source == "local" else "")
            or default
            for name in names
        }


def _first_tag(tags: Sequence[str]) -> str:
    return next((tag.lower() for tag in tags if is_category_name(tag)), "")


def _first_part(name: str) -> str:
    """The first word of a name that has several: what local tools with names such as `sales_report` belong to."""
    first, mark, _ = name.partition("_")
    return first.lower() if mark and first.isalnum() else ""


def _longest(name: str, prefixes: Mapping[str, str]) -> str:
    if not prefixes:
        return ""
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(fitting, key=len)] if fitting else ""
