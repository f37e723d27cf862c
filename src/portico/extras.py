"""Packages that can be left out, and what to install where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from portico.errors import ConfigError

EXTRAS = {
    "PIL": ("Pillow", "plots"),
    "lupa": ("lupa", "scripts"),
    "psycopg": ("psycopg", "postgres"),
}
"""Modules -> the package that has each, and the extra that brings it."""


@contextmanager
def extra_for(what: str) -> Iterator[None]:
    """While this is open, a package that is missing is said with the way to install it.

    Raises:
        ConfigError: one of the extras is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        known = EXTRAS.get((error.name or "").partition(".")[0])
        if known is None:
            raise
        raise not_installed(what, *known) from error


def not_installed(what: str, package: str, extra: str) -> ConfigError:
    """What to say of a package that is missing."""
    return ConfigError(f"{what} need {package}, which is not installed", fix=install_hint(extra))


def install_hint(extra: str) -> str:
    """How an extra is installed."""
    return f"Run: pip install 'portico[{extra}]'"
