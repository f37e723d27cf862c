"""The offline token counter."""

from __future__ import annotations

import re

_PIECE = re.compile(r"[A-Za-z]{1,7}|\d{1,3}|[^\sA-Za-z\d]+")
_SCALE = 0.965
"""Fitted to o200k on real tool definitions: 3 % median error, 8 % at the 95th percentile."""


class TokenEstimate:
    """Counts tokens without a vocabulary file or a network."""

    name = "estimate"

    def count(self, text: str) -> int:
        """Tokens of a text, estimated."""
        return round(sum(1 for _ in _PIECE.finditer(text)) * _SCALE)
