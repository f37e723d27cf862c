"""What a script prints, up to its limit."""

from __future__ import annotations

TAIL = 2_000
"""Characters at the end that an error repeats."""


class Printed:
    """Text as it comes, cut at a number of bytes."""

    def __init__(self, limit: int) -> None:
        self._room = limit
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        """Take more text; what does not fit is left out."""
        data = text.encode("utf-8", "replace")[: self._room]
        self._room -= len(data)
        if data:
            self._parts.append(data.decode("utf-8", "ignore"))

    @property
    def text(self) -> str:
        """All that fitted."""
        return "".join(self._parts)

    @property
    def tail(self) -> str:
        """The end of it, which tells best how far a script came."""
        text = self.text.rstrip("\n")
        return text if len(text) <= TAIL else "..." + text[-TAIL:]
