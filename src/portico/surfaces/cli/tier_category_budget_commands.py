"""The commands tiers, categories and budget."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from portico.admin import CategoryOverview, TierLine
from portico.catalog.categories_and_order import NAMING, is_category_name
from portico.config import edited
from portico.config.edit_and_import import assign_category
from portico.domain.suggestions import nearest_names
from portico.domain.tool import Category
from portico.domain.usage_and_tiers import Tier, Usage
from portico.errors import CallError, ConfigError, UnknownFilter, UnknownServer

from .config_commands import config_file
from .context import CALLER, Exit, Json
from .output_and_logs import data, in_app, say, table, warn

if TYPE_CHECKING:
    from portico.application import Application
    from portico.tiers.token_budgets import BudgetReport


SHOWN = 20
"""Tools that a list shows unless it is told."""
NAMED = 5
"""The most similar names that are suggested."""

tiers, categories, budget = (typer.Typer(invoke_without_command=True, rich_markup_mode=None) for _ in range(3))


@tiers.callback()
def list_tiers(
    ctx: typer.Context,
    tier: Annotated[Tier | None, typer.Option(help="Only this tier.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help=f"How many tools; {SHOWN} unless told.")] = None,
    as_json: Json = False,
) -> None:
    """Show how tools stand: hot, warm, standard or cold."""
    if ctx.invoked_subcommand is not None:
        return

    async def work(application: Application) -> list[TierLine]:
        await application.admin.reload({"tiers"})
        return application.admin.tier_lines()

    lines = in_app(ctx, work)
    found = [line for line in lines if tier in (None, line.tier)]
    if as_json:
        data([tier_data(line) for line in found[:limit]])
    else:
        _print_tiers(found, limit or SHOWN, tier)


@tiers.command("update")
def update_tiers(ctx: typer.Context, as_json: Json = False) -> None:
    """Score every tool anew, now; a gateway that runs does it once a day."""

    async def work(application: Application) -> int:
        return await application.admin.update_tiers()

    count = in_app(ctx, work)
    data({"updated": count}) if as_json else say(f"Updated tier scores for {count} tools")


@categories.callback()
def list_categories(ctx: typer.Context, as_json: Json = False) -> None:
    """Show the categories, and change what they say."""
    if ctx.invoked_subcommand is not None:
        return
    lines = in_app(ctx, _all_categories)
    if as_json:
        data([category_data(line) for line in lines])
        return
    rows = [
        (
            line.category.name,
            line.category.title,
            str(line.category.order),
            f"{line.tools:,}",
            f"{line.servers:,}",
            line.origin,
            " ".join(line.category.description.split())[:60],
        )
        for line in lines
    ]
    table(("CATEGORY", "DISPLAY NAME", "ORDER", "TOOLS", "SERVERS", "FROM", "DESCRIPTION"), rows, right=(2, 3, 4))


@categories.command("set")
def set_category(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The category, known or new.")],
    display_name: Annotated[str | None, typer.Option(help="What people read.")] = None,
    description: Annotated[str | None, typer.Option(help="What stands there, in a sentence.")] = None,
    order: Annotated[int | None, typer.Option(min=0, max=1_000_000, help="Its place; the smallest is first.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a category is called, what stands there, and its place."""
    given = {"display_name": display_name, "description": description, "order": order}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if not changes:
        raise typer.BadParameter("say what to change: --display-name, --description or --order")

    async def work(application: Application) -> tuple[CategoryOverview, list[str], bool]:
        before = {line.category.name: line.category for line in await _all_categories(application)}
        await application.admin.set_category(replace(before.get(name) or Category(name=name), **changes))
        line = next(line for line in await application.admin.categories() if line.category.name == name)
        return (
            line,
            nearest_names(name, before, limit=NAMED) if name not in before else [],
            application.admin.storage.name == "memory",
        )

    line, alike, is_forgotten = in_app(ctx, work)
    if as_json:
        data(category_data(line))
    else:
        say(f"{name}: {line.category.title}, place {line.category.order:,}")
    if not line.tools:
        like = f" ({', '.join(alike)} are known)" if alike else ""
        warn(f"no tool stands on {name!r}{like}; next: portico categories assign SERVER {name}")
    if is_forgotten:
        warn("the store is `memory`, which has forgotten this by now; set `store` in the config to keep it")


@categories.command("assign")
def assign(
    ctx: typer.Context,
    what: Annotated[str, typer.Argument(help="A server, a tool, or PREFIX* for all tools whose name begins so.")],
    name: Annotated[str, typer.Argument(help="The category to put it on.")],
    as_json: Json = False,
) -> None:
    """Put a server, a tool or the tools of a prefix on a category, in the config."""

    async def work(application: Application) -> tuple[str, int]:
        if not is_category_name(name):
            raise ConfigError(f"{name!r} cannot be the name of a category", fix=NAMING)
        return _key(application, what)

    key, count = in_app(ctx, work, complete=False)
    file = config_file(ctx)
    with edited(file, os.environ, Path.cwd()):
        assign_category(file, key, name)
    if as_json:
        data({"assigned": key, "category": name, "tools": count, "file": str(file)})
        return
    say(f"{key} stands on {name} now, in {file}" + (f"; {count} tools" if count > 1 else ""))
    if not count:
        warn("no tool that is known today is meant by it")


@categories.command("reset")
def reset_category(
    ctx: typer.Context, name: Annotated[str, typer.Argument(help="The category.")], as_json: Json = False
) -> None:
    """Forget what was set of a category; the shipped words are in force again."""

    async def work(application: Application) -> bool:
        known = {line.category.name for line in await _all_categories(application)}
        if name not in known:
            raise _unknown_category(name, known)
        return await application.admin.drop_category(name)

    is_changed = in_app(ctx, work)
    if as_json:
        data({"category": name, "reset": is_changed})
    else:
        say(f"{name} is as it was" if is_changed else f"nothing was set of {name}; there is nothing to forget")


@budget.callback()
def check_budget(ctx: typer.Context, as_json: Json = False) -> None:
    """Check that the four tiers of disclosure keep to their budgets."""
    if ctx.invoked_subcommand is None:
        verify(ctx, as_json=as_json)


@budget.command("verify")
def verify(ctx: typer.Context, as_json: Json = False) -> None:
    """Measure the four tiers as they are served: the largest category, the ten largest tools."""

    async def work(application: Application) -> BudgetReport:
        return await application.tier_answers.verify(CALLER)

    report = in_app(ctx, work)
    if as_json:
        data(report.as_data())
    else:
        rows = [
            (row.tier, f"{row.tokens:,}", f"{row.cumulative:,}", f"{row.limit:,}", "ok" if row.ok else "x")
            for row in report.rows
        ]
        table(("TIER", "TOKENS", "TOGETHER", "LIMIT", ""), rows, right=(1, 2, 3))
        if report.category:
            say(f"measured: category {report.category}, {len(report.tools)} tools (counted by: {report.counter})")
        say(str(report))
        for failure in report.failures:
            warn(failure)
    if not report.ok:
        raise typer.Exit(Exit.FAILED)


def tier_data(line: TierLine) -> dict[str, Any]:
    """A tool's standing as data."""
    now = time()
    return {
        "handle": line.tool.handle,
        "server": line.tool.id.server,
        "name": line.tool.id.name,
        "tier": line.tier,
        "score": line.score,
        "pinned": line.is_pinned,
        "calls": line.usage.calls,
        "success": line.usage.success,
        "mean_ms": line.usage.mean_ms,
        "p95_ms": line.usage.p95_ms,
        "calls_7d": line.usage.within(7, now),
        "calls_30d": line.usage.within(30, now),
    }


def category_data(line: CategoryOverview) -> dict[str, Any]:
    """A category as data."""
    return {
        "name": line.category.name,
        "display_name": line.category.title,
        "description": line.category.description,
        "order": line.category.order,
        "tools": line.tools,
        "servers": line.servers,
        "from": line.origin,
    }


async def _all_categories(application: Application) -> list[CategoryOverview]:
    await application.admin.reload({"categories"})
    return await application.admin.categories()


def _print_tiers(lines: list[TierLine], limit: int, tier: Tier | None) -> None:
    if not lines:
        say(f"No tool is {tier}." if tier else "No tools yet. Try: portico list")
        return
    now = time()
    rows = [
        (
            line.tool.handle + (" (pinned)" if line.is_pinned else ""),
            str(line.tier),
            f"{line.score:.2f}",
            *_usage_cells(line.usage, now),
        )
        for line in lines[:limit]
    ]
    headings = ("TOOL", "TIER", "SCORE", "CALLS", "SUCCESS", "MEAN", "7 DAYS", "30 DAYS")
    table(headings, rows, right=range(2, len(headings)))
    if len(lines) > limit:
        only = f" --tier {tier}" if tier else ""
        say(f"{len(lines) - limit:,} more: portico tiers{only} --limit {len(lines)}")


def _usage_cells(usage: Usage, now: float) -> tuple[str, ...]:
    if not usage.calls:
        return ("0", "", "", "", "")
    return (
        f"{usage.calls:,}",
        f"{usage.success:.1%}",
        f"{usage.mean_ms:,.0f} ms",
        f"{usage.within(7, now):,}",
        f"{usage.within(30, now):,}",
    )


def _key(application: Application, what: str) -> tuple[str, int]:
    """A server, a tool or a prefix as the config spells it, and how many tools that are known today it means."""
    snapshot = application.gateway.snapshot
    if what.endswith("*"):
        return what, sum(id.name.startswith(what[:-1]) for id in snapshot.tools)
    servers = {server.identifier: name for name, server in snapshot.servers.items()}
    servers |= {name: name for name in (*application.admin.providers, *application.admin.disabled)}
    if what in servers:
        return servers[what], sum(id.server == servers[what] for id in snapshot.tools)
    try:
        tool = snapshot.resolver.resolve(what, snapshot.tools.keys())
    except CallError as error:
        alike = nearest_names(what, servers, limit=NAMED)
        if alike:
            raise UnknownServer(f"no server is called {what!r}; did you mean {', '.join(alike)}?") from error
        raise
    return f"{tool.id.server}.{tool.id.name}", 1


def _unknown_category(name: str, known: Iterable[str]) -> UnknownFilter:
    names = sorted(known)
    alike = nearest_names(name, names, limit=NAMED) or names[:NAMED]
    more = f" and {len(names) - len(alike)} more; see: portico categories" if len(names) > len(alike) else ""
    return UnknownFilter(f"category {name!r}", details=(f"categories, nearest first: {', '.join(alike)}{more}",))
