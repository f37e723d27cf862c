"""The command calls: single calls out of the journal, and those to come."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Annotated

import anyio
import orjson
import typer

from portico.domain.caller import Caller
from portico.domain.calls import OUTCOMES, CallQuery, RecordedCall, read_moment, told_time
from portico.errors import ConfigError

from .browse import Json
from .desk import options
from .output import data, fail, say, table
from .waiting import in_house

if TYPE_CHECKING:
    from portico.gateway import Gateway
    from portico.house import House

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
    query = CallQuery(tool=tool, server=server, caller=caller, limit=limit)
    try:
        query = replace(query, outcome=_outcome(outcome), since=_since(since))
    except ConfigError as error:
        raise fail(error, as_json=as_json) from error

    async def work(house: House) -> None:
        asked = resolved(house.gateway, query)
        if follow:
            await _follow(house, asked, as_json=as_json)
        found = (await house.admin.calls(asked))[::-1]
        if as_json:
            data({"calls": [call.as_data(house.gateway.spelled) for call in found]})
        elif found:
            table(HEADINGS, [row(house.gateway, call) for call in found], right=(3, 4, 5))
        else:
            say("No call in the journal is so.")

    try:
        in_house(options(ctx), work, as_json=as_json, complete=False)
    except KeyboardInterrupt:
        raise typer.Exit from None


def resolved(gateway: Gateway, query: CallQuery) -> CallQuery:
    """The query with a tool as its server spells it, whatever spelling was given; unknown ones stay as they are."""
    known = gateway.find(Caller(surface="cli"), query.tool) if query.tool else None
    if known is None or query.server not in ("", known.id.server):
        return query
    return replace(query, tool=known.id.name, server=known.id.server)


def row(gateway: Gateway, call: RecordedCall) -> tuple[str, ...]:
    """One call as cells."""
    entry = call.entry
    tool = gateway.edition.tools.get(entry.tool) if entry.tool else None
    shown = tool.handle if tool else str(entry.tool) if entry.tool else entry.spelled
    return (
        told_time(entry.at),
        shown,
        str(entry.outcome),
        f"{entry.seconds * 1_000:.0f}",
        str(entry.tokens_in),
        str(entry.tokens_out),
        entry.caller,
        entry.surface,
        entry.code,
    )


async def _follow(house: House, query: CallQuery, *, as_json: bool) -> None:
    """Print the last calls and then those that come, each once, until somebody stops it."""
    seen: set[int] = set()
    found = (await house.admin.calls(replace(query, limit=query.limit + OVERLAP)))[::-1]
    fresh = found[-query.limit :]
    while True:
        for call in fresh:
            _print(house.gateway, call, as_json=as_json)
        seen |= {call.number for call in found}
        last = max(seen, default=0)
        seen = {number for number in seen if number > last - 2 * OVERLAP}
        await anyio.sleep(FOLLOW_SECONDS)
        found = (await house.admin.calls(replace(query, after=max(last - OVERLAP, 0), limit=MOST)))[::-1]
        fresh = [call for call in found if call.number not in seen]


def _print(gateway: Gateway, call: RecordedCall, *, as_json: bool) -> None:
    if as_json:
        say(orjson.dumps(call.as_data(gateway.spelled)).decode())
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
