"""The one place that knows every concrete class: builds the application and closes it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import anyio
from anyio.abc import TaskGroup

from portico.admin import Admin
from portico.application import Application
from portico.catalog.categories import CategoryRule, Standings
from portico.catalog.policies import GlobPolicy, ProfilePolicy, UserPolicy
from portico.catalog.publisher import Publisher
from portico.catalog.refresher import Refresher
from portico.config import GatewaySettings, ScriptSettings, load_settings
from portico.domain.call import ResultLimits
from portico.domain.foreign_text import target_of
from portico.domain.profile import OPEN, Profile
from portico.domain.server import ServerSpec
from portico.domain.tool import ToolId
from portico.domain.version import VERSION
from portico.errors import ConfigError, StoreError, UnknownServer
from portico.execution.executor import Executor, FairLimiter
from portico.execution.hooks import Hooks, hooks_of, refuse_unfit
from portico.execution.learning import Shapes, TokenSampler
from portico.gateway import Gateway
from portico.protocols import (
    ChangeFeed,
    IndexBuilder,
    Journal,
    Ledger,
    MeaningSource,
    Policy,
    Provider,
    ResultStore,
    ScriptEngine,
    ShapeStore,
    Store,
    TierRecords,
    TokenCounter,
)
from portico.providers.mcp import UpstreamProvider
from portico.providers.mcp.stdio import packaging_of
from portico.providers.python.loading import import_file, import_name
from portico.providers.python.threads import FunctionLoop, Workers, prints_aside
from portico.rendering.budget import ListingCosts, TokenEstimate, counter_for
from portico.rendering.cache import AnswerCache
from portico.results.kept import Results
from portico.results.paging import ResultReader
from portico.results.truncate import Truncator
from portico.search.embeddings import open_meanings
from portico.search.embeddings.local import INSTALL, is_installed
from portico.search.index import build_index
from portico.search.items import ItemSearch
from portico.storage.catalog import DatabaseStore, DatabaseTiers
from portico.storage.database import Database, MemoryStore, RecentJournal
from portico.storage.journal import StoredJournal
from portico.storage.ledger import DatabaseLedger
from portico.storage.open import open_change_feed, open_database
from portico.storage.results import DatabaseResults, DatabaseShapes
from portico.tiers.tiers import TierAnswers

if TYPE_CHECKING:
    from portico.providers.local_sources import LocalSources
    from portico.providers.sql.registries import Registries
    from portico.scripting.session import ScriptRunner


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the store of the settings gives to an application."""

    store: Store
    journal: StoredJournal
    parts: Mapping[str, Any]
    closing: list[Callable[[], None]]


def open_stores(settings: GatewaySettings) -> Remembered:
    """Open the store of the settings; a server that is away is no reason to fail."""
    durable = settings.journal.mode == "durable"
    database = open_database(settings.store, settings.home.data, durable=durable, patient=True)
    store, ledger, signals = DatabaseStore(database), DatabaseLedger(database), open_change_feed(database)
    cache, counters = AnswerCache(), _counters(settings, database)
    journal = StoredJournal(
        ledger,
        folder=counters,
        durable=durable,
        buffer=settings.journal.buffer,
        wait_seconds=settings.journal.wait_s,
        caches=cache.counts,
    )
    parts = {
        "store": store,
        "journal": journal,
        "ledger": ledger,
        "records": DatabaseTiers(database),
        "signals": signals,
        # A database in memory has no more room than memory.
        "result_store": DatabaseResults(database) if counters is not None else None,
        "shape_store": DatabaseShapes(database),
        "cache": cache,
        "store_name": settings.store_shown,
        "journal_mode": settings.journal.mode,
        "keep_days": settings.journal.keep_days,
    }
    closing = [signals.close, journal.close, database.close]
    return Remembered(store=store, journal=journal, parts=parts, closing=closing)


def _counters(settings: GatewaySettings, database: Database) -> Path | None:
    """Where the counters of this database's writers lie; one in memory is gone with its only writer."""
    is_kept = database.dialect != "sqlite" or settings.store not in ("memory", "sqlite://", "sqlite:///:memory:")
    return settings.home.data / "journal" / f"{crc32(database.where.encode()):08x}" if is_kept else None


def recall(admin: Admin, shapes: Shapes) -> None:
    """Let tools stand, categories be called and results look as they were last written down."""
    try:
        if admin.records is not None:
            admin.standings.replace_tiers(admin.records.standings())
            admin.standings.replace_categories(admin.records.categories())
        shapes.recall()
    except StoreError as error:
        logger.warning("how tools stand is not remembered: %s", error)


CLOSE_SECONDS = 10.0
SCRIPTS_WAITING = 32


@dataclass(slots=True, kw_only=True)
class Parts:
    """What differs between applications; everything else is the same for all of them."""

    providers: dict[str, Provider] = field(default_factory=dict)
    specs: Mapping[str, ServerSpec] = field(default_factory=dict)
    store: Store = field(default_factory=MemoryStore)
    journal: Journal = field(default_factory=RecentJournal)
    ledger: Ledger | None = None
    records: TierRecords | None = None
    signals: ChangeFeed | None = None
    result_limits: ResultLimits = field(default_factory=ResultLimits)
    result_store: ResultStore | None = None
    """Where results go that have no room in memory."""
    shape_store: ShapeStore | None = None
    cache: AnswerCache = field(default_factory=AnswerCache)
    store_name: str = "memory"
    journal_mode: str = "memory"
    keep_days: int = 90
    counter: TokenCounter = field(default_factory=TokenEstimate)
    index: IndexBuilder | None = None
    """Another index than ours."""
    meanings: MeaningSource | None = None
    """What texts mean to an embedder; None without one."""
    explicit_categories: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    pins: tuple[str, ...] = ()
    profile: Profile = OPEN
    hooks: Hooks | None = None
    scripts: ScriptSettings = field(default_factory=ScriptSettings)
    targets: Mapping[str, str] = field(default_factory=dict)
    """What servers are that are no upstream ones: databases."""
    overriding: Collection[str] = ()
    """Databases whose tools take the place of code tools."""
    search_tokens: int = 800
    search_limit: int = 5


def assemble(parts: Parts) -> Application:
    """Put an application together; nothing is started, read or written."""
    specs = parts.specs
    publisher = _editions(parts)
    refresher = Refresher(providers=parts.providers, publisher=publisher, store=parts.store)
    globs = GlobPolicy({name: spec.tools for name, spec in specs.items()})
    policy = UserPolicy(ProfilePolicy(globs, parts.profile))
    truncator = Truncator(
        counter=parts.counter,
        results=Results(limits=parts.result_limits, store=parts.result_store),
        servers={name: spec.result_tokens for name, spec in specs.items()},
    )
    executor = Executor(
        provider_of=_lookup(parts.providers),
        policy=policy,
        journal=parts.journal,
        gauge=TokenSampler(parts.counter),
        hooks=parts.hooks or None,
        truncator=truncator,
        shapes=Shapes(parts.shape_store),
    )
    standings = Standings(packaging={name: packaging_of(spec) for name, spec in specs.items()})
    gateway = Gateway(
        publisher=publisher,
        refresher=refresher,
        policy=policy,
        executor=executor,
        item_search=ItemSearch(provider_of=executor.provider_of, profile=parts.profile),
        counter=parts.counter,
        reader=ResultReader(truncator),
        costs=ListingCosts(parts.counter),
        standings=standings,
        answers=parts.cache,
        meanings=parts.meanings,
        pins=parts.pins,
        search_tokens=parts.search_tokens,
        search_limit=parts.search_limit,
    )
    admin = _admin(parts, refresher, policy, standings)
    tier_answers = TierAnswers(gateway=gateway, standings=standings, cache=parts.cache)
    scripts = partial(_open_scripts, gateway, parts.scripts) if parts.scripts.enabled else None
    return Application(
        gateway=gateway, admin=admin, tier_answers=tier_answers, meanings=parts.meanings, open_scripts=scripts
    )


def _admin(parts: Parts, refresher: Refresher, policy: Policy, standings: Standings) -> Admin:
    specs = parts.specs
    return Admin(
        refresher=refresher,
        providers=parts.providers,
        counter=parts.counter,
        policy=policy,
        targets={**parts.targets, **{name: target_of(spec) for name, spec in specs.items()}},
        disabled=tuple(name for name, spec in specs.items() if not spec.enabled),
        pins=parts.pins,
        standings=standings,
        answers=parts.cache,
        journal=parts.journal,
        ledger=parts.ledger,
        records=parts.records,
        signals=parts.signals,
        store_name=parts.store_name,
        journal_mode=parts.journal_mode,
        keep_days=parts.keep_days,
    )


def _open_scripts(gateway: Gateway, asked: ScriptSettings) -> ScriptRunner:
    """What runs scripts; the engine is made by the first of them."""
    open_engine = partial(_open_engine, asked)
    # Loaded where scripts may come: a search must not pay for it.
    from portico.scripting.session import ScriptRunner

    scripts: ScriptRunner = ScriptRunner(
        gateway=gateway,
        open_engine=open_engine,
        limits=asked.limits,
        max_seconds=asked.max_seconds,
        turns=FairLimiter(asked.at_once, queue=SCRIPTS_WAITING),
    )
    return scripts


def _open_engine(asked: ScriptSettings) -> ScriptEngine:
    # Loaded with the first script: no other command must pay for it.
    from portico.scripting.engine import LuaEngine

    engine: ScriptEngine = LuaEngine(
        pool_size=asked.pool, at_once=asked.at_once, require_hardening=asked.require_hardening
    )
    return engine


def _editions(parts: Parts) -> Publisher:
    specs = parts.specs
    rule = CategoryRule(
        explicit=parts.explicit_categories,
        servers={name: spec.category for name, spec in specs.items() if spec.category},
    )
    return Publisher(
        build_index=parts.index or partial(build_index, source=parts.meanings),
        rule=rule,
        aliases={**dict.fromkeys(parts.targets, ""), **{n: s.alias for n, s in specs.items() if s.enabled}},
        overriding=set(parts.overriding),
        descriptions={n: s.description for n, s in specs.items()},
        examples=parts.examples,
    )


def build(settings: GatewaySettings) -> Application:
    """An application for these settings, with what the store remembers already published.

    Raises:
        ConfigError: a hook or the store cannot be used.
    """
    hooks = load_hooks(settings)  # before anything is opened: it may end here
    remembered = open_stores(settings)
    registries = _open_registries(settings)
    parts = Parts(
        providers=dict(registries.providers) if registries else {},
        targets=registries.targets if registries else {},
        overriding=registries.overriding if registries else (),
        **remembered.parts,
        specs={spec.name: spec for spec in settings.servers},
        counter=counter_for(settings.tokens),
        meanings=_open_meanings(settings, remembered.store),
        explicit_categories=settings.categories,
        examples=settings.examples,
        pins=settings.pins,
        profile=settings.selected,
        hooks=hooks,
        scripts=settings.scripts,
        result_limits=settings.results,
        search_tokens=settings.search.tokens,
        search_limit=settings.search.limit,
    )
    application = assemble(parts)
    upstreams = {
        spec.name: UpstreamProvider(
            spec, on_change=application.admin.refresher.changed, on_notice=application.notice, client_version=VERSION
        )
        for spec in settings.servers
        if spec.enabled
    }
    parts.providers.update(upstreams)
    application.journal, application.closing = remembered.journal, remembered.closing
    application.admin.settle, application.admin.reread = remembered.journal.settle_now, remembered.journal.reread
    if parts.hooks is not None:
        application.closing.insert(0, parts.hooks.close)
    application.problems = (*settings.problems, *(registries.problems if registries else ()))
    application.refused = settings.refused
    application.registries = registries
    application.surface, application.is_reloading = settings.surface, settings.reload
    application.unknown = application.admin.refresher.load()
    if settings.python or settings.yaml or settings.selected.wants_packaged:
        _add_workshop(application, settings, parts.providers)
    recall(application.admin, application.gateway.executor.shapes)
    application.closing.insert(0, application.gateway.executor.shapes.close)
    for name, server in application.gateway.snapshot.servers.items():
        if name in upstreams:
            upstreams[name].remember(server.protocol)
    return application


@asynccontextmanager
async def open_app(settings: GatewaySettings) -> AsyncIterator[Application]:
    """An application whose servers are started on demand and stopped at the end."""
    application = build(settings)
    try:
        yield application
    finally:
        with anyio.CancelScope(shield=True):
            await _close(application)


def settings_for(config: str | None, *, profile: str | None = None, reload: bool = False) -> GatewaySettings:
    """The settings that the command line, the environment and the config file give.

    Raises:
        ConfigError: the file cannot be used at all, or none of its servers can.
    """
    settings = replace(load_settings(config, os.environ, Path.cwd(), profile=profile), reload=reload)
    _refuse_serverless(settings)
    return replace(settings, problems=(*settings.problems, *_not_installed(settings)))


def _refuse_serverless(settings: GatewaySettings) -> None:
    """Do nothing where a server of the config can be used, or none is written: what starts must serve something."""
    if settings.servers or not settings.refused:
        return
    for problem in settings.problems:
        logger.warning("config: %s", problem)
    told = f"no server of it can be used ({len(settings.refused)} refused)"
    raise ConfigError(told, file=str(settings.file), fix="Mend what is said above, or take the servers out.")


def watch(application: Application, tasks: TaskGroup) -> None:
    """Keep an application in step with its servers, and start asking those that it knows nothing of."""
    application.admin.refresher.watch(tasks)
    application.admin.refresher.failures.clear()  # a gateway that starts asks everybody anew
    for server in sorted(application.unknown):
        application.admin.refresher.begin(server)
    if application.meanings is not None:
        application.meanings.wake()
    if application.scripts is not None:
        application.scripts.watch(tasks)
    if application.registries is not None:
        application.registries.watch(tasks, application.admin.refresher, application.unknown)
    if application.local_sources is not None and application.is_reloading:
        tasks.start_soon(application.local_sources.follow, partial(_reshow, application))


def _reshow(application: Application, server: str) -> None:
    """Offer what one of our own servers has now; it may be a new one."""
    assert application.local_sources is not None, "else nothing changes"
    if isinstance(application.admin.providers, dict):
        application.admin.providers[server] = application.local_sources.providers[server]
    _show(application, server)


async def _close(application: Application) -> None:
    """Close everything, whatever happens to the other parts; what was journalled comes last and matters most."""
    with anyio.move_on_after(CLOSE_SECONDS):
        if application.opened is not None:
            await _tried(application.opened.aclose)
    with anyio.move_on_after(CLOSE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for provider in application.admin.providers.values():
                tasks.start_soon(_tried, provider.aclose)
    with anyio.move_on_after(CLOSE_SECONDS):
        if application.meanings is not None:
            await _tried(partial(anyio.to_thread.run_sync, application.meanings.close, abandon_on_cancel=True))
    for close in application.closing:
        with anyio.move_on_after(CLOSE_SECONDS):
            await _tried(partial(anyio.to_thread.run_sync, close, abandon_on_cancel=True))


async def _tried(close: Callable[[], Awaitable[object]]) -> None:
    try:
        await close()
    except Exception:
        logger.exception("something could not be closed")


def _lookup(providers: Mapping[str, Provider]) -> Callable[[str], Provider]:
    def provider_of(server: str) -> Provider:
        try:
            return providers[server]
        except KeyError:
            raise UnknownServer(f"no server is called {server!r}") from None

    return provider_of


def _open_registries(settings: GatewaySettings) -> Registries | None:
    if not settings.databases:
        return None
    # Loaded where there are databases alone.
    from portico.providers.sql.registries import open_registries

    found: Registries = open_registries(settings.databases, taken={spec.name for spec in settings.servers})
    return found


def _add_workshop(application: Application, settings: GatewaySettings, providers: dict[str, Provider]) -> None:
    """Offer the tools of our own that the settings name; they need nobody to be asked."""
    # A twentieth of a second to load, which a command without such tools must not pay.
    from portico.providers.local_sources import open_local_sources

    local_sources: LocalSources = open_local_sources(
        python=settings.python,
        yaml=settings.yaml,
        folder=settings.folder,
        packaged=settings.selected.wants_packaged,
        taken={*(spec.name for spec in settings.servers), *(spec.name for spec in settings.databases)},
        database=settings.database_uri,
        allow_superuser=settings.allow_superuser,
        data=settings.home.data,
    )
    application.problems = (*application.problems, *local_sources.problems)
    application.local_sources = local_sources
    application.closing.append(local_sources.close)
    providers.update(local_sources.providers)
    for server in local_sources.providers:
        _show(application, server)


def _show(application: Application, server: str) -> None:
    """Publish what one of our own servers offers now, each tool on the shelf that its author chose."""
    assert application.local_sources is not None, "else there is no such server"
    provider = application.local_sources.providers[server]
    for name, category in provider.categories.items():
        application.gateway.publisher.shelve(ToolId(server, name), category)
    application.gateway.publisher.accept([(provider.offering(), provider.source)])


def load_hooks(settings: GatewaySettings) -> Hooks | None:
    """The hooks of the settings.

    Raises:
        ConfigError: one of them cannot be loaded; it may be a guard, so nothing is served without it.
    """
    if not settings.hooks:
        return None
    modules = [_hook_module(source, settings.folder) for source in settings.hooks]
    return hooks_of(modules, Workers(), loops=FunctionLoop(), around=prints_aside)


def _hook_module(source: str, folder: Path) -> ModuleType:
    is_path = source.endswith(".py") or "/" in source
    try:
        module = import_file((folder / source).resolve()) if is_path else import_name(source, folder)
    except ConfigError as error:
        raise ConfigError(error.problem, file=error.file, line=error.line, where="hooks", fix=error.fix) from error
    refuse_unfit(module, source)
    return module


def _open_meanings(settings: GatewaySettings, store: Store) -> MeaningSource | None:
    asked = settings.semantic
    if asked is None:
        return None
    return open_meanings(store=store, url=asked.url, model=asked.model, key=asked.key, timeout=asked.timeout_s)


def _not_installed(settings: GatewaySettings) -> Iterator[ConfigError]:
    """What to say of a local model when the package that runs it is not there; search goes on without."""
    asked = settings.semantic
    if asked is not None and not asked.url and not is_installed():
        yield ConfigError(
            "a local model needs sentence-transformers, which is not installed",
            file=str(settings.file),
            line=asked.line,
            where="semantic.model",
            fix=f"Run: {INSTALL}",
        )
