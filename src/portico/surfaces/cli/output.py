"""What commands print: text for people, JSON for programs, and never a control character from outside."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import typer

from portico.domain.printable import one_line, printable, spelled_out
from portico.errors import CallError, ConfigError, NextCall, PorticoError

from .desk import Exit

_EXITS = {
    "config_invalid": Exit.CONFIG,
    "store_error": Exit.CONFIG,
    "unknown_tool": Exit.UNKNOWN,
    "ambiguous_tool": Exit.UNKNOWN,
    "unknown_item": Exit.UNKNOWN,
    "unknown_server": Exit.UNKNOWN,
    "unknown_filter": Exit.UNKNOWN,
    "invalid_arguments": Exit.INVALID,
    "upstream_gone": Exit.UPSTREAM,
    "timed_out": Exit.UPSTREAM,
    "upstream_error": Exit.UPSTREAM,
}


@contextmanager
def _to_a_reader() -> Iterator[None]:
    """Go on in silence when nobody reads any more, as `portico list | head` does."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str = "") -> None:
    """Print a line of output."""
    with _to_a_reader():
        typer.echo(printable(text))


def warn(text: str) -> None:
    """Print a line to stderr."""
    typer.secho(one_line(text), err=True, fg="yellow")


def data(value: Any) -> None:
    """Print JSON, with control characters spelled out: a program reads the same, a terminal obeys nothing."""
    dumped = orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    with _to_a_reader():
        typer.echo(spelled_out(dumped))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> None:
    """Print columns, the ones in `right` aligned to the right."""
    lines = [tuple(one_line(cell) for cell in row) for row in rows]
    widths = [max(len(line[i]) for line in [tuple(headings), *lines]) for i in range(len(headings))]
    aligned = set(right)
    for number, line in enumerate([tuple(headings), *lines]):
        cells = [c.rjust(w) if i in aligned else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))]
        with _to_a_reader():
            typer.secho("  ".join(cells).rstrip(), bold=number == 0)


def problems(found: Iterable[ConfigError]) -> None:
    """Print the parts of the config that are not in force."""
    for problem in found:
        warn(f"config: {problem}")


def fail(error: PorticoError, *, as_json: bool = False) -> typer.Exit:
    """Print an error in the words of the command line and give the way to end."""
    if as_json:
        data({"error": error_data(error)})
    else:
        typer.secho(printable(error_text(error)), err=True, fg="red")
    return typer.Exit(_EXITS.get(error.code, Exit.FAILED))


def error_data(error: PorticoError) -> dict[str, Any]:
    """An error as data."""
    found: dict[str, Any] = {"code": error.code, "message": str(error)}
    if isinstance(error, CallError):
        found |= {"subject": error.subject, "sent": error.sent, "details": error.details}
        if error.next_call:
            found["next"] = spell(error.next_call)
    return found


def error_text(error: PorticoError) -> str:
    """An error with the next command to try."""
    if not isinstance(error, CallError):
        return f"error: {one_line(str(error))}"
    lines = f"error {error}".split("\n")
    if error.next_call is not None:
        lines.append(f"next: {spell(error.next_call)}")
    return "\n".join(map(one_line, lines))


def spell(call: NextCall) -> str:
    """The next call as a command."""
    parameters = call.parameters
    if call.action == "call":
        arguments = orjson.dumps(parameters.get("arguments", {})).decode()
        return f"portico call {parameters.get('name')} {shlex.quote(arguments)}"
    if call.action == "describe":
        return f"portico describe {' '.join(parameters.get('names', []))}"
    if call.action == "search":
        options = [*map(_option, parameters.items())]
        return " ".join(
            ["portico search", json.dumps(parameters.get("query", ""), ensure_ascii=False), *filter(None, options)]
        )
    return 'portico search "what you want to do"'


def _option(parameter: tuple[str, Any]) -> str:
    """A filter as an option. A page of a terminal is as long as one likes, so the next page is a longer list."""
    name, value = parameter
    if name == "cursor":
        return f"--limit {min(50, 2 * int(str(value).partition(':')[0] or 5))}"
    if name in ("query", "limit"):
        return ""
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {shlex.quote(f'{value:g}' if isinstance(value, float) else str(value))}"
