"""What scripts may use: the key `scripts`."""

from __future__ import annotations

from dataclasses import fields as fields_of

from portico.domain.script import Limits

from .fields import SWITCHES, Fields
from .settings import ScriptSettings

BYTES = 16_000_000
"""The most that a script may have of each; beyond it a message between the processes would be too large."""
KEYS = tuple(found.name for kind in (Limits, ScriptSettings) for found in fields_of(kind) if found.name != "limits")


def read_scripts(fields: Fields) -> ScriptSettings:
    """Whether scripts may run, and within which limits; what cannot be used is reported, and its default holds."""
    fields.inner("scripts", KEYS)
    defaults = ScriptSettings()
    most = fields.number("scripts", "max_seconds", above=0) or defaults.max_seconds
    return ScriptSettings(
        enabled=_switch(fields, "enabled", defaults.enabled),
        limits=_limits(fields, defaults.limits, most),
        max_seconds=most,
        at_once=fields.whole("scripts", "at_once", least=1, most=1_000) or defaults.at_once,
        pool=fields.whole("scripts", "pool", least=1, most=100) or defaults.pool,
        require_hardening=_switch(fields, "require_hardening", defaults.require_hardening),
    )


def _limits(fields: Fields, defaults: Limits, most: float) -> Limits:
    usual = fields.number("scripts", "seconds", above=0) or min(defaults.seconds, most)
    if usual > most:
        fix = f"Write at most {most:g}, or raise scripts.max_seconds."
        fields.report("this is more than scripts.max_seconds", "scripts", "seconds", fix=fix)
        usual = most
    return Limits(
        seconds=usual,
        cpu_seconds=fields.number("scripts", "cpu_seconds", above=0) or defaults.cpu_seconds,
        memory_mb=fields.whole("scripts", "memory_mb", least=8, most=4_096) or defaults.memory_mb,
        calls=fields.whole("scripts", "calls", least=1, most=100_000) or defaults.calls,
        in_flight=fields.whole("scripts", "in_flight", least=1, most=1_000) or defaults.in_flight,
        output_bytes=fields.whole("scripts", "output_bytes", least=100, most=BYTES) or defaults.output_bytes,
        printed_bytes=fields.whole("scripts", "printed_bytes", least=100, most=BYTES) or defaults.printed_bytes,
        source_bytes=fields.whole("scripts", "source_bytes", least=100, most=BYTES) or defaults.source_bytes,
    )


def _switch(fields: Fields, key: str, default: bool) -> bool:
    table = fields.table.get("scripts")
    value = table.get(key) if isinstance(table, dict) else None
    if value is None:
        return default
    found = SWITCHES.get(fields.expand(value, "scripts", key).strip().casefold()) if isinstance(value, str) else None
    if found is None:
        fields.report("this must be true or false", "scripts", key, fix="Write true or false, without quotes.")
    return default if found is None else found
