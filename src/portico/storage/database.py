"""What every database is to the rest of the storage, and storage that lasts as long as the process."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from threading import Lock
from time import time
from types import MappingProxyType
from typing import Any, Literal, Protocol

from portico.domain.call import Invocation
from portico.domain.journal import Entry, Lookup
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.domain.usage import Usage
from portico.errors import StoreError, StoreRefused

SPELLED_LENGTH = 200
TEXT_LENGTH = 500
KEY_BYTES = 1_200
"""PostgreSQL indexes at most 2,704 bytes, and a tool's key has two names in it."""

_INSTEAD = "\ufffd"


def clean(text: str, length: int = TEXT_LENGTH) -> str:
    """The text without what a database refuses, and no longer than this."""
    if len(text) > length:
        text = text[: length - 1] + "…"
    if text.isascii():
        return text if "\0" not in text else text.replace("\0", _INSTEAD)
    return text.encode(errors="replace").decode().replace("\0", _INSTEAD) if _is_odd(text) else text


def key(name: str) -> str:
    """The name as a key: one that is too long or cannot be stored ends in a hash, so that no two become one."""
    if len(name) * 4 <= KEY_BYTES or (len(name) <= KEY_BYTES and name.isascii()):
        found = clean(name, len(name) + 1)
        if found == name:
            return found
    whole = name.encode(errors="surrogatepass")
    found = clean(name, 200 if len(whole) > KEY_BYTES else len(name) + 1)
    return name if found == name else f"{found}~{blake2b(whole, digest_size=12).hexdigest()}"


def _is_odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return "\0" in text


REVISIONS = ("0001", "0002", "0003", "0004", "0005")
"""Oldest first, as in `migrations/versions`."""

HEAD = REVISIONS[-1]

SCRIPT = Path(__file__).with_name("schema.sql")
"""The tables of an empty SQLite file: what the migrations would make, without loading what runs them."""


def bring_up(database: Database) -> None:
    """Give a database the tables that this program needs.

    Raises:
        StoreRefused: it belongs to a newer program, or does not let tables be made.
        StoreError: it cannot be read or changed now.
    """
    version = database.version()
    if version == HEAD:
        return
    if version and version not in REVISIONS:
        raise StoreRefused(
            f"the store {database.where} was written by a newer Portico (its tables are at {version!r}, this program "
            f"knows {HEAD!r}). Update Portico, or point `store` at another database"
        )
    database.upgrade()


Binds = Mapping[str, Any]
Row = tuple[Any, ...]
Dialect = Literal["sqlite", "postgresql"]

ONE_OF: Mapping[Dialect, str] = {
    "sqlite": "IN (SELECT value FROM json_each(:{0}))",
    "postgresql": "IN (SELECT json_array_elements_text(CAST(:{0} AS json)))",
}
"""How a text is compared with a list of any length, bound as one JSON text: there is no spelling that both know."""

HELD: Mapping[Dialect, str] = {"sqlite": "", "postgresql": "FOR UPDATE"}
"""The end of a SELECT whose rows nobody else may change until the transaction ends; SQLite has one writer anyway."""

LONGEST = 200
"""Letters of a driver's words that are repeated."""
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z])")
_IDLE_WORDS = ("Is the server running", "Multiple connection attempts failed")
"""How lines begin that say nothing: a question to the reader, and a heading."""


class Work(Protocol):
    """Where statements are run; they are written once, with `:named` binds, in words that both dialects know."""

    def rows(self, sql: str, binds: Binds | None = None) -> list[Row]:
        """Run a statement and give back its rows."""
        ...

    def run(self, sql: str, binds: Binds | Sequence[Binds] = ()) -> int:
        """Run a statement once, or once for each of the binds, and say how many rows it touched."""
        ...

    def insert(self, table: str, rows: Sequence[Binds]) -> None:
        """Add rows to a table, all with the same columns; the cheapest way for many."""
        ...


class Database(Work, Protocol):
    """A database that is open; threads may share it.

    A statement outside a transaction stands alone: all of it happens, or nothing. Every method may raise StoreError,
    and works again when the trouble is over.
    """

    @property
    def dialect(self) -> Dialect:
        """Which words of SQL it knows."""
        ...

    @property
    def where(self) -> str:
        """Where it is, for people; without a user or a password."""
        ...

    def transaction(self) -> AbstractContextManager[Work]:
        """While this is open, what is run with the given work happens together, or not at all; there is none within."""
        ...

    def version(self) -> str:
        """The last migration that ran; empty when none did."""
        ...

    def upgrade(self) -> None:
        """Run the migrations that have not run yet."""
        ...

    def check(self) -> None:
        """Return when the database is sound; this reads all of it where that is what it takes.

        Raises:
            StoreError: it is not, with the first thing that was found.
        """
        ...

    def close(self) -> None:
        """Release the file or the connections."""
        ...


def one_of(database: Database, bind: str) -> str:
    """The end of a condition: that a text is in the list which is bound under this name, as JSON."""
    return ONE_OF[database.dialect].format(bind)


def brief(problem: object) -> str:
    """The first sentence of what a driver said, and no more of it than leaves room for advice."""
    lines = [line for line in map(str.strip, str(problem).splitlines()) if line and not line.startswith(_IDLE_WORDS)]
    sentence = _SENTENCE.split(lines[0] if lines else "")[0].rstrip(".") or type(problem).__name__
    return sentence if len(sentence) <= LONGEST else f"{sentence[: LONGEST - 1]}…"


def trouble(where: str, problem: object, advice: str) -> StoreError:
    """The error for a statement that could not be run."""
    return StoreError(f"the store {where} did not answer: {brief(problem)}. {advice}")


def refusal(where: str, problem: object) -> StoreRefused:
    """The error for what a database is given and does not take."""
    return StoreRefused(f"the store {where} refused what it was given: {brief(problem)}")


USAGE_KEPT = 20_000
"""Tools whose usage is kept."""

VECTORS_KEPT = 20_000


@dataclass(slots=True)
class MemoryStore:
    """Remembers offerings until the process ends."""

    vectors_kept: int = VECTORS_KEPT
    _kept: dict[str, tuple[Offering, str]] = field(default_factory=dict)
    _failed: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    _vectors: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Those used last at the end."""
    _lock: Lock = field(default_factory=Lock)

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        """The offerings whose fingerprint is still the same."""
        return {name: kept[0] for name, mark in servers.items() if (kept := self._kept.get(name)) and kept[1] == mark}

    def save(self, offering: Offering, fingerprint: str) -> None:
        """Remember one server's offering."""
        self._kept[offering.server] = (offering, fingerprint)
        self._failed.pop(offering.server, None)

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked."""
        self._failed[server] = (fingerprint, reason, time())

    def failures(self, servers: Mapping[str, str], *, within: float) -> dict[str, str]:
        """Why servers could not be asked, as long as that is recent."""
        since = time() - within
        rows = ((name, self._failed[name]) for name in servers if name in self._failed)
        return {name: reason for name, (mark, reason, at) in rows if mark == servers[name] and at >= since}

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is remembered of these servers."""
        for name in servers:
            self._kept.pop(name, None)
            self._failed.pop(name, None)

    def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The vectors that are remembered under these hashes."""
        with self._lock:
            found = {hash: kept for hash in hashes if (kept := self._vectors.pop((model, hash), None)) is not None}
            self._vectors |= {(model, hash): vector for hash, vector in found.items()}
            return found

    def save_vectors(self, model: str, rows: Mapping[str, bytes]) -> None:
        """Remember vectors; those not used for longest make room."""
        with self._lock:
            for hash, vector in rows.items():
                self._vectors.pop((model, hash), None)
                self._vectors[model, hash] = vector
            for key in list(islice(self._vectors, max(0, len(self._vectors) - self.vectors_kept))):
                del self._vectors[key]

    def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class RecentJournal:
    """Keeps the newest invocations and the usage of the tools that were called last, and no more."""

    recent: deque[Invocation] = field(default_factory=lambda: deque(maxlen=1_000))
    lookups: deque[Lookup] = field(default_factory=lambda: deque(maxlen=1_000))
    _usage: dict[ToolId, Usage] = field(default_factory=dict)

    def record(self, entry: Entry) -> None:
        """Keep one entry, and count it."""
        if isinstance(entry, Lookup):
            self.lookups.append(entry)
            return
        self.recent.append(entry)
        if entry.tool is None:
            return
        usage = self._usage.pop(entry.tool, Usage()) + entry
        if usage.calls:
            self._usage[entry.tool] = usage
        if len(self._usage) > USAGE_KEPT:
            del self._usage[next(iter(self._usage))]

    async def written(self) -> str:
        """There is nothing to wait for."""
        return ""

    def usage(self) -> Mapping[ToolId, Usage]:
        """Usage as it stands, and as it will."""
        return MappingProxyType(self._usage)
