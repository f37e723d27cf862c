"""Modules and files that hold tools are imported, and what cannot be used is named with what to do.

Imported is what a source says: a dotted module, a `.py` file, or a pattern of files. Tools are the functions named
`handle_*` and those with `@tool` that the module (or, for a package, one of its own modules) defines; a function
that comes from elsewhere counts only where the module's `__all__` names it.
"""

from __future__ import annotations

import glob
import inspect
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from portico.errors import ConfigError

from .functions import PREFIX, LocalTool, make_tool
from .importing import import_file, import_name, submodule_files
from .marks import mark_of

SETTING = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The tools of all sources, and what is wrong with some of them."""

    tools: tuple[LocalTool, ...] = ()
    problems: tuple[ConfigError, ...] = ()


@dataclass(slots=True)
class _Part:
    """What one module gave when it was last imported."""

    files: frozenset[Path] = frozenset()
    tools: tuple[LocalTool, ...] = ()
    problems: tuple[ConfigError, ...] = ()


def load_tools(sources: Sequence[str], folder: Path) -> Loaded:
    """Import every source once; paths are relative to the folder, which is also where modules are looked for."""
    return ToolModules(sources, folder).load()


@dataclass(slots=True)
class ToolModules:
    """The sources of a config, and what they gave; loads them, and again when their files have changed."""

    sources: Sequence[str]
    folder: Path
    _parts: dict[str | Path, _Part] = field(default_factory=dict)

    def load(self) -> Loaded:
        """Import what is not imported yet."""
        return self.reload(())

    def reload(self, changed: Collection[Path]) -> Loaded:
        """Import afresh what has one of these files; a new version that is broken is named, and the old one stays."""
        targets, problems = self._targets()
        parts: dict[str | Path, _Part] = {}
        for target in targets:
            part = self._parts.get(target)
            if part is None or not part.files.isdisjoint(changed):
                part = self._import(target, part)
            parts[target] = part
        self._parts = parts
        return _merge(parts.values(), problems)

    def files(self) -> set[Path]:
        """Every file whose change matters, those that a pattern fits by now included."""
        targets, _ = self._targets()
        found = {target for target in targets if isinstance(target, Path)}
        return found.union(*(part.files for part in self._parts.values()))

    def _targets(self) -> tuple[list[str | Path], list[ConfigError]]:
        """Each module and file once, in the order of the sources."""
        targets: dict[str | Path, None] = {}
        problems: list[ConfigError] = []
        for source in self.sources:
            try:
                targets.update(dict.fromkeys(_resolve(source, self.folder)))
            except ConfigError as error:
                problems.append(error)
        return list(targets), problems

    def _import(self, target: str | Path, before: _Part | None) -> _Part:
        files = {target} if isinstance(target, Path) else set()
        try:
            if isinstance(target, Path):
                module = import_file(target)
            else:
                module = import_name(target, self.folder, is_again=before is not None)
        except ConfigError as error:
            kept = before or _Part()
            # A file that could not be imported may be mended: it is watched all the same.
            places = {Path(error.file)} if error.file else set()
            return _Part(kept.files | files | places, kept.tools, (error,))
        tools, problems = collect(module)
        return _Part(frozenset(files | submodule_files(module)), tuple(tools), tuple(problems))


def collect(module: ModuleType) -> tuple[list[LocalTool], list[ConfigError]]:
    """The tools of a module in the order of their definition, and what their authors should know."""
    tools: list[LocalTool] = []
    problems: list[ConfigError] = []
    for name, function in _candidates(module):
        mark = mark_of(function)
        spelled = (mark.name if mark else "") or name.removeprefix(PREFIX)
        if not spelled:
            problems.append(_problem(module, f"the function {name!r} has no name after {PREFIX!r}", "Give it one."))
            continue
        try:
            tool = make_tool(function, spelled)
        except Exception as error:  # noqa: BLE001  annotations and defaults are a user's code, and may fail in any way
            what = f"no tool can be made of {name!r}: {type(error).__name__}: {error}"
            problems.append(_problem(module, what, "Mend its signature."))
            continue
        tools.append(tool)
        problems += [_note(tool, note) for note in tool.notes]
    if not tools and not problems:
        fix = f"Name a function {PREFIX}something, or put @tool above it."
        problems.append(_problem(module, "it has no tool in it", fix))
    return tools, problems


def _candidates(module: ModuleType) -> Iterator[tuple[str, Any]]:
    exported = getattr(module, "__all__", ())
    for name, value in list(vars(module).items()):
        is_named = name.startswith(PREFIX) and callable(value) and not inspect.isclass(value)
        if name.startswith("_") or not (is_named or (callable(value) and mark_of(value))):
            continue
        home = value.__module__ if inspect.isroutine(value) else module.__name__
        is_own = home == module.__name__ or str(home).startswith(f"{module.__name__}.")
        if is_own or name in exported:
            yield name, value


def _merge(parts: Collection[_Part], problems: list[ConfigError]) -> Loaded:
    """All parts as one; of two tools with one name on one server, the first is offered."""
    found: dict[tuple[str, str], LocalTool] = {}
    for part in parts:
        problems += part.problems
        for tool in part.tools:
            first = found.setdefault((tool.server, tool.name), tool)
            if first is not tool and first.function is not tool.function:
                what = (
                    f"the tool {tool.name!r} is there already, from {first.file}:{first.line}; this one is not offered"
                )
                is_same = (first.file, first.line) == (tool.file, tool.line)
                fix = "Name its file once." if is_same else "Rename one of them."
                problems.append(ConfigError(what, file=tool.file, line=tool.line, where=SETTING, fix=fix))
    return Loaded(tools=tuple(found.values()), problems=tuple(problems))


def _resolve(source: str, folder: Path) -> list[str | Path]:
    """A dotted module as it is, and a path or pattern as the files that it names.

    Raises:
        ConfigError: it names nothing that can be imported.
    """
    if not _is_path(source):
        if all(part.isidentifier() for part in source.split(".")):
            return [source]
        fix = "Write a module such as my_company.tools, or a file such as tools/mine.py."
        raise ConfigError(f"{source!r} is neither a module nor a file", where=SETTING, fix=fix)
    path = folder / Path(source).expanduser()
    if any(sign in source for sign in "*?["):
        found = sorted(Path(name).resolve() for name in glob.glob(str(path), recursive=True) if name.endswith(".py"))
        if not found:
            raise ConfigError(f"no .py file fits {source!r}", where=SETTING, fix=f"It is looked for in {folder}.")
        return list(found)
    if path.is_dir():
        raise ConfigError(f"{source!r} is a folder", where=SETTING, fix=f"Write {source.rstrip('/')}/*.py.")
    if not path.is_file():
        raise ConfigError(f"there is no file {source!r}", where=SETTING, fix=f"It is looked for in {folder}.")
    if path.suffix != ".py":
        raise ConfigError(f"{source!r} is not a .py file", where=SETTING, fix="Name a file of Python functions.")
    return [path.resolve()]


def _is_path(source: str) -> bool:
    return source.endswith(".py") or any(sign in source for sign in "/\\~*?[")


def _problem(module: ModuleType, what: str, fix: str) -> ConfigError:
    return ConfigError(what, file=getattr(module, "__file__", None) or module.__name__, where=SETTING, fix=fix)


def _note(tool: LocalTool, note: str) -> ConfigError:
    return ConfigError(f"the tool {tool.name!r} is offered, but {note}", file=tool.file, line=tool.line, where=SETTING)
