"""Databases and profiles of a config."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from portico.documents.document import Document, read_document
from portico.documents.tree import TreePath
from portico.domain.patterns import Pattern, read_pattern
from portico.domain.profile import Profile
from portico.domain.server import DatabaseSpec
from portico.errors import ConfigError

from .reader import Fields, meant
from .settings import SURFACES, GatewaySettings, absolute, is_meant
from .trust import PROFILES, found_here
from .variables import Variables

DATABASE_KEYS = "url registry refresh_s role roles registry_override writes allow_superuser rows bytes seconds".split()
"""The fields of a database."""
NAME_LENGTH = 128
LEAST_REFRESH = 0.1
"""Seconds between two looks at a registry, which would otherwise follow each other without a pause."""
MOST_SECONDS = 3_600
"""Of one call; databases keep their limits in small numbers."""

_SQLITE = re.compile(r"sqlite(?:\+\w+)?:///", re.IGNORECASE)


def read_databases(fields: Fields, document: Document) -> tuple[DatabaseSpec, ...]:
    """The databases that can be used; what is wrong with the others is reported, and never shows a URL."""
    table = fields.table.get("databases")
    if table is None:
        return ()
    if not isinstance(table, dict):
        fix = "Write a name for each database, with its url and registry below it."
        fields.report("the databases must be a table", "databases", fix=fix)
        return ()
    return tuple(_read(fields, document, table))


def with_registry(settings: GatewaySettings) -> GatewaySettings:
    """The settings with the databases that the chosen profile leaves, and with the one that its `registry` asks for."""
    profile = settings.selected
    databases = tuple(spec for spec in settings.databases if profile.permits_server(spec.name))
    settings = replace(settings, databases=databases)
    schema = profile.registry
    if not schema or any(schema in (spec.registry, spec.name) for spec in databases):
        return settings
    if not settings.database_uri:
        fix = "Set DATABASE_URI, or name the database under databases in the config."
        problem = ConfigError(
            f"it asks for the registry {schema!r}, and no database is named", where=f"profile {profile.name!r}", fix=fix
        )
        return replace(settings, problems=(*settings.problems, problem))
    allowed = settings.allow_superuser
    spec = DatabaseSpec(name=schema, url=settings.database_uri, registry=schema, allow_superuser=allowed)
    return replace(settings, databases=(*databases, spec))


def _read(fields: Fields, document: Document, table: dict[str, Any]) -> Iterator[DatabaseSpec]:
    for name, entry in table.items():
        path = ("databases", name)
        if not name.strip() or not name.isprintable() or len(name) > NAME_LENGTH:
            fields.report("this cannot be a database's name", *path, fix="Give it a short, plain name.")
        elif not isinstance(entry, dict):
            fields.report("a database must be a table", *path, fix=f"Use some of: {', '.join(DATABASE_KEYS)}.")
        else:
            inner = Fields(entry, document=document, path=path, variables=fields.variables)
            spec = _spec(name, inner, document)
            fields.problems += inner.problems
            if inner.is_usable:
                yield spec


def _spec(name: str, fields: Fields, document: Document) -> DatabaseSpec:
    for key in fields.table:
        if key not in DATABASE_KEYS and not key.startswith("x-"):
            fields.report("this key is not known", key, fix=meant(key, DATABASE_KEYS))
    defaults = DatabaseSpec(name=name, url="")
    override, writes = fields.switch("registry_override"), fields.switch("writes")
    return DatabaseSpec(
        name=name,
        url=_url(fields, document),
        registry=_registry(fields),
        refresh_s=fields.number("refresh_s", least=LEAST_REFRESH) or defaults.refresh_s,
        role=fields.text("role").strip(),
        roles={caller: role for caller, role in fields.pairs("roles").items() if role},
        registry_override=defaults.registry_override if override is None else override,
        writes=defaults.writes if writes is None else writes,
        allow_superuser=fields.switch("allow_superuser") or False,
        rows=fields.whole("rows", least=1, most=100_000) or defaults.rows,
        bytes=fields.whole("bytes", least=1_000, most=10_000_000) or defaults.bytes,
        seconds=_seconds(fields) or defaults.seconds,
        file=str(document.file),
        line=document.line(("databases", name)),
    )


def _seconds(fields: Fields) -> float | None:
    found = fields.number("seconds", above=0)
    if found is not None and found > MOST_SECONDS:
        fields.report("this is longer than a call may take", "seconds", fix=f"Write at most {MOST_SECONDS}.")
    return found


def _registry(fields: Fields) -> str:
    found = fields.text("registry").strip()
    if not found and fields.is_usable:
        fix = "Name the database or schema that holds the registry, such as mcp."
        fields.report("a database needs a registry", "registry", fix=fix)
    return found


def _url(fields: Fields, document: Document) -> str:
    """A URL as it is; the file of SQLite is one beside the config."""
    text = fields.text("url").strip()
    if not text and fields.is_usable:
        fields.report(
            "a database needs a url", "url", fix="Write sqlite:///file.db or postgresql://user@host/database."
        )
    match = _SQLITE.match(text)
    if not match:
        return text
    name, mark, query = text[match.end() :].partition("?")
    file = absolute(name, fields.variables.environ, document.file.absolute().parent)
    return f"sqlite:///{file}{mark}{query}" if name else text


VARIABLES = ("MCP_PROFILE", "PROFILE")
"""The environment variables that choose a profile; the first one that says something counts."""
PROFILE_KEYS = ("tool", "prompt", "resource", "registry", "surface", "pins", "servers")

PACKAGED: Mapping[str, Mapping[str, Any]] = {
    "all": {"tool": [".*"], "prompt": [".*"], "resource": [".*"], "pins": ["base_readQuery"]},
    "base": {
        "tool": ["^base_.*", "^qlty_.*", "^sec_.*", "^plot_.*", "^rag_.*", "^sql_opt_.*"],
        "prompt": [".*"],
        "resource": [".*"],
        "pins": ["base_readQuery"],
    },
    # No tool is called so: what is left is what the registry holds.
    "db-registry": {"tool": ["X"], "prompt": [".*"], "registry": "mcp"},
}
"""The profiles that come with Portico; one of the same name in a file takes the place of its namesake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """One table of profiles, and where it stands."""

    document: Document
    place: TreePath
    is_ours: bool
    """Whether a config names it: then all of it is judged, and not only what is chosen."""

    @property
    def words(self) -> dict[str, Any]:
        found = self.document.words(*self.place)
        return found if isinstance(found, dict) else {}


@dataclass(slots=True, kw_only=True)
class _Reader:
    """Reads the tables that there are, and remembers what is wrong with them."""

    variables: Variables
    config: Document | None
    cwd: Path
    problems: list[ConfigError] = field(default_factory=list)
    unread: ConfigError | None = None
    """Why a file of profiles could not be read."""

    @property
    def is_named(self) -> bool:
        """Whether the config itself says where the profiles are."""
        data = self.config.data if self.config else None
        return isinstance(data, dict) and data.get("profiles") is not None

    def tables(self, asked: str) -> list[_Table]:
        """The tables, nearest first; a file that only has the right name is left alone unless a profile is wanted."""
        written = self.config.data.get("profiles") if self.config and isinstance(self.config.data, dict) else None
        if isinstance(written, str):
            return [*self._named(written)]
        inline = []
        if isinstance(written, dict) and self.config is not None:
            inline.append(_Table(document=self.config, place=("profiles",), is_ours=True))
        elif written is not None and self.config is not None:
            fix = "Write the path of a file of profiles, or a table of them."
            self.unread = self.config.error("this must be a path or a table", ("profiles",), fix=fix)
            self.problems.append(self.unread)
        return [*inline, *(self._found(asked) if asked else ())]

    def _named(self, text: str) -> Iterator[_Table]:
        assert self.config is not None, "the text stands in it"
        try:
            path = absolute(self.variables.expand(text), self.variables.environ, self.variables.folder)
        except ConfigError as error:
            self.unread = self.config.error(error.problem, ("profiles",), fix=error.fix)
            self.problems.append(self.unread)
            return
        yield from self._file(path, is_ours=True)

    def _found(self, asked: str) -> Iterator[_Table]:
        beside = (self.variables.folder / name for name in PROFILES) if self.config else ()
        file = next((file for files in (beside, self._here(asked)) for file in files if file.is_file()), None)
        if file is not None:
            yield from self._file(file, is_ours=False)

    def _here(self, asked: str) -> Iterable[Path]:
        """Files in the working directory, which may be anybody's: without trust they only add names of their own."""
        if asked in PACKAGED:
            return found_here(PROFILES, self.variables.environ, self.cwd)
        return (self.cwd / name for name in PROFILES)

    def _file(self, file: Path, *, is_ours: bool) -> Iterator[_Table]:
        try:
            document = read_document(file)
            if document.data is not None and not isinstance(document.data, dict):
                fix = "Write a name for each profile, with its lists below it."
                raise document.error("a file of profiles must be a table", line=1, fix=fix)
        except ConfigError as error:
            self.unread = error
            self.problems.append(error)
            return
        yield _Table(document=document, place=(), is_ours=is_ours)

    def profile(self, table: _Table, name: str, surfaces: Sequence[str]) -> Profile | ConfigError:
        """One profile, or what makes it unusable: a wrong reading of it could offer what it was meant to hide."""
        place, words = (*table.place, name), table.words[name]
        if words is not None and not isinstance(words, dict):
            problem = table.document.error(
                "a profile must be a table", place, fix=f"Use some of: {', '.join(PROFILE_KEYS)}."
            )
            self.problems.append(problem)
            return problem
        fields = Fields(words or {}, document=table.document, path=place, variables=self.variables)
        found = _profile(name, fields, surfaces)
        self.problems += fields.problems
        return found if fields.is_usable else fields.problems[0]


def with_profile(
    settings: GatewaySettings, config: Document | None, named: str | None, environ: Mapping[str, str], cwd: Path
) -> GatewaySettings:
    """The settings under the profile that the command line or the environment chooses, if any.

    Raises:
        ConfigError: there is no such profile, or it cannot be used.
    """
    asked, source = _asked(named, environ)
    folder = config.file.absolute().parent if config else cwd
    reader = _Reader(variables=Variables(environ=environ, folder=folder), config=config, cwd=cwd)
    tables = reader.tables(asked)
    judged = {
        (number, name): reader.profile(table, name, SURFACES)
        for number, table in enumerate(tables)
        for name in table.words
        if table.is_ours or name == asked
    }
    if reader.unread is not None and reader.is_named:
        raise reader.unread
    if not asked:
        return replace(settings, problems=(*settings.problems, *reader.problems))
    nearest = next((judged[number, asked] for number in range(len(tables)) if (number, asked) in judged), None)
    # A file that cannot be read may hold a profile of this name: what comes with Portico must not stand in for it.
    profile = nearest or reader.unread or packaged(asked) or _unknown(asked, source, tables)
    if isinstance(profile, ConfigError):
        raise profile
    problems = (*settings.problems, *reader.problems, *_strangers(settings, profile))
    settings = replace(settings, problems=problems)
    # What comes with Portico pins something only where the config itself does not.
    return _applied(settings, profile if nearest or not settings.pins else replace(profile, pins=None))


def packaged(name: str) -> Profile | None:
    """The profile of that name that comes with Portico."""
    table = PACKAGED.get(name)
    if table is None:
        return None
    tool, prompt, resource = (
        tuple(map(read_pattern, table[key])) if key in table else None for key in ("tool", "prompt", "resource")
    )
    return Profile(
        name=name,
        tool=tool,
        prompt=prompt,
        resource=resource,
        registry=table.get("registry", ""),
        pins=tuple(table["pins"]) if "pins" in table else None,
    )


def _asked(named: str | None, environ: Mapping[str, str]) -> tuple[str, str]:
    candidates = (("--profile", named), *((variable, environ.get(variable)) for variable in VARIABLES))
    return next(((text.strip(), source) for source, text in candidates if text and text.strip()), ("", ""))


def _profile(name: str, fields: Fields, surfaces: Sequence[str]) -> Profile:
    for key in fields.table:
        if key not in PROFILE_KEYS:
            is_misspelt = bool(difflib.get_close_matches(key, PROFILE_KEYS, n=1, cutoff=0.7)) or is_meant(
                key, PROFILE_KEYS
            )
            fields.report("this key is not known", key, fix=meant(key, PROFILE_KEYS), fatal=is_misspelt)
    surface = fields.text("surface").strip()
    if surface and surface not in surfaces:
        fields.report("this is not a surface", "surface", fix=meant(surface, surfaces), fatal=False)
        surface = ""
    return Profile(
        name=name,
        tool=_patterns(fields, "tool"),
        prompt=_patterns(fields, "prompt"),
        resource=_patterns(fields, "resource"),
        servers=_list(fields, "servers"),
        registry=fields.text("registry").strip(),
        surface=surface,
        pins=_list(fields, "pins"),
    )


def _list(fields: Fields, key: str) -> tuple[str, ...] | None:
    if key not in fields.table:
        return None
    if fields.table[key] is None:
        fields.report("this is empty", key, fix="Write [] for none of them, or delete the line for all.", fatal=False)
    return tuple(text.strip() for text in fields.texts(key))


def _patterns(fields: Fields, key: str) -> tuple[Pattern, ...] | None:
    """The patterns that can be used; the others let nothing through, so that a mistake never opens anything."""
    texts = _list(fields, key)
    if texts is None:
        return None
    found = []
    for index, text in enumerate(texts):
        if text.endswith("_*"):
            fix = f"Write {text[:-1]}.* for all names that begin so."
            fields.report("_* means underscores alone in a pattern", key, index, fix=fix, fatal=False)
        try:
            found.append(read_pattern(text))
        except ValueError as error:
            fields.report(str(error), key, index, fix="Write a simple one, such as ^base_.*", fatal=False)
    return tuple(found)


def _strangers(settings: GatewaySettings, profile: Profile) -> Iterator[ConfigError]:
    """Servers of a profile that are probably misspelt; one that resembles nothing may be a server of local tools."""
    names = [spec.name for spec in settings.servers]
    for server in profile.servers or ():
        near = difflib.get_close_matches(server, names, n=1, cutoff=0.7)
        if near and server not in names and not any(sign in server for sign in "*?["):
            where = f"profile {profile.name!r}"
            yield ConfigError(f"no server is called {server!r}", where=where, fix=f"Did you mean {near[0]!r}?")


def _applied(settings: GatewaySettings, profile: Profile) -> GatewaySettings:
    return replace(
        settings,
        profile=profile.name,
        selected=profile,
        surface=profile.surface or settings.surface,
        pins=settings.pins if profile.pins is None else profile.pins,
        servers=tuple(spec for spec in settings.servers if profile.permits_server(spec.name)),
    )


def _unknown(asked: str, source: str, tables: Sequence[_Table]) -> ConfigError:
    known = sorted({*PACKAGED, *(name for table in tables for name in table.words)})
    near = difflib.get_close_matches(asked, known, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return ConfigError(f"there is no profile {asked!r}", where=source, fix=f"{hint}There are: {', '.join(known)}.")
