"""Tools after normalising, the identifier rule for their names, and their categories."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any, NamedTuple, TypeVar

from .foreign_text import skeleton

K = TypeVar("K", str, tuple[str, str])

LUA_KEYWORDS = frozenset(
    "and break do else elseif end false for function goto if in local nil not or repeat return then true"
    " until while".split()
)
"""Reserved words of Lua 5.4: no handle part may be one, so that every handle is also a script expression."""

LUA_GLOBALS = frozenset(
    "_G _VERSION assert collectgarbage coroutine debug dofile error getmetatable io ipairs load loadfile math next os"
    " package pairs pcall print rawequal rawget rawlen rawset require select setmetatable string table tonumber"
    " tostring type utf8 warn xpcall args array await_all base64 json null servers".split()
)
"""Names that scripts already have; a server of that name would hide one of them."""

META_TOOLS = frozenset(
    "search_tools describe_tools call_tool read_result run_script search_tool execute_tool".split()
    + "capabilities tool_schema read_resource get_prompt".split()
    + "list_servers list_server_tools tool_details inspect_tool_response execute".split()
)
"""Identifiers of the tools that are the surfaces' own."""

RESERVED_SERVERS = LUA_GLOBALS | META_TOOLS | {"result", "_gateway", "category"}
"""What no server's identifier may be; `category` is a path segment of the REST surface."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_]")
_UNLISTABLE = re.compile(r"[^A-Za-z0-9_.-]")
LISTED_LIMIT = 128


def identifier(name: str) -> str:
    """Spell a name so that Lua, Python and every client accept it as one word."""
    safe = _UNSAFE.sub("_", name)
    if not safe:
        return "_unnamed"
    return f"_{safe}" if safe[0].isdigit() or safe in LUA_KEYWORDS else safe


def listable(name: str) -> str:
    """Spell a name within the letters that MCP allows in `tools/list`."""
    return _UNLISTABLE.sub("_", name) or "_unnamed"


def server_identifier(name: str) -> str:
    """Spell a server's name; reserved words are moved out of the way with a leading underscore."""
    safe = identifier(name)
    return f"_{safe}" if safe in RESERVED_SERVERS else safe


SEPARATORS = ("::", "__", "/", ".")
"""What may stand between a server and a tool."""


def splits(text: str, longest: int) -> Iterator[tuple[str, str]]:
    """Every reading of a text as a server, a separator and a name; `longest` is how long a server's name can be."""
    for separator in SEPARATORS:
        start = text.find(separator, 1)
        while 0 < start <= longest:
            yield text[:start], text[start + len(separator) :]
            start = text.find(separator, start + 1)


class Owners:
    """The names that belong to servers and to us: no tool of another server is meant by them, or by a look-alike."""

    __slots__ = ("_longest", "_ordered", "_servers")

    def __init__(self, identifiers: Mapping[str, str]) -> None:
        self._servers: dict[str, set[str]] = {}
        for name, own in identifiers.items():
            for spelling in {skeleton(name), skeleton(own)}:
                self._servers.setdefault(spelling, set()).add(name)
        self._longest = max(map(len, self._servers), default=0)
        self._ordered = sorted(self._servers)

    def begins_another(self, spelling: str, own: str) -> bool:
        """Whether the name of another server begins with a spelling."""
        text = skeleton(spelling)
        place = bisect_right(self._ordered, text)
        longer = takewhile(lambda name: name.startswith(text), islice(self._ordered, place, None))
        return any(own not in self._servers[name] for name in longer)

    def is_reserved(self, spelling: str, known: Container[str]) -> bool:
        """Whether a spelling is a meta-tool's name, or begins with a server of which nothing is known."""
        text = skeleton(spelling)
        return _is_meta(text) or any(name not in known for name, _ in self._named(text))

    def speaks_for_another(self, spelling: str, own: str) -> bool:
        """Whether a name is or begins as another server's names do: `github__review` of a server that is not github."""
        text = skeleton(spelling)
        if _is_meta(text) or own not in self._servers.get(text, {own}):
            return True
        longest = max(
            (begin for begin, _ in splits(text, self._longest) if begin in self._servers), key=len, default=""
        )
        return bool(longest) and own not in self._servers[longest]

    def joined(self, spelling: str, own: str) -> Iterator[tuple[str, str]]:
        """The readings of a name as another server and a tool of it with one underscore between."""
        text = skeleton(spelling)
        start = text.find("_", 1)
        while 0 < start <= self._longest:
            yield from ((name, text[start + 1 :]) for name in self._servers.get(text[:start], ()) if name != own)
            start = text.find("_", start + 1)

    def _named(self, text: str) -> Iterator[tuple[str, str]]:
        for begin, rest in splits(text, self._longest):
            yield from ((name, rest) for name in self._servers.get(begin, ()))


def _is_meta(folded: str) -> bool:
    return identifier(folded) in META_TOOLS


def distinct(spelled: Iterable[tuple[K, str]], taken: Container[str] = (), wanted: Container[str] = ()) -> dict[K, str]:
    """Give each (original, wanted) pair a spelling of its own, in sorted order of the originals.

    The first original keeps what it wanted, unless it is taken; the next ones get `_2`, `_3`. A suffix never runs into
    a spelling that somebody else wanted, here or in `wanted`, so the outcome does not depend on the order of arrival.
    """
    pairs = sorted(spelled)
    here = {spelling for _, spelling in pairs}
    if not taken and len(here) == len(pairs):
        return dict(pairs)
    used: set[str] = set()
    chosen: dict[K, str] = {}
    following: dict[str, int] = {}  # where the count of a spelling stands, so that many collisions stay cheap
    for original, spelling in pairs:
        candidate, number = spelling, following.get(spelling, 2)
        while (
            candidate in used
            or candidate in taken
            or (candidate != spelling and (candidate in here or candidate in wanted))
        ):
            candidate, number = f"{spelling}_{number}", number + 1
        used.add(candidate)
        following[spelling] = number
        chosen[original] = candidate
    return chosen


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
class Tool:
    """Something that can be done."""

    id: ToolId
    handle: str
    listed: str
    description: str
    input_schema: JsonObject
    definition: JsonObject
    """The whole definition, ready for `tools/list` under its listed name."""
    title: str = ""
    output_schema: JsonObject | None = None
    effect: Effect = Effect.WRITE
    category: str = "misc"
    tags: tuple[str, ...] = ()
    example: str = ""
    """What somebody may ask for who needs it, as a prompt."""
    source: str = "upstream"
    notes: tuple[str, ...] = ()
    """What normalising had to change, for `doctor` and `list`."""
    users: frozenset[str] | None = None
    """Who may see it, and `*` for everybody; None where its source restricts nobody."""

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
class Rejected:
    """A definition that was refused, and why."""

    server: str
    name: str
    reason: str


NAME_LENGTH = 64
NAMING = f"Write up to {NAME_LENGTH} letters, digits and underscores, such as code_analysis."
"""How to name a category, for people."""
LAST = 1_000
"""The place of a category that was given none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A shelf as people see it."""

    name: str
    display_name: str = ""
    description: str = ""
    order: int = LAST
    """Shelves are shown in this order, then by name."""

    @property
    def title(self) -> str:
        """What to call it: its display name, or its name with blanks."""
        return self.display_name or self.name.replace("_", " ").replace("-", " ").strip().capitalize() or self.name


_WORDS = {
    "base": ("Base", "Tables, columns, previews and queries of a database"),
    "dba": ("Database Administration", "Sessions, space, users and versions of a database"),
    "qlty": ("Data Quality", "Missing values, distinct values and statistics of columns"),
    "sec": ("Security", "Users, roles and rights in a database"),
    "sql_opt": ("SQL Optimisation", "Expensive queries and how to make them cheaper"),
    "plot": ("Charts", "Line, pie, radar and polar charts of columns"),
    "rag": ("Retrieval", "Questions answered from documents by nearness of meaning"),
    "fs": ("Feature Store", "Features, entities and data sets of a feature store"),
    "tdvs": ("Vector Store", "Vector stores: create, update, ask"),
    "chat": ("Chat Completion", "Answers of a language model to rows of a table"),
    "bar": ("Backup and Restore", "Backup jobs, media and restores"),
}
"""What is known of categories that tools bring with them, by the prefixes of their names."""
BROUGHT = 5
"""The place of those: before the categories that are there without any tools."""


def unwritten(name: str) -> Category:
    """A category of which nobody has written anything down."""
    if name not in _WORDS:
        return Category(name=name)
    title, says = _WORDS[name]
    return Category(name=name, display_name=title, description=says, order=BROUGHT)


def is_category_name(name: str) -> bool:
    """Whether a category can be called this: something that prints, on one line, and not too long."""
    return bool(name.strip()) and name == name.strip() and name.isprintable() and len(name) <= NAME_LENGTH
