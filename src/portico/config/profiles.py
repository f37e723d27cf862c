"""Profiles: where they are written, how one is read, and the settings under the one that is chosen."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from portico.documents.document import Document, read_document
from portico.documents.values_with_positions import TreePath
from portico.domain.server import DatabaseSpec
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Pattern, Profile
from portico.errors import ConfigError

from .reader import Fields, suggest
from .settings import SURFACES, GatewaySettings, absolute, is_meant
from .trust import PROFILES, found_here
from .variables_and_masking import Variables

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
    place: TreePath = ()
    is_ours: bool
    """Whether a config names it: then all of it is judged, and not only what is chosen."""

    @property
    def profiles(self) -> dict[str, Any]:
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
    def written(self) -> Any:
        """Where the config itself says that the profiles are, if it does."""
        data = self.config.data if self.config else None
        return data.get("profiles") if isinstance(data, dict) else None

    def tables(self, asked: str) -> Iterator[_Table]:
        """The tables, nearest first; a file that only has the right name is left alone unless a profile is wanted."""
        if isinstance(self.written, str):
            yield from self._named(self.written)
            return
        if self.config is not None and isinstance(self.written, dict):
            yield _Table(document=self.config, place=("profiles",), is_ours=True)
        elif self.config is not None and self.written is not None:
            fix = "Write the path of a file of profiles, or a table of them."
            self._note(self.config.error("this must be a path or a table", ("profiles",), fix=fix))
        if asked:
            yield from self._found(asked)

    def _named(self, text: str) -> Iterator[_Table]:
        assert self.config is not None, "the text stands in it"
        try:
            path = absolute(self.variables.expand(text), self.variables.environ, self.variables.folder)
        except ConfigError as error:
            self._note(self.config.error(error.problem, ("profiles",), fix=error.fix))
        else:
            yield from self._file(path, is_ours=True)

    def _found(self, asked: str) -> Iterator[_Table]:
        beside = (self.variables.folder / name for name in PROFILES) if self.config else ()
        # Files in the working directory may be anybody's: without trust they only add names of their own.
        anybodys = map(self.cwd.joinpath, PROFILES)
        here = found_here(PROFILES, self.variables.environ, self.cwd) if asked in PACKAGED else anybodys
        file = next((file for files in (beside, here) for file in files if file.is_file()), None)
        if file is not None:
            yield from self._file(file, is_ours=False)

    def _file(self, file: Path, *, is_ours: bool) -> Iterator[_Table]:
        self.variables.files.add(file)
        try:
            document = read_document(file)
            if document.data is not None and not isinstance(document.data, dict):
                fix = "Write a name for each profile, with its lists below it."
                raise document.error("a file of profiles must be a table", line=1, fix=fix)
        except ConfigError as error:
            self._note(error)
        else:
            yield _Table(document=document, is_ours=is_ours)

    def _note(self, error: ConfigError) -> None:
        self.unread = error
        self.problems.append(error)

    def profile(self, table: _Table, name: str) -> Profile | ConfigError:
        """One profile, or what makes it unusable: a wrong reading of it could offer what it was meant to hide."""
        place, written = (*table.place, name), table.profiles[name]
        if written is not None and not isinstance(written, dict):
            fix = f"Use some of: {', '.join(PROFILE_KEYS)}."
            self.problems.append(table.document.error("a profile must be a table", place, fix=fix))
            return self.problems[-1]
        fields = Fields(written or {}, document=table.document, path=place, variables=self.variables)
        found = _profile(name, fields)
        self.problems += fields.problems
        return found if fields.is_usable else fields.problems[0]


def with_profile(
    settings: GatewaySettings, config: Document | None, named: str | None, environ: Mapping[str, str], cwd: Path
) -> GatewaySettings:
    """The settings under the profile that the command line or the environment chooses, if any.

    Raises:
        ConfigError: there is no such profile, or it cannot be used.
    """
    candidates = [("--profile", named), *((variable, environ.get(variable)) for variable in VARIABLES)]
    asked, source = next(((text.strip(), source) for source, text in candidates if text and text.strip()), ("", ""))
    folder = config.file.absolute().parent if config else cwd
    reader = _Reader(variables=Variables(environ=environ, folder=folder), config=config, cwd=cwd)
    tables = [*reader.tables(asked)]
    judged = [
        (name, reader.profile(table, name))
        for table in tables
        for name in table.profiles
        if table.is_ours or name == asked
    ]
    if reader.unread is not None and reader.written is not None:
        raise reader.unread
    if not asked:
        return replace(settings, problems=(*settings.problems, *reader.problems))
    nearest = next((profile for name, profile in judged if name == asked), None)
    # A file that cannot be read may hold a profile of this name: what comes with Portico must not stand in for it.
    profile = nearest or reader.unread or packaged(asked) or _unknown(asked, source, tables)
    if isinstance(profile, ConfigError):
        raise profile
    # What comes with Portico pins something only where the config itself does not.
    pins = None if settings.catalog.pins and not nearest else profile.pins
    return replace(
        settings,
        home=replace(settings.home, included=tuple(sorted({*settings.home.included, *reader.variables.files}))),
        problems=(*settings.problems, *reader.problems, *_misspelt_servers(settings, profile)),
        profile=replace(profile, pins=pins),
        surface=profile.surface or settings.surface,
        catalog=settings.catalog if pins is None else replace(settings.catalog, pins=pins),
        servers=tuple(spec for spec in settings.servers if profile.permits_server(spec.name)),
    )


def packaged(name: str) -> Profile | None:
    """The profile of that name that comes with Portico."""
    table = PACKAGED.get(name)
    if table is None:
        return None
    patterns: dict[str, Any] = {
        key: tuple(map(read_pattern, table[key])) for key in ("tool", "prompt", "resource") if key in table
    }
    pins = tuple(table["pins"]) if "pins" in table else None
    return Profile(name=name, **patterns, registry=table.get("registry", ""), pins=pins)


def read_surface(fields: Fields, *, fatal: bool = True) -> str:
    """The surface that a table names; empty when it names none."""
    surface = fields.text("surface").strip()
    if surface and surface not in SURFACES:
        fields.report("this is not a surface", "surface", fix=suggest(surface, SURFACES), fatal=fatal)
        return ""
    return surface


def _profile(name: str, fields: Fields) -> Profile:
    for key in fields.table:
        if key not in PROFILE_KEYS:
            fix = suggest(key, PROFILE_KEYS)
            is_misspelt = fix.startswith("Did you mean") or is_meant(key, PROFILE_KEYS)
            fields.report("this key is not known", key, fix=fix, fatal=is_misspelt)
    surface = read_surface(fields, fatal=False)
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


def _misspelt_servers(settings: GatewaySettings, profile: Profile) -> Iterator[ConfigError]:
    """Servers of a profile that are probably misspelt; one that resembles nothing may be a server of local tools."""
    names = [spec.name for spec in settings.servers]
    for server in profile.servers or ():
        near = nearest_names(server, names, limit=1)
        if near and server not in names and not any(sign in server for sign in "*?["):
            where = f"profile {profile.name!r}"
            yield ConfigError(f"no server is called {server!r}", where=where, fix=f"Did you mean {near[0]!r}?")


def _unknown(asked: str, source: str, tables: Sequence[_Table]) -> ConfigError:
    known = sorted({*PACKAGED, *(name for table in tables for name in table.profiles)})
    near = nearest_names(asked, known, limit=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return ConfigError(f"there is no profile {asked!r}", where=source, fix=f"{hint}There are: {', '.join(known)}.")


def with_registry(settings: GatewaySettings) -> GatewaySettings:
    """The settings with the databases that the chosen profile leaves, and with the one that its `registry` asks for."""
    profile, local = settings.profile, settings.local
    databases = tuple(spec for spec in settings.databases if profile.permits_server(spec.name))
    settings = replace(settings, databases=databases)
    schema = profile.registry
    if not schema or any(schema in (spec.registry, spec.name) for spec in databases):
        return settings
    if not local.database_uri:
        problem = ConfigError(
            f"it asks for the registry {schema!r}, and no database is named",
            where=f"profile {profile.name!r}",
            fix="Set DATABASE_URI, or name the database under databases in the config.",
        )
        return replace(settings, problems=(*settings.problems, problem))
    spec = DatabaseSpec(name=schema, url=local.database_uri, registry=schema, allow_superuser=local.allow_superuser)
    return replace(settings, databases=(*databases, spec))


PATTERN_LENGTH = 500  # characters that a pattern may have
NAME_LENGTHS = (512, 256, 128, 64)
"""The longest name that a pattern is tried on: the first of these at which it takes few steps."""
STEPS = 3_000_000  # ways of reading a name that one match may try, at the very most

_QUANTIFIER = re.compile(r"(?:\*|\+|\?|\{(?P<least>\d*)(?P<comma>,?)(?P<most>\d*)\})[?+]?")
_OPENING = re.compile(r"\(\?(?:P<\w+>|<?[=!]|[aiLmsu-]*:|>)|\((?!\?)")
_ASIDE = re.compile(r"\(\?(?:#[^)]*|P=\w+|[aiLmsu]+)\)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def read_pattern(text: str) -> Pattern:
    """Compile a pattern that is quick on any name.

    Raises:
        ValueError: it is no regular expression, too long, or could take too many steps; says which.
    """
    if len(text) > PATTERN_LENGTH:
        raise ValueError(f"this pattern is longer than {PATTERN_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what a later Python may read otherwise, this one reads so
            compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"this is not a regular expression: {error}") from None
    for longest in NAME_LENGTHS:
        if _steps(text, longest) <= STEPS:
            return Pattern(text, longest, compiled)
    raise ValueError("this pattern has so many repeats and alternatives that it may never end")


@dataclass(slots=True)
class _Group:
    """The readings of one group so far: of the alternatives before, and of the one that is being read."""

    before: float = 0.0
    current: float = 1.0
    varies: bool = False  # whether it can match one text in more than one way, as far as this can be told


def _steps(text: str, length: int) -> float:
    """How many ways there are at most to read a name of that length; each repeat multiplies, an alternative adds."""
    groups, at = [_Group()], 0
    while at < len(text):
        inner = _Group()
        if aside := _ASIDE.match(text, at):
            at = aside.end()
            continue
        if text[at] == "|":
            groups[-1] = _Group(groups[-1].before + groups[-1].current, varies=True)
            at += 1
            continue
        if opening := _OPENING.match(text, at):
            groups.append(_Group())
            at = opening.end()
            continue
        if text[at] == ")" and len(groups) > 1:
            inner = groups.pop()
            at += 1
        else:
            at = _atom_end(text, at)
        at = _repeat(text, at, inner, groups[-1], length)
    return groups[0].before + groups[0].current


def _atom_end(text: str, at: int) -> int:
    """Where one letter, escape or class ends.

    Raises:
        ValueError: this is a sign that nobody reads here.
    """
    if text.startswith("(", at):
        raise ValueError("this pattern has a kind of group that is not known here")
    found = _CLASS.match(text, at)
    return found.end() if found else at + (2 if text[at] == "\\" else 1)


def _repeat(text: str, at: int, inner: _Group, outer: _Group, length: int) -> int:
    """Take one item into its group, as often as the sign behind it says; returns where the next one begins.

    Raises:
        ValueError: a repeat of something that repeats.
    """
    readings = inner.before + inner.current
    found = _QUANTIFIER.match(text, at)
    if found is None or (found[0].startswith("{") and not (found["least"] or found["comma"])):
        outer.current *= readings
        outer.varies = outer.varies or inner.varies
        return at
    least, most = _bounds(found)
    if inner.varies and (most is None or most > 1):
        raise ValueError("this pattern repeats a group that repeats or has alternatives, which may never end")
    is_fixed = least == most
    outer.current *= readings if is_fixed else readings + (length if most is None else min(most - least, length))
    outer.varies = outer.varies or inner.varies or not is_fixed
    return found.end()


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[0][0])
    if simple is not None:
        return simple
    least = int(found["least"] or 0)
    if not found["comma"]:
        return least, least
    return least, int(found["most"]) if found["most"] else None
