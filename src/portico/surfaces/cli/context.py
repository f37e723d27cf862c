"""Things that commands share: their context and options, exit codes, bare names of own tools, completion."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from portico.domain.call import Caller

if TYPE_CHECKING:
    from portico.application import Application
    from portico.catalog.view import CatalogView


class Exit(IntEnum):
    """Exit codes; documented in the CLI reference and stable."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    UNKNOWN = 4
    INVALID = 5
    UPSTREAM = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedChoice:
    """A server that a registry lists, as `portico add` was told it: by name, and what to do about it."""

    name: str
    local_name: str = ""
    wanted: str = ""
    """The kind of package to start it from, or `remote`; empty for whatever works here."""
    version: str = ""
    registry: str | None = None
    values: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)
    is_confirmed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CliContext:
    """Functions that commands call to open, serve and show an application."""

    open_app: Callable[[str | None], AbstractAsyncContextManager[Application]]
    serve: Callable[..., None]
    """Serves over stdio or HTTP until it is told to stop; an option that is None comes from the config."""
    demo: Callable[[bool, int | None], None]
    version: str
    surface_tokens: Callable[[Application, str], int]
    add_by_name: Callable[[typer.Context, ListedChoice], None] | None = None
    """Adds a server that a registry lists; it brings an HTTP client, which other commands must not load."""


@dataclass(slots=True, kw_only=True)
class Options:
    """The context and the options of the command that runs."""

    cli_context: CliContext
    config: str | None = None
    as_json: bool = False


def options(ctx: typer.Context) -> Options:
    """The options of the running command."""
    found = ctx.find_object(Options)
    assert found is not None, "the app callback has set them"
    return found


def _note_json(ctx: typer.Context, value: bool) -> bool:
    if value and isinstance(ctx.find_root().obj, Options):
        options(ctx).as_json = True
    return value


Json = Annotated[bool, typer.Option("--json", help="Print JSON.", callback=_note_json)]
CALLER = Caller(surface="cli")

_OWN = re.compile(r"(?<![\w.])_local\.([A-Za-z_][A-Za-z0-9_]*)")
SERVER = "local"


class OwnNames:
    """Spells tools of our own by their bare names, where no other tool is called so."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def shorten(self, text: str) -> str:
        """A text for people with bare names in it."""
        return _OWN.sub(lambda found: found[1] if self._is_enough(found[0], found[1]) else found[0], text)

    def _is_enough(self, handle: str, bare: str) -> bool:
        tool = self._view.find(bare)
        return tool is not None and tool.handle == handle


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of servers that begin so."""
    return _known(
        ctx,
        incomplete,
        lambda application: (*application.admin.providers, *application.admin.disabled, *application.refused),
    )


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """The handles of tools that begin so; those of our own by their bare names."""

    def handles(application: Application) -> Iterable[str]:
        return (tool.handle.removeprefix("_local.") for tool in application.gateway.snapshot.tools.values())

    return _known(ctx, incomplete, handles)


def _known(ctx: typer.Context, incomplete: str, names: Callable[[Application], Iterable[str]]) -> list[str]:
    """The remembered names; no server is asked, and whatever goes wrong, nothing is printed into the command line."""
    logging.disable()
    try:
        root = ctx.find_root()
        found = root.obj
        if not isinstance(found, Options):
            return []
        config = root.params.get("config")
        return sorted(name for name in anyio.run(_names, found, config, names) if name.startswith(incomplete))
    except Exception:  # noqa: BLE001  a traceback would end up in somebody's command line
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _names(found: Options, config: str | None, names: Callable[[Application], Iterable[str]]) -> list[str]:
    async with found.cli_context.open_app(config) as application:
        return [*names(application)]
