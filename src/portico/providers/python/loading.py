"""Modules and files that hold tools: imported, followed, and what cannot be used is named."""

from __future__ import annotations

import glob
import importlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from threading import Timer, current_thread, main_thread
from types import CodeType, ModuleType
from typing import Any
from zlib import crc32

from portico.errors import ConfigError

from .decorator_and_injection import mark_of
from .functions import PREFIX, LocalTool, make_tool, prints_to_stderr, stdout_diverted

SETTING = "python"
SIGNS = "*?["  # what makes a path a pattern
_OURS = __name__.partition(".")[0]
LONG_SECONDS = 10.0  # an import that takes longer is named

logger = logging.getLogger(__name__)


class _Fresh(SourceFileLoader):
    """Reads a file as it is now: compiled code is neither used nor left beside a user's file."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the file."""
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(path: Path) -> ModuleType:
    """Run a file as a module of its own; what lies beside it can be imported by it.

    Raises:
        ConfigError: it cannot be imported.
    """
    name = f"portico_tools_{path.stem}_{crc32(str(path).encode()):08x}"
    spec = ModuleSpec(name, _Fresh(name, str(path)), origin=str(path))
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    _add_to_path(path.parent)
    with _replacing(name), _importing(str(path), str(path)):
        sys.modules[name] = module
        assert spec.loader is not None
        spec.loader.exec_module(module)
    return module


def import_name(name: str, folder: Path, *, is_again: bool = False) -> ModuleType:
    """Import a dotted module, also from the folder; again means afresh, with all modules that belong to it.

    Raises:
        ConfigError: it cannot be imported.
    """
    _add_to_path(folder, name)
    with _replacing(name) if is_again else nullcontext(), _importing(name):
        if is_again:
            importlib.invalidate_caches()
        return importlib.import_module(name)


def _loaded(name: str) -> dict[str, ModuleType]:
    """A module and those below it, as far as they are loaded."""
    return {known: module for known, module in sys.modules.items() if known == name or known.startswith(f"{name}.")}


def _add_to_path(folder: Path, name: str = "") -> None:
    # At the end, so that nothing in the folder stands in the way of a library of the same name. Modules of ours need
    # nothing of it, and without a config it is whatever folder somebody works in.
    if str(folder) not in sys.path and not name.startswith(f"{_OURS}."):
        sys.path.append(str(folder))


@contextmanager
def _replacing(name: str) -> Iterator[None]:
    """Take a module and those below it out, so that they are imported afresh; put them back when that fails."""
    before = _loaded(name)
    for known, module in before.items():
        del sys.modules[known]
        # Compiled code is told from old by the second of the change, which is too coarse for somebody who edits.
        if file := getattr(module, "__file__", None):
            with suppress(OSError, NotImplementedError):
                Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)
    try:
        yield
    except BaseException:
        for known in _loaded(name):
            del sys.modules[known]
        sys.modules.update(before)
        raise


@contextmanager
def _importing(source: str, file: str = "") -> Iterator[None]:
    """Keep what an import prints from stdout, warn when it takes long, and say what goes wrong with its place."""
    warning = "importing %r has taken %g s, and goes on; if it never ends, mend what it does when it is imported"
    timer = Timer(LONG_SECONDS, logger.warning, (warning, source, LONG_SECONDS))
    timer.daemon = True
    timer.start()
    try:
        with stdout_diverted(), prints_to_stderr():
            yield
    except ModuleNotFoundError as error:
        raise _missing(source, file, error) from error
    except SyntaxError as error:
        near = f" near {text[:60]!r}" if (text := (error.text or "").strip()) else ""
        raise ConfigError(
            f"it is not Python: {error.msg}{near}",
            file=error.filename or file,
            line=error.lineno,
            where=SETTING,
            fix="Mend the line.",
        ) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_thread() is main_thread():
            raise  # somebody wants us to end
        place, line = _origin(error, file)
        what = f"importing {source!r} failed: {type(error).__name__}" + (f": {error}" if str(error) else "")
        is_usual = isinstance(error, Exception)
        fix = "Mend it and try again." if is_usual else "It must be importable without side effects."
        raise ConfigError(" ".join(what.split()), file=place, line=line, where=SETTING, fix=fix) from error
    finally:
        timer.cancel()


def _missing(source: str, file: str, error: ModuleNotFoundError) -> ConfigError:
    wanted = error.name or "?"
    if not file and (source == wanted or source.startswith(f"{wanted}.")):
        fix = "Install it where Portico is installed, or write the path of its file."
        return ConfigError(f"there is no module {source!r}", where=SETTING, fix=fix)
    place, line = _origin(error, file)
    fix = f"Install {wanted.partition('.')[0]!r} where Portico is installed, or mend the import."
    return ConfigError(
        f"{source!r} imports {wanted!r}, which is not there", file=place, line=line, where=SETTING, fix=fix
    )


def _origin(error: BaseException, file: str) -> tuple[str | None, int | None]:
    """The last line of the user's own file that led to an error; without a file, of any that is not the importer's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if (frame.filename == file if file else _is_foreign(frame.filename))]
    return (own[-1].filename, own[-1].lineno) if own else (file or None, None)


def _is_foreign(filename: str) -> bool:
    return not filename.startswith("<") and filename != __file__ and "importlib" not in Path(filename).parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTools:
    """The tools of all sources, and what is wrong with some of them."""

    tools: tuple[LocalTool, ...] = ()
    problems: tuple[ConfigError, ...] = ()


@dataclass(frozen=True, slots=True)
class _Imported:
    """The result of the last import of one module."""

    files: frozenset[Path] = frozenset()
    tools: tuple[LocalTool, ...] = ()
    problems: tuple[ConfigError, ...] = ()


def load_tools(sources: Sequence[str], folder: Path) -> LoadedTools:
    """Import every source once; paths are relative to the folder, which is also where modules are looked for."""
    return ToolModules(sources, folder).reload(())


@dataclass(slots=True)
class ToolModules:
    """The sources of a config, and what they gave; loads them, and again when their files have changed."""

    sources: Sequence[str]
    folder: Path
    _imported: dict[str | Path, _Imported] = field(default_factory=dict)

    def reload(self, changed: Collection[Path]) -> LoadedTools:
        """Import what is not imported yet or has one of these files; of one that is broken the old version stays."""
        targets, problems = self._targets()
        imported: dict[str | Path, _Imported] = {}
        for target in targets:
            before = self._imported.get(target)
            is_known = before is not None and before.files.isdisjoint(changed)
            imported[target] = before if before is not None and is_known else self._import(target, before)
        self._imported = imported
        return _merge(imported.values(), problems)

    def files(self) -> set[Path]:
        """Every file whose change matters, those that a pattern fits by now included."""
        targets, _ = self._targets()
        found = {target for target in targets if isinstance(target, Path)}
        return found.union(*(one.files for one in self._imported.values()))

    def folders(self) -> set[Path]:
        """Every folder in which something may change that matters, or may come to be."""
        patterns = [self.folder / Path(source).expanduser() for source in self.sources if _is_path(source)]
        folders = {folder for pattern in patterns for folder in _folders(pattern)}
        return folders | {file.parent for file in self.files() if file.parent.is_dir()}

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

    def _import(self, target: str | Path, before: _Imported | None) -> _Imported:
        files = {target} if isinstance(target, Path) else set()
        try:
            if isinstance(target, Path):
                module = import_file(target)
            else:
                module = import_name(target, self.folder, is_again=before is not None)
        except ConfigError as error:
            kept = before or _Imported()
            # A file that could not be imported may be mended: it is watched all the same.
            places = {Path(error.file)} if error.file else set()
            return _Imported(kept.files | files | places, kept.tools, (error,))
        names = [getattr(one, "__file__", None) for one in _loaded(module.__name__).values()]
        files |= {Path(name).resolve() for name in names if name}
        tools, problems = collect(module)
        return _Imported(frozenset(files), tuple(tools), tuple(problems))


def _folders(path: Path) -> Iterator[Path]:
    """The folders that fit the beginning of a path or pattern; of one without signs the nearest that is there."""
    for folder in path.parents:
        has_signs = any(sign in str(folder) for sign in SIGNS)
        found = map(Path, glob.glob(str(folder), recursive=True)) if has_signs else (folder,)
        folders = [one for one in found if one.is_dir()]
        yield from folders
        if folders and not has_signs:
            return


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


def _merge(parts: Collection[_Imported], problems: list[ConfigError]) -> LoadedTools:
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
    return LoadedTools(tools=tuple(found.values()), problems=tuple(problems))


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
    found = files_named(source, folder, (".py",), SETTING)
    if found[0].suffix != ".py":
        raise ConfigError(f"{source!r} is not a .py file", where=SETTING, fix="Name a file of Python functions.")
    return list(found)


def files_named(source: str, folder: Path, suffixes: tuple[str, ...], setting: str) -> list[Path]:
    """The files that a path or pattern names, in order; a pattern names those with one of the suffixes.

    Raises:
        ConfigError: there is none.
    """
    path = folder / Path(source).expanduser()
    if any(sign in source for sign in SIGNS):
        names = glob.glob(str(path), recursive=True)
        found = sorted(Path(name).resolve() for name in names if name.endswith(suffixes) and Path(name).is_file())
        if not found:
            what = f"no {' or '.join(suffixes)} file fits {source!r}"
            raise ConfigError(what, where=setting, fix=f"It is looked for in {folder}.")
        return found
    if path.is_dir():
        raise ConfigError(f"{source!r} is a folder", where=setting, fix=f"Write {source.rstrip('/')}/*{suffixes[0]}.")
    if not path.is_file():
        raise ConfigError(f"there is no file {source!r}", where=setting, fix=f"It is looked for in {folder}.")
    return [path.resolve()]


def _is_path(source: str) -> bool:
    return source.endswith(".py") or any(sign in source for sign in f"/\\~{SIGNS}")


def _problem(module: ModuleType, what: str, fix: str) -> ConfigError:
    return ConfigError(what, file=getattr(module, "__file__", None) or module.__name__, where=SETTING, fix=fix)


def _note(tool: LocalTool, note: str) -> ConfigError:
    return ConfigError(f"the tool {tool.name!r} is offered, but {note}", file=tool.file, line=tool.line, where=SETTING)
