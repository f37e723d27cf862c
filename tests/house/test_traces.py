"""One request crosses few of our files, asks once which tools are visible, and resolves a name once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest

from tests.house.source import SOURCE
from tests.surfaces.mcp.listening import Listening, listening

pytestmark = pytest.mark.requirement("P-ONE-VIEW")

FILES = 22
"""The most of our own files that one request may cross, its way through HTTP included."""
SEARCH = {"name": "search_tools", "arguments": {"query": "take a picture of the page"}}
CALL = {"name": "call_tool", "arguments": {"name": "playwright.browser_snapshot", "arguments": {}}}


@dataclass
class Trace:
    """The files of ours that were entered, and how often each function was."""

    files: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)

    def enter(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            self.files.add(frame.f_code.co_filename.removeprefix(f"{SOURCE}/"))
            self.calls[frame.f_code.co_name] += 1


@contextmanager
def traced() -> Iterator[Trace]:
    """Follow what this process does, worker threads included."""
    trace = Trace()
    threading.setprofile_all_threads(trace.enter) if sys.version_info >= (3, 12) else threading.setprofile(trace.enter)
    sys.setprofile(trace.enter)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


async def call(gateway: Listening, session: str, params: dict[str, Any]) -> str:
    reply = await gateway.rpc("tools/call", params, mcp_session_id=session)
    assert reply.status == 200, reply.body
    text: str = reply.json["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize(
    ("params", "expected", "resolved"),
    [(SEARCH, "playwright.browser_snapshot", 0), (CALL, "was called", 1)],
    ids=["search_tools", "call_tool"],
)
async def test_a_meta_tool_is_answered_from_one_view(params: dict[str, Any], expected: str, resolved: int):
    async with listening() as gateway:
        session = await gateway.open_session()
        await call(gateway, session, params)
        with traced() as trace:
            text = await call(gateway, session, params)
    assert expected in text
    assert trace.calls["visible"] == 1
    assert trace.calls["resolve"] == resolved
    assert len(trace.files) <= FILES, sorted(trace.files)


async def test_the_hot_list_is_answered_from_one_view():
    async with listening() as gateway:
        assert (await gateway.ask("/api/v1/tools/hot")).status == 200
        with traced() as trace:
            reply = await gateway.ask("/api/v1/tools/hot")
    assert reply.status == 200
    assert trace.calls["visible"] == 1
    assert trace.calls["resolve"] == 0
    assert len(trace.files) <= FILES, sorted(trace.files)
