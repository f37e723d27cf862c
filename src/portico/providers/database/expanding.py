"""Lists as values: one placeholder behind IN becomes as many as the list is long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from portico.errors import InvalidArguments

from .statements import Token, tokens

VALUES = 1_000
"""Values of one list."""


def expanded(sql: str, dialect: str, binds: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """The statement and its values without lists; one that does not stand behind IN stays, and is refused later.

    Raises:
        InvalidArguments: a list is empty or too long, or a quote is never closed.
    """
    values = dict(binds or {})
    lists = {name: value for name, value in values.items() if isinstance(value, list | tuple)}
    if not lists or not isinstance(sql, str):
        return sql, values
    _check(lists)
    pieces = list(tokens(sql, dialect))
    written = [_written(pieces, place, lists) for place in range(len(pieces))]
    kept = {piece.text[1:] for piece, text in zip(pieces, written, strict=True) if piece.text == text}
    used = {piece.text[1:] for piece in pieces if piece.kind == "placeholder"}
    for name in lists.keys() & used - kept:
        values |= dict(zip(_names(name, lists[name]), values.pop(name), strict=True))
    return "".join(written), values


def _check(lists: Mapping[str, Sequence[Any]]) -> None:
    wrong = [name for name, value in lists.items() if not 1 <= len(value) <= VALUES]
    if wrong:
        details = [f"{name!r} has {len(lists[name])} values; pass 1 to {VALUES}" for name in wrong]
        raise InvalidArguments("sql", details=details)


def _written(pieces: Sequence[Token], place: int, lists: Mapping[str, Sequence[Any]]) -> str:
    piece = pieces[place]
    name = piece.text[1:]
    if piece.kind != "placeholder" or name not in lists:
        return piece.text
    before = [one.text.lower() for one in pieces[:place] if _tells(one)][-2:]
    behind = next((one.text for one in pieces[place + 1 :] if _tells(one)), "")
    marks = ", ".join(f":{one}" for one in _names(name, lists[name]))
    if before[-1:] == ["in"]:
        return f"({marks})"
    return marks if before == ["in", "("] and behind == ")" else piece.text


def _names(name: str, values: Sequence[Any]) -> list[str]:
    return [f"portico_{name}_{number}" for number in range(len(values))]


def _tells(piece: Token) -> bool:
    return piece.kind not in ("space", "line", "block")
