"""The application: a gateway, its admin, and what is behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from portico.admin import Admin
from portico.errors import ConfigError
from portico.gateway import Gateway
from portico.protocols import MeaningSource
from portico.storage.journal import StoredJournal
from portico.tiers.tiers import TierAnswers

if TYPE_CHECKING:
    from portico.providers.local_sources import LocalSources
    from portico.providers.sql.registries import Registries
    from portico.scripting.session import ScriptRunner


@dataclass(slots=True, kw_only=True)
class Application:
    """The gateway for agents and the admin for operators, over the same catalog."""

    gateway: Gateway
    admin: Admin
    tier_answers: TierAnswers
    unknown: set[str] = field(default_factory=set)
    """Servers of which nothing is remembered: they have to be asked before their tools can be found."""
    problems: tuple[ConfigError, ...] = ()
    """Parts of the config that could not be used."""
    refused: Mapping[str, tuple[ConfigError, ...]] = field(default_factory=dict)
    """Servers of the config that cannot be used, by name."""
    surface: str = "discover"
    """The surface that the config chooses."""
    meanings: MeaningSource | None = None
    """What texts mean, when the config names an embedder."""
    notices: list[Callable[[str, str, Mapping[str, Any]], None]] = field(default_factory=list)
    """Who wants to hear what upstream servers announce."""

    open_scripts: Callable[[], ScriptRunner] | None = None
    """Makes what runs agents' scripts; None where they are switched off."""
    opened: ScriptRunner | None = None
    """What runs them, once somebody has asked for it."""
    local_sources: LocalSources | None = None
    """Where tools of our own come from."""
    registries: Registries | None = None
    """Databases with tools in them; None without any."""
    is_reloading: bool = False
    """Whether they are loaded again when their files change."""
    journal: StoredJournal | None = None
    """The journal, where a database keeps it."""
    closing: list[Callable[[], None]] = field(default_factory=list)
    """What has to be closed at the end, in this order; each may block."""

    @property
    def scripts(self) -> ScriptRunner | None:
        """Runs agents' scripts; None where they are switched off."""
        if self.opened is None and self.open_scripts is not None:
            self.opened = self.open_scripts()
        return self.opened

    def notice(self, server: str, method: str, params: Mapping[str, Any]) -> None:
        """Pass a server's announcement to all who listen."""
        for listener in self.notices:
            listener(server, method, params)
