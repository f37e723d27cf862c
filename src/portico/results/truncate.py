"""Makes results fit: a large one becomes a preview with a handle, under which the whole is kept for later reading."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import anyio.to_thread
from anyio import CapacityLimiter

from portico.domain.call import Call, Caller, Place, Result, Segment, Unit
from portico.domain.tool import OverriddenTool, Tool
from portico.execution.arguments import OutputCheck
from portico.protocols import TokenCounter
from portico.rendering.budget import tokens_per_letter

from .kept import Results
from .own_blocks import own_block
from .preview import CUT, STRING, JsonOutline, dumps, is_small, name_at, read_outline, shorten, shorten_text
from .result_schema import shape_line, shape_of

SAMPLED_LETTERS, PLACES = 2_000, 4  # letters of a text that are counted, and at how many places
ASCII_COST, LETTER_COST = 1.2, 4  # tokens that a letter costs at the very most: a plain one, and any other
SURELY_LESS, SURELY_MORE = 0.6, 1.7  # beyond these shares of a limit a sample is enough to tell
LETTERS_PER_TOKEN = 10  # more letters than a token ever has, on average
FRAME_TOKENS = 90  # what the lines around a preview cost, beside parameters and shape
TRIES = 8
BLOCKS = 8  # more blocks with text than these are shown as one
LARGE, LARGE_AT_ONCE = 1_000_000, 2
"""Letters of a result that takes a while to read, and how many of those are read at a time."""
TOO_DEEP = "the structured content is nested too deeply to be sent, and was left out"
SAID = 0.6
"""Texts so long beside the structured content say the same as it, if they are JSON or a block for each item."""


@dataclass(slots=True, kw_only=True)
class _Piece:
    """One text of a result, where it stands, and how much of it is shown."""

    block: int
    """The number of its block, or -1 for structured content alone."""
    text: str
    tokens: int
    outline: JsonOutline
    also: tuple[int, ...] = ()
    """Further blocks whose texts are in it."""
    shown: str = ""
    shown_tokens: int = 0
    whole: tuple[int, ...] = ()
    """The number of units of each segment that are shown whole."""

    @property
    def runs(self) -> list[tuple[Segment, int]]:
        """Its segments, and how many units of each are shown whole."""
        return [*zip(self.outline.part.segments, self.whole, strict=True)]


@dataclass(slots=True, kw_only=True)
class Truncator:
    """Gives each caller results that fit."""

    counter: TokenCounter
    results: Results = field(default_factory=Results)
    servers: Mapping[str, int] = field(default_factory=dict)
    """Tokens that a result of one server may cost, where the config says so."""
    per_client: Set[str] = frozenset()
    """Servers with a session for each client: what they return is that client's alone."""
    outputs: OutputCheck = field(default_factory=OutputCheck)
    large: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(LARGE_AT_ONCE))
    """Holds back large results, so that many at once take neither all memory nor all threads."""

    def configure(self, servers: Mapping[str, int], per_client: Set[str] = frozenset()) -> None:
        """Let results of servers cost so much from now on, and keep those of some for single clients."""
        self.servers, self.per_client = servers, per_client

    def limit(self, caller: Caller, tool: Tool | None = None) -> int:
        """Tokens that one result may cost: the smaller of what the caller and the tool or its server say.

        The default counts where nobody says anything.
        """
        own = 0
        if tool is not None:
            own = tool.override.result_tokens if isinstance(tool, OverriddenTool) else 0
            own = own or self.servers.get(tool.id.server, 0)
        given = (caller.result_tokens, own)
        return min((tokens for tokens in given if tokens > 0), default=self.results.limits.tokens)

    async def truncate(self, caller: Caller, call: Call, tool: Tool | None, result: Result) -> Result:
        """The result itself when it fits, else a preview of it with a handle for the rest; it may be of no tool."""
        if call.whole or result.raw.get("resultType") == "input_required":
            return result
        limit = self.limit(caller, tool)
        letters, structured = sum(len(text) for _, text in _texts(result.content)), result.structured
        extras = extras_of(result.raw)
        is_structured_small = structured is None or is_small(structured)
        if letters <= LARGE and is_structured_small and (not extras or is_small(extras)):
            result = without_excess(result, limit) if extras else result
            with suppress(RecursionError):
                if self._fits(result, limit):
                    return result
        # Reading a large result takes a while, and so may the store.
        is_large = letters > LARGE or not (is_structured_small or is_small(structured, LARGE // STRING))
        limiter = self.large if is_large else None
        return await anyio.to_thread.run_sync(self._make_fit, caller, call, tool, result, limit, limiter=limiter)

    def _make_fit(self, caller: Caller, call: Call, tool: Tool | None, result: Result, limit: int) -> Result:
        result = without_excess(result, limit)
        try:
            fits = self._fits(result, limit)
        except RecursionError:
            raw = {key: value for key, value in result.raw.items() if key != "structuredContent"}
            result = replace(result, raw=raw, notes=(*result.notes, TOO_DEEP))
            fits = self._fits(result, limit)
        return result if fits else self._shorten(caller, call, tool, result, limit)

    def _fits(self, result: Result, limit: int) -> bool:
        if not fits_within("\n".join(text for _, text in _texts(result.content)), limit, self.counter):
            return False
        return result.structured is None or fits_within(dumps(result.structured), limit, self.counter)

    def _shorten(self, caller: Caller, call: Call, tool: Tool | None, result: Result, limit: int) -> Result:
        pieces = self._pieces(result, limit)
        narrow = narrowing_parameters(tool, call.arguments) if tool else []
        values = (piece.outline.value for piece in pieces if piece.outline.part.is_json)
        shape = next((shape_line(shape_of(value)) for value in values), "")
        room = max(limit - FRAME_TOKENS - self.counter.count(f"{shape} {narrow}"), limit // 4)
        # The smaller ones stay whole, the larger ones are cut to the same share of the room.
        for left, piece in zip(range(len(pieces), 0, -1), sorted(pieces, key=lambda piece: piece.tokens), strict=True):
            self._cut(piece, room // left)
            room -= piece.shown_tokens
        if all(piece.shown is piece.text for piece in pieces):
            return replace(result, raw=self._with_structured(dict(result.raw), call, tool, limit))
        parts = tuple(piece.outline.part for piece in pieces)
        handle, is_own = (tool.handle, tool.id.server in self.per_client) if tool else (call.tool, False)
        id = self.results.keep(caller, handle, parts, _seen(pieces), limit, is_clients_own=is_own)
        notice = own_block(_notice(pieces, narrow, shape, id))
        raw = {**result.raw, "content": [*_content(result.content, pieces), notice]}
        return replace(result, raw=self._with_structured(raw, call, tool, limit))

    def _pieces(self, result: Result, limit: int) -> list[_Piece]:
        """The texts of a result; structured content is one of them where no text says the same."""
        found, also = _gather([*_texts(result.content)], result.content)
        if result.structured is not None:
            text = dumps(result.structured)
            data = [said for number, said in found if number in also or said.lstrip()[:1] in ("{", "[")]
            is_said = sum(map(len, data)) >= SAID * len(text)
            if not found or (not is_said and not fits_within(text, limit, self.counter)):
                found.append((-1, text))
        return [
            _Piece(
                block=number,
                text=text,
                tokens=estimate_tokens(text, self.counter),
                outline=read_outline(text, limit * LETTERS_PER_TOKEN),
                also=also.get(number, ()),
            )
            for number, text in found
        ]

    def _cut(self, piece: _Piece, room: int) -> None:
        """Decide how much of a piece is shown."""
        outline, segments = piece.outline, piece.outline.part.segments
        if fits_within(piece.text, room, self.counter):
            piece.shown = piece.text
            piece.whole = tuple(len(segment.starts) for segment in segments)
        elif outline.part.is_json:
            value = cut_to_fit(outline.value, room, self.counter, shorten, dumps)
            piece.shown = dumps(value)
            piece.whole = tuple(_whole(segment, value, outline) for segment in segments)
        else:
            piece.shown = shown = cut_to_fit(piece.text, room, self.counter, shorten_text, str)
            end = len(shown) + (1 if piece.text.startswith("\n", len(shown)) else -len(CUT))
            piece.whole = tuple(max(0, segment.holding(end)) for segment in segments)
        piece.shown_tokens = self.counter.count(piece.shown)

    def _with_structured(self, raw: dict[str, Any], call: Call, tool: Tool | None, limit: int) -> dict[str, Any]:
        """Structured content stays when it fits, and is cut when the cut is valid; else it is left out.

        A client that was given the output schema refuses a result without it, and so gets it whole rather than not.
        """
        structured = raw.get("structuredContent")
        if structured is None or fits_within(text := dumps(structured), limit, self.counter):
            return raw
        outline = read_outline(text, limit * LETTERS_PER_TOKEN)
        cut = cut_to_fit(outline.value, limit, self.counter, shorten, dumps)
        if outline.part.is_json and (tool is None or self.outputs.allows(tool, cut)):
            return {**raw, "structuredContent": cut}
        if call.needs_structured and tool and tool.output_schema is not None and not raw.get("isError"):
            return raw
        return {key: value for key, value in raw.items() if key != "structuredContent"}


def fits_within(text: str, tokens: int, counter: TokenCounter) -> bool:
    """Whether a text costs at most so many tokens; every letter is read only where it is a near thing."""
    if len(text) * (ASCII_COST if text.isascii() else LETTER_COST) <= tokens:
        return True
    about = estimate_tokens(text, counter)
    if not tokens * SURELY_LESS <= about <= tokens * SURELY_MORE:
        return about < tokens
    return counter.count(text) <= tokens


def estimate_tokens(text: str, counter: TokenCounter) -> int:
    """Tokens of a text, about, from some places of it."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLED_LETTERS, places=PLACES))


def cut_to_fit(
    value: Any, tokens: int, counter: TokenCounter, cut: Callable[[Any, int], Any], text_of: Callable[[Any], str]
) -> Any:
    """As much of a value as costs at most so many tokens: cut to letters, counted, and cut again."""
    letters = tokens * LETTERS_PER_TOKEN
    for _ in range(TRIES):
        value = cut(value, letters)  # only the first cut has the whole before it, which may be large
        text = text_of(value)
        cost = counter.count(text)
        if cost <= tokens:
            return value
        letters = int(min(letters, len(text)) * tokens / cost * 0.97)
    return cut(value, 0)


def _texts(content: Sequence[Any]) -> Iterator[tuple[int, str]]:
    """The texts among content blocks, with the numbers of their blocks; embedded texts are texts too."""
    for number, block in enumerate(content):
        if isinstance(block, dict):
            inner = block["resource"] if isinstance(block.get("resource"), dict) else block
            if isinstance(inner.get("text"), str):
                yield number, inner["text"]


def _gather(
    texts: list[tuple[int, str]], content: Sequence[Any]
) -> tuple[list[tuple[int, str]], dict[int, tuple[int, ...]]]:
    """Many blocks of one kind as one text, since many servers write a block for each item."""
    found, also = dict(texts), dict[int, tuple[int, ...]]()
    embedded = {number: content[number]["resource"] for number in found if "resource" in content[number]}
    plain = {number: text for number, text in texts if number not in embedded}
    for blocks, join in ((plain, _join_texts), (embedded, dumps)):
        if len(blocks) > BLOCKS:
            first, *others = blocks
            for number in others:
                del found[number]
            found[first], also[first] = join([*blocks.values()]), tuple(others)
    return sorted(found.items()), also


def _join_texts(texts: Sequence[str]) -> str:
    """Texts as a JSON list of what they say, else as lines."""
    as_list = f"[{','.join(texts)}]"
    return as_list if read_outline(as_list, 0).part.is_json else "\n".join(texts)


def _content(content: Sequence[Any], pieces: Sequence[_Piece]) -> list[Any]:
    """The content blocks with shortened texts in their places; all others as they were."""
    found = list(content)
    for piece in pieces:
        if piece.block < 0:
            found.append({"type": "text", "text": piece.shown})
        elif piece.also:
            found[piece.block] = {"type": "text", "text": piece.shown}
        elif isinstance(inner := found[piece.block].get("resource"), dict):
            found[piece.block] = {**found[piece.block], "resource": {**inner, "text": piece.shown}}
        else:
            found[piece.block] = {**found[piece.block], "text": piece.shown}
    gone = {number for piece in pieces for number in piece.also}
    return [block for number, block in enumerate(found) if number not in gone]


def _whole(segment: Segment, shown: Any, outline: JsonOutline) -> int:
    """Count the first units of a segment that are shown as they are."""
    cut, full = _at(shown, segment.place), _at(outline.value, segment.place)
    if segment.unit is Unit.ITEM and isinstance(cut, list):
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(cut, full, strict=False)))
    if isinstance(cut, dict):
        names = (name_at(outline.part.text, start) for start in segment.starts)  # type: ignore[attr-defined]
        return sum(1 for _ in takewhile(lambda name: name in cut and cut[name] == full[name], names))
    return 0


def _at(value: Any, place: Place) -> Any:
    for step in place:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value


def _seen(pieces: Sequence[_Piece]) -> int:
    """The number of the first unit that is not shown whole."""
    number = 0
    for segment, whole in (run for piece in pieces for run in piece.runs):
        if whole < len(segment.starts):
            return number + whole
        number += len(segment.starts)
    return 0


def _notice(pieces: Sequence[_Piece], narrow: Sequence[str], shape: str, id: str) -> str:
    """Tell what was left out, and the ways to it."""
    runs = [run for piece in pieces for run in piece.runs]
    longest = max(runs, key=lambda run: run[0].end - run[0].starts[0])[0].unit
    total = sum(len(segment.starts) for segment, _ in runs if segment.unit is longest)
    shown = sum(whole for segment, whole in runs if segment.unit is longest)
    got, all_tokens = sum(piece.shown_tokens for piece in pieces), sum(piece.tokens for piece in pieces)
    lines = [f"shortened: {shown:,} of {total:,} {longest} ({got:,} of {all_tokens:,} tokens)"]
    if narrow:
        lines[0] += f"; narrow with {', '.join(narrow)}"
    if id:
        lines[0] += f'; next: read_result({{"id": "{id}"}})'
    else:
        lines.append("the rest is lost: memory is full, and no store could take it; call again, and ask for less")
    return "\n".join([*lines, *([f"shape: {shape}"] if shape else [])])


PARAMETERS_SHOWN = 6
NAME_LENGTH = 40  # letters of a name that is worth its tokens
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NARROWING = frozenset(
    "limit offset page pages cursor filter filters field fields query since until after before count max top first last"
    " from to start end select columns properties where depth head tail size range date search skip take lines only"
    " include exclude pattern type state status labels sort".split()
)


def narrowing_parameters(tool: Tool, arguments: Mapping[str, Any]) -> list[str]:
    """Parameters that a call has not used yet, and whose names say that they narrow."""
    unused = (name for name in tool.properties if name not in arguments and len(name) <= NAME_LENGTH)
    found = [name for name in unused if not _NARROWING.isdisjoint(map(str.lower, _WORD.findall(name)))]
    return found[:PARAMETERS_SHOWN]


LETTERS_PER_JSON_TOKEN = 3  # letters that a token of JSON has, on average
SHARE = 2  # extras may take one part in so many of what a result may cost
BINARY_LETTERS = 16_000_000  # letters of one image, sound or file that is passed on

_PLAIN = frozenset({"content", "structuredContent", "isError", "resultType"})
_PLAIN_BLOCK = frozenset({"type", "text"})
_BINARY = frozenset({"data", "blob"})
_CORE = frozenset({"type", "text", "data", "mimeType", "resource"})  # what a block keeps when its extras are left out


def extras_of(raw: Mapping[str, Any]) -> list[Any]:
    """Everything in a result but its texts, its structured content and its binary data; mostly nothing."""
    found = [] if raw.keys() <= _PLAIN else [value for key, value in raw.items() if key not in _PLAIN]
    content = raw.get("content", [])
    if not isinstance(content, list):
        return [*found, content]
    is_plain = all(isinstance(block, dict) and block.keys() <= _PLAIN_BLOCK for block in content)  # as nearly always
    return found if is_plain else [*found, *map(_extras_of_block, content)]


def _extras_of_block(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    rest = {key: value for key, value in block.items() if key not in _PLAIN_BLOCK and key not in _BINARY}
    if isinstance(inner := rest.get("resource"), dict):
        rest["resource"] = {key: value for key, value in inner.items() if key not in _PLAIN_BLOCK | _BINARY}
    return rest


def without_excess(result: Result, tokens: int) -> Result:
    """The result with as many of its extras as have room beside what it says; a note tells what was left out."""
    room = max(tokens * LETTERS_PER_JSON_TOKEN // SHARE, 200)
    gone = Counter[str]()
    raw = dict(result.raw)
    content = raw.get("content")
    if isinstance(content, list):
        raw["content"], room = _blocks_with_room(content, room, gone)
    elif content is not None:
        raw["content"] = []
        gone["content that is no list"] += 1
    for key in [key for key in raw if key not in _PLAIN]:
        letters = _letters(raw[key])
        if letters > room:
            del raw[key]
            gone[f"`{key[:60]}`"] += 1
        else:
            room -= letters
    if not gone:
        return result
    named = [f"{what} ({count:,} times)" if count > 1 else what for what, count in gone.items()]
    more = f" and {len(named) - 10} more" if len(named) > 10 else ""
    note = f"left out of the result, which was too large: {', '.join(named[:10])}{more}"
    return replace(result, raw=raw, notes=(*result.notes, note))


def _blocks_with_room(content: list[Any], room: int, gone: Counter[str]) -> tuple[list[Any], int]:
    """The blocks that have room, without what has none, and the room that is left."""
    kept: list[Any] = []
    for block in content:
        if not isinstance(block, dict):
            gone["a block that is no object"] += 1
            continue
        kind = block["type"][:40] if isinstance(block.get("type"), str) else "unknown"
        letters = _letters(_extras_of_block(block))
        core: dict[str, Any] | None = block
        if letters > room:
            core = _core(block)
            gone[kind if core is None else f"fields of a {kind} block"] += 1
        else:
            room -= letters
        if core is not None and _is_too_large(core):
            gone[f"the data of one block: {kind}"] += 1
        elif core is not None:
            kept.append(core)
    return kept, room


def _core(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """A block with what it is about alone, where that is text or binary data; None where its fields are all it is."""
    resource = block.get("resource")
    if isinstance(resource, dict):
        short = {key: str(resource[key])[:500] for key in ("uri", "mimeType") if key in resource}
        said = {key: resource[key] for key in ("text", "blob") if isinstance(resource.get(key), str)}
        return {"type": "resource", "resource": {**short, **said}} if said else None
    if not isinstance(block.get("text"), str) and not isinstance(block.get("data"), str):
        return None
    return {key: value for key, value in block.items() if key in _CORE and isinstance(value, str)}


def _is_too_large(block: Mapping[str, Any]) -> bool:
    inner = block.get("resource")
    given = (block.get("data"), inner.get("blob") if isinstance(inner, dict) else None)
    return any(isinstance(data, str) and len(data) > BINARY_LETTERS for data in given)


def _letters(value: Any) -> int:
    if not value:
        return 0
    try:
        return len(dumps(value))
    except (RecursionError, ValueError):
        return 1 << 40  # nested too deeply for anybody
