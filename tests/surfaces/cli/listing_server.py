"""A real HTTP server with the API of registries of MCP servers: pages, search, versions, ETag, and ways to fail."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

META = "io.modelcontextprotocol.registry/official"


def listed(name: str, *, status: str = "active", latest: bool = True, **fields: Any) -> dict[str, Any]:
    """One server as a registry answers with it."""
    server = {
        "name": name,
        "description": "Adds numbers.",
        "version": "1.0.0",
        "repository": {"url": f"https://github.com/{name}", "source": "github"},
        **fields,
    }
    return {"server": server, "_meta": {META: {"status": status, "isLatest": latest}}}


def pypi(identifier: str = "ana-calculator", **fields: Any) -> dict[str, Any]:
    """A package of PyPI."""
    return {
        "registryType": "pypi",
        "identifier": identifier,
        "version": "1.0.0",
        "transport": {"type": "stdio"},
        **fields,
    }


class ListingServer:
    """Answers as it is told, and remembers every request with its headers."""

    def __init__(self, *rows: dict[str, Any], page: int = 100) -> None:
        self.rows, self.page = list(rows), page
        self.behaviour: Callable[[Handler], None] = Handler.well
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.ended = threading.Event()
        self._http = Listener(("127.0.0.1", 0), Handler)
        self._http.told = self  # type: ignore[attr-defined]
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [path for path, _ in self.requests]

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up; that is what some of these tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    @property
    def told(self) -> ListingServer:
        found: ListingServer = self.server.told  # type: ignore[attr-defined]
        return found

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self.told.requests.append((self.path, dict(self.headers)))
        self.told.behaviour(self)

    def well(self) -> None:
        parts = urlsplit(self.path)
        asked = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if parts.path == "/v0.1/servers":
            self.say(self._found(asked))
            return
        _, _, _, name, _, version = parts.path.split("/")
        wanted = unquote(version)
        for row in self.told.rows:
            is_meant = row["_meta"][META]["isLatest"] if wanted == "latest" else row["server"]["version"] == wanted
            if row["server"]["name"] == unquote(name) and is_meant:
                self.say(row)
                return
        self.say({"error": "Server not found"}, status=404)

    def _found(self, asked: dict[str, str]) -> dict[str, Any]:
        rows = [
            row
            for row in self.told.rows
            if asked.get("search", "") in row["server"]["name"] and row["_meta"][META]["isLatest"]
        ]
        start = int(asked.get("cursor", "0"))
        page = rows[start : start + self.told.page]
        rest = {"nextCursor": str(start + self.told.page)} if start + self.told.page < len(rows) else {}
        return {"servers": page, "metadata": {"count": len(page), **rest}}

    def say(self, body: Any, *, status: int = 200, kind: str = "application/json", **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        etag = f'"{hashlib.sha256(raw).hexdigest()[:16]}"'
        if status == 200 and self.headers.get("If-None-Match") == etag:
            status, raw = 304, b""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "ETag": etag, "Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)

    def hang(self) -> None:
        self.told.ended.wait(60)

    def fail(self) -> None:
        self.say({"error": "oops"}, status=500)

    def speak_html(self) -> None:
        self.say(b"<html>hello</html>", kind="text/html")

    def redirect(self) -> None:
        self.say(b"", status=302, Location="http://169.254.169.254/latest/meta-data")

    def flood(self) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while not self.told.ended.is_set():
                self.wfile.write(b" " * 65_536)
        except OSError:
            return

    def loop(self) -> None:
        self.say({"servers": [listed("io.example/one")], "metadata": {"nextCursor": "again"}})

    def another(self) -> None:
        self.say(listed("io.example/another"))


@contextmanager
def listing(*rows: dict[str, Any], page: int = 100) -> Iterator[ListingServer]:
    """A registry with these servers for the length of a block."""
    server = ListingServer(*rows, page=page)
    try:
        yield server
    finally:
        server.close()
