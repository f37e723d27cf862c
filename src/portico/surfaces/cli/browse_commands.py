"""The commands list, search, describe and tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.domain.call import Caller
from portico.domain.disclosure import Disclosure, Hit, Query
from portico.domain.overview import Bill, ServerReport
from portico.domain.tool import Tool
from portico.errors import UnknownServer

from .context import SERVER as OWN_SERVER
from .context import Exit, OwnNames, complete_server, complete_tool, options
from .output import data, fail, in_app, say, spell, table, warn

if TYPE_CHECKING:
    from portico.application import Application


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


CALLER = Caller(surface="cli")
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_(
    ctx: typer.Context,
    server: Annotated[
        str | None, typer.Argument(help="Only this server, with its tools.", autocompletion=complete_server)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the servers, or one server's tools."""

    async def work(application: Application) -> tuple[list[ServerReport], int, OwnNames]:
        return application.admin.reports(), len(application.problems), OwnNames(application, CALLER)

    reports, problems, own = in_app(options(ctx), work, as_json=as_json)
    if server is not None:
        reports = [r for r in reports if server in (r.name, r.server.identifier if r.server else r.name)]
        if not reports:
            raise fail(UnknownServer(f"no server is called {server!r}; see: portico list"), as_json=as_json)
    if as_json:
        data([report_data(report, with_tools=server is not None) for report in reports])
    elif server is not None:
        _print_tools(reports[0], own)
    else:
        _print_servers(reports, problems)


def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(help="What the tool should do, in a few words.")],
    server: Annotated[str, typer.Option(help="Only this server.", autocompletion=complete_server)] = "",
    category: Annotated[str, typer.Option(help="Only this category.")] = "",
    tag: Annotated[str, typer.Option(help="Only tools with this tag.")] = "",
    source: Annotated[str, typer.Option(help="Only upstream, database, local or library tools.")] = "",
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")] = False,
    max_latency_ms: Annotated[float, typer.Option(min=0, help="Only tools not slower than this, as a mean.")] = 0.0,
    min_success: Annotated[float, typer.Option(min=0, max=1, help="Only tools that succeed this often.")] = 0.0,
    limit: Annotated[int | None, typer.Option(min=1, max=50, help="How many tools.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show each part of the scores.")] = False,
    as_json: Json = False,
) -> None:
    """Find tools by what they do."""
    question = Query(
        text=query,
        server=server,
        category=category,
        tag=tag,
        source=source,
        read_only=read_only,
        max_latency_ms=max_latency_ms,
        min_success=min_success,
        limit=limit or 0,
    )

    async def work(application: Application) -> tuple[Sequence[Hit], Disclosure, OwnNames]:
        await application.gateway.warm(query)
        found = application.gateway.search(CALLER, question, spell=spell)
        hits = (
            application.gateway.best(CALLER, question).hits
            if found.fits
            else application.gateway.nearest(CALLER, question)
        )
        return hits, found, OwnNames(application, CALLER)

    hits, found, own = in_app(options(ctx), work, as_json=as_json)
    if as_json:
        listed = [hit_data(hit, explain=explain) for hit in hits]
        data(listed if found.fits else {"fits": False, "query": query, "nearest": listed})
    else:
        say(own.shorten(explanation(hits) if explain and found.fits and query.strip() else found.text))
    if not found.fits:
        raise typer.Exit(Exit.UNKNOWN)


def describe(
    ctx: typer.Context,
    tools: Annotated[
        list[str], typer.Argument(help="Tools, in any spelling.", metavar="TOOL...", autocompletion=complete_tool)
    ],
    as_json: Json = False,
) -> None:
    """Show all there is to know about tools."""

    async def work(application: Application) -> tuple[str, list[Tool]]:
        gateway = application.gateway
        described = gateway.describe(CALLER, tools, tokens=1_000_000, spell=spell).text
        text = OwnNames(application, CALLER).shorten(described)
        visible = gateway.policy.visible(CALLER, gateway.snapshot)
        found = [gateway.snapshot.resolver.resolve(name, visible) for name in tools] if as_json else []
        return text, found

    text, found = in_app(options(ctx), work, as_json=as_json)
    if as_json:
        data([tool_data(tool) for tool in found])
    else:
        say(text)


def tokens(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the token bill: what a client reads before its first question, without and with Portico."""
    cli_context = options(ctx).cli_context

    async def work(application: Application) -> Bill:
        return application.admin.bill(cli_context.surface_tokens(application, application.surface))

    bill = in_app(options(ctx), work, as_json=as_json)
    if as_json:
        data(bill_data(bill))
    else:
        print_bill(bill)


def print_bill(bill: Bill) -> None:
    """Print a token bill."""
    rows = [(line.server, f"{line.tools:,}", f"{line.tokens:,}") for line in bill.lines]
    rows.append(("before, all together", f"{sum(line.tools for line in bill.lines):,}", f"{bill.before:,}"))
    rows.append(("after, with Portico", "", f"{bill.after:,}"))
    table(("SERVER", "TOOLS", "TOKENS"), rows, right=(1, 2))
    say(f"saved: {bill.saved:.1%} (counted by: {bill.counter})")


def bill_data(bill: Bill) -> dict[str, Any]:
    """A token bill as data."""
    return {
        "servers": [{"server": x.server, "tools": x.tools, "tokens": x.tokens} for x in bill.lines],
        "before": bill.before,
        "after": bill.after,
        "saved": round(bill.saved, 4),
        "counter": bill.counter,
    }


def hit_data(hit: Hit, *, explain: bool) -> dict[str, Any]:
    """A hit as data."""
    found: dict[str, Any] = {
        "handle": hit.handle,
        "server": hit.server,
        "name": hit.name,
        "score": hit.score,
        "effect": hit.tool.effect,
        "category": hit.tool.category,
        "tags": hit.tool.tags,
        "description": hit.tool.description,
    }
    return found | ({"why": dict(hit.why)} if explain else {})


def tool_data(tool: Tool) -> dict[str, Any]:
    """A tool as data."""
    return {
        "handle": tool.handle,
        "server": tool.id.server,
        "name": tool.id.name,
        "listed": tool.listed,
        "category": tool.category,
        "tags": tool.tags,
        "source": tool.source,
        "effect": tool.effect,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "notes": tool.notes,
    }


def report_data(report: ServerReport, *, with_tools: bool) -> dict[str, Any]:
    """A server's report as data."""
    found: dict[str, Any] = {
        "name": report.name,
        "identifier": report.server.identifier if report.server else None,
        "state": report.health.state,
        "reason": report.health.reason,
        "source": report.source,
        "target": report.target,
        "protocol": report.server.protocol if report.server else None,
        "version": report.server.version if report.server else None,
        "tools": len(report.tools),
        "hidden": report.hidden,
        "limited": report.server.limited if report.server else "",
        "rejected": [{"name": r.name, "reason": r.reason} for r in report.rejected],
        "notes": [{"name": t.id.name, "note": note} for t in report.tools for note in t.notes],
    }
    if with_tools:
        found["tool_list"] = [{"handle": t.handle, "name": t.id.name, "effect": t.effect} for t in report.tools]
    return found


def _print_servers(reports: list[ServerReport], problems: int) -> None:
    if not reports and problems:
        say("No server of the config can be used; what is wrong is said above.")
        return
    if not reports:
        say("No servers yet. Try: portico add NAME -- COMMAND..., or: portico import claude-code --write")
        return
    rows = [
        (
            report.server.identifier if report.server and report.name != OWN_SERVER else report.name,
            str(report.health.state),
            str(len(report.tools)) + (f" ({report.hidden} hidden)" if report.hidden else ""),
            str(len(report.rejected)) if report.rejected else "",
            report.health.reason.split("\n", 1)[0][:70] or report.target[:70],
        )
        for report in reports
    ]
    table(("SERVER", "STATE", "TOOLS", "REFUSED", "REACHED BY"), rows, right=(2, 3))
    for report in reports:
        for refusal in report.rejected:
            warn(f"refused {report.name}/{refusal.name}: {refusal.reason}")


def _print_tools(report: ServerReport, own: OwnNames) -> None:
    rows = [(own.shorten(t.handle), f"[{t.effect}]", " ".join(t.description.split())[:80]) for t in report.tools]
    table(("TOOL", "EFFECT", "WHAT IT DOES"), rows)
    for refusal in report.rejected:
        warn(f"refused {refusal.name}: {refusal.reason}")
    for tool in report.tools:
        for note in tool.notes:
            warn(f"note on {own.shorten(tool.handle)}: {note}")
