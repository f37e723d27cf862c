"""Secrets of the config go to the servers they are for: not to agents, logs, the store or the screen."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.journeys.running import ERAS, Gateway, client, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.timeout(180), pytest.mark.anyio, pytest.mark.requirement("P-NO-SECRET-LEAKS")]

SERVER = str(Path(__file__).with_name("leaking_server.py"))
ENV = {"CANARY_KEY": "canary-env-51a9", "CANARY_MODE": "canary-mode-77", "CANARY_URL": "pg://u:canary-dsn-8d@db/x"}
ARGS = ["--token", "canary-arg-0b1c", "--api-key=canary-flag-2d3e", "https://u:canary-user-4f@host/x?k=canary-query-5a"]
AT_START = {"CANARY_AT_START": "canary-start-6b7c", "CANARY_TOKEN": "canary-start-token-8d"}
HEADERS = {
    "Authorization": "Bearer canary-bearer-9e0f",
    "X-Api-Key": "canary-header-1a2b",
    "Cookie": "session=canary-cookie-3c4d",
}
CANARY = "canary-"


class Echo(BaseHTTPRequestHandler):
    """An address that answers every request with an error that repeats the credentials."""

    def do_POST(self) -> None:
        """Tell everything that was sent."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        words = [value.removeprefix("Bearer ") for value in self.headers.values()]
        body = f"failed for {self.path} {' '.join(words)} {self.headers.get('Authorization')}".encode()
        self.send_response(500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_DELETE = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://user:canary-userinfo-5e@127.0.0.1:{server.server_port}/mcp?key=canary-urlquery-6f"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, echo: str) -> Path:
    home = tmp_path_factory.mktemp("secrets")
    servers = {
        "leaking": {"command": sys.executable, "args": [SERVER, *ARGS], "env": ENV},
        "broken": {"command": sys.executable, "args": [SERVER, *ARGS], "env": AT_START},
        "remote": {"url": echo, "headers": HEADERS},
    }
    write_config(home, servers, journal="durable")
    portico(home, "refresh")
    return home


@pytest.fixture(scope="module")
def running(home: Path) -> Iterator[Gateway]:
    with gateway(home) as found:
        yield found


def got(running: Gateway, path: str) -> str:
    try:
        with urllib.request.urlopen(running.url.removesuffix("/mcp") + path, timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


@pytest.mark.requirement("T43", "T44")
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ["leaking.refuse", "leaking.fail", "leaking.die", "broken.x", "remote.x"])
async def test_no_error_tells_an_agent_a_secret(running: Gateway, era: str, tool: str) -> None:
    async with client("http", era, surface="discover", running=running) as connected:
        result = await connected.call_tool("call_tool", {"name": tool, "arguments": {}})
        assert result.is_error
        assert CANARY not in text_of(result)
        assert "dying" not in text_of(result)
        assert "cannot start" not in text_of(result)
        found = await connected.call_tool("search_tools", {"query": "broken remote"})
        assert CANARY not in text_of(found)


@pytest.mark.requirement("T44")
def test_no_door_of_an_operator_and_no_file_holds_a_secret(home: Path, running: Gateway) -> None:
    for path in ("/api/v1/servers", "/readyz", "/api/v1/tools/search?q=die", "/api/v1/tools/broken/x", "/metrics"):
        assert CANARY not in got(running, path), path
    assert CANARY not in "".join(running.said)
    config = home / "portico.yaml"
    for file in home.rglob("*"):
        if file.is_file() and file.suffix not in (".yaml", ".yml") and file != config:
            assert CANARY.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    "command",
    [
        ("doctor",),
        ("doctor", "--json"),
        ("list",),
        ("list", "--json"),
        ("call", "leaking.die"),
        ("call", "leaking.fail", "--json"),
        ("call", "broken.x"),
        ("refresh",),
        ("stats", "--json"),
    ],
)
def test_no_command_prints_a_secret(home: Path, command: tuple[str, ...]) -> None:
    shown = portico(home, *command)
    assert CANARY not in shown.stdout + shown.stderr


def test_doctor_shows_what_a_broken_server_wrote_to_stderr_without_secrets(home: Path) -> None:
    shown = portico(home, "doctor", "broken")
    assert "stderr: cannot start with" in shown.stdout
    assert "[CANARY_TOKEN]" in shown.stdout
    told = json.loads(portico(home, "doctor", "broken", "--json").stdout)
    assert "cannot start with" in json.dumps(told)
