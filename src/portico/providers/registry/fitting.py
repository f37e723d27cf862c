"""Compares the type that a registry declares with the one that the database's own function takes."""

from __future__ import annotations

from dataclasses import replace

from .facts.fact import OwnType
from .shapes import Shape
from .types import ParamType, read_type

_NUMBERS = frozenset({Shape.INTEGER, Shape.FLOAT, Shape.DECIMAL})
_MOMENTS = frozenset({Shape.DATE, Shape.TIMESTAMP})


def fitted(declared: ParamType, own: OwnType) -> ParamType | None:
    """The type that a caller is told of and held to, with the cast to the function's own; None when none would work.

    What is declared counts where the function takes every value of it; otherwise the function's own type does. Text may
    stand for anything, because a registry that knows nothing better declares it.
    """
    if own.is_pseudo:
        return declared if own.name.startswith("any") else None
    if own.labels:
        return replace(declared, name="text", cast=own.name, choices=own.labels) if _is_text(declared) else None
    base = read_type(own.base)
    if base.shape is Shape.TEXT and base.is_known:
        return replace(declared, cast=own.name)
    if _is_text(declared):
        return replace(base, code=declared.code, cast=own.name, is_known=True)
    return replace(_narrower(declared, base), cast=own.name) if base.is_known and _is_near(declared, base) else None


def _is_text(declared: ParamType) -> bool:
    return declared.shape is Shape.TEXT


def _is_near(declared: ParamType, base: ParamType) -> bool:
    """Whether values of one may be values of the other."""
    shapes = {declared.shape, base.shape}
    # A database without a boolean has 0 and 1.
    is_switch = declared.shape is Shape.INTEGER and base.shape is Shape.BOOLEAN
    return len(shapes) == 1 or shapes <= _NUMBERS or shapes <= _MOMENTS or is_switch


def _narrower(declared: ParamType, base: ParamType) -> ParamType:
    """What both take: the declared type, unless the function takes less than that."""
    is_whole = declared.shape is Shape.INTEGER
    if is_whole and base.shape in (Shape.FLOAT, Shape.DECIMAL):
        return declared
    if is_whole and base.shape is Shape.INTEGER:
        return declared if declared.bits <= base.bits else replace(base, code=declared.code)
    if declared.shape is Shape.DECIMAL and base.shape is Shape.DECIMAL:
        return declared
    return declared if declared.name == base.name else replace(base, code=declared.code)
