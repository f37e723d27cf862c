"""A script that a client wants to run, however loosely it was written, and what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from portico.domain.caller import Caller
from portico.errors import CallError, InvalidArguments, NextCall, Refused
from portico.scripts import Scripts

from .instructions import EXAMPLE
from .results import error_result, with_notes
from .surface import JsonObject

SCRIPT_TOOLS = frozenset({"run_script", "execute", "inspect-tool-response"})
"""The tools of all surfaces that run a script."""
SCRIPT_KEYS = ("script", "code", "source", "lua")
"""Where models write the script."""
OFF = "scripts are switched off here; call tools one by one, or set `scripts: {enabled: true}` in the config"


async def run_script(
    scripts: Scripts | None, caller: Caller, tool: str, arguments: JsonObject, spell: Callable[[NextCall], str]
) -> dict[str, Any]:
    """Run the script in the arguments of one of a surface's own tools; an error is a result too."""
    try:
        source, seconds = _source(tool, arguments), _seconds(arguments.get("timeout_s"))
        return with_notes(await switched_on(scripts, tool).run(caller, source, seconds=seconds))
    except CallError as error:
        return error_result(error, spell)


def switched_on(scripts: Scripts | None, tool: str) -> Scripts:
    """What runs scripts.

    Raises:
        Refused: the config has switched them off.
    """
    if scripts is None:
        raise Refused(tool, details=(OFF,))
    return scripts


def _source(tool: str, arguments: JsonObject) -> str:
    found = next((arguments[key] for key in SCRIPT_KEYS if arguments.get(key)), None)
    if not isinstance(found, str):
        raise InvalidArguments(
            tool, details=("missing: script (string)",), next_call=NextCall("run", {"script": EXAMPLE})
        )
    return found


def _seconds(value: object) -> float | None:
    """The seconds that a client asks for; what is no number is as good as nothing."""
    try:
        found = float(str(value)) if value is not None else None
    except ValueError:
        return None
    return found if found is not None and math.isfinite(found) and found > 0 else None
