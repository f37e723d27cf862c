"""Results that fit: 50 MB through a real gateway, and what a small result pays: `python bench/results.py [--mb N]`.

Prints a Markdown table and one JSON line. Growth is that of the gateway's process, beside the size of the result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import yaml
from mcp import Client

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.processes import free_port, listening

from portico.domain.call import Call, Caller, Result
from portico.execution.learned_schemas import SchemaLearner
from portico.rendering.budget import TokenEstimate
from portico.results.truncate import Truncator
from portico.testing import definition, make_test_app

SERVER = """
import json, sys
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}, "offset": {"type": "integer"}}}
def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "large", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "rows", "inputSchema": SCHEMA}]}
    count = params["arguments"]["count"]
    rows = [{"n": n, "mail": f"user{n}@example.com", "text": "some words about it"} for n in range(count)]
    return {"content": [{"type": "text", "text": json.dumps({"rows": rows, "total": len(rows)})}]}
for line in sys.stdin:
    request = json.loads(line)
    if request.get("id") is None:
        continue
    known = request["method"] in ("initialize", "tools/list", "tools/call")
    said = {"error": {"code": -32601, "message": "no such method"}}
    if known:
        said = {"result": answer(request["method"], request.get("params"))}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **said}), flush=True)
"""
ROW_BYTES = 80
CALLS = 20_000
ROUNDS = 7


def main() -> int:
    """Measure, print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=float, default=50.0, help="the size of the large result")
    options = parser.parse_args()
    found = {"small": asyncio.run(_small())}
    for where, memory_mb in (("memory", 64), ("store", 0)):
        found[where] = asyncio.run(_large(options.mb, memory_mb))
    print(_table(found))
    print(json.dumps({"bench": "results", "mb": options.mb, **found}))
    return 0


async def _small() -> dict[str, float]:
    """Microseconds that truncation and learning add to a call whose result fits."""
    tool = next(iter(make_test_app({"fake": [definition("list")]}).gateway.snapshot.tools.values()))
    truncator, shapes, caller = Truncator(counter=TokenEstimate()), SchemaLearner(), Caller()
    call = Call(tool="fake.list", arguments={})
    results = {
        "text_us": Result({"content": [{"type": "text", "text": "a short answer " * 20}]}),
        "json_us": Result(_structured(10)),
        "near_us": Result({"content": [{"type": "text", "text": json.dumps(_structured(100)["structuredContent"])}]}),
    }
    found = {}
    for name, result in results.items():
        started = perf_counter()
        for _ in range(CALLS // 20 if name == "near_us" else CALLS):
            shapes.learn(tool, result)
            await truncator.truncate(caller, call, tool, result)
        found[name] = round(1e6 * (perf_counter() - started) / (CALLS // 20 if name == "near_us" else CALLS), 2)
    return found


def _structured(count: int) -> dict[str, Any]:
    value = {"rows": [{"n": n, "mail": f"user{n}@example.com"} for n in range(count)]}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


async def _large(mb: float, memory_mb: int) -> dict[str, float]:
    with _gateway(memory_mb) as (url, pid):
        async with Client(url) as client:
            await client.call_tool("call_tool", {"name": "large.rows", "arguments": {"count": 1}})
            _forget_peak(pid)
            before = _memory(pid)["VmRSS"]
            count = int(mb * 1e6 / ROW_BYTES)
            answer = await client.call_tool("call_tool", {"name": "large.rows", "arguments": {"count": count}})
            peak, after = _memory(pid)["VmHWM"], _memory(pid)["VmRSS"]
            shown, notice = (block.text for block in answer.content)  # type: ignore[union-attr]
            json.loads(shown)
            handle = re.findall(r'"id": "(r_[\w-]+)"', notice)[0]
            asked = {"page": {"cursor": str(count // 2)}}
            asked |= {"grep": {"grep": f"user{count - 1}@"}, "none": {"grep": "no such word"}}
            times = {name: await _timed(client, {"id": handle, **given}) for name, given in asked.items()}
    return {
        "tokens": TokenEstimate().count(shown + notice),
        "growth": round((peak - before) / mb, 2),
        "kept": round((after - before) / mb, 2),
        **{f"{name}_ms": ms for name, ms in times.items()},
    }


async def _timed(client: Client, arguments: dict[str, str]) -> float:
    times = []
    for _ in range(ROUNDS):
        started = perf_counter()
        answer = await client.call_tool("read_result", arguments)
        times.append(1e3 * (perf_counter() - started))
        assert not answer.is_error, answer
    return round(statistics.median(times), 1)


@contextmanager
def _gateway(memory_mb: int) -> Iterator[tuple[str, int]]:
    with TemporaryDirectory() as folder:
        server = Path(folder) / "large.py"
        server.write_text(SERVER)
        servers = {"large": {"command": sys.executable, "args": [str(server)]}}
        config = {"servers": servers, "results": {"memory_mb": memory_mb}}
        (Path(folder) / "portico.yaml").write_text(yaml.safe_dump(config))
        port = free_port()
        command = [sys.executable, "-m", "portico", "serve", "--config", f"{folder}/portico.yaml", "--port", str(port)]
        with listening(command, port, {"PORTICO_HOME": folder}) as pid:
            yield f"http://127.0.0.1:{port}/mcp", pid


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _memory(pid: int) -> dict[str, float]:
    """The memory that a process holds, and the most that it held, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {name: int(re.findall(rf"{name}:\s+(\d+)", status)[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM")}


def _table(found: dict[str, dict[str, float]]) -> str:
    lines = [
        "| kept in | tokens of the answer | growth, peak | after | a page | a grep | a grep in vain |",
        "|---" * 7 + "|",
    ]
    for where in ("memory", "store"):
        row = found[where]
        times = " | ".join(f"{row[name]} ms" for name in ("page_ms", "grep_ms", "none_ms"))
        lines.append(f"| {where} | {row['tokens']:,} | {row['growth']} x | {row['kept']} x | {times} |")
    small = found["small"]
    paid = f"{small['text_us']} us for text, {small['json_us']} us with structured content"
    return "\n".join([*lines, "", f"A small result pays {paid}; one near the limit {small['near_us']} us."])


if __name__ == "__main__":
    sys.exit(main())
