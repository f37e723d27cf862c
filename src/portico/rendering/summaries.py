"""What a tool does in one line, made of its own description."""

from __future__ import annotations

import re
from functools import lru_cache

from portico.domain.tool import Tool

SUMMARY_LENGTH = 200
"""Characters of a line that are kept: some descriptions are one line of thousands."""

HEADERS = frozenset(
    {
        *("return value", "return values", "returned value", "input parameters", "keyword arguments"),
        *("optional arguments", "optional parameters", "required parameters", "required arguments"),
        *("example usage", "usage example", "usage examples", "see also"),
    }
)
"""Section headers of more than one word; one word with a colon is a header whatever it is."""


def summary(tool: Tool) -> str:
    """A tool in one line: what its description says first, or else its title."""
    return first_line(tool.description) or first_line(tool.title)


def first_line(text: str) -> str:
    """The first line that says something: no empty line, no rule, no section header; cut at a word when it is long."""
    for raw in text.splitlines():
        line = " ".join(raw.split())
        if any(map(str.isalnum, line)) and not _is_header(line):
            return _cut(line)
    return ""


def _is_header(line: str) -> bool:
    """Whether a line opens a section; a sentence that ends with a colon does not."""
    bare = line.strip("*#_ ")
    if not bare.endswith(":"):
        return False
    name = bare.rstrip(":*_ ").casefold()
    return " " not in name or name in HEADERS


def _cut(line: str) -> str:
    if len(line) <= SUMMARY_LENGTH:
        return line
    kept = line[: SUMMARY_LENGTH - 1]
    return f"{(kept.rsplit(' ', 1)[0] or kept).rstrip(' ,;:')}…"


PURPOSE_LENGTH = 90

_SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?:[.!?](?= )| -(?= ))")
LONGEST = 1_000
"""Characters of a description in which its first sentence is looked for."""
_SHORTEST = 15
"""A first sentence below this length says too little alone."""
_SECTION = re.compile(r"[-*#•>] |```|\d+[.)] |[A-Z][\w ]{0,24}:$")
"""How a line begins, or reads, that is no part of a sentence: a list, a heading, `Args:`."""
_LABEL = re.compile(r"^([\w .-]{1,30}?) ?\| (?=\w)")
_OPENING = re.compile(
    r"^(?:this tool |(?:a |the )?tool (?:to |for |that )|use this (?:tool )?to )(?=\w)", re.IGNORECASE
)
_ASIDE = re.compile(r" \([^()]*\)")
_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_]")
_EMPTY_WORDS = frozenset(
    "a an the of in to for from on by with and or as its your this that it new existing specific specified given single"
    " one all provided".split()
)


def purpose(tool: Tool, limit: int = PURPOSE_LENGTH) -> str:
    """The first sentence of a tool's description; empty when it says no more than the tool's name."""
    return _purpose(tool.handle, tool.description or tool.title, limit)


@lru_cache(maxsize=4_096)
def _purpose(handle: str, text: str, limit: int) -> str:
    text = _opening(text)
    label = _LABEL.match(text)
    if label and _is_said_by(handle, label[1]):
        text = text[label.end() :]
    line = _sentence(text, limit)
    return "" if _is_said_by(handle, line) else line


def first_sentence(text: str, limit: int) -> str:
    """The first sentence of a text, on one line; a long one loses its asides, then it is cut at a word."""
    return _sentence(_opening(text), limit)


def _sentence(line: str, limit: int) -> str:
    line = _OPENING.sub("", line, count=1)
    end = next((found for found in _SENTENCE_END.finditer(line) if found.start() >= _SHORTEST), None)
    line = (line[: end.start()] if end else line).removesuffix(".")
    if len(line) > limit:
        line = _ASIDE.sub("", line)
    if len(line) > limit:
        line = f"{line[:limit].rsplit(' ', 1)[0].rstrip(' ,;:(')}…"
    return line[:1].upper() + line[1:]


def _opening(text: str) -> str:
    """The lines of the first paragraph up to a list or a heading, as one line of printable characters."""
    taken: list[str] = []
    for line in text.strip()[:LONGEST].splitlines():
        line = " ".join(line.split())
        if taken and (not line or _SECTION.match(line)):
            break
        if line:
            taken.append(line if taken else line.lstrip("#* "))
    found = " ".join(taken)
    return found if found.isprintable() else "".join(letter for letter in found if letter.isprintable())


def _is_said_by(handle: str, text: str) -> bool:
    """Whether a text has no word beyond those of a handle; `GitHub` is one word, or its two parts."""
    known = _KNOWN | {_stem(part) for word in _WORD.findall(handle) for part in (word, *_PART.findall(word))}
    words = _WORD.findall(text)
    return all(_stem(word) in known or {_stem(part) for part in _PART.findall(word)} <= known for word in words)


def _stem(word: str) -> str:
    """Without the endings that tell `Creates issues` from `create_issue`."""
    word = word.casefold()
    word = word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word
    return word.removesuffix("s").removesuffix("e") if len(word) > 3 else word


_KNOWN = frozenset(map(_stem, _EMPTY_WORDS))
