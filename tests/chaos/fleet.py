"""Many faults at once, while 200 clients call: `python tests/chaos/fleet.py [--seconds 600] [--seed 0]`.

A gateway in a process of its own has servers over stdio and HTTP, of which half are touched: killed, mute, slow,
broken, cut off, full of garbage or notices, and put out of the config and in again. All clients number their requests
alike, some vanish in the middle of one. Then all is well again, and everybody goes. Prints a table; exits with 1 when
a call to an untouched server was lost, somebody got another's answer, a process was left behind, or the gateway did
not come back to what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.attack.target import began
from tests.chaos.watching import SPARE, Holdings, RawClient, Reply, Verdict, Watched, percentile, show, watched

UPSTREAM = Path(__file__).with_name("upstream.py")
OVER_STDIO, OVER_HTTP = ("pipe1", "pipe2", "pipe3", "pipe4"), ("web1", "web2", "web3", "web4")
UNTOUCHED = ("pipe1", "pipe2", "web1", "web2")
TOUCHED = ("pipe3", "pipe4", "web3", "web4")
MOODS = ("slow", "mute", "broken", "cut", "garbage", "flood")
PACE = 1.0
"""Seconds between two calls of one client, on average."""
PATIENCE, CALL_SECONDS = 25, 3
"""Seconds that a call may take: at an untouched server so many that a machine with much to do loses none."""
VANISH, PROGRESS, SEARCH = 0.01, 0.1, 0.1
"""How often a client breaks off in the middle of a call, how often it asks for progress, and how often it searches."""
SETTLE_SECONDS, RECOVERY_SECONDS, IDLE_SECONDS = 15.0, 75.0, 10.0
"""A breaker that opened with the last fault stays open for up to 60 s."""
MOST_CPU, MOST_GROWTH = 0.03, 48 * 1024 * 1024


@dataclass(slots=True)
class Tally:
    """What became of the calls."""

    done: Counter[str] = field(default_factory=Counter)
    """Right answers, by server."""
    refused: Counter[str] = field(default_factory=Counter)
    """Errors and broken connections, by server."""
    vanished: int = 0
    searches: int = 0
    lost_searches: int = 0
    wrong: list[str] = field(default_factory=list)
    """Answers that were somebody else's, and calls to untouched servers that failed."""
    seconds: list[float] = field(default_factory=list)
    """How long calls to untouched servers took."""
    faults: Counter[str] = field(default_factory=Counter)


def config_of(folder: Path, ports: dict[str, int], *, without: str = "") -> dict[str, Any]:
    """The config, perhaps without one server."""
    patient, short = ({"start": 10, "call": seconds, "idle": 0} for seconds in (PATIENCE, CALL_SECONDS))
    timeouts = {name: patient if name in UNTOUCHED else short for name in OVER_STDIO + OVER_HTTP}
    servers: dict[str, Any] = {
        name: {"command": sys.executable, "args": ["-S", str(UPSTREAM), name, str(folder)], "timeouts": timeouts[name]}
        for name in OVER_STDIO
    }
    servers |= {
        name: {"url": f"http://127.0.0.1:{port}/mcp", "timeouts": timeouts[name]} for name, port in ports.items()
    }
    servers.pop(without, None)
    return {"servers": servers, "http": {"session_idle_s": 5.0, "requests": 400}}


@contextmanager
def upstreams(folder: Path) -> Iterator[dict[str, int]]:
    """The servers over HTTP, and their ports."""
    ports: dict[str, int] = {}
    with ExitStack() as stack:
        for name in OVER_HTTP:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                ports[name] = probe.getsockname()[1]
            command = [sys.executable, "-S", str(UPSTREAM), name, str(folder), str(ports[name])]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield ports


class Client:
    """One of the clients; its numbers are those of all others."""

    def __init__(self, gateway: Watched, tally: Tally, number: int, chance: random.Random) -> None:
        self._tally, self._number, self._chance = tally, number, chance
        self._raw = RawClient(gateway.port, name=f"client{number}", is_modern=number % 4 == 3)

    async def run(self, until: float) -> None:
        """Call until the time is over."""
        await self._raw.open()
        count = 0
        while time.monotonic() < until:
            count += 1
            if self._chance.random() < SEARCH:
                await self._search(self._chance.choice(UNTOUCHED), count)
            await self._call(self._chance.choice(OVER_STDIO + OVER_HTTP), count)
            await asyncio.sleep(self._chance.uniform(0.5, 1.5) * PACE)
        self._raw.drop()

    async def _search(self, server: str, count: int) -> None:
        """Search; the index is built anew with every change of the config."""
        self._tally.searches += 1
        try:
            reply = await self._raw.call("search_tools", {"query": f"turn a word at {server}"}, id=f"s{count}")
            is_there = f"{server}_work" in reply.text
        except (OSError, TimeoutError):
            is_there = False
        self._tally.lost_searches += not is_there

    async def _call(self, server: str, count: int) -> None:
        word, began_at = f"w{self._number}-{count}", time.monotonic()
        params: dict[str, Any] = {"name": f"{server}.{server}_work", "arguments": {"word": word}}
        if self._chance.random() < PROGRESS:
            params["_meta"] = {"progressToken": count}
        try:
            if self._chance.random() < VANISH:
                await self._raw.send("tools/call", params, id=count)
                self._raw.drop()
                self._tally.vanished += 1
                return
            reply = await self._raw.ask("tools/call", params, id=count)
        except (OSError, TimeoutError) as error:
            self._lost(server, f"{type(error).__name__}: {error}")
            return
        self._judge(server, word, count, reply)
        if server in UNTOUCHED:
            self._tally.seconds.append(time.monotonic() - began_at)

    def _judge(self, server: str, word: str, count: int, reply: Reply) -> None:
        text, right = reply.text, f"{server} {word[::-1]}"
        if text == right and reply.message.get("id") == count:
            self._tally.done[server] += 1
        elif reply.message.get("id", count) != count:
            self._tally.wrong.append(f"call {count} of client {self._number} got {reply.body[:300]!r}")
        elif reply.status == 200 and text.startswith(tuple(f"{name} " for name in OVER_STDIO + OVER_HTTP)):
            self._tally.wrong.append(f"{word} at {server} got {text[:200]!r}")
        else:
            self._lost(server, f"{reply.status} {reply.body[:300]!r}")

    def _lost(self, server: str, why: str) -> None:
        self._tally.refused[server] += 1
        if server in UNTOUCHED:
            self._tally.wrong.append(f"a call to {server}, which nobody touched, was lost: {why}")


async def torment(
    gateway: Watched, folder: Path, ports: dict[str, int], tally: Tally, chance: random.Random, until: float
) -> None:
    """Let one fault follow the other."""
    file = gateway.home / "portico.yaml"
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.3, 1.2))
        server = chance.choice(TOUCHED)
        kind = chance.choice((*MOODS, "kill", "reload", "well"))
        tally.faults[kind] += 1
        if kind == "kill":
            _kill(folder, chance.choice(tuple(name for name in TOUCHED if name in OVER_STDIO)))
        elif kind == "reload":
            file.write_text(json.dumps(config_of(folder, ports, without=chance.choice(("", server)))))
            gateway.process.send_signal(signal.SIGHUP)
        else:
            (folder / server).write_text("" if kind == "well" else kind)
    for name in TOUCHED:
        (folder / name).write_text("")
    file.write_text(json.dumps(config_of(folder, ports)))
    gateway.process.send_signal(signal.SIGHUP)


def _kill(folder: Path, server: str) -> None:
    with suppress(OSError, ValueError):
        os.kill(int((folder / f"{server}.pid").read_text()), signal.SIGKILL)


async def until_all_answer(gateway: Watched, seconds: float) -> list[str]:
    """The servers that do not answer within some seconds."""
    client, until = await RawClient(gateway.port).open(), time.monotonic() + seconds
    silent = list(OVER_STDIO + OVER_HTTP)
    while silent and time.monotonic() < until:
        for name in tuple(silent):
            reply = await client.call(f"{name}.{name}_work", {"word": "abc"})
            if reply.text == f"{name} cba":
                silent.remove(name)
        await asyncio.sleep(0.1)
    client.drop()
    return silent


def left_behind(folder: Path) -> list[int]:
    """Every process of a server over stdio that runs now."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if str(UPSTREAM).encode() in words and str(folder).encode() in words and len(words) == 6:
                found.append(int(entry.name))
    return [pid for pid in found if began(pid)]


def judged(tally: Tally, before: Holdings, after: Holdings, cpu: float, silent: list[str]) -> list[Verdict]:
    """What came of it, while the gateway still runs."""
    calls = sum(tally.done[name] for name in UNTOUCHED)
    lost = sum(tally.refused[name] for name in UNTOUCHED)
    crossed = len(tally.wrong) - lost
    p99 = 1_000 * percentile(tally.seconds, 0.99)
    growth = after.rss - before.rss
    touched, failed = sum(tally.done[name] for name in TOUCHED), sum(tally.refused[name] for name in TOUCHED)
    return [
        Verdict(
            "no call to an untouched server is lost", f"{lost} of {calls + lost:,}, p99 {p99:.0f} ms", holds=not lost
        ),
        Verdict("nobody gets another's answer", f"{crossed}", holds=not crossed),
        Verdict(
            "every search finds its tool",
            f"{tally.lost_searches} of {tally.searches:,} do not",
            holds=not tally.lost_searches,
        ),
        Verdict("touched servers answer in part", f"{touched:,}, {failed:,} refused", holds=touched > 0),
        Verdict("afterwards all servers answer", ", ".join(silent) or "all", holds=not silent),
        Verdict(
            "tasks are as few as before", f"{before.tasks} -> {after.tasks}", holds=after.tasks <= before.tasks + SPARE
        ),
        Verdict("so are descriptors", f"{before.fds} -> {after.fds}", holds=after.fds <= before.fds + SPARE),
        Verdict("and threads", f"{before.threads} -> {after.threads}", holds=after.threads <= before.threads + SPARE),
        Verdict("no session is left", f"{after.sessions}", holds=after.sessions == 0),
        Verdict("memory came back", f"{growth / 1e6:+.1f} MB", holds=growth < MOST_GROWTH),
        Verdict("the processor is idle", f"{100 * cpu:.1f} %", holds=cpu <= MOST_CPU, is_noisy=True),
    ]


async def hour(gateway: Watched, folder: Path, ports: dict[str, int], options: argparse.Namespace) -> Tally:
    """The clients and the faults, for as long as it is asked."""
    tally, until = Tally(), time.monotonic() + options.seconds
    chance = random.Random(options.seed)
    async with asyncio.TaskGroup() as tasks:
        for number in range(options.clients):
            tasks.create_task(Client(gateway, tally, number, random.Random(chance.random())).run(until))
        tasks.create_task(torment(gateway, folder, ports, tally, chance, until))
    return tally


def run(options: argparse.Namespace) -> list[Verdict]:
    """Everything, and what came of it."""
    with TemporaryDirectory() as place, ExitStack() as closing:
        home, folder = Path(place) / "home", Path(place) / "fleet"
        home.mkdir()
        folder.mkdir()
        ports = closing.enter_context(upstreams(folder))
        with watched(home, config_of(folder, ports)) as gateway:
            asyncio.run(_warm(gateway))
            before = gateway.holdings()
            tally = asyncio.run(hour(gateway, folder, ports, options))
            silent = asyncio.run(until_all_answer(gateway, RECOVERY_SECONDS))
            after = gateway.settled(before, SETTLE_SECONDS)
            cpu = gateway.cpu_share(min(IDLE_SECONDS, options.seconds / 4))
            found = judged(tally, before, after, cpu, silent)
            running = left_behind(folder)
        code = gateway.process.returncode
        left = left_behind(folder)
    found.append(Verdict("one process for each server", f"{len(running)}", holds=len(running) == len(OVER_STDIO)))
    found.append(Verdict("none is left at the end", f"{len(left)}, exit {code}", holds=not left and code == 0))
    faults = ", ".join(f"{kind} {number}" for kind, number in tally.faults.most_common())
    print(f"{options.clients} clients, {options.seconds} s; {tally.vanished} calls broken off; faults: {faults}\n")
    for line in tally.wrong[:20]:
        print(line, file=sys.stderr)
    return found


async def _warm(gateway: Watched) -> None:
    silent = await until_all_answer(gateway, RECOVERY_SECONDS)
    if silent:
        raise RuntimeError(f"these servers do not start: {silent}")


def main() -> int:
    """Run it and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the faults last")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the faults and of the calls")
    return show(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
