"""Texts with `{name}` in them: what stands where, and the values filled in once."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACE = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def places(text: str) -> list[str]:
    """The names of the places that are to be filled; `{{name}}` is none."""
    return [match[2] for match in _PLACE.finditer(text) if match[2]]


def leading(text: str) -> list[str]:
    """The places that the text begins with: nothing but other places stands before them."""
    found, end = list[str](), 0
    for match in _PLACE.finditer(text):
        if match.start() != end or not match[2]:
            break
        found.append(match[2])
        end = match.end()
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with its values; what a value holds is never looked at again, and `{{name}}` becomes `{name}`."""
    return _PLACE.sub(lambda match: f"{{{match[1]}}}" if match[1] else values.get(match[2], match[0]), text)
