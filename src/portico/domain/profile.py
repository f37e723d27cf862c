"""Profiles: which code tools, prompts, resources and servers one run of Portico offers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

CODE = frozenset({"local", "yaml"})  # the sources whose tools are code: only these are filtered by a profile's `tool`


@dataclass(frozen=True, slots=True)
class Pattern:
    """One expression, tried from the beginning of a name as `re.match` does."""

    text: str
    longest: int  # names that are longer do not fit: they could take too many steps
    _compiled: re.Pattern[str] = field(repr=False)

    def fits(self, name: str) -> bool:
        """Whether a name begins with what the pattern describes."""
        return len(name) <= self.longest and self._compiled.match(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile says; a list that is None was not written and lets everything through, an empty one nothing."""

    name: str = ""
    tool: tuple[Pattern, ...] | None = None
    prompt: tuple[Pattern, ...] | None = None
    resource: tuple[Pattern, ...] | None = None
    servers: tuple[str, ...] | None = None  # names or globs of the servers that are used
    registry: str = ""  # the schema of a database that holds tools
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


OPEN = Profile()  # what is in force where no profile is chosen: everything is offered


def _fits(patterns: tuple[Pattern, ...] | None, name: str) -> bool:
    return patterns is None or any(pattern.fits(name) for pattern in patterns)
