"""Schemas of results, learned from calls: names and types are kept, and no value."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock
from typing import Any

import orjson

from portico.domain.call import Result
from portico.domain.learned_schema import Learned, merge, shape_of
from portico.domain.tool import Tool, ToolId
from portico.errors import StoreError
from portico.protocols import ShapeStore
from portico.results.preview import is_small, read_outline

from .background import Aside

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
