"""The code blocks of the README and the docs: what each is, and what its markers say.

A marker is a comment on the lines right above a fence:

    <!-- not run: REASON -->       nobody can run it here
    <!-- run by: PATH -->          this test runs it
    <!-- with: SERVERS -->         the sample servers of its home; `all` of them, `broken` is one that cannot
                                   start, `nothing` none
    <!-- file: NAME -->            it is a file that the blocks below it on the page find; `~/` is the home
    <!-- setup: COMMAND -->        what was done in the shell before it
    <!-- surface: NAME -->         the surface that an agent talks to
    <!-- goes on -->               the home is that of the block of the same kind above
    <!-- output -->                it is what the program above prints
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import ROOT

FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w-]*)\s*$")
MARKER = re.compile(r"^\s*<!-- (not run|run by|with|file|setup|surface|goes on|output)(?:: *(.*?))? *-->\s*$")
COMMAND = re.compile(
    r"^(?:[A-Z_]+=\S+ )*(?:portico|make|pip|python|claude|systemctl|launchctl|ssh|git|curl|psql|loginctl|journalctl) "
)
KNOWN = (
    "console",
    "agent",
    "http",
    "commands",
    "python",
    "yaml",
    "json",
    "lua",
    "sql",
    "text",
    "toml",
    "ini",
    "xml",
    "nginx",
)
SERVERS = "calculator, tracker"
ALL = "calculator calendar data-server notes text-tools tracker"


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str
    markers: dict[str, str]

    @property
    def id(self) -> str:
        """Where it is."""
        return f"{self.page}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        """Whether neither a reason nor another test stands for it."""
        return "not run" not in self.markers and "run by" not in self.markers

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers of its home."""
        return tuple(sorted(self.markers.get("with", SERVERS).replace(",", " ").replace("all", ALL).split()))


def pages() -> list[Path]:
    """Every page for readers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> list[Block]:
    """Every block of every page, in order."""
    return [block for page in pages() for block in read(page)]


def read(page: Path) -> Iterator[Block]:
    """The blocks of one page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    name, at, markers = page.relative_to(ROOT).as_posix(), 0, dict[str, str]()
    while at < len(lines):
        if marker := MARKER.match(lines[at]):
            markers[marker[1]] = marker[2] or ""
        elif fence := FENCE.match(lines[at]):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[1])
            text = "\n".join(lines[at + 1 : end])
            yield Block(name, at + 1, fence[2] or guess(text), text, markers)
            at, markers = end, {}
        elif lines[at].strip():
            markers = {}
        at += 1


def guess(text: str) -> str:
    """What a block without a language is; empty when that cannot be told."""
    first = text.lstrip("\n").split("\n")[0]
    if first.startswith("$ "):
        return "console"
    if re.match(r"> [\w-]+\(\{", first):
        return "agent"
    if first.startswith("> GET "):
        return "http"
    return "commands" if COMMAND.match(first) else ""
