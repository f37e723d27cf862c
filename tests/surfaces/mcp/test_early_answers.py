"""The answers that are built by hand say what the SDK's server says, and are given only where it would say it."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import version as versions

from portico import Catalog, config
from portico.config import CatalogSettings, GatewaySettings, ScriptSettings, StorageSettings
from portico.domain import VERSION
from portico.domain.call import Caller
from portico.gateway import DESCRIBE_LIMIT
from portico.server.early_answers import greeting_of, remember
from portico.server.run import SURFACES
from portico.surfaces.mcp import instructions as discover_tools
from portico.surfaces.mcp import stdio_opening as handshake
from portico.surfaces.mcp import surface as kept
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.mcp.stdio_opening import EarlyAnswers, Greeting
from portico.wiring import Parts, assemble

CLIENT = {"name": "someone", "version": "1"}
REVISIONS = [*versions.HANDSHAKE_PROTOCOL_VERSIONS, "2023-01-01", "", "2026-07-28"]


def initialize(revision: str = "2025-11-25", **params: Any) -> dict[str, Any]:
    """The first message of the handshake era."""
    given = {"protocolVersion": revision, "capabilities": {}, "clientInfo": CLIENT, **params}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": given}


def modern(method: str, id: int | str = 1, **params: Any) -> dict[str, Any]:
    """A message of the era without a handshake."""
    meta = {handshake.VERSION_KEY: "2026-07-28", handshake.CLIENT_KEY: CLIENT, handshake.CAPABILITIES_KEY: {}}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta, **params}}


def server_of(surface: str = "discover") -> SurfaceServer:
    """The SDK's server over a small catalog."""
    catalog = Catalog()
    catalog.add_tools("shop", [{"name": "buy", "inputSchema": {"type": "object"}}], call=lambda name, arguments: name)
    return SurfaceServer(
        catalog._application.gateway,
        SURFACES[surface](catalog._application, GatewaySettings(home=config.find_paths({}, Path()))),
        VERSION,
    )


async def sdk_answers(server: SurfaceServer, *lines: bytes) -> list[dict[str, Any]]:
    """What the SDK's server sends back, message by message."""
    to_server, read = anyio.create_memory_object_stream[Any](len(lines) + 1)
    write, from_server = anyio.create_memory_object_stream[Any](len(lines) + 8)
    for line in lines:
        try:
            to_server.send_nowait(SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)))
        except ValueError as error:
            to_server.send_nowait(error)
    answers = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run, read, write, server.create_initialization_options())
            for _ in lines:
                item = await from_server.receive()
                answers.append(json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True)))
            tasks.cancel_scope.cancel()
    for stream in (to_server, read, write, from_server):
        await stream.aclose()
    return answers


async def greeted_by(server: SurfaceServer) -> Greeting:
    """What the early answers know after a run of this server."""
    tools = await server.surface.tools(server.caller)
    return Greeting(str(server.instructions), VERSION, json.loads(json.dumps(tools)))


@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("surface", SURFACES)
async def test_initialize_is_answered_as_the_sdk_would(surface: str, revision: str) -> None:
    server = server_of(surface)
    line = json.dumps(initialize(revision)).encode()
    early = EarlyAnswers(await greeted_by(server)).answer(line)
    assert early is not None
    assert [json.loads(early)] == await sdk_answers(server, line)


@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("surface", SURFACES)
async def test_the_other_era_is_answered_as_the_sdk_would(surface: str) -> None:
    server = server_of(surface)
    lines = [json.dumps(modern(method, id)).encode() for method, id in (("server/discover", "a"), ("tools/list", 2))]
    early = EarlyAnswers(await greeted_by(server))
    answered = [json.loads(early.answer(line) or b"null") for line in lines]
    assert answered == await sdk_answers(server, *lines)


@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("params", [{}, {"params": {}}, {"params": {"_meta": {"progressToken": 5}}}])
async def test_the_list_of_tools_is_the_sdks(params: dict[str, Any]) -> None:
    server = server_of()
    lines = [json.dumps(initialize()), json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list", **params})]
    early = EarlyAnswers(await greeted_by(server))
    answered = [json.loads(early.answer(line.encode()) or b"null") for line in lines]
    assert answered == await sdk_answers(server, *(line.encode() for line in lines))


def test_the_revisions_are_those_of_the_sdk() -> None:
    assert handshake.HANDSHAKE_VERSIONS == versions.HANDSHAKE_PROTOCOL_VERSIONS
    assert handshake.MODERN_VERSIONS == versions.MODERN_PROTOCOL_VERSIONS
    assert (handshake.VERSION_KEY, handshake.CLIENT_KEY) == (
        mcp_types.PROTOCOL_VERSION_META_KEY,
        mcp_types.CLIENT_INFO_META_KEY,
    )
    assert handshake.CAPABILITIES_KEY == mcp_types.CLIENT_CAPABILITIES_META_KEY
    assert handshake.SERVER_KEY == mcp_types.SERVER_INFO_META_KEY


ODD = st.sampled_from([None, True, 0, 1.5, "", "x", [], [1], {}, {"a": 1}, {"a": {}}, {"listChanged": 1}])
PLACES = [
    ("id",), ("jsonrpc",), ("method",), ("params",), ("extra",), ("params", "protocolVersion"),
    ("params", "capabilities"), ("params", "clientInfo"), ("params", "_meta"), ("params", "other"),
    ("params", "capabilities", "roots"), ("params", "capabilities", "roots", "listChanged"),
    ("params", "capabilities", "sampling"), ("params", "capabilities", "sampling", "tools"),
    ("params", "capabilities", "elicitation"), ("params", "capabilities", "elicitation", "form"),
    ("params", "capabilities", "experimental"), ("params", "capabilities", "extensions"),
    ("params", "capabilities", "tasks"), ("params", "capabilities", "unheard"),
    ("params", "clientInfo", "name"), ("params", "clientInfo", "version"), ("params", "clientInfo", "title"),
    ("params", "clientInfo", "icons"), ("params", "clientInfo", "websiteUrl"), ("params", "clientInfo", "odd"),
    ("params", "_meta", "progressToken"), ("params", "_meta", handshake.VERSION_KEY),
    ("params", "_meta", handshake.CLIENT_KEY), ("params", "_meta", handshake.CAPABILITIES_KEY),
]  # fmt: skip


def put(message: dict[str, Any], place: tuple[str, ...], value: Any) -> None:
    """Set one value deep in a message, as far as there is a table to set it in."""
    table: Any = message
    for key in place[:-1]:
        table = table.setdefault(key, {}) if isinstance(table, dict) else None
    if isinstance(table, dict):
        table[place[-1]] = value


@pytest.mark.requirement("P-FIRST-ANSWER")
@given(
    message=st.sampled_from([initialize(), modern("server/discover"), modern("tools/list")]),
    changes=st.lists(st.tuples(st.sampled_from(PLACES), ODD), max_size=3),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_answered_early_is_what_the_sdk_would_say(
    message: dict[str, Any], changes: list[tuple[tuple[str, ...], Any]]
) -> None:
    message = deepcopy(message)
    for place, value in changes:
        put(message, place, deepcopy(value))
    line = json.dumps(message).encode()

    async def compared() -> None:
        server = server_of()
        early = EarlyAnswers(await greeted_by(server)).answer(line)
        if early is not None:
            assert [json.loads(early)] == await sdk_answers(server, line)

    anyio.run(compared)


def plain(method: str, **params: Any) -> dict[str, Any]:
    """A message of the handshake era."""
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


LATER = [
    plain("ping"), plain("ping", _meta={}), plain("tools/list"), plain("tools/list", cursor=""), plain("prompts/list"),
    plain("tools/call", name="buy", arguments={}), plain("unheard/of"), initialize("2024-11-05"),
    modern("tools/list"), modern("server/discover"), modern("ping"),
]  # fmt: skip


@pytest.mark.requirement("P-FIRST-ANSWER")
@given(
    first=st.sampled_from([initialize(), modern("server/discover"), modern("tools/list"), plain("ping")]),
    rest=st.lists(st.sampled_from(LATER), max_size=6),
)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_conversations_go_on_as_the_sdk_would_lead_them(first: dict[str, Any], rest: list[dict[str, Any]]) -> None:
    lines = [json.dumps({**message, "id": id}).encode() for id, message in enumerate((first, *rest))]

    async def compared() -> None:
        server = server_of()
        early = EarlyAnswers(await greeted_by(server))
        given = {answer["id"]: answer for line in lines if (answer := json.loads(early.answer(line) or b"null"))}
        said = {answer["id"]: answer for answer in await sdk_answers(server, *lines)}
        assert given == {id: said[id] for id in given}

    anyio.run(compared)


def test_what_can_be_answered_need_not_wait_for_what_cannot() -> None:
    early = EarlyAnswers(Greeting("hello", VERSION, []))
    answers = [
        early.answer(json.dumps({**message, "id": id}).encode())
        for id, message in enumerate([initialize(), plain("prompts/list"), plain("ping"), plain("tools/list")])
    ]
    assert [answer is not None for answer in answers] == [True, False, True, True]
    assert early.answer(b"nonsense") is None
    assert early.answer(json.dumps({**plain("ping"), "id": 9}).encode()) is None


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"null", b"\xff{}", b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"initialize"}', b"[" * 60_000,
        json.dumps(initialize(clientInfo={"name": "\ud800", "version": "1"})).encode(),
        json.dumps(initialize(clientInfo={"name": "x" * 70_000, "version": "1"})).encode(),
        json.dumps({**initialize(), "id": 2**70}).encode(),
        json.dumps(modern("tools/list", cursor="5")).encode(),
    ],
)  # fmt: skip
def test_what_is_not_plain_waits_with_all_that_follows(line: bytes) -> None:
    early = EarlyAnswers(Greeting("hello", VERSION, []))
    assert early.answer(line) is None
    assert early.answer(json.dumps(initialize()).encode()) is None
    assert early.given == {}


def test_a_second_request_with_the_same_id_waits() -> None:
    early = EarlyAnswers(Greeting("hello", VERSION, []))
    assert early.answer(json.dumps(modern("server/discover")).encode()) is not None
    assert early.answer(json.dumps(modern("tools/list")).encode()) is None


def test_without_a_handshake_nothing_is_listed() -> None:
    early = EarlyAnswers(Greeting("hello", VERSION, []))
    assert early.answer(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}') is None


def settings_in(home: Path, **given: Any) -> GatewaySettings:
    """Settings of a home of its own."""
    return GatewaySettings(home=config.find_paths({"PORTICO_HOME": str(home)}, home), **given)


def test_a_greeting_is_remembered_for_the_same_settings_alone(tmp_path: Path) -> None:
    same = settings_in(tmp_path)
    remember(same, "discover", "what there is", [{"name": "one"}])
    assert greeting_of(same, "discover") == Greeting("what there is", VERSION, [{"name": "one"}])
    for other, surface in (
        (settings_in(tmp_path, catalog=CatalogSettings(pins=("two",))), "discover"),
        (same, "search"),
    ):
        found = greeting_of(other, surface)
        assert found is not None
        assert found.instructions != "what there is"
        assert found.tools is None
    assert greeting_of(same, "unheard") is None


@pytest.mark.requirement("P-FIRST-ANSWER")
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("surface", ["discover", "gateway"])
async def test_the_first_start_lists_what_the_surface_lists(tmp_path: Path, surface: str, scripts: bool) -> None:
    mine = settings_in(tmp_path, scripts=ScriptSettings(enabled=scripts))
    found = greeting_of(mine, surface)
    application = assemble(Parts(settings=mine))
    assert found is not None
    assert found.tools == await SURFACES[surface](application, mine).tools(Caller())
    pinned = greeting_of(settings_in(tmp_path, catalog=CatalogSettings(pins=("x",))), surface)
    assert pinned is not None
    assert pinned.tools is None


def test_what_is_written_twice_is_the_same() -> None:
    assert (discover_tools.READ, discover_tools.MOST_DESCRIBED) == (kept.READ, DESCRIBE_LIMIT)


def test_a_greeting_in_pieces_is_made_anew(tmp_path: Path) -> None:
    mine = settings_in(tmp_path)
    remember(mine, "discover", "what there is", [])
    [file] = (tmp_path / "greetings").iterdir()
    for content in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000):
        file.write_bytes(content)
        found = greeting_of(mine, "discover")
        assert found is not None
        assert "search_tools" in found.instructions


def test_nothing_is_written_where_nothing_is_to_be_remembered(tmp_path: Path) -> None:
    remember(settings_in(tmp_path, storage=StorageSettings(store="memory")), "discover", "what there is", [])
    assert not (tmp_path / "greetings").exists()


def test_a_long_list_is_not_remembered(tmp_path: Path) -> None:
    mine = settings_in(tmp_path)
    remember(mine, "discover", "what there is", [{"name": "x" * 70_000}])
    assert greeting_of(mine, "discover") == Greeting("what there is", VERSION, None)


def test_an_empty_application_has_a_greeting_on_every_surface(tmp_path: Path) -> None:
    application = assemble(Parts())
    for name, make in SURFACES.items():
        found = greeting_of(settings_in(tmp_path), name)
        assert found is not None
        assert make(application, settings_in(tmp_path)).name == name
        assert 0 < len(found.instructions) < 512
