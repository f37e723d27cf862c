"""What is on its way to the ledger: batches that stay as they are until they are stored, or found to be impossible."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from portico.domain.journal import Batch, Entry
from portico.errors import StoreError, StoreRefused
from portico.ports import Ledger

LARGEST = 5_000
"""Entries in one batch at most."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of one batch."""

    stored: int = 0
    refused: int = 0
    """Entries that the ledger cannot take."""
    dropped: int = 0
    """Entries that had been left out before, and are counted now."""
    gone: int = 0
    """Entries that had been stored before, and are no longer there."""
    reason: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parcel:
    batch: Batch
    receipt: Receipt = field(default_factory=Receipt)
    """What is to be said when the batch is stored."""


class Outbox:
    """Sends entries in their order, each exactly once; for one thread."""

    def __init__(self, ledger: Ledger, writer: str) -> None:
        self._ledger, self._writer = ledger, writer
        self._first, self._has_refused = 0, False
        self._taken: deque[Entry] = deque()
        self._parcels: deque[_Parcel] = deque()

    @property
    def is_packed(self) -> bool:
        """Whether there is a batch to send."""
        return bool(self._parcels)

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        return not self._parcels and not self._taken

    def take(self, entries: Sequence[Entry]) -> None:
        """Accept entries."""
        self._taken.extend(entries)

    def pack(self, dropped: int, caches: Mapping[str, tuple[int, int]]) -> None:
        """Make a batch of the oldest entries; from here on it is sent as it is, so that no retry stores it twice."""
        next_entry = self._taken.popleft
        entries = tuple([next_entry() for _ in range(min(len(self._taken), LARGEST))])
        batch = Batch(writer=self._writer, first=self._first, entries=entries, dropped=dropped, caches=caches)
        self._first = batch.end
        self._parcels.append(_Parcel(batch=batch, receipt=Receipt(stored=len(entries), dropped=dropped)))

    def send(self) -> Receipt | None:
        """Send the oldest batch; one that the ledger does not take is halved instead, to find the culprit.

        Raises:
            StoreError: the ledger cannot be written now; the batch is kept.
        """
        parcel = self._parcels[0]
        try:
            gone = self._ledger.append(parcel.batch)
        except Exception as error:  # an entry must not hold up all that come after it
            if isinstance(error, StoreError) and not isinstance(error, StoreRefused):
                raise  # the ledger is away, whatever is in the batch
            if not parcel.batch.entries and not parcel.batch.caches:
                raise StoreError(f"the journal's ledger fails without a reason that we know: {error!r}") from error
            self._parcels.popleft()
            self._parcels.extendleft(reversed(_smaller(parcel, error)))
            if len(parcel.batch.entries) == 1:
                self._log_refusal(error)
            return None
        self._parcels.popleft()
        return replace(parcel.receipt, gone=gone)

    def _log_refusal(self, error: Exception) -> None:
        """Say it once: what is wrong with one entry may be wrong with thousands."""
        level = logging.DEBUG if self._has_refused else logging.WARNING
        logger.log(level, "an entry cannot be written to the journal and is left out, as others may be: %r", error)
        self._has_refused = True


def _smaller(parcel: _Parcel, error: Exception) -> list[_Parcel]:
    """The halves of a batch; a single entry is left out and counted, and counts of caches are left out."""
    batch = parcel.batch
    size = len(batch.entries)
    if not size:
        return [replace(parcel, batch=replace(batch, caches={}))]
    if size == 1:
        left = replace(batch, entries=(), dropped=batch.dropped + 1)
        return [_Parcel(batch=left, receipt=replace(parcel.receipt, stored=0, refused=1, reason=repr(error)))]
    cut = size // 2
    first = replace(batch, entries=batch.entries[:cut], dropped=0, caches={})
    second = replace(batch, first=first.end, entries=batch.entries[cut:])
    return [
        _Parcel(batch=first, receipt=Receipt(stored=cut)),
        _Parcel(batch=second, receipt=replace(parcel.receipt, stored=size - cut)),
    ]
