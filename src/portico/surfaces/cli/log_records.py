"""Log records whose text is fit for a terminal, whatever handler and format they are written with."""

from __future__ import annotations

import logging

from portico.domain.printable import one_line, printable

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
