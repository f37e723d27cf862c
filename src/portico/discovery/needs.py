"""A query may ask for several things; each need is looked for on its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .words import QUERY_LIMIT, spelled_words

MOST_NEEDS = 6
SHORTEST_NEED = 2
"""Words that a need has at least; fewer belong to the need before."""
LONG_QUERY = 40
"""Words from which on each sentence is taken as a need of its own."""
SEEN = 300
"""Characters in which a part shows whether it has words enough."""

_STEP = re.compile(
    r";\s+|\n+(?:\s*(?:[-*•]|\d+[.)])\s+)?"
    r"|[,.]?\s+(?:and\s+)?(?:then|after\s+that|afterwards|finally|lastly|additionally)\b,?\s*"
    r"|[,.]\s+(?:and\s+)?(?:next|also)\b,?\s+"
    r"|,?\s+(?:and\s+also|as\s+well\s+as)\s+",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"[;\n]|\b(?:and|then|after\s+that|afterwards|finally|lastly|additionally|next|also|as\s+well\s+as)\b",
    re.IGNORECASE,
)
"""What a query has that asks for several things, unless it is a long one."""
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']{3,}'(?!\w)|`[^`]*`")
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_AND = re.compile(r",?\s+and\s+(?=([a-z]+)\b)", re.IGNORECASE)
_ACTIONS = frozenset(
    "add analyze append approve archive assign attach book buy calculate call cancel check clear click close commit"
    " compare compress compute convert copy count create crop decrypt delete deploy describe disable download draft"
    " draw edit email enable encrypt execute export extract fetch fill find generate get give import insert install"
    " invite list look make merge message move navigate notify open order pay plot post print publish purchase push"
    " query read recommend record reject remove rename replace reply report reserve resize restart retrieve return"
    " rotate run save scan schedule search select send set share show sort start stop store submit subscribe suggest"
    " summarize tell transfer translate turn update upload validate verify visualize watch write".split()
)


def needs(query: str) -> list[str]:
    """The several things that a query asks for, in its order; one element when it is a single one."""
    query = query[:QUERY_LIMIT]
    if not _SEVERAL.search(query) and query.count(" ") < LONG_QUERY:
        return [query]
    query = "\n".join(" ".join(line.split()) for line in query.splitlines())
    shape = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), query)
    spans = list(_between(_STEP, shape, (0, len(shape))))
    if len(shape.split()) > LONG_QUERY:
        spans = [sentence for span in spans for sentence in _between(_SENTENCE, shape, span)]
    parts = [query[start:end] for span in spans for start, end in _actions(shape, span)]
    return _with_enough(parts)[:MOST_NEEDS]


def _between(pattern: re.Pattern[str], text: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """What lies between the matches of a pattern."""
    start, end = span
    for match in pattern.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


def _actions(text: str, span: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Split at "and" where an action follows that is more than one word."""
    start, end = span
    for match in _AND.finditer(text, start, end):
        before, after = text[start : match.start()], text[match.end() : end]
        if match[1].lower() in _ACTIONS and _is_enough(before) and _is_enough(after):
            yield start, match.start()
            start = match.end()
    yield start, end


def _with_enough(parts: list[str]) -> list[str]:
    """The parts; one with too few words joins the one before it."""
    found: list[str] = []
    for part in parts:
        if found and not _is_enough(part):
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
    if len(found) > 1 and not _is_enough(found[0]):
        found[:2] = [f"{found[0]} {found[1]}"]
    return found


def _is_enough(text: str) -> bool:
    return len(spelled_words(text[:SEEN])) >= SHORTEST_NEED
