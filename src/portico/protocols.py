"""Protocols that packages depend on instead of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Protocol

from portico.domain.call import Caller, Kept, OnProgress, Ran, Sandbox, Script
from portico.domain.disclosure import Findings
from portico.domain.journal import Batch, CallQuery, Entry, RecordedCall, Report
from portico.domain.learned_schema import Learned
from portico.domain.server import Health, Offering, Packaging
from portico.domain.snapshot import CatalogSnapshot
from portico.domain.tool import Category, Tool, ToolId
from portico.domain.usage import Standing, Usage

OnChange = Callable[[str], None]
"""Called with a server's name when its definitions have changed at the source."""

OnNotice = Callable[[str, str, Mapping[str, Any]], None]
"""Called with server, notification method and parameters for what is passed on to clients."""


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

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Pass on one other request (`resources/read`, `prompts/get`, `completion/complete`...)."""
        ...

    async def aclose(self) -> None:
        """Stop what was started."""
        ...


class Policy(Protocol):
    """Answers which tools a caller sees, and whether a call may go ahead; each link only narrows."""

    def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> Set[ToolId]:
        """The tools that this caller may see, and so may call."""
        ...

    def admit(self, caller: Caller, tool: Tool, arguments: Mapping[str, Any]) -> None:
        """Return when the call may go ahead.

        Raises:
            Refused: with the reason.
        """
        ...


class Index(Protocol):
    """Finds tools by what they do; always asked within a visible set, and an empty set finds nothing."""

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The best tools first."""
        ...


class IndexBuilder(Protocol):
    """Makes the index of a snapshot; it may reuse what the last snapshot's index already knows."""

    def __call__(self, snapshot: CatalogSnapshot, previous: Index | None) -> Index:
        """Index a snapshot."""
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


class Ledger(Protocol):
    """What a database keeps of the journal. It may be used from several threads; each method may raise StoreError."""

    def append(self, batch: Batch) -> int:
        """Write a batch and fold it into usage, all of it or nothing.

        Says how many entries of its writer had been stored and are gone: their file was deleted, or a backup put back.
        """
        ...

    def usage(self) -> dict[ToolId, Usage]:
        """How all tools that were ever called have done so far."""
        ...

    def usage_count(self, tool: ToolId, days: int) -> int:
        """Calls of one tool in the last days, today included."""
        ...

    def stored(self, writer: str) -> int:
        """How many entries of a writer were stored or counted as dropped."""
        ...

    def count_lost(self, writer: str, entries: int) -> None:
        """Remember that a writer ended before it could write so many entries, and that it is gone."""
        ...

    def report(self, *, days: int, limit: int) -> Report:
        """The last days, summed up, with so many tools in each list."""
        ...

    def calls(self, query: CallQuery) -> list[RecordedCall]:
        """Single calls that a query asks for, the newest first."""
        ...

    def check(self) -> None:
        """Return when the database is sound; this may read all of it."""
        ...

    def prune(self, *, keep_days: int) -> int:
        """Drop entries older than so many days, and fold old days of usage into one; says how many were dropped."""
        ...


class TierRecords(Protocol):
    """What a database keeps of the catalog: servers, tools with their standing, and categories.

    It may be used from several threads; each method may raise StoreError.
    """

    def standings(self) -> dict[ToolId, Standing]:
        """How the tools stood at the last update."""
        ...

    def keep_catalog(
        self,
        snapshot: CatalogSnapshot,
        packaging: Mapping[str, Packaging],
        standings: Mapping[ToolId, Standing] | None = None,
    ) -> None:
        """Write down servers and tools as they are now; those that are no longer there become inactive.

        With standings, each tool gets its own; without, each keeps the one that it has.
        """
        ...

    def categories(self) -> dict[str, Category]:
        """The categories that an operator wrote down, by name; shipped ones are not among them."""
        ...

    def keep_categories(self, categories: Iterable[Category], *, shipped: bool = False) -> None:
        """Write categories down.

        Shipped ones do not replace what an operator wrote, and take the place of all that were shipped before.
        """
        ...

    def drop_category(self, name: str) -> bool:
        """Forget what an operator wrote of a category; says whether there was something."""
        ...


class ChangeFeed(Protocol):
    """How processes that share a database tell each other what has changed. Each method may raise StoreError."""

    def announce(self, topic: str) -> None:
        """Tell all processes that something changed: `tiers`, `offerings` or `categories`."""
        ...

    def numbers(self) -> dict[str, int]:
        """How often each topic was announced so far."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait until something may have been announced, at most so long; blocks. Says whether something was."""
        ...

    def alone(self, job: str) -> AbstractContextManager[bool]:
        """While this is open, no other process is given True for the same job; False at once when one was."""
        ...

    def last_run(self, job: str) -> float:
        """When a job last ended well, in seconds since 1970; 0 when it never did."""
        ...

    def ran(self, job: str) -> None:
        """Remember that a job has ended well just now."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Store(Protocol):
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


class MeaningSource(Protocol):
    """The vectors of texts and questions, as far as they are known; never raises, and is silent when it cannot.

    A vector is a numpy array of float32 with length one; all of one source have the same size.
    """

    @property
    def name(self) -> str:
        """The model, and where it is."""
        ...

    @property
    def state(self) -> str:
        """How it is doing, for people."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether the embedder failed when it was last asked."""
        ...

    def recall(self, text: str) -> Any | None:
        """The vector of a text that was prepared; from memory only."""
        ...

    def start(self, texts: Iterable[str], on_ready: Callable[[], None] | None = None) -> None:
        """Prepare texts in the background; `on_ready` is called from there each time that more can be recalled."""
        ...

    def ask(self, text: str) -> Any | None:
        """The vector of a question; waits for it for a moment."""
        ...

    async def warm(self, text: str) -> Any | None:
        """The same for the event loop; a call of `ask` that follows does not wait."""
        ...

    def recall_question(self, text: str) -> Any | None:
        """The vector of a question that was asked before; from memory only."""
        ...

    def wake(self) -> None:
        """Let a model be loaded before the first question comes; does not wait."""
        ...

    def check(self, seconds: float = 10.0) -> str:
        """Ask the embedder now, wait a while for what is being prepared, and say the state; blocks."""
        ...

    def close(self) -> None:
        """Stop what runs in the background."""
        ...


class ScriptApi(Protocol):
    """What a script can reach: the servers and questions of one caller, and nothing else.

    Values are those of JSON. Both methods raise CallError, which the script can catch.
    """

    @property
    def servers(self) -> Sequence[str]:
        """The identifiers of the servers, which are the script's globals."""
        ...

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Call a tool by its identifiers and return what the script sees of its result."""
        ...

    async def ask(self, question: str, arguments: Any) -> Any:
        """Answer a question of the script's global `_gateway`: search, describe, read_result and so on."""
        ...


class ScriptEngine(Protocol):
    """Runs scripts of one language, each in a process of its own."""

    @property
    def language(self) -> str:
        """The language, for people: `Lua 5.4`."""
        ...

    async def run(self, script: Script, reach: ScriptApi) -> Ran:
        """Run a script to its end; when this is cancelled, the script and its calls are gone at once.

        Raises:
            ScriptError: it did not come to its end, with the line and the reason.
        """
        ...

    async def sandbox(self) -> Sandbox:
        """What holds scripts in here; starts what is needed to know it."""
        ...

    async def aclose(self) -> None:
        """Stop all scripts and processes."""
        ...


class ResultStore(Protocol):
    """Results that have no room in memory; it may be used from several threads. Each method may raise StoreError."""

    @property
    def is_shared(self) -> bool:
        """Whether other replicas read it too: then a caller may ask any of them for any result."""
        ...

    def save(self, kept: Kept, *, room: int, now: float) -> None:
        """Write a result down, whole; expired ones go, then the oldest until all take at most so many bytes."""
        ...

    def load(self, id: str) -> Kept | None:
        """The result of a handle, of which nothing is read yet but where its parts begin."""
        ...

    def sweep(self, now: float) -> None:
        """Drop what has expired by then."""
        ...


class ShapeStore(Protocol):
    """Shapes that were learned, each under the fingerprint of its tool's definition; may raise StoreError."""

    def shapes(self) -> dict[ToolId, Learned]:
        """All that is known."""
        ...

    def save_shapes(self, learned: Mapping[ToolId, Learned]) -> None:
        """Write shapes down in the place of older ones."""
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


__all__: Sequence[str] = [
    "ChangeFeed",
    "Embedder",
    "Index",
    "IndexBuilder",
    "Journal",
    "Ledger",
    "MeaningSource",
    "OnChange",
    "OnNotice",
    "Policy",
    "Provider",
    "ResultStore",
    "ScriptApi",
    "ScriptEngine",
    "ShapeStore",
    "Store",
    "TierRecords",
    "TokenCounter",
]
