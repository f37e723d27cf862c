"""Whether the gateway lives, is ready, and what it has in numbers, for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from pydantic import Field
from starlette.responses import Response

from portico.house import House

from .faults import Responses
from .figures import exposed, journal_state
from .models import Shape

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
    """Says how the house is doing, without asking anybody."""

    house: House
    registry: CollectorRegistry

    async def live(self) -> Response:
        """200 while the process serves."""
        return _now({"live": True})

    async def ready(self) -> Response:
        """503 while servers are being asked for the first time; trouble with the store does not stop calls."""
        starting, scripts = sorted(self.house.admin.intake.starting()), self.house.scripts
        state = journal_state(self.house)
        trouble = self.house.admin.trouble or (state.trouble if state else "")
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
        if self.house.scripts is None:
            return "off"
        self.house.scripts.examine_soon()
        return self.house.scripts.state

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
