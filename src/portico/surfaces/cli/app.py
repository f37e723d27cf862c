"""The command line's front page."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import StringIO
from typing import Annotated, Any

import typer

from portico.domain.foreign_text import printable

from . import browse_commands as browse
from . import call_commands as act
from . import call_commands as run
from . import config_commands as configure
from . import config_commands as install
from . import config_commands as trust
from . import journal_commands as calls
from . import journal_commands as stats
from . import operator_commands as operate
from . import registry_commands as registry
from . import serve_commands as serve
from .context import CliContext, Exit, Options, options
from .output import warn

HELP = "Portico: the MCP gateway that shows an agent a few tools instead of hundreds, and every tool still works."

app = typer.Typer(
    name="portico",
    help=HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "serve": serve.serve,
    "demo": serve.demo,
    "list": browse.list_,
    "search": browse.search,
    "describe": browse.describe,
    "call": act.call,
    "run": run.run,
    "tokens": browse.tokens,
    "refresh": act.refresh,
    "doctor": act.doctor,
    "stats": stats.stats,
    "calls": calls.calls,
    "add": configure.add,
    "remove": configure.remove,
    "import": configure.import_,
    "install": install.install,
    "trust": trust.trust,
}
_GROUPS = {
    "tiers": operate.tiers,
    "categories": operate.categories,
    "budget": operate.budget,
    "registry": registry.registry,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
for _name, _group in _GROUPS.items():
    app.add_typer(_group, name=_name)


_USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the parser raises; it has no public name."""


def run_cli(cli_context: CliContext) -> None:
    """Run the command line over one desk; what nobody foresaw ends in one line, not in a traceback."""
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
