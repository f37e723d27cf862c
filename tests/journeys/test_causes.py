"""Why a server cannot be used is told in one word, for programs: `portico doctor --json`."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from portico.testing import FaultPlan, FaultyServer, PlannedFault, faulty_http
from tests.journeys.running import environment, write_config

pytestmark = pytest.mark.anyio
START = {"start": 20}


async def openssl(folder: Path, *args: str) -> None:
    await anyio.run_process(["openssl", *args], cwd=folder)


async def make_authority(folder: Path) -> None:
    """A certificate authority, and the key of every server."""
    new = ("-newkey", "rsa:2048", "-nodes", "-subj")
    await openssl(
        folder, "req", "-x509", *new, "/CN=our authority", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem"
    )
    await openssl(folder, "req", *new, "/CN=server", "-keyout", "key.pem", "-out", "server.csr")


async def certified(folder: Path, name: str, days: int, *, by: str = "ca") -> ssl.SSLContext:
    """A server's context with a certificate for one name or address."""
    (folder / "names").write_text(f"subjectAltName={name}")
    authority = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial") if by == "ca" else ("-signkey", "key.pem")
    made = (
        "x509",
        "-req",
        "-in",
        "server.csr",
        *authority,
        "-days",
        str(days),
        "-extfile",
        "names",
        "-out",
        "cert.pem",
    )
    await openssl(folder, *made)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def at_handshake(**fault: Any) -> FaultPlan:
    return FaultPlan(faults=(PlannedFault(at="handshake", **fault),))


@pytest.fixture
async def unusable(tmp_path: Path) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """Config entries by the cause for which they cannot be used, and the address of a proxy that wants credentials."""
    await make_authority(tmp_path)
    plans = {
        "timeout": at_handshake(kind="hang"),
        "credentials": at_handshake(kind="respond", status=401),
        "http": at_handshake(kind="respond", status=500),
        "not_mcp": at_handshake(kind="respond", text="<html>", headers={"Content-Type": "text/html"}),
        "revision": at_handshake(kind="version"),
        "proxy": at_handshake(kind="respond", status=407),
    }
    contexts = {
        "tls_expired": await certified(tmp_path, "IP:127.0.0.1", -1),
        "tls_host": await certified(tmp_path, "DNS:elsewhere.example", 2),
        "tls": await certified(tmp_path, "IP:127.0.0.1", 2, by="itself"),
    }
    async with AsyncExitStack() as stack:
        running = {cause: await stack.enter_async_context(faulty_http(plan)) for cause, plan in plans.items()}
        for cause, context in contexts.items():
            running[cause] = await stack.enter_async_context(faulty_http(FaultPlan(), tls=context))
        async with faulty_http(FaultPlan()) as gone:
            refused = gone.url
        proxy = running.pop("proxy").url
        urls = {cause: server.url for cause, server in running.items()} | {
            "refused": refused,
            "dns": "http://no-such-host.invalid/mcp",
            "proxy_auth": "http://behind-the-proxy.example/mcp",
        }
        entries = {cause: {"url": url, "timeouts": START} for cause, url in urls.items()}
        entries["timeout"]["timeouts"] = {"start": 1}
        exits = FaultyServer(FaultPlan(faults=(PlannedFault(kind="exit", at="start"),)))
        yield {**entries, "command": {"command": "no-such-command"}, "exited": exits.stdio()}, proxy


@pytest.mark.requirement("F22", "P-CAUSES")
async def test_each_reason_has_a_word_of_its_own(unusable: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    entries, proxy = unusable
    write_config(tmp_path / "home", entries)
    told = await doctor(tmp_path / "home", tmp_path / "ca.pem", proxy)
    assert {server["name"]: server["cause"] for server in told} == {cause: cause for cause in entries}


async def doctor(home: Path, authority: Path, proxy: str) -> Sequence[dict[str, Any]]:
    network = {"SSL_CERT_FILE": str(authority), "HTTP_PROXY": proxy, "NO_PROXY": "127.0.0.1,no-such-host.invalid"}
    command = [sys.executable, "-m", "portico", "doctor", "--json"]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, env={**environment(home), **network}, cwd=home, check=False)
    servers: Sequence[dict[str, Any]] = [one for one in json.loads(done.stdout) if "cause" in one]
    return servers
