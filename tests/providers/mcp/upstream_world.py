"""Real child processes and real HTTP servers for the upstream provider."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from portico.domain.journal_entries import FleetEvent
from portico.domain.server import ServerSpec, Timeouts
from portico.providers.mcp import UpstreamProvider

SCRIPTED = str(Path(__file__).with_name("scripted_server.py"))
QUICK = Timeouts(start=10, call=10, total=20, idle=0)


@dataclass
class News:
    """What a provider reports, with an event for whoever waits for it."""

    changes: list[str] = field(default_factory=list)
    notices: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    _arrived: anyio.Event = field(default_factory=anyio.Event)

    def on_change(self, server: str) -> None:
        self.changes.append(server)
        self._tell()

    def on_notice(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        self.notices.append((server, method, params))
        self._tell()

    def _tell(self) -> None:
        self._arrived.set()
        self._arrived = anyio.Event()

    async def wait_for(self, *, changes: int = 0, notices: int = 0) -> None:
        with anyio.fail_after(10):
            while len(self.changes) < changes or len(self.notices) < notices:
                await self._arrived.wait()


class Upstreams:
    """Makes providers and closes them at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.news = News()
        self.events: list[FleetEvent] = []
        """What the providers told of their servers."""
        self.log = folder / "server.log"
        self._made: list[UpstreamProvider] = []

    def provide(self, spec: ServerSpec, **more: Any) -> UpstreamProvider:
        provider = UpstreamProvider(
            spec,
            on_change=self.news.on_change,
            on_notice=self.news.on_notice,
            client_version="9.9",
            on_event=self.events.append,
            **more,
        )
        self._made.append(provider)
        return provider

    def stdio(self, **habits: Any) -> UpstreamProvider:
        return self.provide(self.spec(**habits))

    def spec(self, *, timeouts: Timeouts = QUICK, env: Mapping[str, str] | None = None, **habits: Any) -> ServerSpec:
        args = ("-S", "-E", SCRIPTED, json.dumps({"log": str(self.log), **habits}))
        return ServerSpec(
            name="s", transport="stdio", command=sys.executable, args=args, env=env or {}, timeouts=timeouts
        )

    def http(self, url: str, *, timeouts: Timeouts = QUICK, **more: Any) -> UpstreamProvider:
        return self.provide(ServerSpec(name="h", transport="http", url=url, timeouts=timeouts, **more))

    def told(self, *kinds: str) -> list[str]:
        """The kinds of the events, in order; of those that are named, where some are."""
        return [event.kind for event in self.events if not kinds or event.kind in kinds]

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def spawned(self) -> list[int]:
        return [entry["spawn"] for entry in self.logged() if "spawn" in entry]

    async def aclose(self) -> None:
        for provider in self._made:
            await provider.aclose()


async def use(provider: UpstreamProvider, tool: str, **arguments: Any) -> Mapping[str, Any]:
    """Call a tool without ceremony, within a time no test should need."""
    with anyio.fail_after(20):
        return await provider.call(tool, arguments, meta={}, on_progress=None)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that sends no events: another process, or the end of an idle time."""
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110
            await anyio.sleep(0.01)


def said(result: Mapping[str, Any]) -> Any:
    """What a tool of the scripted server put into its text."""
    text = result["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text
