"""What goes wrong between us and a server, and the errors that callers see.

    Fault               the exchange failed, the connection may be fine
    ├── Expired         no answer in time
    ├── RpcError        the server answered with a JSON-RPC error
    ├── BadStatus       the server answered with an HTTP status that is no answer
    └── Lost            the connection is of no more use
        └── Unauthorized    our credentials are not accepted: trying again does not help

A fault has no subject yet; the provider knows which call it was and makes the `CallError` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from portico.domain.redaction import Redactor
from portico.errors import CallError, Sent, UpstreamError, UpstreamGone, UpstreamTimeout


class Fault(Exception):
    """An exchange that failed, in sentences for whoever can fix it."""

    def __init__(self, *details: str, sent: Sent = Sent.NOTHING) -> None:
        super().__init__("; ".join(details))
        self.details, self.sent = details, sent

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        return UpstreamGone(subject, details=redactor.texts(self.details), sent=self.sent)


class Expired(Fault):
    """No answer in time."""

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        return UpstreamTimeout(subject, details=redactor.texts(self.details), sent=self.sent)


class RpcError(Fault):
    """A JSON-RPC error, kept whole."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"the server said: {message} (code {code})", sent=Sent.ANSWERED)
        self.code, self.message, self.data = code, message, data

    def as_call_error(self, subject: str, redactor: Redactor) -> CallError:
        """The same, as the error of one call, without secrets."""
        message, data = redactor.text(self.message), redactor.data(self.data)
        return UpstreamError(subject, rpc_code=self.code, message=message, data=data, sent=self.sent)


class BadStatus(Fault):
    """An HTTP status that is no answer."""

    def __init__(self, status: int, *details: str, sent: Sent = Sent.ANSWERED) -> None:
        super().__init__(*details, sent=sent)
        self.status = status


class Lost(Fault):
    """The connection is of no more use; the next call makes a new one."""


class Unauthorized(Lost):
    """Our credentials are not accepted; only a person can change that."""


def rpc_error(error: Any) -> RpcError:
    """The fault that a JSON-RPC `error` member means, whatever shape it has."""
    if not isinstance(error, Mapping):
        return RpcError(-32603, str(error)[:500])
    code = error.get("code")
    return RpcError(
        code if isinstance(code, int) else -32603, str(error.get("message", "no message"))[:4000], error.get("data")
    )


def unwrapped(message: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an answer.

    Raises:
        Fault: the answer is an error, or has no result object.
    """
    result = message.get("result")
    if isinstance(result, dict):
        return result
    if "error" in message:
        raise rpc_error(message["error"])
    raise Fault("the server's answer has no result object: it does not keep to MCP", sent=Sent.ANSWERED)


def public_url(url: str) -> str:
    """A URL as it may be shown: without user, query and fragment, which can hold secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
