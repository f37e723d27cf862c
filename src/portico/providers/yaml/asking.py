"""What a caller asks of a cube, read strictly: names are declared ones, and values are bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from portico.providers.local.unfit import Unfit, at

from .parameters import read_value

LIMIT = 100
"""Rows of an answer where the caller does not say."""
FILTERS = 50
VALUES = 500
"""Values of one filter."""
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "in", "between", "is_null", "like")

Order = tuple[str, str]
"""A name, and ASC or DESC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A dimension or measure as its author declared it."""

    expression: str
    description: str = ""
    kind: str = ""
    """What its values are; empty when the author does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One condition on a dimension."""

    dimension: str
    op: str
    values: tuple[Any, ...] = ()
    is_null: bool = True

    def condition(self, expression: str, binds: dict[str, Any]) -> str:
        """The condition as SQL; its values are added to the binds."""
        if self.op == "is_null":
            return f"({expression}) IS {'' if self.is_null else 'NOT '}NULL"
        names = [f"portico_{len(binds) + number}" for number in range(len(self.values))]
        binds.update(zip(names, self.values, strict=True))
        marks = [f":{name}" for name in names]
        if self.op == "in":
            return f"({expression}) IN ({', '.join(marks)})"
        if self.op == "between":
            return f"({expression}) BETWEEN {marks[0]} AND {marks[1]}"
        return f"({expression}) {_SPELLED.get(self.op, self.op)} {marks[0]}"


_SPELLED = {"!=": "<>", "like": "LIKE"}


def read_names(value: Any, known: Mapping[str, Choice]) -> list[str]:
    """The declared names that are asked for, each once.

    Raises:
        Unfit: one is not declared.
    """
    if not isinstance(value, list):
        raise Unfit(f"must be a list of: {', '.join(known)}")
    return list(dict.fromkeys(at(place, lambda name: _known(name, known), name) for place, name in enumerate(value)))


def read_filters(value: Any, dimensions: Mapping[str, Choice]) -> list[Filter]:
    """The conditions that are asked for.

    Raises:
        Unfit: one names what is not declared, or its value does not fit.
    """
    if not isinstance(value, list) or len(value) > FILTERS:
        raise Unfit(f"must be a list of at most {FILTERS} filters")
    return [at(place, lambda one: _filter(one, dimensions), one) for place, one in enumerate(value)]


def read_order(value: Any, known: Mapping[str, Choice]) -> list[Order]:
    """How the rows are to be ordered.

    Raises:
        Unfit: it names what is not declared.
    """
    if not isinstance(value, list):
        raise Unfit('must be a list such as [{"by": "name", "direction": "desc"}]')
    return [at(place, lambda one: _order(one, known), one) for place, one in enumerate(value)]


def read_limit(value: Any) -> int:
    """How many rows may come.

    Raises:
        Unfit: it is no whole number above 0.
    """
    limit: int = read_value("integer", value)
    if limit < 1:
        raise Unfit("must be at least 1")
    return limit


def _known(name: Any, known: Mapping[str, Choice]) -> str:
    if isinstance(name, str) and name in known:
        return name
    near = get_close_matches(str(name)[:100], known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise Unfit(f"{str(name)[:60]!r} is not declared; {hint}there are: {', '.join(known) or 'none'}")


def _order(one: Any, known: Mapping[str, Choice]) -> Order:
    if not isinstance(one, Mapping):
        raise Unfit('must be an object such as {"by": "name", "direction": "desc"}')
    _check_keys(one, ("by", "direction"))
    direction = one.get("direction", "asc")
    if direction not in ("asc", "desc"):
        raise Unfit("direction must be 'asc' or 'desc'")
    return at("by", lambda name: _known(name, known), one.get("by")), direction.upper()


def _filter(one: Any, dimensions: Mapping[str, Choice]) -> Filter:
    if not isinstance(one, Mapping):
        raise Unfit('must be an object such as {"dimension": "name", "op": "=", "value": 1}')
    _check_keys(one, ("dimension", "op", "value"))
    dimension = at("dimension", lambda name: _known(name, dimensions), one.get("dimension"))
    op = one.get("op")
    if not isinstance(op, str) or op not in COMPARISONS:
        raise Unfit(f"must be one of {', '.join(COMPARISONS)}", ("op",))
    value, kind = one.get("value"), dimensions[dimension].kind
    if op == "is_null":
        if value is not None and not isinstance(value, bool):
            raise Unfit("must be true or false", ("value",))
        return Filter(dimension=dimension, op=op, is_null=value is not False)
    return Filter(dimension=dimension, op=op, values=at("value", lambda found: _values(op, kind, found), value))


def _values(op: str, kind: str, value: Any) -> tuple[Any, ...]:
    if op in ("in", "between"):
        sizes = range(2, 3) if op == "between" else range(1, VALUES + 1)
        if not isinstance(value, list) or len(value) not in sizes:
            raise Unfit(
                "must be a list of two values" if op == "between" else f"must be a list of 1 to {VALUES} values"
            )
        return tuple(at(place, lambda one: _single(kind, one), one) for place, one in enumerate(value))
    return (_single("string" if op == "like" else kind, value),)


def _single(kind: str, value: Any) -> Any:
    if value is None:
        raise Unfit("is null, which nothing is equal to; use is_null")
    if kind:
        return read_value(kind, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return read_value("number", value)
    if isinstance(value, str):
        return read_value("string", value)
    raise Unfit("must be text, a number, true or false")


def _check_keys(one: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    if strange := [str(key) for key in one if key not in known]:
        raise Unfit(f"has no field {strange[0][:60]!r}; it has {', '.join(known)}")
