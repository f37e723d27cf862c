"""One cheap client for every path: the same bytes, but for the address and the tool's name."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

MODERN, LEGACY = "2026-07-28", "2025-11-25"
TEXT = "forty-two bytes of text, as good as any..."

_PATIENCE_S = 30


class WrongAnswer(Exception):
    """A path did not give the echo back; the message has what it gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What to post, and where."""

    url: str
    tool: str
    arguments: Mapping[str, Any]

    def bodies(self, era: str) -> Iterator[bytes]:
        """One `tools/call` after the other, each under a number of its own."""
        params: dict[str, Any] = {"name": self.tool, "arguments": self.arguments}
        if era == MODERN:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": era,
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        rest = orjson.dumps({"method": "tools/call", "params": params})[1:]
        return (b'{"jsonrpc":"2.0","id":%d,%b' % (number, rest) for number in itertools.count(1))

    async def headers(self, era: str) -> dict[str, str]:
        """The headers that the protocol asks for; in the older era these come from a handshake."""
        common = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": era,
        }
        if era == MODERN:
            return {**common, "Mcp-Method": "tools/call", "Mcp-Name": self.tool}
        return {**common, **await self._handshake(common)}

    async def _handshake(self, headers: Mapping[str, str]) -> dict[str, str]:
        hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        first = orjson.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        async with _session(1) as session:
            async with session.post(self.url, data=first, headers=headers) as response:
                await response.read()
                name = response.headers.get("Mcp-Session-Id")
            found = {"Mcp-Session-Id": name} if name else {}
            second = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
            async with session.post(self.url, data=second, headers={**headers, **found}) as response:
                await response.read()
        return found


Caller = tuple[Mapping[str, str], Iterator[bytes]]
"""The headers and the calls of one client."""


async def prepare(target: Target, era: str, clients: int) -> list[Caller]:
    """Shake hands for some clients; in the older era each has a session of its own, so that numbers never meet."""
    return [(await target.headers(era), target.bodies(era)) for _ in range(clients)]


async def fire(target: Target, callers: Sequence[Caller], *, calls: int, seconds: float) -> tuple[list[float], float]:
    """Post from all callers at once until so many calls or seconds are over; the latencies, and how long it took.

    Raises:
        WrongAnswer: a call did not give the echo back.
    """
    latencies: list[float] = []
    marker = TEXT[::-1].encode()
    started = time.perf_counter()

    async def client(session: aiohttp.ClientSession, headers: Mapping[str, str], bodies: Iterator[bytes]) -> None:
        # `latencies` counts the finished calls; some more may be on their way, which does not matter.
        while len(latencies) < calls and time.perf_counter() - started < seconds:
            sent = time.perf_counter()
            async with session.post(target.url, data=next(bodies), headers=headers) as response:
                answer = await response.read()
            latencies.append(time.perf_counter() - sent)
            if response.status != 200 or marker not in answer:
                raise WrongAnswer(f"{response.status} {answer[:400]!r}")

    async with _session(len(callers)) as session, asyncio.TaskGroup() as group:
        for headers, bodies in callers:
            group.create_task(client(session, headers, bodies))
    return latencies, time.perf_counter() - started


def _session(connections: int) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_S)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections), timeout=timeout)
