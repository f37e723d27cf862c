"""Commands that stay: serve and demo."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from portico.errors import ConfigError

from .context import options
from .output_and_logs import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS


def serve(
    ctx: typer.Context,
    stdio: Annotated[bool, typer.Option("--stdio", help="Speak MCP on stdin and stdout, for one client.")] = False,
    surface: Annotated[
        str | None,
        typer.Option(
            help="At /mcp: discover, static, search, capabilities or gateway; each has a path too, as /mcp/gateway."
        ),
    ] = None,
    progressive_disclosure: Annotated[
        bool, typer.Option("--progressive_disclosure", help="The same as --surface search.")
    ] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on.")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to use.")] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Load local tools again when their files change.")] = False,
    log_level: Annotated[str, typer.Option(help="What is logged: debug, info, warning (default) or error.")] = "",
    log_format: Annotated[str, typer.Option(help="Lines of text (default), or json: one object a line.")] = "",
    config: Annotated[str | None, typer.Option(help="Config file.")] = None,
) -> None:
    """Run the gateway, over HTTP or stdio."""
    found = options(ctx)
    found.cli_context.serve(
        config or found.config,
        stdio=stdio,
        surface=_chosen(surface, progressive_disclosure),
        host=host,
        port=port,
        profile=profile,
        reload=reload,
        log_level=_word(log_level, "--log-level", LEVEL_VARIABLE, tuple(LEVELS)),
        log_format=_word(log_format, "--log-format", FORMAT_VARIABLE, FORMATS),
    )


def _word(given: str, option: str, variable: str, known: tuple[str, ...]) -> str:
    """The word of the option, or else of the environment."""
    for value, where in ((given, option), (os.environ.get(variable, ""), variable)):
        word = value.strip().lower()
        if word and word not in known:
            raise ConfigError(f"{value!r} is not known here", where=where, fix=f"Choose one of: {', '.join(known)}.")
        if word:
            return word
    return ""


def _chosen(surface: str | None, progressive_disclosure: bool) -> str | None:
    if not progressive_disclosure:
        return surface
    if surface not in (None, "search"):
        raise ConfigError(
            f"--progressive_disclosure means --surface search, not {surface}", where="surface", fix="Give one of them."
        )
    return "search"


def demo(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show the walk and exit.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to serve on afterwards.")] = None,
) -> None:
    """Show Portico at work on bundled sample servers, then keep serving them."""
    options(ctx).cli_context.demo(once, port)
