"""The one place that knows every concrete class: builds the application and closes it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from portico.admin import Admin
from portico.application import Application, ScriptsOnDemand
from portico.catalog.categories_and_order import CategoryRule, Standings
from portico.catalog.publisher import ConfiguredTerms, IndexBuilder, Publisher, Refresher
from portico.catalog.sections import ToolOverrides
from portico.catalog.view import CatalogPolicy, CatalogViews, Policy
from portico.concurrency import FunctionLoop, Workers
from portico.config import GatewaySettings, InstallationPaths, ScriptSettings, load_settings
from portico.domain import VERSION
from portico.domain.server import Packaging, ServerSpec, ToolFilter
from portico.domain.tool import ToolId
from portico.errors import ConfigError, StoreError
from portico.execution.arguments import fit_values
from portico.execution.executor import Executor, FairLimiter, TokenSampler
from portico.execution.hooks import Hooks, check_hooks, hooks_of
from portico.execution.learned_schemas import SchemaLearner
from portico.gateway import Gateway
from portico.providers.mcp import UpstreamProvider
from portico.providers.mcp.stdio import packaging_of
from portico.providers.python.functions import prints_to_stderr
from portico.providers.python.loading import import_file, import_name
from portico.rendering.budget import counter_for
from portico.rendering.cache import AnswerCache
from portico.results.kept import Results
from portico.results.read_kept_result import ResultReader
from portico.results.truncate import Truncator
from portico.search.embeddings import open_meanings
from portico.search.embeddings.cache import Meanings
from portico.search.embeddings.local import missing_package
from portico.search.index import build_index
from portico.search.item_search import ItemSearch
from portico.storage.storage import Storage, open_storage
from portico.text.redaction import target_of
from portico.tiers.tier_requests import TierAnswers

from .protocols import OnNotice, OnQuestion, Provider, TokenCounter

if TYPE_CHECKING:
    from portico.providers.local_sources import LocalSources
    from portico.providers.sql.registry.configured_registries import Registries
    from portico.scripting.script_session import ScriptRunner


logger = logging.getLogger(__name__)


CLOSE_SECONDS = 10.0
SCRIPTS_WAITING = 32
NO_HOME = InstallationPaths(config=Path(), data=Path())
"""Of an application that no config file describes: it writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What differs between applications; everything else is the same for all of them."""

    settings: GatewaySettings = field(default_factory=lambda: GatewaySettings(home=NO_HOME))
    providers: dict[str, Provider] = field(default_factory=dict)
    """By server; one that joins later is added here."""
    storage: Storage = field(default_factory=Storage)
    cache: AnswerCache = field(default_factory=AnswerCache)
    counter: TokenCounter | None = None
    """Another counter than that of the settings."""
    index: IndexBuilder | None = None
    """Another index than ours."""
    policy: Policy | None = None
    """Another policy than ours."""
    meanings: Meanings | None = None
    """What texts mean to an embedder; None without one."""
    hooks: Hooks | None = None
    registries: Registries | None = None
    local_sources: LocalSources | None = None


def assemble(parts: Parts) -> Application:
    """Put an application together; nothing is started, read or written."""
    settings, storage = parts.settings, parts.storage
    counter = parts.counter or counter_for(settings.catalog.tokens)
    policy = parts.policy or CatalogPolicy(filters=_filters(settings), profile=settings.profile)
    views = CatalogViews(policy=policy, pins=settings.catalog.pins)
    refresher = Refresher(providers=parts.providers, publisher=_publisher(parts), store=storage.definitions)
    truncator = Truncator(
        counter=counter,
        results=Results(limits=settings.storage.results, store=storage.results),
        servers=_result_tokens(settings),
        per_client=_per_client(settings),
    )
    executor = Executor(
        providers=parts.providers,
        policy=policy,
        journal=storage.journal,
        token_sampler=TokenSampler(counter),
        hooks=parts.hooks or None,
        truncator=truncator,
        learned_schemas=SchemaLearner(storage.schemas),
    )
    standings = Standings(packaging=_packaging(settings))
    gateway = Gateway(
        publisher=refresher.publisher,
        refresher=refresher,
        views=views,
        executor=executor,
        item_search=ItemSearch(provider_of=executor.provider_of, profile=settings.profile),
        counter=counter,
        reader=ResultReader(truncator),
        standings=standings,
        answers=parts.cache,
        meanings=parts.meanings,
        search_tokens=settings.search.tokens,
        search_limit=settings.search.limit,
        learning=settings.search.learning,
    )
    return _application(parts, gateway)


def _application(parts: Parts, gateway: Gateway) -> Application:
    settings, registries = parts.settings, parts.registries
    sources = (registries, parts.local_sources)
    return Application(
        gateway=gateway,
        admin=Admin(
            refresher=gateway.refresher,
            counter=gateway.counter,
            views=gateway.views,
            storage=parts.storage,
            standings=gateway.standings,
            answers=parts.cache,
            targets=_targets(settings, registries),
            disabled=_disabled(settings),
        ),
        tier_answers=TierAnswers(gateway=gateway, standings=gateway.standings, cache=parts.cache),
        problems=(*settings.problems, *(problem for source in sources if source for problem in source.problems)),
        refused=settings.refused,
        surface=settings.surface,
        script_runner=(
            ScriptsOnDemand(partial(_open_scripts, gateway, settings.scripts)) if settings.scripts.enabled else None
        ),
        local_sources=parts.local_sources,
        is_reloading=settings.local.reload,
        is_renewing=settings.catalog.renew,
        registries=registries,
    )


def _open_scripts(gateway: Gateway, asked: ScriptSettings) -> ScriptRunner:
    """The runner of agents' scripts."""
    # Loaded where scripts may come: a search must not pay for it.
    from portico.scripting.engine import LuaEngine
    from portico.scripting.script_session import ScriptRunner

    scripts: ScriptRunner = ScriptRunner(
        gateway=gateway,
        engine=LuaEngine(pool_size=asked.pool, require_hardening=asked.require_hardening),
        limits=asked.limits,
        max_seconds=asked.max_seconds,
        limiter=FairLimiter(asked.at_once, queue=SCRIPTS_WAITING),
    )
    return scripts


def _publisher(parts: Parts) -> Publisher:
    terms = _terms(parts.settings, parts.registries)
    return Publisher(
        build_index=parts.index or partial(build_index, source=parts.meanings),
        rule=terms.rule,
        aliases=dict(terms.aliases),
        overriding=set(parts.registries.overriding if parts.registries else ()),
        descriptions=terms.descriptions,
        examples=terms.examples,
        tool_overrides=terms.tool_overrides,
        on_event=parts.storage.events.record,
    )


def _terms(settings: GatewaySettings, registries: Registries | None) -> ConfiguredTerms:
    specs = settings.servers
    return ConfiguredTerms(
        rule=CategoryRule(
            explicit=settings.catalog.categories,
            servers={spec.name: spec.labels.category for spec in specs if spec.labels.category},
        ),
        aliases={
            **dict.fromkeys(registries.targets if registries else (), ""),
            **{spec.name: spec.labels.alias for spec in specs if spec.enabled},
        },
        tool_overrides=ToolOverrides(
            servers={spec.name: spec.labels.overrides for spec in specs if spec.labels.overrides}, fit=fit_values
        ),
        descriptions={spec.name: spec.labels.description for spec in specs},
        examples=settings.catalog.examples,
    )


def _filters(settings: GatewaySettings) -> dict[str, ToolFilter]:
    return {spec.name: spec.tools for spec in settings.servers}


def _result_tokens(settings: GatewaySettings) -> dict[str, int]:
    return {spec.name: spec.limits.result_tokens for spec in settings.servers}


def _per_client(settings: GatewaySettings) -> frozenset[str]:
    return frozenset(spec.name for spec in settings.servers if spec.limits.client_sessions is not None)


def _packaging(settings: GatewaySettings) -> dict[str, Packaging]:
    return {spec.name: packaging_of(spec) for spec in settings.servers}


def _targets(settings: GatewaySettings, registries: Registries | None) -> dict[str, str]:
    return {**(registries.targets if registries else {}), **{s.name: target_of(s) for s in settings.servers}}


def _disabled(settings: GatewaySettings) -> tuple[str, ...]:
    return tuple(spec.name for spec in settings.servers if not spec.enabled)


def build(settings: GatewaySettings) -> Application:
    """An application for these settings, with what the store remembers already published.

    Raises:
        ConfigError: a hook or the store cannot be used.
    """
    hooks = load_hooks(settings)  # before anything is opened: it may end here
    cache = AnswerCache()
    journal = settings.storage.journal
    storage = open_storage(
        settings.storage.store,
        settings.home.data,
        name=settings.storage.store_shown,
        journal_mode=journal.mode,
        keep_days=journal.keep_days,
        buffer=journal.buffer,
        wait_seconds=journal.wait_s,
        caches=cache.counts,
    )
    registries = _open_registries(settings)
    application = assemble(
        Parts(
            settings=settings,
            providers=dict(registries.providers) if registries else {},
            storage=storage,
            cache=cache,
            meanings=_open_meanings(settings, storage),
            hooks=hooks,
            registries=registries,
            local_sources=_open_local_sources(settings),
        )
    )
    _load_stored(application, _add_upstreams(application, settings.servers))
    return application


def _add_upstreams(application: Application, specs: Iterable[ServerSpec]) -> Mapping[str, UpstreamProvider]:
    """The upstream servers of the settings, which tell the application when their tools change."""
    upstreams = {
        spec.name: UpstreamProvider(
            spec,
            on_change=application.admin.refresher.changed,
            on_notice=partial(_announce, application.listeners),
            on_question=partial(_ask, application.askers),
            client_version=VERSION,
            on_event=application.admin.storage.events.record,
        )
        for spec in specs
        if spec.enabled
    }
    application.admin.providers.update(upstreams)
    return upstreams


def take_over(application: Application, before: GatewaySettings, after: GatewaySettings) -> tuple[Provider, ...]:
    """Put the servers, pins and terms of a config that was read again in force; returns the providers to `retire`.

    Nothing in here waits, so that whoever looks sees all of it or nothing. A server that runs as before keeps its
    provider, and with it its process, its sessions and its calls.

    Raises:
        ConfigError: a new server has the name of one that is not of the config's; nothing has changed.
    """
    admin, gateway = application.admin, application.gateway
    old, new = ({spec.name: spec for spec in found.servers if spec.enabled} for found in (before, after))
    _refuse_taken((name for name in new if name not in old and name in admin.providers), after.home.file)
    gone = [name for name in old if name not in new or not old[name].runs_like(new[name])]
    retired = {name: admin.providers.pop(name) for name in gone}
    admin.refresher.forget(gone)
    fresh = _add_upstreams(application, (spec for name, spec in new.items() if name not in old or name in retired))
    admin.configure(_targets(after, application.registries), _disabled(after))
    gateway.standings.replace_packaging(_packaging(after))
    if gateway.executor.truncator is not None:
        gateway.executor.truncator.configure(_result_tokens(after), _per_client(after))
    if isinstance(gateway.views.policy, CatalogPolicy):
        gateway.views.policy.configure(_filters(after))
    gateway.views.configure(after.catalog.pins)
    without = [name for name in gone if name not in new]
    snapshot = gateway.publisher.configure(_terms(after, application.registries), without)
    for name, provider in fresh.items():
        known = snapshot.servers.get(name)
        if known is not None and name in retired and retired[name].fingerprint == provider.fingerprint:
            # It is started, and asked again, by its first call.
            provider.remember(known.protocol, gateway.publisher.asked(name))
        else:
            admin.refresher.changed(name)
    return tuple(retired.values())


def _refuse_taken(names: Iterable[str], file: Path | None) -> None:
    for name in names:
        said, fix = "tools of our own or of a database have this name", "Give it another name, or restart the gateway."
        raise ConfigError(said, file=str(file) if file else None, where=f"servers.{name}", fix=fix)


def retry_all(application: Application) -> None:
    """Let every server that has failed be tried again by its next use."""
    for provider in application.admin.providers.values():
        if isinstance(provider, UpstreamProvider):
            provider.retry_now()


async def retire(provider: Provider) -> None:
    """Stop what nobody is given any more, as soon as its calls in flight have ended."""
    try:
        if isinstance(provider, UpstreamProvider):
            await provider.wait_until_idle()
    finally:
        with anyio.CancelScope(shield=True):
            await _tried(provider.aclose)


def _load_stored(application: Application, upstreams: Mapping[str, UpstreamProvider]) -> None:
    """Load definitions, tiers, category names and learned result schemas from the store, and our own tools."""
    admin, schemas = application.admin, application.gateway.executor.learned_schemas
    build = admin.refresher.publisher.build_index
    if isinstance(build, partial) and build.func is build_index:
        # At the start only: later, a request would wait while another process holds the store.
        build = partial(build, store=admin.refresher.store)
    admin.refresher.load(build)
    if application.local_sources is not None:
        admin.providers.update(application.local_sources.providers)
        for name in application.local_sources.providers:
            _show(application, name)
    try:
        admin.load_standings()
        schemas.recall()
    except StoreError as error:
        logger.warning("how tools stand is not remembered: %s", error)
    for name, server in application.gateway.snapshot.servers.items():
        if name in upstreams:
            upstreams[name].remember(server.protocol, admin.refresher.publisher.asked(name))


def _announce(listeners: Iterable[OnNotice], *notice: Any) -> None:
    """Pass a server's announcement to all who listen."""
    for listener in listeners:
        listener(*notice)


async def _ask(askers: Iterable[OnQuestion], client: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
    """Have a client asked by the surface that it is connected to; an error where it is connected to none."""
    for ask in askers:
        if answer := await ask(client, question):
            return answer
    return {"error": {"code": -32601, "message": "the client cannot be asked outside of its calls"}}


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
    settings = load_settings(config, os.environ, Path.cwd(), profile=profile)
    settings = replace(settings, local=replace(settings.local, reload=reload))
    _refuse_serverless(settings)
    return replace(settings, problems=(*settings.problems, *_not_installed(settings)))


def _refuse_serverless(settings: GatewaySettings) -> None:
    """Do nothing where a server of the config can be used, or none is written: what starts must serve something."""
    if settings.servers or not settings.refused:
        return
    for problem in settings.problems:
        logger.warning("config: %s", problem)
    told = f"no server of it can be used ({len(settings.refused)} refused)"
    raise ConfigError(told, file=str(settings.home.file), fix="Mend what is said above, or take the servers out.")


def watch(application: Application, tasks: TaskGroup) -> None:
    """Keep an application in step with its servers, and start asking those that it knows nothing of."""
    application.admin.refresher.watch(tasks)
    application.admin.refresher.failures.clear()  # a gateway that starts asks everybody anew
    for server in sorted(application.unknown):
        application.admin.refresher.begin(server)
    if application.is_renewing:
        tasks.start_soon(renew, application)
    if application.gateway.meanings is not None:
        application.gateway.meanings.wake()
    if application.scripts is not None:
        application.scripts.watch(tasks)
    if application.registries is not None:
        application.registries.watch(tasks, application.admin.refresher, application.unknown)


RENEW_PAUSE, RENEW_EVERY = 3.0, 3_600.0
"""Seconds that a gateway that has just started belongs to its callers, and from one look to the next."""
RENEWED_AT_ONCE = 2


async def renew(application: Application) -> None:
    """Ask servers again, for ever, whose stored definitions may be old; a few at a time, and only then.

    So an upgraded server shows its new tools although nobody has called it; afterwards it is left to idle.
    """
    refresher, slots = application.admin.refresher, anyio.CapacityLimiter(RENEWED_AT_ONCE)

    async def ask(name: str, provider: UpstreamProvider) -> None:
        async with slots:
            if await provider.is_outdated() and refresher.providers.get(name) is provider:
                refresher.changed(name)
                if (asked := refresher.pending.get(name)) is not None:
                    await asked.wait()

    await anyio.sleep(RENEW_PAUSE)
    while True:
        async with anyio.create_task_group() as tasks:
            for name, provider in refresher.providers.items():
                if isinstance(provider, UpstreamProvider) and name in application.gateway.snapshot.servers:
                    tasks.start_soon(ask, name, provider)
        await anyio.sleep(RENEW_EVERY)


def offer_local_tools(application: Application, server: str) -> None:
    """Offer what one of our own servers has now; it may be a new one."""
    assert application.local_sources is not None, "else nothing changes"
    application.admin.providers[server] = application.local_sources.providers[server]
    _show(application, server)


async def _close(application: Application) -> None:
    """Close everything, whatever happens to the other parts; what was journalled comes last and matters most."""
    with anyio.move_on_after(CLOSE_SECONDS):
        if application.script_runner is not None:
            await _tried(application.script_runner.aclose)
    with anyio.move_on_after(CLOSE_SECONDS):
        async with anyio.create_task_group() as tasks:
            for provider in application.admin.providers.values():
                tasks.start_soon(_tried, provider.aclose)
    for close in _closing(application):
        with anyio.move_on_after(CLOSE_SECONDS):
            await _tried(partial(anyio.to_thread.run_sync, close, abandon_on_cancel=True))


def _closing(application: Application) -> Iterator[Callable[[], None]]:
    """What else has to be closed, in this order; each may block."""
    executor, meanings = application.gateway.executor, application.gateway.meanings
    if meanings is not None:
        yield meanings.close
    yield executor.learned_schemas.close
    if executor.hooks is not None:
        yield executor.hooks.close
    yield from application.admin.storage.closing
    if application.local_sources is not None:
        yield application.local_sources.close


async def _tried(close: Callable[[], Awaitable[object]]) -> None:
    try:
        await close()
    except Exception:
        logger.exception("something could not be closed")


def _open_registries(settings: GatewaySettings) -> Registries | None:
    if not settings.databases:
        return None
    # Loaded where there are databases alone.
    from portico.providers.sql.registry.configured_registries import open_registries

    found: Registries = open_registries(settings.databases, taken={spec.name for spec in settings.servers})
    return found


def _open_local_sources(settings: GatewaySettings) -> LocalSources | None:
    """The tools of our own that the settings name; they need nobody to be asked."""
    if not (settings.local.python or settings.local.yaml or settings.profile.wants_packaged):
        return None
    # A twentieth of a second to load, which a command without such tools must not pay.
    from portico.providers.local_sources import open_local_sources

    return open_local_sources(
        python=settings.local.python,
        yaml=settings.local.yaml,
        folder=settings.folder,
        packaged=settings.profile.wants_packaged,
        taken={*(spec.name for spec in settings.servers), *(spec.name for spec in settings.databases)},
        database=settings.local.database_uri,
        allow_superuser=settings.local.allow_superuser,
        data=settings.home.data,
    )


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
    if not settings.local.hooks:
        return None
    modules = [_hook_module(source, settings.folder) for source in settings.local.hooks]
    return hooks_of(modules, Workers(), loops=FunctionLoop(), around=prints_to_stderr)


def _hook_module(source: str, folder: Path) -> ModuleType:
    is_path = source.endswith(".py") or "/" in source
    try:
        module = import_file((folder / source).resolve()) if is_path else import_name(source, folder)
    except ConfigError as error:
        raise ConfigError(error.problem, file=error.file, line=error.line, where="hooks", fix=error.fix) from error
    check_hooks(module, source)
    return module


def _open_meanings(settings: GatewaySettings, storage: Storage) -> Meanings | None:
    asked = settings.search.semantic
    if asked is None:
        return None
    return open_meanings(
        store=storage.definitions, url=asked.url, model=asked.model, key=asked.key, timeout=asked.timeout_s
    )


def _not_installed(settings: GatewaySettings) -> Iterator[ConfigError]:
    """What to say of a local model when the package that runs it is not there; search goes on without."""
    asked = settings.search.semantic
    if asked is not None and not asked.url and (missing := missing_package(asked.model)) is not None:
        yield ConfigError(
            f"a local model needs {missing.package}, which is not installed",
            file=str(settings.home.file),
            line=asked.line,
            where="semantic.model",
            fix=missing.fix,
        )
