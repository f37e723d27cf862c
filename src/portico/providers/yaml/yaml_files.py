"""Reads the YAML files of a config: what can be used is offered, the rest is named with file, line and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portico.documents.values_with_positions import Member
from portico.documents.yaml_text import parse
from portico.domain.suggestions import did_you_mean
from portico.errors import ConfigError
from portico.providers.python import LocalProvider, LocalTool
from portico.providers.python.loading import files_named

from .command_tools import command_tool
from .prompts_and_glossaries import (
    RESOURCE,
    TERM_TEMPLATE,
    GlossaryTerm,
    Prompt,
    PromptsAndTerms,
    read_prompt,
    read_terms,
)
from .sql_and_cube_tools import cube_tool, sql_tool
from .tool_entries import YamlTable

SETTING = "yaml"
FILE_BYTES = 1_000_000
DEPTH, NODES = 20, 50_000
"""The levels of a file's values, and their number with its aliases."""
SUFFIXES = (".yml", ".yaml")
PACKAGED = Path(__file__).parents[1] / "database_tools"
TYPES = ("tool", "prompt", "glossary", "cube")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")

Made = LocalTool | Prompt | tuple[GlossaryTerm, ...]
"""The result of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedYaml:
    """The tools, prompts and terms of all files, and the problems of some of them."""

    tools: tuple[LocalTool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    terms: tuple[GlossaryTerm, ...] = ()
    problems: tuple[ConfigError, ...] = ()
    files: tuple[Path, ...] = ()
    """Every file that was looked at, so that they can be watched."""

    def install(self, provider: LocalProvider) -> None:
        """Let a provider list and answer the prompts and the glossary; tools are given to it by `take`."""
        items = PromptsAndTerms(self.prompts, self.terms)
        provider.prompts = [prompt.definition for prompt in self.prompts]
        provider.resources = [RESOURCE] if self.terms else []
        provider.templates = [TERM_TEMPLATE] if self.terms else []
        provider.handlers["prompts/get"] = items.get_prompt
        provider.handlers["resources/read"] = items.read_resource
        provider.handlers["completion/complete"] = items.complete


@dataclass(slots=True)
class _Loaded:
    """Entries by name; a later file's entry takes the place of an earlier one's."""

    dialect: str
    made: dict[str, Made] = field(default_factory=dict)
    problems: list[ConfigError] = field(default_factory=list)

    def read(self, file: Path) -> None:
        """Read the entries of a file; of two with one name the first is offered."""
        first: dict[str, Member] = {}
        try:
            root = parse(_text(file), str(file), depth=DEPTH, nodes=NODES)
            if root.members is None:
                what, fix = f"the file holds {root.kind}, not a table of entries", "Write entries such as"
                raise ConfigError(what, file=str(file), line=1, fix=f"{fix} `my_tool: {{type: tool, ...}}`")
        except ConfigError as error:
            self.problems.append(error)
            return
        for member in root.members:
            known = first.setdefault(member.key, member)
            if known is member:
                self._make(member, file)
                continue
            what = f"{member.key[:100]!r} is there already, in line {known.line}; this one is not offered"
            self.problems.append(ConfigError(what, file=str(file), line=member.line, fix="Rename one of them"))

    def _make(self, member: Member, file: Path) -> None:
        notes: list[ConfigError] = []
        try:
            if not _NAME.fullmatch(member.key):
                what = f"an entry cannot be called {member.key[:60]!r}"
                fix = "Use up to 128 letters, digits, _, - and ., and begin with a letter"
                raise ConfigError(what, file=str(file), line=member.line, fix=fix)
            entry = YamlTable(member.node, name=member.key, file=str(file), notes=notes, line=member.line)
            self.made[member.key] = _made(entry, file.parent, self.dialect)
            self.problems += notes
        except ConfigError as error:
            self.problems.append(error)


def load_yaml(patterns: Sequence[str], folder: Path, packaged: bool = True, *, dialect: str = "") -> LoadedYaml:
    """Read the packaged files and then those that the patterns name, relative to the folder.

    `dialect` is the SQL that the database speaks; without it, SQL is read as any of the common ones.
    """
    loaded = _Loaded(dialect)
    files = sorted(file for file in PACKAGED.glob("*.yml")) if packaged else []
    for pattern in patterns:
        try:
            files += files_named(pattern, folder, SUFFIXES, SETTING)
        except ConfigError as error:
            loaded.problems.append(error)
    files = list(dict.fromkeys(files))
    for file in files:
        loaded.read(file)
    made = loaded.made.values()
    # Of two terms with one name the later counts, as it does for entries.
    terms = {term.name.casefold(): term for one in made if isinstance(one, tuple) for term in one}
    return LoadedYaml(
        tools=tuple(one for one in made if isinstance(one, LocalTool)),
        prompts=tuple(one for one in made if isinstance(one, Prompt)),
        terms=tuple(terms.values()),
        problems=tuple(loaded.problems),
        files=tuple(files),
    )


def _made(entry: YamlTable, folder: Path, dialect: str) -> Made:
    kind = entry.text("type")
    if kind == "prompt":
        return read_prompt(entry)
    if kind == "glossary":
        return tuple(read_terms(entry))
    if kind == "cube":
        return cube_tool(entry, dialect)
    if kind != "tool":
        near = did_you_mean(kind, TYPES, limit=1).replace("did", "Did", 1)
        raise entry.wrong(f"there is no type {kind[:40]!r}", near or f"Write one of {', '.join(TYPES)}")
    if entry.has("sql") == entry.has("command"):
        raise entry.wrong("a tool has either `sql` or `command`", "Write one of them")
    return sql_tool(entry, dialect) if entry.has("sql") else command_tool(entry, folder)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(FILE_BYTES + 1)
    except OSError as error:
        fix = "Check its permissions"
        raise ConfigError(f"the file cannot be read: {error.strerror}", file=str(file), fix=fix) from error
    if len(raw) > FILE_BYTES:
        raise ConfigError(f"the file has more than {FILE_BYTES:,} bytes", file=str(file), fix="Split it")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text", file=str(file), line=line, fix="Save it as UTF-8") from error
