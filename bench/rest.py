"""What the four tiers cost over HTTP: `python bench/rest.py [--store sqlite|postgresql] [--starts N] [--quick]`.

A gateway that knows 2,000 tools is asked by one client over one kept connection. Warm is the same request again and
again; cold is the first request of its kind after a start, each category and each tool once. Beside them stands a route
of the same web server that sends a constant body of the same size: read the ratios, since the absolute figures are this
machine's. Prints a Markdown table and one JSON line.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.processes import free_port, listening
from tests.catalogue import generate
from tests.databases import postgres_server
from tests.journeys.kit import serving

TOOLS = "/api/v1/tools"
TIERS = ("T0 hot", "T1 categories", "T2 category", "T3 tool")
WARM_MS = dict(zip(TIERS, (5, 5, 10, 10), strict=True))
COLD_MS = dict(zip(TIERS, (20, 30, 50, 100), strict=True))
"""What is aimed at, for 95 of 100 requests."""
SETTLE = 20
"""Requests before the first one that counts, where warm ones are measured."""


@dataclass(slots=True)
class Figures:
    """Milliseconds of one kind of request."""

    ms: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """The middle, and what 95 of 100 stay below."""
        ordered = sorted(self.ms)
        p95 = ordered[max(0, -(-95 * len(ordered) // 100) - 1)]
        return {"p50_ms": round(statistics.median(ordered), 3), "p95_ms": round(p95, 3), "requests": len(ordered)}


class Asking:
    """One client with one connection that it keeps."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str) -> tuple[float, bytes]:
        """Milliseconds, and the body."""
        started = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        took = 1_000 * (time.perf_counter() - started)
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {body[:300].decode(errors='replace')}")
        return took, body


def main() -> int:
    """Measure, print the table and the JSON line."""
    options = _options()
    if options.raw:
        _serve_raw(options.raw, options.size)
        return 0
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        store = stack.enter_context(_store(options.store))
        _fill(home, store, options.tools)
        cold = _cold(home, options.starts)
        warm, raw, ratios = _warm(home, options.requests)
    print(_table(warm, cold, raw))
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "system": platform.system()}
    found = {"warm": warm, "cold": cold, "raw": raw, "cache_hit_ratio": ratios}
    print(json.dumps({"bench": "rest", "store": options.store, "tools": options.tools, "machine": machine, **found}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--tools", type=int, default=2_000)
    parser.add_argument("--requests", type=int, default=1_000, help="warm requests of each tier")
    parser.add_argument("--starts", type=int, default=10, help="starts of the gateway for cold requests")
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests and two starts")
    parser.add_argument("--raw", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=10_000, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.requests, options.starts = options.requests // 10, 2
    return options


@contextmanager
def _store(kind: str) -> Iterator[str]:
    """How the config spells the store; a PostgreSQL is started for this run."""
    if kind == "sqlite":
        yield kind
        return
    with postgres_server() as server:
        yield server.fresh()


def _fill(home: Path, store: str, tools: int) -> None:
    """A home whose store knows all tools, so that no server is started by what is measured."""
    definitions = generate(servers=max(1, tools // 20), tools=tools)
    servers = {name: serving(home / f"{n}.json", own) for n, (name, own) in enumerate(definitions.items())}
    (home / "portico.yaml").write_text(json.dumps({"servers": servers, "store": store}))
    command = [sys.executable, "-m", "portico", "refresh"]
    subprocess.run(command, env={**os.environ, **_env(home)}, cwd=home, check=True, capture_output=True)


def _env(home: Path) -> dict[str, str]:
    return {"PORTICO_HOME": str(home), "PORTICO_CONFIG": str(home / "portico.yaml")}


@contextmanager
def _gateway(home: Path) -> Iterator[Asking]:
    port = free_port()
    command = [sys.executable, "-m", "portico", "serve", "--port", str(port)]
    with listening(command, port, _env(home)):
        asking = Asking(port)
        asking.get("/readyz")
        yield asking


def _cold(home: Path, starts: int) -> dict[str, dict[str, float]]:
    """First requests: the hot list and the categories once a start, other categories and tools at each."""
    found = {tier: Figures() for tier in TIERS}
    for start in range(starts):
        with _gateway(home) as asking:
            found[TIERS[0]].ms.append(asking.get(f"{TOOLS}/hot")[0])
            took, body = asking.get(f"{TOOLS}/categories")
            found[TIERS[1]].ms.append(took)
            pages = [asking.get(f"{TOOLS}/category/{quote(name, safe='')}") for name in _some(_filled(body), start)]
            found[TIERS[2]].ms += [took for took, _ in pages]
            tools = [tool for _, body in pages for tool in _some(json.loads(body)["tools"], start)]
            found[TIERS[3]].ms += [asking.get(_path(tool))[0] for tool in tools]
    return {tier: figures.summary() for tier, figures in found.items()}


def _warm(home: Path, requests: int) -> tuple[dict[str, Any], dict[str, float], dict[str, float]]:
    """The same requests again and again, the raw route beside them, and how often the cache had the answer."""
    with _gateway(home) as asking:
        category = _filled(asking.get(f"{TOOLS}/categories")[1])[0]
        page = f"{TOOLS}/category/{quote(category, safe='')}"
        _, body = asking.get(page)
        paths = (f"{TOOLS}/hot", f"{TOOLS}/categories", page, _path(json.loads(body)["tools"][0]))
        warm = {tier: _repeated(asking, path, requests) for tier, path in zip(TIERS, paths, strict=True)}
        ratios = _ratios(asking.get("/metrics")[1].decode())
    port = free_port()
    command = [sys.executable, __file__, "--raw", str(port), "--size", str(len(body))]
    with listening(command, port):
        raw = _repeated(Asking(port), "/raw", requests)
    return warm, raw, ratios


def _repeated(asking: Asking, path: str, requests: int) -> dict[str, float]:
    for _ in range(SETTLE):
        asking.get(path)
    return Figures([asking.get(path)[0] for _ in range(requests)]).summary()


def _some(entries: Sequence[Any], start: int, most: int = 5) -> Sequence[Any]:
    """A few entries, others at each start."""
    return [entries[(start * most + n) % len(entries)] for n in range(min(most, len(entries)))]


def _filled(body: bytes) -> list[str]:
    """The categories that have tools, those with most first."""
    lines = [line for line in json.loads(body)["categories"] if line.get("tool_count")]
    return [line["category"] for line in sorted(lines, key=lambda line: -line["tool_count"])]


def _path(tool: dict[str, Any]) -> str:
    name = tool["tool"].split("::", 1)[1]
    return f"{TOOLS}/{quote(tool['server'], safe='')}/{quote(name, safe='')}"


def _ratios(metrics: str) -> dict[str, float]:
    lines = [line for line in metrics.splitlines() if line.startswith("portico_cache_hit_ratio{")]
    return {line.split('"')[1]: round(float(line.rsplit(" ", 1)[1]), 3) for line in lines}


def _serve_raw(port: int, size: int) -> None:
    """A route that does nothing but send a constant body."""
    body = b"x" * size

    async def constant(request: Request) -> Response:
        return Response(body, media_type="application/json")

    app = Starlette(routes=[Route("/raw", constant)])
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def _table(warm: dict[str, Any], cold: dict[str, Any], raw: dict[str, float]) -> str:
    lines = [
        "| tier | warm p50 ms | warm p95 ms | aim | times the raw route | cold p50 ms | cold p95 ms | aim |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for tier in TIERS:
        times = warm[tier]["p50_ms"] / raw["p50_ms"]
        measured = f"{warm[tier]['p50_ms']:.2f} | {warm[tier]['p95_ms']:.2f} | < {WARM_MS[tier]} | {times:.1f}"
        lines.append(
            f"| {tier} | {measured} | {cold[tier]['p50_ms']:.2f} | {cold[tier]['p95_ms']:.2f} | < {COLD_MS[tier]} |"
        )
    return "\n".join([*lines, f"| raw route | {raw['p50_ms']:.2f} | {raw['p95_ms']:.2f} | | 1.0 | | | |"])


if __name__ == "__main__":
    sys.exit(main())
