"""SQL as tokens, as far as needed to know that it is one statement that reads, and where its placeholders are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, pairwise
from typing import Any

from portico.errors import InvalidArguments, Refused

LONGEST = 100_000
"""Characters of a statement that are read."""

READING = frozenset({"select", "with", "values"})
"""The words that a statement which reads begins with."""

WRITING = frozenset(
    "insert update delete merge replace upsert create drop alter truncate grant revoke call exec execute into copy "
    "load import export lock attach detach pragma vacuum analyze set reset do begin commit rollback savepoint "
    "rename".split()
)
"""Words that make a statement more than a reading one, where no engine of ours would stop it."""

_BACKSLASH_DIALECTS = frozenset({"mysql", "mariadb", "bigquery", "databricks", "clickhouse", "hive", "snowflake"})

_PLAIN = {
    "space": r"\s+",
    "line": r"--[^\n]*",
    "block": r"/\*",
    "string": r"'[^']*(?:''[^']*)*'",
    "quoted": r'"[^"]*(?:""[^"]*)*"',
    "placeholder": r"(?<![:\w$]):[A-Za-z_]\w*",
    "number": r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?",
    "word": r"[^\W\d][\w$]*",
    "end": r";",
    "open": r"\(",
    "close": r"\)",
    "unclosed": r"['\"`]",
    "other": r".",
}
# To these two every letter beyond ASCII belongs to a name, be it a currency sign or a space that does not break: what
# Python's own classes say would let a quote begin where the database sees none.
_LETTER, _MORE = r"[A-Za-z_\x80-\U0010ffff]", r"[A-Za-z0-9_\x80-\U0010ffff]"
_BYTEWISE = {
    "space": r"[ \t\n\r\f\v]+",
    "placeholder": r"(?<![:$A-Za-z0-9_\x80-\U0010ffff]):[A-Za-z_]\w*",
    "number": r"[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?",
    "word": rf"{_LETTER}(?:{_MORE}|\$)*",
}
_POSTGRES = {
    "line": r"--[^\n\r]*",
    "escaped": r"[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'",
    "unclosed_escaped": r"[eE]'",
    "unicode": r'[uU]&"[^"]*(?:""[^"]*)*"',
    "dollar": rf"\$(?P<tag>(?:{_LETTER}{_MORE}*)?)\$.*?\$(?P=tag)\$",
    "unclosed_dollar": rf"\$(?:{_LETTER}{_MORE}*)?\$",
    **_BYTEWISE,
}
_SQLITE = {"bracket": r"\[[^\]]*\]", "backtick": r"`[^`]*(?:``[^`]*)*`", **_BYTEWISE}
_BACKSLASH = {
    "string": r"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'",
    "text": r'"[^"\\]*(?:(?:\\.|"")[^"\\]*)*"',
    "line": r"--(?=\s|$)[^\n]*|\#[^\n]*",
    "backtick": r"`[^`]*(?:``[^`]*)*`",
}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of SQL and what it is."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStatement:
    """One statement that reads, as far as its words tell."""

    text: str
    """Without comments and closing semicolon; colons that begin no placeholder are escaped for SQLAlchemy."""
    plain: str
    """The text without these escapes."""
    placeholders: frozenset[str]
    called: frozenset[str]
    """Names that stand before a parenthesis, as the database folds them: functions, and words such as `in`."""
    attributes: frozenset[tuple[str, str]]
    """Names that stand behind a dot, each with the name before it, if there is one; PostgreSQL calls functions so."""
    names: frozenset[str]
    """Every word and quoted name."""
    operators: frozenset[str]
    """Runs of the signs that operators are made of; one run may hold several operators."""
    pieces: tuple[Token, ...] = field(repr=False)
    """Everything but space and comments."""


def tokens(sql: str, dialect: str) -> Iterator[Token]:
    """The pieces of a text, none left out.

    Raises:
        InvalidArguments: a quote or a comment is never closed.
    """
    pattern = _pattern(dialect)
    place = 0
    while place < len(sql):
        match = pattern.match(sql, place)
        assert match is not None, "the last alternative takes any letter"
        kind = match.lastgroup if match.lastgroup != "tag" else "dollar"
        end = match.end()
        if kind == "block":
            end = _comment_end(sql, place, nests=dialect == "postgresql")
        if str(kind).startswith("unclosed"):
            raise _wrong(f"the quote {match[0]!r} at character {place + 1} is never closed", "Close it")
        yield Token(str(kind), sql[place:end])
        place = end


def read_statement(sql: str, dialect: str) -> ReadStatement:
    """A text taken apart, when it is one statement that reads.

    Raises:
        InvalidArguments: it is empty, too long, several statements, or its quotes and parentheses do not match.
        Refused: it begins with a word that does more than read.
    """
    if not isinstance(sql, str):
        raise _wrong("it is no text", "Pass the statement as a string")
    if len(sql) > LONGEST:
        raise _wrong(f"it has {len(sql)} characters, and at most {LONGEST} are read", "Pass values as parameters")
    if "\0" in sql:
        raise _wrong("it holds a NUL character", "Leave it out")
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise _wrong("it holds half of a surrogate pair", "Write the whole character") from error
    pieces = _one_statement(list(tokens(sql, dialect)))
    telling = [piece for piece in pieces if piece.kind not in SILENT]
    _check_parentheses(telling)
    if any(one.kind == "escaped" and other.kind == "string" for one, other in pairwise(telling)):
        # PostgreSQL reads a string in the next line as the rest of an E'...', escapes included; we do not.
        raise _wrong("a string follows an E'...' directly", "Write it in one piece, or put || between them")
    _check_reading(telling, dialect)
    return ReadStatement(
        text="".join(_written(piece) for piece in pieces).strip(),
        plain="".join(" " if piece.kind in ("line", "block") else piece.text for piece in pieces).strip(),
        placeholders=frozenset(piece.text[1:] for piece in telling if piece.kind == "placeholder"),
        called=frozenset(
            fold_name(piece) for piece, behind in pairwise(telling) if piece.kind in NAMES and behind.kind == "open"
        ),
        attributes=frozenset(_attributes(telling)),
        names=frozenset(fold_name(piece) for piece in telling if piece.kind in NAMES),
        operators=frozenset(
            "".join(piece.text for piece in run)
            for is_sign, run in groupby(telling, lambda piece: piece.kind == "other" and piece.text in _SIGNS)
            if is_sign
        ),
        pieces=tuple(telling),
    )


@cache
def _pattern(dialect: str) -> re.Pattern[str]:
    own = {"postgresql": _POSTGRES, "sqlite": _SQLITE}.get(dialect, {})
    if dialect in _BACKSLASH_DIALECTS:
        own = _BACKSLASH
    parts = {**own, **{kind: part for kind, part in _PLAIN.items() if kind not in own}}
    return re.compile("|".join(f"(?P<{kind}>{part})" for kind, part in parts.items()), re.DOTALL)


NAMES = ("word", "quoted", "bracket", "backtick")
"""Kinds of tokens that are names."""
SILENT = ("space", "line", "block")
"""Kinds of tokens that say nothing."""
_SIGNS = frozenset("+-*/<>=~!@#%^&|`?")


def _comment_end(sql: str, start: int, *, nests: bool) -> int:
    """Where a comment ends; those of PostgreSQL may hold others."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", sql[start:]):
        if mark[0] == "*/":
            depth -= 1
        elif nests or depth == 0:
            depth += 1
        if depth == 0:
            return start + mark.end()
    raise _wrong(f"the comment at character {start + 1} is never closed", "Close it with */")


def _one_statement(pieces: list[Token]) -> list[Token]:
    """The pieces before the closing semicolon, behind which nothing but space and comments may come."""
    ends = [place for place, piece in enumerate(pieces) if piece.kind == "end"]
    if ends and any(piece.kind not in (*SILENT, "end") for piece in pieces[ends[0] :]):
        raise _wrong("it is more than one statement", "Call once for each, without the semicolons between them")
    kept = pieces[: ends[0]] if ends else pieces
    if all(piece.kind in SILENT for piece in kept):
        raise _wrong("it is empty", "Write a statement such as SELECT 1")
    return kept


def _check_parentheses(pieces: Sequence[Token]) -> None:
    depth = 0
    for piece in pieces:
        depth += {"open": 1, "close": -1}.get(piece.kind, 0)
        if depth < 0:
            raise _wrong("a closing parenthesis has none to close", "Balance the parentheses")
    if depth:
        raise _wrong("a parenthesis is never closed", "Balance the parentheses")


def _check_reading(pieces: Sequence[Token], dialect: str) -> None:
    words = [piece.text.lower() for piece in pieces if piece.kind == "word"]
    first = next((piece for piece in pieces if piece.kind != "open"), None)
    if first is None or first.kind != "word" or first.text.lower() not in READING:
        begins = first.text[:40] if first is not None else "("
        raise _refused(f"it begins with {begins!r}; only SELECT, WITH and VALUES read")
    if any(piece.kind == "unicode" for piece in pieces):
        raise _refused('names written as U&"..." are not read; write the name itself')
    if dialect in ("postgresql", "sqlite"):
        return  # their engines tell better than words do, and let a column be called `set`
    if found := sorted(WRITING.intersection(words)):
        raise _refused(f"it holds the word {found[0]!r}; quote it if it is a name")


def _attributes(pieces: Sequence[Token]) -> Iterator[tuple[str, str]]:
    for place in range(1, len(pieces)):
        if pieces[place].kind in NAMES and pieces[place - 1].text == ".":
            owner = pieces[place - 2] if place > 1 else pieces[place - 1]
            yield fold_name(owner) if owner.kind in NAMES else "", fold_name(pieces[place])


def fold_name(piece: Token) -> str:
    """A name as the database keeps it: without its quotes, or in small letters."""
    if piece.kind == "word":
        return re.sub("[A-Z]+", lambda found: found[0].lower(), piece.text)  # as PostgreSQL does, ASCII alone
    mark = piece.text[-1]
    return piece.text[1:-1].replace(mark * 2, mark)


def _written(piece: Token) -> str:
    if piece.kind in ("line", "block"):
        return " "
    return piece.text if piece.kind == "placeholder" else piece.text.replace(":", "\\:")


def _wrong(problem: str, fix: str) -> InvalidArguments:
    return InvalidArguments("sql", details=(f"{problem}. {fix}",))


def _refused(problem: str) -> Refused:
    return Refused("sql", details=(f"this database is only read: {problem}",))


VALUES = 1_000
"""Values of one list."""


def expand_lists(sql: str, dialect: str, binds: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """The statement and its values without lists; one that does not stand behind IN stays, and is refused later.

    Raises:
        InvalidArguments: a list is empty or too long, or a quote is never closed.
    """
    values = dict(binds or {})
    lists = {name: value for name, value in values.items() if isinstance(value, list | tuple)}
    if not lists or not isinstance(sql, str):
        return sql, values
    if wrong := [name for name, value in lists.items() if not 1 <= len(value) <= VALUES]:
        details = [f"{name!r} has {len(lists[name])} values; pass 1 to {VALUES}" for name in wrong]
        raise InvalidArguments("sql", details=details)
    pieces = list(tokens(sql, dialect))
    written = [_written_list(pieces, place, lists) for place in range(len(pieces))]
    kept = {piece.text[1:] for piece, text in zip(pieces, written, strict=True) if piece.text == text}
    used = {piece.text[1:] for piece in pieces if piece.kind == "placeholder"}
    for name in lists.keys() & used - kept:
        values |= dict(zip(_names(name, lists[name]), values.pop(name), strict=True))
    return "".join(written), values


def _written_list(pieces: Sequence[Token], place: int, lists: Mapping[str, Sequence[Any]]) -> str:
    piece = pieces[place]
    name = piece.text[1:]
    if piece.kind != "placeholder" or name not in lists:
        return piece.text
    before = [one.text.lower() for one in pieces[:place] if one.kind not in SILENT][-2:]
    behind = next((one.text for one in pieces[place + 1 :] if one.kind not in SILENT), "")
    marks = ", ".join(f":{one}" for one in _names(name, lists[name]))
    if before[-1:] == ["in"]:
        return f"({marks})"
    return marks if before == ["in", "("] and behind == ")" else piece.text


def _names(name: str, values: Sequence[Any]) -> list[str]:
    return [f"portico_{name}_{number}" for number in range(len(values))]
