"""Output of commands: text, tables, JSON, errors, logs, and progress while they wait."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import orjson
import typer

from portico.errors import CallError, ConfigError, NextCall, PorticoError, StoreError, StoreRefused
from portico.text.untrusted import on_one_line as one_line
from portico.text.untrusted import printable, spelled_out

from .context import Exit, options

if TYPE_CHECKING:
    from portico.application import Application


_INDENT = "  | "
"""The prefix of each line of a traceback: none of them can pose as a record."""


class PrintableRecord(logging.LogRecord):
    """A record whose message is one line, and whose traceback is set apart."""

    def getMessage(self) -> str:  # noqa: N802 - the name is that of the standard library
        """The message, with foreign signs replaced and line breaks spelled out."""
        return one_line(super().getMessage())

    def __setattr__(self, name: str, value: object) -> None:
        # Formatters put what they made of an exception here, and print what they find here.
        if name in ("exc_text", "stack_info") and isinstance(value, str):
            value = _set_apart(value)
        super().__setattr__(name, value)


def make_records_printable() -> None:
    """Let every record of this process be made printable; for programs of ours, not for libraries."""
    logging.setLogRecordFactory(PrintableRecord)


def _set_apart(text: str) -> str:
    lines = printable(text).split("\n")
    return "\n".join(line if line.startswith(_INDENT) else f"{_INDENT}{line}" for line in lines)


PLAIN = "portico: %(message)s"
"""The format of records of a command that ends, for whoever typed it."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS = ("text", "json")
LEVEL_VARIABLE, FORMAT_VARIABLE = "PORTICO_LOG_LEVEL", "PORTICO_LOG_FORMAT"


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.123Z WARNING portico.wiring: message`; what has more lines goes on indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record; no text in it can begin a line that looks like another record."""
        return super().format(record).replace("\n", "\n    ")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802  its own name
        """The time in UTC."""
        return written_time(record)


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the traceback as `error` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as an object."""
        told = {
            "time": written_time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def written_time(record: logging.LogRecord) -> str:
    """When a record was made, as RFC 3339 in UTC."""
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


AGAIN_SECONDS = 600.0
"""After so long without a mention, trouble is told in full again."""
STILL_AWAY = "the store is still away"


class StoreErrorFilter(logging.Filter):
    """Reports an unreachable store once in full, then briefly; for the handler of a program, which sees all records."""

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._now = now
        self._told: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten what was told already; every record passes."""
        if isinstance(record.args, tuple):
            record.args = tuple(self._briefly(part) for part in record.args)
        return True

    def _briefly(self, part: object) -> object:
        if not isinstance(part, StoreError) or isinstance(part, StoreRefused):
            return part
        now, text = self._now(), str(part)
        before, self._told = self._told.get(text), {k: at for k, at in self._told.items() if now - at < AGAIN_SECONDS}
        self._told[text] = now
        return text if before is None or now - before >= AGAIN_SECONDS else STILL_AWAY


def begin_logs(level: str = "") -> None:
    """Write what commands have to say to stderr, without time and level."""
    make_records_printable()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(PLAIN))
    handler.addFilter(StoreErrorFilter())
    logging.getLogger().handlers[:] = [handler]
    set_level(level)


def set_level(level: str) -> None:
    """Let records of this level pass; what other libraries say below a warning is for `debug` alone."""
    chosen = LEVELS.get(level, logging.WARNING)
    others = logging.INFO if chosen == logging.DEBUG else max(chosen, logging.WARNING)
    logging.getLogger().setLevel(others)
    logging.getLogger("portico").setLevel(chosen)


def set_format(name: str) -> None:
    """Write records of a program that stays as lines with time and level, or as JSON."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines() if name == "json" else TextLines())


def say_ready(url: str) -> None:
    """Say that the gateway can be reached, whatever the level: whoever started it waits for it."""
    handlers = logging.getLogger().handlers
    if not any(isinstance(handler.formatter, JsonLines) for handler in handlers):
        sys.stderr.write(f"portico: serving {url}\n")
        sys.stderr.flush()
        return
    logger = logging.getLogger("portico.server.run")
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, "serving %s", (url,), None)
    for handler in handlers:
        handler.handle(record)


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
        if error.outcome:
            found["outcome"] = error.outcome
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


Value = TypeVar("Value")
OnDone = Callable[[str, CallError | None], None]


def in_app(
    ctx: typer.Context, work: Callable[[Application], Coroutine[Any, Any, Value]], *, complete: bool = True
) -> Value:
    """Open the application, ask servers that are not known when `complete`, do the work, close."""
    asked = options(ctx)

    async def run() -> Value:
        async with asked.cli_context.open_app(asked.config) as application:
            problems(application.problems)
            if complete:
                # Those that failed a moment ago would again: the command that saw it has said so, and `doctor` does.
                await ask(application, application.unknown - application.admin.refresher.failures.keys())
            return await work(application)

    return anyio.run(run)


def first_of_ours(error: BaseException) -> PorticoError | None:
    """The error of ours that this is, or that a group of errors holds."""
    if isinstance(error, PorticoError):
        return error
    inner = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return next((found for one in inner if (found := first_of_ours(one))), None)


async def ask(
    application: Application, servers: Set[str], *, tell: bool = True, on_done: OnDone | None = None
) -> dict[str, CallError | None]:
    """Ask servers for their definitions; failures are returned and, with `tell`, said.

    A progress bar shows how far it is, unless `on_done` is called for each server as it answers.
    """
    outcomes: dict[str, CallError | None] = {}
    with progress(0 if on_done else len(servers), "Asking servers") as advance:

        def done(server: str, failure: CallError | None) -> None:
            outcomes[server] = failure
            (on_done(server, failure) if on_done else advance(server))

        await application.admin.refresh(servers, done)
    for server, failure in sorted(outcomes.items()):
        if failure is not None and tell:
            warn(f"{server}: {'; '.join(failure.details) or failure}; next: portico doctor {server}")
    return outcomes


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr where someone is watching, nothing where nobody is."""
    if not total or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # loaded only where a bar is drawn: every command would pay for it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{label}: {name}")
