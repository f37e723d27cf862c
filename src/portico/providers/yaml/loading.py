"""Reads the YAML files of a config: what can be used is offered, the rest is named with file, line and what to do."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from portico.documents.tree import Member, Node
from portico.documents.yaml_text import parse
from portico.errors import ConfigError
from portico.providers.python import LocalProvider, LocalTool

from .command_tools import command_tool
from .parameters import YamlTable
from .sql_tools import cube_tool, sql_tool
from .texts import (
    COMPLETED,
    RESOURCE,
    TEMPLATE,
    TERM_TEMPLATE,
    Glossary,
    GlossaryTerm,
    Prompt,
    Prompts,
    invalid,
    read_prompt,
    read_terms,
)

SETTING = "yaml"
FILE_BYTES = 1_000_000
DEPTH, NODES = 20, 50_000
"""How deep the values of a file may be nested, and how many there may be with its aliases."""
SUFFIXES = (".yml", ".yaml")
PACKAGED = Path(__file__).parents[2] / "packaged"
TYPES = ("tool", "prompt", "glossary", "cube")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}")

Made = LocalTool | Prompt | tuple[GlossaryTerm, ...]
"""What becomes of an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedYaml:
    """What all files together offer, and what is wrong with some of them."""

    tools: tuple[LocalTool, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    terms: tuple[GlossaryTerm, ...] = ()
    problems: tuple[ConfigError, ...] = ()
    files: tuple[Path, ...] = ()
    """Every file that was looked at, so that they can be watched."""

    @property
    def resources(self) -> tuple[Mapping[str, Any], ...]:
        """The resources as they are listed."""
        return (RESOURCE,) if self.terms else ()

    @property
    def templates(self) -> tuple[Mapping[str, Any], ...]:
        """The resource templates as they are listed."""
        return (TERM_TEMPLATE,) if self.terms else ()

    def make_test_app(self, provider: LocalProvider) -> None:
        """Let a provider list and answer the prompts and the glossary; tools are given to it by `take`."""
        cli_context = _Desk(Prompts({prompt.name: prompt for prompt in self.prompts}), Glossary(self.terms))
        provider.prompts = [prompt.definition for prompt in self.prompts]
        provider.resources, provider.templates = list(self.resources), list(self.templates)
        provider.handlers["prompts/get"] = cli_context.prompts.get
        provider.handlers["resources/read"] = cli_context.glossary.read
        provider.handlers["completion/complete"] = cli_context.complete


@dataclass(frozen=True, slots=True)
class _Desk:
    prompts: Prompts
    glossary: Glossary

    def complete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        ref, argument = params.get("ref"), params.get("argument")
        if not isinstance(ref, Mapping) or not isinstance(argument, Mapping):
            raise invalid("completion/complete", "completion/complete needs `ref` and `argument`")
        name, value = str(argument.get("name")), str(argument.get("value", ""))
        if ref.get("type") == "ref/prompt":
            found = self.prompts.complete(ref.get("name"), name, value)
        else:
            found = self.glossary.complete(value) if (ref.get("uri"), name) == (TEMPLATE, "name") else []
        shown = found[:COMPLETED]
        return {"completion": {"values": shown, "total": len(found), "hasMore": len(found) > len(shown)}}


@dataclass(slots=True)
class _Shelf:
    """What was made so far, by name; a later file's entry takes the place of an earlier one's."""

    dialect: str
    made: dict[str, Made] = field(default_factory=dict)
    problems: list[ConfigError] = field(default_factory=list)

    def read(self, file: Path) -> None:
        try:
            root = parse(_text(file), str(file), depth=DEPTH, nodes=NODES)
            for member in self._entries(root, file):
                self._make(member, file)
        except ConfigError as error:
            self.problems.append(error)

    def _entries(self, root: Node, file: Path) -> Iterable[Member]:
        if root.members is None:
            fix = "Write entries such as `my_tool: {type: tool, ...}`"
            raise ConfigError(f"the file holds {root.kind}, not a table of entries", file=str(file), line=1, fix=fix)
        first: dict[str, Member] = {}
        for member in root.members:
            if first.setdefault(member.key, member) is member:
                yield member
                continue
            what = f"{member.key[:100]!r} is there already, in line {first[member.key].line}; this one is not offered"
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
    shelf = _Shelf(dialect)
    files = sorted(file for file in PACKAGED.glob("*.yml")) if packaged else []
    for pattern in patterns:
        try:
            files += _resolve(pattern, folder)
        except ConfigError as error:
            shelf.problems.append(error)
    files = list(dict.fromkeys(files))
    for file in files:
        shelf.read(file)
    made = shelf.made.values()
    return LoadedYaml(
        tools=tuple(one for one in made if isinstance(one, LocalTool)),
        prompts=tuple(one for one in made if isinstance(one, Prompt)),
        terms=_all_terms(shelf),
        problems=tuple(shelf.problems),
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
        near = get_close_matches(kind, TYPES, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Write one of {', '.join(TYPES)}"
        raise entry.wrong(f"there is no type {kind[:40]!r}", hint)
    if entry.has("sql") == entry.has("command"):
        raise entry.wrong("a tool has either `sql` or `command`", "Write one of them")
    return sql_tool(entry, dialect) if entry.has("sql") else command_tool(entry, folder)


def _all_terms(shelf: _Shelf) -> tuple[GlossaryTerm, ...]:
    """The terms of all glossaries; of two with one name the later counts, as it does for entries."""
    found = {term.name.casefold(): term for one in shelf.made.values() if isinstance(one, tuple) for term in one}
    return tuple(found.values())


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


def _resolve(pattern: str, folder: Path) -> list[Path]:
    """The files that a pattern names, in order.

    Raises:
        ConfigError: there is none.
    """
    path = folder / Path(pattern).expanduser()
    if any(sign in pattern for sign in "*?["):
        names = glob.glob(str(path), recursive=True)
        found = sorted(Path(name).resolve() for name in names if name.endswith(SUFFIXES) and Path(name).is_file())
        if not found:
            fix = f"It is looked for in {folder}"
            raise ConfigError(f"no .yml or .yaml file fits {pattern!r}", where=SETTING, fix=fix)
        return found
    if path.is_dir():
        raise ConfigError(f"{pattern!r} is a folder", where=SETTING, fix=f"Write {pattern.rstrip('/')}/*.yml")
    if not path.is_file():
        raise ConfigError(f"there is no file {pattern!r}", where=SETTING, fix=f"It is looked for in {folder}")
    return [path.resolve()]
