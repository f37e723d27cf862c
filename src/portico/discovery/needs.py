"""A query may ask for several things; each need is looked for on its own."""

from __future__ import annotations

import re

from .words import QUERY_LIMIT, spelled_words

MOST_NEEDS = 6
SHORTEST_NEED = 2
"""Words that a need has at least; fewer belong to the need before."""
LONG_QUERY = 40
"""Words from which on each sentence is taken as a need of its own."""

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
_SENTENCE = re.compile(r"(?<=[.?!])\s+")
_AND = re.compile(r",?\s+and\s+(?=([a-z]+)\b)", re.IGNORECASE)
_ACTIONS = frozenset(
    "add analyze append archive assign attach book buy calculate call cancel check clear close commit compare compute"
    " convert copy count create delete deploy describe download draft draw edit email execute export extract fetch"
    " fill find generate get give import insert install list look make merge message move notify open order pay plot"
    " post print publish purchase push query read recommend record remove rename replace reply report reserve restart"
    " retrieve return run save schedule search send set share show start stop store submit subscribe suggest summarize"
    " tell translate turn update upload validate verify visualize watch write".split()
)


def needs(query: str) -> list[str]:
    """The several things that a query asks for, in its order; one element when it is a single one."""
    query = query[:QUERY_LIMIT]
    if not _SEVERAL.search(query) and query.count(" ") < LONG_QUERY:
        return [query]
    parts = _STEP.split(query)
    if len(query.split()) > LONG_QUERY:
        parts = [sentence for part in parts for sentence in _SENTENCE.split(part)]
    parts = [action for part in parts for action in _split_actions(part)]
    found: list[str] = []
    for part in parts:
        if found and len(spelled_words(part)) < SHORTEST_NEED:
            found[-1] = f"{found[-1]} {part}"
        else:
            found.append(part)
    if len(found) > 1 and len(spelled_words(found[0])) < SHORTEST_NEED:
        found[:2] = [f"{found[0]} {found[1]}"]
    return found[:MOST_NEEDS]


def _split_actions(text: str) -> list[str]:
    """Split at "and" where an action follows that is more than one word."""
    found: list[str] = []
    start = 0
    for match in _AND.finditer(text):
        if match[1].lower() in _ACTIONS and _is_enough(text[start : match.start()]) and _is_enough(text[match.end() :]):
            found.append(text[start : match.start()])
            start = match.end()
    return [*found, text[start:]]


def _is_enough(text: str) -> bool:
    return len(spelled_words(text)) >= SHORTEST_NEED
