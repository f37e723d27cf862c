"""Servers that send more than anybody asked for, and tell what they were told in confidence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.suite import SECRETS, Attempt, Suite, flaw, stdio_server
from tests.attack.target import HERE, Target

HABITS = {
    "hostile": [*"nodes deep blocks links line notices stderr numbers leak swell".split(), "deep text"],
    "web": "data comments events nodes leak headers slow".split(),
}
LIMITED = {"call": 5, "total": 10}
PLACES = ("/api/v1/servers", "/api/v1/usage", "/metrics", "/readyz", "/api/v1/tools/hot")


class Upstreams(Suite):
    """One server over stdio and one over HTTP, both hostile, beside one that behaves."""

    def __init__(self) -> None:
        """The server over HTTP starts with the config."""
        super().__init__(name="upstreams")
        self._web: subprocess.Popen[str] | None = None

    def config(self, home: Path) -> dict[str, Any]:
        """Three servers; the hostile ones have secrets."""
        command = [sys.executable, str(HERE / "hostile_http.py"), str(home / "executions")]
        self._web = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._web.stdout is not None
        url = f"http://127.0.0.1:{self._web.stdout.readline().strip()}/mcp"
        web = {"url": url, "headers": {"Authorization": f"Bearer {SECRETS[2]}"}, "timeouts": LIMITED}
        return {
            "servers": {
                "victim": stdio_server(home),
                "hostile": {**stdio_server(home), "timeouts": LIMITED},
                "web": web,
            }
        }

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """A hostile call, and then one that must work all the same."""
        habits = [(server, habit) for server, some in HABITS.items() for habit in some]
        chance.shuffle(habits)
        for server, habit in cycle(habits):
            size = int(10 ** chance.uniform(4, 7.78))
            if habit.startswith("deep"):
                size = int(10 ** chance.uniform(2, 6))
            reply = target.talk.call("discover", "call_tool", _do(server, habit, size))
            yield Attempt(f"{habit} over {'HTTP' if server == 'web' else 'stdio'}", flaw(reply))
            other = target.talk.call("discover", "call_tool", _do("victim", "done", 0))
            wrong = flaw(other) or ("" if "done" in other.text else "another server's call failed")
            yield Attempt("a call of another server", wrong)

    def aftermath(self, target: Target) -> list[str]:
        """Secrets are looked for everywhere."""
        found = [f"a secret in {place}" for place in PLACES if "secret" in flaw(target.talk.send("GET", place))]
        if any(secret in line for secret in SECRETS for line in target.said):
            found.append("a secret in the log")
        if any("\x1b" in line for line in target.said):
            found.append("a control character in the log")
        if any(secret.encode() in target.stored_bytes() for secret in SECRETS):
            found.append("a secret in the store")
        return found

    def close(self) -> None:
        """End the server over HTTP."""
        if self._web is not None:
            self._web.kill()
            self._web.communicate()


def _do(server: str, habit: str, size: int) -> dict[str, Any]:
    return {"name": f"{server}.do", "arguments": {"habit": habit, "size": size}}
