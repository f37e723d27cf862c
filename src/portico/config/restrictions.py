"""The keys that restrict what is served; nothing starts with one of them written and not in force.

This is the only place that knows which keys these are. Whatever is wrong at the path of one of them, or under a name
that was probably meant to be one, is a `RestrictionError`, and the config as a whole is then refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from portico.config.documents.tree import TreePath
from portico.errors import ConfigError, RestrictionError

TOP = ("hooks", "profiles")
"""Top-level keys: guards, and what a profile leaves."""
SWITCHES = {"scripts": ("enabled", "require_hardening")}
"""Keys of a top-level table that switch something off."""
SERVER = ("tools",)
"""Keys of a server entry: its filter."""
WORDS = frozenset(
    "allow allowed allowlist deny denied denylist disallow disallowed block blocked blocklist blacklist whitelist"
    " exclude excluded include included forbid forbidden hide hidden permit permitted permissions policy policies"
    " filter filters guard guards restrict restrictions only except profile hook"
    " allowtools denytools blockedtools allowedtools excludetools includetools enabledtools disabledtools".split()
)
"""Names that are no keys of ours, and that somebody writes who wants to restrict something."""
_SERVER_TABLES = ("servers", "mcpServers", "mcp_servers", "context_servers", "extensions", "mcp")
_NEAR = 0.75


def restricts(path: TreePath) -> bool:
    """Whether what stands at a path of a config is a restriction, or was probably meant as one."""
    if not path or not isinstance(path[0], str):
        return False
    top = path[0]
    if top in TOP or (top in SWITCHES and _switches(path, SWITCHES[top])):
        return True
    if top == "databases":
        return False  # one with anything wrong in it is not used at all
    field = _server_field(path)
    if field is not None:
        return field in SERVER or is_meant(field, SERVER)
    return len(path) == 1 and is_meant(top, (*TOP, *SWITCHES))


def is_meant(key: str, restrictions: Iterable[str]) -> bool:
    """Whether an unknown key was probably meant to restrict something."""
    plain = re.sub(r"[^a-z]", "", key.casefold())
    return plain in WORDS or bool(difflib.get_close_matches(plain, [*restrictions], n=1, cutoff=_NEAR))


def refuse_unrestricted(problems: Iterable[ConfigError]) -> None:
    """Do nothing unless one of the problems is with a restriction.

    Raises:
        RestrictionError: the first that is.
    """
    for problem in problems:
        if isinstance(problem, RestrictionError):
            raise problem


def _switches(path: TreePath, switches: Iterable[str]) -> bool:
    """Whether a path is the table itself, one of its switches, or a key that was probably meant to be one."""
    return len(path) == 1 or (isinstance(path[1], str) and (path[1] in switches or is_meant(path[1], switches)))


def _server_field(path: TreePath) -> str | None:
    """The field of a server entry that a path leads to."""
    for at, part in enumerate(path):
        if part in _SERVER_TABLES and path[at + 1 : at + 2] != ("servers",):
            field = path[at + 2] if len(path) > at + 2 else None
            return field if isinstance(field, str) else None
    return None
