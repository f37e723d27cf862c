"""Protocols that packages depend on instead of each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from portico.domain.call import Caller, OnProgress
from portico.domain.journal_entries import Entry
from portico.domain.search_answers import Findings
from portico.domain.server import Health, Offering
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import LearnedWords, Usage

OnChange = Callable[[str], None]
"""Called with a server's name when its definitions have changed at the source."""

OnNotice = Callable[..., None]
"""Called with server, notification method and parameters for what is passed on to clients.

Where each client has a session of its own with the server, the fourth argument says which client it is for.
"""

OnQuestion = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Called with a client and a server's question to it that belongs to no call; answers as the server is answered."""


class Provider(Protocol):
    """Offers the tools of one server and runs them; starts whatever it needs on first use."""

    @property
    def server(self) -> str:
        """The server's name in the config."""
        ...

    @property
    def source(self) -> str:
        """The kind of provider: upstream, database or local."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes when stored definitions of this server can no longer be trusted."""
        ...

    def health(self) -> Health:
        """How the server is doing, without starting it."""
        ...

    async def offer(self) -> Offering:
        """Ask the source for everything it offers, whole.

        Raises:
            CallError: the source could not be asked; the message says why.
        """
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        on_progress: OnProgress | None,
        answers: Mapping[str, Any] | None = None,
        caller: Caller | None = None,
    ) -> Mapping[str, Any]:
        """Run one tool by its original name and return its result object unchanged.

        `answers` goes along when the call continues one that asked the client something; `caller` is who asks.

        Raises:
            CallError: with `sent` telling whether the call may have taken effect.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], *, caller: Caller | None = None
    ) -> Mapping[str, Any]:
        """Pass on one other request (`resources/read`, `prompts/get`, `completion/complete`...) of a caller."""
        ...

    async def aclose(self) -> None:
        """Stop what was started."""
        ...


class Index(Protocol):
    """Finds tools by what they do; always asked within a visible set, and an empty set finds nothing."""

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The best tools first."""
        ...


class Journal(Protocol):
    """Where every invocation and every lookup is written once."""

    def record(self, entry: Entry) -> None:
        """Write one entry; never waits and never raises."""
        ...

    async def written(self) -> str:
        """Return when what was recorded until now is as safe as this journal promises.

        The answer is empty, or says in one line why it is not safe yet.
        """
        ...

    def usage(self) -> Mapping[ToolId, Usage]:
        """How the tools have done so far; one that was never called is not in it. Never waits."""
        ...

    def learned(self) -> LearnedWords:
        """The words that callers searched with before they called a tool. Never waits."""
        ...


class DefinitionStore(Protocol):
    """What is remembered between starts: each server's last offering, under its fingerprint, and vectors of texts.

    It may be used from several threads.
    """

    def load(self, servers: Mapping[str, str]) -> dict[str, Offering]:
        """The offerings of those servers whose fingerprint is still the stored one."""
        ...

    def save(self, offering: Offering, fingerprint: str) -> None:
        """Remember one server's offering, whole."""
        ...

    def save_failure(self, server: str, fingerprint: str, reason: str) -> None:
        """Remember that a server could not be asked; its next offering makes this forgotten."""
        ...

    def failures(self, servers: Mapping[str, str], *, within: float) -> dict[str, str]:
        """Why servers could not be asked: those that failed within so many seconds, under the same fingerprint."""
        ...

    def forget(self, servers: Iterable[str]) -> None:
        """Drop what is remembered of these servers."""
        ...

    def load_vectors(self, model: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """The vectors of a model that are remembered under these hashes; they count as used."""
        ...

    def save_vectors(self, model: str, rows: Mapping[str, bytes]) -> None:
        """Remember vectors of a model by the hash of their text; those not used for longest make room."""
        ...

    def close(self) -> None:
        """Release the file or the connection."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors whose directions are close when their meanings are; safe among threads."""

    @property
    def name(self) -> str:
        """The model, and where it is: vectors of another name are not compared with its own."""
        ...

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """The vectors of texts, in their order; blocks.

        Raises:
            EmbedderAway: it cannot be asked, with the reason.
        """
        ...


class TokenCounter(Protocol):
    """Counts tokens; every report names the counter it used."""

    @property
    def name(self) -> str:
        """What to call it in reports."""
        ...

    def count(self, text: str) -> int:
        """Tokens of a text."""
        ...
