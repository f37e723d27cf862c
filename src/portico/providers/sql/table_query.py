"""Filters, names and order of a question to a table: read strictly from what a caller gives, written as SQL.

The tables are those that a registry names, and the cubes of YAML files. Names must be among those that were declared,
and values are bound: nothing of a caller becomes part of a statement. What does not fit is an `UnfitValue`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portico.domain.suggestions import did_you_mean

from .sql_values import ParamType, UnfitValue, ValueKind, at

LIMIT = 100
"""Rows of an answer where the caller does not say."""
MOST_VALUES = 500
"""Values of one list."""
MOST_SHOWN = 50
"""Names that a message lists."""

COMPARISONS: Mapping[str, str] = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
SIGNS: Mapping[str, str] = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
"""Comparisons may be written as words or as signs."""
OPERATORS = (*COMPARISONS, "in", "between", "is_null", "like")

PATTERN = ParamType(code="", name="varchar", length=1_000)
"""The type of what a column is LIKE: text, however short the column is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One thing that must hold for a column."""

    column: str
    operator: str
    values: tuple[Any, ...]
    """As they are bound; for `is_null` true or false."""
    type: ParamType | None = None
    """The type of the values, where somebody has declared it."""

    def sql(self, column: str, bind: Callable[[Any], str], like: str = "LIKE {}") -> str:
        """The condition as SQL; `bind` takes a value and gives its placeholder."""
        if self.operator == "is_null":
            return f"{column} IS {'' if self.values[0] else 'NOT '}NULL"
        marks = [bind(value) for value in self.values]
        if self.operator == "in":
            return f"{column} IN ({', '.join(marks)})"
        if self.operator == "between":
            return f"{column} BETWEEN {marks[0]} AND {marks[1]}"
        if self.operator == "like":
            return f"{column} {like.format(marks[0])}"
        return f"{column} {COMPARISONS[self.operator]} {marks[0]}"


def operators_of(type: ParamType) -> tuple[str, ...]:
    """The conditions that a column of this type can have."""
    if type.shape is ValueKind.JSON:
        return ("is_null",)
    if type.shape in (ValueKind.BOOLEAN, ValueKind.UUID, ValueKind.BYTES) or type.name == "other":
        return ("eq", "ne", "in", "is_null")
    like = ("like",) if type.shape is ValueKind.TEXT else ()
    return (*COMPARISONS, "in", "between", *like, "is_null")


def condition_values(operator: str, value: Any, check: Callable[[Any], Any]) -> tuple[Any, ...]:
    """The values of a condition, each as `check` binds it."""
    if operator == "is_null":
        if not isinstance(value, bool):
            raise UnfitValue("must be true or false")
        return (value,)
    if operator not in ("in", "between"):
        return (check(value),)
    if operator == "between" and (not isinstance(value, list) or len(value) != 2):
        raise UnfitValue("must be a list of 2 items, the two values that it lies between")
    return tuple(at(place, check, one) for place, one in enumerate(read_list(value, MOST_VALUES, at_least=1)))


def like_pattern(value: Any) -> str:
    """A pattern: a backslash takes their meaning from % and _, and databases disagree on all its other uses."""
    text: str = PATTERN.check(value)
    if re.search(r"\\(?![%_\\])", text.replace("\\\\", "")):
        raise UnfitValue(r"may have \ before %, _ and \ alone; write \\ for the sign itself")
    return text


def read_list(value: Any, most: int, at_least: int = 0) -> list[Any]:
    """A list of so many items."""
    if not isinstance(value, list) or not at_least <= len(value) <= most:
        raise UnfitValue(f"must be a list of {f'{at_least} to {most}' if at_least < most else most} items")
    return value


def read_names(value: Any, known: Iterable[str], what: str) -> list[str]:
    """Declared names, each once."""
    names = list(known)
    if not isinstance(value, list) or len(value) > max(len(names), MOST_VALUES):
        raise UnfitValue(f"must be a list of: {', '.join(names[:MOST_SHOWN])}")
    return list(dict.fromkeys(at(place, known_name, one, names, what) for place, one in enumerate(value)))


def known_name(name: Any, known: Sequence[str], what: str) -> str:
    """A name that was declared; `what` says of any other what it is not."""
    if isinstance(name, str) and name in known:
        return name
    spelled = name if isinstance(name, str) else type(name).__name__
    raise UnfitValue(f"is {spelled[:60]!r}, which is {what}; {names_hint(spelled, known)}")


def names_hint(name: str, known: Sequence[str]) -> str:
    """The name that may be meant, and all that there are."""
    there = f"there are: {', '.join(known[:MOST_SHOWN]) or 'none'}"
    near = did_you_mean(name, known, limit=1)
    return f"{near} {there}" if near else there


def read_order(value: Any, known: Sequence[str], key: str, what: str) -> tuple[tuple[str, str], ...]:
    """Names, each with ASC or DESC; `column` and `by` mean the same, and `key` is the one of this tool."""
    return tuple(at(place, _ordered, one, known, key, what) for place, one in enumerate(read_list(value, MOST_VALUES)))


def _ordered(one: Any, known: Sequence[str], key: str, what: str) -> tuple[str, str]:
    if not isinstance(one, Mapping):
        raise UnfitValue(f'must be an object such as {{"{key}": "amount", "direction": "desc"}}')
    check_fields(one, (key, "direction", "by", "column"))
    direction = one.get("direction", "asc")
    spelled = next((name for name in (key, "by", "column") if name in one), key)
    name = at(spelled, known_name, one.get(spelled), known, what)
    if direction not in ("asc", "desc"):
        raise UnfitValue("must be 'asc' or 'desc'", ("direction",))
    return name, str(direction).upper()


def check_fields(one: Mapping[Any, Any], known: Sequence[str]) -> None:
    """Return when an object has no other fields."""
    if strange := [str(key) for key in one if key not in known]:
        raise UnfitValue(f"has no field {strange[0][:60]!r}; it has {', '.join(known)}")


def clauses(conditions: Sequence[str], groups: Sequence[str], order: Sequence[str]) -> str:
    """The end of a SELECT: its WHERE, GROUP BY and ORDER BY, as far as there is something to say."""
    parts = ((" WHERE ", " AND ", conditions), (" GROUP BY ", ", ", groups), (" ORDER BY ", ", ", order))
    return "".join(f"{word}{between.join(items)}" for word, between, items in parts if items)
