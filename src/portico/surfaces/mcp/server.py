"""One SDK server for one surface: `tools/list`, `tools/call`, both protocol eras; over stdio or HTTP."""

from __future__ import annotations

import weakref
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.call import Caller
from portico.errors import CallError, UnknownItem, UpstreamError
from portico.execution.arguments import NAME_KEYS, Request, unwrap
from portico.gateway import Gateway
from portico.tiers.tier_requests import TierAnswers

from .client_questions_and_logs import (
    Context,
    Logs,
    ask_beside_calls,
    askable_of,
    client_of,
    connection_of,
    envelope_of,
    is_client,
    is_modern,
    until_complete,
)
from .prompt_and_resource_requests import CatalogResources, ItemHandlers
from .stdio_opening import LIST_TTL_MS, NAME, TITLE, EarlyPipe
from .surface import (
    READ,
    SCRIPT_TOOLS,
    Envelope,
    JsonObject,
    Surface,
    error_result,
    must_stay_protocol_error,
    own_meta,
    read_result,
    with_notes,
    with_unread,
)

PAGE = 5_000
"""Definitions in one answer: many clients never ask for a second page, so the first one is large."""


@dataclass(slots=True)
class Tools:
    """Lists what the surface lists; calls the surface's own tools and, by any spelling, every permitted one."""

    gateway: Gateway
    surface: Surface
    caller: Caller
    logs: Logs
    _published: list[JsonObject] | None = None
    """The list of the last snapshot."""
    _last: Caller = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.caller

    async def list(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One page of definitions."""
        tools = await self.surface.tools(self.caller)
        cursor = params.get("cursor")
        starts: dict[str | None, int] = {None: 0, **{str(start): start for start in range(0, len(tools) + 1, PAGE)}}
        if not isinstance(cursor, str | None) or cursor not in starts:
            raise MCPError(types.INVALID_PARAMS, "unknown cursor: start again without one")
        if cursor is None:
            self.gateway.record_listing(self.caller, tools)
        start = starts[cursor]
        result: dict[str, Any] = {"tools": tools[start : start + PAGE]}
        if start + PAGE < len(tools):
            result["nextCursor"] = str(start + PAGE)
        return result

    async def call(self, ctx: Context, params: JsonObject) -> JsonObject:
        """One call, of a meta-tool or straight through."""
        name = params.get("name")
        if not isinstance(name, str):
            raise MCPError(types.INVALID_PARAMS, "tools/call needs `name`: the name of a listed tool, or server.tool")
        given = params.get("arguments")
        envelope = self.logs.with_level(ctx, envelope_of(ctx, params))
        client = client_of(ctx, params)
        with self.logs.listening(ctx, client, lambda: self._server_of(name, given)):
            caller = self._caller(client)
            result = await self._call(caller, name, given, envelope)
            return await until_complete(
                ctx, result, lambda answers: self._call(caller, name, given, replace(envelope, answers=answers))
            )

    async def plain_call(self, params: JsonObject, session: str) -> JsonObject:
        """One call of a session with nothing beside it but its own `_meta`."""
        envelope = Envelope(meta=own_meta(params.get("_meta")))
        return await self._call(self._caller(session), params["name"], params.get("arguments"), envelope)

    def publish(self) -> bool:
        """Take note of what the snapshot of this moment lists; whether that is another list than the last snapshot's.

        What clients were given does not matter: one of them may have asked between two snapshots, others may not.
        """
        before, self._published = self._published, self.surface.listed(self.caller)
        return before is None or before != self._published

    def schema_of(self, name: str) -> Mapping[str, Any] | None:
        """A tool's input schema by any spelling, for the SDK's header checks."""
        own = self.surface.schema_of(name)
        if own is not None:
            return own
        tool = self.gateway.view(self.caller).find(name)
        return tool.input_schema if tool else None

    def _caller(self, client: str) -> Caller:
        """The caller as one of several clients; the last one's is at hand."""
        if self._last.client != client:
            self._last = replace(self.caller, client=client)
        return self._last

    async def _call(self, caller: Caller, name: str, arguments: object, envelope: Envelope) -> JsonObject:
        request = _read_arguments(name, arguments)
        meta_tool = self.surface.meta_tool(name)
        if meta_tool is not None:
            answer = await meta_tool(caller, request.arguments, envelope)
            return with_unread(name, self.surface.schema_of, request.arguments, answer)
        if name == READ:  # its name is reserved: a result may be shortened on any surface
            return await read_result(self.gateway, caller, request.arguments)
        try:
            # Whoever calls a tool by its own name may have been given its output schema, and hold us to it.
            call = envelope.around(name, request.arguments, needs_structured=True)
            result = await self.gateway.call(caller, call)
            return with_notes(result, request.notes)
        except CallError as error:
            if must_stay_protocol_error(error, envelope):
                raise
            return error_result(error, self.surface.spell)

    def _server_of(self, name: str, arguments: object) -> str:
        """The server that a call goes to, straight or through a meta-tool."""
        given = arguments if isinstance(arguments, Mapping) and self.surface.meta_tool(name) else {}
        inner = next((given[key] for key in NAME_KEYS if given.get(key)), name)
        tool = self.gateway.view(self.caller).find(str(inner))
        return tool.id.server if tool else ""


def _read_arguments(name: str, arguments: object) -> Request:
    """The arguments as an object; a model that wrote them as a string is understood."""
    if arguments is None or isinstance(arguments, Mapping):
        return Request(name, arguments or {})
    return unwrap({"name": name, "arguments": arguments}, lambda spelling: None)


@dataclass(frozen=True)
class UpdatedFor(ResourceUpdated):
    """A resource has changed as one client sees it."""

    client: str = ""


@dataclass(slots=True)
class ClientBus:
    """The changes that one client hears: its own, and those of all."""

    bus: InMemorySubscriptionBus
    client: str

    async def publish(self, event: ServerEvent) -> None:
        """Tell everybody whom a change concerns."""
        await self.bus.publish(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Hear of changes until the function that is returned is called."""

        def hear(event: ServerEvent) -> None:
            if not isinstance(event, UpdatedFor) or event.client == self.client:
                listener(event)

        return self.bus.subscribe(hear)


Handler = Callable[[Context, JsonObject], Awaitable[JsonObject]]

_CAN_BE_ASKED = "portico/can-be-asked"
"""Whether a client can be asked anything, in its own state."""
_KNOWN = "portico/known"
"""The version of each list when a client last asked for it, in its own state."""
NOTIFY_SECONDS = 30.0
MOST_LISTENING = 1_024
"""Streams of changes that clients of 2026-07-28 may have open on one surface."""
_CHANGES: Mapping[str, type[ToolsListChanged | PromptsListChanged | ResourcesListChanged]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}
_LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources"}
_CACHED = frozenset({"tools/list", "prompts/list", "resources/list", "resources/templates/list"})
_HANDSHAKE_ONLY = frozenset({"resources/subscribe", "resources/unsubscribe", "logging/setLevel"})
"""Methods that 2026-07-28 has no more; the SDK says so itself."""


class SurfaceServer(Server[Any]):
    """An SDK server whose answers come from one surface of the gateway."""

    def __init__(
        self, gateway: Gateway, surface: Surface, version: str, tier_answers: TierAnswers | None = None
    ) -> None:
        self._bus = InMemorySubscriptionBus()
        self._listening = 0
        self.surface, self.caller, self._gateway = surface, Caller(surface=surface.name), gateway
        self._logs = Logs(gateway.executor.running)
        self._tools = Tools(gateway, surface, self.caller, self._logs)
        catalog = CatalogResources(tier_answers, self.caller) if tier_answers else None
        self._items = ItemHandlers(gateway, catalog, caller=self.caller)
        self._versions = dict.fromkeys(_CHANGES, 0)
        """The number of times that each list has changed."""
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self.sessions: dict[str, Connection] = {}
        """Open sessions of the handshake era over HTTP, by their id."""
        self.is_listening: Callable[[str], bool] = lambda session: False
        """Whether the event stream of a session is open; whoever serves over HTTP knows."""
        super().__init__(
            NAME,
            version=version,
            title=TITLE,
            get_tool_input_schema=self._tools.schema_of,
            on_subscriptions_listen=self._listen,
        )
        tools, items = self._tools, self._items
        handlers: Mapping[str, tuple[type[types.RequestParams], Handler]] = {
            "tools/list": (types.PaginatedRequestParams, tools.list),
            "tools/call": (types.CallToolRequestParams, tools.call),
            "prompts/list": (types.PaginatedRequestParams, items.list_items),
            "prompts/get": (types.GetPromptRequestParams, items.get_prompt),
            "resources/list": (types.PaginatedRequestParams, items.list_items),
            "resources/templates/list": (types.PaginatedRequestParams, items.list_items),
            "resources/read": (types.ReadResourceRequestParams, items.read_resource),
            "resources/subscribe": (types.SubscribeRequestParams, items.subscribe),
            "resources/unsubscribe": (types.UnsubscribeRequestParams, items.unsubscribe),
            "completion/complete": (types.CompleteRequestParams, items.complete),
            "logging/setLevel": (types.SetLevelRequestParams, self._logs.set_level),
        }
        self._handlers = {method: handler for method, (_, handler) in handlers.items()}
        for method, (params, _) in handlers.items():
            self.add_request_handler(method, params, _taken_earlier)
        # Instead of the SDK's tracing, which costs each message a span that nobody collects here.
        self.middleware[:] = [self._answer]
        self.refresh_instructions()

    def refresh_instructions(self) -> None:
        """Name the servers of the current snapshot in what a client reads first."""
        self.instructions = self.surface.instructions(self.caller)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Declare that lists may change, for clients of the handshake era."""
        options = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)

    def begin(self) -> None:
        """Take note of what is listed before the first change."""
        self._tools.publish()

    def publish(self, before: CatalogSnapshot, after: CatalogSnapshot) -> list[str]:
        """Take note of a new snapshot, each of them in turn; the lists that are no longer what they were."""
        self.refresh_instructions()
        old, new = before.items, after.items
        is_other = {
            "tools": self._tools.publish(),
            "prompts": old.prompts != new.prompts,
            "resources": (old.resources, old.templates) != (new.resources, new.templates),
        }
        changed = [name for name, is_changed in is_other.items() if is_changed]
        for name in changed:
            self._versions[name] += 1
        return changed

    async def tell(self, changed: list[str]) -> None:
        """Tell clients of both eras that these lists have changed."""
        for name in changed:
            await self._bus.publish(_CHANGES[name]())
            await self._notify(list(self._connections), name)
        await self.announce_tiers()

    async def catch_up(self, connection: Connection) -> None:
        """Tell a client what has changed since it last asked: it may not have been listening."""
        known = connection.state.get(_KNOWN, self._versions)
        for name in [name for name, version in self._versions.items() if known[name] != version]:
            await self._notify([connection], name)

    async def announce_tiers(self) -> None:
        """Tell those who watch the tiers of disclosure which of them are no longer what they were."""
        for uri in await self._items.changed_own():
            await self._updated(uri, {"uri": uri})

    def may_interrupt(self, connection: Connection) -> bool:
        """Whether a call of this client may have to send it something before the result."""
        return bool(connection.state[_CAN_BE_ASKED]) or connection in self._logs.levels

    def runs_script(self, name: str) -> bool:
        """Whether this tool of the surface runs a script: nothing interrupts one, and it ends with its client."""
        return name in SCRIPT_TOOLS and self.surface.meta_tool(name) is not None

    async def plain_call(self, params: JsonObject, session: str) -> JsonObject:
        """One call of a session of the handshake era that nothing interrupts.

        Raises:
            MCPError: what must stay a protocol error.
        """
        try:
            result = dict(await self._tools.plain_call(params, session))
        except CallError as error:
            raise as_protocol_error(error) from error
        if result.pop("resultType", None) == "input_required":
            raise MCPError(types.INTERNAL_ERROR, "the tool asks for input, which this client cannot be asked for")
        return result

    async def pass_notice(self, server: str, method: str, params: JsonObject, client: str | None = None) -> None:
        """Pass on a notification that an upstream server sent, to one client or to all whom it may concern."""
        uri = params.get("uri")
        if method == "notifications/resources/updated" and isinstance(uri, str):
            for listed in self._gateway.snapshot.items.spellings(server, uri):
                await self._updated(listed, {**params, "uri": listed}, client)
        elif method == "notifications/message":
            await self._logs.deliver(server, params, client)

    async def ask_client(self, client: str, question: JsonObject) -> JsonObject:
        """The answer of a client to what a server asks outside of its calls; nothing if it is none of this surface.

        Only a client of the handshake era whose event stream is open can be asked so.
        """
        connection = self.sessions.get(client)
        if connection is None or not self.is_listening(client):
            return {}
        return await ask_beside_calls(connection, question)

    async def _updated(self, uri: str, params: JsonObject, client: str | None = None) -> None:
        """Tell clients of both eras, or one client alone, that a resource is no longer what it was."""
        await self._bus.publish(ResourceUpdated(uri=uri) if client is None else UpdatedFor(uri=uri, client=client))
        for connection in self._items.subscribers(uri):
            if client is None or is_client(connection, client):
                await connection.notify("notifications/resources/updated", dict(params))

    async def _listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """One stream of changes for a client of 2026-07-28; servers are asked to watch what it watches."""
        client = client_of(ctx, ctx.params or {})
        if self._listening >= MOST_LISTENING:
            raise MCPError(
                types.INTERNAL_ERROR, f"{MOST_LISTENING:,} streams of changes are open, the most there may be"
            )
        self._listening += 1
        try:
            async with self._items.watching(params.notifications.resource_subscriptions or (), client):
                return await ListenHandler(ClientBus(self._bus, client))(ctx, params)
        finally:
            self._listening -= 1

    async def _notify(self, connections: list[Connection], name: str) -> None:
        """Send a notification; a client that does not read keeps no other from hearing it."""
        with anyio.move_on_after(NOTIFY_SECONDS):
            async with anyio.create_task_group() as tasks:
                for connection in connections:
                    tasks.start_soon(connection.notify, f"notifications/{name}/list_changed", None)

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        handler = self._handlers.get(ctx.method)
        if ctx.request_id is None or handler is None or (is_modern(ctx) and ctx.method in _HANDSHAKE_ONLY):
            if ctx.method == "initialize":
                connection_of(ctx).state[_KNOWN] = dict(self._versions)
            if ctx.method == "notifications/initialized":
                await self._remember(connection_of(ctx))
            return await call_next(ctx)
        try:
            result = await handler(ctx, ctx.params or {})
        except CallError as error:
            raise as_protocol_error(error) from error
        if ctx.method in _LISTS and not is_modern(ctx):
            name = _LISTS[ctx.method]
            connection_of(ctx).state.setdefault(_KNOWN, {**self._versions})[name] = self._versions[name]
        return self._enveloped(ctx, result)

    async def _remember(self, connection: Connection) -> None:
        """Remember a client of the handshake era for as long as its connection lasts."""
        self._connections.add(connection)
        await self.catch_up(connection)
        if connection.session_id:
            connection.exit_stack.callback(self._gateway.forget_client, connection.session_id)
            connection.state[_CAN_BE_ASKED] = bool(askable_of(connection.client_capabilities))
            self.sessions[connection.session_id] = connection
            connection.exit_stack.callback(self.sessions.pop, connection.session_id, None)

    def _enveloped(self, ctx: Context, result: JsonObject) -> dict[str, Any]:
        """The result as this era wants it: 2026 results say their type and who answered, older ones do not."""
        shaped = dict(result)
        if not is_modern(ctx):
            shaped.pop("resultType", None)
            return shaped
        meta = shaped.get("_meta")
        own = {types.SERVER_INFO_META_KEY: self.server_info_stamp}
        shaped["_meta"] = {**meta, **own} if isinstance(meta, dict) else own
        shaped.setdefault("resultType", "complete")
        if ctx.method in _CACHED or ctx.method == "resources/read":
            shaped.setdefault("ttlMs", LIST_TTL_MS if ctx.method in _CACHED else 0)
            shaped.setdefault("cacheScope", "private")
        return shaped


def as_protocol_error(error: CallError) -> MCPError:
    """An error of a method that has no result to carry it: prompts, resources, completion."""
    if isinstance(error, UpstreamError):
        return MCPError(error.rpc_code, error.message, error.data)
    if isinstance(error, UnknownItem):
        return MCPError(types.INVALID_PARAMS, str(error), {"uri": error.subject} if "://" in error.subject else None)
    return MCPError(types.INTERNAL_ERROR, str(error))


async def _taken_earlier(ctx: Context, params: object) -> dict[str, Any]:
    """Registered so that the SDK declares the capability; the middleware has answered before this is reached."""
    raise MCPError(types.INTERNAL_ERROR, f"{ctx.method} was not answered")


async def _idle(answers: OpenAnswers) -> None:
    await anyio.sleep_forever()


async def serve_stdio(
    server: SurfaceServer, pipe: EarlyPipe | None = None, wait_for_end: Callable[[OpenAnswers], Awaitable[None]] = _idle
) -> None:
    """Serve one client until it closes our stdin; nothing but protocol goes to stdout.

    A `pipe` that has answered opening messages already is taken over, with all that the client has sent. It may be
    ended before, when `wait_for_end` returns.
    """
    options = server.create_initialization_options()
    if pipe is None:
        async with stdio_server() as (read, write):
            await server.run(read, write, options)
        return
    stdin, stdout = await anyio.to_thread.run_sync(pipe.hand_over)
    answers = OpenAnswers()
    server.middleware.insert(0, answers.count)

    async def end() -> None:
        await wait_for_end(answers)
        pipe.end_input()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        async with stdio_server(anyio.wrap_file(stdin), anyio.wrap_file(stdout)) as (read, write):
            await server.run(read, Unanswered(write, pipe.answers.given, answers), options)
        tasks.cancel_scope.cancel()


@dataclass(slots=True)
class OpenAnswers:
    """The requests of one client that have no answer yet, and whether more are taken: not while the gateway stops."""

    open: set[int | str] = field(default_factory=set)
    is_ending: bool = False
    _answered: anyio.Event = field(default_factory=anyio.Event)

    async def count(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Take note of a request, from when it came."""
        if ctx.request_id is None or ctx.method == "subscriptions/listen":  # which has no answer before the end
            return await call_next(ctx)
        if self.is_ending:
            raise MCPError(types.INTERNAL_ERROR, "the gateway is stopping and takes no more requests")
        self.open.add(ctx.request_id)
        try:
            return await call_next(ctx)
        except CancelledError:
            self.give(ctx.request_id)  # nobody waits for it any more
            raise

    def give(self, id: int | str | None) -> None:
        """Take note of an answer that is on its way."""
        if id in self.open:
            self.open.discard(id)
            self._answered.set()

    async def drain(self) -> None:
        """Take no more requests, and return when all others have their answers."""
        self.is_ending = True
        while self.open:
            self._answered = anyio.Event()
            await self._answered.wait()


class _Stream(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class Unanswered(AbstractAsyncContextManager["Unanswered"]):
    """A stream to the client that leaves out the answers which it has got already."""

    stream: _Stream
    given: dict[int | str, dict[str, Any]]
    answers: OpenAnswers = field(default_factory=OpenAnswers)

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message, unless it answers a request for the second time."""
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id not in self.given:
            await self.stream.send(item)
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self.answers.give(message.id)
            return
        self.answers.give(message.id)
        early = self.given.pop(message.id)
        now = message.result if isinstance(message, JSONRPCResponse) else {}
        if "tools" in early and early["tools"] != now.get("tools"):  # the list that it was given is not the one of now
            method = "notifications/tools/list_changed"
            await self.stream.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method)))

    async def aclose(self) -> None:
        """Close the stream."""
        await self.stream.aclose()

    async def __aexit__(self, *_: object) -> None:
        """Close the stream."""
        await self.aclose()
