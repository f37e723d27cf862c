"""The REST application: every route, one shape for errors, and the OpenAPI document."""

from __future__ import annotations

from fastapi import FastAPI

from portico.domain.caller import Caller
from portico.house import House
from portico.version import VERSION

from . import faults, health, operators, start_page, tools
from .edge import Edge
from .figures import registry_of

REST = Caller(surface="rest")
"""Who asks over REST, as long as callers cannot say who they are."""


def build_api(house: House, *, caller: Caller = REST) -> FastAPI:
    """The application over a house; it reads and runs no tool, and the one thing that it does is to clear the cache."""
    app = FastAPI(
        title="Portico",
        version=VERSION,
        summary="The catalog of tools, disclosed step by step.",
        docs_url=None,  # these pages load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    # Straight to the application: routers that are included are made ready by the first request, which then waits.
    tools.add_routes(app, tools.ToolRoutes(house.walk, caller))
    operators.add_routes(app, operators.OperatorRoutes(house.admin, house.walk, caller))
    health.add_routes(app, health.HealthRoutes(house, registry_of(house)))
    start_page.add_routes(app)
    faults.install(app, lambda spelling: house.gateway.find(caller, spelling))
    app.add_middleware(Edge)
    return app
