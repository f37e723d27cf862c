"""`read_result`: the parts of a result that was shortened, on every surface that may have shortened one."""

from __future__ import annotations

from typing import Any

from portico.discovery.spelling import as_meta_tool
from portico.domain.caller import Caller
from portico.domain.provenance import own_block, told_apart
from portico.errors import CallError
from portico.gateway import Gateway

from .results import error_result, text_result
from .surface import JsonObject

READ = "read_result"
_ID = ("id", "handle", "result_id", "result")
"""Where models write the handle."""


async def read_result(gateway: Gateway, caller: Caller, arguments: JsonObject) -> dict[str, Any]:
    """The part in a block of its own, so that JSON stays JSON, and what it is and the way on in another."""
    id = next((str(arguments[name]) for name in _ID if arguments.get(name)), "")
    given = {name: str(arguments[name]) for name in ("cursor", "grep", "path") if arguments.get(name) is not None}
    try:
        answer = await gateway.read_result(caller, id, **given)
    except CallError as error:
        return error_result(error, as_meta_tool)
    if not answer.text:
        return text_result(answer.next)
    return {"content": told_apart([{"type": "text", "text": answer.text}, own_block(answer.next)])}
