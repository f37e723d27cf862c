"""Why hits stand where they do: each score with the parts that it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portico.domain.disclosure import Hit


def explanation(hits: Sequence[Hit]) -> str:
    """Every hit with its score, and under it the parts, the largest first; what is shown adds up."""
    width = max((len(_spelled(_cents(hit.score))) for hit in hits), default=0)
    return "\n".join(line for hit in hits for line in _lines(hit, width))


def _lines(hit: Hit, width: int) -> list[str]:
    parts = sorted(_shares(hit.why, _cents(hit.score)).items(), key=lambda part: (-part[1], part[0]))
    return [
        f"{_spelled(_cents(hit.score)):>{width}}  {hit.handle}",
        *(f"{_spelled(value):>{width}}    {name}" for name, value in parts),
    ]


def _shares(why: Mapping[str, float], total: int) -> dict[str, int]:
    """The parts in hundredths, rounded so that they add up: those that lost most by rounding are rounded up."""
    shares = {part: int(100 * value // 1) for part, value in why.items()}
    missing = total - sum(shares.values())
    by_loss = sorted(why, key=lambda part: (-(100 * why[part] - shares[part]), part))
    for part in by_loss[: max(missing, 0)]:
        shares[part] += 1
    return shares


def _cents(value: float) -> int:
    return round(100 * value)


def _spelled(cents: int) -> str:
    return f"{cents / 100:,.2f}"
