"""Asking a server for everything it offers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import anyio
import pytest
from upstream_world import Upstreams

from portico.domain.server import Asked, ServerSpec
from portico.errors import UpstreamError
from portico.providers.mcp import provider as listing
from portico.providers.mcp.stdio import program_mark

pytestmark = pytest.mark.anyio


async def test_all_pages_of_all_lists_are_read(upstreams: Upstreams) -> None:
    counts = {"tools": 25, "prompts": 7, "resources": 12, "resourceTemplates": 3}
    offering = await upstreams.stdio(counts=counts, page_size=5).offer()
    assert [tool["name"] for tool in offering.tools] == [f"tools-{n}" for n in range(25)]
    assert (len(offering.prompts), len(offering.resources), len(offering.templates)) == (7, 12, 3)
    assert offering.limited == ""
    assert offering.server == "s"


@pytest.mark.requirement("P-RENEWED")
async def test_what_is_remembered_is_old_once_its_program_is_another_or_a_day_has_passed(
    upstreams: Upstreams, tmp_path: Path
) -> None:
    program, data = tmp_path / "program", tmp_path / "data.json"
    program.write_text("#!/bin/sh")
    program.chmod(0o755)
    data.write_text("1")
    spec = ServerSpec(name="s", transport="stdio", command=str(program), args=("--x", "data.json"), cwd=str(tmp_path))
    fresh = Asked(at=time(), mark=program_mark(spec))

    async def is_outdated(asked: Asked) -> bool:
        provider = upstreams.provide(spec)
        provider.remember("", asked)
        return await provider.is_outdated()

    assert not await is_outdated(fresh)
    assert await is_outdated(replace(fresh, at=time() - listing.RENEWED_AFTER - 1))
    assert await is_outdated(Asked()), "an older Portico has not noted it"
    data.write_text("12")
    assert await is_outdated(fresh)
    renewed = replace(fresh, mark=program_mark(spec))
    assert not await is_outdated(renewed)
    (tmp_path / "other").write_text("#!/bin/sh")
    (tmp_path / "other").chmod(0o755)
    (tmp_path / "other").rename(program)
    assert await is_outdated(renewed)


@pytest.mark.requirement("P-RENEWED")
async def test_a_server_that_was_asked_is_not_outdated_and_a_remembered_address_is(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    offering = await provider.offer()
    assert offering.asked.mark
    assert not await provider.is_outdated()
    far = upstreams.http("http://127.0.0.1:9/mcp")
    far.remember("", Asked(at=time()))
    assert await far.is_outdated()


async def test_only_declared_lists_are_asked_for(upstreams: Upstreams) -> None:
    offering = await upstreams.stdio(capabilities={"tools": {}}).offer()
    assert (len(offering.tools), offering.prompts, offering.resources) == (2, (), ())
    assert offering.capabilities == {"tools": {}}
    assert {m["method"] for m in upstreams.logged() if m.get("method", "").endswith("/list")} == {"tools/list"}


async def test_server_that_declares_nothing_is_asked_for_tools(upstreams: Upstreams) -> None:
    assert len((await upstreams.stdio(capabilities={}).offer()).tools) == 2


async def test_server_without_tools_offers_the_rest(upstreams: Upstreams) -> None:
    offering = await upstreams.stdio(capabilities={"prompts": {}}).offer()
    assert (offering.tools, len(offering.prompts)) == ((), 2)


async def test_method_not_found_means_an_empty_list(upstreams: Upstreams) -> None:
    broken = ["tools/list", "resources/templates/list"]
    offering = await upstreams.stdio(broken_lists=broken, broken_code=-32601).offer()
    assert (offering.tools, len(offering.prompts), offering.templates, offering.limited) == ((), 2, (), "")


async def test_tools_are_offered_although_other_lists_fail(upstreams: Upstreams) -> None:
    offering = await upstreams.stdio(broken_lists=["prompts/list", "resources/list"]).offer()
    assert (len(offering.tools), offering.prompts, offering.resources, len(offering.templates)) == (2, (), (), 2)
    assert "prompts: not readable" in offering.limited


async def test_failing_tool_list_fails_the_offering(upstreams: Upstreams) -> None:
    with pytest.raises(UpstreamError, match="list is broken"):
        await upstreams.stdio(broken_lists=["tools/list"]).offer()


@pytest.mark.requirement("T34")
async def test_repeated_cursor_stops_the_reading(upstreams: Upstreams) -> None:
    with anyio.fail_after(5):
        offering = await upstreams.stdio(cursor_loop=True, capabilities={"tools": {}}).offer()
    assert "repeats a page" in offering.limited


@pytest.mark.requirement("T34")
@pytest.mark.parametrize(("name", "value", "expected"), [("PAGES", 4, "4 pages"), ("ITEMS", 9, "first 9")])
async def test_endless_list_is_cut_and_says_so(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch, name: str, value: int, expected: str
) -> None:
    monkeypatch.setattr(listing, name, value)
    habits: dict[str, Any] = {"endless_pages": True, "page_size": 2, "counts": {"tools": 10**9}}
    offering = await upstreams.stdio(capabilities={"tools": {}}, **habits).offer()
    assert expected in offering.limited
    assert len(offering.tools) == (8 if name == "PAGES" else 9)


@pytest.mark.requirement("T34")
async def test_twenty_thousand_tools_are_the_most(upstreams: Upstreams) -> None:
    counts = {"tools": 21_000}
    offering = await upstreams.stdio(counts=counts, page_size=7_000, capabilities={"tools": {}}).offer()
    assert len(offering.tools) == 20_000
    assert "20,000" in offering.limited
