"""What operators do over REST: read usage, servers and whether the tiers keep to their budgets, clear the cache."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, FastAPI, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from portico.admin import Admin, ServerReport
from portico.domain.call import Caller, Outcome
from portico.domain.journal import MOST, CallQuery, read_moment
from portico.domain.server import State
from portico.errors import InvalidArguments, StoreError
from portico.tiers.tiers import TierAnswers

from .errors import RESPONSES, ErrorResponse, Responses, Shape
from .tools import TierParameters, answer, asked_once

LONGEST = 400
MOST_TOOLS = 100
MOST_CALLS = 1_000
REPORT_SECONDS = 5.0
"""How long a report is kept unless what it tells of has changed."""


@dataclass(frozen=True, slots=True)
class Body:
    """A report as it is sent."""

    body: bytes


class Days(TierParameters):
    """The parameters of a report."""

    days: int = Field(default=7, ge=1, le=LONGEST, description="Today included, in UTC.")
    limit: int = Field(default=10, ge=1, le=MOST_TOOLS, description="Tools, or searches, in each list.")


class ToolFigures(Shape):
    """How one tool did in the days of a report."""

    tool: str = Field(description="As `server::tool`; the server may be spelled by its alias.")
    server: str
    calls: int
    success_rate: float = Field(description="From 0 to 100.")
    avg_latency_ms: float
    p95_latency_ms: float
    tokens_out: int


class DayFigures(Shape):
    """One day of a report."""

    day: str
    calls: int
    failed: int
    searches: int
    tokens_saved: int


class CacheFigures(Shape):
    """How often a cache had the answer."""

    hits: int
    misses: int


class LossFigures(Shape):
    """Entries that are not in the journal."""

    dropped: int
    lost: int


class SearchFigures(Shape):
    """A search that no tool fitted."""

    query: str = Field(description="As it was asked, at most 200 letters, filters included.")
    count: int
    last: str = Field(description="When it was asked last, in UTC.")


class StatsResponse(Shape):
    """The journal of the last days, summed up."""

    days: int
    calls: int
    outcomes: dict[str, int]
    top: list[ToolFigures]
    failing: list[ToolFigures]
    slow: list[ToolFigures]
    by_day: list[DayFigures]
    searches: int
    unanswered: int
    unanswered_searches: list[SearchFigures] = Field(description="Which they were, those asked most first.")
    ranks: dict[str, int] = Field(description="Calls by the place at which a search had shown the tool; 0 is none.")
    caches: dict[str, CacheFigures]
    losses: LossFigures


class Calls(TierParameters):
    """The parameters of a list of calls."""

    limit: int = Field(default=20, ge=1, le=MOST_CALLS, description="How many, the newest ones.")
    tool: str = Field(default="", description="In any spelling, or its own name.")
    server: str = ""
    outcome: Outcome | Literal[""] = ""
    caller: str = ""
    since: str = Field(default="", description="`15m`, `2h`, `3d`, or a date with or without a time, in UTC.")
    after: int = Field(default=0, ge=0, le=MOST, description="Only calls with a higher `id`.")


class CallLine(Shape):
    """One call; the values of its arguments are neither kept nor told."""

    id: int
    time: str
    tool: str | None = Field(description="As `server::tool`; null for a script, and for a tool that is not known.")
    server: str
    spelled: str = Field(description="The tool as the caller spelled it.")
    outcome: Outcome
    code: str
    latency_ms: float
    tokens_in: int
    tokens_out: int
    caller: str
    surface: str
    script: str = Field(description="The script that made the call, if one did.")
    rank: int


class CallsResponse(Shape):
    """Single calls, the newest first."""

    calls: list[CallLine]


class ClearedResponse(Shape):
    """The cache is empty."""

    cleared: int = Field(description="Answers that were forgotten.")


class Refusal(Shape):
    """A definition that was refused."""

    name: str
    reason: str


class ServerLine(Shape):
    """One server; its environment, headers, arguments and last words are not told here."""

    name: str
    state: State
    reason: str
    source: str
    target: str
    title: str
    version: str
    protocol: str
    tools: int
    hidden: int
    rejected: list[Refusal]


class ServersResponse(Shape):
    """Every configured server, running or not."""

    servers: list[ServerLine]


class TierFigures(Shape):
    """One tier as it was measured."""

    tier: str
    tokens: int
    cumulative: int
    limit: int
    ok: bool


class BudgetResponse(Shape):
    """Whether the tiers keep to their budgets, each measured as it is sent."""

    ok: bool
    counter: str
    tiers: list[TierFigures]
    category: str = Field(description="The category that was measured: the one whose first page costs most.")
    tools: list[str] = Field(description="The tools that were measured: those with the largest schemas.")
    failures: list[str]
    text: str


@dataclass(slots=True)
class OperatorRoutes:
    """Asks the admin and the tiers."""

    admin: Admin
    tier_answers: TierAnswers
    caller: Caller

    async def stats(self, request: Request, asked: Annotated[Days, Query()]) -> Response:
        """Calls, failures, latencies and tokens of the last days."""
        if self.admin.trouble:  # which is known; to ask once more would only keep the caller waiting
            raise StoreError(self.admin.trouble)

        async def make() -> Body:
            report = await self.admin.usage_report(days=asked.days, limit=asked.limit)
            return Body(_dumped(report.as_data(self.tier_answers.gateway.spelled)))

        version = (self.tier_answers.gateway.snapshot.number, self._recorded())
        return await self._kept(request, "stats", (asked.days, asked.limit), version, make)

    async def calls(self, request: Request, asked: Annotated[Calls, Query()]) -> Response:
        """Single calls out of the journal, the newest first."""
        if self.admin.trouble:
            raise StoreError(self.admin.trouble)
        found = await self.admin.calls(self._query(asked))
        return _sent(request, {"calls": [call.as_data(self.tier_answers.gateway.spelled) for call in found]})

    def _query(self, asked: Calls) -> CallQuery:
        since = read_moment(asked.since, time()) if asked.since else 0.0
        if since is None:
            wanted = f"since: 15m, 2h, 3d, or a date such as 2026-01-31T12:00, not {asked.since[:100]!r}"
            raise InvalidArguments("calls", details=(wanted,))
        known = self.tier_answers.gateway.find(self.caller, asked.tool) if asked.tool else None
        is_same = known is not None and asked.server in ("", known.id.server)
        return CallQuery(
            tool=known.id.name if known and is_same else asked.tool,
            server=known.id.server if known and is_same else asked.server,
            outcome=str(asked.outcome),
            caller=asked.caller,
            since=since,
            after=asked.after,
            limit=asked.limit,
        )

    async def servers(self, request: Request, asked: Annotated[TierParameters, Query()]) -> Response:
        """How each server is doing, and how many tools it has."""
        lines = [_server(report) for report in self.admin.reports()]
        return _sent(request, {"servers": lines})

    async def budget(self, request: Request, asked: Annotated[TierParameters, Query()]) -> Response:
        """What the tiers cost, one on top of the other, against what they may."""
        await self.tier_answers.gateway.wait_until_ready()

        async def make() -> Body:
            return Body(_dumped((await self.tier_answers.verify(self.caller)).as_data()))

        version = (self.tier_answers.gateway.snapshot.number, self.tier_answers.standings.revision)
        return await self._kept(request, "budget", (), version, make)

    async def clear_cache(self, asked: Annotated[TierParameters, Query()]) -> Response:
        """Forget every answer that is kept; the next ones are made anew."""
        return Response(orjson.dumps({"cleared": self.admin.clear_cache()}), media_type="application/json")

    def _recorded(self) -> int:
        """How many entries this process has recorded: a report is another one after each of them."""
        counts = self.tier_answers.gateway.executor.counts
        return counts.calls.total() + counts.lookups.total()

    async def _kept(
        self, request: Request, kind: str, key: Hashable, version: Hashable, make: Callable[[], Awaitable[Body]]
    ) -> Response:
        """A report from the one cache: however many ask for it, it is made once and kept for a few seconds."""
        cache, place = self.tier_answers.cache, (self.caller, key)
        found = await cache.get(kind, place, make, REPORT_SECONDS, version=version, counted=False)
        return answer(request, found.body)


def add_routes(app: FastAPI, routes: OperatorRoutes) -> None:
    """The routes of operators."""
    invalid: Responses = {422: RESPONSES[422]}
    away: Responses = {**invalid, 503: {"model": ErrorResponse, "description": "The store cannot be read."}}
    add = partial(app.add_api_route, tags=["operators"], dependencies=[Depends(asked_once)])
    add("/api/v1/stats", routes.stats, response_model=StatsResponse, responses=away)
    add("/api/v1/calls", routes.calls, response_model=CallsResponse, responses=away)
    add("/api/v1/servers", routes.servers, response_model=ServersResponse, responses=invalid)
    add("/api/v1/budget", routes.budget, response_model=BudgetResponse, responses=invalid)
    clears: dict[str, Any] = {"methods": ["DELETE"], "response_model": ClearedResponse, "responses": invalid}
    add("/api/v1/cache", routes.clear_cache, **clears)


def _sent(request: Request, body: dict[str, Any]) -> Response:
    return answer(request, _dumped(body))


def _dumped(body: dict[str, Any]) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def _server(report: ServerReport) -> dict[str, Any]:
    server = report.server
    return {
        "name": report.name,
        "state": report.health.state,
        "reason": report.health.reason,
        "source": report.source,
        "target": report.target,
        "title": server.title if server else "",
        "version": server.version if server else "",
        "protocol": server.protocol if server else "",
        "tools": len(report.tools),
        "hidden": report.hidden,
        "rejected": [{"name": refusal.name, "reason": refusal.reason} for refusal in report.rejected],
    }
