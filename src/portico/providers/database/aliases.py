"""What the names before dots stand for: relations under their own name or an alias, as far as the words tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .statements import NAMES, Token, folded

_INTRODUCING = frozenset({"from", "join", "only", ",", "."})
"""What stands before a relation that goes by its own name."""
_EXPRESSING = frozenset(
    "select where and or not on case when then else in distinct using having limit offset all any".split()
)
"""Words behind which a name is a value, not an alias; no relation can be called so without quotes."""
_BODY = frozenset({"(", "materialized", "not"})
"""What follows the AS of a common table expression."""


def relations_by_alias(pieces: Sequence[Token]) -> Mapping[str, frozenset[str] | None]:
    """The relations that each name may stand for; None for one that may stand for anything else.

    A name in doubt is one that stands for anything: whoever asks this lets through what is certain.
    """
    found: dict[str, frozenset[str] | None] = {}
    made = {folded(piece) for place, piece in enumerate(pieces) if piece.kind in NAMES and _is_made(pieces, place)}
    for place, piece in enumerate(pieces):
        if piece.kind not in NAMES or _text(pieces, place + 1) == "." or _is_value(pieces, place):
            continue
        name, meant = folded(piece), _meant(pieces, place, made)
        known = found.get(name, frozenset())
        found[name] = None if meant is None or known is None else known | {meant}
    return found


def _meant(pieces: Sequence[Token], place: int, made: Collection[str]) -> str | None:
    """The relation that a name stands for where it is introduced."""
    if _text(pieces, place + 1) == "(":
        return None
    before = _text(pieces, place - 1)
    if before in _INTRODUCING:
        name = folded(pieces[place])
    else:
        place -= 2 if before == "as" else 1
        name = folded(pieces[place]) if place >= 0 and pieces[place].kind in NAMES else ""
    return name if name and name not in made else None


def _is_made(pieces: Sequence[Token], place: int) -> bool:
    """Whether a common table expression is named here."""
    behind = _text(pieces, place + 1)
    return behind == "(" or (behind == "as" and _text(pieces, place + 2) in _BODY)


def _is_value(pieces: Sequence[Token], place: int) -> bool:
    before = pieces[place - 1] if place else None
    return before is not None and before.kind == "word" and before.text.lower() in _EXPRESSING


def _text(pieces: Sequence[Token], place: int) -> str:
    """What stands at a place, a word in small letters; empty outside, and for a name in quotes."""
    if not 0 <= place < len(pieces):
        return ""
    piece = pieces[place]
    return piece.text.lower() if piece.kind in ("word", "open", "close", "other") else ""
