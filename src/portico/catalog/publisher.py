"""The current catalog: servers are asked for what they offer, and snapshots are indexed before they are published."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from time import perf_counter
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup

from portico.domain.journal_entries import FleetEvent, OnEvent
from portico.domain.server import Asked, Offering, Server, pause_after
from portico.domain.tool import CODE, ToolId
from portico.errors import CallError, StoreError, UnknownServer
from portico.protocols import DefinitionStore, Index, Provider

from .categories_and_order import CategoryRule
from .naming import META_TOOLS, Apart, Handles, imitations, name_servers, prefixed, tell_apart
from .prompts_and_resources import Items, collect
from .sections import NO_OVERRIDES, Accepted, SectionInputs, ServerSection, ToolOverrides, accept_offering, write
from .snapshot import EMPTY, CatalogSnapshot, bind


class IndexBuilder(Protocol):
    """Makes the index of a snapshot; it may reuse what the last snapshot's index already knows."""

    def __call__(self, snapshot: CatalogSnapshot, previous: Index | None) -> Index:
        """Index a snapshot."""
        ...


REGISTRY = "database"  # the source of registered tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Which code tools give way, and what all tools of a snapshot would like to be listed as then."""

    taken: Mapping[ToolId, ToolId] = field(default_factory=dict)
    """Code tools, each with the registered tool that takes its place."""
    wishes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def without(self, server: str) -> frozenset[str]:
        """The tools of a server that are not offered."""
        return frozenset(id.name for id in self.taken if id.server == server)

    def instead(self, server: str) -> dict[str, str]:
        """The tools of a server that stand in another's place, each with whose."""
        return {by.name: f"{id.server}.{id.name}" for id, by in self.taken.items() if by.server == server}


def settle_overrides(accepted: Mapping[str, Accepted], overriding: Collection[str]) -> Overrides:
    """Settle who is listed under a name that code and a registry share.

    Where a registry may not override, the code tool keeps the name and the registered one is listed with its server.
    """
    registries = [name for name, own in accepted.items() if own.source == REGISTRY]
    if not registries:
        return Overrides(wishes={name: own.wishes for name, own in accepted.items()})
    code: dict[str, list[ToolId]] = {}
    for server, own in accepted.items():
        for name, wish in own.wishes.items() if own.source in CODE else ():
            code.setdefault(wish, []).append(ToolId(server, name))
    taken = {
        id: ToolId(server, name)
        for server in reversed(registries)  # of several the first in order wins
        if server in overriding
        for name, wish in accepted[server].wishes.items()
        for id in code.get(wish, ())
    }
    kept = {wish for wish, ids in code.items() if ids[0] not in taken}
    return Overrides(taken=taken, wishes={name: _wishes(name, own, taken, kept) for name, own in accepted.items()})


def _wishes(server: str, own: Accepted, taken: Mapping[ToolId, ToolId], kept: Collection[str]) -> Mapping[str, str]:
    """The same object where nothing is contested."""
    if own.source == REGISTRY:
        contested = {name: prefixed(server, name) for name, wish in own.wishes.items() if wish in kept}
        return {**own.wishes, **contested} if contested else own.wishes
    gone = {id.name for id in taken if id.server == server}
    return {name: wish for name, wish in own.wishes.items() if name not in gone} if gone else own.wishes


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredTerms:
    """What the config says of servers and tools; replaced whole when the config is read again."""

    rule: CategoryRule
    aliases: Mapping[str, str]
    descriptions: Mapping[str, str]
    examples: Mapping[str, str]
    tool_overrides: ToolOverrides


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Published:
    """A snapshot and its index, which always agree."""

    snapshot: CatalogSnapshot
    index: Index


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Holds the current snapshot and replaces it whole; readers keep the one they took."""

    build_index: IndexBuilder
    rule: CategoryRule = field(default_factory=CategoryRule)
    aliases: dict[str, str] = field(default_factory=dict)
    """Configured servers and their aliases; a server keeps its spelling while it offers nothing."""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    """What the config says of servers, which counts more than what they say of themselves."""
    examples: Mapping[str, str] = field(default_factory=dict)  # example prompts that the config gives, by handle
    overriding: set[str] = field(default_factory=set)
    """Databases whose registered tools take the place of code tools of the same name."""
    tool_overrides: ToolOverrides = NO_OVERRIDES  # what the config changes of single tools
    on_event: OnEvent = lambda event: None  # hears of definitions that are refused, or change under an override
    current: Published = field(init=False)  # the newest snapshot with its index
    _overridden: Mapping[ToolId, ToolId] = field(default_factory=dict)
    _accepted: dict[str, Accepted] = field(default_factory=dict)
    _terms: dict[str, SectionInputs] = field(default_factory=dict)  # those of the current snapshot's sections
    _shelves: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _apart: Apart = field(default_factory=Apart)
    _listeners: list[Callable[[CatalogSnapshot], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.current = Published(snapshot=EMPTY, index=self.build_index(EMPTY, None))

    def accept(
        self, offerings: Iterable[tuple[Offering, str]], build_index: IndexBuilder | None = None
    ) -> CatalogSnapshot:
        """Take in whole offerings, each with its provider's source, and publish one snapshot for all of them."""
        changed = False
        for offering, source in offerings:
            known = self._accepted.get(offering.server)
            offering = self.stamp(offering)
            if known is None or known.offering != offering:
                accepted = accept_offering(offering, source, known, self.tool_overrides)
                self._tell_of(accepted, known)
                self._accepted[offering.server] = accepted
                self.aliases.setdefault(offering.server, "")
                changed = True
        return self._publish(build_index) if changed else self.current.snapshot

    def stamp(self, offering: Offering) -> Offering:
        """The offering with what its server's overrides met first, so that a later change can be told."""
        known = self._accepted.get(offering.server)
        return self.tool_overrides.stamp(offering, known.offering if known else None)

    def asked(self, server: str) -> Asked:
        """When a server said what is published of it."""
        known = self._accepted.get(server)
        return known.offering.asked if known else Asked()

    def withdraw(self, server: str) -> CatalogSnapshot:
        """Publish a snapshot without a server."""
        self.aliases.pop(server, None)
        return self._publish() if self._accepted.pop(server, None) else self.current.snapshot

    def configure(self, terms: ConfiguredTerms, without: Iterable[str] = ()) -> CatalogSnapshot:
        """Publish one snapshot in which the config says this, and from which some servers are gone."""
        for server in without:
            self._accepted.pop(server, None)
        others = {name: alias for name, alias in self.aliases.items() if name in self._accepted}
        self.aliases = {**terms.aliases, **{name: others[name] for name in others if name not in terms.aliases}}
        self.descriptions, self.examples = terms.descriptions, terms.examples
        before, self.tool_overrides = self.tool_overrides, terms.tool_overrides
        for server, known in self._accepted.items():
            if before.servers.get(server) != terms.tool_overrides.servers.get(server):
                self._accepted[server] = self._override(known)
        if terms.rule != self.rule:
            self.rule, self._terms = terms.rule, {}  # every section is written again
        return self._publish()

    def _override(self, known: Accepted) -> Accepted:
        """The same offering under the overrides of now."""
        accepted = accept_offering(self.stamp(known.offering), known.source, known, self.tool_overrides)
        self._tell_of(accepted, known)
        return accepted

    def _tell_of(self, accepted: Accepted, known: Accepted | None) -> None:
        """Say what is wrong or new with one server's definitions, to the log and to the record of events."""
        _tell_of_overrides(accepted, known)
        for event in _events_of(accepted, known):
            self.on_event(event)

    def shelve(self, id: ToolId, category: str) -> CatalogSnapshot:
        """Put one tool on a shelf whatever the rule says, at once or when it comes."""
        self._shelves[id.server] = {**self._shelves.get(id.server, {}), id.name: category}
        same = self.current.snapshot.tools.get(id)
        return self._publish() if same and same.category != category else self.current.snapshot

    def subscribe(self, listener: Callable[[CatalogSnapshot], None]) -> None:
        """Call a listener with each new snapshot."""
        self._listeners.append(listener)

    def _publish(self, build_index: IndexBuilder | None = None) -> CatalogSnapshot:
        terms = self._settle()
        sections = self._write(terms)
        snapshot = bind(self.current.snapshot.number + 1, sections, self._items(sections), self._ages())
        index = (build_index or self.build_index)(snapshot, self.current.index)
        self.current, self._terms = Published(snapshot=snapshot, index=index), terms
        for listener in self._listeners:
            listener(snapshot)
        return snapshot

    def _settle(self) -> dict[str, SectionInputs]:
        """What each section follows from; only here does one server's offering matter to another's."""
        accepted = dict(sorted(self._accepted.items()))
        identifiers = name_servers(self.aliases)
        overrides = settle_overrides(accepted, self.overriding)
        self._tell(overrides)
        imitating = self._imitations(accepted, identifiers)
        wishes = self._apart.of(overrides.wishes, identifiers)
        told_apart = tell_apart(
            wishes,
            Handles({identifiers[name]: a.names for name, a in accepted.items()}),
        )
        return {
            name: SectionInputs(
                accepted=a,
                identifier=identifiers[name],
                description=self.descriptions.get(name, ""),
                wishes={} if wishes[name] is a.wishes else wishes[name],
                told_apart=told_apart.get(name, {}),
                shelves=self._shelves.get(name, {}),
                examples=self.examples,
                without=overrides.without(name),
                instead=overrides.instead(name),
                imitations=imitating.get(name, {}),
            )
            for name, a in accepted.items()
        }

    def _imitations(
        self, accepted: Mapping[str, Accepted], identifiers: Mapping[str, str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Tools whose names look like others'; names in plain letters are not even compared."""
        if not any(a.is_strange for a in accepted.values()):
            return {}
        known = [*identifiers, *identifiers.values(), *META_TOOLS]
        shown = {name: [own.name for own in a.definitions.values()] for name, a in accepted.items()}
        return imitations(shown, known)

    def _tell(self, overrides: Overrides) -> None:
        """Say which tools have given way since the last snapshot."""
        for id, by in overrides.taken.items():
            if self._overridden.get(id) != by:
                logger.warning("%s from the registry takes the place of the code tool %s", by, id)
        self._overridden = overrides.taken

    def _write(self, terms: Mapping[str, SectionInputs]) -> dict[str, ServerSection]:
        """The sections, in a fixed order; one whose terms are the same is not written again."""
        before = self.current.snapshot.sections
        return {
            name: before[name] if own == self._terms.get(name) else write(own, self.rule, before.get(name))
            for name, own in terms.items()
        }

    def _ages(self) -> Mapping[str, int]:
        """How many servers were there before each one: those of the config in its order, then others as they came."""
        return {name: number for number, name in enumerate(dict.fromkeys((*self.aliases, *self._accepted)))}

    def _items(self, sections: Mapping[str, ServerSection]) -> Items:
        """Prompts and resources, gathered again only when one of their servers has changed."""
        now, before = _givers(sections), _givers(self.current.snapshot.sections)
        identifiers = name_servers(self.aliases)
        known = self.current.snapshot.items
        return known if now == before and identifiers == known.identifiers else collect(now, identifiers)


def _tell_of_overrides(accepted: Accepted, known: Accepted | None) -> None:
    """Say once what cannot hold of a server's overrides, and which of their tools the server has just changed."""
    told = {(each.where, each.problem) for each in known.overrides.problems} if known else set()
    for problem in accepted.overrides.problems:
        if (problem.where, problem.problem) not in told:
            logger.warning("override: %s", problem)
    for name in _changed(accepted, known):
        logger.warning(
            "%s has changed the definition of %s, which has an override; see: portico doctor %s",
            *(accepted.offering.server, name, accepted.offering.server),
        )


def _changed(accepted: Accepted, known: Accepted | None) -> list[str]:
    """The overridden tools whose definitions the server has just changed."""
    before = known.originals if known else {}
    names = [name for name in accepted.overrides.changed if name in before]
    return [name for name in names if before[name].given != accepted.originals[name].given]


def _events_of(accepted: Accepted, known: Accepted | None) -> Iterator[FleetEvent]:
    """What operators are told of one server's definitions, each thing once."""
    server, told = accepted.offering.server, set(known.rejected if known else ())
    refused = [refusal for refusal in accepted.rejected if refusal not in told]
    if refused:
        text = "; ".join(f"{refusal.name}: {refusal.reason}" for refusal in refused)
        yield FleetEvent(kind="refused", server=server, text=f"{len(refused)} left out of its definitions: {text}")
    if changed := _changed(accepted, known):
        text = f"it defines otherwise what has an override: {', '.join(changed)}"
        yield FleetEvent(kind="definition_changed", server=server, text=text)


def _givers(sections: Mapping[str, ServerSection]) -> list[Server]:
    """The servers that offer something beside tools, be it what they say of themselves."""
    servers = (section.server for section in sections.values())
    return [own for own in servers if own.prompts or own.resources or own.templates or own.instructions]


PARALLEL_OFFERS = 8
"""Servers asked at the same time: a cold start of a hundred must not start a hundred processes at once."""
TURN_SECONDS = 1.0
"""A server that has not answered in this time lets the next one begin: those that hang must not hold up all others."""

REST, LONGEST_REST = 4.0, 1.0
"""How many times as long as a snapshot took, and how many seconds at most, the next one is put off."""
FAILURE_SECONDS = 600.0  # for so long a failure is remembered, so that a broken server does not hold up every command
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
"""Seconds between two questions to a server that could not be asked; the pause doubles."""


@dataclass(slots=True, kw_only=True)
class Refresher:
    """Asks providers for their offerings, remembers them and publishes snapshots.

    It owns one task group, given by whoever runs it; without one, everything happens when it is asked for.
    """

    providers: dict[str, Provider]
    publisher: Publisher
    store: DefinitionStore
    failures: dict[str, str] = field(default_factory=dict)
    """Why each server's last offering could not be had; gone when one succeeds."""
    unknown: frozenset[str] = frozenset()  # servers that the store did not know when it was read
    _tasks: TaskGroup | None = None
    pending: dict[str, anyio.Event] = field(default_factory=dict)
    """Servers that are being asked in the background; a plain field, since every request looks at it."""
    _again: set[str] = field(default_factory=set)
    _tries: dict[str, int] = field(default_factory=dict)
    _answers: dict[str, int] = field(default_factory=dict)  # how often each server has been asked with success
    _unsaved: dict[str, Offering] = field(default_factory=dict)
    """Answers that the store does not have yet: what it has of these servers is older."""
    _answered: list[tuple[Offering, Provider]] = field(default_factory=list)  # answers that the next snapshot will have
    _next: float = 0.0  # when that may be made
    _moved: float = 0.0  # when a first question was last begun or ended
    _slots: asyncio.Semaphore | None = None

    def load(self, build_index: IndexBuilder | None = None) -> None:
        """Publish what the store remembers, and note which servers it does not know; starts nothing.

        `build_index` may use the store, as this does.
        """
        marks = {name: provider.fingerprint for name, provider in self.providers.items()}
        try:
            known, failed = self._remembered(marks)
            self.failures.update(failed)
        except StoreError as error:
            logger.warning("nothing is remembered, definitions are fetched again: %s", error)
            known = {}
        offered = ((offering, self.providers[name].source) for name, offering in known.items())
        self.publisher.accept(offered, build_index)
        self.unknown = frozenset(self.providers.keys() - known.keys())

    async def reload(self) -> CatalogSnapshot:
        """Publish what other processes have fetched since: what the store remembers under today's fingerprints.

        No server is started. An answer that was given here, and that the store did not have yet, is newer and stays.

        Raises:
            StoreError: the store cannot be read.
        """
        marks = {name: provider.fingerprint for name, provider in self.providers.items()}
        answers, unsaved = dict(self._answers), {*self._unsaved}
        known, failed = await anyio.to_thread.run_sync(self._remembered, marks)
        own = unsaved | self._unsaved.keys() | {name for name in known if self._answers.get(name) != answers.get(name)}
        older = {name: offering for name, offering in known.items() if name not in own}
        for name in older.keys() - failed.keys():
            self.failures.pop(name, None)
        now = {name: provider for name, provider in self.providers.items() if provider.fingerprint == marks.get(name)}
        return self.publisher.accept((older[name], now[name].source) for name in older if name in now)

    def forget(self, servers: Iterable[str]) -> None:
        """Forget what is on its way from providers of these servers: they have been replaced, or are gone."""
        for server in servers:
            self.failures.pop(server, None)
            self._tries.pop(server, None)
            self._unsaved.pop(server, None)

    def watch(self, tasks: TaskGroup) -> None:
        """From now on refresh in this task group whenever a provider says that something changed."""
        self._tasks = tasks

    def changed(self, server: str) -> None:
        """A provider's definitions have changed: ask it again, in the background."""
        if self._tasks is not None and server in self.providers:
            if server in self.pending:
                self._again.add(server)  # what is being fetched may be the list from before the change
            else:
                self.begin(server)

    def begin(self, server: str) -> None:
        """Start asking a server in the background; a server that is being asked already is not asked twice."""
        if self._tasks is None:
            raise RuntimeError("watch() comes first")
        if server not in self.pending:
            self.pending[server] = anyio.Event()
            self._note_move(server)
            self._tasks.start_soon(self._ask_in_background, server)

    @property
    def answers(self) -> int:
        """How often servers have been asked here with success; what was taken from the store is not counted."""
        return sum(self._answers.values())

    @property
    def is_starting(self) -> bool:
        """Whether some server is being asked for the first time."""
        return any(self._is_awaited(name) for name in self.pending)

    async def wait_until_ready(self, seconds: float, *, quiet: float = inf) -> set[str]:
        """Wait until no server is being asked for the first time, at most so long; returns those that still are.

        Once anything is known, it is not waited for longer than `quiet` seconds after the last that answered: one that
        hangs holds up nobody.
        """
        with anyio.move_on_after(seconds):
            while waiting := [event for name, event in self.pending.items() if self._is_awaited(name)]:
                left = self._moved + quiet - perf_counter() if self.publisher.current.snapshot.servers else inf
                if left <= 0:
                    break
                with anyio.move_on_after(left):
                    await waiting[0].wait()
        return self.starting()

    def _note_move(self, server: str) -> None:
        if self._is_awaited(server):
            self._moved = perf_counter()

    def starting(self) -> set[str]:
        """The servers that are being asked for the first time."""
        return {name for name in self.pending if self._is_awaited(name)}

    async def refresh(self, server: str) -> CatalogSnapshot:
        """Ask one server now and publish what it says.

        Raises:
            UnknownServer: no such server is configured.
            CallError: the server could not be asked; what was known of it stays.
        """
        if server not in self.providers:
            known = ", ".join(sorted(self.providers)) or "none"
            raise UnknownServer(f"no server is called {server!r}; configured: {known}")
        provider, offering = await self._ask(server)
        snapshot = await self._publish(offering, provider)
        await self._in_background(self._save, server)
        return snapshot

    async def _publish(self, offering: Offering, provider: Provider) -> CatalogSnapshot:
        """Publish an answer, together with those that come while the last snapshot's cost is being made up for.

        So a thousand servers that answer one after the other cost a few snapshots of all of them, and a lone one waits
        for nobody.
        """
        self._answered.append((offering, provider))
        with anyio.CancelScope(shield=True):
            await anyio.sleep(max(self._next - perf_counter(), 0.0))
        if self._answered:
            answered, self._answered = self._answered, []
            began = perf_counter()
            self.publisher.accept((own, by.source) for own, by in answered if self._is_current(own.server, by))
            ended = perf_counter()
            self._next = ended + min(REST * (ended - began), LONGEST_REST)
        return self.publisher.current.snapshot

    async def refresh_all(
        self, servers: Set[str], on_done: Callable[[str, CallError | None], None] | None = None
    ) -> None:
        """Ask many servers, a few at a time; each failure is kept and told, and stops nobody else."""
        async with anyio.create_task_group() as tasks:
            for server in sorted(servers):
                tasks.start_soon(self._refresh_and_tell, server, on_done)

    async def _refresh_and_tell(self, server: str, on_done: Callable[[str, CallError | None], None] | None) -> None:
        failure: CallError | None = None
        try:
            await self.refresh(server)
        except CallError as error:
            failure = error
        if on_done is not None:
            on_done(server, failure)

    async def _ask_in_background(self, server: str) -> None:
        try:
            await self.refresh(server)
            self._tries.pop(server, None)
        except CallError as error:
            logger.warning("%s", error)
        except UnknownServer:
            logger.debug("%r is not asked: the config has it no more", server)
        finally:
            self.pending.pop(server).set()
        if server not in self.providers:
            self._again.discard(server)
        elif server in self._again:
            self._again.discard(server)
            self.begin(server)
        elif not self._is_known(server):
            await self._ask_later(server)

    async def _ask_later(self, server: str) -> None:
        """Ask a server that nothing is known of once more, after a pause that grows; it may have come back by then."""
        tries = self._tries[server] = self._tries.get(server, 0) + 1
        await anyio.sleep(pause_after(tries, FIRST_PAUSE, LONGEST_PAUSE))
        if server in self.providers and not self._is_known(server):
            self.begin(server)

    async def _ask(self, server: str) -> tuple[Provider, Offering]:
        """The answer of a server, and the provider that gave it; one that is no longer its provider fails silently."""
        async with self._turn():
            self._note_move(server)
            provider = self.providers.get(server)
            if provider is None:
                raise UnknownServer(f"no server is called {server!r} any more")
            try:
                offering = self.publisher.stamp(await provider.offer())
            except CallError as error:
                if not self._is_current(server, provider):
                    raise UnknownServer(f"{server!r} was changed while it was asked") from error
                self.failures[server] = "; ".join(error.public_details) or str(error)
                await self._in_background(self._save_failure, server)
                raise
        if not self._is_current(server, provider):
            raise UnknownServer(f"{server!r} was changed while it was asked")
        self._note_move(server)
        self.failures.pop(server, None)
        self._answers[server] = self._answers.get(server, 0) + 1
        self._unsaved[server] = offering
        return provider, offering

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of few turns to be asked, until the end or for a second: what then still waits costs hardly anything."""
        slots = self._slots = self._slots or asyncio.Semaphore(PARALLEL_OFFERS)
        await slots.acquire()
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                slots.release()

        timer = asyncio.get_running_loop().call_later(TURN_SECONDS, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    async def save_rest(self) -> None:
        """Let the store have what it could not be given when it came.

        Raises:
            StoreError: it still cannot.
        """
        for server, offering in list(self._unsaved.items()):
            await self._keep(server, offering)

    async def _in_background(self, work: Callable[[str], Coroutine[Any, Any, None]], server: str) -> None:
        """Nobody waits for the store where somebody runs our tasks; a command waits, because it ends afterwards."""
        if self._tasks is not None:
            self._tasks.start_soon(work, server)
        else:
            await work(server)

    async def _save(self, server: str) -> None:
        offering = self._unsaved.get(server)
        try:
            if offering is not None:
                await self._keep(server, offering)
        except StoreError as error:
            logger.warning("definitions of %r are not remembered: %s", server, error)

    async def _keep(self, server: str, offering: Offering) -> None:
        """In a thread: another process may hold the store for seconds."""
        provider = self.providers.get(server)
        if provider is None:
            return  # the config has it no more
        await anyio.to_thread.run_sync(self.store.save, offering, provider.fingerprint, abandon_on_cancel=True)
        if self._unsaved.get(server) is offering:
            del self._unsaved[server]

    async def _save_failure(self, server: str) -> None:
        provider, reason = self.providers.get(server), self.failures.get(server, "")
        if provider is None or not reason:
            return
        mark = provider.fingerprint
        with suppress(StoreError):  # what cannot be remembered is only asked once more
            await anyio.to_thread.run_sync(self.store.save_failure, server, mark, reason, abandon_on_cancel=True)

    def _remembered(self, marks: Mapping[str, str]) -> tuple[dict[str, Offering], dict[str, str]]:
        return self.store.load(marks), self.store.failures(marks, within=FAILURE_SECONDS)

    def _is_current(self, server: str, provider: Provider) -> bool:
        return self.providers.get(server) is provider

    def _is_awaited(self, server: str) -> bool:
        """Whether nothing is known of a server yet, not even that it fails."""
        return not self._is_known(server) and server not in self.failures

    def _is_known(self, server: str) -> bool:
        return server in self.publisher.current.snapshot.servers
