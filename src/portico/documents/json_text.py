"""JSON with comments: read with the place of every value, and changed without touching the rest."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any, NoReturn

from portico.errors import ConfigError

from .values_with_positions import DEPTH, Member, Node, node_at

_TRIVIA = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])")
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_CONSTANTS = {"true": True, "false": False, "null": None}


def parse(text: str, file: str) -> Node:
    """Read one JSON or JSONC document; an empty one is null.

    Raises:
        ConfigError: the text is not JSON; says the line and what to write there.
    """
    return _Scanner(text, file).document()


def after_trivia(text: str, position: int) -> int:
    """The position of the next sign that is neither space nor comment."""
    found = _TRIVIA.match(text, position)
    return found.end() if found else position


class _Scanner:
    def __init__(self, text: str, file: str) -> None:
        self._text, self._file, self._at = text, file, 0
        self._breaks = [found.end() for found in re.finditer(r"\r\n|\r|\n", text)]

    def document(self) -> Node:
        self._skip()
        if self._at == len(self._text):
            return Node(line=1, start=0, end=len(self._text), spelling="null")
        root = self._value(0)
        self._skip()
        if self._at != len(self._text):
            self._fail("there is text after the end of the document", "Delete it, or put it inside the outer braces.")
        return root

    def _value(self, depth: int) -> Node:
        if depth > DEPTH:
            self._fail(f"values are nested more than {DEPTH} deep", "Flatten them.")
        sign = self._text[self._at : self._at + 1]
        if sign == "{":
            return self._table(depth)
        if sign == "[":
            return self._list(depth)
        return self._scalar(sign)

    def _table(self, depth: int) -> Node:
        start, members = self._at, list[Member]()
        self._at += 1
        while not self._closes("}", start):
            key_start, line = self._at, self._line(self._at)
            key = self._key()
            self._skip()
            if self._text[self._at : self._at + 1] != ":":
                self._fail(f"a colon is missing after {key!r}", 'Write "key": value.')
            self._at += 1
            self._skip()
            members.append(Member(key=key, line=line, start=key_start, node=self._value(depth + 1)))
            self._comma("}", start)
        return Node(line=self._line(start), start=start, end=self._at, members=tuple(members))

    def _list(self, depth: int) -> Node:
        start, items = self._at, list[Node]()
        self._at += 1
        while not self._closes("]", start):
            items.append(self._value(depth + 1))
            self._comma("]", start)
        return Node(line=self._line(start), start=start, end=self._at, items=tuple(items))

    def _closes(self, sign: str, start: int) -> bool:
        self._skip()
        if self._at >= len(self._text):
            self._unclosed(sign, start)
        if self._text[self._at] != sign:
            return False
        self._at += 1
        return True

    def _comma(self, sign: str, start: int) -> None:
        end = self._at
        self._skip()
        if self._at >= len(self._text):
            self._unclosed(sign, start)
        following = self._text[self._at]
        if following == ",":
            self._at += 1
        elif following != sign:
            self._fail("a comma is missing here", "Put a comma after this value.", at=end)

    def _unclosed(self, sign: str, start: int) -> NoReturn:
        self._fail(f"the {self._text[start]!r} opened here is never closed", f"Add the missing {sign!r}.", at=start)

    def _key(self) -> str:
        if self._text[self._at] != '"':
            self._fail("a key must stand in double quotes", 'Write "key": value.')
        return self._string()

    def _scalar(self, sign: str) -> Node:
        start = self._at
        if sign == '"':
            value: object = self._string()
        elif found := _NUMBER.match(self._text, start):
            self._at = found.end()
            value = _number(found.group())
        else:
            value = self._constant()
        spelling = self._text[start : self._at]
        return Node(line=self._line(start), start=start, end=self._at, value=value, spelling=spelling)

    def _constant(self) -> bool | None:
        found = _WORD.match(self._text, self._at)
        if found is None or found.group() not in _CONSTANTS:
            self._fail(
                "this is not a JSON value", "Put text in double quotes; write true, false and null in small letters."
            )
        self._at = found.end()
        return _CONSTANTS[found.group()]

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._fail(
                "this text has no closing quote on its line", 'Add the closing ", and write a line break as \\n.'
            )
        try:
            value: str = json.loads(found.group())
            value.encode()
        except ValueError:
            self._fail("this text has an escape that JSON does not know", r"Write a backslash as \\.")
        self._at = found.end()
        return value

    def _skip(self) -> None:
        self._at = after_trivia(self._text, self._at)
        if self._text.startswith("/*", self._at):
            self._fail("the comment opened here is never closed", "Add the missing */.")

    def _line(self, position: int) -> int:
        return bisect_right(self._breaks, position) + 1

    def _fail(self, problem: str, fix: str, at: int | None = None) -> NoReturn:
        raise ConfigError(problem, file=self._file, line=self._line(self._at if at is None else at), fix=fix)


def _number(spelling: str) -> int | float:
    # Python refuses to read integers of thousands of digits, and no setting needs one.
    exact = spelling.lstrip("-").isdigit() and len(spelling) < 400
    return int(spelling) if exact else float(spelling)


_UNIT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_REST_OF_LINE = re.compile(r"[ \t]*(?://[^\r\n]*|(?:/\*(?:(?!\*/)[^\r\n])*\*/[ \t]*)*)(?=[\r\n])")


def put_member(text: str, path: tuple[str, ...], value: Any) -> str:
    """The text with one member set; tables on the way to it are created.

    Raises:
        ConfigError: the text is not JSON.
    """
    if not text.strip():
        text = "{}\n"
    root = parse(text, "")
    for length in range(1, len(path) + 1):
        node = node_at(root, path[:length])
        if node is None or (length < len(path) and node.members is None):
            for key in reversed(path[length:]):
                value = {key: value}
            path = path[:length]
            break
    table = node_at(root, path[:-1])
    if table is None or table.members is None:
        return text
    member = next((member for member in table.members if member.key == path[-1]), None)
    if member is None:
        return _insert(text, table, path[-1], value)
    indent = indent_of(text) if "\n" in text else None
    dumped = dump(value, indent=indent).replace("\n", _newline_of(text) + _margin(text, member.start))
    return text[: member.node.start] + dumped + text[member.node.end :]


def drop_member(text: str, path: tuple[str, ...]) -> str:
    """The text without one member; comments around it stay.

    Raises:
        ConfigError: the text is not JSON.
    """
    table = node_at(parse(text, ""), path[:-1])
    members = table.members or () if table is not None else ()
    index = next((index for index, member in enumerate(members) if member.key == path[-1]), None)
    if index is None:
        return text
    start, end = _line_start(text, members[index].start), members[index].node.end
    comma = after_trivia(text, end)
    if text[comma : comma + 1] == ",":
        return text[:start] + text[_line_end(text, comma + 1, start) :]
    rest = text[_line_end(text, end, start) :]
    if index == 0:
        return text[:start] + rest
    before = members[index - 1].node.end
    at = text.index(",", after_trivia(text, before))
    return text[:at] + text[at + 1 : start] + rest


def dump(value: Any, *, indent: str | None) -> str:
    """One value as JSON."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _newline_of(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def indent_of(text: str) -> str:
    """The unit by which a text is indented; two spaces when it is not."""
    found = _UNIT.search(text)
    return found[1] if found else "  "


def _insert(text: str, table: Node, key: str, value: Any) -> str:
    members, newline, unit = table.members or (), _newline_of(text), indent_of(text)
    label = json.dumps(key, ensure_ascii=False)
    is_inline = bool(members) and "\n" not in text[table.start : table.end]
    if is_inline:
        end = members[-1].node.end
        return f"{text[:end]}, {label}: {dump(value, indent=None)}{text[end:]}"
    margin = _margin(text, members[-1].start) if members else _margin(text, table.start) + unit
    dumped = dump(value, indent=unit).replace("\n", newline + margin)
    member = f"{newline}{margin}{label}: {dumped}"
    if not members:
        rest = text[table.start + 1 :]
        tail = f"{newline}{_margin(text, table.start)}" if rest[:1] == "}" else ""
        return f"{text[: table.start + 1]}{member}{tail}{rest}"
    end = members[-1].node.end
    comma = after_trivia(text, end)
    if text[comma] == ",":
        at = _after_comment(text, comma + 1)
        return f"{text[:at]}{member}{text[at:]}"
    at = _after_comment(text, end)
    return f"{text[:end]},{text[end:at]}{member}{text[at:]}"


def _after_comment(text: str, position: int) -> int:
    """The end of the line when only a comment follows, so that the comment stays with what it is about."""
    found = _REST_OF_LINE.match(text, position)
    return found.end() if found else position


def _margin(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip())]


def _line_start(text: str, position: int) -> int:
    start = text.rfind("\n", 0, position) + 1
    return start if not text[start:position].strip() else position


def _line_end(text: str, position: int, start: int) -> int:
    """The beginning of the next line, when the member began its line and nothing but a comment follows."""
    is_whole_line = start == 0 or text[start - 1] == "\n"
    found = _REST_OF_LINE.match(text, position)
    if not is_whole_line or found is None:
        return position if is_whole_line else position + (text[position : position + 1] == " ")
    end = found.end()
    return end + (2 if text.startswith("\r\n", end) else 1)
