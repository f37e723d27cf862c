"""`python -m portico` and the `portico` command."""

from __future__ import annotations

import gc
import os
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # our matrices are small: threads would cost a start, and win nothing

from portico.surfaces.cli.app import run_cli
from portico.surfaces.cli.desk import Desk
from portico.surfaces.cli.logs import LEVEL_VARIABLE, begin_logs, say_ready, set_format, set_level
from portico.version import VERSION

if TYPE_CHECKING:
    from portico.house import House


def main() -> None:
    """Run the command line."""
    # Loading a catalog makes many objects that all stay: looking for garbage among them costs a tenth of a start.
    gc.set_threshold(100_000, 50, 50)
    begin_logs(os.environ.get(LEVEL_VARIABLE, ""))
    desk = Desk(open_house=_open_house, serve=_serve, demo=_demo, version=VERSION, surface_tokens=_surface_tokens)
    run_cli(desk)


def _open_house(config: str | None) -> AbstractAsyncContextManager[House]:
    # Help, and the commands that only edit the config, need no catalog.
    from portico.wiring import open_house, settings_for

    return open_house(settings_for(config))


def _serve(
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
    # Loading the MCP SDK takes a second, which the other commands must not pay.
    from portico.serving import run_server
    from portico.wiring import settings_for

    settings = settings_for(config, profile=profile, reload=reload)
    set_level(log_level or settings.log.level)
    set_format(log_format or settings.log.format)
    run_server(settings, stdio=stdio, surface=surface, host=host, port=port, say_ready=say_ready)


def _demo(once: bool, port: int | None) -> None:
    from portico.demo import run_demo

    run_demo(once=once, port=port)


def _surface_tokens(house: House, surface: str) -> int:
    from portico.surfaces.mcp.bill import surface_tokens

    return surface_tokens(house.gateway, surface, house.scripts)


if __name__ == "__main__":
    main()
