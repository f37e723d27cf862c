"""What a server says reaches the client as it was said: content, progress, cancellation, prompts, resources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import PromptReference, ResourceTemplateReference

from portico.text.untrusted import fence
from tests.fleet.install import FLEET
from tests.journeys.running import ERAS, Gateway, client, gateway, text_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.anyio]

SAME = [
    ("echo", {"message": "grüße, 你好"}),
    ("get-tiny-image", {}),
    ("get-structured-content", {"location": "New York"}),
    ("get-sum", {"a": 2, "b": 3}),
    ("get-resource-links", {"count": 2}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-annotated-message", {"messageType": "error", "includeImage": True}),
]


@pytest.fixture(scope="module")
def running(fleet_home: Path) -> Iterator[Gateway]:
    with gateway(fleet_home) as found:
        yield found


@pytest.fixture
async def direct(tmp_path: Path) -> Any:
    """The server itself, with nothing between."""
    entry = FLEET["everything"].entry(tmp_path)
    with (tmp_path / "log").open("w") as log:
        async with Client(stdio_client(StdioServerParameters(**entry), errlog=log), mode="legacy") as connected:
            yield connected


@pytest.mark.requirement("P-PASS-RESULTS")
@pytest.mark.parametrize("era", ERAS)
async def test_results_are_the_same_as_without_a_gateway(era: str, running: Gateway, direct: Client):
    async with client("http", era, surface="discover", running=running) as connected:
        for name, arguments in SAME:
            plain = _fields(await direct.call_tool(name, arguments))
            through = await connected.call_tool(
                "call_tool", {"name": f"everything.{name.replace('-', '_')}", "arguments": arguments}
            )
            assert _fields(through) == plain, name


@pytest.mark.requirement("P-PASS-PROGRESS")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_progress_is_passed_on(transport: str, era: str, running: Gateway, fleet_home: Path):
    heard: list[tuple[float, float | None]] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with client(transport, era, surface="discover", running=running, home=fleet_home) as connected:
        call = {"name": "everything.trigger-long-running-operation", "arguments": {"duration": 0.4, "steps": 4}}
        result = await connected.call_tool("call_tool", call, progress_callback=listen)
    assert "completed" in text_of(result)
    assert [total for _, total in heard] == [4] * len(heard)
    assert [progress for progress, _ in heard] == sorted(progress for progress, _ in heard)
    assert heard[-1] == (4, 4)


@pytest.mark.requirement("P-PASS-ERRORS")
async def test_a_tools_own_error_stays_a_result(running: Gateway):
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        result = await connected.call_tool("filesystem__read_text_file", {"path": "/no/such/file"})
    assert result.is_error
    assert "denied" in text_of(result) or "no such" in text_of(result).lower()


@pytest.mark.requirement("P-PASS-PROMPTS")
@pytest.mark.parametrize("era", ERAS)
async def test_prompts_and_completion_are_passed_through(era: str, running: Gateway, direct: Client):
    plain = {prompt.name for prompt in (await direct.list_prompts()).prompts}
    async with client("http", era, surface="discover", running=running) as connected:
        listed = {p.name for p in (await connected.list_prompts()).prompts if p.name.startswith("everything__")}
        assert listed == {f"everything__{name}" for name in plain}
        got = await connected.get_prompt("everything__args-prompt", {"city": "Rome", "state": "Lazio"})
        same = await direct.get_prompt("args-prompt", {"city": "Rome", "state": "Lazio"})
        assert [m.model_dump() for m in got.messages] == [m.model_dump() for m in same.messages]
        ref = PromptReference(name="everything__completable-prompt")
        completed = await connected.complete(ref, {"name": "department", "value": "E"})
        assert completed.completion.values == ["Engineering"]


@pytest.mark.requirement("P-PASS-RESOURCES")
@pytest.mark.parametrize("era", ERAS)
async def test_resources_and_templates_are_passed_through(era: str, running: Gateway, direct: Client):
    async with client("http", era, surface="discover", running=running) as connected:
        ours = [resource.uri for resource in (await connected.list_resources()).resources]
        theirs = [resource.uri for resource in (await direct.list_resources()).resources]
        assert set(theirs) <= set(ours)
        read = await connected.read_resource(theirs[0])
        same = await direct.read_resource(theirs[0])
        assert [c.model_dump() for c in read.contents] == [c.model_dump() for c in same.contents]
        templates = (await connected.list_resource_templates()).resource_templates
        template = next(t.uri_template for t in templates if "dynamic" in t.uri_template and "text" in t.uri_template)
        dynamic = await connected.read_resource(template.replace("{resourceId}", "7"))
        assert "7" in dynamic.contents[0].text  # type: ignore[union-attr]
        ref = ResourceTemplateReference(uri=template)
        assert (await connected.complete(ref, {"name": "resourceId", "value": "1"})).completion is not None


@pytest.mark.requirement("S0-P1")
@pytest.mark.parametrize("era", ERAS)
async def test_prompts_resources_and_guides_are_found_described_and_read_like_tools(era: str, running: Gateway):
    async with client("http", era, surface="discover", running=running) as connected:

        async def ask(tool: str, **arguments: Any) -> str:
            return text_of(await connected.call_tool(tool, arguments))

        found = await ask("search_tools", query="weather prompt with city and state arguments")
        assert "[prompt]" in found
        card = await ask("describe_tools", names=["everything__args-prompt"])
        assert 'call_tool({"name": "get_prompt"' in card
        own = {"name": "everything__args-prompt", "arguments": {"city": "Rome"}}
        assert "Rome" in await ask("call_tool", name="get_prompt", arguments=own)
        uris = [str(resource.uri) for resource in (await connected.list_resources()).resources]
        document = next(uri for uri in uris if "architecture" in uri)
        assert document in await ask("search_tools", query="architecture document of the everything server")
        text = await ask("call_tool", name="read_resource", arguments={"uri": document})
        assert text == (await connected.read_resource(document)).contents[0].text  # type: ignore[union-attr]
        assert await ask("read_resource", uri=document) == text
        guide = (await connected.read_resource("catalog://guide/everything")).contents[0].text  # type: ignore[union-attr]
        assert fence(guide) in await ask("describe_tools", names=["catalog://guide/everything"])


@pytest.mark.requirement("P-PASS-CANCEL", "F45")
async def test_a_cancelled_call_leaves_the_server_free(running: Gateway):
    async with client("http", "2026-07-28", surface="static", running=running) as connected:
        with anyio.move_on_after(0.3):
            await connected.call_tool(
                "everything__trigger-long-running-operation", {"duration": 30, "steps": 30}, meta={"progressToken": "t"}
            )
        with anyio.fail_after(5):
            assert "ok" in text_of(await connected.call_tool("everything__echo", {"message": "ok"}))


def _fields(result: Any) -> Any:
    """A result without what each connection adds for itself, and without the time of day that a text tells."""
    dumped = result.model_dump(by_alias=True, exclude_none=True)
    dumped.pop("_meta", None)
    dumped.pop("resultType", None)
    return json.loads(re.sub(r"\d+:\d\d:\d\d [AP]M", "now", json.dumps(dumped)))
