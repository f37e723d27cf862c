"""Health checks and Prometheus metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import orjson
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pydantic import Field
from starlette.responses import Response

from portico.application import Application
from portico.execution.executor import BOUNDS, Counts
from portico.storage.journal import JournalState

from .errors import Responses, Shape

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


def registry_of(application: Application) -> CollectorRegistry:
    """A registry of this application's own: two applications in one process share no number."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures(application))
    ProcessCollector(registry=registry)
    return registry


def exposed(registry: CollectorRegistry) -> bytes:
    """All figures as they are now."""
    return generate_latest(registry)


@dataclass(slots=True, eq=False)
class Figures(Collector):
    """Reads the figures of an application where they are kept; nothing is counted twice, and no counter ever falls."""

    application: Application

    def collect(self) -> Iterator[Metric]:
        """Everything, at this moment."""
        counts = self.application.gateway.executor.counts
        yield from _calls(counts)
        yield _latency(counts)
        yield from self._caches()
        yield from self._catalog()
        yield from self._journal()

    def _caches(self) -> Iterator[Metric]:
        hits = CounterMetricFamily("portico_cache_hits", "Answers that a cache had.", labels=["cache"])
        misses = CounterMetricFamily("portico_cache_misses", "Answers that had to be made.", labels=["cache"])
        ratio = GaugeMetricFamily("portico_cache_hit_ratio", "The share of answers that a cache had.", labels=["cache"])
        for name, (hit, missed) in self.application.tier_answers.cache.counts().items():
            hits.add_metric([name], hit)
            misses.add_metric([name], missed)
            if hit + missed:
                ratio.add_metric([name], hit / (hit + missed))
        yield from (hits, misses, ratio)

    def _catalog(self) -> Iterator[Metric]:
        snapshot = self.application.gateway.snapshot
        yield GaugeMetricFamily("portico_edition", "The number of the current edition.", value=snapshot.number)
        yield GaugeMetricFamily("portico_tools", "Tools in the current edition.", value=len(snapshot.tools))
        servers = GaugeMetricFamily("portico_servers", "Configured servers.", labels=["state"])
        states = Counter(report.health.state for report in self.application.admin.reports())
        for state, number in sorted(states.items()):
            servers.add_metric([state], number)
        yield servers

    def _journal(self) -> Iterator[Metric]:
        state = journal_state(self.application)
        if state is None:
            return
        yield GaugeMetricFamily("portico_journal_waiting", "Entries that wait for the store.", value=state.waiting)
        for name, said in _JOURNAL.items():
            yield CounterMetricFamily(f"portico_journal_{name}", said, value=getattr(state, name))


def _calls(counts: Counts) -> Iterator[Metric]:
    calls = CounterMetricFamily("portico_calls", "Calls by server and how they ended.", labels=["server", "outcome"])
    for (server, outcome), number in list(counts.calls.items()):
        calls.add_metric([server, outcome], number)
    yield calls
    lookups = CounterMetricFamily("portico_lookups", "Looks at the catalog.", labels=["look"])
    for look, number in list(counts.lookups.items()):
        lookups.add_metric([look], number)
    yield lookups
    tokens = CounterMetricFamily("portico_tokens", "Tokens to and from tools, and of lookups.", labels=["direction"])
    for direction, number in {"in": counts.tokens_in, "out": counts.tokens_out, "lookup": counts.lookup_tokens}.items():
        tokens.add_metric([direction], number)
    yield tokens


def _latency(counts: Counts) -> Metric:
    found = HistogramMetricFamily("portico_call_seconds", "How long callers waited, by server.", labels=["server"])
    for server, numbers in list(counts.latencies.items()):
        bounds = [*(repr(bound) for bound in BOUNDS), "+Inf"]
        buckets = list(zip(bounds, accumulate(numbers), strict=True))
        found.add_metric([server], buckets, sum_value=counts.seconds[server])
    return found


FRESH = {"cache-control": "no-store"}


class Live(Shape):
    """The process serves."""

    live: bool


class JournalHealth(Shape):
    """What the journal could not write yet, or at all."""

    waiting: int
    dropped: int
    lost: int


class Ready(Shape):
    """Whether every server has been asked once, and what is in trouble."""

    ready: bool
    starting: list[str] = Field(description="Servers that are being asked for the first time.")
    store: str = Field(description="`ok`, or what is wrong with it.")
    journal: JournalHealth
    scripts: str = Field(description="`hardened`, `degraded: ...`, `off`, or `not examined yet`.")
    degraded: bool = Field(description="Whether something is in trouble that does not stop calls.")


@dataclass(slots=True)
class HealthRoutes:
    """Says how the application is doing, without asking anybody."""

    application: Application
    registry: CollectorRegistry

    async def live(self) -> Response:
        """200 while the process serves."""
        return _now({"live": True})

    async def ready(self) -> Response:
        """503 while servers are being asked for the first time; trouble with the store does not stop calls."""
        starting, scripts = sorted(self.application.admin.refresher.starting()), self.application.scripts
        state = journal_state(self.application)
        trouble = self.application.admin.trouble or (state.trouble if state else "")
        waiting, dropped, lost = (state.waiting, state.dropped, state.lost) if state else (0, 0, 0)
        found = {
            "ready": not starting,
            "starting": starting,
            "store": trouble or "ok",
            "journal": {"waiting": waiting, "dropped": dropped, "lost": lost},
            "scripts": self._sandbox(),
            "degraded": bool(trouble or dropped or lost or (scripts is not None and scripts.is_degraded)),
        }
        return _now(found, 503 if starting else 200)

    def _sandbox(self) -> str:
        """What holds scripts in: the first who asks begins to find out, and nobody waits for it."""
        if self.application.scripts is None:
            return "off"
        self.application.scripts.examine_soon()
        return self.application.scripts.state

    async def metrics(self) -> Response:
        """Counters, gauges and a histogram, in the text format of Prometheus."""
        return MetricsText(exposed(self.registry), headers=FRESH)


def add_routes(app: FastAPI, routes: HealthRoutes) -> None:
    """The routes of those who watch the gateway."""
    add = partial(app.add_api_route, tags=["health"])
    unready: Responses = {503: {"model": Ready, "description": "Servers are being asked for the first time."}}
    add("/livez", routes.live, response_model=Live)
    add("/readyz", routes.ready, response_model=Ready, responses=unready)
    add("/metrics", routes.metrics, response_class=MetricsText)


class MetricsText(Response):
    """The text format of Prometheus."""

    media_type = CONTENT_TYPE_LATEST


def _now(body: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, headers=FRESH, media_type="application/json")
