"""Settings of one run, the places of its config and state, and the config keys that restrict something."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from portico.documents.values_with_positions import TreePath
from portico.domain.call import ResultLimits, ScriptLimits
from portico.domain.server import ConfigChange, DatabaseSpec, HttpSettings, ServerSpec
from portico.domain.suggestions import nearest_names
from portico.domain.tool import OPEN, Profile
from portico.errors import ConfigError, RestrictionError

NAMES = ("portico.yaml", "portico.yml", "portico.json")
"""Names of a config file, in the order they are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationPaths:
    """The folders of one installation and its config file; nothing is created by knowing them."""

    config: Path
    """Folder of the user's own config file."""
    data: Path
    """Folder of everything that is remembered."""
    file: Path | None = None
    """The config file in force, if there is one."""
    included: tuple[Path, ...] = ()
    """Other files that settings were read from: variables of servers, and profiles."""

    @property
    def config_file(self) -> Path:
        """The config file that is written when there is none yet."""
        return self.config / NAMES[0]


def find_paths(environ: Mapping[str, str], cwd: Path) -> InstallationPaths:
    """The folders that the environment asks for: `PORTICO_HOME` for everything, or else XDG."""
    home = environ.get("PORTICO_HOME")
    if home:
        everything = absolute(home, environ, cwd)
        return InstallationPaths(config=everything, data=everything)
    return InstallationPaths(
        config=_xdg(environ, "XDG_CONFIG_HOME", ".config") / "portico",
        data=_xdg(environ, "XDG_DATA_HOME", ".local/share") / "portico",
    )


def home_folder(environ: Mapping[str, str]) -> Path:
    """The user's home folder, as the environment says."""
    return Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())


def absolute(path: str, environ: Mapping[str, str], folder: Path) -> Path:
    """A path as written in a config, with `~` resolved, relative to a folder."""
    if path == "~" or path.startswith(("~/", "~\\")):
        return home_folder(environ) / path[2:]
    return folder / path


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    # The XDG specification says that a relative path is to be ignored.
    given = environ.get(variable, "")
    return Path(given) if os.path.isabs(given) else home_folder(environ) / default


OFFICIAL_REGISTRY = "https://registry.modelcontextprotocol.io"
"""The registry of MCP servers that is asked unless the config names others."""
SURFACES = ("discover", "static", "search", "capabilities", "gateway")
"""The surfaces that `surface` may name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilitiesSettings:
    """The prefix of the two tools of the surface `capabilities`, its suggestions, and the budget of its inventory."""

    prefix: str = ""
    quick_actions: tuple[str, ...] = ()
    budget: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantic:
    """The embedder that search may use: an endpoint when there is a url, else a local model."""

    model: str
    url: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = 0.8
    """Seconds that a search waits for the meaning of its query."""
    line: int | None = field(default=None, compare=False)
    """Where the file asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """The cost of one search when the caller does not say, the order on the `search` surface, and what it uses."""

    tokens: int = 800
    limit: int = 5
    order: str = "keywords"
    """Points for keywords, or `meaning`: the same order as on the other surfaces."""
    learning: bool = True
    """Whether words that callers search with come to stand for the tools that they call then."""
    semantic: Semantic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """The care with which the journal is kept, and for how long."""

    mode: str = "batched"
    """Entries are written together a little later, or with `durable` before the result is given."""
    keep_days: int = 90
    """Entries older than this are dropped once a day; usage keeps what they add up to."""
    buffer: int = 50_000
    """Entries that wait for the store at most; what comes on top is dropped, and counted."""
    wait_s: float = 10.0
    """Seconds that a result waits for its commit, with `durable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The level and format of the log of a gateway that is served; empty leaves them to the environment."""

    level: str = ""
    format: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSettings:
    """Whether scripts may run, what one may use, and how many there are at once."""

    enabled: bool = True
    limits: ScriptLimits = field(default_factory=ScriptLimits)
    """Limits of one script unless its caller asks for another time."""
    max_seconds: float = 120.0
    """The most that a caller may ask for."""
    at_once: int = 8
    """Scripts that run at once."""
    pool: int = 4
    """Processes that wait for the next script."""
    require_hardening: bool = False
    """Whether scripts are refused where the machine cannot hold them in as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Where state is kept, and how carefully and how long."""

    store: str = field(default="sqlite", repr=False)
    """`sqlite`, `memory`, or the address of a database, which may hold a password."""
    journal: JournalSettings = JournalSettings()
    results: ResultLimits = field(default_factory=ResultLimits)

    @property
    def store_shown(self) -> str:
        """The store as it may be printed: users, passwords and queries are left out."""
        if "://" not in self.store:
            return self.store
        parts = urlsplit(self.store)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Pins, categories, example prompts by `server.tool`, the counter of tokens, and where servers are listed."""

    pins: tuple[str, ...] = ()
    categories: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    tokens: str = "estimate"
    renew: bool = True
    """Whether servers are asked again whose stored definitions may be old."""
    mcp_registries: tuple[str, ...] = (OFFICIAL_REGISTRY,)
    """URLs of registries of MCP servers, and files in the shape of their answers; the first that has a name counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Tools and hooks of our own, relative to the config's folder, and the database that packaged tools read."""

    python: tuple[str, ...] = ()
    """Modules, files and patterns of files with tools."""
    yaml: tuple[str, ...] = ()
    """Patterns of files with definitions."""
    hooks: tuple[str, ...] = ()
    """Modules and files with hooks."""
    reload: bool = False
    """Whether tools are loaded again when their files change."""
    database_uri: str = field(default="", repr=False)
    """The database that packaged tools read, which may hold a password; empty for the demo's."""
    allow_superuser: bool = False
    """Whether that database may be asked with the login of a superuser."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The config file with every variable expanded and every refused part in `problems`."""

    home: InstallationPaths
    surface: str = "discover"
    http: HttpSettings = field(default_factory=HttpSettings)
    log: LogSettings = LogSettings()
    servers: tuple[ServerSpec, ...] = ()
    databases: tuple[DatabaseSpec, ...] = ()
    """Databases whose registries hold tools, that of the chosen profile included."""
    local: LocalSettings = LocalSettings()
    catalog: CatalogSettings = CatalogSettings()
    search: SearchSettings = SearchSettings()
    capabilities: CapabilitiesSettings = CapabilitiesSettings()
    storage: StorageSettings = StorageSettings()
    scripts: ScriptSettings = ScriptSettings()
    profile: Profile = OPEN
    """The chosen profile; its surface, pins and servers are already in force."""
    problems: tuple[ConfigError, ...] = ()
    """Parts that could not be used; everything else is in force."""
    refused: Mapping[str, tuple[ConfigError, ...]] = field(default_factory=dict)
    """The servers that cannot be used, by name, with what is wrong; the same problems are in `problems`."""

    @property
    def folder(self) -> Path:
        """The folder that paths in the config are relative to: that of the file, or the current one without a file."""
        return self.home.file.absolute().parent if self.home.file else Path.cwd()

    def under(self, read: GatewaySettings) -> GatewaySettings:
        """These settings with all that can be taken over from a config while a gateway runs."""
        return replace(
            self,
            home=read.home,
            servers=read.servers,
            catalog=replace(read.catalog, tokens=self.catalog.tokens, renew=self.catalog.renew),
            problems=read.problems,
            refused=read.refused,
        )


def change_between(running: GatewaySettings, read: GatewaySettings) -> ConfigChange:
    """The difference between the settings in force and those of a config that was read again."""
    before, after = ({spec.name: spec for spec in settings.servers} for settings in (running, read))
    # What is in force once the config is taken over differs from the config in what only a start can take over.
    old, new, later = map(_values_by_key, (running, running.under(read), read))
    return ConfigChange(
        added=tuple(name for name in after if name not in before),
        removed=tuple(name for name in before if name not in after),
        changed=tuple(name for name in after if name in before and before[name] != after[name]),
        settings=tuple(key for key in old if old[key] != new[key]),
        restart=tuple(key for key in new if new[key] != later[key]),
    )


def _values_by_key(settings: GatewaySettings) -> dict[str, object]:
    """Everything but the servers, by its key in the config."""
    local, catalog, http, storage = settings.local, settings.catalog, settings.http, settings.storage
    return {
        "pins": catalog.pins,
        "categories": catalog.categories,
        "examples": catalog.examples,
        "search": replace(settings.search, semantic=None),
        "semantic": settings.search.semantic,
        "tokens": catalog.tokens,
        "renew": catalog.renew,
        "mcp_registries": catalog.mcp_registries,
        "surface": settings.surface,
        "profile": settings.profile,
        "host": http.host,
        "port": http.port,
        "http": (http.allowed_hosts, http.allowed_origins, http.limits),
        "log": settings.log,
        "databases": settings.databases,
        "python": local.python,
        "yaml": local.yaml,
        "hooks": local.hooks,
        "allow_superuser": local.allow_superuser,
        "capabilities": settings.capabilities,
        "store": storage.store,
        "journal": storage.journal,
        "results": storage.results,
        "scripts": settings.scripts,
    }


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
RESTRICTION = 75.0
"""Percent of letters by which a key resembles a restriction; a lower share would refuse to start for no reason."""
_SERVER_TABLES = ("servers", "mcpServers", "mcp_servers", "context_servers", "extensions", "mcp")


def restricts(path: TreePath) -> bool:
    """Whether what stands at a path of a config is a restriction, or was probably meant as one."""
    if not path or not isinstance(path[0], str):
        return False
    top = path[0]
    if top in TOP or (top in SWITCHES and len(path) == 1):
        return True
    if top in SWITCHES and isinstance(path[1], str) and (path[1] in SWITCHES[top] or is_meant(path[1], SWITCHES[top])):
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
    return plain in WORDS or bool(nearest_names(plain, restrictions, limit=1, cutoff=RESTRICTION))


def refuse_unrestricted(problems: Iterable[ConfigError]) -> None:
    """Do nothing unless one of the problems is with a restriction.

    Raises:
        RestrictionError: the first that is.
    """
    for problem in problems:
        if isinstance(problem, RestrictionError):
            raise problem


def _server_field(path: TreePath) -> str | None:
    """The field of a server entry that a path leads to."""
    for at, part in enumerate(path):
        if part in _SERVER_TABLES and path[at + 1 : at + 2] != ("servers",):
            field = path[at + 2] if len(path) > at + 2 else None
            return field if isinstance(field, str) else None
    return None
