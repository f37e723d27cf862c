"""The commands list, search, describe, tokens, call and run."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.admin import Bill, ServerReport
from portico.domain.call import Call, Result
from portico.domain.search_answers import Disclosure, Findings, Hit, Level, Query
from portico.domain.tool import OverriddenTool, Tool, ToolOverride
from portico.errors import Refused, UnknownServer
from portico.rendering.cards import variants_of

from .context import CALLER, Exit, Json, OwnNames, complete_server, complete_tool, options
from .context import SERVER as OWN_SERVER
from .output_and_logs import data, in_app, say, spell, table, warn

if TYPE_CHECKING:
    from portico.application import Application


def explanation(hits: Sequence[Hit]) -> str:
    """Every hit with its score, and under it the parts, the largest first; the parts add up to the score."""
    scores = [round(100 * hit.score) for hit in hits]
    width = max((len(f"{score / 100:,.2f}") for score in scores), default=0)
    lines = []
    for hit, score in zip(hits, scores, strict=True):
        lines.append(f"{score / 100:>{width},.2f}  {hit.handle}")
        parts = sorted(_shares(hit.why, score).items(), key=lambda part: (-part[1], part[0]))
        lines += [f"{value / 100:>{width},.2f}    {name}" for name, value in parts]
    return "\n".join(lines)


def _shares(why: Mapping[str, float], total: int) -> dict[str, int]:
    """The parts in hundredths, rounded so that they add up: those that lost most by rounding are rounded up."""
    shares = {part: int(100 * value // 1) for part, value in why.items()}
    missing = total - sum(shares.values())
    by_loss = sorted(why, key=lambda part: (-(100 * why[part] - shares[part]), part))
    for part in by_loss[: max(missing, 0)]:
        shares[part] += 1
    return shares


def list_(
    ctx: typer.Context,
    server: Annotated[
        str | None, typer.Argument(help="Only this server, with its tools.", autocompletion=complete_server)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the servers, or one server's tools."""

    async def work(application: Application) -> tuple[list[ServerReport], int, OwnNames]:
        return application.admin.reports(), len(application.problems), OwnNames(application.gateway.view(CALLER))

    reports, problems, own = in_app(ctx, work)
    if server is not None:
        reports = [r for r in reports if server in (r.name, r.server.identifier if r.server else r.name)]
        if not reports:
            raise UnknownServer(f"no server is called {server!r}; see: portico list")
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

    async def work(application: Application) -> tuple[Findings, Disclosure, OwnNames]:
        gateway = application.gateway
        await gateway.prefetch_embedding(query)
        view = gateway.view(CALLER)
        found = gateway.search(view, question, spell=spell)
        page = gateway.first_page(view, question)
        return page if found.fits else replace(page, hits=tuple(gateway.nearest(view, question))), found, OwnNames(view)

    page, found, own = in_app(ctx, work)
    hits = page.hits
    if as_json:
        doubt = {"weak": True, "unmatched": page.unmatched} if page.weak else {}
        listed = [hit_data(hit, explain=explain) | doubt for hit in hits]
        missing = {"unmatched": page.unmatched} if page.unmatched else {}
        data(listed if found.fits else {"fits": False, "query": query, **missing, "nearest": listed})
    else:
        say(own.shorten(explanation(hits) if explain and found.fits and query.strip() else found.text))
    if not found.fits:
        raise typer.Exit(Exit.UNKNOWN)


def describe(
    ctx: typer.Context,
    tools: Annotated[
        list[str], typer.Argument(help="Tools, in any spelling.", metavar="TOOL...", autocompletion=complete_tool)
    ],
    original: Annotated[
        bool, typer.Option("--original", help="As their servers define them, without the config's overrides.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show all there is to know about tools."""
    if original:
        _describe_originals(ctx, tools, as_json)
        return

    async def work(application: Application) -> tuple[str, list[Tool]]:
        view = application.gateway.view(CALLER)
        described = application.gateway.describe(view, tools, tokens=1_000_000, spell=spell).text
        return OwnNames(view).shorten(described), [view.tool(name) for name in tools] if as_json else []

    text, found = in_app(ctx, work)
    if as_json:
        data([tool_data(tool) for tool in found])
    else:
        say(text)


def _describe_originals(ctx: typer.Context, tools: list[str], as_json: bool) -> None:
    async def work(application: Application) -> list[tuple[Tool, ToolOverride | None]]:
        found = [application.admin.original(name) for name in tools]
        sections = application.gateway.snapshot.sections
        return [(tool, sections[tool.id.server].overrides.holding.get(tool.id.name)) for tool in found]

    found = in_app(ctx, work)
    if as_json:
        data([tool_data(tool) | {"overridden": override.keys if override else ()} for tool, override in found])
        return
    for tool, override in found:
        say(variants_of(tool, Level.FULL, spell).card(0).text)
        if override is not None:
            say(f"overridden in {override.written.where}: {', '.join(override.keys) or 'nothing'}")


def tokens(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the token bill: what a client reads before its first question, without and with Portico."""
    cli_context = options(ctx).cli_context

    async def work(application: Application) -> Bill:
        return application.admin.bill(cli_context.surface_tokens(application, application.surface))

    bill = in_app(ctx, work)
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
        "also": hit.also,
    }
    found |= {"need": hit.need} if hit.need else {}
    return found | ({"why": dict(hit.why)} if explain else {})


def tool_data(tool: Tool) -> dict[str, Any]:
    """A tool as data."""
    return {
        "handle": tool.handle,
        "server": tool.id.server,
        "name": tool.name,
        "listed": tool.listed,
        "category": tool.category,
        "tags": tool.tags,
        "source": tool.source,
        "effect": tool.effect,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "notes": tool.notes,
        "original": tool.id.name,
        "overridden": tool.override.keys if isinstance(tool, OverriddenTool) else (),
    }


def report_data(report: ServerReport, *, with_tools: bool) -> dict[str, Any]:
    """A server's report as data."""
    found: dict[str, Any] = {
        "name": report.name,
        "identifier": report.server.identifier if report.server else None,
        "state": report.health.state,
        "reason": report.health.reason,
        "cause": report.health.cause,
        "source": report.source,
        "target": report.target,
        "protocol": report.server.protocol if report.server else None,
        "version": report.server.version if report.server else None,
        "tools": len(report.tools),
        "hidden": report.hidden,
        "limited": report.server.limited if report.server else "",
        "rejected": [{"name": r.name, "reason": r.reason} for r in report.rejected],
        "notes": [{"name": t.id.name, "note": note} for t in report.tools for note in t.notes],
        "overridden": [{"name": name, "keys": own.keys} for name, own in report.overrides.holding.items()],
        "override_problems": [str(problem) for problem in report.overrides.problems],
        "changed": list(report.overrides.changed),
    }
    if with_tools:
        found["tool_list"] = [{"handle": t.handle, "name": t.name, "effect": t.effect} for t in report.tools]
    return found


def override_lines(report: ServerReport) -> list[str]:
    """What an operator should know of the overrides of a server's tools."""
    applied, handles = report.overrides, {tool.id.name: tool.handle for tool in report.tools}
    changed = (
        f"{name}: its definition has changed since its override was written; compare: "
        f"portico describe --original {handles.get(name, f'{report.name}::{name}')}, "
        "then change the override, if only by an x-checked: DATE"
        for name in applied.changed
    )
    return [*(f"override {problem}" for problem in applied.problems), *changed]


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


OFF = "scripts are switched off: set `scripts: {enabled: true}` in the config"


def run(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(help="A file with Lua in it, or - for standard input.")],
    arg: Annotated[
        list[str] | None, typer.Option("--arg", help="key=text or key:=JSON; the script finds them in `args`.")
    ] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", min=0.001, help="Seconds that it may take.")] = None,
    as_json: Json = False,
) -> None:
    """Run a Lua script that calls tools."""
    source, given = _source(file), _arguments(arg or [])

    async def work(application: Application) -> Result:
        if application.scripts is None:
            raise Refused("the script", details=(OFF,))
        return await application.scripts.run(CALLER, source, given, seconds=timeout, whole=True)

    result = in_app(ctx, work)
    if as_json:
        data(result.raw)
    else:
        print_result(result, with_notes=True)


def _source(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise typer.BadParameter(f"{file!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{file!r} is no text in UTF-8; a script is source, never bytecode") from error
    # As Lua's own command does; the number of every line stays what it is.
    return f"--{text}" if text.startswith("#") else text


def _arguments(pairs: list[str]) -> dict[str, Any]:
    """`key=text`, or `key:=JSON` for anything else."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.rstrip(":"):
            raise typer.BadParameter(f"{pair!r} is not key=text or key:=JSON")
        found[key.removesuffix(":")] = _json(pair, value) if key.endswith(":") else value
    return found


def _json(pair: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{pair!r} has no JSON after := ({error})") from error


def call(
    ctx: typer.Context,
    tool: Annotated[str, typer.Argument(help="The tool, in any spelling.", autocompletion=complete_tool)],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(help="key=value ..., a JSON object, @FILE with one, or - for standard input."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Call a tool."""
    given = read_arguments(arguments or [])

    async def work(application: Application) -> Result:
        return await application.gateway.call(CALLER, Call(tool=tool, arguments=given.values, whole=True))

    result = in_app(ctx, work)
    if as_json:
        data(result.raw)
    else:
        print_result(result, with_notes=not given.untyped)
    if result.is_error:
        raise typer.Exit(Exit.FAILED)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments from the command line; those from key=value are text until the executor gives them their types."""

    values: dict[str, Any]
    untyped: bool = False


def read_arguments(given: list[str]) -> Arguments:
    """Read pairs, a JSON object, a file or standard input."""
    if len(given) == 1 and "=" not in given[0].split("{", 1)[0]:
        return Arguments(_object(given[0]))
    found: dict[str, Any] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not key=value; or give one JSON object, @FILE or -")
        found[key] = value
    return Arguments(found, untyped=True)


def _object(text: str) -> dict[str, Any]:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise typer.BadParameter("JSON that is nested too deep") from error
    except OSError as error:
        raise typer.BadParameter(f"{text!r} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise typer.BadParameter(f"not a JSON object: {error}") from error
    if not isinstance(value, dict):
        raise typer.BadParameter("the arguments must be a JSON object, such as '{\"key\": 1}'")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def print_result(result: Result, *, with_notes: bool) -> None:
    """Print what a tool or a script returned, for people."""
    for block in result.content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            say(str(block.get("text", "")))
        elif kind in ("image", "audio"):
            say(f"[{kind} {block.get('mimeType', '')}, {len(str(block.get('data', ''))) * 3 // 4:,} bytes; see --json]")
        elif kind == "resource_link":
            say(f"[resource {block.get('uri', '')}]")
        elif kind == "resource" and isinstance(block.get("resource"), dict):
            resource = block["resource"]
            say(str(resource.get("text", f"[resource {resource.get('uri', '')}; see --json]")))
    if not result.content and result.structured is not None:
        say(json.dumps(result.structured, indent=2, ensure_ascii=False))
    for note in result.notes if with_notes else ():
        warn(f"note: {note}")
