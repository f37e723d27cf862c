"""From a config file to settings: good parts are kept, bad ones are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from portico.documents.document import Document, read_document
from portico.domain.call import ResultLimits, ScriptLimits
from portico.domain.server import HttpLimits, HttpSettings
from portico.errors import ConfigError

from .clients import OWN_KEYS, find_entries, recognise, repeated_key
from .profiles import read_surface, with_profile, with_registry
from .reader import SECONDS, SWITCHES, Fields, Kind, choice, is_address, number, whole, words
from .servers import LEAST_TOKENS, MOST_TOKENS, read_databases, read_server
from .settings import (
    CapabilitiesSettings,
    CatalogSettings,
    GatewaySettings,
    InstallationPaths,
    JournalSettings,
    LocalSettings,
    LogSettings,
    ScriptSettings,
    SearchSettings,
    Semantic,
    StorageSettings,
    absolute,
    find_paths,
    refuse_unrestricted,
)
from .trust import find_config
from .variables_and_masking import Variables

SWITCH = "PROGRESSIVE_DISCLOSURE"
"""An environment variable that chooses between two surfaces, as servers with that switch know it."""
DATABASE = "DATABASE_URI"
"""An environment variable that names the database which packaged tools read."""
SUPERUSER = "DATABASE_ALLOW_SUPERUSER"
"""An environment variable that lets that database be asked with the login of a superuser."""

HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{HOST.pattern}")

_BYTES = whole(100, 16_000_000)  # beyond it a message between the processes would be too large
_MILLION = whole(1, 1_000_000)
_MEGABYTES = whole(0, 1_000_000)
JOURNALS = ("batched", "durable")

LOG: Mapping[str, Kind] = {
    "level": choice(("debug", "info", "warning", "error")),
    "format": choice(("text", "json")),
}
SEARCH: Mapping[str, Kind] = {
    "tokens": _MILLION,
    "limit": whole(1, 1000),
    "order": choice(("keywords", "meaning")),
    "learning": Fields.switch,
}
CAPABILITIES: Mapping[str, Kind] = {
    "prefix": lambda fields, *path: _prefix(fields, *path),
    "quick_actions": words,
    "budget": whole(100, 1_000_000),
}
JOURNAL: Mapping[str, Kind] = {
    "mode": choice(JOURNALS),
    "keep_days": whole(1, 36_500),
    "buffer": whole(1, 10_000_000),
    "wait_s": SECONDS,
}
RESULTS: Mapping[str, Kind] = {
    "tokens": whole(LEAST_TOKENS, MOST_TOKENS),
    "expire_s": SECONDS,
    "memory_mb": _MEGABYTES,
    "store_mb": _MEGABYTES,
}
SCRIPTS: Mapping[str, Kind] = {
    "enabled": Fields.switch,
    "require_hardening": Fields.switch,
    "max_seconds": SECONDS,
    "at_once": whole(1, 1_000),
    "pool": whole(1, 100),
    "seconds": SECONDS,
    "cpu_seconds": SECONDS,
    "memory_mb": whole(8, 4_096),
    "calls": whole(1, 100_000),
    "in_flight": whole(1, 1_000),
    "output_bytes": _BYTES,
    "printed_bytes": _BYTES,
    "source_bytes": _BYTES,
}
HTTP: Mapping[str, Kind] = {
    "allowed_hosts": lambda fields, *path: _names(fields, *path, pattern=HOST, fix=_host_fix),
    "allowed_origins": lambda fields, *path: _names(fields, *path, pattern=ORIGIN, fix=_origin_fix),
    "max_body": whole(1_024, 1_073_741_824),
    "max_head": whole(1_024, 16_777_216),
    "head_s": SECONDS,
    "body_s": SECONDS,
    "body_idle_s": SECONDS,
    "body_memory_mb": _MILLION,
    "keep_alive_s": SECONDS,
    "connections": _MILLION,
    "requests": _MILLION,
    "streams": _MILLION,
    "sessions": _MILLION,
    "session_idle_s": SECONDS,
    "drain_s": number(),
}
"""The keys of each table of a config, and the values they may have; defaults are those of the settings."""


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
    settings, switch = _environment_switch(settings, environ, SWITCH)
    return settings if switch is None else replace(settings, surface="search" if switch else "static")


def with_database(settings: GatewaySettings, environ: Mapping[str, str]) -> GatewaySettings:
    """The settings with the database that the environment names, and with what it allows there."""
    settings, allowed = _environment_switch(settings, environ, SUPERUSER)
    local = replace(settings.local, database_uri=environ.get(DATABASE, "").strip())
    if environ.get(SUPERUSER, "").strip():
        local = replace(local, allow_superuser=bool(allowed))
    return replace(settings, local=local)


def _environment_switch(
    settings: GatewaySettings, environ: Mapping[str, str], name: str
) -> tuple[GatewaySettings, bool | None]:
    """The value of a variable that is true or false, if it is set; the settings report one that is neither."""
    value = environ.get(name, "").strip()
    found = {**SWITCHES, "1": True, "0": False}.get(value.casefold())
    if value and found is None:
        problem = ConfigError("this must be true or false", where=name, fix="Set it to true or false, or unset it.")
        settings = replace(settings, problems=(*settings.problems, problem))
    return settings, found


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
    entries = find_entries(document, dialect, cwd)
    outcomes = {
        entry.name: read_server(
            entry.name, entry.words, document=document, path=entry.path, variables=variables, dialect=dialect
        )
        for entry in entries.found
    }
    fields = Fields(data or {}, document=document, variables=variables)
    settings = _own(fields, home) if dialect == "portico" else GatewaySettings(home=home)
    wrong = [problem for outcome in outcomes.values() for problem in outcome.problems]
    problems = sorted((*fields.problems, *entries.problems, *wrong), key=lambda problem: problem.line or 0)
    refuse_unrestricted(problems)
    refused = {name: outcome.problems for name, outcome in outcomes.items() if outcome.spec is None}
    return replace(
        settings,
        home=replace(home, file=document.file, included=tuple(sorted(variables.files))),
        servers=tuple(outcome.spec for outcome in outcomes.values() if outcome.spec is not None),
        refused=dict.fromkeys(entries.unusable, entries.problems) | refused,
        problems=tuple(problems),
    )


def _own(fields: Fields, home: InstallationPaths) -> GatewaySettings:
    document = fields.document
    for twice in document.duplicates():
        if twice.path[0] not in ("servers", "mcpServers"):
            fields.problems.append(repeated_key(document, twice))
    fields.refuse_unknown(OWN_KEYS)
    return GatewaySettings(
        home=home,
        surface=read_surface(fields) or "discover",
        http=_http(fields),
        log=LogSettings(**fields.given("log", LOG)),
        databases=read_databases(fields),
        local=LocalSettings(
            python=_sources(fields, "python"),
            yaml=_sources(fields, "yaml"),
            hooks=_sources(fields, "hooks"),
            allow_superuser=fields.switch("allow_superuser") or False,
        ),
        catalog=CatalogSettings(
            pins=fields.texts("pins"),
            categories=fields.pairs("categories"),
            examples=fields.pairs("examples"),
            tokens=choice(("estimate", "exact"))(fields, "tokens") or "estimate",
            renew=fields.switch("renew") is not False,
            mcp_registries=_registries(fields),
        ),
        search=SearchSettings(**fields.given("search", SEARCH), semantic=_semantic(fields)),
        capabilities=CapabilitiesSettings(**fields.given("capabilities", CAPABILITIES)),
        storage=StorageSettings(
            store=_store(fields), journal=_journal(fields), results=ResultLimits(**fields.given("results", RESULTS))
        ),
        scripts=_scripts(fields),
    )


def _sources(fields: Fields, key: str) -> tuple[str, ...]:
    """Modules, paths or patterns of paths, each once and in their order; what they name is looked up later."""
    texts = fields.texts(key)
    for index, text in enumerate(texts):
        if not text.strip() and not str(fields.table[key][index] or "").strip():
            fields.report("this is empty", key, index, fix="Write a module or a path, or delete it.", fatal=False)
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def _registries(fields: Fields) -> tuple[str, ...]:
    """URLs and files that list MCP servers; the official registry where none is named."""
    named = _sources(fields, "mcp_registries")
    for at, name in enumerate(named):
        if "://" in name and (not is_address(name) or "@" in urlsplit(name).netloc):
            fix = "Write https://HOST, without a user, or the path of a file."
            fields.report("this is not the address of a registry", "mcp_registries", at, fix=fix, fatal=False)
    usable = tuple(name for name in named if "://" not in name or (is_address(name) and "@" not in name))
    return usable if named else CatalogSettings().mcp_registries


def _prefix(fields: Fields, *path: str) -> str | None:
    written = fields.value(*path)
    prefix = fields.expand(written or "", *path) if isinstance(written, str | None) else None
    # The letters that clients allow in the names of tools.
    if prefix is not None and re.fullmatch(r"[A-Za-z0-9_.-]{0,32}", prefix):
        return prefix
    fix = "Write up to 32 letters, digits and the signs _ - and ., such as tana_."
    fields.report("this cannot stand before a name", *path, fix=fix)
    return None


def _scripts(fields: Fields) -> ScriptSettings:
    given = fields.given("scripts", SCRIPTS)
    limits = {name: given.pop(name) for name in [kind.name for kind in fields_of(ScriptLimits)] if name in given}
    settings = ScriptSettings(**given)
    most = settings.max_seconds
    if limits.setdefault("seconds", min(settings.limits.seconds, most)) > most:
        fix = f"Write at most {most:g}, or raise scripts.max_seconds."
        fields.report("this is more than scripts.max_seconds", "scripts", "seconds", fix=fix)
        limits["seconds"] = most
    return replace(settings, limits=ScriptLimits(**limits))


def _http(fields: Fields) -> HttpSettings:
    given = fields.given("http", HTTP)
    names = {key: given.pop(key) for key in ("allowed_hosts", "allowed_origins") if key in given}
    port = fields.whole("port", least=0, most=65535)
    return HttpSettings(
        host=fields.text("host").strip() or HttpSettings().host,
        port=HttpSettings().port if port is None else port,
        limits=HttpLimits(**given),
        **names,
    )


def _names(fields: Fields, *path: str, pattern: re.Pattern[str], fix: Callable[[str], str]) -> tuple[str, ...]:
    """The names that fit; one that does not is reported, because a request would never match it."""
    good = []
    for at, text in enumerate(fields.texts(*path)):
        name = text.strip().lower().rstrip("/" if pattern is ORIGIN else "")
        if pattern.fullmatch(name):
            good.append(name)
        elif text:
            fields.report("this cannot be the name of a host or a page", *path, at, fix=fix(text))
    return tuple(good)


def _host_fix(text: str) -> str:
    if "*" in text:
        return "Write each name out: a pattern would let web pages in that pretend to be this endpoint."
    return "Write a name as clients call it, such as portico.example.com or portico.example.com:8443."


def _origin_fix(text: str) -> str:
    if "*" in text:
        return "Write each page out: a pattern would let web pages in that nobody has chosen."
    return "Write it as browsers send it, such as https://app.example.com, without a path."


_POSTGRES = re.compile(r"(?:postgres|postgresql)(?:\+\w+)?://", re.IGNORECASE)
_SQLITE = re.compile(r"sqlite://", re.IGNORECASE)
_NO_FILE = "this names no file"
_UNREADABLE = "this address cannot be read"
_STORE_FIXES = {
    "this store is not known": "Write sqlite, memory, sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE.",
    _NO_FILE: "Write sqlite:///FILE, with a file beside the config, or sqlite:////FOLDER/FILE; memory needs no file.",
    _UNREADABLE: "Write signs such as / @ : # ? % in a user or a password as %2F %40 %3A %23 %3F %25.",
}


def _store(top: Fields) -> str:
    """The store that a config asks for. No message ever shows what was written.

    What follows `sqlite:///` is a path as it is, here and for whoever opens it: no letter of it has another meaning.

    Raises:
        ConfigError: it cannot be used; to remember things in another place than was asked for would hide them.
    """
    if top.table.get("store") is None:
        return "sqlite"
    fields = Fields(top.table, document=top.document, variables=top.variables)
    text = fields.text("store").strip()
    problem = _store_problem(text)
    if problem and fields.is_usable:
        fields.report(problem, "store", fix=_STORE_FIXES[problem])
    if not fields.is_usable:
        raise fields.problems[-1]
    if _POSTGRES.match(text):
        return _POSTGRES.sub("postgresql://", text, count=1)  # which driver speaks to it is not the config's choice
    if _SQLITE.match(text):
        file = absolute(text[len("sqlite:///") :], fields.variables.environ, fields.document.file.absolute().parent)
        return f"sqlite:///{file.resolve()}"
    return text


def _store_problem(text: str) -> str:
    """The problem with a store; empty when there is none."""
    if text in ("sqlite", "memory"):
        return ""
    if _SQLITE.match(text):
        name = text[len("sqlite:///") :]
        is_file = name.strip("/ ") and not name.startswith(":memory:") and not name.endswith("/")
        return "" if is_file and text[len("sqlite://")] == "/" else _NO_FILE
    if not _POSTGRES.match(text):
        return "this store is not known"
    try:
        parts = urlsplit(text)
        is_whole = parts.port != 0 and "@" not in parts.path and not parts.fragment and not re.search(r"\s", text)
    except ValueError:
        is_whole = False
    return "" if is_whole else _UNREADABLE


def _journal(fields: Fields) -> JournalSettings:
    """The journal in one word, or in a table."""
    if isinstance(fields.table.get("journal"), dict):
        return JournalSettings(**fields.given("journal", JOURNAL))
    return JournalSettings(mode=choice(JOURNALS)(fields, "journal") or "batched")


SEMANTIC_KEYS = ("url", "model", "key", "timeout_s")
LONGEST_SECONDS = 30.0


def _semantic(top: Fields) -> Semantic | None:
    """The embedder that a config asks for; None when it asks for none, or for one that cannot be used.

    No message ever shows a key or an address.
    """
    if not isinstance(top.table.get("semantic"), dict):
        top.inner("semantic", SEMANTIC_KEYS)
        return None
    fields = top.below("semantic")
    fields.refuse_unknown(SEMANTIC_KEYS)
    url = _semantic_url(fields)
    found = Semantic(
        model=_model(fields, is_local=not url),
        url=url,
        key=_key(fields),
        timeout_s=_timeout(fields),
        line=top.document.line(("semantic", "model")),
    )
    top.problems += fields.problems
    return found if fields.is_usable else None


def _semantic_url(fields: Fields) -> str:
    url = fields.text("url").strip()
    if not url:
        if fields.table.get("url") is not None and fields.is_usable:
            fields.report("this is empty", "url", fix="Write the address, or delete the line for a local model.")
    elif not is_address(url) or not url.isascii():
        fields.report("this is not an http or https address", "url", fix="Write it as https://host/v1.")
    elif "@" in urlsplit(url).netloc:
        fields.report("this address holds a user or a password", "url", fix="Write the key under key.")
    return url


def _model(fields: Fields, *, is_local: bool) -> str:
    model = fields.text("model").strip()
    if not model and fields.is_usable:
        fix = "Write the model's name, such as text-embedding-3-small, or the folder of a local model."
        fields.report("a model is needed", *(["model"] if "model" in fields.table else []), fix=fix)
    if is_local and model.startswith((".", "/", "~")):
        return str((fields.document.file.absolute().parent / Path(model).expanduser()).resolve())
    return model


def _key(fields: Fields) -> str:
    key = fields.text("key").strip()
    if key and fields.table.get("url") is None:
        fields.report("a key is for an endpoint, and there is no url", "key", fix="Write the url, or delete the key.")
    if not key.isascii() or not key.isprintable() or " " in key:
        fix = "Write the key alone, without Bearer, spaces or line breaks."
        fields.report("this key cannot be sent in a header", "key", fix=fix)
    return key


def _timeout(fields: Fields) -> float:
    seconds = fields.number("timeout_s", above=0)
    if seconds is not None and seconds > LONGEST_SECONDS:
        fix = "Write seconds, such as 0.8: every search may wait this long."
        fields.report(f"this must be at most {LONGEST_SECONDS:g}", "timeout_s", fix=fix)
    return Semantic(model="").timeout_s if seconds is None else min(seconds, LONGEST_SECONDS)
