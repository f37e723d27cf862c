"""Imports one module or one file of a user's, afresh when it is asked for, and translates what goes wrong."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from threading import Timer, current_thread, main_thread
from types import CodeType, ModuleType
from zlib import crc32

from portico.errors import ConfigError

from .printing import prints_aside, stdout_kept

SETTING = "python"
_OURS = __name__.partition(".")[0]
LONG_SECONDS = 10.0
"""An import that takes longer is named."""

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
    with _replacing(name), _explained(str(path), str(path)), _findable(path.parent), _watched(str(path)):
        sys.modules[name] = module
        assert spec.loader is not None
        spec.loader.exec_module(module)
    return module


def import_name(name: str, folder: Path, *, is_again: bool = False) -> ModuleType:
    """Import a dotted module, also from the folder; again means afresh, with all modules that belong to it.

    Raises:
        ConfigError: it cannot be imported.
    """
    if not is_again:
        with _explained(name, ""), _findable(folder, name), _watched(name):
            return importlib.import_module(name)
    with _replacing(name), _explained(name, ""), _findable(folder, name), _watched(name):
        importlib.invalidate_caches()
        return importlib.import_module(name)


def submodule_files(module: ModuleType) -> set[Path]:
    """The file of a module, and for a package those of its modules that are loaded."""
    names = [name for name in sys.modules if name == module.__name__ or name.startswith(f"{module.__name__}.")]
    files = {getattr(sys.modules[name], "__file__", None) for name in names}
    return {Path(file).resolve() for file in files if file}


@contextmanager
def _replacing(name: str) -> Iterator[None]:
    """Take a module and those below it out, so that they are imported afresh; put them back when that fails."""
    before = {known: module for known, module in sys.modules.items() if known == name or known.startswith(f"{name}.")}
    for known, module in before.items():
        del sys.modules[known]
        _forget_compiled(module)
    try:
        yield
    except BaseException:
        for known in [known for known in sys.modules if known == name or known.startswith(f"{name}.")]:
            del sys.modules[known]
        sys.modules.update(before)
        raise


def _forget_compiled(module: ModuleType) -> None:
    """Compiled code is told from old by the second of the change, which is too coarse for somebody who edits."""
    if file := getattr(module, "__file__", None):
        with suppress(OSError, NotImplementedError):
            Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)


@contextmanager
def _findable(folder: Path, name: str = "") -> Iterator[None]:
    # At the end, so that nothing in the folder stands in the way of a library of the same name. Modules of ours need
    # nothing of it, and without a config it is whatever folder somebody works in.
    if str(folder) not in sys.path and not name.startswith(f"{_OURS}."):
        sys.path.append(str(folder))
    yield


@contextmanager
def _watched(source: str) -> Iterator[None]:
    """Keep what an import prints from stdout, and name it when it takes long, so that people know what we wait for."""
    said = "importing %r has taken %g s, and goes on; if it never ends, mend what it does when it is imported"
    timer = Timer(LONG_SECONDS, logger.warning, (said, source, LONG_SECONDS))
    timer.daemon = True
    timer.start()
    try:
        with stdout_kept(), prints_aside():
            yield
    finally:
        timer.cancel()


@contextmanager
def _explained(source: str, file: str) -> Iterator[None]:
    """What goes wrong while a module is imported, as one sentence with the place."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(source, file, error) from error
    except SyntaxError as error:
        where = f"{error.msg}" + (f" near {error.text.strip()[:60]!r}" if error.text and error.text.strip() else "")
        raise ConfigError(
            f"it is not Python: {where}",
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
