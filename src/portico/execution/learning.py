"""What is learned from calls, in the background: schemas of results and token counts."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import Any

import orjson

from portico.domain.call import Result
from portico.domain.learned_schema import Learned, merge, shape_of
from portico.domain.tool import Tool, ToolId
from portico.errors import StoreError
from portico.protocols import ShapeStore, TokenCounter
from portico.results.preview import is_small, read_outline

WAITING = 1_000
"""Pieces of work that wait at most."""
IDLE_SECONDS = 10.0
"""The thread ends when it has had nothing to do for so long."""

OnFailure = Callable[[str, BaseException | None], None]
"""Told in words what went wrong, and by what."""


@dataclass(frozen=True, slots=True)
class _Work:
    run: Callable[..., Any]
    given: tuple[Any, ...]
    seconds: float
    on_failure: OnFailure

    def do(self) -> None:
        try:
            answer = self.run(*self.given)
            if inspect.isawaitable(answer):
                asyncio.run(self._awaited(answer))
        except TimeoutError:
            self.on_failure(f"did not return in {self.seconds:g} s", None)
        except BaseException as error:  # noqa: BLE001  it is an operator's code, and must not end the thread
            self.on_failure(f"raised {type(error).__name__}: {error}", error)

    async def _awaited(self, answer: Any) -> None:
        await asyncio.wait_for(answer, self.seconds)


@dataclass(slots=True)
class Aside:
    """Does work one piece after the other in a daemon thread, which is started when there is some."""

    _queue: Queue[_Work] = field(default_factory=lambda: Queue(WAITING))
    _lock: Lock = field(default_factory=Lock)
    _is_running: bool = False

    def put(self, run: Callable[..., Any], given: tuple[Any, ...], *, seconds: float, on_failure: OnFailure) -> None:
        """Hand a function and its arguments over; never waits. An async one gets an event loop of its own."""
        with self._lock:
            try:
                self._queue.put_nowait(_Work(run, given, seconds, on_failure))
            except Full:
                on_failure(f"is so slow that {WAITING} of its events wait, and is not told of more", None)
                return
            is_needed, self._is_running = not self._is_running, True
        if is_needed:
            Thread(target=self._work, name="portico hooks", daemon=True).start()

    def settle(self, seconds: float) -> None:
        """Wait until everything is done that was handed over, but no longer than that."""
        waiting = self._queue.all_tasks_done
        with waiting:
            waiting.wait_for(lambda: not self._queue.unfinished_tasks, seconds)

    def _work(self) -> None:
        while True:
            try:
                work = self._queue.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._is_running = False
                        return
                continue
            work.do()
            self._queue.task_done()
            del work  # a waiting thread holds on to nothing


def tokens_per_letter(text: str, count: Callable[[str], int], *, letters: int, places: int) -> float:
    """Tokens per letter; of a text with more letters than these, by as many of them, at places from end to end."""
    if not text:
        return 0.0
    if len(text) > letters:
        length = letters // places
        step = (len(text) - length) // max(1, places - 1)
        text = "".join(text[place * step : place * step + length] for place in range(places))
    return count(text) / len(text)


SAMPLED_LETTERS, PLACES = 2_000, 4
"""Characters of a text that are counted, and at how many places."""
EVERY = 32
"""How many texts of one kind are taken by their length before one is counted again."""
KINDS_KEPT = 5_000
LEAVES = 2_000
"""Values that are counted where there is no JSON to count."""
ASCII_COST, LETTER_COST = 1.2, 4
"""Tokens that a letter costs at the very most: a plain one, and any other."""
SURELY_LESS, SURELY_MORE = 0.6, 1.7
"""Beyond these shares of a limit a sample is enough to tell."""


@dataclass(slots=True)
class TokenSampler:
    """Counts the first text of each kind and every thirty-second after it; the others go by their length."""

    counter: TokenCounter
    _known: dict[Hashable, tuple[float, int]] = field(default_factory=dict)
    """By kind: tokens per character, and how many texts may still go by it."""

    def tokens(self, kind: Hashable, text: str) -> int:
        """Tokens of a text of one kind, about."""
        if not text:
            return 0
        share, left = self._known.get(kind, (0.0, 0))
        if not left:
            share, left = tokens_per_letter(text, self.counter.count, letters=SAMPLED_LETTERS, places=PLACES), EVERY
            if len(self._known) >= KINDS_KEPT:
                self._known.clear()
        self._known[kind] = (share, left - 1)
        return max(1, round(share * len(text)))


def text_of_arguments(arguments: Mapping[str, Any]) -> str:
    """What a caller has written, as JSON; nothing when it cannot be."""
    try:
        return orjson.dumps(arguments).decode() if arguments else ""
    except TypeError:
        return _leaves(arguments)


def text_of_result(result: Result) -> str:
    """What a model reads of a result: its text, or else its structured content."""
    text = result.text
    if text or result.structured is None:
        return text
    try:
        return orjson.dumps(result.structured).decode()
    except TypeError:
        return _leaves(result.structured)


def _leaves(value: Any) -> str:
    """What cannot be written as JSON: integers beyond 64 bits, many levels, foreign objects; of much, the beginning."""
    if is_small(value):
        with suppress(Exception):
            return str(value)
    found, waiting = list[str](), [value]
    while waiting and len(found) < LEAVES:
        inner = waiting.pop()
        if isinstance(inner, dict | list | tuple) and len(found) + len(waiting) + len(inner) > LEAVES:
            inner = [*islice(inner.items() if isinstance(inner, dict) else inner, LEAVES)]
        if isinstance(inner, dict):
            found.extend(str(name)[:SAMPLED_LETTERS] for name in inner)
            waiting.extend(inner.values())
        elif isinstance(inner, list | tuple):
            waiting.extend(inner)
        else:
            found.append(inner if isinstance(inner, str) else _short(inner))
    return " ".join(found)


def _short(value: object) -> str:
    try:
        return str(value)[:SAMPLED_LETTERS]
    except Exception:  # noqa: BLE001  a library user's own object may raise anything
        return ""


def fits_within(text: str, tokens: int, counter: TokenCounter) -> bool:
    """Whether a text costs at most so many tokens; every letter is read only where it is a near thing."""
    if len(text) * (ASCII_COST if text.isascii() else LETTER_COST) <= tokens:
        return True
    about = sampled(text, counter)
    if not tokens * SURELY_LESS <= about <= tokens * SURELY_MORE:
        return about < tokens
    return counter.count(text) <= tokens


def sampled(text: str, counter: TokenCounter) -> int:
    """Tokens of a text, about, from some places of it."""
    return round(len(text) * tokens_per_letter(text, counter.count, letters=SAMPLED_LETTERS, places=PLACES))


FIRST = 3
"""So many results are all looked at; later ones when their number is a power of two."""
SAMPLE = 64_000
"""Letters of each list that are looked at."""
AT_ONCE = 20_000
"""Letters of a result that are looked at while its caller waits; a longer one is looked at in the background."""
TOOLS_KEPT = 20_000
SAVE_SECONDS = 10.0
CLOSE_SECONDS = 2.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Shapes:
    """Learns the shape of each tool's results, and forgets it when the tool's definition changes."""

    store: ShapeStore | None = None
    _learned: dict[ToolId, Learned] = field(default_factory=dict)
    _seen: dict[ToolId, tuple[str, int]] = field(default_factory=dict)
    """How many results of each tool, as it is defined now, this process has had."""
    _unsaved: dict[ToolId, Learned] = field(default_factory=dict)
    _fingerprints: dict[int, tuple[Tool, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _aside: Aside = field(default_factory=Aside)
    _has_large: bool = False
    """Whether a large result waits to be looked at; more than one at a time would hold too much memory."""

    def recall(self) -> None:
        """Read what was learned before; blocks, and raises StoreError."""
        if self.store is not None:
            self._learned = {**self.store.shapes(), **self._learned}

    def known(self, tool: Tool) -> Learned | None:
        """What is known of a tool's results as it is defined now."""
        found = self._learned.get(tool.id)
        return found if found is not None and found.fingerprint == self._fingerprint(tool) else None

    def learn(self, tool: Tool, result: Result) -> None:
        """Look at a result that is good, if it is its turn."""
        mark = self._fingerprint(tool)
        before, number = self._seen.get(tool.id, (mark, 0))
        number = number + 1 if before == mark else 1
        is_turn = number <= FIRST or not number & (number - 1)
        is_large = is_turn and _is_large(result)
        if is_large and self._has_large:
            return  # it is still the turn of the next one
        self._count(tool.id, mark, number)
        if is_large:
            self._has_large = True
            self._aside.put(self._learn_large, (tool, result), seconds=SAVE_SECONDS, on_failure=self._gave_up)
        elif is_turn:
            self._learn(tool, result)

    def _count(self, id: ToolId, mark: str, number: int) -> None:
        if len(self._seen) >= TOOLS_KEPT and id not in self._seen:
            self._seen.clear()
        self._seen[id] = (mark, number)

    def _learn_large(self, tool: Tool, result: Result) -> None:
        self._learn(tool, result)
        self._has_large = False

    def _gave_up(self, what: str, error: BaseException | None) -> None:
        self._has_large = False
        _say(what, error)

    def _learn(self, tool: Tool, result: Result) -> None:
        value = _value(result)
        if not isinstance(value, dict | list):
            return
        before = self.known(tool) or Learned(fingerprint=self._fingerprint(tool))
        shape = merge(before.shape, shape_of(value))
        learned = Learned(fingerprint=before.fingerprint, shape=shape, results=before.results + 1)
        if len(self._learned) >= TOOLS_KEPT and tool.id not in self._learned:
            return
        self._learned[tool.id] = learned
        if self.store is not None:
            with self._lock:
                self._unsaved[tool.id] = learned
            self._aside.put(self.save, (), seconds=SAVE_SECONDS, on_failure=_say)

    def save(self) -> None:
        """Write down what is not written yet; blocks. A store that is away is only mentioned."""
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        if not unsaved or self.store is None:
            return
        try:
            self.store.save_shapes(unsaved)
        except StoreError as error:
            logger.warning("the shapes of results are not written down: %s", error)
            with self._lock:
                self._unsaved = {**unsaved, **self._unsaved}

    def close(self) -> None:
        """Write down what is left; blocks."""
        self._aside.settle(CLOSE_SECONDS)
        self.save()

    def _fingerprint(self, tool: Tool) -> str:
        kept = self._fingerprints.get(id(tool))
        if kept is None or kept[0] is not tool:
            if len(self._fingerprints) >= TOOLS_KEPT:
                self._fingerprints.clear()
            kept = self._fingerprints[id(tool)] = (tool, fingerprint_of(tool.definition))
        return kept[1]


def fingerprint_of(definition: Mapping[str, Any]) -> str:
    """What tells a definition from one that has changed."""
    try:
        text = orjson.dumps(definition, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits
        text = repr(definition).encode(errors="replace")
    return blake2b(text, digest_size=12).hexdigest()


def _value(result: Result) -> Any:
    """What a result says as data: its structured content, or its one text when that is JSON."""
    if result.structured is not None:
        return result.structured
    texts = _texts(result)
    if len(texts) != 1 or texts[0].lstrip()[:1] not in ("{", "["):
        return None
    return read_outline(texts[0], SAMPLE).value


def _is_large(result: Result) -> bool:
    return sum(len(text) for text in _texts(result)) > AT_ONCE or not is_small(result.structured)


def _texts(result: Result) -> list[str]:
    return [block["text"] for block in result.content if isinstance(block, dict) and isinstance(block.get("text"), str)]


def _say(what: str, error: BaseException | None) -> None:
    logger.warning("learning the shape of a result %s", what)
