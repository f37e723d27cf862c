"""What the HTTP listener accepts: the key `http`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields as fields_of

from portico.domain.http import HttpLimits, HttpSettings

from .fields import Fields

KEYS = tuple(found.name for kind in (HttpSettings, HttpLimits) for found in fields_of(kind) if found.name != "limits")
HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_.-]*[a-z0-9_])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{HOST.pattern}")
_WHOLE = {
    "max_body": (1_024, 1_073_741_824),
    "max_head": (1_024, 16_777_216),
    "body_memory_mb": (1, 1_000_000),
    "connections": (1, 1_000_000),
    "requests": (1, 1_000_000),
    "streams": (1, 1_000_000),
    "sessions": (1, 1_000_000),
}


def read_http(fields: Fields) -> HttpSettings:
    """The names and limits; what cannot be used is reported, and its default holds."""
    fields.inner("http", KEYS)
    defaults = HttpLimits()
    found: dict[str, int | float] = {}
    for name in (entry.name for entry in fields_of(HttpLimits)):
        bounds = _WHOLE.get(name)
        value = (
            fields.whole("http", name, least=bounds[0], most=bounds[1])
            if bounds
            else fields.number("http", name, above=0)
        )
        found[name] = getattr(defaults, name) if value is None else value
    return HttpSettings(
        allowed_hosts=_names(fields, "allowed_hosts", HOST, _host_fix),
        allowed_origins=_names(fields, "allowed_origins", ORIGIN, _origin_fix),
        limits=HttpLimits(**found),  # type: ignore[arg-type]
    )


def _names(fields: Fields, key: str, pattern: re.Pattern[str], fix: Callable[[str], str]) -> tuple[str, ...]:
    """The names that fit; one that does not is reported, because a request would never match it."""
    good = []
    for number, text in enumerate(fields.texts("http", key)):
        name = text.strip().lower().rstrip("/" if key == "allowed_origins" else "")
        if pattern.fullmatch(name):
            good.append(name)
        elif text:
            fields.report("this cannot be the name of a host or a page", "http", key, number, fix=fix(text))
    return tuple(good)


def _host_fix(text: str) -> str:
    if "*" in text:
        return "Write each name out: a pattern would let web pages in that pretend to be this endpoint."
    return "Write a name as clients call it, such as portico.example.com or portico.example.com:8443."


def _origin_fix(text: str) -> str:
    if "*" in text:
        return "Write each page out: a pattern would let web pages in that nobody has chosen."
    return "Write it as browsers send it, such as https://app.example.com, without a path."
