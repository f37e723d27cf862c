"""The command line: its options, its commands, the end of a command that failed, and those that stay: serve, demo."""

from __future__ import annotations

import os
import sys
from io import StringIO
from types import ModuleType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from portico.errors import ConfigError, PorticoError
from portico.text.untrusted import printable

from .context import CliContext, Exit, Options, options
from .output_and_logs import FORMAT_VARIABLE, FORMATS, LEVEL_VARIABLE, LEVELS, fail, first_of_ours, warn

HELP = "Portico: the MCP gateway that shows an agent a few tools instead of hundreds, and every tool still works."

COMMANDS = {
    "serve": "Run the gateway, over HTTP or stdio.",
    "demo": "Show Portico at work on bundled sample servers, then keep serving them.",
    "list": "List the servers, or one server's tools.",
    "search": "Find tools by what they do.",
    "describe": "Show all there is to know about tools.",
    "call": "Call a tool.",
    "run": "Run a Lua script that calls tools.",
    "tokens": "Show the token bill: what a client reads before its first question, without and with Portico.",
    "refresh": "Ask servers for their definitions again.",
    "doctor": "Check each server: does it start, does it speak, how many tools, what to do next; the store; "
    "the sandbox.",
    "stats": "Show how tools were used: the most called, failing and slow ones, tokens saved, what searches "
    "found or not.",
    "calls": "Show single calls, the newest last: which tool, how it ended, how long it took; never what was in them.",
    "events": "Show what happened to servers and to gateways, the newest last: starts, ends, failures, changes of the "
    "config.",
    "find-server": "Find servers to add, in registries of MCP servers.",
    "add": "Add a server to the config: by its command or URL, or by its name in a registry of MCP servers.",
    "remove": "Remove a server from the config.",
    "import": "Bring in the servers of a client's config file (JSON, JSONC, YAML or TOML).",
    "install": "Enter Portico in a client's config file, with a backup; --undo takes the entry out again.",
    "trust": "Let the config file of a folder be used: as it is now, until it or a file that it names changes.",
    "tiers": "Show how tools stand: hot, warm, standard or cold.",
    "categories": "Show the categories, and change what they say.",
    "budget": "Check that the four tiers of disclosure keep to their budgets.",
    "registry": "Tools that live in a database.",
}
"""The commands in the order of the help, which shows the same sentences as each command's own help begins with."""


class CommandGroup(TyperGroup):
    """Loads a command when it is used, and ends it with the message and exit code of an error of ours."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, and the rest of them."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and load_command(found.name or ""), rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (PorticoError, BaseExceptionGroup) as error:
            ours = first_of_ours(error)
            if ours is None:
                raise
            raise fail(ours, as_json=options(ctx).as_json) from error


app = typer.Typer(
    name="portico",
    cls=CommandGroup,
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def load_command(name: str) -> Any:
    """A command with its options; only its own module is loaded, for the others may be slow to import."""
    function = getattr(_module_of(name), f"{name}_" if name in ("list", "import") else name.replace("-", "_"))
    if isinstance(function, typer.Typer):
        command: Any = typer.main.get_group(function)
    else:
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command()(function)
        command = typer.main.get_command(alone)
    command.name = name
    return command


def _module_of(command: str) -> ModuleType:
    match command:
        case "serve" | "demo":
            return sys.modules[__name__]
        case "list" | "search" | "describe" | "call" | "run" | "tokens":
            from . import tool_commands

            return tool_commands
        case "refresh" | "doctor":
            from . import doctor_commands

            return doctor_commands
        case "stats" | "calls" | "events":
            from . import stats_commands

            return stats_commands
        case "tiers" | "categories" | "budget":
            from . import tier_category_budget_commands

            return tier_category_budget_commands
        case "registry":
            from . import registry_commands

            return registry_commands
        case "find-server":
            from . import install_commands

            return install_commands
        case _:
            from . import config_commands

            return config_commands


_USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The error that the parser raises; it has no public name."""


def run_cli(cli_context: CliContext) -> None:
    """Run the command line; what nobody foresaw ends in one line, not in a traceback."""
    try:
        ended = typer.main.get_command(app)(obj=Options(cli_context=cli_context), standalone_mode=False)
    except _USAGE as error:
        raise SystemExit(_show_usage(error)) from None
    except typer.Abort:
        warn("Aborted!")
        raise SystemExit(Exit.FAILED) from None
    except Exception as error:
        if os.environ.get("PORTICO_DEBUG"):
            raise
        warn(f"internal error: {type(error).__name__}: {error}. Set PORTICO_DEBUG=1 to see where, and please report it")
        raise SystemExit(Exit.FAILED) from None
    raise SystemExit(ended if isinstance(ended, int) else Exit.OK)


def _show_usage(error: Any) -> int:
    """Say what is wrong with a command line, which may have been pasted and hold anything."""
    shown = StringIO()
    error.show(file=shown)
    typer.echo(printable(shown.getvalue().rstrip("\n")), err=True)
    return int(error.exit_code)


def _show_version(ctx: typer.Context, value: bool) -> None:
    if value:
        typer.echo(f"portico {options(ctx).cli_context.version}")
        raise typer.Exit


@app.callback()
def front(
    ctx: typer.Context,
    config: Annotated[str | None, typer.Option("--config", help="Config file.")] = None,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that every command shares."""
    options(ctx).config = config


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
