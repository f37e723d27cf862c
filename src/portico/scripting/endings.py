"""How a run ended, in words: a script that came to its end, or the reason why it did not."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from portico.domain.script import Limits, Ran
from portico.errors import ScriptError, Sent

from .minder import GONE
from .printing import Printed

OUT_OF_TIME = {-getattr(signal, name) for name in ("SIGPROF", "SIGXCPU") if hasattr(signal, name)}
KILLED = 9
REASON_CHARACTERS = 4_000
MOST_UNAWAITED = 100


def ran(last: Mapping[str, Any], printed: Printed, seconds: float) -> Ran:
    """A script that came to its end, from what its worker said last; what is odd in that is left out."""
    lost = last.get("unawaited")
    return Ran(
        value=last.get("value"),
        has_value="value" in last,
        printed=printed.text,
        printed_cut=_number(last.get("printed_cut")),
        unawaited=tuple(str(line) for line in lost[:MOST_UNAWAITED]) if isinstance(lost, list) else (),
        seconds=seconds,
    )


def failed(last: Mapping[str, Any], printed: Printed, limits: Limits, sent: Sent) -> ScriptError:
    """A script that failed by itself, from what its worker said last."""
    limit = str(last.get("limit") or "")
    reason = str(last.get("reason") or "an error without a text")[:REASON_CHARACTERS]
    if limit == "memory_mb" and reason == "not enough memory":
        reason = (
            f"its values need more than {limits.memory_mb} MB: keep less of what it reads, or work in smaller parts"
        )
    return ScriptError(reason, line=_number(last.get("line")), limit=limit, details=_details(printed), sent=sent)


def late(printed: Printed, limits: Limits, sent: Sent) -> ScriptError:
    """A script that took too long."""
    reason = f"it was stopped after {limits.seconds:g} s: let it do less, or give it more time"
    return ScriptError(reason, limit="seconds", details=_details(printed), sent=sent)


def lost(code: int, printed: Printed, limits: Limits, sent: Sent, *, misbehaved: bool) -> ScriptError:
    """A script whose process ended before it did."""
    if misbehaved:
        reason = "its process was ended because it broke the protocol: nothing that it said is used"
    elif code in OUT_OF_TIME:
        reason = (
            f"it used {limits.cpu_seconds:g} s of CPU time, which is its limit: look for an endless loop, or do less"
        )
        return ScriptError(reason, limit="cpu_seconds", details=_details(printed), sent=sent)
    elif code == GONE:
        reason = "the process that scripts are born from was lost: run the script again"
    elif code == -KILLED:
        reason = "its process was killed from outside: run it again, and let it use less memory if this repeats"
    else:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = f"its process was lost ({how}): run it again"
    return ScriptError(reason, details=_details(printed), sent=sent)


def _details(printed: Printed) -> tuple[str, ...]:
    return (f"it had printed: {printed.tail}",) if printed.tail else ()


def _number(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
