"""The application: the gateway for agents and the admin for operators, with everything behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portico.admin import Admin
from portico.errors import ConfigError
from portico.gateway import Gateway
from portico.protocols import OnNotice, OnQuestion
from portico.tiers.tier_requests import TierAnswers

if TYPE_CHECKING:
    from portico.providers.local_sources import LocalSources
    from portico.providers.sql.registry.configured_registries import Registries
    from portico.scripting.script_session import ScriptRunner


@dataclass(slots=True)
class ScriptsOnDemand:
    """Opens what runs scripts when somebody asks for it: no other command pays for loading it."""

    open: Callable[[], ScriptRunner]
    opened: ScriptRunner | None = None

    def get(self) -> ScriptRunner:
        """What runs scripts."""
        if self.opened is None:
            self.opened = self.open()
        return self.opened

    async def aclose(self) -> None:
        """Stop all scripts, where there were any."""
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.aclose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """The gateway for agents and the admin for operators, over the same catalog."""

    gateway: Gateway
    admin: Admin
    tier_answers: TierAnswers
    problems: tuple[ConfigError, ...] = ()
    """Parts of the config that could not be used."""
    refused: Mapping[str, tuple[ConfigError, ...]] = field(default_factory=dict)
    """Servers of the config that cannot be used, by name."""
    surface: str = "discover"
    """The surface that the config chooses."""
    listeners: list[OnNotice] = field(default_factory=list)
    """Called with what upstream servers announce: server, method and parameters."""
    askers: list[OnQuestion] = field(default_factory=list)
    """Asked to pass questions beside calls on to clients; the one whose client it is answers, others with nothing."""
    script_runner: ScriptsOnDemand | None = None
    """Opens what runs agents' scripts; None where they are switched off."""
    local_sources: LocalSources | None = None
    """Where tools of our own come from."""
    is_reloading: bool = False
    """Whether they are loaded again when their files change."""
    is_renewing: bool = False
    """Whether servers are asked again whose stored definitions may be old."""
    registries: Registries | None = None
    """Databases with tools in them; None without any."""

    @property
    def unknown(self) -> frozenset[str]:
        """Servers of which nothing is stored: they have to be asked before their tools can be found."""
        return self.admin.refresher.unknown

    @property
    def scripts(self) -> ScriptRunner | None:
        """Runs agents' scripts; None where they are switched off."""
        return self.script_runner.get() if self.script_runner is not None else None
