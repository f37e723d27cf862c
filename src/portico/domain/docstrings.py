"""The texts of parameters in docstrings: Google's, numpy's and Sphinx's styles, and plain `name - text` lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

_TITLES = r"args|arguments|parameters|params|keyword args|keyword arguments|other parameters|attributes"
_HEADER = re.compile(rf"^\s*(?:{_TITLES})\s*:\s*$", re.IGNORECASE)
_NUMPY_HEADER = re.compile(r"^\s*(?:parameters|other parameters|attributes)\s*$", re.IGNORECASE)
_RULE = re.compile(r"^\s*(?:-{3,}|={3,})\s*$")
_TYPE = r"(?:\((?:[^()]|\([^()]*\))*\)|<[^<>]*>)"
_ENTRY = re.compile(
    rf"^\s*(?:[-*+]\s+)?\*{{0,2}}`{{0,2}}(\w[\w.$-]*)`{{0,2}}\s*{_TYPE}?(?:\s*:(?!:)|\s+[-–—]{{1,2}}\s)\s*(.*)$"
)
_DASHED = re.compile(r"^\s*(?:[-*+]\s+)?`{0,2}(\w+)`{0,2}\s+[-–—]{1,2}\s+(\S.*)$")
_NUMPY_ENTRY = re.compile(r"^\s*(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"^\s*[:@](?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)$")
_ANY_FIELD = re.compile(r"^\s*[:@]\w+[^:]*:")

_Entries = Iterator[tuple[str, list[str]]]
"""Names with the lines of their texts; lines are added to a list after it was given out."""


def parameter_texts(doc: str, names: Collection[str]) -> dict[str, str]:
    """The text of each of these parameters that a docstring speaks of, in whatever style."""
    return {name: text for name, text in _texts(doc, _sections, _numpy, _fields, _dashed).items() if name in names}


def section_texts(doc: str) -> dict[str, str]:
    """The text of every name in sections such as `Args:`."""
    return _texts(doc, _sections)


def _texts(doc: str, *styles: Callable[[Sequence[str]], _Entries]) -> dict[str, str]:
    lines = doc.expandtabs(4).splitlines()
    found: dict[str, list[str]] = {}
    for read in styles:
        for name, parts in read(lines):
            found.setdefault(name, parts)
    texts = {name: " ".join(part for part in parts if part) for name, parts in found.items()}
    return {name: text for name, text in texts.items() if text}


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _sections(lines: Sequence[str]) -> _Entries:
    for place, line in enumerate(lines):
        if _HEADER.match(line):
            yield from _entries(lines[place + 1 :], _depth(line))


def _entries(lines: Sequence[str], outer: int) -> _Entries:
    """The entries of one section; deeper lines belong to the entry before them."""
    depth, parts = -1, [""]
    for line in filter(str.strip, lines):
        entry = _ENTRY.match(line)
        if parts and depth >= 0 and _depth(line) > depth:
            parts.append(line.strip())
        elif entry and _depth(line) >= outer and depth in (-1, _depth(line)):
            depth, parts = _depth(line), [entry[2].strip()]
            yield entry[1], parts
        elif depth in (-1, _depth(line)) and _depth(line) > outer:
            parts = []  # a line among the entries that is none of them: what is deeper belongs to it
        else:
            return


def _numpy(lines: Sequence[str]) -> _Entries:
    """`name : type` lines below a ruled header, with their texts indented below them."""
    for place, line in enumerate(lines[:-1]):
        if not (_NUMPY_HEADER.match(line) and _RULE.match(lines[place + 1])):
            continue
        outer, parts = _depth(line), [""]
        for number, below in enumerate(lines[place + 2 :], place + 2):
            if not below.strip():
                continue
            if _depth(below) > outer:
                parts.append(below.strip())
                continue
            entry = _NUMPY_ENTRY.match(below)
            if entry is None or (number + 1 < len(lines) and _RULE.match(lines[number + 1])):
                break
            parts = []
            yield from ((name.strip(" *"), parts) for name in entry[1].split(","))


def _fields(lines: Sequence[str]) -> _Entries:
    """`:param name: text`, `:param type name: text`; the text goes on until a blank line or the next field."""
    parts: list[str] = []
    for line in lines:
        if field := _FIELD.match(line):
            parts = [field[2].strip()]
            yield field[1], parts
        elif not line.strip() or _ANY_FIELD.match(line):
            parts = []
        else:
            parts.append(line.strip())


def _dashed(lines: Sequence[str]) -> _Entries:
    """`name - text` wherever it stands."""
    for line in lines:
        if entry := _DASHED.match(line):
            yield entry[1], [entry[2].strip()]
