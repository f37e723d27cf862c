"""What operators do over REST: usage, servers, budgets and the cache; and health and metrics for monitors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from time import monotonic, time
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, FastAPI, Query
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from portico.admin import Admin, ServerReport
from portico.application import Application
from portico.domain.call import Caller, Outcome
from portico.domain.journal_entries import MOST, CallQuery, EventQuery, JournalState, read_moment
from portico.domain.server import ConfigChange, State
from portico.errors import ConfigError, InvalidArguments, StoreError
from portico.execution.executor import BOUNDS, Counts
from portico.tiers.tier_requests import TierAnswers

from .errors import RESPONSES, ErrorResponse, Responses, Shape, error_response
from .tier_routes import TierParameters, answer, asked_once

LONGEST = 400
MOST_TOOLS = 100
MOST_CALLS = 1_000
RELOAD = "POST /api/v1/reload"
REPORT_SECONDS = 5.0  # how long a report is kept unless what it tells of has changed

Reload = Callable[[], Awaitable[ConfigChange]]


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


class LearnedFigures(Shape):
    """A word that callers searched with before they called a tool."""

    word: str
    tool: str
    server: str
    uses: int = Field(description="Calls that ended well and came after a search with the word.")
    weight: float = Field(description="What these count by now; a use counts half after 30 days.")
    callers: int
    is_shared: bool = Field(description="Whether it counts for everybody; else it is the asker's own.")


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
    learned: list[LearnedFigures] = Field(description="Words that have come to stand for tools, of any time.")


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


class Events(TierParameters):
    """The parameters of a list of events."""

    limit: int = Field(default=20, ge=1, le=MOST_CALLS, description="How many, the newest ones.")
    server: str = ""
    kind: str = Field(default="", description="`started`, `exited`, `reload` and so on.")
    since: str = Field(default="", description="`15m`, `2h`, `3d`, or a date with or without a time, in UTC.")
    after: int = Field(default=0, ge=0, le=MOST, description="Only events with a higher `id`.")


class EventLine(Shape):
    """One thing that happened to a server or to a gateway."""

    id: int
    time: str
    gateway: str = Field(description="The process that noticed it: its machine and its number.")
    server: str = Field(description="Empty where it is the gateway's own.")
    kind: str
    text: str
    stderr: str = Field(description="The last lines that the server wrote to stderr.")
    times: int = Field(description="How often it happened within a second.")


class EventsResponse(Shape):
    """What happened, the newest first."""

    events: list[EventLine]


class ClearedResponse(Shape):
    """The cache is empty."""

    cleared: int = Field(description="Answers that were forgotten.")


class ReloadResponse(Shape):
    """The difference that reading the config again has made; empty lists where it says the same."""

    added: list[str] = Field(description="Servers that are new.")
    removed: list[str] = Field(description="Servers that are gone.")
    changed: list[str] = Field(description="Servers whose entry is another one.")
    settings: list[str] = Field(description="Other keys whose new value is in force.")
    restart: list[str] = Field(description="Keys whose new value is in force after a restart.")


class Refusal(Shape):
    """A definition that was refused."""

    name: str
    reason: str


class ServerLine(Shape):
    """One server; its environment, headers, arguments and last words are not told here."""

    name: str
    state: State
    reason: str
    cause: str = Field(description="The reason in one word where it is known, such as `dns` or `timeout`.")
    source: str
    target: str
    title: str
    version: str
    protocol: str
    tools: int
    hidden: int
    rejected: list[Refusal]
    overridden: list[str] = Field(description="Tools that the config shows otherwise, by their own names.")
    changed: list[str] = Field(description="Those of them that the server defines otherwise than at first.")
    override_problems: int = Field(description="Parts of overrides that cannot hold; `portico doctor` names them.")


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
    reload_config: Reload | None = None
    """Reads the config again; None where a program has given the settings."""

    async def stats(self, request: Request, asked: Annotated[Days, Query()]) -> Response:
        """Calls, failures, latencies and tokens of the last days."""
        self._check_store()
        gateway = self.tier_answers.gateway

        async def make() -> Any:
            report = await self.admin.usage_report(days=asked.days, limit=asked.limit, caller=self.caller)
            return report.as_data(gateway.spell_id)

        # A report is another one after each entry that this process has recorded.
        counts = gateway.executor.counts
        version = (gateway.snapshot.number, counts.calls.total() + counts.lookups.total())
        return await self._keep(request, "stats", (asked.days, asked.limit), version, make)

    async def calls(self, request: Request, asked: Annotated[Calls, Query()]) -> Response:
        """Single calls out of the journal, the newest first."""
        self._check_store()
        gateway = self.tier_answers.gateway
        since = _moment("calls", asked.since)
        known = gateway.view(self.caller).find(asked.tool) if asked.tool else None
        if known is not None and asked.server in ("", known.id.server):
            asked = asked.model_copy(update={"tool": known.id.name, "server": known.id.server})
        found = await self.admin.calls(CallQuery(**{**asked.model_dump(mode="json"), "since": since}))
        return _send(request, {"calls": [call.as_data(gateway.spell_id) for call in found]})

    async def events(self, request: Request, asked: Annotated[Events, Query()]) -> Response:
        """What happened to servers and to gateways, the newest first."""
        self._check_store()
        since = _moment("events", asked.since)
        found = await self.admin.events(EventQuery(**{**asked.model_dump(), "since": since}))
        return _send(request, {"events": [event.as_data() for event in found]})

    async def servers(self, request: Request, asked: Annotated[TierParameters, Query()]) -> Response:
        """How each server is doing, and how many tools it has."""
        return _send(request, {"servers": [_server(report) for report in self.admin.reports()]})

    async def budget(self, request: Request, asked: Annotated[TierParameters, Query()]) -> Response:
        """What the tiers cost, one on top of the other, against what they may."""
        await self.tier_answers.gateway.wait_until_ready()

        async def make() -> Any:
            return (await self.tier_answers.verify(self.caller)).as_data()

        version = (self.tier_answers.gateway.snapshot.number, self.tier_answers.standings.revision)
        return await self._keep(request, "budget", (), version, make)

    async def clear_cache(self, asked: Annotated[TierParameters, Query()]) -> Response:
        """Forget every answer that is kept; the next ones are made anew."""
        return Response(orjson.dumps({"cleared": self.admin.clear_cache()}), media_type="application/json")

    async def reload(self, asked: Annotated[TierParameters, Query()]) -> Response:
        """Read the config again and put it in force; one with an error in it changes nothing."""
        if self.reload_config is None:
            return error_response(409, "no_config", "this gateway was given its settings by a program, not by a file")
        try:
            change = await self.reload_config()
        except ConfigError as error:
            wrong = [str(error), *getattr(error, "__notes__", ())]
            said = "the config cannot be used, and nothing has changed"
            return error_response(422, error.code, said, details=wrong, next=RELOAD)
        return _send_fresh(asdict(change))

    def _check_store(self) -> None:
        """Refuse when the store is known to be away: to ask once more would only keep the caller waiting."""
        if self.admin.trouble:
            raise StoreError(self.admin.trouble)

    async def _keep(
        self, request: Request, kind: str, key: Hashable, version: Hashable, make: Callable[[], Awaitable[Any]]
    ) -> Response:
        """A report from the one cache: however many ask for it, it is made once and kept for a few seconds."""

        async def made() -> bytes:
            return _dump(await make())

        cache, place = self.tier_answers.cache, (self.caller, key)
        return answer(request, await cache.get(kind, place, made, REPORT_SECONDS, version=version, counted=False))


def _moment(what: str, text: str) -> float:
    """The moment that a request names, or the beginning of time.

    Raises:
        InvalidArguments: it names none.
    """
    found = read_moment(text, time()) if text else 0.0
    if found is None:
        wanted = f"since: 15m, 2h, 3d, or a date such as 2026-01-31T12:00, not {text[:100]!r}"
        raise InvalidArguments(what, details=(wanted,))
    return found


def _send(request: Request, body: dict[str, Any]) -> Response:
    return answer(request, _dump(body))


def _dump(body: Any) -> bytes:
    return orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)


def _server(report: ServerReport) -> dict[str, Any]:
    server = report.server
    return {
        "name": report.name,
        "state": report.health.state,
        "reason": report.health.reason,
        "cause": report.health.cause,
        "source": report.source,
        "target": report.target,
        "title": server.title if server else "",
        "version": server.version if server else "",
        "protocol": server.protocol if server else "",
        "tools": len(report.tools),
        "hidden": report.hidden,
        "rejected": [{"name": refusal.name, "reason": refusal.reason} for refusal in report.rejected],
        "overridden": [*report.overrides.holding],
        "changed": [*report.overrides.changed],
        "override_problems": len(report.overrides.problems),
    }


_JOURNAL = {
    "recorded": "Entries that were written to the journal.",
    "stored": "Entries of the journal that the store has taken.",
    "dropped": "Entries of the journal that were left out because the buffer was full.",
    "lost": "Entries of the journal that are gone with the process that had them.",
}


def journal_state(application: Application) -> JournalState | None:
    """How the journal is doing, where it is one that writes to a store."""
    found = getattr(application.gateway.executor.journal, "state", None)
    return found if isinstance(found, JournalState) else None


@dataclass(slots=True, eq=False)
class Metrics(Collector):
    """Reads the metrics of an application where they are kept; nothing is counted twice, and no counter ever falls."""

    application: Application

    def collect(self) -> Iterator[Metric]:
        """Everything, at this moment."""
        counts, snapshot = self.application.gateway.executor.counts, self.application.gateway.snapshot
        yield _count("portico_calls", "Calls by server and how they ended.", ("server", "outcome"), counts.calls)
        yield _count("portico_lookups", "Looks at the catalog.", ("look",), counts.lookups)
        tokens = {"in": counts.tokens_in, "out": counts.tokens_out, "lookup": counts.lookup_tokens}
        yield _count("portico_tokens", "Tokens to and from tools, and of lookups.", ("direction",), tokens)
        yield _latency(counts)
        caches = self.application.tier_answers.cache.counts()
        hits, misses = ({name: found[place] for name, found in caches.items()} for place in (0, 1))
        ratios = {name: hit / (hit + missed) for name, (hit, missed) in caches.items() if hit + missed}
        yield _count("portico_cache_hits", "Answers that a cache had.", ("cache",), hits)
        yield _count("portico_cache_misses", "Answers that had to be made.", ("cache",), misses)
        yield _gauge("portico_cache_hit_ratio", "The share of answers that a cache had.", "cache", ratios)
        yield GaugeMetricFamily("portico_edition", "The number of the current edition.", value=snapshot.number)
        yield GaugeMetricFamily("portico_tools", "Tools in the current edition.", value=len(snapshot.tools))
        states = Counter(str(report.health.state) for report in self.application.admin.reports())
        yield _gauge("portico_servers", "Configured servers.", "state", dict(sorted(states.items())))
        if (state := journal_state(self.application)) is not None:
            yield GaugeMetricFamily("portico_journal_waiting", "Entries that wait for the store.", value=state.waiting)
            for name, said in _JOURNAL.items():
                yield CounterMetricFamily(f"portico_journal_{name}", said, value=getattr(state, name))


def _count(name: str, said: str, labels: Sequence[str], values: Mapping[Any, int]) -> Metric:
    found = CounterMetricFamily(name, said, labels=labels)
    for key, number in list(values.items()):
        found.add_metric([key] if isinstance(key, str) else list(key), number)
    return found


def _gauge(name: str, said: str, label: str, values: Mapping[str, float]) -> Metric:
    found = GaugeMetricFamily(name, said, labels=[label])
    for key, number in values.items():
        found.add_metric([key], number)
    return found


def _latency(counts: Counts) -> Metric:
    found = HistogramMetricFamily("portico_call_seconds", "How long callers waited, by server.", labels=["server"])
    bounds = [*map(repr, BOUNDS), "+Inf"]
    for server, numbers in list(counts.latencies.items()):
        found.add_metric(
            [server], list(zip(bounds, accumulate(numbers), strict=True)), sum_value=counts.seconds[server]
        )
    return found


FRESH = {"cache-control": "no-store"}


class MetricsText(Response):
    """The text format of Prometheus."""

    media_type = CONTENT_TYPE_LATEST


class Live(Shape):
    """The process serves."""

    live: bool


class JournalHealth(Shape):
    """What the journal could not write yet, or at all."""

    waiting: int
    dropped: int
    lost: int


READY_SECONDS = 0.5
"""How long a start waits for the first answers of servers: those that hang must not make a gateway unready."""


class Ready(Shape):
    """Whether the gateway may be used, which servers are still to come, and what is in trouble."""

    ready: bool
    starting: list[str] = Field(description="Servers that are being asked for the first time.")
    store: str = Field(description="`ok`, or what is wrong with it.")
    journal: JournalHealth
    scripts: str = Field(description="`hardened`, `degraded: ...`, `off`, or `not examined yet`.")
    degraded: bool = Field(description="Whether something is in trouble that does not stop calls.")


class HealthRoutes:
    """Says how the application is doing, without asking anybody."""

    def __init__(self, application: Application) -> None:
        self._application, self.began = application, monotonic()
        # Of this application's own: two applications in one process share no number.
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Metrics(application))
        ProcessCollector(registry=self._registry)

    async def live(self) -> Response:
        """200 while the process serves."""
        return _send_fresh({"live": True})

    async def ready(self) -> Response:
        """503 for a moment while servers are asked for the first time; trouble with the store does not stop calls."""
        admin, scripts = self._application.admin, self._application.scripts
        starting = sorted(admin.refresher.starting())
        is_ready = not starting or monotonic() - self.began >= READY_SECONDS
        state = journal_state(self._application)
        trouble = admin.trouble or (state.trouble if state else "")
        waiting, dropped, lost = (state.waiting, state.dropped, state.lost) if state else (0, 0, 0)
        if scripts is not None:
            scripts.examine_soon()  # the first who asks begins to find out, and nobody waits for it
        found = {
            "ready": is_ready,
            "starting": starting,
            "store": trouble or "ok",
            "journal": {"waiting": waiting, "dropped": dropped, "lost": lost},
            "scripts": scripts.state if scripts is not None else "off",
            "degraded": bool(trouble or dropped or lost or (scripts is not None and scripts.is_degraded)),
        }
        return _send_fresh(found, 200 if is_ready else 503)

    async def metrics(self) -> Response:
        """Counters, gauges and a histogram, in the text format of Prometheus."""
        return MetricsText(generate_latest(self._registry), headers=FRESH)


def _send_fresh(body: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, headers=FRESH, media_type="application/json")


def add_routes(app: FastAPI, operators: OperatorRoutes, health: HealthRoutes) -> None:
    """The routes of operators and of those who watch the gateway."""
    invalid: Responses = {422: RESPONSES[422]}
    away: Responses = {**invalid, 503: {"model": ErrorResponse, "description": "The store cannot be read."}}
    add = partial(app.add_api_route, tags=["operators"], dependencies=[Depends(asked_once)])
    add("/api/v1/stats", operators.stats, response_model=StatsResponse, responses=away)
    add("/api/v1/calls", operators.calls, response_model=CallsResponse, responses=away)
    add("/api/v1/events", operators.events, response_model=EventsResponse, responses=away)
    add("/api/v1/servers", operators.servers, response_model=ServersResponse, responses=invalid)
    add("/api/v1/budget", operators.budget, response_model=BudgetResponse, responses=invalid)
    clears: dict[str, Any] = {"methods": ["DELETE"], "response_model": ClearedResponse, "responses": invalid}
    add("/api/v1/cache", operators.clear_cache, **clears)
    refused: Responses = {
        **invalid,
        409: {"model": ErrorResponse, "description": "There is no config to read."},
        422: {"model": ErrorResponse, "description": "The config, or a value of the request, cannot be used."},
    }
    add("/api/v1/reload", operators.reload, methods=["POST"], response_model=ReloadResponse, responses=refused)
    watch = partial(app.add_api_route, tags=["health"])
    unready: Responses = {503: {"model": Ready, "description": "It has just started and asks its servers."}}
    watch("/livez", health.live, response_model=Live)
    watch("/readyz", health.ready, response_model=Ready, responses=unready)
    watch("/metrics", health.metrics, response_class=MetricsText)
