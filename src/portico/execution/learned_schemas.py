"""Learns the schema of each tool's results from the calls that are made."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock

import orjson

from portico.concurrency import BackgroundThread
from portico.domain.call import Result
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import Learned
from portico.errors import StoreError
from portico.results.preview import is_small, read_outline
from portico.results.result_schema import Schema, merge, shape_of
from portico.storage.remembered_offerings import LearnedSchemas

FIRST = 3  # so many results are all looked at; later ones when their number is a power of two
SAMPLE = 64_000  # letters of each list that are looked at
AT_ONCE = 20_000
"""Letters of a result that are looked at while its caller waits; a longer one is looked at in the background."""
TOOLS_KEPT = 20_000
SAVE_SECONDS = 10.0
CLOSE_SECONDS = 2.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SchemaLearner:
    """Learns the schema of each tool's results, and forgets it when the tool's definition changes."""

    store: LearnedSchemas | None = None
    _learned: dict[ToolId, Learned] = field(default_factory=dict)
    _seen: dict[ToolId, tuple[str, int]] = field(default_factory=dict)
    """The number of results that this process has had of each tool, as it is defined now."""
    _unsaved: dict[ToolId, Learned] = field(default_factory=dict)
    _fingerprints: dict[int, tuple[Tool, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _background: BackgroundThread = field(default_factory=BackgroundThread)
    _has_large: bool = False
    """Whether a large result waits to be looked at; more than one at a time would hold too much memory."""

    def recall(self) -> None:
        """Read what was learned before; blocks, and raises StoreError."""
        if self.store is not None:
            self._learned = {**self.store.shapes(), **self._learned}

    def known(self, tool: Tool) -> Learned | None:
        """The schema of a tool's results as the tool is defined now."""
        found = self._learned.get(tool.id)
        return found if found is not None and found.fingerprint == self._fingerprint(tool) else None

    def shape_of(self, tool: Tool) -> Schema | None:
        """The shape of the results of a tool so far, as a JSON schema without values, where that is known."""
        learned = self.known(tool)
        return learned.shape if learned else None

    def results_of(self, tool: Tool) -> int:
        """The number of results of a tool from which that shape was learned."""
        learned = self.known(tool)
        return learned.results if learned else 0

    def learn(self, tool: Tool, result: Result) -> None:
        """Look at a result that is good, if it is its turn."""
        fingerprint = self._fingerprint(tool)
        before, number = self._seen.get(tool.id, (fingerprint, 0))
        number = number + 1 if before == fingerprint else 1
        is_turn = number <= FIRST or not number & (number - 1)
        is_large = is_turn and _is_large(result)
        if is_large and self._has_large:
            return  # it is still the turn of the next one
        if len(self._seen) >= TOOLS_KEPT and tool.id not in self._seen:
            self._seen.clear()
        self._seen[tool.id] = (fingerprint, number)
        if is_large:
            self._has_large = True
            self._background.put(self._learn_large, (tool, result), seconds=SAVE_SECONDS, on_failure=self._give_up)
        elif is_turn:
            self._learn(tool, result)

    def save(self) -> None:
        """Write to the store what is not there yet; blocks. A store that is away is only mentioned."""
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
        """Save what is left; blocks."""
        self._background.wait_until_idle(CLOSE_SECONDS)
        self.save()

    def _learn_large(self, tool: Tool, result: Result) -> None:
        self._learn(tool, result)
        self._has_large = False

    def _give_up(self, what: str, error: BaseException | None) -> None:
        self._has_large = False
        _warn(what, error)

    def _learn(self, tool: Tool, result: Result) -> None:
        value = result.structured
        if value is None:  # else its one text, when that is JSON
            texts = _texts(result)
            if len(texts) == 1 and texts[0].lstrip()[:1] in ("{", "["):
                value = read_outline(texts[0], SAMPLE).value
        if not isinstance(value, dict | list) or (len(self._learned) >= TOOLS_KEPT and tool.id not in self._learned):
            return
        before = self.known(tool) or Learned(fingerprint=self._fingerprint(tool))
        shape = merge(before.shape, shape_of(value))
        learned = Learned(fingerprint=before.fingerprint, shape=shape, results=before.results + 1)
        self._learned[tool.id] = learned
        if self.store is not None:
            with self._lock:
                self._unsaved[tool.id] = learned
            self._background.put(self.save, (), seconds=SAVE_SECONDS, on_failure=_warn)

    def _fingerprint(self, tool: Tool) -> str:
        """A hash that tells a tool's definition from one that has changed."""
        kept = self._fingerprints.get(id(tool))
        if kept is None or kept[0] is not tool:
            if len(self._fingerprints) >= TOOLS_KEPT:
                self._fingerprints.clear()
            try:
                text = orjson.dumps(tool.definition, option=orjson.OPT_SORT_KEYS)
            except TypeError:  # integers beyond 64 bits
                text = repr(tool.definition).encode(errors="replace")
            kept = self._fingerprints[id(tool)] = (tool, blake2b(text, digest_size=12).hexdigest())
        return kept[1]


def _is_large(result: Result) -> bool:
    is_structured_large = result.structured is not None and not is_small(result.structured)
    return is_structured_large or sum(map(len, _texts(result))) > AT_ONCE


def _texts(result: Result) -> list[str]:
    return [block["text"] for block in result.content if isinstance(block, dict) and isinstance(block.get("text"), str)]


def _warn(what: str, _: BaseException | None) -> None:
    logger.warning("learning the shape of a result %s", what)
