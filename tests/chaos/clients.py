"""The gateway and its clients in a bad hour: `python tests/chaos/clients.py [--only sessions,vanish] [--count 1000]`.

Sessions that are left behind, clients that vanish, one that reads slowly, four times as much to do as can be done, no
descriptors left, calls that are cancelled, scripts without an end, and an end under load. Prints a table; exits with 1
when a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.attack.target import began, resident
from tests.chaos.fleet import left_behind
from tests.chaos.watching import SPARE, RawClient, Verdict, Watched, percentile, read_head, show, watched

UPSTREAM = Path(__file__).with_name("upstream.py")
NAMES = ("one", "two")
WORK = "one.one_work"
MEGABYTE = 1024 * 1024
IDLE = 0.03
"""The part of a processor that a gateway without work may use."""
SPARE_OBJECTS = 1_500
"""Objects that a gateway makes in its first minute for itself; a session that lives has some two hundred."""
WITHIN = 10.0
"""Seconds after which everything must be as before."""


@contextmanager
def serving(http: Mapping[str, Any], environ: Mapping[str, str] | None = None, **server: Any) -> Iterator[Watched]:
    """A gateway with two servers over stdio, which answer."""
    with TemporaryDirectory() as place:
        home, folder = Path(place) / "home", Path(place) / "fleet"
        home.mkdir()
        folder.mkdir()
        timeouts = {"start": 20, "call": 30, "idle": 0}
        servers = {
            name: {"command": sys.executable, "args": ["-S", str(UPSTREAM), name, str(folder)], "timeouts": timeouts}
            for name in NAMES
        }
        servers["one"] |= server
        with watched(home, {"servers": servers, "http": dict(http)}, **(environ or {})) as gateway:
            asyncio.run(_warm(gateway))
            yield gateway


async def _warm(gateway: Watched) -> None:
    client, until = await RawClient(gateway.port).open(), time.monotonic() + 30
    for name in NAMES:
        while (await client.call(f"{name}.{name}_work", {"word": "ab"})).text != f"{name} ba":
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not start")
    client.drop()


def until_idle(gateway: Watched, seconds: float = WITHIN) -> float:
    """The part of a processor that it uses, once that is little or the time is over."""
    until = time.monotonic() + seconds
    while (share := gateway.cpu_share(2.0)) > IDLE and time.monotonic() < until:
        pass
    return share


# --- sessions that are left behind -----------------------------------------------------------------------------------


def sessions(count: int, rounds: int = 4) -> list[Verdict]:
    """Open so many sessions, leave them, and look what is kept of them; several times."""
    found = [_abandoned(count, rounds, {})]
    traced = _abandoned(count, 2, {"TRACED": "1"})
    rss, living, objects, after = found[0]
    kept_traced = traced[0][-1]
    return [
        Verdict("a session that lives costs", f"{living:.1f} KB", holds=living < 50, is_noisy=True),
        Verdict("one that has ended keeps of memory", f"{rss[-1]:.2f} KB", holds=rss[-1] <= 2, is_noisy=True),
        Verdict("and of what Python allocates", f"{kept_traced:.2f} KB", holds=kept_traced <= 2),
        Verdict("and of objects", f"{objects:.2f}", holds=objects <= 0.5),
        Verdict("sessions without a request end by the clock", f"{after[0]} left", holds=after[0] == 0),
        Verdict("tasks and descriptors are as before", f"{after[1]:+d}, {after[2]:+d}", holds=max(after[1:]) <= SPARE),
    ]


def _abandoned(
    count: int, rounds: int, environ: Mapping[str, str]
) -> tuple[list[float], float, float, tuple[int, int, int]]:
    """Of each session: KB kept by later rounds, KB while it lives, objects kept; and what is more than before."""
    kept: list[float] = []
    idle = max(1.0, count / 200)
    with serving({"sessions": count + 1, "session_idle_s": idle}, environ) as gateway:
        start = gateway.holdings()
        asyncio.run(_open_sessions(gateway, count))
        living = (resident(gateway.process.pid) - start.rss) / count / 1024
        first = gateway.settled(start, idle + 3 * WITHIN)
        last = first
        for _ in range(rounds - 1):
            asyncio.run(_open_sessions(gateway, count))
            last = gateway.settled(start, idle + 3 * WITHIN)
            # The first round makes the memory that all others use again; what Python allocates is told from the start.
            grown, opened = (last.traced - start.traced, 2) if environ else (last.rss - first.rss, 1)
            kept.append(grown / count / (len(kept) + opened) / 1024)
    more = (last.sessions, last.tasks - start.tasks, last.fds - start.fds)
    objects = max(0, last.objects - first.objects - SPARE_OBJECTS)
    return kept, living, objects / count / len(kept), more


async def _open_sessions(gateway: Watched, count: int) -> None:
    async def some(share: int) -> None:
        client = RawClient(gateway.port)
        for _ in range(share):
            client.session = ""
            await client.open()
        client.drop()

    await asyncio.gather(*(some(count // 10) for _ in range(10)))


# --- clients that vanish ---------------------------------------------------------------------------------------------


def vanish(count: int) -> list[Verdict]:
    """Let so many clients go at once: in a call, in a body, in a stream of events, in a call with progress."""
    http = {"sessions": count + 10, "session_idle_s": 4.0, "requests": 600, "connections": count + 100}
    with serving(http) as gateway:
        before = gateway.holdings()
        open_calls = asyncio.run(_vanish(gateway, count))
        cpu = until_idle(gateway)
        after = gateway.settled(before, WITHIN)
        asyncio.run(_warm(gateway))
    return [
        Verdict(
            f"{count} vanish, {open_calls} in a call: idle again",
            f"{100 * cpu:.1f} %",
            holds=cpu <= IDLE,
            is_noisy=True,
        ),
        Verdict("their tasks are gone", f"{before.tasks} -> {after.tasks}", holds=after.tasks <= before.tasks + SPARE),
        Verdict("their descriptors too", f"{before.fds} -> {after.fds}", holds=after.fds <= before.fds + SPARE),
        Verdict("and their sessions", f"{after.sessions}", holds=after.sessions == 0),
    ]


async def _vanish(gateway: Watched, count: int) -> int:
    clients = [RawClient(gateway.port, name=f"v{number}") for number in range(count)]
    for start in range(0, count, 50):
        await asyncio.gather(*(client.open() for client in clients[start : start + 50]))
    calls = 0
    for number, client in enumerate(clients):
        arguments = {"word": "x", "wait": 2}
        tool = WORK if number % 8 < 4 else "two.two_work"
        if number % 4 == 0 and number < 1_600:
            calls += 1
            await client.send("tools/call", {"name": tool, "arguments": arguments}, id=1)
        elif number % 4 == 1 and number < 1_600:
            calls += 1
            params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}}
            await client.send("tools/call", params, id=1)
        elif number % 4 == 2:
            await client.begin("POST", 500, b'{"jsonrpc"')
        else:
            await client.begin("GET")
    for client in clients:
        client.drop()
    return calls


# --- one that reads slowly -------------------------------------------------------------------------------------------


def slow_reader(seconds: float = 10.0) -> list[Verdict]:
    """Read an answer of 50 MB at a kilobyte a second, and call meanwhile."""
    size = 50 * 1000 * 1000
    with serving({}, result_tokens=10_000_000) as gateway:
        asyncio.run(_latencies(gateway, 2.0))
        usual = percentile(asyncio.run(_latencies(gateway, 3.0)), 0.99)
        before = resident(gateway.process.pid)
        most, meanwhile = asyncio.run(_read_slowly(gateway, size, seconds))
        after = resident(gateway.process.pid)
    others = percentile(meanwhile, 0.99)
    growth, left = (most - before) / MEGABYTE, (after - before) / MEGABYTE
    return [
        Verdict("50 MB read at 1 KB/s take of memory", f"{growth:.0f} MB", holds=growth <= 64),
        Verdict("once it has gone", f"{left:.0f} MB", holds=left <= 64),
        Verdict(
            "others wait no longer, p99",
            f"{usual:.1f} -> {others:.1f} ms",
            holds=others <= 2 * usual + 20,
            is_noisy=True,
        ),
    ]


async def _read_slowly(gateway: Watched, size: int, seconds: float) -> tuple[int, list[float]]:
    client = await RawClient(gateway.port).open()
    reader, _ = await client.send("tools/call", {"name": WORK, "arguments": {"word": "x", "size": size}}, id=1)
    status, headers = await asyncio.wait_for(read_head(reader), 30)
    if status != 200 or int(headers["content-length"]) < size:
        raise RuntimeError(f"{status} {headers}: this is no answer of {size} bytes")
    most, until = 0, time.monotonic() + seconds
    calls = asyncio.create_task(_latencies(gateway, seconds))
    await asyncio.sleep(0.5)
    while time.monotonic() < until:
        await reader.read(1024)
        most = max(most, resident(gateway.process.pid))
        await asyncio.sleep(1.0)
    client.drop()
    return most, await calls


async def _latencies(gateway: Watched, seconds: float) -> list[float]:
    """How many milliseconds calls take, one after the other."""
    client, found = await RawClient(gateway.port).open(), []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began_at = time.perf_counter()
        reply = await client.call("two.two_work", {"word": "ab"})
        if reply.text != "two ba":
            raise RuntimeError(f"{reply.status} {reply.body[:300]!r}")
        found.append(1_000 * (time.perf_counter() - began_at))
        await asyncio.sleep(0.005)
    client.drop()
    return found


# --- too much to do --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """What became of the calls of one time."""

    seconds: float
    done: list[float] = field(default_factory=list)
    """Milliseconds of the calls that were answered."""
    refused: list[float] = field(default_factory=list)
    """Milliseconds until a client was told to come again."""
    other: list[str] = field(default_factory=list)
    without_time: int = 0
    """Refusals that did not say when to come again."""

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.done) / self.seconds


AT_ONCE, WAIT = 32, 0.2
"""Requests that the gateway works on at once, and seconds that each waits for its server."""


def overload(seconds: float) -> list[Verdict]:
    """Ask for four times as much as can be done."""
    # A connection that is closed because it was idle can meet its client's next request; that is not the question here.
    http = {"requests": AT_ONCE, "keep_alive_s": 120, "connections": 3_000}
    with serving(http) as gateway:
        usual = asyncio.run(_offer(gateway, AT_ONCE / WAIT / 2, min(seconds, 4.0)))
        peak = asyncio.run(_offer(gateway, 0.95 * AT_ONCE / WAIT, min(seconds, 5.0)))
        memory = resident(gateway.process.pid)
        worst = asyncio.run(_offer(gateway, 4 * AT_ONCE / WAIT, seconds))
        grown = (resident(gateway.process.pid) - memory) / MEGABYTE
        again = asyncio.run(_offer(gateway, AT_ONCE / WAIT / 2, min(seconds, 4.0)))
    goodput = worst.rate / peak.rate
    before, after = percentile(usual.done, 0.99), percentile(again.done, 0.99)
    half, told = (percentile(worst.refused, part) for part in (0.5, 0.99))
    return [
        Verdict(
            f"four times the capacity, {seconds:.0f} s: answered of the peak",
            f"{100 * goodput:.0f} % ({worst.rate:.0f} of {peak.rate:.0f}/s)",
            holds=goodput >= 0.8,
            is_noisy=True,
        ),
        Verdict(
            "the rest is told to come again, p50 and p99",
            f"{len(worst.refused):,}, {half:.0f} and {told:.0f} ms",
            holds=half < 100 and told < 1_000,
            is_noisy=True,
        ),
        Verdict(
            "each with a time, and nothing else",
            f"{worst.without_time}, {worst.other[:1]}",
            holds=not worst.without_time and not worst.other,
        ),
        Verdict(
            "afterwards the p99 is as before",
            f"{before:.0f} -> {after:.0f} ms",
            holds=after <= 1.5 * before + 50,
            is_noisy=True,
        ),
        Verdict("memory did not grow", f"{grown:+.0f} MB", holds=grown < 64),
    ]


async def _offer(gateway: Watched, rate: float, seconds: float) -> Load:
    """Begin so many calls a second, whatever becomes of those before."""
    load, start, number = Load(seconds), time.monotonic(), 0
    idle: list[RawClient] = []

    async def one() -> None:
        client = idle.pop() if idle else await RawClient(gateway.port, is_modern=True).open()
        began_at = time.perf_counter()
        try:
            reply = await client.call(WORK, {"word": "ab", "wait": WAIT})
        except (OSError, TimeoutError) as error:
            load.other.append(f"{type(error).__name__}: {error}")
            return
        took = 1_000 * (time.perf_counter() - began_at)
        if reply.text == "one ba":
            load.done.append(took)
        elif reply.status == 503 and b'"busy"' in reply.body:
            load.refused.append(took)
            load.without_time += "retry-after" not in reply.headers
        else:
            load.other.append(f"{reply.status} {reply.body[:200]!r}")
        idle.append(client)

    async with asyncio.TaskGroup() as tasks:
        while (now := time.monotonic() - start) < seconds:
            while number < now * rate:
                number += 1
                tasks.create_task(one())
            await asyncio.sleep(0.005)
    for client in idle:
        client.drop()
    return load


# --- no descriptors --------------------------------------------------------------------------------------------------


def descriptors() -> list[Verdict]:
    """Take the gateway's last descriptors away while calls are under way, and give them back."""
    with serving({"session_idle_s": 4.0, "keep_alive_s": 2}, {"FILES": "256"}) as gateway:
        before = gateway.holdings()
        lost, refused, cpu = asyncio.run(_without_files(gateway, before.fds))
        full = asyncio.run(_too_many(gateway))
        asyncio.run(_warm(gateway))
        after = gateway.settled(before, WITHIN)
        is_same = gateway.process.poll() is None
    return [
        Verdict("no descriptor is left: calls under way lost", f"{lost} of 20", holds=lost == 0),
        Verdict("new connections are refused", f"{refused} of 50", holds=refused >= 45),
        Verdict("nothing spins meanwhile", f"{100 * cpu:.1f} %", holds=cpu < 0.25, is_noisy=True),
        Verdict("400 connections, 256 descriptors: calls lost", f"{full} of 20", holds=full == 0),
        Verdict(
            "afterwards it answers, without a restart",
            f"{before.fds} -> {after.fds}",
            holds=is_same and after.fds <= before.fds + SPARE,
        ),
    ]


async def _calls(gateway: Watched, wait: float) -> list[asyncio.Task[bool]]:
    """Twenty calls under way."""

    async def one(client: RawClient) -> bool:
        try:
            return (await client.call(WORK, {"word": "ab", "wait": wait})).text == "one ba"
        finally:
            client.drop()

    clients = [await RawClient(gateway.port).open() for _ in range(20)]
    return [asyncio.create_task(one(client)) for client in clients]


async def _without_files(gateway: Watched, base: int) -> tuple[int, int, float]:
    calls = await _calls(gateway, 6.0)
    await asyncio.sleep(1.0)
    pid = gateway.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    now = (await asyncio.to_thread(gateway.holdings)).fds - 1  # it opens the folder to count them
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (now, hard))
    strangers = [await asyncio.to_thread(_knock, gateway.port) for _ in range(50)]
    cpu = await asyncio.to_thread(gateway.cpu_share, 3.0)
    refused = sum([not await asyncio.to_thread(_is_answered, one) for one in strangers])
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    answered = await asyncio.gather(*calls, return_exceptions=True)
    return sum(one is not True for one in answered), refused, cpu


def _knock(port: int) -> socket.socket | None:
    try:
        found = socket.create_connection(("127.0.0.1", port), timeout=1)
        found.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
    except OSError:
        return None
    found.settimeout(0.05)
    return found


def _is_answered(client: socket.socket | None) -> bool:
    if client is None:
        return False
    with client:
        try:
            return client.recv(12) == b"HTTP/1.1 200"
        except OSError:
            return False


async def _too_many(gateway: Watched) -> int:
    calls = await _calls(gateway, 4.0)
    await asyncio.sleep(0.5)
    strangers = [await asyncio.to_thread(_knock, gateway.port) for _ in range(400)]
    answered = await asyncio.gather(*calls, return_exceptions=True)
    for one in strangers:
        if one is not None:
            one.close()
    return sum(one is not True for one in answered)


# --- the end ---------------------------------------------------------------------------------------------------------


def drain(clients: int = 60) -> list[Verdict]:
    """Ask it to stop while everybody calls."""
    with serving({"drain_s": 10}) as gateway:
        folder, started = gateway.home.parent / "fleet", gateway.started()
        lost, answered, seconds = asyncio.run(_stop_under_load(gateway, clients))
        code = gateway.process.wait(20)
        left = [pid for pid, when in started.items() if began(pid) == when] + left_behind(folder)
    return [
        Verdict("told to stop under load: calls under way lost", f"{lost} of {answered + lost}", holds=lost == 0),
        Verdict("it ends in time", f"{seconds:.1f} s, exit {code}", holds=seconds <= 10 and code == 0, is_noisy=True),
        Verdict("no process is left", f"{len(left)} of {len(started)}", holds=not left),
    ]


async def _stop_under_load(gateway: Watched, clients: int) -> tuple[int, int, float]:
    """Calls that were under way and got no answer, those that got one, and how long the end took."""
    stopped_at = [0.0]
    lost, answered = [0], [0]

    async def one(number: int) -> None:
        client = await RawClient(gateway.port, is_modern=number % 2 == 0).open()
        while not stopped_at[0]:
            began_at = time.monotonic()
            try:
                reply = await client.call(WORK, {"word": "ab", "wait": 0.5 + number % 10 / 10})
                is_right = reply.text == "one ba"
            except OSError:
                is_right = False
            was_under_way = not stopped_at[0] or began_at < stopped_at[0] - 0.2
            if was_under_way:
                (answered if is_right else lost)[0] += 1
        client.drop()

    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            tasks.create_task(one(number))
        await asyncio.sleep(4.0)
        stopped_at[0] = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(gateway.process.wait, 30)
        seconds = time.monotonic() - stopped_at[0]
    return lost[0], answered[0], seconds


# --- a client that cancels -------------------------------------------------------------------------------------------


def cancel(count: int = 300) -> list[Verdict]:
    """Cancel calls, or break them off where that means the same, more of them than a server is given at a time."""
    with serving({"requests": 400}) as gateway:
        file = gateway.home.parent / "fleet" / "one.cancelled"
        told = asyncio.run(_cancel(gateway, file, is_modern=False, count=count))
        broken_off = asyncio.run(_cancel(gateway, file, is_modern=True, count=count))
        asyncio.run(_warm(gateway))
    found = told + broken_off
    slowest = 1_000 * max(found, default=0)
    return [
        Verdict("cancelled calls that the server hears of", f"{len(found)} of {2 * count}", len(found) == 2 * count),
        Verdict("the last after", f"{slowest:.0f} ms", holds=slowest <= 200, is_noisy=True),
    ]


async def _cancel(gateway: Watched, file: Path, *, is_modern: bool, count: int) -> list[float]:
    """The seconds after which the server heard of each, twenty calls at a time."""
    found: list[float] = []
    for _ in range(0, count, 20):
        heard = len(_lines(file))
        clients = [await RawClient(gateway.port, is_modern=is_modern).open() for _ in range(20)]
        for client in clients:
            await client.send("tools/call", {"name": WORK, "arguments": {"word": "x", "wait": 1}}, id=1)
        await asyncio.sleep(0.2)
        now = time.monotonic()
        for client in clients:
            if not is_modern:
                other = RawClient(gateway.port, session=client.session)
                await other.ask("notifications/cancelled", {"requestId": 1}, id=None)
                other.drop()
            client.drop()
        until = now + 5
        while len(_lines(file)) < heard + 20 and time.monotonic() < until:  # noqa: ASYNC110  another process writes
            await asyncio.sleep(0.02)
        found += [float(line) - now for line in _lines(file)[heard:]]
    return found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


# --- scripts without an end ------------------------------------------------------------------------------------------


def scripts(count: int = 100) -> list[Verdict]:
    """Run a hundred scripts that never end, and call meanwhile."""
    with serving({}) as gateway:
        asyncio.run(_latencies(gateway, 2.0))
        usual = percentile(asyncio.run(_latencies(gateway, 4.0)), 0.99)
        pid, before = gateway.process.pid, len(gateway.started())
        others, processes, told = asyncio.run(_endless(gateway, count))
        meanwhile = percentile(others, 0.99)
        is_same = gateway.process.poll() is None and gateway.process.pid == pid
    return [
        Verdict(
            f"{count} scripts without an end: processes", f"{before} -> {processes}", holds=processes - before < 30
        ),
        Verdict("each is ended or refused", f"{told} of {count}", holds=told == count and is_same),
        Verdict(
            "calls wait no longer, p99",
            f"{usual:.1f} -> {meanwhile:.1f} ms",
            holds=meanwhile <= 1.5 * usual + 5,
            is_noisy=True,
        ),
    ]


async def _endless(gateway: Watched, count: int) -> tuple[list[float], int, int]:
    async def one() -> bool:
        client = await RawClient(gateway.port, is_modern=True).open()
        try:
            reply = await client.call("run_script", {"script": "while true do end", "timeout_s": 6})
        finally:
            client.drop()
        return reply.status in (200, 503) and bool(reply.body)

    asked = [asyncio.create_task(one()) for _ in range(count)]
    await asyncio.sleep(1.0)
    others = await _latencies(gateway, 4.0)
    processes = len(gateway.started())
    ended = await asyncio.gather(*asked, return_exceptions=True)
    return others, processes, sum(one is True for one in ended)


PARTS: Mapping[str, Callable[[argparse.Namespace], list[Verdict]]] = {
    "sessions": lambda options: sessions(options.count),
    "vanish": lambda options: vanish(min(options.count, 1_000)),
    "slow": lambda options: slow_reader(),
    "overload": lambda options: overload(options.seconds),
    "descriptors": lambda options: descriptors(),
    "cancel": lambda options: cancel(),
    "scripts": lambda options: scripts(),
    "drain": lambda options: drain(),
}


def main() -> int:
    """Run the parts and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=1_000, help="sessions that are left behind")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long there is too much to do")
    options = parser.parse_args()
    return show([verdict for name in options.only.split(",") for verdict in PARTS[name](options)])


if __name__ == "__main__":
    sys.exit(main())
