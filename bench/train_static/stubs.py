"""Pairs from TypeScript declarations: the documentation comment above a function or method, found by pattern."""

import hashlib
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sources import PER_PACKAGE
from texts import asks, plain, split_first

Row = dict[str, Any]

LARGEST_FILE = 6_000_000
_COMMENT = re.compile(
    r"/\*\*((?:[^*]|\*(?!/))*)\*/\s*((?:export |declare |public |static |async |abstract |function |default )*)"
    r"([A-Za-z]\w*)\??\s*(?:<[^()]{0,200}>)?\("
)
_OWNER = re.compile(r"^\s*(?:export |declare |abstract |default )*(?:class|interface|namespace) (\w+)", re.M)
_PARAMETER = re.compile(r"(?:^|,)\s*(?:\.\.\.)?([A-Za-z_]\w*)\??\s*:")
_TAGGED = re.compile(r"^\s*@(\w+)\s*(?:\{[^}]*\})?\s*", re.M)
_ROUTINE = {
    "constructor",
    "on",
    "once",
    "off",
    "emit",
    "addListener",
    "removeListener",
    "toJSON",
    "toString",
    "fromJSON",
    "prependListener",
    "valueOf",
}


def mine_tarball(path: Path) -> list[Row]:
    """Return the pairs of one npm package, at most `PER_PACKAGE`."""
    package = re.sub(r"-\d+\.\d+.*$", "", path.name)
    rows: dict[str, Row] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if (
                member.name.endswith((".d.ts", ".d.cts", ".d.mts"))
                and member.size <= LARGEST_FILE
                and (stream := archive.extractfile(member))
            ):
                for row in _rows(package, member.name, stream.read().decode("utf-8", "replace")):
                    rows.setdefault(row["query"].lower(), row)
    return sorted(rows.values(), key=lambda row: hashlib.md5(f"{row['name']}{row['query']}".encode()).digest())[
        :PER_PACKAGE
    ]


def _rows(package: str, name: str, text: str) -> Iterator[Row]:
    spelled = package.removeprefix("types-")
    last = re.sub(r"\.d\.[cm]?ts$", "", Path(name).name).split(".")[-1]
    server = spelled if last in ("index", spelled) else f"{spelled} {last}"
    owners = [(match.start(), match[1]) for match in _OWNER.finditer(text)]
    for match in _COMMENT.finditer(text):
        while len(owners) > 1 and owners[1][0] < match.start():
            owners.pop(0)
        owner = owners[0][1] if owners and owners[0][0] < match.start() and "function" not in match[2] else ""
        if match[3] not in _ROUTINE and (row := _pair(match[1], match[3], text[match.end() : match.end() + 600])):
            yield {"source": package, "server": server, **row, "name": f"{owner}.{match[3]}" if owner else match[3]}


def _pair(comment: str, name: str, signature: str) -> Row | None:
    text = re.sub(r"^[ \t]*\*[ \t]?", "", comment, flags=re.M).strip()
    text = re.sub(r"\{@\w+ (?:[^}|]*\|)?([^}]*)\}", r"\1", text)
    if re.search(r"@(deprecated|internal|hidden|private)\b", text):
        return None
    body, *tags = re.split(r"^\s*(?=@\w)", text, flags=re.M)
    told = " ".join(_TAGGED.sub("", tag).strip() for tag in tags if tag.startswith(("@param", "@return")))
    query, description = split_first(plain(f"{body.strip() or _described(tags)}\n\n{told}"))
    parameters = _PARAMETER.findall(signature[: _closing(signature)])[:20]
    if not asks(query) or not (description or parameters):
        return None
    return {"query": query, "name": name, "description": description, "parameters": parameters}


def _described(tags: list[str]) -> str:
    return next((_TAGGED.sub("", tag) for tag in tags if tag.startswith(("@description", "@summary"))), "")


def _closing(signature: str) -> int:
    """Return where the parenthesis that is already open closes."""
    depth = 1
    for position, character in enumerate(signature):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            return position
    return len(signature)
