"""What a house remembers: the store of the settings, opened, and what it holds from before."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from portico.admin import Admin
from portico.config import Settings
from portico.discovery.cache import AnswerCache
from portico.errors import StoreError
from portico.execution.learning import Shapes
from portico.ports import Store
from portico.stores.database import Database
from portico.stores.journal import StoredJournal
from portico.stores.ledger import DatabaseLedger
from portico.stores.offerings import DatabaseStore
from portico.stores.opening import open_database, open_signals
from portico.stores.results import DatabaseResults
from portico.stores.shapes import DatabaseShapes
from portico.stores.tiers import DatabaseTiers

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the store of the settings gives to a house."""

    store: Store
    journal: StoredJournal
    parts: Mapping[str, Any]
    closing: list[Callable[[], None]]


def open_stores(settings: Settings) -> Remembered:
    """Open the store of the settings; a server that is away is no reason to fail."""
    durable = settings.journal.mode == "durable"
    database = open_database(settings.store, settings.home.data, durable=durable, patient=True)
    store, ledger, signals = DatabaseStore(database), DatabaseLedger(database), open_signals(database)
    cache, counters = AnswerCache(), _counters(settings, database)
    journal = StoredJournal(
        ledger,
        folder=counters,
        durable=durable,
        buffer=settings.journal.buffer,
        wait_seconds=settings.journal.wait_s,
        caches=cache.counts,
    )
    parts = {
        "store": store,
        "journal": journal,
        "ledger": ledger,
        "records": DatabaseTiers(database),
        "signals": signals,
        # A database in memory has no more room than memory.
        "result_store": DatabaseResults(database) if counters is not None else None,
        "shape_store": DatabaseShapes(database),
        "cache": cache,
        "store_name": settings.store_shown,
        "journal_mode": settings.journal.mode,
        "keep_days": settings.journal.keep_days,
    }
    closing = [signals.close, journal.close, database.close]
    return Remembered(store=store, journal=journal, parts=parts, closing=closing)


def _counters(settings: Settings, database: Database) -> Path | None:
    """Where the counters of this database's writers lie; one in memory is gone with its only writer."""
    is_kept = database.dialect != "sqlite" or settings.store not in ("memory", "sqlite://", "sqlite:///:memory:")
    return settings.home.data / "journal" / f"{crc32(database.where.encode()):08x}" if is_kept else None


def recall(admin: Admin, shapes: Shapes) -> None:
    """Let tools stand, categories be called and results look as they were last written down."""
    try:
        if admin.records is not None:
            admin.standings.replace_tiers(admin.records.standings())
            admin.standings.replace_categories(admin.records.categories())
        shapes.recall()
    except StoreError as error:
        logger.warning("how tools stand is not remembered: %s", error)
