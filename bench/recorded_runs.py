"""Recorded runs of agents: the lines of a trace, read and checked; docs/guides/replay.md describes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from portico.domain.journal_entries import Look
from portico.domain.search_answers import FILTERS

GAP = 600.0
"""Seconds of silence after which a caller's next entry begins another task."""

Wanted = tuple[str, ...]
"""The spellings of tools any of which would do."""
Row = dict[str, Any]


class BadLine(ValueError):
    """A line that cannot be read, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One search of a task, and what was wanted of it."""

    query: str
    filters: Mapping[str, Any] = field(default_factory=dict)
    wanted: tuple[Wanted, ...] | None = None
    """None where only the task says it."""
    places: Mapping[Wanted, int] | None = None
    """Where the wanted tools stood then, from 1, as far as it was recorded; 0 for one that was not shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What an agent did to reach one goal."""

    name: str
    line: int
    searches: tuple[Search, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    described: tuple[str, ...] | None = None
    """The tools whose cards were read; None where that is not recorded."""
    described_tokens: int = 0
    """What the answers cost where only that is recorded."""

    def wanted_of(self, search: Search) -> tuple[Wanted, ...]:
        """What a search was for: what it says itself, or else what the task wants."""
        return self.wanted if search.wanted is None else search.wanted


@dataclass(frozen=True, slots=True)
class Trace:
    """All tasks that have a search, what else there was, and the lines that cannot be read."""

    tasks: list[Task]
    without_search: int = 0
    """Tasks in which nothing was searched for."""
    problems: tuple[str, ...] = ()


def read_trace(lines: Iterable[str], name: str = "trace", *, gap: float = GAP) -> Trace:
    """Read lines of both kinds: whole tasks, and entries of a journal, which are put together to tasks."""
    tasks, entries, problems = list[Task](), list[Row](), list[str]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _object(line)
            if "kind" in row:
                entries.append(_checked(row, number))
            else:
                tasks.append(_task(row, number))
        except BadLine as problem:
            problems.append(f"{name}:{number}: {problem}")
    tasks += _tasks_of(entries, gap)
    searched = [task for task in tasks if task.searches]
    return Trace(searched, len(tasks) - len(searched), tuple(problems))


def _object(line: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadLine(f"this is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadLine("a line is an object: a task with `searches`, or an entry of a journal with `kind`")
    return row


def _task(row: Row, number: int) -> Task:
    searches = tuple(_search(one) for one in _list(row, "searches", required=True))
    called = _wanted(row, "called") or ()
    wanted = _wanted(row, "wanted")
    if wanted is None:
        named = dict.fromkeys(one for search in searches for one in search.wanted or ())
        wanted = tuple(named) or called
    described = _list(row, "described") if "described" in row else None
    if described is not None and not all(isinstance(one, str) for one in described):
        raise BadLine("`described` is a list of names of tools")
    return Task(
        name=str(row.get("task", f"line {number}")),
        line=number,
        searches=searches,
        wanted=tuple(dict.fromkeys(wanted)),
        described=None if described is None else tuple(described),
    )


def _search(row: Any) -> Search:
    if isinstance(row, str):
        row = {"query": row}
    if not isinstance(row, dict) or not isinstance(row.get("query"), str):
        raise BadLine("each of `searches` is an object with a `query`, which is a text")
    wanted = _wanted(row, "wanted")
    filters = {name: row[name] for name in FILTERS if name in row}
    found = Search(query=row["query"], filters=filters, wanted=wanted)
    if "shown" not in row or wanted is None:
        return found
    shown = _list(row, "shown")
    return replace(found, places={one: _place(one, shown) for one in wanted})


def _place(wanted: Wanted, shown: list[Any]) -> int:
    """A line that was shown is a name, or a list of them where one line named several tools."""
    lines = [one if isinstance(one, list) else [one] for one in shown]
    return next((at for at, names in enumerate(lines, start=1) if any(name in names for name in wanted)), 0)


def _wanted(row: Row, name: str) -> tuple[Wanted, ...] | None:
    if name not in row:
        return None
    found = tuple(tuple(one) if isinstance(one, list) else (one,) for one in _list(row, name))
    if not all(one and all(isinstance(name, str) for name in one) for one in found):
        raise BadLine(f"`{name}` is a list of names of tools; where any of several would do, a list of these")
    return found


def _list(row: Row, name: str, *, required: bool = False) -> list[Any]:
    found = row.get(name, None if required else [])
    if not isinstance(found, list):
        raise BadLine(f"`{name}` is missing" if found is None else f"`{name}` is a list")
    return found


_KINDS = ("call", *(str(look) for look in Look))
_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "time": lambda value: _seconds(value) is not None,
    "caller": lambda value: isinstance(value, str),
    "surface": lambda value: isinstance(value, str),
}
_MORE: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "search": {"query": lambda value: isinstance(value, str)},
    "call": {
        "tool": lambda value: value is None or isinstance(value, str),
        "outcome": lambda value: isinstance(value, str),
    },
}


def _checked(row: Row, number: int) -> Row:
    """An entry of a journal with everything in it that is read."""
    if row["kind"] not in _KINDS:
        raise BadLine(f"{row['kind']!r} is no kind of entry; there are {', '.join(_KINDS)}")
    for name, is_good in {**_FIELDS, **_MORE.get(row["kind"], {})}.items():
        if name not in row or not is_good(row[name]):
            raise BadLine(f"an entry of the kind {row['kind']!r} has no usable `{name}`")
    return {**row, "line": number, "seconds": _seconds(row["time"])}


def _seconds(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return None


def _tasks_of(entries: list[Row], gap: float) -> Iterator[Task]:
    """The entries of each caller between two silences, or between two lists, with which clients begin."""
    by_caller: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(entries, key=lambda row: float(row["seconds"])):
        by_caller.setdefault((row["caller"], row["surface"]), []).append(row)
    for (caller, surface), own in sorted(by_caller.items()):
        part: list[Row] = []
        for row in own:
            if part and (row["kind"] == "list" or row["seconds"] - part[-1]["seconds"] > gap):
                yield _from_entries(part, f"{caller}/{surface} {part[0]['time']}")
                part = []
            part.append(row)
        yield from [_from_entries(part, f"{caller}/{surface} {part[0]['time']}")] if part else []


def _from_entries(entries: list[Row], name: str) -> Task:
    """What was called well after a search, before the next one, is what that search was for."""
    searches: list[Search] = []
    found: list[dict[Wanted, int]] = []
    tokens = 0
    for row in entries:
        if row["kind"] == "search":
            searches.append(_journal_search(row["query"]))
            found.append({})
        elif row["kind"] == "call" and searches and row["tool"] and row["outcome"] == "done":
            found[-1].setdefault((row["tool"],), row.get("rank", 0))
        elif row["kind"] == "describe":
            tokens += row.get("tokens", 0)
    searches = [replace(one, wanted=tuple(places), places=places) for one, places in zip(searches, found, strict=True)]
    return Task(
        name=name,
        line=entries[0]["line"],
        searches=tuple(searches),
        wanted=tuple(dict.fromkeys(one for places in found for one in places)),
        described=(),
        described_tokens=tokens,
    )


_FILTER = re.compile(rf"(?:^| )({'|'.join(FILTERS)})=")


def _journal_search(text: str) -> Search:
    """A journal writes the filters of a search behind its words."""
    found = _FILTER.search(text)
    if found is None:
        return Search(query=text)
    told = text[found.start() :].strip().split("&")
    pairs = (part.partition("=") for part in told)
    return Search(
        query=text[: found.start()], filters={name: _value(name, told) for name, _, told in pairs if name in FILTERS}
    )


def _value(name: str, told: str) -> Any:
    if name == "read_only":
        return told == "True"
    try:
        return float(told) if name in ("max_latency_ms", "min_success") else told
    except ValueError:  # a text is kept as far as it goes, and may end within a number
        return 0.0
