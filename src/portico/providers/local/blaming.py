"""Tells a caller's mistake from a database's failure, where the caller did not write the SQL."""

from __future__ import annotations

from portico.errors import CallError, InvalidArguments, RefusedValue, Sent, UpstreamError

FAILED = -32_603
"""The code of a failure inside of a server, in the protocol that agents speak."""
SQL = "sql"
"""What connections call their subject, and tools the parameter in which a caller writes SQL."""


def blamed(error: InvalidArguments, subject: str, *, has_values: bool) -> CallError:
    """The error of a statement that the caller did not write: of its parts, only values can be the caller's mistake."""
    if error.sent is not Sent.ANSWERED or (isinstance(error, RefusedValue) and has_values):
        return InvalidArguments(subject, details=error.details, sent=error.sent)
    told = error.details[-1] if error.details else str(error)
    return UpstreamError(subject, rpc_code=FAILED, message=told, details=error.details)
