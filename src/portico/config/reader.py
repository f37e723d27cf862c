"""One table of a config file, read field by field; what does not fit is reported with its place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from portico.config.documents.document import Document
from portico.config.documents.tree import Spelled, TreePath
from portico.errors import ConfigError

from .variables import Variables

SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""What a switch may say."""


def is_address(url: str) -> bool:
    """Whether this is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not _SPACE.search(url)
    except ValueError:
        return False


_SPACE = re.compile(r"\s")


class Fields:
    """A table with the place of each of its fields; collects every problem instead of stopping at the first."""

    def __init__(
        self,
        table: Mapping[str, Any],
        *,
        document: Document,
        path: TreePath,
        variables: Variables,
        moved: Mapping[TreePath, TreePath] | None = None,
    ) -> None:
        self.table, self.variables = table, variables
        self.problems: list[ConfigError] = []
        self.is_usable = True
        self._document, self._path, self._moved = document, path, moved or {}

    def report(self, problem: str, *field: str | int, fix: str, fatal: bool = True) -> None:
        """Note a problem with one field; the table is of no use after a fatal one."""
        self.problems.append(self._document.error(problem, self._place(field), fix=fix))
        self.is_usable = self.is_usable and not fatal

    def text(self, field: str) -> str:
        """A field that is text, expanded; empty when it is absent."""
        value = self.table.get(field)
        if value is None:
            return ""
        if not isinstance(value, str) or isinstance(value, Spelled):
            self.report("this must be text", field, fix="Write one text in quotes.")
            return ""
        return self.expand(value, field)

    def texts(self, *field: str) -> tuple[str, ...]:
        """A field that is a list of texts; numbers and switches stay as they were spelled."""
        value = self._value(field)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.report("this must be a list", *field, fix='Write a list, as in ["one", "two"].')
            return ()
        return tuple(self._scalar(item, *field, index) for index, item in enumerate(value))

    def pairs(self, field: str) -> dict[str, str]:
        """A field that is a table of texts; a key without a value is left out."""
        value = self.table.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.report("this must be a table of names and texts", field, fix='Write it as {NAME: "value"}.')
            return {}
        return {key: self._scalar(item, field, key) for key, item in value.items() if item is not None}

    def inner(self, field: str, known: Iterable[str]) -> Mapping[str, Any]:
        """A field that is a table with a fixed set of keys."""
        value = self.table.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            names = ", ".join(known)
            self.report("this must be a table", field, fix=f"Write it as a table with some of: {names}.")
            return {}
        for key in value:
            if key not in known:
                self.report("this key is not known", field, key, fix=meant(key, known))
        return value

    def switch(self, field: str) -> bool | None:
        """A field that is true or false."""
        value = self.table.get(field)
        if value is None:
            return None
        found = SWITCHES.get(self.expand(value, field).casefold()) if isinstance(value, str) else None
        if found is None:
            self.report("this must be true or false", field, fix="Write true or false, without quotes.")
        return found

    def number(self, *field: str, least: float = 0, above: float | None = None) -> float | None:
        """A field that is a finite number within its bounds."""
        value = self._value(field)
        if value is None:
            return None
        found = _number(self.expand(value, *field)) if isinstance(value, str) else None
        if found is None or found < least or (above is not None and found <= above):
            bound = f"above {above:g}" if above is not None else f"of at least {least:g}"
            self.report(f"this must be a number {bound}", *field, fix="Write a plain number, such as 30.")
            return None
        return found

    def whole(self, *field: str, least: int, most: int) -> int | None:
        """A field that is a whole number within its bounds."""
        value = self._value(field)
        if value is None:
            return None
        found = _number(self.expand(value, *field)) if isinstance(value, str) else None
        if found is None or not found.is_integer() or not least <= found <= most:
            self.report("this is not a usable number", *field, fix=f"Write a whole number from {least} to {most}.")
            return None
        return int(found)

    def choice(self, *field: str, among: Iterable[str]) -> str:
        """A field that is one of a few words; empty when it is absent."""
        value = self._value(field)
        if value is None:
            return ""
        found = self.expand(value, *field).strip() if isinstance(value, str) else ""
        if found not in among:
            self.report("this word is not known here", *field, fix=meant(found, among))
            return ""
        return found

    def expand(self, value: str, *field: str | int) -> str:
        """A text with its variables in place; empty, and a problem, when one is missing."""
        try:
            text = self.variables.expand(str(value))
        except ConfigError as error:
            self.report(error.problem, *field, fix=error.fix)
            return ""
        if "\0" in text:
            self.report("this text holds a zero byte", *field, fix="Delete it.")
            return ""
        return text

    def _scalar(self, value: Any, *field: str | int) -> str:
        if isinstance(value, str):
            return self.expand(value, *field)
        self.report("this must be one text", *field, fix="Write one text in quotes.")
        return ""

    def _value(self, field: tuple[str, ...]) -> Any:
        value: Any = self.table
        for part in field:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def _place(self, field: TreePath) -> TreePath:
        for length in range(len(field), 0, -1):
            if (origin := self._moved.get(field[:length])) is not None:
                return (*self._path, *origin, *field[length:])
        return (*self._path, *field)


def meant(key: str, known: Iterable[str]) -> str:
    """The fix for a name that is not known: the nearest that is, or all of them."""
    names = list(known)
    near = difflib.get_close_matches(key, names, n=1, cutoff=0.7)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(names)}."


def _number(text: str) -> float | None:
    try:
        found = float(text.strip())
    except ValueError:
        return None
    return found if math.isfinite(found) else None
