"""What the shell offers when somebody presses Tab: the servers and tools that are known already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio
import typer

from .desk import Options

if TYPE_CHECKING:
    from portico.house import House


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of servers that begin so."""
    return _known(ctx, incomplete, lambda house: (*house.admin.providers, *house.admin.disabled, *house.refused))


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """The handles of tools that begin so; those of our own by their bare names."""

    def handles(house: House) -> Iterable[str]:
        return (tool.handle.removeprefix("_local.") for tool in house.gateway.edition.tools.values())

    return _known(ctx, incomplete, handles)


def _known(ctx: typer.Context, incomplete: str, names: Callable[[House], Iterable[str]]) -> list[str]:
    """What is remembered; no server is asked, and whatever goes wrong, nothing is printed into the command line."""
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


async def _names(found: Options, config: str | None, names: Callable[[House], Iterable[str]]) -> list[str]:
    async with found.desk.open_house(config) as house:
        return [*names(house)]
