"""The four tiers as MCP resources: beside the resources of servers, on every surface, in both eras."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import anyio
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference, ResourceUpdatedNotification

from portico.catalog.prompts_and_resources import PREFIX
from portico.domain.call import Caller
from portico.domain.server import Offering, ServerLabels, ServerSpec, ToolFilter
from portico.domain.tool import Category, ToolId
from portico.domain.usage_and_tiers import Standing, Tier
from portico.storage.memory import MemoryJournal
from portico.surfaces.discover import Discover
from portico.surfaces.mcp import prompt_and_resource_requests as requests
from portico.surfaces.mcp.server import SurfaceServer
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.testing import FakeApplication, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers

ERAS = {"2025-11-25": "legacy", "2026-07-28": "2026-07-28"}
SURFACES = {"discover": Discover, "static": Static, "search": Search}
OURS = ["catalog://hot", "catalog://categories"]
TEMPLATES = ["catalog://category/{name}", "catalog://tool/{server}/{tool}", "catalog://guide/{server}"]
SERVERS = {
    "serena-mcp-server": [
        definition("find_symbol", "Find a symbol.", name_path="string"),
        definition("read/file", "Read a file.", path="string"),
        definition("secret_tool", "Is kept from agents."),
    ],
    "play wright": [definition("日本?", "Has an odd name.")],
}
SPECS = (
    ServerSpec(
        name="serena-mcp-server",
        transport="stdio",
        labels=ServerLabels(category="code/analysis"),
        tools=ToolFilter(deny=("secret_*",)),
    ),
    ServerSpec(name="play wright", transport="stdio", labels=ServerLabels(category="web")),
)
READ = {
    "catalog://hot": "hot",
    "catalog://hot?budget=100": "hot",
    "catalog://categories?budget=100": "category_overview",
    "catalog://categories": "category_overview",
    "catalog://category/code%2Fanalysis": "tool_summaries",
    "catalog://category/web?page=2&page_size=1": "tool_summaries",
    "catalog://tool/serena-mcp-server/find_symbol": "full_schema",
    "catalog://tool/serena-mcp-server/find_symbol?budget=200": "full_schema",
    "catalog://tool/serena-mcp-server/read%2Ffile": "full_schema",
    "catalog://tool/serena-mcp-server/read/file": "full_schema",
    "catalog://tool/play%20wright/%E6%97%A5%E6%9C%AC%3F": "full_schema",
}
UNKNOWN = (
    "catalog://",
    "catalog:hot",
    "catalog://cold",
    "catalog://hot/",
    "catalog://hot#x",
    "catalog://category/",
    "catalog://category/none",
    "catalog://category/web/x",
    "catalog://tool/serena-mcp-server",
    "catalog://tool/serena-mcp-server/",
    "catalog://tool/serena-mcp-server/secret_tool",
    "catalog://tool/../../etc/passwd",
    "catalog://tool/%2e%2e/%00",
    "catalog://tool/%ed%a0%80/%0d%0a",
    "catalog://tool/a/" + "x" * 10_000,
    "CATALOG://HOT",
)
INVALID = {
    "catalog://hot?page=1": "'page' is not asked here; what may follow the `?`: budget",
    "catalog://category/web?page=0": "page is a number from 1 to 999,999,999, not '0'",
    "catalog://category/web?page=x": "page is a number from 1 to 999,999,999, not 'x'",
    "catalog://category/web?page_size=51": "page_size is a number from 1 to 50, not '51'",
    "catalog://category/web?page=1&page=2": "page is given more than once",
    "catalog://category/web?other=1": "'other' is not asked here; what may follow the `?`: page, page_size, budget",
    "catalog://tool/serena-mcp-server/find_symbol?page=2": "'page' is not asked here; what may follow the `?`: budget",
    "catalog://tool/serena-mcp-server/find_symbol?budget=1": "budget is a number from 50 to 1,000,000, not '1'",
}
"""What cannot be asked of a resource that is there, and what is said to it."""


def application() -> FakeApplication:
    return make_test_app(SERVERS, specs=SPECS)


def served(found: FakeApplication, surface: str = "discover") -> SurfaceServer:
    made: Any = SURFACES[surface]
    tier_answers = TierAnswers(gateway=found.gateway, standings=found.gateway.standings)
    return SurfaceServer(found.gateway, made(found.gateway), "1", tier_answers)


async def told(connected: Client, uri: str) -> dict[str, Any]:
    (content,) = (await connected.read_resource(uri)).contents
    body: dict[str, Any] = json.loads(content.text)  # type: ignore[union-attr]
    return body


def client(found: FakeApplication, era: str, surface: str = "discover") -> Client:
    return Client(served(found, surface), mode=ERAS[era])


def upstream(found: FakeApplication) -> None:
    """Let a server list resources, two of them under our scheme."""
    resources = [{"uri": uri, "name": uri} for uri in ("note://one", "catalog://hot", "Catalog://theirs")]
    templates = [{"uriTemplate": uri, "name": uri} for uri in ("{+any}", "catalog://tool/{x}/{y}")]
    offering = Offering(
        server="play wright",
        tools=tuple(SERVERS["play wright"]),
        resources=tuple(resources),
        templates=tuple(templates),
    )
    found.gateway.publisher.accept([(offering, "upstream")])


@contextmanager
def refused() -> Iterator[pytest.ExceptionInfo[MCPError]]:
    with pytest.raises(MCPError) as caught:
        yield caught
    assert caught.value.error.code == -32602


@pytest.mark.requirement("P-RESOURCES-CATALOG")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("surface", SURFACES)
async def test_the_tiers_are_listed_and_read(surface: str, era: str):
    found = application()
    async with client(found, era, surface) as connected:
        assert [str(r.uri) for r in (await connected.list_resources()).resources] == OURS
        listed = (await connected.list_resource_templates()).resource_templates
        assert [template.uri_template for template in listed] == TEMPLATES
        for uri, tier in READ.items():
            (content,) = (await connected.read_resource(uri)).contents
            assert (content.uri, content.mime_type) == (uri, "application/json")
            assert json.loads(content.text)["tier"] == tier  # type: ignore[union-attr]


async def test_a_resource_has_the_bytes_of_the_tier():
    found = application()
    view = await TierAnswers(gateway=found.gateway).as_resources().hot(Caller(surface="discover"))
    async with client(found, "2026-07-28") as connected:
        (content,) = (await connected.read_resource("catalog://hot")).contents
    assert content.text.encode() == view.body  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_not_there_is_unknown_like_any_resource(era: str):
    async with client(application(), era) as connected:
        with refused() as other:
            await connected.read_resource("note://nobody")
        for uri in UNKNOWN:
            with refused() as ours:
                await connected.read_resource(uri)
            assert ours.value.error.message.startswith("unknown_item for ")
            assert ours.value.error.code == other.value.error.code


@pytest.mark.requirement("S1-E14")
@pytest.mark.parametrize("era", ERAS)
async def test_a_page_that_cannot_be_is_told_with_what_can(era: str):
    async with client(application(), era) as connected:
        for uri, says in INVALID.items():
            with refused() as caught:
                await connected.read_resource(uri)
            assert caught.value.error.message == f"invalid_arguments for {uri}; nothing was sent\n- {says}"
            assert caught.value.error.data == {"uri": uri}


async def test_errors_of_resources_name_no_path_of_rest():
    found = make_test_app({**SERVERS, "category": [definition("change_case")]}, specs=SPECS)
    async with client(found, "2026-07-28") as connected:
        for name in ("we", "code%2Fanalisis", "change_case"):
            with refused() as caught:
                await connected.read_resource(f"catalog://category/{name}")
            assert "catalog://categories" in caught.value.error.message
            assert "/api/v1" not in caught.value.error.message


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING")
async def test_a_hidden_tool_looks_missing_as_a_resource():
    without = {name: [tool for tool in tools if tool["name"] != "secret_tool"] for name, tools in SERVERS.items()}
    said = []
    for found in (application(), make_test_app(without, specs=SPECS)):
        async with client(found, "2026-07-28") as connected:
            with refused() as caught:
                await connected.read_resource("catalog://tool/serena-mcp-server/secret_tool")
            said.append(caught.value.error.message)
    assert said[0] == said[1]


@pytest.mark.requirement("P-NO-SHADOWING", "P-RESOURCES-CATALOG")
@pytest.mark.parametrize("era", ERAS)
async def test_a_server_neither_takes_our_scheme_nor_loses_its_resources(era: str):
    found = application()
    upstream(found)
    async with client(found, era) as connected:
        listed = [str(r.uri) for r in (await connected.list_resources()).resources]
        assert listed[:3] == [*OURS, "note://one"]
        theirs = listed[3:]
        assert len(theirs) == 2
        assert all(uri.startswith(PREFIX) for uri in theirs)
        templates = [t.uri_template for t in (await connected.list_resource_templates()).resource_templates]
        assert templates[:3] == TEMPLATES
        assert all(template.startswith(PREFIX) for template in templates[3:])
        (content,) = (await connected.read_resource("catalog://hot")).contents
        assert json.loads(content.text)["tier"] == "hot"  # type: ignore[union-attr]
        with refused():
            await connected.read_resource("catalog://anything/that/{+any}/fits")
    item = found.gateway.snapshot.items.resource(theirs[0])
    assert (item.server, item.original) == ("play wright", "catalog://hot")
    assert found.gateway.snapshot.items.resource(theirs[1]).original == "Catalog://theirs"


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_of_the_templates_are_completed_from_what_is_visible(era: str):
    many = [definition(f"tool_{n:03}", "Is one of many.") for n in range(150)]
    found = make_test_app({**SERVERS, "many": many}, specs=SPECS)
    category, tool, _ = (ResourceTemplateReference(type="ref/resource", uri=uri) for uri in TEMPLATES)

    async with client(found, era) as connected:

        async def completed(ref: Any, name: str, value: str, **chosen: str) -> list[str]:
            return (await connected.complete(ref, {"name": name, "value": value}, chosen or None)).completion.values

        assert await completed(category, "name", "CODE") == ["code/analysis"]
        assert await completed(tool, "server", "") == ["many", "play wright", "serena-mcp-server"]
        assert await completed(tool, "tool", "", server="serena-mcp-server") == ["find_symbol", "read/file"]
        assert await completed(tool, "tool", "secret") == []
        assert await completed(tool, "tool", "find") == ["find_symbol"]
        assert await completed(tool, "nothing", "") == []
        first = (await connected.complete(tool, {"name": "tool", "value": "tool_"})).completion
        assert (len(first.values), first.total, first.has_more) == (100, 150, True)
        with refused():
            await connected.complete(
                ResourceTemplateReference(type="ref/resource", uri="catalog://{x}"), {"name": "x", "value": ""}
            )


@pytest.mark.parametrize("era", ERAS)
async def test_servers_are_completed_by_alias_and_identifier_too(era: str):
    spec = ServerSpec(name="long-name", transport="stdio", labels=ServerLabels(alias="my-alias"))
    found = make_test_app({"long-name": [definition("x")], "other": [definition("y")]}, specs=[spec])
    tool = ResourceTemplateReference(type="ref/resource", uri=TEMPLATES[1])
    async with client(found, era) as connected:

        async def completed(name: str, value: str, **chosen: str) -> list[str]:
            return (await connected.complete(tool, {"name": name, "value": value}, chosen or None)).completion.values

        assert await completed("server", "") == ["long-name", "other"]
        for typed, whole in {"lo": "long-name", "MY": "my-alias", "my_": "my_alias"}.items():
            assert await completed("server", typed) == [whole]
        for server in ("long-name", "my-alias", "my_alias", "MY-ALIAS"):
            assert await completed("tool", "", server=server) == ["x"]
        assert await completed("tool", "", server="nobody") == []


@pytest.mark.requirement("P-RESOURCES-CATALOG")
@pytest.mark.parametrize("era", ERAS)
async def test_every_resource_leads_on_to_one_that_can_be_read(era: str):
    wide = definition("wide", "Does it. " * 500, **{f"parameter_{n}": "string" for n in range(300)})
    many = [definition(f"tool_{n:02}", "Is one of many.", path="string") for n in range(45)]
    found = make_test_app(
        {"a/b": [wide, *many]},
        specs=[ServerSpec(name="a/b", transport="stdio", labels=ServerLabels(category="odd shelf"))],
    )
    async with client(found, era) as connected:
        assert (await told(connected, "catalog://hot"))["next"] == "catalog://categories"
        assert (await told(connected, "catalog://categories"))["next"] == TEMPLATES[0]
        shelf = await told(connected, "catalog://category/odd%20shelf?page_size=10")
        assert shelf["next"] == "catalog://category/odd%20shelf?page=2&page_size=10"
        assert (await told(connected, shelf["next"]))["pagination"]["page"] == 2
        assert (await told(connected, "catalog://category/odd%20shelf?page=3"))["next"] == TEMPLATES[1]
        for uri in ("catalog://hot", "catalog://category/odd%20shelf", "catalog://tool/a%2Fb/wide"):
            short = await told(connected, f"{uri}?budget=150")
            assert short["truncated"], uri
            assert short["next"].startswith(f"{uri}?budget=")
            assert not (await told(connected, short["next"]))["truncated"], uri
        with refused() as caught:
            await connected.read_resource("catalog://category/none")
        assert "all of them: catalog://categories" in caught.value.error.message


async def test_who_watches_a_tier_hears_of_a_new_snapshot():
    found = application()
    server = served(found)
    before = found.gateway.snapshot
    with anyio.fail_after(10):
        async with (
            Client(server, mode="2026-07-28") as connected,
            connected.listen(resource_subscriptions=["catalog://hot", "catalog://nothing"]) as changes,
        ):
            found.gateway.publisher.accept([(Offering(server="play wright", tools=()), "upstream")])
            await server.tell(server.publish(before, found.gateway.snapshot))
            event = await anext(aiter(changes))
    assert event == ResourceUpdated(uri="catalog://hot")


async def test_who_watches_a_tier_hears_of_new_standings_and_categories_and_of_nothing_else():
    found = application()
    server = served(found)
    snapshot, standings = found.gateway.snapshot, found.gateway.standings
    with anyio.fail_after(10):
        async with (
            Client(server, mode="2026-07-28") as connected,
            connected.listen(resource_subscriptions=OURS) as changes,
            anyio.create_task_group() as tasks,
        ):
            standings.subscribe(lambda: tasks.start_soon(server.announce_tiers))
            await server.tell(server.publish(snapshot, snapshot))
            standings.replace_categories({"web": Category(name="web", display_name="The web")})
            first = await anext(aiter(changes))
            standings.replace_tiers({ToolId("serena-mcp-server", "read/file"): Standing(tier=Tier.HOT, score=0.9)})
            later = {await anext(aiter(changes)), await anext(aiter(changes))}
    assert first == ResourceUpdated(uri="catalog://categories")
    assert later == {ResourceUpdated(uri=uri) for uri in OURS}


@pytest.mark.filterwarnings("ignore:resources/.* is removed as of 2026-07-28")
async def test_a_client_of_the_handshake_era_hears_of_new_standings_too():
    found = application()
    server = served(found)
    heard: list[str] = []
    arrived = anyio.Event()

    async def listen(message: object) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.append(str(message.params.uri))
            arrived.set()

    with anyio.fail_after(10):
        async with Client(server, mode="legacy", message_handler=listen) as connected:
            await connected.subscribe_resource("catalog://hot")
            await connected.subscribe_resource("catalog://tool/play%20wright/%E6%97%A5%E6%9C%AC%3F")
            await server.announce_tiers()
            found.gateway.standings.replace_tiers(
                {ToolId("serena-mcp-server", "read/file"): Standing(tier=Tier.HOT, score=0.9)}
            )
            await server.announce_tiers()
            await arrived.wait()
            await connected.unsubscribe_resource("catalog://hot")
            found.gateway.publisher.withdraw("play wright")
            arrived = anyio.Event()
            await server.announce_tiers()
            await arrived.wait()
    assert heard == ["catalog://hot", "catalog://tool/play%20wright/%E6%97%A5%E6%9C%AC%3F"]


@pytest.mark.filterwarnings("ignore:resources/.* is removed as of 2026-07-28")
@pytest.mark.requirement("P-JOURNAL-DOORS")
async def test_who_watches_a_tier_has_not_looked_at_it():
    found = application()
    server = served(found)
    with anyio.fail_after(10):
        async with Client(server, mode="legacy") as connected:
            await connected.subscribe_resource("catalog://hot")
            with refused():
                await connected.subscribe_resource("catalog://category/none")
            await server.announce_tiers()
            assert list(cast(MemoryJournal, found.gateway.executor.journal).lookups) == []
            await connected.read_resource("catalog://hot")
    assert len(cast(MemoryJournal, found.gateway.executor.journal).lookups) == 1


@pytest.mark.filterwarnings("ignore:resources/.* is removed as of 2026-07-28")
@pytest.mark.requirement("P-SESSION-SIZE")
async def test_one_client_watches_so_many_resources_and_lets_them_go_with_its_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(requests, "MOST_WATCHED", 2)
    server = served(application())
    with anyio.fail_after(10):
        async with Client(server, mode="legacy") as connected:
            for _ in range(3):
                await connected.subscribe_resource("catalog://hot")
                await connected.unsubscribe_resource("catalog://hot")
            await connected.subscribe_resource("catalog://hot")
            await connected.subscribe_resource("catalog://categories")
            with refused():
                await connected.subscribe_resource("catalog://category/misc")
            assert len(server._items._watched) == 2
        while server._items._watched:
            await anyio.lowlevel.checkpoint()
        async with Client(server, mode="2026-07-28") as modern:
            with refused():
                async with modern.listen(resource_subscriptions=["catalog://hot"] * 3):
                    pass
    assert not server._items._subscribers


async def test_without_a_walk_there_are_no_such_resources():
    found = application()
    async with Client(SurfaceServer(found.gateway, Discover(found.gateway), "1"), mode="legacy") as connected:
        assert (await connected.list_resources()).resources == []
        with refused():
            await connected.read_resource("catalog://hot")
