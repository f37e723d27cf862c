"""Tools after normalising, what the config overrides of them, and their categories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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
