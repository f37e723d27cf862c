"""Answers a client over stdio before the catalog is loaded, with what the last run with these settings knew."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from portico.config.load import load_settings
from portico.config.settings import GatewaySettings
from portico.documents.document import write_atomically
from portico.domain import VERSION
from portico.errors import ConfigError
from portico.surfaces.lua_gateway import DEFINITIONS
from portico.surfaces.mcp import instructions
from portico.surfaces.mcp.instructions import definitions
from portico.surfaces.mcp.stdio_opening import EarlyAnswers, EarlyPipe, Greeting

FOLDER = "greetings"  # where the first answers are remembered, in the data folder
MOST_BYTES = 65_536  # a list of tools that is larger is not remembered
STABLE = ("discover", "search", "gateway")  # surfaces that list tools without asking servers for theirs
_SHARED = {"--config": "config", "--log-level": "log level", "--log-format": "log format"}
_VALUED = {**_SHARED, "--surface": "surface", "--profile": "profile"}
_SWITCHES = {"--stdio": "stdio", "--progressive_disclosure": "progressive", "--reload": "reload"}
UNDERSTOOD = frozenset({*_VALUED, *_SWITCHES})
"""Options that change nothing of the first answers, or are read here; with any other, the real parser comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdioRequest:
    """A command line that plainly asks for a server over stdio."""

    config: str | None = None
    surface: str | None = None
    profile: str | None = None


def asked_over_stdio(argv: Sequence[str]) -> StdioRequest | None:
    """The request of a command line; None for any that the real parser should look at first."""
    words, found = list(argv), dict[str, str]()
    if "serve" not in words:
        return None
    command = words.index("serve")
    is_read = _collect(words[:command], found, {}) and _collect(words[command + 1 :], found, _SWITCHES)
    if not is_read or "stdio" not in found:
        return None
    surface = found.get("surface")
    if "progressive" in found and surface not in (None, "search"):
        return None
    surface = "search" if "progressive" in found else surface
    return StdioRequest(config=found.get("config"), surface=surface, profile=found.get("profile"))


def _collect(words: Sequence[str], found: dict[str, str], switches: Mapping[str, str]) -> bool:
    """Read options into `found`; False when one is not known here. Before the command there are no switches."""
    valued = _VALUED if switches else _SHARED
    rest = iter(words)
    for word in rest:
        name, given, value = word.partition("=")
        if word in switches:
            found[switches[word]] = word
        elif name in valued and (value := value if given else next(rest, "")) and not value.startswith("-"):
            found[valued[name]] = value
        else:
            return False
    return True


def open_early(argv: Sequence[str], environ: Mapping[str, str], cwd: Path) -> EarlyPipe | None:
    """Answer a client over stdio from now on, while the rest is loaded; None where it has to wait for the rest.

    A config that cannot be used is no concern of this: whoever reads it next says what is wrong.
    """
    asked = asked_over_stdio(argv) if sys.platform != "win32" else None
    if asked is None or os.isatty(0):  # whoever types has time
        return None
    try:
        settings = load_settings(asked.config, environ, cwd, profile=asked.profile)
        greeting = greeting_of(settings, asked.surface or settings.surface)
        pipe = EarlyPipe(EarlyAnswers(greeting)) if greeting else None
    except (ConfigError, OSError):
        return None
    if pipe is not None:
        pipe.start()
    return pipe


def greeting_of(settings: GatewaySettings, surface: str) -> Greeting | None:
    """The first answers for these settings, from the last run or the config; None where there is no such surface."""
    if surface not in _TEXTS:
        return None
    try:
        kept = json.loads(_file(settings, surface).read_bytes())
        if kept["of"] == _mark(settings, surface):
            return Greeting(str(kept["instructions"]), VERSION, kept["tools"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pass
    return Greeting(_TEXTS[surface](settings), VERSION, _stable_tools(settings, surface))


def remember(settings: GatewaySettings, surface: str, text: str, tools: Sequence[Any]) -> None:
    """Keep what a client of these settings is told, for the next start; what cannot be written is not kept."""
    if settings.storage.store == "memory":
        return
    told = {"of": _mark(settings, surface), "instructions": text, "tools": tools if surface in STABLE else None}
    content = json.dumps(told).encode()
    if len(content) > MOST_BYTES:
        content = json.dumps({**told, "tools": None}).encode()
    with contextlib.suppress(ConfigError):
        write_atomically(_file(settings, surface), content)


def _file(settings: GatewaySettings, surface: str) -> Path:
    key = f"{settings.home.file}\n{settings.profile.name}\n{surface}"
    return settings.home.data / FOLDER / f"{crc32(key.encode()):08x}.json"


def _mark(settings: GatewaySettings, surface: str) -> str:
    """A hash that changes with the settings and the listed definitions."""
    with os.scandir(os.path.dirname(instructions.__file__)) as entries:
        newest_source = max(entry.stat().st_mtime_ns for entry in entries)
    told = replace(settings, local=replace(settings.local, reload=False), problems=())
    facts = (VERSION, surface, str(newest_source), settings.storage.store, repr(told))
    return hashlib.sha256("\n".join(facts).encode(errors="replace")).hexdigest()


def _stable_tools(settings: GatewaySettings, surface: str) -> list[Any] | None:
    """The tools that a surface lists whatever the servers offer, where it lists no others."""
    if settings.catalog.pins:
        return None
    if surface == "discover":
        return list(definitions(scripts=settings.scripts.enabled))
    return list(DEFINITIONS) if surface == "gateway" else None


def _servers(settings: GatewaySettings) -> list[str]:
    """The servers of a config by the names that agents see, as far as they are known before any is asked."""
    named = [spec.labels.alias or spec.name for spec in settings.servers if spec.enabled]
    return sorted([*named, *(spec.name for spec in settings.databases)])


def _capabilities(settings: GatewaySettings) -> str:
    prefix = settings.capabilities.prefix
    return instructions.capabilities_text(None, (), inventory=f"{prefix}capabilities", schema=f"{prefix}tool_schema")


_TEXTS: Mapping[str, Callable[[GatewaySettings], str]] = {
    "discover": lambda s: instructions.discover_text(None, _servers(s), scripts=s.scripts.enabled),
    "static": lambda s: instructions.static_text(_servers(s)),
    "search": lambda s: instructions.search_text(None, _servers(s)),
    "capabilities": _capabilities,
    "gateway": lambda s: instructions.gateway_text(None, _servers(s)),
}
