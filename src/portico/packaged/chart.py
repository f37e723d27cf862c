"""What a chart shows, without anything that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is to be seen: one label for each place, and a value or nothing of each series there."""

    title: str
    labels: Sequence[str]
    series: Sequence[tuple[str, Sequence[float | None]]]

    @property
    def values(self) -> list[float]:
        """Every value that is there."""
        return [value for _, values in self.series for value in values if value is not None]
