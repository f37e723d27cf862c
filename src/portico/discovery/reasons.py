"""Why a tool was found: each part of its score, worked out when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .reading import Need

SEMANTIC_PART = "semantic"
"""What an embedder says of the query and the tool."""
COPY_PART = "like one before it"
"""What a tool loses for others of its name and meaning that come before it."""


NOISE = 0.0003
"""What rounding may leave over."""


class Why(Mapping[str, float]):
    """The parts of one tool's score; they add up to it."""

    __slots__ = ("_added", "_base", "_known", "_need", "_score", "_tool")

    def __init__(self, need: Need, tool: int, base: float, score: float, added: Mapping[str, float]) -> None:
        self._need = need
        self._tool = tool
        self._base = base
        """By words and meaning alone."""
        self._score = score
        self._added = added
        self._known: dict[str, float] | None = None

    def __getitem__(self, part: str) -> float:
        return self._parts()[part]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts())

    def __len__(self) -> int:
        return len(self._parts())

    def __repr__(self) -> str:
        return repr(self._parts())

    def _parts(self) -> dict[str, float]:
        if self._known is None:
            words = {f"word {t.word}": value for t in self._need.terms if (value := t.value_in(self._tool))}
            in_words = sum(words.values())
            found = {part: round(value, 4) for part, value in words.items()}
            found["other words"] = _heard(in_words - sum(found.values()))
            found["meaning"] = self._base - in_words
            found.update(self._added)
            found["several needs"] = _heard(self._score - self._base - sum(self._added.values()))
            self._known = {part: rounded for part, value in found.items() if (rounded := round(value, 4))}
        return self._known


def _heard(value: float) -> float:
    return value if abs(value) > NOISE else 0.0
