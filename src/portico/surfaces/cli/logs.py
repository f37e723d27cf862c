"""Logs: how a record is written, fit for a terminal, and which records are."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from portico.domain.foreign_text import on_one_line as one_line
from portico.domain.foreign_text import printable
from portico.storage.open import BrieflyAgain

_INDENT = "  | "
"""What stands before each line of a traceback: none of them can pose as a record."""


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
"""How a command that ends says something to whoever typed it."""
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


def begin_logs(level: str = "") -> None:
    """Write what commands have to say to stderr, without time and level."""
    make_records_printable()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(PLAIN))
    handler.addFilter(BrieflyAgain())
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
