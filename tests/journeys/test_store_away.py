"""A store that is away, locked or damaged costs no call, and what could not be written is written later or counted."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2 as httpx
import psycopg
import pytest
from psycopg import sql

from tests.journeys.kit import definition, serving
from tests.journeys.running import Gateway, client, gateway, portico, write_config

CALLS = 20


def furnished(home: Path, **rest: Any) -> Path:
    """A home with one small server."""
    write_config(home, {"tiny": serving(home / "tiny.json", [definition("echo", text="string")])}, **rest)
    return home


async def call(running: Gateway, times: int) -> None:
    async with client("http", "2025-11-25", surface="static", running=running) as connected:
        for number in range(times):
            result = await connected.call_tool("tiny__echo", {"text": str(number)})
            assert not result.is_error


async def ready(running: Gateway) -> dict[str, Any]:
    base = running.url.removesuffix("/mcp")
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{base}/readyz")).json()


async def until_stored(running: Gateway, wanted: int) -> dict[str, Any]:
    """The statistics, once they know of so many calls."""
    base = running.url.removesuffix("/mcp")
    with anyio.fail_after(30):
        async with httpx.AsyncClient() as http:
            while True:
                found = await http.get(f"{base}/api/v1/stats")
                if found.status_code == 200 and found.json()["calls"] >= wanted:
                    return found.json()
                await anyio.sleep(0.05)


@contextmanager
def refusing(url: str) -> Iterator[None]:
    """A database that lets nobody in, and has shown everybody the door."""
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(url.replace(f"/{name}?", "/postgres?"), autocommit=True) as admin:
        allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}")
        admin.execute(allow.format(sql.Identifier(name), sql.SQL("false")))
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            admin.execute(allow.format(sql.Identifier(name), sql.SQL("true")))


@pytest.mark.requirement("P-JOURNAL-AWAY", "F35")
async def test_calls_go_on_while_postgresql_is_away_and_all_of_them_are_stored_when_it_is_back(
    tmp_path: Path, postgres_url: str
) -> None:
    with gateway(furnished(tmp_path, store=postgres_url)) as running:
        await call(running, CALLS)
        await until_stored(running, CALLS)
        with refusing(postgres_url):
            await call(running, CALLS)
            with anyio.fail_after(20):
                while not (await ready(running))["degraded"]:  # noqa: ASYNC110  it is another process
                    await anyio.sleep(0.05)
            assert (await ready(running))["ready"]
        found = await until_stored(running, 2 * CALLS)
        assert (found["calls"], found["losses"]) == (2 * CALLS, {"dropped": 0, "lost": 0})


@pytest.mark.requirement("P-JOURNAL-AWAY")
async def test_a_gateway_starts_without_its_postgresql_and_finds_it_later(tmp_path: Path, postgres_url: str) -> None:
    with refusing(postgres_url):
        context = gateway(furnished(tmp_path, store=postgres_url))
        running = context.__enter__()
        try:
            await call(running, CALLS)
        except BaseException:
            context.__exit__(None, None, None)
            raise
    try:
        assert (await until_stored(running, CALLS))["calls"] == CALLS
    finally:
        context.__exit__(None, None, None)
    assert not any("Traceback" in line for line in running.said)


@pytest.mark.requirement("P-JOURNAL-AWAY", "F32")
async def test_calls_go_on_while_another_process_holds_the_sqlite_file(tmp_path: Path) -> None:
    with gateway(furnished(tmp_path)) as running:
        await call(running, 1)
        await until_stored(running, 1)
        with closing(sqlite3.connect(tmp_path / "portico.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await call(running, CALLS)
            other.execute("ROLLBACK")
        assert (await until_stored(running, CALLS + 1))["losses"] == {"dropped": 0, "lost": 0}


@pytest.mark.requirement("P-STORE-CORRUPT", "F37")
async def test_a_damaged_file_is_moved_aside_and_calls_work(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    (home / "portico.db").write_bytes(b"this is no database at all" * 500)
    with gateway(home) as running:
        await call(running, CALLS)
        assert (await until_stored(running, CALLS))["calls"] == CALLS
    assert list(home.glob("portico.db.corrupt-*"))


@pytest.mark.requirement("P-JOURNAL-LOSSES")
async def test_a_file_deleted_under_a_gateway_is_begun_anew_and_what_was_in_it_is_counted(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    with gateway(home) as running:
        await call(running, CALLS)
        await until_stored(running, CALLS)
        for file in home.glob("portico.db*"):
            file.unlink()
        await call(running, CALLS)
        losses = (await until_stored(running, CALLS))["losses"]
        assert losses["lost"] >= CALLS
    with closing(sqlite3.connect(home / "portico.db")) as later:
        assert later.execute("SELECT count(*) FROM invocations").fetchall() == [(CALLS,)]
        assert later.execute("SELECT sum(lost) FROM writers").fetchall() == [(losses["lost"],)]
    assert sum("was moved or deleted while it was open" in line for line in running.said) == 1


@pytest.mark.requirement("P-STORE-CORRUPT")
async def test_a_file_damaged_under_a_gateway_is_not_moved_away_from_it_by_a_command(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    assert portico(home, "list").returncode == 0
    with gateway(home):
        (home / "portico.db").write_bytes(b"this is no database at all" * 500)
        for log in home.glob("portico.db-wal"):
            log.write_bytes(b"")
        done = portico(home, "stats")
        assert done.returncode == 3
        assert "another process still has it open. Stop `portico serve`" in done.stderr
        assert not list(home.glob("portico.db.corrupt-*"))
    assert portico(home, "stats").returncode == 0
    assert list(home.glob("portico.db.corrupt-*"))


@pytest.mark.requirement("P-STORE-ADVICE")
def test_a_gateway_does_not_wait_for_a_postgresql_that_a_newer_portico_has_written(
    tmp_path: Path, postgres_url: str
) -> None:
    home = furnished(tmp_path, store=postgres_url)
    assert portico(home, "list").returncode == 0
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute("UPDATE alembic_version SET version_num = '9999'")
    for command in (("serve", "--port", "0"), ("serve", "--stdio"), ("list",)):
        done = portico(home, *command)
        assert done.returncode == 3
        assert "was written by a newer Portico" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.requirement("P-JOURNAL-DURABLE")
async def test_a_durable_journal_has_every_call_that_was_answered(tmp_path: Path) -> None:
    with gateway(furnished(tmp_path, journal="durable")) as running:
        await call(running, CALLS)
        with closing(sqlite3.connect(tmp_path / "portico.db")) as other:
            rows = other.execute("SELECT count(*) FROM invocations WHERE outcome = 'done'").fetchall()
        assert rows == [(CALLS,)]


@pytest.mark.requirement("P-JOURNAL-LOSSES")
async def test_what_a_killed_gateway_took_with_it_is_told_by_the_next_command(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    with gateway(home) as running:
        await call(running, CALLS)
        await until_stored(running, CALLS)
        with closing(sqlite3.connect(home / "portico.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await call(running, CALLS)
            running.process.kill()
            running.process.wait()
            other.execute("ROLLBACK")
    told = json.loads(portico(home, "stats", "--json").stdout)
    entries = sqlite3.connect(home / "portico.db").execute("SELECT count(*) FROM invocations").fetchone()
    assert entries == (CALLS,)
    assert told["losses"]["lost"] >= CALLS


async def test_figures_of_other_processes_are_shown_when_tiers_are_updated(tmp_path: Path) -> None:
    home = furnished(tmp_path)
    with gateway(home) as running:
        base = running.url.removesuffix("/mcp")
        assert portico(home, "call", "tiny.echo", "text=1").returncode == 0
        assert portico(home, "tiers", "update").returncode == 0
        async with httpx.AsyncClient() as http:
            with anyio.fail_after(20):
                while True:
                    (tool,) = (await http.get(f"{base}/api/v1/tools/hot")).json()["tools"]
                    if tool["success_rate"] == "100.0%":
                        break
                    await anyio.sleep(0.05)
