"""The first meaningful line of a description."""

from __future__ import annotations

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
