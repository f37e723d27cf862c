"""Profiles: which code tools, prompts, resources and servers one run of Portico offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .items import Item, Items
from .patterns import Pattern

CODE = frozenset({"local", "yaml"})
"""The sources whose tools are code: only these are filtered by a profile's `tool`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile says; a list that is None was not written and lets everything through, an empty one nothing."""

    name: str = ""
    tool: tuple[Pattern, ...] | None = None
    prompt: tuple[Pattern, ...] | None = None
    resource: tuple[Pattern, ...] | None = None
    servers: tuple[str, ...] | None = None
    """Names or globs of the servers that are used."""
    registry: str = ""
    """The schema of a database that holds tools."""
    surface: str = ""
    pins: tuple[str, ...] | None = None

    @property
    def wants_packaged(self) -> bool:
        """Whether it chooses among code tools by name, those that come with Portico included."""
        return bool(self.tool)

    def permits_server(self, name: str) -> bool:
        """Whether a server is used at all."""
        return self.servers is None or any(fnmatchcase(name, glob) for glob in self.servers)

    def permits_tool(self, name: str, source: str) -> bool:
        """Whether a tool of a source is offered, by its original name; only code is asked for its name."""
        return source not in CODE or _fits(self.tool, name)

    def permits_prompt(self, name: str) -> bool:
        """Whether a prompt is offered, by its original name."""
        return _fits(self.prompt, name)

    def permits_resource(self, uri: str) -> bool:
        """Whether a resource or template is offered, by its original URI."""
        return _fits(self.resource, uri)

    def offered(self, items: Items) -> Items:
        """Those prompts, resources and templates of a snapshot that are offered; the same object if all are."""
        if self.prompt is None and self.resource is None and self.servers is None:
            return items
        return Items(
            prompts=self._used(items.prompts, self.permits_prompt),
            resources=self._used(items.resources, self.permits_resource),
            templates=self._used(items.templates, self.permits_resource),
            documents=self._used(items.documents, lambda uri: True),
            identifiers=items.identifiers,
        )

    def _used(self, items: Iterable[Item], permits: Callable[[str], bool]) -> tuple[Item, ...]:
        return tuple(item for item in items if self.permits_server(item.server) and permits(item.original))


OPEN = Profile()
"""What is in force where no profile is chosen: everything is offered."""


def _fits(patterns: tuple[Pattern, ...] | None, name: str) -> bool:
    return patterns is None or any(pattern.fits(name) for pattern in patterns)
