"""What a start costs: 100 known servers with 2,000 tools, the command line, and the import.

`python bench/start.py [--fleet definitions.json]` prints Markdown tables and one JSON line. Each time stands beside
the bare interpreter's in the same run, because machines differ.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.processes import free_port
from tests.catalogue import generate, load_fleet
from tests.journeys.kit import serving

from portico.rendering.budget import TokenEstimate
from portico.rendering.cards import parameters, signature
from portico.testing import make_test_app

ROUNDS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", help="a file of real definitions to use instead of generated ones")
    options = parser.parse_args()
    fleet = load_fleet(options.fleet)
    with TemporaryDirectory() as folder:
        home = Path(folder)
        definitions = fleet or generate(servers=100, tools=2000)
        known = _fill(home, definitions)
        figures = {
            "catalogue": known,
            **_commands(home),
            **_stdio(home),
            **_starts(home),
            **_tokens(home),
            **_signatures(definitions),
        }
    _print(figures)
    print(json.dumps({"bench": "start", **figures}))


def _fill(home: Path, definitions: dict[str, list[Any]]) -> dict[str, int]:
    """A home that knows all these servers."""
    servers = {name: serving(home / f"{n}.json", tools) for n, (name, tools) in enumerate(definitions.items())}
    (home / "portico.yaml").write_text(json.dumps({"servers": servers}))
    subprocess.run(
        [sys.executable, "-m", "portico", "refresh"], env=_env(home), cwd=home, check=True, capture_output=True
    )
    return {"servers": len(definitions), "tools": sum(map(len, definitions.values()))}


def _commands(home: Path) -> dict[str, float]:
    """CPU seconds of short commands, beside an interpreter that does nothing."""
    lines = {
        "python -c pass": ["-c", "pass"],
        "import portico": ["-c", "import portico"],
        "from portico import Catalog": ["-c", "from portico import Catalog"],
        "import mcp": ["-c", "import mcp"],
        "portico --help": ["-m", "portico", "--help"],
        "portico search": ["-m", "portico", "search", "create an issue"],
    }
    return {f"cpu_s {name}": _cpu([sys.executable, *arguments], home) for name, arguments in lines.items()}


def _cpu(command: list[str], home: Path) -> float:
    spent = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=_env(home), cwd=home, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(spent[1:]), 3)


def _stdio(home: Path) -> dict[str, float]:
    """CPU seconds from the start of `portico serve --stdio` to its first two answers, after it has run once."""
    runs = [_opening(home) for _ in range(ROUNDS + 1)][1:]
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def _opening(home: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "portico", "serve", "--stdio"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=_env(home), cwd=home, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = {}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}}
        for id, (method, params) in enumerate({"initialize": client, "tools/list": {}}.items()):
            message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            print(json.dumps(message), file=process.stdin, flush=True)
            process.stdout.readline()
            found[f"cpu_s stdio to {method}"] = _cpu_of(process.pid)
    return found


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _starts(home: Path) -> dict[str, float]:
    """Seconds from the start of `portico serve` to its first answers, with what it holds then."""
    runs = [_start(home) for _ in range(ROUNDS)]
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}


def _start(home: Path) -> dict[str, float]:
    port = free_port()
    started = time.perf_counter()
    command = [sys.executable, "-m", "portico", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=_env(home), cwd=home, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/mcp"
        listed = _first_answer(f"{url}/static", "tools/list", {})
        search = {"name": "search_tools", "arguments": {"query": "create an issue"}}
        _first_answer(url, "tools/call", search)
        seconds = time.perf_counter() - started
        status = Path(f"/proc/{process.pid}/status").read_text()
        memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return {
            "start_s to tools/list and search": seconds,
            "rss_mb": memory,
            "child processes": len(children),
            "listed": len(listed["tools"]),
        }
    finally:
        process.terminate()
        process.wait(20)


def _first_answer(url: str, method: str, params: dict[str, Any]) -> Any:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    until = time.monotonic() + 30
    while True:
        try:
            request = urllib.request.Request(url, data=body, headers=headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read())["result"]
        except (ConnectionError, urllib.error.URLError) as error:
            if isinstance(error, urllib.error.HTTPError) or time.monotonic() > until:
                raise
            time.sleep(0.005)


def _tokens(home: Path) -> dict[str, Any]:
    """The token bill and the cost of search answers."""
    bill = json.loads(_run(home, "tokens", "--json"))
    queries = ["create an issue", "read a file", "list users", "send a message", "delete a branch", ""]
    answers = [TokenEstimate().count(_run(home, "search", query)) for query in queries]
    return {
        "tokens before": bill["before"],
        "tokens after": bill["after"],
        "saved": bill["saved"],
        "tokens of a search answer, most": max(answers),
    }


def _signatures(definitions: dict[str, list[Any]]) -> dict[str, float]:
    """What a one-line signature costs, and how many of them are shortened."""
    tools = make_test_app(definitions).gateway.snapshot.tools.values()
    return {
        "tokens of a signature, mean": round(statistics.fmean(TokenEstimate().count(signature(t)) for t in tools), 2),
        "share of signatures with ~": round(statistics.fmean("~" in parameters(t) for t in tools), 4),
    }


def _run(home: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "portico", *arguments]
    return subprocess.run(command, env=_env(home), cwd=home, check=True, capture_output=True, text=True).stdout


def _env(home: Path) -> dict[str, str]:
    return {**os.environ, "PORTICO_HOME": str(home)}


def _print(figures: dict[str, Any]) -> None:
    known = figures["catalogue"]
    print(f"\n{known['servers']} known servers, {known['tools']} tools\n\n| what | figure |\n|---|---:|")
    for name, value in figures.items():
        if name != "catalogue":
            print(f"| {name} | {value:,} |")


if __name__ == "__main__":
    main()
