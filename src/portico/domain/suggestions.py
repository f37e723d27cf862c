"""Did you mean: the known names that are spelled most like a wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

CUTOFF = 60.0  # percent of letters that agree in their order; below it a suggestion looks like a joke
CUTOFF_AMONG_MANY = 65.0  # the same among thousands of names, where some are alike by chance
LONGEST_NAME = 128  # characters of a name that are compared: a stranger may send megabytes
MOST_NAMES = 50_000  # known names that are compared


def nearest_names(wrong: str, known: Iterable[str], limit: int = 3, cutoff: float = CUTOFF) -> list[str]:
    """The known names that are spelled most like this one, the nearest first; case does not count."""
    names = list(islice(known, MOST_NAMES))
    compared = [name[:LONGEST_NAME].casefold() for name in names]
    return [names[position] for position, _ in similarities(wrong[:LONGEST_NAME].casefold(), compared, cutoff, limit)]


def did_you_mean(wrong: str, known: Iterable[str], limit: int = 3) -> str:
    """A question that names what may be meant, or nothing where no known name is near."""
    near = [repr(name) for name in nearest_names(wrong, known, limit)]
    return f"did you mean {' or '.join(near)}?" if near else ""


def similarities(
    wrong: str, known: Sequence[str], cutoff: float = CUTOFF, limit: int | None = None
) -> list[tuple[int, float]]:
    """The positions of similar names, each with its percentage, the most similar first; case counts here."""
    # Loaded with the first wrong name: no command must pay for it before.
    from rapidfuzz import fuzz, process

    found = process.extract(wrong[:LONGEST_NAME], known, scorer=fuzz.ratio, score_cutoff=cutoff, limit=limit)
    return [(position, score) for _, score, position in found]


def misspelled_names(wrong: str, known: Sequence[str], share: float, limit: int) -> list[int]:
    """The positions of names that differ by few slips: letters missed, added, changed or swapped; the nearest first."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(
        wrong[:LONGEST_NAME], known, scorer=OSA.normalized_similarity, score_cutoff=share, limit=limit
    )
    return [position for _, _, position in found]
