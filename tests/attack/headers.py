"""Requests from elsewhere, and heads and bodies that are too long or never end."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from tests.attack.suite import Attempt, Suite, flaw
from tests.attack.talk import Reply, message
from tests.attack.target import Target

PATHS = (
    "/mcp /mcp/ /mcp/discover /mcp/static /mcp/search /mcp/capabilities /mcp/gateway /livez /readyz /metrics"
    " /openapi.json /api/v1/tools/hot /api/v1/tools/categories /api/v1/tools/search?q=x /api/v1/servers /api/v1/budget"
    " /api/v1/usage /api/v1/cache /nothing /favicon.ico / /mcp/nothing /api/v1/../v1/servers"
).split()
METHODS = ("GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT")
HELD = 150
"""Unfinished requests that are open at once."""
BURST = 25


class Headers(Suite):
    """What a web page, a careless proxy and a patient enemy send."""

    def __init__(self) -> None:
        """Nothing is held open yet."""
        super().__init__(name="headers")
        self.held: list[socket.socket] = []

    def attempts(self, chance: Random, target: Target) -> Iterator[Attempt]:
        """Foreign requests to every path, and now and then a monstrous one."""
        while True:
            kind = chance.choices(["foreign", "monstrous", "unfinished"], [8, 2, 1])[0]
            if kind == "foreign":
                yield from self._foreign(chance, target)
            elif kind == "monstrous":
                yield self._monstrous(chance, target)
            else:
                yield self._unfinished(chance, target)

    def aftermath(self, target: Target) -> list[str]:
        """Held connections are let go only now, so that what they cost is seen."""
        for connection in self.held:
            with suppress(OSError):
                connection.close()
        return []

    def _foreign(self, chance: Random, target: Target) -> Iterator[Attempt]:
        path, method = chance.choice(PATHS), chance.choice(METHODS)
        own = f"127.0.0.1:{target.talk.port}"
        kind, head = _stranger(chance, own, target.talk.port)
        body = message(1, "ping", {}) if method in ("POST", "PUT") else b""
        data = _head(method, path, head, body) + body
        reply = target.talk.raw(data)
        refused = reply.status in (0, 400, 403, 408, 413, 421, 431, 503)
        yield Attempt(kind, flaw(reply, may_fail=True) or ("" if refused else f"{kind} accepted ({reply.status})"))

    def _monstrous(self, chance: Random, target: Target) -> Attempt:
        own = f"Host: 127.0.0.1:{target.talk.port}\r\n"
        size = int(10 ** chance.uniform(3, 6.5))
        kind = chance.choice(["many headers", "one long header", "a long path", "no end", "odd lengths", "folded"])
        tail = {
            "many headers": "".join(f"X-{n}: y\r\n" for n in range(size // 12)),
            "one long header": f"X-Long: {'y' * size}\r\n",
            "folded": f"X-Fold: a\r\n{' y' * (size // 4)}\r\n b\r\n",
            "odd lengths": chance.choice(["Content-Length: 99999999999\r\n", "Content-Length: -1\r\n"]),
            "no end": "",
        }.get(kind, "")
        path = "/livez?" + "z" * size if kind == "a long path" else "/livez"
        data = f"GET {path} HTTP/1.1\r\n{own}{tail}" + ("" if kind == "no end" else "\r\n")
        if kind == "no end":
            self._keep(target.talk.hold(data.encode() + b"X-Drip: " + b"y" * min(size, 60_000)))
            return Attempt(kind)
        reply: Reply = target.talk.raw(data.encode())
        return Attempt(kind, flaw(reply, may_fail=True))

    def _unfinished(self, chance: Random, target: Target) -> Attempt:
        """A body that was promised and does not come to its end."""
        size = chance.randint(1_000_000, 4_000_000)
        host = chance.choice(["evil.example", f"127.0.0.1:{target.talk.port}"])
        path = chance.choice(["/mcp", "/mcp/static", "/api/v1/cache"])
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {size + 9}\r\n\r\n"
        for _ in range(min(BURST, HELD - len(self.held))):
            self._keep(target.talk.hold(head.encode() + b" " * size))
        return Attempt("an unfinished body")

    def _keep(self, connection: socket.socket | None) -> None:
        if connection is not None:
            self.held.append(connection)


def _head(method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> bytes:
    given = [*headers, ("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")]
    if body:
        given.append(("Content-Length", str(len(body))))
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given), "Connection: close", "", ""]
    return "\r\n".join(lines).encode("utf-8", "replace")


def _stranger(chance: Random, own: str, port: int) -> tuple[str, list[tuple[str, str]]]:
    """The headers of a request that does not come from here, and what is foreign about it."""
    domain = chance.choice(
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "[::2]", "10.0.0.1"]
    )
    domain = chance.choice([domain, domain.upper(), domain + "."])
    ports = chance.choice(["", f":{port}", f":{port + 1}", ":80", ":0", f":{port}0"])
    kind = chance.choice(["a foreign Host", "a wrong port", "a foreign Origin", "a cross-site request", "two Hosts"])
    if kind == "a foreign Host":
        return kind, [("Host", domain + ports)]
    if kind == "a wrong port":
        return kind, [("Host", chance.choice(["127.0.0.1", "localhost"]) + chance.choice(["", ":80", f":{port + 1}"]))]
    if kind == "two Hosts":
        return kind, [("Host", own), ("Host", domain)]
    if kind == "a foreign Origin":
        scheme = chance.choice(["http", "https", "chrome-extension", "file"])
        return kind, [
            ("Host", own),
            ("Origin", chance.choice(["null", f"{scheme}://{domain}{ports}", f"https://{own}"])),
        ]
    sites = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", chance.choice(["no-cors", "navigate", "cors"]))]
    return kind, [("Host", own), *sites]
