"""What a call costs through a gateway: `python bench/overhead.py [--calls N] [--quick] [--stdio]`.

An echo tool is called directly, through Portico and through FastMCP, by the same client in the same run. Prints a
Markdown table and one JSON line; read the ratios, since the absolute figures are this machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import yaml

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load import LEGACY, MODERN, TEXT, Target, WrongAnswer, fire, prepare
from bench.peers import PeerUnavailable, fastmcp_python
from bench.processes import NotStarted, cpu_seconds, free_port, listening

HERE = Path(__file__).resolve().parent
CLIENTS = (1, 16, 64)
ECHO = {"text": TEXT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to the echo tool, and the process whose CPU time counts."""

    name: str
    target: Target
    pid: int


@dataclass(slots=True)
class Figures:
    """What was measured on one path, one entry for each round."""

    cpu_us: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p95_ms: list[float] = field(default_factory=list)
    rates: dict[int, list[float]] = field(default_factory=lambda: {clients: [] for clients in CLIENTS})

    def summary(self) -> dict[str, float]:
        """The median over the rounds."""
        middle = {"cpu_us": self.cpu_us, "p50_ms": self.p50_ms, "p95_ms": self.p95_ms}
        middle |= {f"rate_{clients}": rates for clients, rates in self.rates.items()}
        return {name: round(statistics.median(values), 3) for name, values in middle.items()}


def main() -> int:
    """Measure, print the table and the JSON line."""
    options = _options()
    with ExitStack() as stack:
        paths, skipped = _start(stack, stdio=options.stdio)
        found = asyncio.run(_measure(paths, options, skipped))
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}", file=sys.stderr)
    print(_table(found))
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.system()}
    print(json.dumps({"bench": "overhead", "era": options.era, "machine": machine, "paths": found, "skipped": skipped}))
    return 0 if found else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=2000, help="most calls in each measurement")
    parser.add_argument("--seconds", type=float, default=4.0, help="longest time for each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="times that every path is measured; medians count")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that everything works")
    parser.add_argument("--era", choices=(MODERN, LEGACY), default=MODERN, help="the protocol that the client speaks")
    parser.add_argument("--stdio", action="store_true", help="also with an upstream that speaks stdio")
    options = parser.parse_args()
    if options.quick:
        options.calls, options.seconds, options.rounds = 300, 1.0, 1
    return options


def _start(stack: ExitStack, *, stdio: bool) -> tuple[list[Way], dict[str, str]]:
    """Start everything that can be started; the rest is skipped with its reason."""
    upstream = free_port()
    pid = stack.enter_context(
        listening([sys.executable, str(HERE / "echo_server.py"), "--port", str(upstream)], upstream)
    )
    url = f"http://127.0.0.1:{upstream}/mcp"
    paths = [Way(name="direct", target=Target(url=url, tool="echo", arguments=ECHO), pid=pid)]
    skipped: dict[str, str] = {}
    command = [sys.executable, str(HERE / "echo_server.py")]
    starts = {
        "portico": lambda: _portico({"url": url}, ""),
        "fastmcp shared client": lambda: _fastmcp("fastmcp shared client", ["--url", url, "--shared"]),
        "fastmcp default": lambda: _fastmcp("fastmcp default", ["--url", url]),
    }
    if stdio:
        starts["portico, stdio"] = lambda: _portico({"command": command[0], "args": command[1:]}, ", stdio")
        name = "fastmcp shared client, stdio"
        starts[name] = lambda: _fastmcp(name, ["--shared", "--", *command])
    for name, start in starts.items():
        try:
            paths += stack.enter_context(start())
        except (NotStarted, PeerUnavailable) as reason:
            skipped[name] = str(reason)
    return paths, skipped


@contextmanager
def _portico(server: dict[str, object], suffix: str) -> Iterator[list[Way]]:
    port = free_port()
    with TemporaryDirectory() as home:
        config = Path(home) / "portico.yaml"
        config.write_text(yaml.safe_dump({"servers": {"upstream": server}}))
        serve = [sys.executable, "-m", "portico", "serve", "--port", str(port), "--config", str(config)]
        with listening(serve, port, {"PORTICO_HOME": home}) as pid:
            base = f"http://127.0.0.1:{port}/mcp"
            listed = Target(url=f"{base}/static", tool="upstream__echo", arguments=ECHO)
            call = Target(url=base, tool="call_tool", arguments={"name": "upstream.echo", "arguments": ECHO})
            yield [
                Way(name=f"portico static{suffix}", target=listed, pid=pid),
                Way(name=f"portico call_tool{suffix}", target=call, pid=pid),
            ]


@contextmanager
def _fastmcp(name: str, arguments: Sequence[str]) -> Iterator[list[Way]]:
    port = free_port()
    command = [str(fastmcp_python()), str(HERE / "fastmcp_gateway.py"), "--port", str(port), *arguments]
    with listening(command, port) as pid:
        target = Target(url=f"http://127.0.0.1:{port}/mcp", tool="echo", arguments=ECHO)
        yield [Way(name=name, target=target, pid=pid)]


async def _measure(
    paths: Sequence[Way], options: argparse.Namespace, skipped: dict[str, str]
) -> dict[str, dict[str, float]]:
    """Measure all paths in turn, round after round, so that a slow minute of the machine hits all of them."""
    figures = {path.name: Figures() for path in paths}
    for number in range(options.rounds + 1):
        for path in paths:
            if path.name in skipped:
                continue
            try:
                # The first calls pay for connections and caches.
                await (_round(path, figures[path.name], options) if number else _warm(path, options.era))
            except* (WrongAnswer, OSError, aiohttp.ClientError) as wrong:
                skipped[path.name] = repr(wrong.exceptions[0])
    return {name: found.summary() for name, found in figures.items() if name not in skipped}


async def _warm(path: Way, era: str) -> None:
    await fire(path.target, await prepare(path.target, era, 4), calls=40, seconds=10)


async def _round(path: Way, figures: Figures, options: argparse.Namespace) -> None:
    done, used = 0, 0.0
    for clients in CLIENTS:
        callers = await prepare(path.target, options.era, clients)
        before = cpu_seconds(path.pid)
        latencies, took = await fire(path.target, callers, calls=options.calls, seconds=options.seconds)
        used += cpu_seconds(path.pid) - before
        done += len(latencies)
        figures.rates[clients].append(len(latencies) / took)
        if clients == 1:
            figures.p50_ms.append(statistics.median(latencies) * 1e3)
            figures.p95_ms.append(statistics.quantiles(latencies, n=20)[-1] * 1e3)
    figures.cpu_us.append(used / done * 1e6)


def _table(found: dict[str, dict[str, float]]) -> str:
    rates = " / ".join(map(str, CLIENTS))
    lines = [
        f"| path | CPU us/call | x direct | p50 ms | p95 ms | x direct | calls/s at {rates} clients |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    floor = found.get("direct", {})
    for name, row in found.items():
        speeds = " / ".join(f"{row[f'rate_{clients}']:.0f}" for clients in CLIENTS)
        cpu, latency = row["cpu_us"] / floor["cpu_us"], row["p50_ms"] / floor["p50_ms"]
        lines.append(
            f"| {name} | {row['cpu_us']:.0f} | {cpu:.1f} | {row['p50_ms']:.2f} | {row['p95_ms']:.2f} |"
            f" {latency:.1f} | {speeds} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
