"""What results may cost, and for how long the rest of them is kept: the key `results`."""

from __future__ import annotations

from portico.domain.kept import ResultLimits

from .fields import Fields

KEYS = ("tokens", "expire_s", "memory_mb", "store_mb")
LEAST_TOKENS, MOST_TOKENS = 500, 10_000_000


def read_results(fields: Fields) -> ResultLimits:
    """The limits of results; what cannot be used is reported, and its default is in force."""
    fields.inner("results", KEYS)
    defaults = ResultLimits()
    expire = fields.number("results", "expire_s", above=0)
    memory = fields.whole("results", "memory_mb", least=0, most=1_000_000)
    store = fields.whole("results", "store_mb", least=0, most=1_000_000)
    return ResultLimits(
        tokens=fields.whole("results", "tokens", least=LEAST_TOKENS, most=MOST_TOKENS) or defaults.tokens,
        expire_s=defaults.expire_s if expire is None else expire,
        memory_mb=defaults.memory_mb if memory is None else memory,
        store_mb=defaults.store_mb if store is None else store,
    )
