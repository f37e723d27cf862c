"""Files are replaced whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from portico.errors import ConfigError

_PRIVATE = 0o600
"""Config files hold secrets: a new one is for its owner alone."""


def write_atomically(file: Path, content: bytes, *, like: Path | None = None) -> None:
    """Put content in the place of a file's, with the mode and owner of that file, or of another one it is `like`.

    A link keeps pointing at its target.

    Raises:
        ConfigError: the folder or file cannot be written; nothing has changed then.
    """
    target = Path(os.path.realpath(file))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise _unwritable(file, error) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        _dress(name, like or target)
        os.replace(name, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise _unwritable(file, error) from None


def free_name(file: Path, suffix: str) -> Path:
    """A name beside a file that nothing has yet: `NAME.suffix`, then `NAME.suffix.2` and so on."""
    return _numbered(file, suffix, (_latest_number(file, suffix) or 0) + 1)


def latest_name(file: Path, suffix: str) -> Path | None:
    """The newest of the numbered files beside a file."""
    number = _latest_number(file, suffix)
    return _numbered(file, suffix, number) if number is not None else None


def _latest_number(file: Path, suffix: str) -> int | None:
    """The highest number among the numbered files beside a file; the plain name is number one."""
    number = None
    with contextlib.suppress(OSError):
        plain = f"{file.name}.{suffix}"
        for name in os.listdir(file.parent):
            tail = name.removeprefix(plain)
            if name == plain:
                number = max(number or 1, 1)
            elif name.startswith(plain) and tail[0] == "." and tail[1:].isdecimal():
                number = max(number or 0, int(tail[1:]))
    return number


def _numbered(file: Path, suffix: str, number: int) -> Path:
    return file.with_name(f"{file.name}.{suffix}" + (f".{number}" if number > 1 else ""))


def _dress(name: str, model: Path) -> None:
    try:
        status = os.stat(model)
    except FileNotFoundError:
        os.chmod(name, _PRIVATE)
        return
    os.chmod(name, status.st_mode & 0o7777)
    # Under sudo the file must go on belonging to its user; anyone else may not give files away, and need not.
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(name, status.st_uid, status.st_gid)


def _unwritable(file: Path, error: OSError) -> ConfigError:
    fix = "Check the folder's permissions and the free space."
    return ConfigError(f"the file cannot be written ({error.strerror or error})", file=str(file), fix=fix)
