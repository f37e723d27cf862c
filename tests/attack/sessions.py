"""Sessions that are large, many, stolen, or left behind."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from tests.attack.bodies import SURFACES
from tests.attack.suite import Attempt, Suite, flaw
from tests.attack.talk import message
from tests.attack.target import Target

STREAMS = 200
"""Streams that are open at once."""


class Sessions(Suite):
    """First messages of any size, on every surface, and what may be done with the ids that come back."""

    def __init__(self) -> None:
        """No session and no stream is open yet."""
        super().__init__(name="sessions")
        self.known: list[tuple[str, str]] = []
        self.streams: list[socket.socket] = []

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Sessions are opened much more often than closed."""
        kinds = {"plain": 5, "large": 4, "stream": 2, "unknown": 1, "deleted": 1, "abroad": 1}
        while True:
            kind = chance.choices(list(kinds), list(kinds.values()))[0]
            yield getattr(self, f"_{kind}")(chance, target)

    def aftermath(self, target: Target) -> list[str]:
        """Streams are let go; whoever called before is still answered."""
        for stream in self.streams:
            with suppress(OSError):
                stream.close()
        return [] if target.talk.send("GET", "/livez").status == 200 else ["the gateway does not answer any more"]

    def _open(self, target: Target, surface: str, **params: Any) -> str:
        reply = target.talk.hello(surface, **params)
        if reply.session:
            self.known.append((surface, reply.session))
        return flaw(reply)

    def _plain(self, chance: Random, target: Target) -> Attempt:
        return Attempt("a session", self._open(target, chance.choice(SURFACES)))

    def _large(self, chance: Random, target: Target) -> Attempt:
        size = int(10 ** chance.uniform(3, 6.4))
        info: dict[str, Any] = {"name": "x" * chance.choice([1, size]), "version": "0"}
        info[chance.choice(["title", "websiteUrl", "description"])] = "y" * size
        some = {f"k{n}": {} for n in range(size // 20)}
        capabilities = chance.choice([{"experimental": some}, {"extensions": some}, {"sampling": some}, {}])
        return Attempt(
            "a large session", self._open(target, chance.choice(SURFACES), clientInfo=info, capabilities=capabilities)
        )

    def _stream(self, chance: Random, target: Target) -> Attempt:
        """A stream that is opened and never read."""
        if not self.known or len(self.streams) >= STREAMS:
            return self._plain(chance, target)
        surface, id = chance.choice(self.known)
        head = f"GET /mcp/{surface} HTTP/1.1\r\nHost: 127.0.0.1:{target.talk.port}\r\nAccept: text/event-stream\r\n"
        stream = target.talk.hold(f"{head}Mcp-Session-Id: {id}\r\n\r\n".encode())
        self.streams += [stream] if stream else []
        return Attempt("a stream that nobody reads")

    def _unknown(self, chance: Random, target: Target) -> Attempt:
        """An id that nobody was given."""
        _, other = chance.choice(self.known or [("", "0" * 32)])
        id = chance.choice(["0" * 32, "", "x" * 5_000, other[:-1] + "g", other.upper() + "0"])
        return Attempt("an unknown session", self._used(target, "discover", id))

    def _abroad(self, chance: Random, target: Target) -> Attempt:
        """The id of another surface."""
        surface, id = chance.choice(self.known or [("static", "0" * 32)])
        other = chance.choice([name for name in SURFACES if name != surface])
        return Attempt("a session of another surface", self._used(target, other, id))

    def _deleted(self, chance: Random, target: Target) -> Attempt:
        """An id that was given back."""
        if not self.known:
            return self._plain(chance, target)
        surface, id = self.known.pop(chance.randrange(len(self.known)))
        own = {"Mcp_Session_Id": id, "MCP_Protocol_Version": "2025-11-25"}
        wrong = flaw(target.talk.send("DELETE", f"/mcp/{surface}", **own))
        return Attempt("a closed session", wrong or self._used(target, surface, id))

    def _used(self, target: Target, surface: str, id: str) -> str:
        """A call under an id that must not work here."""
        before = target.executed()
        own = {"MCP_Protocol_Version": "2025-11-25", **({"Mcp_Session_Id": id} if id else {})}
        params = {"name": "victim__echo", "arguments": {}}
        reply = target.talk.post(surface, message(7, "tools/call", params), **own)
        if target.executed() > before and "result" in json.dumps(reply.message):
            return "a call in a session that does not exist"
        return flaw(reply)
