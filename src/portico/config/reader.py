"""Fields of config tables: read by kind and bounds, with every problem reported at its place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from portico.documents.document import Document, dotted
from portico.documents.values_with_positions import Spelled, TreePath
from portico.domain.suggestions import nearest_names
from portico.errors import ConfigError

from .variables_and_masking import Variables

SWITCHES = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
"""The words for a switch."""


def is_address(url: str) -> bool:
    """Whether this is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and not re.search(r"\s", url)


def suggest(key: str, known: Iterable[str]) -> str:
    """The fix for a name that is not known: the nearest that is, or all of them."""
    names = list(known)
    near = nearest_names(key, names, limit=1, cutoff=NEAR)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(names)}."


NEAR = 70.0  # percent of letters that agree: a key that is not ours may be a client's own


class Fields:
    """A table with the place of each of its fields; collects every problem instead of stopping at the first."""

    def __init__(
        self,
        table: Mapping[str, Any],
        *,
        document: Document,
        path: TreePath = (),
        variables: Variables,
        moved: Mapping[TreePath, TreePath] | None = None,
    ) -> None:
        self.table, self.document, self.variables = table, document, variables
        self.problems: list[ConfigError] = []
        self.is_usable = True
        self._path, self._moved = path, moved or {}

    def report(self, problem: str, *field: str | int, fix: str, fatal: bool = True) -> None:
        """Note a problem with one field; the table is of no use after a fatal one."""
        self.problems.append(self.document.error(problem, self._place(field), fix=fix))
        self.is_usable = self.is_usable and not fatal

    def value(self, *field: str) -> Any:
        """The value that is written in a field; None where nothing is."""
        value: Any = self.table
        for part in field:
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def written(self, *field: str) -> tuple[str, int | None]:
        """The keys that lead to a field, as people write them, and the line that it stands on."""
        place = self._place(field)
        return dotted(place), self.document.line(place)

    def below(self, *field: str) -> Fields:
        """The fields of a table inside this one, with problems of their own."""
        path = self._place(field)
        return Fields(self.value(*field), document=self.document, path=path, variables=self.variables)

    def refuse_unknown(self, known: Iterable[str], *field: str) -> None:
        """Report the keys of a table that nobody reads."""
        for key in self.value(*field):
            if key not in known and not (key.startswith(("x-", "$")) and not field):
                self.report("this key is not known", *field, key, fix=suggest(key, known))

    def given(self, field: str, kinds: Mapping[str, Kind]) -> dict[str, Any]:
        """The usable values of a table with a fixed set of keys; what is missing or unusable is left out."""
        self.inner(field, kinds)
        return {name: found for name, read in kinds.items() if (found := read(self, field, name)) is not None}

    def inner(self, field: str, known: Iterable[str]) -> None:
        """Check a field that is a table with a fixed set of keys."""
        value = self.table.get(field)
        if isinstance(value, dict):
            self.refuse_unknown(known, field)
        elif value is not None:
            self.report("this must be a table", field, fix=f"Write it as a table with some of: {', '.join(known)}.")

    def text(self, *field: str) -> str:
        """A field that is text, expanded; empty when it is absent."""
        value = self.value(*field)
        if value is None:
            return ""
        if not isinstance(value, str) or isinstance(value, Spelled):
            self.report("this must be text", *field, fix="Write one text in quotes.")
            return ""
        return self.expand(value, *field)

    def texts(self, *field: str) -> tuple[str, ...]:
        """A field that is a list of texts; numbers and switches stay as they were spelled."""
        value = self.value(*field)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.report("this must be a list", *field, fix='Write a list, as in ["one", "two"].')
            return ()
        return tuple(self._scalar(item, *field, index) for index, item in enumerate(value))

    def data(self, *field: str) -> Any:
        """A field of any kind as it is written, with the variables of its texts expanded."""
        return self._expanded(self.document.value(*self._place(field)), field)

    def _expanded(self, value: Any, field: TreePath) -> Any:
        if isinstance(value, dict):
            return {key: self._expanded(item, (*field, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._expanded(item, (*field, index)) for index, item in enumerate(value)]
        return self.expand(value, *field) if isinstance(value, str) else value

    def pairs(self, field: str) -> dict[str, str]:
        """A field that is a table of texts; a key without a value is left out."""
        value = self.table.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.report("this must be a table of names and texts", field, fix='Write it as {NAME: "value"}.')
            return {}
        return {key: self._scalar(item, field, key) for key, item in value.items() if item is not None}

    def word(self, *field: str) -> str | None:
        """A scalar field, expanded and stripped; None when it is absent, empty when it is no scalar."""
        value = self.value(*field)
        return value if value is None else self.expand(value, *field).strip() if isinstance(value, str) else ""

    def switch(self, *field: str) -> bool | None:
        """A field that is true or false."""
        word = self.word(*field)
        found = SWITCHES.get(word.casefold()) if word is not None else None
        if word is not None and found is None:
            self.report("this must be true or false", *field, fix="Write true or false, without quotes.")
        return found

    def number(self, *field: str, least: float = 0, above: float | None = None) -> float | None:
        """A field that is a finite number within its bounds."""
        word = self.word(*field)
        found = _number(word or "")
        if word is None:
            return None
        if found is None or found < least or (above is not None and found <= above):
            bound = f"above {above:g}" if above is not None else f"of at least {least:g}"
            self.report(f"this must be a number {bound}", *field, fix="Write a plain number, such as 30.")
            return None
        return found

    def whole(self, *field: str, least: int, most: int) -> int | None:
        """A field that is a whole number within its bounds."""
        word = self.word(*field)
        found = _number(word or "")
        if word is None:
            return None
        if found is None or not found.is_integer() or not least <= found <= most:
            self.report("this is not a usable number", *field, fix=f"Write a whole number from {least} to {most}.")
            return None
        return int(found)

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

    def _place(self, field: TreePath) -> TreePath:
        for length in range(len(field), 0, -1):
            if (origin := self._moved.get(field[:length])) is not None:
                return (*self._path, *origin, *field[length:])
        return (*self._path, *field)


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


Kind: TypeAlias = Callable[..., Any]
"""Reads one field: called with the fields and a path, it gives a value, or None where none can be used."""


def whole(least: int, most: int) -> Kind:
    """A whole number within bounds."""
    return lambda fields, *path: fields.whole(*path, least=least, most=most)


def number(*, least: float = 0, above: float | None = None) -> Kind:
    """A number within bounds."""
    return lambda fields, *path: fields.number(*path, least=least, above=above)


def choice(among: Iterable[str], problem: str = "this word is not known here") -> Kind:
    """One of a few words."""

    def read(fields: Fields, *path: str) -> str | None:
        word = fields.word(*path)
        if word is None or word in among:
            return word
        fields.report(problem, *path, fix=suggest(word, among))
        return None

    return read


def words(fields: Fields, *path: str) -> tuple[str, ...]:
    """Texts without space around them; empty ones are left out."""
    return tuple(text.strip() for text in fields.texts(*path) if text.strip())


SECONDS = number(above=0)
