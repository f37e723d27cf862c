"""Answers and errors as tool results: the one place where our errors meet the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as types

from portico.domain.call import Result
from portico.domain.provenance import attributed, own_block
from portico.errors import CallError, NextCall, UpstreamError

from .surface import Envelope

MISSING_CAPABILITY = -32021
ADDRESS_FIRST = -32042
"""The code of a server that wants an address visited before it goes on."""


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A result of one text block of ours."""
    result: dict[str, Any] = {"content": [own_block(text, marked=False)]}
    if is_error:
        result["isError"] = True
    return result


def error_text(error: CallError, spell: Callable[[NextCall], str]) -> str:
    """What failed, whether anything was sent, and the exact next call."""
    lines = [f"error {error}"]
    if error.next_call is not None:
        lines.append(f"next: {spell(error.next_call)}")
    return "\n".join(lines)


def error_result(error: CallError, spell: Callable[[NextCall], str], notes: Sequence[str] = ()) -> dict[str, Any]:
    """An error as a tool result, never as a protocol error."""
    return text_result("\n".join([error_text(error, spell), *_lines(notes)]), is_error=True)


def must_stay_protocol_error(error: CallError, envelope: Envelope) -> bool:
    """Whether a server's own protocol error is part of a conversation with the client, not an answer to the model.

    A client reads its missing capability, the address to visit first, or a refused answer from the error's code.
    """
    if not isinstance(error, UpstreamError):
        return False
    if error.rpc_code == ADDRESS_FIRST:
        return _takes_addresses(envelope)
    return error.rpc_code == MISSING_CAPABILITY or envelope.answers is not None


def _takes_addresses(envelope: Envelope) -> bool:
    declared = envelope.meta.get(types.CLIENT_CAPABILITIES_META_KEY)
    elicitation = declared.get("elicitation") if isinstance(declared, Mapping) else None
    return isinstance(elicitation, Mapping) and "url" in elicitation


def with_notes(result: Result, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A tool's own result, unchanged but for one marked block at the end when something had to be repaired."""
    lines = _lines([*notes, *result.notes])
    content = [*result.content, own_block("\n".join(lines))] if lines else result.content
    return attributed(result.raw, content)


def _lines(notes: Sequence[str]) -> list[str]:
    return [f"note: {note}" for note in dict.fromkeys(notes)]
