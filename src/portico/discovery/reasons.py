"""Why a tool was found: each part of its score, worked out when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .reading import Need

COPY_PART = "like one before it"
"""What a tool loses for others of its name and meaning that come before it."""


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
            found = {f"word {t.word}": value for t in self._need.terms if (value := t.value_in(self._tool))}
            found["meaning"] = self._base - sum(found.values())
            found.update(self._added)
            found["several needs"] = self._score - sum(found.values())
            self._known = {part: rounded for part, value in found.items() if (rounded := round(value, 4))}
        return self._known
