"""What scripts of tests can reach instead of a gateway, and a way to run them from plain tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from portico.domain.call import Ran, Script, ScriptLimits
from portico.errors import CallError, ScriptError, Sent
from portico.scripting.engine import LuaEngine

BOUND = 20
"""Seconds that a test waits for something that must happen."""


class FakeApi:
    """Answers calls, and remembers them."""

    def __init__(self) -> None:
        self.servers = ("calculator", "data_server")
        self.calls: list[tuple[str, str, Any]] = []
        self.questions: list[tuple[str, Any]] = []
        self.in_flight = self.most_in_flight = self.cancelled = 0
        self.opened = anyio.Event()
        """Lets `wait` go on; set by itself when the crowd that a call waits for is there."""

    async def call(self, server: str, tool: str, arguments: Any) -> Any:
        """Do what the tool's name says."""
        self.calls.append((server, tool, arguments))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await getattr(self, f"_{tool}", self._unknown)(arguments)
        except anyio.get_cancelled_exc_class():
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1

    async def ask(self, question: str, arguments: Any) -> Any:
        """Tell what was asked."""
        self.questions.append((question, arguments))
        return {"question": question, "arguments": arguments}

    async def _add(self, given: Any) -> Any:
        return {"result": given["a"] + given["b"]}

    async def _multiply(self, given: Any) -> Any:
        return {"result": given["a"] * given["b"]}

    async def _echo(self, given: Any) -> Any:
        return given.get("value")

    async def _text(self, given: Any) -> Any:
        return "x" * int(given["size"])

    async def _strange(self, given: Any) -> Any:
        return {"set": {1, 2}}

    async def _fail(self, given: Any) -> Any:
        raise CallError("calculator.fail", details=(given.get("why", "it broke"),), sent=Sent.ANSWERED)

    async def _wait(self, given: Any) -> Any:
        if self.in_flight >= given.get("crowd", 1_000):
            self.opened.set()
        await self.opened.wait()
        return given

    async def _hang(self, given: Any) -> Any:
        await anyio.sleep_forever()

    async def _unknown(self, given: Any) -> Any:
        raise CallError("calculator.unknown", details=("no such tool",))


class Runner:
    """Runs scripts of plain tests on one engine, which lives in a thread."""

    def __init__(self, portal: BlockingPortal, engine: LuaEngine) -> None:
        self._portal, self._engine = portal, engine
        self.fake = FakeApi()

    def __call__(self, source: str, arguments: dict[str, Any] | None = None, **limits: Any) -> Ran:
        """Run a script to its end."""
        self.fake = self._portal.call(FakeApi)
        given = {"seconds": 20.0, **limits}
        script = Script(source=source, arguments=arguments or {}, limits=ScriptLimits(**given))
        return self._portal.call(self._engine.run, script, self.fake)

    def value(self, source: str, arguments: dict[str, Any] | None = None, **limits: Any) -> Any:
        """What a script returns."""
        ran = self(source, arguments, **limits)
        assert ran.has_value, f"no result: {ran}"
        return ran.value

    def error(self, source: str, **limits: Any) -> ScriptError:
        """How a script fails."""
        try:
            ran = self(source, **limits)
        except ScriptError as error:
            return error
        raise AssertionError(f"it did not fail: {ran}")


@contextmanager
def running(**options: Any) -> Iterator[Runner]:
    """A runner with an engine of its own."""
    with start_blocking_portal() as portal:
        engine = LuaEngine(**options)
        try:
            yield Runner(portal, engine)
        finally:
            portal.call(engine.aclose)


def children(pid: int) -> set[int]:
    """The processes that a process has started and that are still there, zombies not counted."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            except OSError:
                continue
            if int(parent) == pid and state != "Z":
                found.add(int(folder.name))
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there; one that nobody has asked for its end does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def fork_servers() -> set[int]:
    """The fork servers that this process has started."""
    return {pid for pid in children(os.getpid()) if b"portico.scripting.fork_server" in _command(pid)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def killed(pids: set[int], number: int) -> None:
    """Send a signal that ends processes, and wait until they have."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    await until(lambda: not any(map(is_running, pids)))


async def until(condition: Any) -> None:
    """Wait until something is so."""
    with anyio.fail_after(BOUND):
        while not condition():  # noqa: ASYNC110  processes give no events
            await anyio.sleep(0.01)
