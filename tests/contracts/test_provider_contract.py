"""What every provider promises: local, upstream, or a database."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from anyio import fail_after
from tests.registries import Shop, postgres_shop, sqlite_shop

from portico.domain.server import ServerSpec, State
from portico.errors import CallError
from portico.protocols import Provider
from portico.providers.mcp import UpstreamProvider
from portico.providers.python import LocalProvider
from portico.providers.sql.registry.provider import RegistryProvider
from portico.testing import FakeProvider, definition

TOOLS = [definition("echo", "Say it again", text="string"), definition("fail", "Fail")]
TINY = Path(__file__).with_name("tiny_server.py")


def run(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    text = f"{name} {json.dumps(arguments, sort_keys=True)}"
    return {"content": [{"type": "text", "text": text}], "isError": name == "fail"}


def local() -> Provider:
    provider = LocalProvider(server="tiny")
    for tool in TOOLS:
        provider.add(tool, run)
    return provider


def upstream() -> Provider:
    spec = ServerSpec(name="tiny", transport="stdio", command=sys.executable, args=(str(TINY), json.dumps(TOOLS)))
    return UpstreamProvider(spec, on_change=lambda server: None, on_notice=lambda *notice: None, client_version="1")


def fake() -> Provider:
    provider = FakeProvider(server="tiny", tools=list(TOOLS))
    for name, arguments in (("echo", {"text": "hi"}), ("fail", {})):
        provider.returns(name, run(name, arguments))
    return provider


PROVIDERS: dict[str, Callable[[], Provider]] = {"local": local, "upstream": upstream, "fake": fake}
DATABASES: dict[str, str] = {"sqlite": "sqlite_registry", "postgresql": "postgres_registry"}


@pytest.fixture
def sqlite_registry(tmp_path: Path) -> Shop:
    return sqlite_shop(tmp_path / "shop.db")


@pytest.fixture
def postgres_registry(postgres_url: str) -> Shop:
    return postgres_shop(postgres_url)


@pytest.fixture(params=DATABASES)
async def registry(request: pytest.FixtureRequest) -> AsyncIterator[RegistryProvider]:
    shop: Shop = request.getfixturevalue(DATABASES[request.param])
    made = RegistryProvider(shop.spec(name="tiny"))
    with fail_after(30):
        yield made
        await made.aclose()


@pytest.fixture(params=PROVIDERS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[Provider]:
    made = PROVIDERS[request.param]()
    with fail_after(30):
        yield made
        await made.aclose()


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_a_provider_says_who_it_is_without_starting_anything(provider: Provider) -> None:
    assert provider.server == "tiny"
    assert provider.source in ("local", "upstream")
    assert isinstance(provider.fingerprint, str)
    assert provider.health().pid is None


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_an_offering_is_whole_and_raw(provider: Provider) -> None:
    offering = await provider.offer()
    assert offering.server == "tiny"
    assert [dict(tool) for tool in offering.tools] == TOOLS
    assert provider.health().state is not State.FAILED
    assert await provider.offer() == offering


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_a_result_object_is_passed_on_unchanged(provider: Provider) -> None:
    result = await provider.call("echo", {"text": "hi"}, meta={}, on_progress=None)
    assert result["content"] == [{"type": "text", "text": 'echo {"text": "hi"}'}]
    assert not result.get("isError")


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_a_tool_that_says_no_has_answered(provider: Provider) -> None:
    result = await provider.call("fail", {}, meta={}, on_progress=None)
    assert result["isError"] is True


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_what_cannot_be_done_is_a_call_error(provider: Provider, request: pytest.FixtureRequest) -> None:
    if "fake" in request.node.name:
        provider.fails(CallError("tiny"))  # type: ignore[attr-defined]
    with pytest.raises(CallError):
        await provider.request("prompts/get", {"name": "x"})


@pytest.mark.requirement("P-PROVIDER-CONTRACT")
async def test_a_registry_keeps_the_same_contract(registry: RegistryProvider) -> None:
    provider: Provider = registry
    assert (provider.server, provider.source) == ("tiny", "database")
    assert (provider.health().state, provider.health().pid) == (State.UNKNOWN, None)
    offering = await provider.offer()
    assert (offering.server, await provider.offer()) == ("tiny", offering)
    assert {"sample_sales", "sample_sales_by_region"} <= {tool["name"] for tool in offering.tools}
    assert provider.health().state is State.RUNNING
    result = await provider.call("sample_sales", {"region": "north"}, meta={}, on_progress=None)
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    assert not result.get("isError")
    for what in (provider.call("nothing", {}, meta={}, on_progress=None), provider.request("prompts/get", {})):
        with pytest.raises(CallError):
            await what
    await provider.aclose()
    await provider.aclose()


async def test_closing_twice_is_fine(provider: Provider) -> None:
    await provider.offer()
    await provider.aclose()
    await provider.aclose()
