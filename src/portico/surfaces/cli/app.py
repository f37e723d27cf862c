"""The command line's front page."""

from __future__ import annotations

from typing import Annotated

import typer

from . import act, browse, serve
from .desk import Desk, Options, options

HELP = "Portico: the MCP gateway that shows an agent five tools instead of hundreds, and every tool still works."


def build_cli(desk: Desk) -> typer.Typer:
    """The whole command line over one desk."""
    app = typer.Typer(
        name="portico",
        help=HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def front(
        ctx: typer.Context,
        config: Annotated[str | None, typer.Option("--config", help="Config file.")] = None,
        version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version(desk))] = False,
    ) -> None:
        ctx.obj = Options(desk=desk, config=config)

    for name, command in {
        "serve": serve.serve,
        "demo": serve.demo,
        "list": browse.list_,
        "search": browse.search,
        "describe": browse.describe,
        "call": act.call,
        "tokens": browse.tokens,
        "refresh": act.refresh,
        "doctor": act.doctor,
    }.items():
        app.command(name)(command)
    return app


def _show_version(desk: Desk):  # type: ignore[no-untyped-def]
    def show(value: bool) -> None:
        if value:
            typer.echo(f"portico {desk.version}")
            raise typer.Exit

    return show


__all__ = ["build_cli", "options"]
