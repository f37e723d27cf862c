"""Content blocks of our own in a result, and a tool's blocks that pretend to be ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from portico.catalog.naming import skeleton
from portico.text.untrusted import FENCE

MARK = "[portico]"
"""The first line of every block that we add; a line of a tool's text that begins so is put behind the fence."""
ORIGIN = "portico/origin"  # the key in `_meta` that tells programs whose a block is; only our own blocks have it
_RESERVED = "portico/"
_WORD = MARK.strip("[]")
_LETTERS = 64  # characters of a line that are looked at: nobody would look for the mark behind more of them
_ERROR_LENGTH = 1_000
_ERROR = re.compile(r"\W*error\s+[a-z_]{4,30}\s+for\b.*?;\s*(?:nothing|the call) was sent")
"""The first line of an error of ours."""


class OwnBlock(dict[str, Any]):
    """A content block that we wrote; no JSON from outside becomes one."""


def own_block(text: str, *, marked: bool = True) -> OwnBlock:
    """A text block of ours; in a result that may also hold a tool's text it begins with the mark."""
    return OwnBlock(type="text", text=f"{MARK}\n{text}" if marked else text, _meta={ORIGIN: "gateway"})


def attributed(raw: Mapping[str, Any], content: Sequence[Any]) -> dict[str, Any]:
    """A tool's result with this content, in which nothing can be taken for ours."""
    found = {**raw, "content": told_apart(content)} if content else dict(raw)
    if "_meta" in found and _is_marked(found["_meta"]):
        found["_meta"] = _unmarked(found["_meta"])
    return found


def told_apart(content: Sequence[Any]) -> Sequence[Any]:
    """Content in which no block of a tool can be taken for one of ours; the same object where none could."""
    for block in content:
        if type(block) is not OwnBlock and _poses(block):
            return [own if type(own) is OwnBlock else _mended(own) for own in content]
    return content


def _poses(block: Any) -> bool:
    if not isinstance(block, dict):
        return False
    text = block.get("text")
    if isinstance(text, str) and may_pose(text):
        return True
    if "_meta" in block and _is_marked(block["_meta"]):
        return True
    return "resource" in block and _poses(block["resource"])


def may_pose(text: str) -> bool:
    """Whether a text may have a line that looks like one of ours; quick where it has none."""
    if text.isascii():
        low = text.lower()
        is_worth_it = _WORD in low or ("error" in low and " was sent" in low)
    else:
        is_worth_it = _CANDIDATE.search(text) is not None
    return is_worth_it and any(map(_is_posing, text.splitlines()))


def unposed(text: str) -> str:
    """A text with every line behind the fence that looks like one of ours."""
    lines = text.splitlines(keepends=True)
    return "".join(f"{FENCE}{line}" if _is_posing(line) else line for line in lines)


def _is_posing(line: str) -> bool:
    begin = skeleton(line[:_LETTERS])
    if _MARKED.match(begin):
        return True
    return "error" in begin and _ERROR.match(skeleton(line[:_ERROR_LENGTH])) is not None


_OPENING = r"[\[({<\u2045\u2768-\u2775\u27e6-\u27ef\u3008-\u301b\uff08\uff3b\uff5b]"
_MARKED = re.compile(rf"[^\w\n]*{_OPENING}\s*{_WORD}\s*[^\w\s\"',/.-]")
"""The mark between brackets of any kind, at the beginning of a line or behind signs alone."""
_CANDIDATE = re.compile(
    rf"(?:^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])[^\w\n]*(?:{_OPENING}|\w{{5}}[^\w\n]+\w{{4,30}}[^\w\n]+\w{{3}}[^\w\n])",
    re.M,
)
"""The beginning of a line that is worth a closer look."""


def _mended(block: Any) -> Any:
    if not _poses(block):
        return block
    found = dict(block)
    if isinstance(found.get("text"), str):
        found["text"] = unposed(found["text"])
    if _is_marked(found.get("_meta")):
        found["_meta"] = _unmarked(found["_meta"])
    if "resource" in found:
        found["resource"] = _mended(found["resource"])
    return found


def _is_marked(meta: object) -> bool:
    return isinstance(meta, Mapping) and any(map(_is_reserved, meta))


def _unmarked(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in meta.items() if not _is_reserved(key)}


def _is_reserved(key: object) -> bool:
    return str(key).strip().casefold().startswith(_RESERVED)
