"""Public fakes, for our tests and for the tests of those who build on Portico: no network, no processes, no mocks.

application = furnish({"github": [definition("create_issue", "Create an issue", title="string")]})
application.provider("github").returns("create_issue", {"content": []})
result = await application.gateway.call(AGENT, Call(tool="github.create_issue", arguments={"title": "x"}))
assert application.provider("github").calls == [("create_issue", {"title": "x"})]
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from typing import Any, cast
from zlib import crc32

import anyio

from portico.admin import Admin
from portico.catalog.snapshot import CatalogSnapshot
from portico.config.settings import CatalogSettings, GatewaySettings, StorageSettings
from portico.domain.call import Caller, Invocation, OnProgress
from portico.domain.search_answers import Findings, Hit
from portico.domain.server import Health, Offering, ServerSpec, State
from portico.domain.tool import Tool, ToolId
from portico.errors import CallError, EmbedderAway
from portico.gateway import Gateway
from portico.protocols import Index
from portico.storage.memory import MemoryJournal
from portico.wiring import NO_HOME, Parts, assemble

AGENT = Caller(name="agent", surface="test")


def definition(name: str, description: str = "", /, **parameters: str | Mapping[str, Any]) -> dict[str, Any]:
    """A tool definition; each parameter is a type name or a schema, and a `?` after a type makes it optional."""
    schemas = {key: {"type": kind.rstrip("?")} if isinstance(kind, str) else kind for key, kind in parameters.items()}
    required = [key for key, kind in parameters.items() if not (isinstance(kind, str) and kind.endswith("?"))]
    schema = {"type": "object", "properties": schemas, "required": required, "additionalProperties": False}
    return {"name": name, "description": description, "inputSchema": schema}


def tool(raw: Mapping[str, Any], *, server: str = "fake") -> Tool:
    """A definition as the tool that the catalog makes of it."""
    snapshot = make_test_app({server: [raw]}).gateway.snapshot
    return snapshot.tools[ToolId(server, raw["name"])]


@dataclass(slots=True, kw_only=True)
class FakeProvider:
    """A provider that does as it is told, and counts."""

    server: str = "fake"
    source: str = "upstream"
    fingerprint: str = "1"
    state: State = State.READY
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Every call that came through, in order."""
    offered: int = 0
    """How often it was asked for its definitions."""
    on_change: Callable[[str], None] = lambda server: None
    _results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _failure: CallError | None = None
    _gate: anyio.Event | None = None
    _arrived: anyio.Event | None = None

    def offers(self, *definitions: Mapping[str, Any]) -> None:
        """Offer these definitions from now on, and say that something changed."""
        self.tools = list(definitions)
        self.on_change(self.server)

    def returns(self, name: str, result: Mapping[str, Any]) -> None:
        """Answer calls of one tool with this result."""
        self._results[name] = result

    def fails(self, error: CallError | None) -> None:
        """Raise this error on every call and every offer; None ends it."""
        self._failure = error

    def hold(self) -> None:
        """Let calls and offers arrive, but not return, until `release`."""
        self._gate, self._arrived = anyio.Event(), anyio.Event()

    def release(self) -> None:
        """Let go of what is held."""
        if self._gate is not None:
            self._gate.set()
        self._gate = None

    async def arrived(self) -> None:
        """Wait until something is held."""
        assert self._arrived is not None, "hold() comes first"
        await self._arrived.wait()

    def health(self) -> Health:
        """As it was set."""
        return Health(state=self.state)

    async def offer(self) -> Offering:
        """What is offered at this moment, even if it is held and something else is offered meanwhile."""
        self.offered += 1
        offering = Offering(server=self.server, tools=tuple(self.tools))
        await self._pass()
        return offering

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
        """What was told to `returns`, or a text that repeats the call."""
        self.calls.append((name, arguments))
        await self._pass()
        return self._results.get(name, {"content": [{"type": "text", "text": f"{name} was called"}]})

    async def request(
        self, method: str, params: Mapping[str, Any], *, caller: Caller | None = None
    ) -> Mapping[str, Any]:
        """The request itself, so that a test can see what was passed on."""
        await self._pass()
        return {"method": method, "params": dict(params)}

    async def aclose(self) -> None:
        """Nothing was started."""

    async def _pass(self) -> None:
        if self._gate is not None and self._arrived is not None:
            self._arrived.set()
            await self._gate.wait()
        if self._failure is not None:
            raise self._failure


@dataclass(slots=True)
class FakeIndex:
    """An index that finds what it is told, within what it is asked within; give it to `make_test_app` as `index`."""

    scores: Mapping[str, float] = field(default_factory=dict)
    """The tools that it finds, by handle."""
    fits: bool = True
    asked: list[Set[ToolId]] = field(default_factory=list)
    """The sets that it was asked within, in order."""
    _tools: Mapping[ToolId, Tool] = field(default_factory=dict)

    def __call__(self, snapshot: CatalogSnapshot, previous: Index | None) -> FakeIndex:
        """Itself, for each snapshot."""
        self._tools = snapshot.tools
        return self

    def query(self, text: str, *, within: Set[ToolId], limit: int) -> Findings:
        """The tools that were told, best first; the score has one part, `told`."""
        self.asked.append(within)
        found = [(self.scores[t.handle], t) for t in self._tools.values() if t.id in within and t.handle in self.scores]
        found.sort(key=lambda row: (-row[0], row[1].handle))
        hits = tuple(Hit(tool=tool, score=score, why={"told": score}) for score, tool in found[:limit])
        return Findings(hits=hits, fits=self.fits and bool(hits))


@dataclass(slots=True)
class FakeEmbedder:
    """An embedder without a model: texts are close when they share words; it counts what it is asked."""

    name: str = "fake"
    dimensions: int = 64
    asked: list[str] = field(default_factory=list)
    """Every text that it has embedded, in order."""
    _failure: EmbedderAway | None = None

    def fails(self, error: EmbedderAway | None) -> None:
        """Raise this error from now on; None ends it."""
        self._failure = error

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """One vector for each text."""
        if self._failure is not None:
            raise self._failure
        self.asked += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        numbers = [0.0] * self.dimensions
        for word in text.casefold().split() or [""]:
            mark = crc32(word.encode())
            numbers[mark % self.dimensions] += 1.0
            numbers[mark // self.dimensions % self.dimensions] += 1.0
        return numbers


@dataclass(frozen=True, slots=True)
class FakeApplication:
    """An application over fake providers, with everything that a test looks at."""

    gateway: Gateway
    admin: Admin

    @property
    def invocations(self) -> list[Invocation]:
        """What the journal holds."""
        return list(cast(MemoryJournal, self.admin.storage.journal).recent)

    def provider(self, server: str = "fake") -> FakeProvider:
        """The fake behind one server."""
        return cast(FakeProvider, self.admin.providers[server])

    async def edition(self, number: int) -> CatalogSnapshot:
        """The former name of `snapshot`."""
        return await self.snapshot(number)

    async def snapshot(self, number: int) -> CatalogSnapshot:
        """Wait for the snapshot with this number, or a later one."""
        while self.gateway.snapshot.number < number:
            published = anyio.Event()
            self.gateway.publisher.subscribe(lambda _, event=published: event.set())  # type: ignore[misc]
            await published.wait()
        return self.gateway.snapshot


def parts_of(**given: Any) -> Parts:
    """What an application is made of: the fields of `portico.wiring.Parts`, and settings by their own names."""
    own = {part.name for part in fields(Parts)} & given.keys()
    settings = {name: value for name, value in given.items() if name not in own}
    catalog = {name: settings.pop(name) for name in ("pins", "categories", "examples") if name in settings}
    catalog |= {"categories": settings.pop("explicit_categories")} if "explicit_categories" in settings else {}
    storage = {"results": settings.pop("result_limits")} if "result_limits" in settings else {}
    return Parts(
        settings=GatewaySettings(
            home=NO_HOME, catalog=CatalogSettings(**catalog), storage=StorageSettings(**storage), **settings
        ),
        **{name: given[name] for name in own},
    )


def make_test_app(
    servers: Mapping[str, Iterable[Mapping[str, Any]]], *, specs: Sequence[ServerSpec] = (), **parts: Any
) -> FakeApplication:
    """An application that already knows what these servers offer; `parts` are those of `parts_of`."""
    providers = {name: FakeProvider(server=name, tools=list(tools)) for name, tools in servers.items()}
    application = assemble(parts_of(providers={**providers}, servers=tuple(specs), **parts))
    application.gateway.publisher.accept(
        (Offering(server=name, tools=tuple(fake.tools)), "upstream") for name, fake in providers.items()
    )
    for fake in providers.values():
        fake.on_change = application.admin.refresher.changed
    return FakeApplication(application.gateway, application.admin)


@asynccontextmanager
async def fake_application(
    servers: Mapping[str, Iterable[Mapping[str, Any]]] | None = None, **parts: Any
) -> AsyncIterator[FakeApplication]:
    """A test application that also follows the changes of its providers, until the end of the block."""
    found = make_test_app(servers if servers is not None else {"fake": []}, **parts)
    async with anyio.create_task_group() as tasks:
        found.admin.refresher.watch(tasks)
        yield found
        tasks.cancel_scope.cancel()


FakeHouse, furnish, fake_house = FakeApplication, make_test_app, fake_application
"""Their former names."""
