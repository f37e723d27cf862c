"""What an operator can do: see the servers, refresh them, and read the token bill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from portico.domain.caller import Caller
from portico.domain.server import Health, Server, State
from portico.domain.tool import Rejected, Tool
from portico.errors import CallError, UnknownServer
from portico.intake.intake import Intake
from portico.ports import Policy, Provider, TokenCounter

OPERATOR = Caller(name="operator", surface="admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """One server as an operator sees it."""

    name: str
    health: Health
    source: str
    tools: tuple[Tool, ...] = ()
    """Those that an agent can see."""
    hidden: int = 0
    """How many the config's filter keeps out."""
    rejected: tuple[Rejected, ...] = ()
    server: Server | None = None
    target: str = ""
    """The command or URL, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """What one server's definitions cost in a context window."""

    server: str
    tools: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a client reads before its first question, without and with Portico."""

    lines: tuple[BillLine, ...]
    after: int
    counter: str

    @property
    def before(self) -> int:
        """Tokens of every definition together."""
        return sum(line.tokens for line in self.lines)

    @property
    def saved(self) -> float:
        """The part that is saved, from 0 to 1."""
        return 1 - self.after / self.before if self.before else 0.0


@dataclass(slots=True, kw_only=True)
class Admin:
    """The door for operators."""

    intake: Intake
    providers: Mapping[str, Provider]
    counter: TokenCounter
    policy: Policy
    targets: Mapping[str, str]
    disabled: tuple[str, ...] = ()

    def reports(self) -> list[ServerReport]:
        """Every configured server, running or not, in the order of their names."""
        return [self.report(name) for name in sorted({*self.providers, *self.disabled})]

    def report(self, name: str) -> ServerReport:
        """One server: how it is doing, its tools, and what was refused.

        Raises:
            UnknownServer: no server of that name is configured.
        """
        if name in self.disabled:
            return ServerReport(
                name=name, health=Health(state=State.DISABLED), source="upstream", target=self.targets.get(name, "")
            )
        if name not in self.providers:
            raise UnknownServer(f"no server is called {name!r}; configured: {', '.join(self.providers) or 'none'}")
        edition = self.intake.editions.current.edition
        provider = self.providers[name]
        own = [tool for tool in edition.tools.values() if tool.id.server == name]
        visible = self.policy.visible(OPERATOR, edition)
        tools = tuple(tool for tool in own if tool.id in visible)
        return ServerReport(
            name=name,
            health=self._health(name),
            source=provider.source,
            tools=tools,
            hidden=len(own) - len(tools),
            rejected=tuple(refusal for refusal in edition.rejected if refusal.server == name),
            server=edition.servers.get(name),
            target=self.targets.get(name, ""),
        )

    async def refresh(
        self, servers: set[str] | None = None, on_done: Callable[[str, CallError | None], None] | None = None
    ) -> None:
        """Ask servers for their definitions again, all of them unless some are named."""
        await self.intake.refresh_all(servers if servers is not None else set(self.providers), on_done)

    def bill(self, after: int) -> Bill:
        """The token bill; `after` is what the surface in use costs."""
        lines = []
        edition = self.intake.editions.current.edition
        for name in edition.servers:
            tools = [tool for tool in edition.tools.values() if tool.id.server == name]
            tokens = sum(self.counter.count(orjson.dumps(tool.definition).decode()) for tool in tools)
            lines.append(BillLine(server=name, tools=len(tools), tokens=tokens))
        return Bill(lines=tuple(lines), after=after, counter=self.counter.name)

    def _health(self, name: str) -> Health:
        health = self.providers[name].health()
        known = name in self.intake.editions.current.edition.servers
        reason = self.intake.failures.get(name, "") or health.reason
        if health.state in (State.RUNNING, State.FAILED):
            return health
        if name in self.intake.failures:
            return Health(state=State.FAILED, reason=reason, stderr=health.stderr)
        return Health(state=State.READY if known else State.UNKNOWN, reason=reason, stderr=health.stderr)
