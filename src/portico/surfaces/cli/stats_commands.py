"""The commands stats, calls and events."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, TypeVar

import anyio
import orjson
import typer

from portico.config.load import load_settings
from portico.config.variables_and_masking import mask
from portico.domain.call import Caller
from portico.domain.journal_entries import (
    OUTCOMES,
    CallQuery,
    DayLine,
    Entry,
    EventQuery,
    LearnedLine,
    RecordedCall,
    RecordedEvent,
    Report,
    SearchLine,
    ToolLine,
    entry_data,
    read_moment,
    told_time,
)
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import DAY_SECONDS, day_of
from portico.errors import ConfigError
from portico.text.redaction import Redactor, certain_secrets_of
from portico.text.untrusted import on_one_line, spelled_out

from .context import CALLER, Json, options
from .output_and_logs import data, in_app, say, table, warn

if TYPE_CHECKING:
    from portico.application import Application
    from portico.gateway import Gateway


FOLLOW_SECONDS = 1.0
OVERLAP = 500
"""Numbers that are read again: processes that share a store may commit them in another order than they are counted."""
MOST = 10_000
HEADINGS = ("time", "tool", "outcome", "ms", "in", "out", "caller", "surface", "code")


def calls(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many, the newest ones.")] = 20,
    tool: Annotated[str, typer.Option(help="Only of this tool: its handle, or its own name.")] = "",
    server: Annotated[str, typer.Option(help="Only of this server.")] = "",
    outcome: Annotated[str, typer.Option(help=f"Only with this end: {', '.join(OUTCOMES)}.")] = "",
    caller: Annotated[str, typer.Option(help="Only of this caller.")] = "",
    since: Annotated[str, typer.Option(help="Only since then: 15m, 2h, 3d, or a date and time.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with calls as they are made.")] = False,
    as_json: Json = False,
) -> None:
    """Show single calls, the newest last: which tool, how it ended, how long it took; never what was in them."""
    query = CallQuery(
        tool=tool, server=server, caller=caller, limit=limit, outcome=_outcome(outcome), since=_since(since)
    )

    async def work(application: Application) -> None:
        asked = resolved(application.gateway, query)
        if follow:
            await _follow(application, asked, as_json=as_json)
        found = (await application.admin.calls(asked))[::-1]
        if as_json:
            data({"calls": [call.as_data(application.gateway.spell_id) for call in found]})
        elif found:
            table(HEADINGS, [row(application.gateway, call) for call in found], right=(3, 4, 5))
        else:
            say("No call in the journal is so.")

    with _until_interrupted():
        in_app(ctx, work, complete=False)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Whoever follows stops with Ctrl-C, which is no failure."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit from None


def resolved(gateway: Gateway, query: CallQuery) -> CallQuery:
    """The query with a tool as its server spells it, whatever spelling was given; unknown ones stay as they are."""
    known = gateway.view(Caller(surface="cli")).find(query.tool) if query.tool else None
    if known is None or query.server not in ("", known.id.server):
        return query
    return replace(query, tool=known.id.name, server=known.id.server)


def row(gateway: Gateway, call: RecordedCall) -> tuple[str, ...]:
    """One call as cells."""
    entry = call.entry
    return (
        told_time(entry.at),
        _spelled(gateway, entry.tool) if entry.tool else entry.spelled,
        str(entry.outcome),
        f"{entry.seconds * 1_000:.0f}",
        str(entry.tokens_in),
        str(entry.tokens_out),
        entry.caller,
        entry.surface,
        entry.code,
    )


def _spelled(gateway: Gateway, id: ToolId) -> str:
    tool = gateway.snapshot.tools.get(id)
    return tool.handle if tool else str(id)


async def _follow(application: Application, query: CallQuery, *, as_json: bool) -> None:
    """Print the last calls and then those that come, each once, until somebody stops it."""

    async def ask(limit: int, after: int) -> list[RecordedCall]:
        return await application.admin.calls(replace(query, limit=limit, after=after))

    async for call in _newest(ask, query.limit):
        _print(application.gateway, call, as_json=as_json)


Numbered = TypeVar("Numbered", RecordedCall, RecordedEvent)


async def _newest(ask: Callable[[int, int], Awaitable[list[Numbered]]], limit: int) -> AsyncIterator[Numbered]:
    """The last ones and then those that come, each once, for ever; `ask` takes how many, and after which number."""
    seen: set[int] = set()
    found = (await ask(limit + OVERLAP, 0))[::-1]
    fresh = found[-limit:]
    while True:
        for one in fresh:
            yield one
        seen |= {one.number for one in found}
        last = max(seen, default=0)
        seen = {number for number in seen if number > last - 2 * OVERLAP}
        await anyio.sleep(FOLLOW_SECONDS)
        found = (await ask(MOST, max(last - OVERLAP, 0)))[::-1]
        fresh = [one for one in found if one.number not in seen]


def _print(gateway: Gateway, call: RecordedCall, *, as_json: bool) -> None:
    if as_json:
        say(orjson.dumps(call.as_data(gateway.spell_id)).decode())
    else:
        say("  ".join(row(gateway, call)).rstrip())


def _outcome(word: str) -> str:
    if word and word not in OUTCOMES:
        fix = f"Choose one of: {', '.join(OUTCOMES)}."
        raise ConfigError(f"{word!r} is no way in which a call ends", where="--outcome", fix=fix)
    return word


def _since(text: str) -> float:
    found = read_moment(text, time()) if text else 0.0
    if found is None:
        fix = "Write 15m, 2h or 3d, or a date such as 2026-01-31 or 2026-01-31T12:00."
        raise ConfigError(f"{text!r} is no moment", where="--since", fix=fix)
    return found


def events(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="How many, the newest ones.")] = 20,
    server: Annotated[str, typer.Option(help="Only of this server.")] = "",
    kind: Annotated[str, typer.Option(help="Only of this kind, as exited or reload.")] = "",
    since: Annotated[str, typer.Option(help="Only since then: 15m, 2h, 3d, or a date and time.")] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with events as they happen.")] = False,
    as_json: Json = False,
) -> None:
    """Show what happened to servers and to gateways, the newest last: starts, ends, failures, changes of the config."""
    query = EventQuery(server=server, kind=kind, limit=limit, since=_since(since))

    async def work(application: Application) -> None:
        async def ask(limit: int, after: int) -> list[RecordedEvent]:
            return await application.admin.events(replace(query, limit=limit, after=after))

        if follow:
            async for event in _newest(ask, limit):
                _print_event(event, as_json=as_json)
        found = (await ask(limit, 0))[::-1]
        for event in found:
            _print_event(event, as_json=as_json)
        if not found and not as_json:
            say("No event is so.")

    with _until_interrupted():
        in_app(ctx, work, complete=False)


def _print_event(kept: RecordedEvent, *, as_json: bool) -> None:
    """One event on a line, the last words of its server indented below."""
    event = kept.event
    if as_json:
        say(spelled_out(orjson.dumps(kept.as_data()).decode()))
        return
    often = f"({event.times:,} times)" if event.times > 1 else ""
    cells = (told_time(event.at), event.server or event.gateway, event.kind, event.text, often)
    say("  ".join(on_one_line(cell) for cell in cells if cell))
    for line in event.stderr.splitlines():
        say(f"    {line}")


WIDTH = 20
"""Letters of the longest bar."""
RANKS_SHOWN = 10
_BAR, _STEPS = "█", "▁▂▃▄▅▆▇█"
_PLAIN_BAR, _PLAIN_STEPS = "#", "_.-=+*#@"
"""The same for a terminal that knows no others."""


def stats(
    ctx: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=400, help="How many days, today included.")] = 7,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many tools, or searches, in each list.")] = 10,
    export: Annotated[
        str, typer.Option(metavar="FILE", help="Write the entries themselves to a new file as JSON lines; - is stdout.")
    ] = "",
    forget_learned: Annotated[
        bool, typer.Option("--forget-learned", help="Forget the words that were learned from use, and show nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show how tools were used: the most called, failing and slow ones, tokens saved, what searches found or not."""
    if export:
        _export(ctx, export, days, as_json=as_json)
        return
    if forget_learned:
        _forget_learned(ctx, as_json=as_json)
        return

    async def work(application: Application) -> tuple[Report, Gateway, bool]:
        report = await application.admin.usage_report(days=days, limit=limit, caller=CALLER)
        return report, application.gateway, application.admin.storage.name == "memory"

    report, gateway, is_forgetful = in_app(ctx, work, complete=False)

    if as_json:
        data(report.as_data(gateway.spell_id))
    elif _is_empty(report):
        _print_empty(report, is_forgetful=is_forgetful)
    else:
        _print_report(report, gateway)


def _export(ctx: typer.Context, target: str, days: int, *, as_json: bool) -> None:
    """Write every search and call of some days, one object a line, without what was in calls and results."""
    since = float((day_of(time()) - days + 1) * DAY_SECONDS)
    servers = load_settings(options(ctx).config, os.environ, Path.cwd()).servers
    redactor = Redactor(pair for spec in servers for pair in certain_secrets_of(spec))

    def line(entry: Entry) -> str:
        row = entry_data(entry)
        row |= {name: redactor.text(value) for name, value in row.items() if isinstance(value, str)}
        row |= {"query": mask(row["query"])} if "query" in row else {}
        return spelled_out(orjson.dumps(row).decode())

    with _new_file(target) as write:
        count = in_app(
            ctx,
            lambda application: application.admin.export_journal(since, lambda entry: write(line(entry))),
            complete=False,
        )
    if target != "-" and as_json:
        data({"entries": count, "file": target})
    elif target != "-":
        say(f"Wrote {_many(count, 'entry', 'entries')} of the last {_days(days)} to {target}.")


@contextmanager
def _new_file(target: str) -> Iterator[Callable[[str], object]]:
    """Writes lines to a file that only its owner may read, or to stdout; one that is not finished is removed again."""
    if target == "-":
        yield say
        return
    try:
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _unwritten(target, error) from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield lambda line: file.write(f"{line}\n")
    except BaseException as error:
        with suppress(OSError):
            os.unlink(target)
        if isinstance(error, OSError):
            raise _unwritten(target, error) from error
        raise


def _unwritten(target: str, error: OSError) -> ConfigError:
    fix = "Name a file that is not there yet, in a folder that you may write to."
    return ConfigError(f"{target} cannot be written: {error.strerror}", where="--export", fix=fix)


def _forget_learned(ctx: typer.Context, *, as_json: bool) -> None:
    async def work(application: Application) -> int:
        return await application.admin.forget_learned()

    forgotten = in_app(ctx, work, complete=False)
    if as_json:
        data({"forgotten": forgotten})
    else:
        say(f"Forgot {_many(forgotten, 'learned word')}.")


def bar(value: float, largest: float, width: int = WIDTH) -> str:
    """A bar as long as its share of the largest; something is never nothing."""
    sign = _BAR if _is_rich() else _PLAIN_BAR
    return sign * max(1, round(width * value / largest)) if value > 0 and largest > 0 else ""


def sparkline(values: Sequence[float]) -> str:
    """One sign for each value, the higher the larger; what is below nothing counts as nothing."""
    steps = _STEPS if _is_rich() else _PLAIN_STEPS
    largest = max((*values, 0))
    return "".join(
        steps[round((len(steps) - 1) * max(value, 0) / largest)] if largest else steps[0] for value in values
    )


def _is_rich() -> bool:
    """Whether the terminal's letters include blocks."""
    try:
        (_BAR + _STEPS).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _is_empty(report: Report) -> bool:
    is_quiet = not (report.calls or report.searches or report.caches or report.learned)
    return is_quiet and not any(day.tokens_saved for day in report.by_day)


def _print_empty(report: Report, *, is_forgetful: bool) -> None:
    say(f"The journal of the last {_days(report.days)} is empty.")
    if is_forgetful:
        say("next: the store is `memory`, which forgets everything with its process; set `store` in the config")
    else:
        say("next: portico serve and let an agent work, or call a tool yourself: portico call TOOL")
    _print_losses(report)


def _print_report(report: Report, gateway: Gateway) -> None:
    done = report.outcomes.get("done", 0)
    share = f", {done / report.calls:.1%} of them ended well" if report.calls and report.outcomes else ""
    say(f"Last {_days(report.days)}: {_many(report.calls, 'call')}{share}.")
    others = {name: count for name, count in report.outcomes.items() if name != "done" and count}
    if others:
        say("not well: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(others.items())))
    _print_tools("called most", report.top, gateway, lambda line: line.calls)
    _print_tools("failing most", report.failing, gateway, lambda line: 1 - line.success)
    _print_tools("slowest", report.slow, gateway, lambda line: line.p95_ms)
    _print_days(report.by_day)
    _print_ranks(report)
    _print_unanswered(report.unanswered_searches)
    _print_learned(report.learned, gateway)
    _print_caches(report.caches)
    _print_losses(report)


def _print_tools(title: str, lines: Sequence[ToolLine], gateway: Gateway, measure: Callable[[ToolLine], float]) -> None:
    if not lines:
        return
    say()
    largest = max(measure(line) for line in lines)
    rows = [
        (
            _spelled(gateway, line.tool),
            f"{line.calls:,}",
            f"{1 - line.success:.1%}",
            f"{line.mean_ms:,.0f} ms",
            f"{line.p95_ms:,.0f} ms",
            bar(measure(line), largest),
        )
        for line in lines
    ]
    table((title.upper(), "CALLS", "ERRORS", "MEAN", "P95", ""), rows, right=(1, 2, 3, 4))


def _print_days(days: Sequence[DayLine]) -> None:
    if not days:
        return
    span = f"{days[0].day} to {days[-1].day}"
    say()
    say(f"calls by day         {sparkline([day.calls for day in days])}  {span}")
    saved = [day.tokens_saved for day in days]
    if any(saved):
        say(f"tokens saved by day  {sparkline(saved)}  {sum(saved):,} together")


def _print_ranks(report: Report) -> None:
    if report.searches:
        say()
        say(f"{_many(report.searches, 'search', 'searches')}, {report.unanswered:,} of them without a tool that fits")
    found = {rank: count for rank, count in sorted(report.ranks.items()) if rank and count}
    after = sum(found.values())
    if not after:
        return
    shares = (f"{sum(c for r, c in found.items() if r <= most) / after:.0%} {words}" for most, words in _WITHIN)
    say(f"{_many(after, 'call')} came after a search that showed the tool: {', '.join(shares)}")
    for label, count in _places(found):
        say(f"{label:>5}  {bar(count, max(found.values()))} {count:,}")


def _print_unanswered(lines: Sequence[SearchLine]) -> None:
    if lines:
        say()
        rows = [(line.query, f"{line.count:,}", line.last) for line in lines]
        table(("SEARCHED AND NOT FOUND", "TIMES", "LAST"), rows, right=(1,))


def _print_learned(lines: Sequence[LearnedLine], gateway: Gateway) -> None:
    if lines:
        say()
        rows = [
            (
                line.word,
                _spelled(gateway, line.tool),
                f"{line.uses:,}",
                f"{line.weight:,.2f}",
                "everybody" if line.is_shared else "you",
            )
            for line in lines
        ]
        table(("LEARNED WORD", "TOOL", "USES", "WEIGHT", "FOR"), rows, right=(2, 3))


_WITHIN = ((1, "at the first place"), (3, "among the first 3"), (5, "among the first 5"))


def _places(found: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    yield from ((str(rank), count) for rank, count in found.items() if rank <= RANKS_SHOWN)
    later = sum(count for rank, count in found.items() if rank > RANKS_SHOWN)
    if later:
        yield "later", later


def _print_caches(caches: Mapping[str, tuple[int, int]]) -> None:
    asked = {name: (hits, hits + misses) for name, (hits, misses) in sorted(caches.items()) if hits + misses}
    if asked:
        say()
        rows = [(name, f"{all:,}", f"{hits / all:.1%}", bar(hits, all)) for name, (hits, all) in asked.items()]
        table(("CACHE", "ASKED", "HITS", ""), rows, right=(1, 2))


def _print_losses(report: Report) -> None:
    losses = report.losses
    if losses.dropped:
        said = _many(losses.dropped, "entry was", "entries were")
        warn(f"{said} dropped: the store was away and the journal's buffer full")
    if losses.lost:
        said = _many(losses.lost, "entry was", "entries were")
        warn(f"{said} lost with a process that was killed; `journal: durable` loses none")


def _days(days: int) -> str:
    return "day" if days == 1 else f"{days} days"


def _many(count: int, one: str, more: str = "") -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {more or one + 's'}"
