"""What the command line is given by whoever starts it, and the ways a command can end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import typer

if TYPE_CHECKING:
    from portico.house import House


class Exit(IntEnum):
    """Exit codes; documented in the CLI reference and stable."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    UNKNOWN = 4
    INVALID = 5
    UPSTREAM = 6


class Serve(Protocol):
    """Serves until it is told to stop."""

    def __call__(
        self,
        config: str | None,
        *,
        stdio: bool,
        surface: str | None,
        host: str | None,
        port: int | None,
        profile: str | None = None,
        reload: bool = False,
        log_level: str = "",
        log_format: str = "",
    ) -> None:
        """Serve over stdio or HTTP; what is None comes from the config."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The doors that commands open."""

    open_house: Callable[[str | None], AbstractAsyncContextManager[House]]
    serve: Serve
    demo: Callable[[bool, int | None], None]
    version: str
    surface_tokens: Callable[[House, str], int]


@dataclass(slots=True, kw_only=True)
class Options:
    """What every command shares: the desk and the global options."""

    desk: Desk
    config: str | None = None


def options(ctx: typer.Context) -> Options:
    """The options of the running command."""
    found = ctx.find_object(Options)
    assert found is not None, "the app callback has set them"
    return found
