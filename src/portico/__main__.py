"""`python -m portico` and the `portico` command."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from portico.domain import VERSION

if TYPE_CHECKING:
    import typer

    from portico.application import Application
    from portico.surfaces.cli.context import ListedChoice
    from portico.surfaces.mcp.stdio_opening import EarlyPipe


os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # our matrices are small: threads would cost a start, and win nothing


INTERRUPTED = 130
"""The exit code of what Ctrl-C ended: 128 and the number of the signal, as shells have it."""


def main() -> None:
    """Run the command line."""
    # Loading a catalog makes many objects that all stay: looking for garbage among them costs a tenth of a start. More
    # at a time would make one look so long that requests wait for it.
    gc.set_threshold(20_000, 50, 50)
    # Each time that the event loop wants to go on beside a busy thread, it waits so long; the default is 5 ms.
    sys.setswitchinterval(0.0005)
    try:
        _run(_open_early() if "--stdio" in sys.argv else None)
    except KeyboardInterrupt:  # while something was being loaded; later each command ends in its own way
        sys.exit(INTERRUPTED)


def _open_early() -> EarlyPipe | None:
    # Some clients over stdio wait a second for the first answer, and loading the rest takes longer.
    from portico.server.early_answers import open_early

    return open_early(sys.argv[1:], os.environ, Path.cwd())


def _run(pipe: EarlyPipe | None) -> None:
    from portico.surfaces.cli.app import run_cli
    from portico.surfaces.cli.context import CliContext
    from portico.surfaces.cli.output_and_logs import LEVEL_VARIABLE, begin_logs

    begin_logs(os.environ.get(LEVEL_VARIABLE, ""))
    serve = partial(_serve, pipe=pipe)
    cli_context = CliContext(
        open_app=_open_app,
        serve=serve,
        demo=_demo,
        version=VERSION,
        surface_tokens=_surface_tokens,
        add_by_name=_add_by_name,
    )
    run_cli(cli_context)


def _open_app(config: str | None) -> AbstractAsyncContextManager[Application]:
    # Help, and the commands that only edit the config, need no catalog.
    from portico.wiring import open_app, settings_for

    return open_app(settings_for(config))


def _serve(
    config: str | None,
    *,
    stdio: bool,
    surface: str | None,
    host: str | None,
    port: int | None,
    profile: str | None = None,
    reload: bool = False,
    pipe: EarlyPipe | None = None,
    log_level: str = "",
    log_format: str = "",
) -> None:
    # Loading the MCP SDK takes a second, which the other commands must not pay.
    from portico.server.run import run_server
    from portico.surfaces.cli.output_and_logs import say_ready, set_format, set_level
    from portico.wiring import settings_for

    read = partial(settings_for, config, profile=profile, reload=reload)
    settings = read()
    set_level(log_level or settings.log.level)
    set_format(log_format or settings.log.format)
    run_server(settings, stdio=stdio, surface=surface, host=host, port=port, say_ready=say_ready, pipe=pipe, read=read)


def _demo(once: bool, port: int | None) -> None:
    from portico.samples.demo import run_demo

    run_demo(once=once, port=port)


def _add_by_name(ctx: typer.Context, choice: ListedChoice) -> None:
    from portico.surfaces.cli.install_commands import add_by_name

    add_by_name(ctx, choice)


def _surface_tokens(application: Application, surface: str) -> int:
    from portico.server.run import surface_tokens

    return surface_tokens(application.gateway, surface, application.scripts)


if __name__ == "__main__":
    main()
