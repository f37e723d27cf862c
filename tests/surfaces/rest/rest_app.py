"""An application with a REST surface, and a client that sends a request exactly as it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from portico.application import Application
from portico.domain.call import Invocation, Outcome
from portico.domain.server import ServerLabels, ServerSpec, ToolFilter
from portico.domain.tool import ToolId
from portico.surfaces.rest.app import build_api
from portico.testing import FakeProvider, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers

TOOLS = "/api/v1/tools"
SYMBOL = {
    **definition(
        "find_symbol",
        "Find a symbol in the code base. Returns a list of symbols with locations.",
        name_path="string",
        relative_path="string?",
        options={"type": "object", "properties": {"depth": {"type": "integer", "minimum": 0}}},
    ),
    "outputSchema": {"type": "object", "properties": {"symbols": {"type": "array", "items": {"type": "object"}}}},
}
SERVERS: Mapping[str, list[dict[str, Any]]] = {
    "serena-mcp-server": [
        SYMBOL,
        definition("replace_body", "Replace the body of a symbol.", body="string"),
        definition("read/file", "Read a file of the project.", path="string"),
        definition("secret_tool", "Is kept from agents.", key="string"),
    ],
    "playwright": [
        definition("browser_snapshot", "Take a snapshot of the page."),
        definition("日本 tool?", "Has a name that must be encoded.", text="string"),
    ],
}
SPECS = (
    ServerSpec(
        name="serena-mcp-server",
        transport="stdio",
        command="docker",
        args=("run", "--token=hunter2"),
        env={"API_KEY": "hunter2"},
        labels=ServerLabels(alias="serena", category="code_analysis"),
        tools=ToolFilter(deny=("secret_*",)),
    ),
    ServerSpec(
        name="playwright",
        transport="http",
        url="https://user:hunter2@example.com/mcp?key=hunter2",
        headers={"Authorization": "Bearer hunter2"},
        labels=ServerLabels(category="web_automation"),
    ),
)


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/json"
        assert self.json.keys() == {"error"}
        assert self.json["error"].keys() == {"code", "message", "details", "next"}
        return dict(self.json["error"])


@dataclass(frozen=True)
class Rest:
    """An application, and the way to ask it."""

    application: Application
    app: ASGIApp

    async def get(self, target: str | bytes, *, method: str = "GET", **headers: str) -> Answer:
        """Send one request; the path is not touched, as no client would leave it."""
        return await send(self.app, target, method=method, **headers)

    def provider(self, server: str) -> FakeProvider:
        found = self.application.admin.providers[server]
        assert isinstance(found, FakeProvider)
        return found

    def used(self, server: str, tool: str, calls: int, *, failed: int = 0, seconds: float = 0.047) -> None:
        """Let a tool have been called."""
        for number in range(calls):
            outcome = Outcome.FAILED if number < failed else Outcome.DONE
            self.application.gateway.executor.record(
                Invocation(
                    tool=ToolId(server, tool),
                    spelled=tool,
                    caller="agent",
                    surface="test",
                    outcome=outcome,
                    seconds=seconds,
                    tokens_in=3,
                    tokens_out=5,
                )
            )


def open_rest(
    servers: Mapping[str, list[dict[str, Any]]] = SERVERS, specs: tuple[ServerSpec, ...] = SPECS, **parts: Any
) -> Rest:
    """An application that knows these servers, and its REST surface."""
    found = make_test_app(servers, specs=specs, **parts)
    tier_answers = TierAnswers(gateway=found.gateway, cache=found.gateway.answers)
    application = Application(gateway=found.gateway, admin=found.admin, tier_answers=tier_answers)
    return Rest(application, build_api(application))


async def send(app: ASGIApp, target: str | bytes, *, method: str = "GET", **headers: str) -> Answer:
    """One request to an application, with the scope that the web server makes of these bytes."""
    raw, _, query = (target if isinstance(target, bytes) else target.encode()).partition(b"?")
    given = {"host": "127.0.0.1:8421", **{name.replace("_", "-"): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw.decode("latin-1")),
        "raw_path": raw,
        "query_string": query,
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "server": ("127.0.0.1", 8421),
        "client": ("127.0.0.1", 50_000),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def collect(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, collect)
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)
