"""Send injection strings through every way to call a tool, into every column type, and detect changes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import event

from portico.application import Application
from portico.domain.call import Call
from portico.errors import CallError
from portico.providers.sql.registry.provider import RegistryProvider
from portico.providers.sql.sqlite_session import SqliteEngine, SqliteProcess, SqliteProcesses
from portico.surfaces.discover import Discover
from portico.surfaces.mcp.surface import Envelope, Surface
from portico.surfaces.search import Search
from tests.registries import ALICE, Shop

TYPES: Mapping[str, tuple[str, str]] = {
    "text": ("CV", "text"),
    "padded": ("CF", "char(20)"),
    "whole": ("I", "integer"),
    "small": ("I2", "smallint"),
    "large": ("I8", "bigint"),
    "number": ("F", "double precision"),
    "exact": ("numeric(10,2)", "numeric(10,2)"),
    "day": ("DA", "date"),
    "hour": ("AT", "time"),
    "moment": ("TS", "timestamp"),
    "zoned": ("SZ", "timestamptz"),
    "flag": ("boolean", "boolean"),
    "mark": ("uuid", "uuid"),
    "raw": ("BV", "bytea"),
    "odd": ("mood", "text"),
}
"""A column for every type: its code in the registry, and what it is in the database."""
TEXTS = frozenset({"text", "padded", "odd"})
"""Those that take any text."""
SCRIPT = "local ok, found = pcall(function() return warehouse.typed(args.sent):await() end) return ok"

Door = Callable[[Mapping[str, Any]], Awaitable[bool]]
"""Sends arguments to the tool, and says whether it was let through."""


def create_attacked_tables(shop: Shop) -> None:
    """A table with a column of every type, and one that attacks name."""
    columns = ", ".join(f"{name} {type}" for name, (_, type) in TYPES.items())
    shop.run(
        f"CREATE TABLE mcp.typed ({columns})", "CREATE TABLE mcp.sales (a text)", "INSERT INTO mcp.sales VALUES ('x')"
    )
    shop.register("typed", "typed", "T", *(f"{name} {code}?" for name, (code, _) in TYPES.items()))


def state(shop: Shop) -> str:
    """A mark of everything in a database: every byte of a file, or every row and every object of a server."""
    if shop.file:
        return hashlib.sha256(shop.file.read_bytes()).hexdigest()
    parts = [
        shop.rows(f"SELECT md5(coalesce(string_agg(CAST(t AS text), ',' ORDER BY CAST(t AS text)), '')) FROM {table} t")
        for table in ("mcp.typed", "mcp.sales", "mcp.sample_sales", "mcp.mcp_tools", "mcp.mcp_tool_params")
    ]
    objects = (
        "SELECT relname, relkind, relnatts FROM pg_class WHERE relname NOT LIKE 'pg_t%' ORDER BY 1, 2",
        "SELECT oid, xmin FROM pg_proc ORDER BY 1",
        "SELECT rolname, rolsuper FROM pg_roles ORDER BY 1",
        "SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg_t%' ORDER BY 1",
    )
    return hashlib.sha256(repr([*parts, *map(shop.rows, objects)]).encode()).hexdigest()


@dataclass
class InjectionAttack:
    """An attack on one application: counts what reached the database."""

    application: Application
    sent: int = 0
    """Connections that were taken for a call."""
    let_through: list[tuple[str, str, str]] = field(default_factory=list)
    """Door, column and text of what was taken for a value of its column."""
    tried: int = 0

    def __post_init__(self) -> None:
        assert self.application.registries is not None
        provider: RegistryProvider = self.application.registries.providers["warehouse"]
        database = provider._reading._open()
        event.listen(database.engine, "checkout", self._note)
        if isinstance(database, SqliteEngine):  # what agents ask goes to other processes
            database.processes = _Counted(database.processes, self._note)

    def _note(self, *_: object) -> None:
        self.sent += 1

    def doors(self) -> dict[str, Door]:
        """Every way to call a tool with arguments of one's own."""
        gateway, scripts = self.application.gateway, self.application.scripts
        assert scripts is not None
        discover, search = Discover(gateway, scripts), Search(gateway, "keywords")

        async def direct(arguments: Mapping[str, Any]) -> bool:
            with suppress(CallError):
                return not (await gateway.call(ALICE, Call(tool="typed", arguments=arguments))).is_error
            return False

        async def script(arguments: Mapping[str, Any]) -> bool:
            return (await scripts.run(ALICE, SCRIPT, {"sent": dict(arguments)})).text == "true"

        return {
            "direct": direct,
            "call_tool": _through(discover, "call_tool", "name"),
            "execute_tool": _through(search, "execute_tool", "tool_name"),
            "script": script,
        }

    async def run(self, texts: Sequence[str], doors: Sequence[str]) -> None:
        """Send each text as a value of every column through these doors."""
        ways = self.doors()
        for name in doors:
            for text in texts:
                for column in TYPES:
                    self.tried += 1
                    if await ways[name]({column: text}):
                        self.let_through.append((name, column, text))


class _Counted(SqliteProcesses):
    """The same processes, with a look at who takes one."""

    def __init__(self, inner: SqliteProcesses, note: Callable[[], None]) -> None:
        self.__dict__ = inner.__dict__
        self._note = note

    def take(self, seconds: float) -> SqliteProcess:
        self._note()
        return super().take(seconds)


def _through(surface: Surface, meta: str, key: str) -> Door:
    tool = surface.meta_tool(meta)
    assert tool is not None

    async def send(arguments: Mapping[str, Any]) -> bool:
        with suppress(CallError):
            raw = await tool(ALICE, {key: "warehouse.typed", "arguments": dict(arguments)}, Envelope())
            return not raw.get("isError")
        return False

    return send
