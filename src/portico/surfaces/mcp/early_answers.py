"""Answers the messages that open a connection while everything else is still being loaded.

Only what is plainly well formed is answered here. All messages, answered or not, go to the SDK's server afterwards; its
own answers to those that were answered here are dropped. So nothing has to be decided twice: a message that this module
does not understand simply waits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .handshake import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    MODERN_VERSIONS,
    VERSION_KEY,
    discover_result,
    initialize_result,
    tools_result,
)

LONGEST = 65_536
"""Bytes of a message that is looked at; opening messages have some hundred."""
_LARGEST_ID = 2**53
_TEXTS = ("title", "description", "websiteUrl")
_SWITCHES: dict[str, Callable[[Any], bool]] = {
    "experimental": lambda value: _is_table_of_tables(value),
    "extensions": lambda value: _is_table_of_tables(value),
    "sampling": lambda value: _has_tables(value, ("context", "tools")),
    "elicitation": lambda value: _has_tables(value, ("form", "url")),
    "roots": lambda value: isinstance(value, dict) and type(value.get("listChanged", True)) is bool,
}
"""Capabilities of clients, and what each looks like."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a client is told first."""

    instructions: str
    version: str
    tools: list[Any] | None = None
    """The listed tools, where they are known before the catalog is loaded."""


@dataclass(slots=True)
class EarlyAnswers:
    """Knows the answers to opening messages, and which were given."""

    greeting: Greeting
    given: dict[int | str, dict[str, Any]] = field(default_factory=dict)
    """Results by the id of their request."""
    is_over: bool = False
    """Whether nothing more is answered here: the first request had to wait, or something came that is no message."""
    _greeted: bool = False

    def answer(self, line: bytes) -> bytes | None:
        """The line to send back at once, if there is one."""
        message = _parsed(line)
        result = None if self.is_over or message is None else self._result(message)
        if message is None or result is None:
            # The SDK decides by the first request how the connection goes on; later ones may wait for each other.
            is_first = not self.given and not _needs_no_answer(message)
            self.is_over = self.is_over or message is None or is_first
            return None
        self.given[message["id"]] = result
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _result(self, message: dict[str, Any]) -> dict[str, Any] | None:
        if not _is_request(message) or message["id"] in self.given:
            return None
        method, params = message["method"], message.get("params", {})
        if method == "initialize":
            return self._initialize(params)
        modern = _has_envelope(params)
        if method == "server/discover" and modern and not self._greeted:
            return discover_result(self.greeting.instructions, self.greeting.version)
        if method == "ping" and self._greeted and not params:
            return {}
        if method == "tools/list" and _lists_all(params, modern) and self._greeted != modern:
            return self._list(modern)
        return None

    def _initialize(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a first, well formed `initialize`."""
        if self.given or not _is_introduction(params):
            return None
        self._greeted = True
        return initialize_result(params["protocolVersion"], self.greeting.instructions, self.greeting.version)

    def _list(self, modern: bool) -> dict[str, Any] | None:
        tools = self.greeting.tools
        return None if tools is None else tools_result(tools, self.greeting.version, modern=modern)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """One message; None for what the SDK may read differently, or not at all."""
    if len(line) > LONGEST or b"\\ud" in line.lower():
        return None
    try:
        message = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and message.get("jsonrpc") == "2.0" else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _needs_no_answer(message: dict[str, Any] | None) -> bool:
    return message is not None and "id" not in message and message.get("method") == "notifications/initialized"


def _is_request(message: dict[str, Any]) -> bool:
    id = message.get("id")
    is_id = isinstance(id, str) or (type(id) is int and abs(id) < _LARGEST_ID)
    has_other = message.keys() - {"jsonrpc", "id", "method", "params"}
    return is_id and not has_other and isinstance(message.get("params", {}), dict) and "method" in message


def _is_introduction(params: dict[str, Any]) -> bool:
    """Whether these are the whole parameters of `initialize`."""
    is_plain = isinstance(params.get("protocolVersion"), str) and _is_meta(params.get("_meta", {}))
    return is_plain and _are_capabilities(params.get("capabilities")) and _is_client(params.get("clientInfo"))


def _has_envelope(params: dict[str, Any]) -> bool:
    """Whether a request says who asks, as revisions without a handshake want it."""
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not _is_meta(meta) or meta.get(VERSION_KEY) not in _MODERN:
        return False
    return _are_capabilities(meta.get(CAPABILITIES_KEY)) and _is_client(meta.get(CLIENT_KEY))


_MODERN = MODERN_VERSIONS


def _lists_all(params: dict[str, Any], modern: bool) -> bool:
    if not params.keys() <= {"_meta"}:
        return False
    meta = params.get("_meta", {})
    return modern or (_is_meta(meta) and VERSION_KEY not in meta)


def _is_meta(meta: object) -> bool:
    return isinstance(meta, dict) and type(meta.get("progressToken", 0)) in (int, str)


def _is_client(client: object) -> bool:
    if not isinstance(client, dict) or "icons" in client:
        return False
    return all(isinstance(client.get(key), str) for key in ("name", "version")) and all(
        isinstance(client.get(key, ""), str) for key in _TEXTS
    )


def _are_capabilities(capabilities: object) -> bool:
    if not isinstance(capabilities, dict) or "tasks" in capabilities:
        return False
    return all(fits(capabilities[key]) for key, fits in _SWITCHES.items() if key in capabilities)


def _is_table_of_tables(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())


def _has_tables(value: object, keys: tuple[str, ...]) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(key, {}), dict) for key in keys)
