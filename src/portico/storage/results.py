"""Large results in pieces, kept in memory or in the store."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from threading import Lock
from typing import Any

from portico.domain.call import Kept, Part, Segment, Unit
from portico.errors import StoreError, StoreRefused

from .database_interface import Binds, Database, key

LETTERS = 1 << 18
"""Letters in one piece of a text."""
NUMBERS = 1 << 16
"""Places in one piece of a list of them."""
PIECES_HELD = 4
AT_ONCE = 16
"""Pieces that are written with one statement, at most."""

_PIECE = "INSERT INTO result_pieces (id, run, number, piece) VALUES (:id, :run, :number, :piece)"
_PIECES = """
SELECT piece FROM result_pieces WHERE id = :id AND run = :run AND number BETWEEN :first AND :last ORDER BY number
"""
_OLD_PIECES = "DELETE FROM result_pieces WHERE id IN (SELECT id FROM results WHERE expires_at <= :now)"
_OLD = "DELETE FROM results WHERE expires_at <= :now"


class ResultStore:
    """Results that have no room in memory; threads may share it. Every method may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def is_shared(self) -> bool:
        """Whether replicas use it together; a file is one gateway's own."""
        return self._database.dialect != "sqlite"

    def save(self, kept: Kept, *, room: int, now: float) -> None:
        """Write a result down, all of it or nothing.

        Raises:
            StoreRefused: it alone takes more than there is room for.
            StoreError: the database cannot be written.
        """
        runs = [_as_array(segment) for part in kept.parts for segment in part.segments]
        size = sum(getsizeof(part.text) for part in kept.parts) + sum(len(run) * run.itemsize for run in runs)
        if size > room:
            raise StoreRefused(f"a result of {size:,} bytes is larger than all results may be together, {room:,}")
        id = key(kept.id)
        with self._database.transaction() as work:
            _drop(work, now)
            for old in _surplus(work.rows("SELECT id, size FROM results ORDER BY made_at"), room - size):
                work.run("DELETE FROM result_pieces WHERE id = :id", {"id": old})
                work.run("DELETE FROM results WHERE id = :id", {"id": old})
            for rows in _together(_pieces(id, kept)):
                work.run(_PIECE, rows)
            work.run(
                "INSERT INTO results (id, caller, tool, made_at, expires_at, size, outline)"
                " VALUES (:id, :caller, :tool, :at, :expires, :size, :outline)",
                {
                    "id": id,
                    "caller": key(kept.caller),
                    "tool": key(kept.tool),
                    "at": now,
                    "expires": kept.expires_at,
                    "size": size,
                    "outline": json.dumps(
                        {"seen": kept.seen, "tokens": kept.tokens, "parts": [*map(_outline, kept.parts)]}
                    ).encode(),
                },
            )

    def load(self, id: str) -> Kept | None:
        """The result of a handle; its texts are read when somebody looks at them."""
        found = self._database.rows(
            "SELECT caller, tool, expires_at, outline FROM results WHERE id = :id", {"id": key(id)}
        )
        if not found:
            return None
        caller, tool, expires_at, blob = found[0]
        outline = json.loads(blob)
        runs = iter(range(sum(1 + len(part["segments"]) for part in outline["parts"])))
        parts = tuple(self._part(key(id), part, runs) for part in outline["parts"])
        return Kept(
            id=id,
            caller=caller,
            tool=tool,
            parts=parts,
            seen=outline["seen"],
            tokens=outline["tokens"],
            expires_at=expires_at,
        )

    def sweep(self, now: float) -> None:
        """Drop what has expired by then; where nothing has, nothing is written."""
        if self._database.rows("SELECT 1 FROM results WHERE expires_at <= :now LIMIT 1", {"now": now}):
            with self._database.transaction() as work:
                _drop(work, now)

    def _part(self, id: str, outline: Any, runs: Iterator[int]) -> Part:
        text = _StoredText(_Pieces(self._database, id, next(runs)), outline["length"])
        segments = tuple(
            Segment(
                unit=Unit(segment["unit"]),
                starts=_StoredStarts(_Pieces(self._database, id, next(runs)), segment["count"], segment["code"]),
                end=segment["end"],
                place=tuple(segment["place"]),
            )
            for segment in outline["segments"]
        )
        return Part(text=text, segments=segments, is_json=outline["is_json"])


@dataclass(slots=True)
class _Pieces:
    """The pieces of one text or one list of places; those read last are held, since readers stay near."""

    database: Database
    id: str
    run: int
    _held: dict[int, bytes] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def between(self, first: int, last: int) -> list[bytes]:
        with self._lock:
            if any(number not in self._held for number in range(first, last + 1)):
                binds = {"id": self.id, "run": self.run, "first": first, "last": last}
                rows = self.database.rows(_PIECES, binds)
                self._held = {**self._held, **{first + place: bytes(piece) for place, (piece,) in enumerate(rows)}}
            try:
                found = [self._held[number] for number in range(first, last + 1)]
            except KeyError:
                raise StoreError("a result has expired while it was read") from None
            self._held = dict(list(self._held.items())[-PIECES_HELD:])
            return found


@dataclass(frozen=True, slots=True)
class _StoredText:
    pieces: _Pieces
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice, /) -> str:
        start, end, _ = part.indices(self.length)
        if start >= end:
            return ""
        first, last = start // LETTERS, (end - 1) // LETTERS
        text = "".join(piece.decode(errors="surrogatepass") for piece in self.pieces.between(first, last))
        return text[start - first * LETTERS : end - first * LETTERS]


@dataclass(frozen=True, slots=True)
class _StoredStarts:
    pieces: _Pieces
    count: int
    code: str

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int, /) -> int:
        if not 0 <= number < self.count:
            raise IndexError(number)
        (piece,) = self.pieces.between(number // NUMBERS, number // NUMBERS)
        return memoryview(piece).cast(self.code)[number % NUMBERS]  # type: ignore[call-overload, no-any-return]


def _outline(part: Part) -> dict[str, Any]:
    segments = [
        {
            "unit": segment.unit,
            "count": len(segment.starts),
            "code": _as_array(segment).typecode,
            "end": segment.end,
            "place": list(segment.place),
        }
        for segment in part.segments
    ]
    return {"length": len(part.text), "is_json": part.is_json, "segments": segments}


def _pieces(id: str, kept: Kept) -> Iterator[Binds]:
    """The rows of a result: for each part one run of its text, and one for the places of each segment."""
    run = 0
    for part in kept.parts:
        for number, start in enumerate(range(0, len(part.text), LETTERS)):
            text = part.text[slice(start, start + LETTERS)]
            yield {"id": id, "run": run, "number": number, "piece": text.encode(errors="surrogatepass")}
        for place, segment in enumerate(part.segments, 1):
            starts = _as_array(segment)
            for number, start in enumerate(range(0, len(starts), NUMBERS)):
                piece = starts[start : start + NUMBERS].tobytes()
                yield {"id": id, "run": run + place, "number": number, "piece": piece}
        run += 1 + len(part.segments)


def _together(rows: Iterator[Binds]) -> Iterator[Sequence[Binds]]:
    waiting = list[Binds]()
    for row in rows:
        waiting.append(row)
        if len(waiting) == AT_ONCE:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _as_array(segment: Segment) -> array[int]:
    starts = segment.starts
    return starts if isinstance(starts, array) else array("Q", [starts[number] for number in range(len(starts))])


def _surplus(rows: Sequence[Any], room: int) -> Iterator[str]:
    """The oldest results that have to go so that the others fit."""
    used = sum(size for _, size in rows)
    for id, size in rows:
        if used <= room:
            return
        used -= size
        yield id


def _drop(work: Any, now: float) -> None:
    work.run(_OLD_PIECES, {"now": now})
    work.run(_OLD, {"now": now})
