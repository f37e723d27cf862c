"""What the suite is pointed at: the fixture itself, or the gateway with the fixture behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

FIXTURE = Path(__file__).with_name("fixture_server.py")
_START_S = 30
_STOP_S = 10


class TargetFailed(Exception):
    """The server under test did not start; the message has its last words."""


@contextmanager
def direct() -> Iterator[str]:
    """The address of the fixture itself."""
    port = _free_port()
    with _running([sys.executable, str(FIXTURE), "--port", str(port)], port, {}):
        yield f"http://127.0.0.1:{port}/mcp"


@contextmanager
def gateway() -> Iterator[str]:
    """The address of the gateway's static surface, with the fixture behind it over stdio."""
    port = _free_port()
    with TemporaryDirectory() as home:
        config = Path(home) / "portico.yaml"
        config.write_text(yaml.safe_dump({"servers": {"fixture": {"command": sys.executable, "args": [str(FIXTURE)]}}}))
        serve = [sys.executable, "-m", "portico", "serve", "--host", "127.0.0.1", "--port", str(port)]
        with _running([*serve, "--config", str(config)], port, {"PORTICO_HOME": home}):
            _until_ready(f"http://127.0.0.1:{port}/readyz")
            yield f"http://127.0.0.1:{port}/mcp/static"


@contextmanager
def _running(command: Sequence[str], port: int, env: Mapping[str, str]) -> Iterator[None]:
    with TemporaryDirectory() as folder, (Path(folder) / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **env})
        try:
            _until_listening(process, port, Path(folder) / "log")
            yield
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _until_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TargetFailed(f"{' '.join(process.args[1:4])} did not start: {log.read_text()[-2000:]}")


def _until_ready(url: str) -> None:
    """Wait until the gateway knows its upstream; one that has no such page is taken as ready."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return
            time.sleep(0.1)
        else:
            return
    raise TargetFailed(f"{url} was not ready within {_START_S} s")
