"""From a config file to settings: good parts are kept, bad ones are named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from portico.documents.document import Document, read_document
from portico.domain.server import ServerSpec
from portico.errors import ConfigError

from .clients import OWN_KEYS, Dialect, again, find_entries, recognise
from .profiles import read_databases, with_profile, with_registry
from .reader import (
    SWITCHES,
    Fields,
    meant,
    read_http,
    read_journal,
    read_log,
    read_results,
    read_scripts,
    read_semantic,
    read_sources,
    read_store,
)
from .servers import read_server
from .settings import (
    COUNTERS,
    ORDERS,
    SURFACES,
    CapabilitiesSettings,
    GatewaySettings,
    InstallationPaths,
    SearchLimits,
    find_paths,
    refuse_unrestricted,
)
from .trust import find_config
from .variables import Variables

SWITCH = "PROGRESSIVE_DISCLOSURE"
"""An environment variable that chooses between two surfaces, as servers with that switch know it."""

PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,32}")
"""What may stand before the names of tools: the letters that clients allow in them."""

DATABASE = "DATABASE_URI"
"""An environment variable that names the database which packaged tools read."""
SUPERUSER = "DATABASE_ALLOW_SUPERUSER"
"""An environment variable that lets that database be asked with the login of a superuser."""


def load_settings(
    config: str | None, environ: Mapping[str, str], cwd: Path, *, profile: str | None = None
) -> GatewaySettings:
    """Read the config file that the command line, the environment or the folder names; none at all is no error.

    The profile is the one that is named here, or else by the environment.

    Raises:
        ConfigError: the file does not exist although it was named, it cannot be read or parsed as a whole, or its store
            or the chosen profile cannot be used.
    """
    home = find_paths(environ, cwd)
    file = find_config(config, environ, cwd)
    document = read_document(file) if file else None
    settings = read_settings(document, home, environ, cwd) if document else GatewaySettings(home=home)
    settings = with_database(settings, environ)
    is_own = document is not None and recognise(document) == "portico"
    settings = with_registry(with_profile(settings, document if is_own else None, profile, environ, cwd))
    return _switched(settings, environ.get(SWITCH, "").strip())


def with_database(settings: GatewaySettings, environ: Mapping[str, str]) -> GatewaySettings:
    """The settings with the database that the environment names, and with what it allows there."""
    settings = replace(settings, database_uri=environ.get(DATABASE, "").strip())
    value = environ.get(SUPERUSER, "").strip()
    if not value:
        return settings
    allowed = {**SWITCHES, "1": True, "0": False}.get(value.casefold())
    if allowed is not None:
        return replace(settings, allow_superuser=allowed)
    problem = ConfigError("this must be true or false", where=SUPERUSER, fix="Set it to true or false, or unset it.")
    return replace(settings, allow_superuser=False, problems=(*settings.problems, problem))


def _switched(settings: GatewaySettings, value: str) -> GatewaySettings:
    """The settings with the surface that the switch in the environment chooses, if it says anything."""
    if not value:
        return settings
    switch = {**SWITCHES, "1": True, "0": False}.get(value.casefold())
    if switch is None:
        problem = ConfigError("this must be true or false", where=SWITCH, fix="Set it to true or false, or unset it.")
        return replace(settings, problems=(*settings.problems, problem))
    return replace(settings, surface="search" if switch else "static")


def read_settings(
    document: Document, home: InstallationPaths, environ: Mapping[str, str], cwd: Path
) -> GatewaySettings:
    """Translate one document, ours or a client's.

    Raises:
        ConfigError: the document is not a table, or its store or one of its restrictions cannot be used.
    """
    data = document.words()
    if data is not None and not isinstance(data, dict):
        fix = "Write keys such as servers: at the beginning of the line."
        raise document.error("a config file must be a table", line=1, fix=fix)
    dialect = recognise(document)
    variables = Variables(environ=environ, folder=document.file.absolute().parent)
    servers = _servers(document, dialect, variables, cwd)
    fields = Fields(data or {}, document=document, path=(), variables=variables)
    settings = _own(fields, document, home) if dialect == "portico" else GatewaySettings(home=home)
    problems = sorted((*fields.problems, *servers.problems), key=lambda problem: problem.line or 0)
    refuse_unrestricted(problems)
    return replace(
        settings, servers=servers.specs, refused=servers.refused, problems=tuple(problems), file=document.file
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Servers:
    specs: tuple[ServerSpec, ...]
    refused: Mapping[str, tuple[ConfigError, ...]]
    problems: tuple[ConfigError, ...]


def _servers(document: Document, dialect: Dialect, variables: Variables, folder: Path) -> _Servers:
    entries = find_entries(document, dialect, folder)
    outcomes = [
        read_server(entry.name, entry.words, document=document, path=entry.path, variables=variables, dialect=dialect)
        for entry in entries.found
    ]
    return _Servers(
        refused=dict.fromkeys(entries.unusable, entries.problems)
        | {
            entry.name: outcome.problems
            for entry, outcome in zip(entries.found, outcomes, strict=True)
            if outcome.spec is None
        },
        specs=tuple(outcome.spec for outcome in outcomes if outcome.spec is not None),
        problems=(
            *entries.problems,
            *(problem for outcome in outcomes for problem in outcome.problems),
        ),
    )


def _own(fields: Fields, document: Document, home: InstallationPaths) -> GatewaySettings:
    for twice in document.duplicates():
        if twice.path[0] not in ("servers", "mcpServers"):
            fields.problems.append(again(document, twice.path, first=twice.first, second=twice.second))
    for key in fields.table:
        if key not in OWN_KEYS and not key.startswith(("x-", "$")):
            fields.report("this key is not known", key, fix=meant(key, OWN_KEYS))
    defaults = GatewaySettings(home=home)
    store = read_store(Fields(fields.table, document=document, path=(), variables=fields.variables), document)
    port = fields.whole("port", least=0, most=65535)
    return GatewaySettings(
        home=home,
        surface=_surface(fields) or defaults.surface,
        host=fields.text("host").strip() or defaults.host,
        port=defaults.port if port is None else port,
        http=read_http(fields),
        log=read_log(fields),
        pins=fields.texts("pins"),
        categories=fields.pairs("categories"),
        examples=fields.pairs("examples"),
        search=_search(fields),
        capabilities=_capabilities(fields),
        semantic=read_semantic(fields, document),
        tokens=fields.choice("tokens", among=COUNTERS) or defaults.tokens,
        store=store or defaults.store,
        journal=read_journal(fields),
        results=read_results(fields),
        scripts=read_scripts(fields),
        python=read_sources(fields, "python"),
        yaml=read_sources(fields, "yaml"),
        hooks=read_sources(fields, "hooks"),
        databases=read_databases(fields, document),
        allow_superuser=fields.switch("allow_superuser") or False,
    )


def _surface(fields: Fields) -> str:
    surface = fields.text("surface").strip()
    if surface and surface not in SURFACES:
        fields.report("this is not a surface", "surface", fix=meant(surface, SURFACES))
        return ""
    return surface


def _search(fields: Fields) -> SearchLimits:
    fields.inner("search", ("tokens", "limit", "order"))
    defaults = SearchLimits()
    return SearchLimits(
        tokens=fields.whole("search", "tokens", least=1, most=1_000_000) or defaults.tokens,
        limit=fields.whole("search", "limit", least=1, most=1000) or defaults.limit,
        order=fields.choice("search", "order", among=ORDERS) or defaults.order,
    )


def _capabilities(fields: Fields) -> CapabilitiesSettings:
    table = fields.inner("capabilities", ("prefix", "quick_actions", "budget"))
    defaults = CapabilitiesSettings()
    prefix = table.get("prefix") or ""
    prefix = fields.expand(prefix, "capabilities", "prefix") if isinstance(prefix, str) else None
    if prefix is None or not PREFIX.fullmatch(prefix):
        fix = "Write up to 32 letters, digits and the signs _ - and ., such as tana_."
        fields.report("this cannot stand before a name", "capabilities", "prefix", fix=fix)
        prefix = defaults.prefix
    return CapabilitiesSettings(
        prefix=prefix,
        quick_actions=tuple(text.strip() for text in fields.texts("capabilities", "quick_actions") if text.strip()),
        budget=fields.whole("capabilities", "budget", least=100, most=1_000_000) or defaults.budget,
    )
