"""Tools after normalising, what the config overrides of them, their categories, and profiles that choose among them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

JsonObject = Mapping[str, Any]


class Effect(StrEnum):
    """What a tool does to the world, as far as its annotations say; unknown counts as write."""

    READ = "read"
    WRITE = "write"
    DESTRUCTIVE = "destructive"


class ToolId(NamedTuple):
    """The pair (server, name) in the original spelling; a rename is a new tool."""

    server: str
    name: str

    def __str__(self) -> str:
        return f"{self.server}::{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpellings:
    """How agents spell a tool."""

    name: str = ""  # its server's, unless an override gives another
    handle: str
    listed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(ToolSpellings):
    """Something that can be done."""

    id: ToolId
    description: str
    input_schema: JsonObject
    definition: JsonObject  # the whole definition, ready for `tools/list` under its listed name
    title: str = ""
    output_schema: JsonObject | None = None
    effect: Effect = Effect.WRITE
    category: str = "misc"
    tags: tuple[str, ...] = ()
    example: str = ""  # what somebody may ask for who needs it, as a prompt
    source: str = "upstream"
    notes: tuple[str, ...] = ()  # what normalising had to change, for `doctor` and `list`
    users: frozenset[str] | None = None  # who may see it, and `*` for everybody; None where its source restricts nobody

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.id.name)

    @property
    def fixed(self) -> Collection[str]:
        """Parameters with values that no caller may name."""
        return ()

    def complete(self, arguments: JsonObject) -> JsonObject:
        """The arguments that its server gets for those of a caller."""
        return arguments

    @property
    def properties(self) -> Mapping[str, Any]:
        """The parameters by name; empty when the schema declares none."""
        found = self.input_schema.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the parameters that a call must have, in the schema's order."""
        found = self.input_schema.get("required")
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenAt:
    """The place of an override in a config file."""

    file: str = ""
    where: str = ""
    """The keys that lead to it, with a dot between."""
    lines: Mapping[str, int | None] = field(default_factory=dict)
    """The line of each of its keys, and of those of `defaults` and `hidden`; its own under the empty text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOverride:
    """What the config changes of one tool; what is empty or None stays as its server says."""

    name: str = ""
    title: str | None = None
    description: str | None = None
    category: str = ""
    tags: tuple[str, ...] | None = None
    effect: Effect | None = None
    defaults: JsonObject = field(default_factory=dict)
    """Values that are sent where a caller gives none."""
    hidden: JsonObject = field(default_factory=dict, repr=False)
    """Values that are always sent, of parameters that nobody sees; they may be secret."""
    result_tokens: int = 0
    timeout: float = 0.0
    """Seconds of one call without progress."""
    idempotent: bool = False
    """Whether two calls with the same arguments do no more than one."""
    enabled: bool = True
    written: WrittenAt = field(default=WrittenAt(), compare=False)
    mark: str = field(default="", compare=False)
    """Changes with what is written, but for hidden values."""

    @property
    def is_repeatable(self) -> bool:
        """Whether the operator says that a call may be made twice."""
        return self.idempotent or self.effect is Effect.READ

    @property
    def keys(self) -> tuple[str, ...]:
        """What is changed, as the config spells it; of hidden parameters the names."""
        plain = ("name", "title", "description", "category", "tags", "effect", "result_tokens", "timeout", "idempotent")
        found = [key for key in plain if getattr(self, key) not in (None, "", 0)]
        found += [f"defaults.{name}" for name in self.defaults] + [f"hidden.{name}" for name in self.hidden]
        return tuple(found if self.enabled else [*found, "enabled"])


@dataclass(frozen=True, slots=True, kw_only=True)
class OverriddenTool(Tool):
    """A tool that agents see otherwise than its server defines it."""

    override: ToolOverride  # what of it holds
    original: Tool

    @property
    def fixed(self) -> Collection[str]:
        """The hidden parameters."""
        return self.override.hidden.keys()

    def complete(self, arguments: JsonObject) -> JsonObject:
        """The arguments with the defaults of those that are missing, and with the hidden ones."""
        return {**self.override.defaults, **arguments, **self.override.hidden}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A definition that was refused, and why."""

    server: str
    name: str
    reason: str


LAST = 1_000  # the place of a category that was given none


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A shelf as people see it."""

    name: str
    display_name: str = ""
    description: str = ""
    order: int = LAST  # shelves are shown in this order, then by name

    @property
    def title(self) -> str:
        """What to call it: its display name, or its name with blanks."""
        return self.display_name or self.name.replace("_", " ").replace("-", " ").strip().capitalize() or self.name


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
