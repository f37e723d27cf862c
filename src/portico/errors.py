"""Every exception that Portico raises on purpose, and what to install where an optional package is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from portico.text.untrusted import detail, one_line

LAST_WORDS = "its last words on stderr: "
"""How a detail begins that is for operators only."""


class Sent(StrEnum):
    """What had left the gateway when a call failed; the value is the phrase users read."""

    NOTHING = "nothing was sent"
    UNKNOWN = "the call was sent; whether it took effect is unknown"
    ANSWERED = "the call was sent and the server answered"


UNKNOWN_OUTCOME = "unknown_outcome"
"""What programs read where nobody knows whether a call took effect."""
LOOK_FIRST = f"{UNKNOWN_OUTCOME}: look whether it took effect before you make it again, unless it only reads"


@dataclass(frozen=True, slots=True)
class NextCall:
    """The call that would move a caller on: an action (`call`, `search`, `describe`) and its parameters."""

    action: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


class PorticoError(Exception):
    """Something that the reader of the message can act on."""

    code: ClassVar[str] = "error"


class ConfigError(PorticoError):
    """A config value that cannot be used: says file, line, field and what to write instead."""

    code = "config_invalid"

    def __init__(
        self, problem: str, *, file: str | None = None, line: int | None = None, where: str | None = None, fix: str = ""
    ) -> None:
        self.problem, self.file, self.line, self.where, self.fix = problem, file, line, where, fix
        place = f"{file}:{line}" if file and line else file or ""
        head = ": ".join(part for part in (place, where, problem) if part)
        super().__init__(f"{head}. {fix}" if fix else head)


class RestrictionError(ConfigError):
    """A restriction in the config that cannot be put in force: nothing is served without it."""


class InvalidDefinition(PorticoError):
    """A tool definition that is refused, with the reason."""

    code = "invalid_definition"


class StoreError(PorticoError):
    """What is remembered cannot be read or written."""

    code = "store_error"


class StoreRefused(StoreError):
    """The store is there and does not take what it was given; to send the same again would not help."""


class UnknownServer(PorticoError):
    """No server of that name is configured."""

    code = "unknown_server"


class EmbedderAway(PorticoError):
    """An embedder cannot be asked, or its answer cannot be used; search goes on without it."""

    code = "embedder_away"

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        self.refused = refused
        """Whether it is there and did not take these texts, so that others may pass."""
        super().__init__(reason)


class CallError(PorticoError):
    """One call that did not succeed, in the parts that an error text is made of."""

    code = "call_failed"

    def __init__(
        self,
        subject: str,
        *,
        details: Sequence[str] = (),
        sent: Sent = Sent.NOTHING,
        next_call: NextCall | None = None,
    ) -> None:
        self.subject, self.details, self.sent, self.next_call = subject, tuple(details), sent, next_call
        super().__init__(self._text())

    @property
    def outcome(self) -> str:
        """`unknown_outcome` where the call may have taken effect; empty where it is known."""
        return UNKNOWN_OUTCOME if self.sent is Sent.UNKNOWN else ""

    @property
    def public_details(self) -> tuple[str, ...]:
        """The details without what a server wrote to stderr, which is for its operator."""
        return tuple(line for line in self.details if not line.startswith(LAST_WORDS))

    def add(self, detail: str) -> None:
        """Say one thing more."""
        self.details = (*self.details, detail)

    def about(self, subject: str) -> None:
        """Speak of the subject by another name: the one that the caller knows."""
        self.subject = subject

    def __str__(self) -> str:
        return self._text()  # made anew, because what is known of a call grows on its way to the caller

    @property
    def lines(self) -> list[str]:
        """The error as text, a line for each thing: foreign words in it cannot begin a line as ours do."""
        return [
            f"{self.code} for {one_line(self.subject)}; {self.sent}",
            *(f"- {detail(each)}" for each in self.details),
            *([f"- {LOOK_FIRST}"] if self.outcome else []),
        ]

    def _text(self) -> str:
        return "\n".join(self.lines)


class UnknownTool(CallError):
    """No tool of that name that this caller may see; hidden and missing look alike."""

    code = "unknown_tool"


class AmbiguousTool(CallError):
    """A short name that several tools share."""

    code = "ambiguous_tool"


class UnknownItem(CallError):
    """No such prompt or resource."""

    code = "unknown_item"


class UnknownFilter(CallError):
    """A search for a server, category, tag or source that no visible tool has."""

    code = "unknown_filter"


class InvalidArguments(CallError):
    """The arguments do not fit the tool's schema."""

    code = "invalid_arguments"


class RefusedValue(InvalidArguments):
    """A value fits the tool's schema, and the database does not take it for what it should be."""


class Refused(CallError):
    """A policy does not allow the call."""

    code = "refused"


class Busy(CallError):
    """Too many ask for the same thing at once; nothing was done, and the same call may succeed in a while."""

    code = "busy"


class UpstreamGone(CallError):
    """The server cannot be started or reached, or it died."""

    code = "upstream_gone"


class UpstreamTimeout(CallError):
    """The server did not answer in time."""

    code = "timed_out"


class UpstreamError(CallError):
    """The server answered with a protocol error, kept whole so that a surface can pass it on.

    `details` are for what speaks no such protocol: a database.
    """

    code = "upstream_error"

    def __init__(
        self,
        subject: str,
        *,
        rpc_code: int,
        message: str,
        data: Any = None,
        details: Sequence[str] = (),
        sent: Sent = Sent.ANSWERED,
    ) -> None:
        self.rpc_code, self.message, self.data = rpc_code, message, data
        super().__init__(subject, details=details or (f"the server said: {message} (code {rpc_code})",), sent=sent)


class UnknownResult(CallError):
    """No result is kept under that handle for this caller, or no longer; others' results look the same."""

    code = "unknown_result"


class ScriptError(CallError):
    """A script that did not come to its end: its own error, a limit, or a process that was lost."""

    code = "script_failed"

    def __init__(
        self, reason: str, *, line: int = 0, limit: str = "", details: Sequence[str] = (), sent: Sent = Sent.NOTHING
    ) -> None:
        self.reason, self.line, self.limit = reason, line, limit
        """`limit` names the field of Limits that ended it, if one did."""
        place = f"line {line}: {reason}" if line else reason
        super().__init__("the script", details=(place, *details), sent=sent)


class InternalError(CallError):
    """A step of the gateway itself failed, around a call that may have been carried out."""

    code = "internal_error"


EXTRAS = {
    "lupa": ("lupa", "scripts"),
    "matplotlib": ("matplotlib", "plots"),
    "psycopg": ("psycopg", "postgres"),
}
"""Modules -> the package that has each, and the extra that brings it."""


@contextmanager
def extra_for(what: str) -> Iterator[None]:
    """While this is open, a package that is missing is said with the way to install it.

    Raises:
        ConfigError: one of the extras is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        known = EXTRAS.get((error.name or "").partition(".")[0])
        if known is None:
            raise
        raise not_installed(what, *known) from error


def not_installed(what: str, package: str, extra: str) -> ConfigError:
    """What to say of a package that is missing."""
    return ConfigError(f"{what} need {package}, which is not installed", fix=install_hint(extra))


def install_hint(extra: str) -> str:
    """How an extra is installed."""
    return f"Run: pip install 'portico[{extra}]'"
