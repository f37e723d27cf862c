"""What a script saves: reading a folder of notes and remembering their decisions, call by call and in one script.

`python bench/journey.py` starts a gateway over two real servers (files and memory, from the test installation), does
the same work in both ways as an agent on `discover` would, and counts everything that goes through the agent: what it
writes and what it reads. Prints a Markdown table and one JSON line. Exits with 1 when single calls cost 5,000 tokens or
less, when the script costs 300 or more, or when the two ways do not come to the same end.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import orjson

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fleet.install import FLEET
from tests.journeys.meetings import write_notes
from tests.journeys.running import Gateway, client, gateway, text_of, write_config

from portico.rendering.budget import counter_for

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "remember_decisions.lua"
LEAST, MOST = 5_000, 300
"""Tokens that single calls cost at least, and a script at most."""


class Agent:
    """Calls tools, and counts what it writes and reads."""

    def __init__(self, connected: Any, tokens: str) -> None:
        self._connected, self._counter = connected, counter_for(tokens)
        self.calls = self.written = self.read = 0

    async def use(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """One call of a listed tool."""
        answer = text_of(await self._connected.call_tool(tool, dict(arguments)))
        self.calls += 1
        self.written += self._counter.count(orjson.dumps(arguments).decode())
        self.read += self._counter.count(answer)
        return answer

    async def call(self, name: str, **arguments: Any) -> str:
        """One call through `call_tool`."""
        return await self.use("call_tool", {"name": name, "arguments": arguments})

    def row(self) -> dict[str, int]:
        """What it came to."""
        return {"calls": self.calls, "written": self.written, "read": self.read, "tokens": self.written + self.read}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", choices=("estimate", "exact"), default="estimate", help="what counts tokens")
    options = parser.parse_args()
    for name in ("filesystem", "memory"):
        FLEET[name].install()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for way, work in (("single calls", _one_by_one), ("one script", _in_a_script)):
            figures[way] = anyio.run(_measure, Path(folder) / way.replace(" ", "-"), work, options.tokens)
    same = figures["single calls"].pop("kept") == figures["one script"].pop("kept") > 0
    print("| way | calls | tokens written | tokens read | together |\n|---|---:|---:|---:|---:|")
    for way, row in figures.items():
        print(f"| {way} | {row['calls']} | {row['written']:,} | {row['read']:,} | {row['tokens']:,} |")
    print(json.dumps({"bench": "journey", "counter": options.tokens, "same": same, **figures}))
    good = figures["single calls"]["tokens"] > LEAST and figures["one script"]["tokens"] < MOST
    return 0 if same and good else 1


async def _measure(home: Path, work: Any, tokens: str) -> dict[str, int]:
    workspace = home / "work"
    write_notes(workspace / "notes")
    write_config(home, {name: FLEET[name].entry(workspace) for name in ("filesystem", "memory")})
    with gateway(home) as running:
        return await _work(running, workspace, work, tokens)


async def _work(running: Gateway, workspace: Path, work: Any, tokens: str) -> dict[str, int]:
    async with client("http", "2026-07-28", surface="discover", running=running) as connected:
        agent = Agent(connected, tokens)
        await work(agent, workspace / "notes")
        kept = await connected.call_tool("call_tool", {"name": "memory.read_graph", "arguments": {}})
        return {**agent.row(), "kept": text_of(kept).count('"decision"')}


async def _one_by_one(agent: Agent, folder: Path) -> None:
    """The agent reads every note, and writes down what it has found."""
    listing = await agent.call("filesystem.list_directory", path=str(folder))
    found = []
    for name in re.findall(r"\[FILE\] (\S+\.md)", listing):
        note = await agent.call("filesystem.read_text_file", path=f"{folder}/{name}")
        found += [(what, who, name) for what, who in re.findall(r"DECIDED: (.*?) \((\w+)\)", note)]
    entities = [
        {"name": what, "entityType": "decision", "observations": [f"by {who}", f"in {name}"]}
        for what, who, name in found
    ]
    await agent.call("memory.create_entities", entities=entities)


async def _in_a_script(agent: Agent, folder: Path) -> None:
    """The agent writes the example as its script, with the folder in it."""
    source = EXAMPLE.read_text(encoding="utf-8").replace("args.folder", json.dumps(str(folder)))
    answer = await agent.use("run_script", {"script": source})
    assert answer.startswith("remembered "), answer


if __name__ == "__main__":
    sys.exit(main())
