"""Python functions behind the whole gateway: found, described and called through the one executor."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import anyio
import jsonschema_rs
import pytest
from tests.sample_tools import sample_app

from portico import Connection, RequestContext, tool
from portico.domain.call import Call, Caller, Outcome
from portico.domain.tool import Effect
from portico.errors import InvalidArguments, UnknownTool
from portico.providers.local_sources import LocalSources
from portico.providers.python import LocalProvider, make_tool
from portico.surfaces.mcp.surface import Envelope
from portico.surfaces.search import Search
from portico.surfaces.static import Static
from portico.testing import FakeApplication
from portico.wiring import Parts, assemble

ANA = Caller(name="ana", surface="test")


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Guest:
    name: str
    age: int = 18


@dataclass(frozen=True)
class Booking:
    guests: list[Guest]
    on: date
    size: Size


@tool(read_only=True, category="travel")
async def handle_book_room(guests: list[Guest], on: date, size: Size = Size.SMALL) -> Booking:
    """Book a room in a hotel.

    Args:
        guests: who comes
        on: the first day
    """
    return Booking(guests, on, size)


async def call(application: FakeApplication, name: str, **arguments: Any) -> Any:
    with anyio.fail_after(10):
        return await application.gateway.call(ANA, Call(tool=name, arguments=arguments))


@pytest.mark.requirement("P-LIBRARY-FUNCTIONS", "S0-44", "S0-48")
async def test_a_function_is_called_with_what_its_annotations_say_and_answers_as_its_schema_says() -> None:
    application = sample_app(handle_book_room)
    found = application.gateway.snapshot.resolver.resolve("book_room", application.gateway.snapshot.tools.keys())
    assert found.effect is Effect.READ
    result = await call(application, "book_room", guests=[{"name": "Ana"}], on="2026-05-01", size="large")
    assert result.structured == {"guests": [{"name": "Ana", "age": 18}], "on": "2026-05-01", "size": "large"}
    assert found.output_schema is not None
    jsonschema_rs.validator_for(dict(found.output_schema)).validate(result.structured)
    with pytest.raises(InvalidArguments, match=r"missing: on \(string\)"):
        await call(application, "book_room", guests=[])
    with pytest.raises(InvalidArguments, match="'2026-02-30' is not a date") as caught:
        await call(application, "book_room", guests=[], on="2026-02-30")
    assert caught.value.subject == "_local.book_room"
    assert [entry.outcome for entry in application.invocations] == [Outcome.DONE, Outcome.INVALID, Outcome.INVALID]


@contextmanager
def open_memory(context: RequestContext) -> Iterator[sqlite3.Connection]:
    """A database that can be used only in the thread that opens it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE asked (who TEXT)")
        connection.execute("INSERT INTO asked VALUES (?)", (context.caller.name,))
        yield connection


def handle_base_whoAsked(conn: Connection, _request_context: Any = None, **bindings: Any) -> Any:  # noqa: N802
    """Say who asked.

    Arguments:
      bindings - whatever else
    """
    return {"who": conn.execute("SELECT who FROM asked").fetchone()[0], "also": _request_context.caller.name}


@pytest.mark.requirement("S0-42", "S0-51", "S0-82", "S0-E9")
async def test_both_modes_share_the_function_its_wrapper_its_connection_and_the_caller() -> None:
    provider = LocalProvider(inject={Connection: open_memory})
    provider.add_tool(make_tool(handle_base_whoAsked))
    application = assemble(Parts(providers={"local": provider}))
    application.gateway.publisher.accept([(provider.offering(), provider.source)])
    (listed,) = await Static(application.gateway).tools(ANA)
    assert listed["name"] == "base_whoAsked"
    assert listed["inputSchema"]["properties"] == {}
    directly = await application.gateway.call(ANA, Call(tool=listed["name"], arguments={}))
    execute = Search(application.gateway).meta_tool("execute_tool")
    assert execute is not None
    through = await execute(ANA, {"tool_name": "base_whoAsked", "arguments": {}}, Envelope())
    assert directly.structured == {"who": "ana", "also": "ana"}
    assert through["structuredContent"] == directly.structured
    assert through["content"] == directly.content


@pytest.mark.requirement("S0-2", "S0-77")
async def test_a_file_of_functions_becomes_servers_and_tools_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from portico import tool\n"
        "def handle_add(a: int, b: int) -> int:\n"
        "    '''Add two numbers.'''\n"
        "    return a + b\n"
        "@tool(server='sky', read_only=True, tags=['weather'])\n"
        "def forecast(city: str) -> str:\n"
        "    '''Tell the weather.'''\n"
        "    return f'sunny in {city}'\n"
    )
    sources = LocalSources(python=("mine.py",), folder=tmp_path)
    sources.load()
    assert sources.problems == ()
    providers = sources.providers
    application = assemble(Parts(providers={**providers}))
    application.gateway.publisher.accept((p.offering(), p.source) for p in providers.values())
    found = FakeApplication(application.gateway, application.admin)
    assert (await call(found, "local.add", a=1, b=2)).structured == {"result": 3}
    assert (await call(found, "sky.forecast", city="Oslo")).text == "sunny in Oslo"
    providers["local"].remove("add")
    application.gateway.publisher.accept([(providers["local"].offering(), "local")])
    with pytest.raises(UnknownTool):
        await call(found, "local.add", a=1, b=2)


@pytest.mark.requirement("P-PYTHON-SAFE")
async def test_one_function_that_hangs_leaves_every_other_free() -> None:
    held = anyio.Event()

    async def handle_hang() -> None:
        """Hang."""
        held.set()
        await anyio.Event().wait()

    def handle_work(x: int) -> int:
        """Work."""
        return x

    application = sample_app(handle_hang, handle_work)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(application, "hang"))
        with anyio.fail_after(10):
            await held.wait()
        assert (await call(application, "work", x=1)).structured == {"result": 1}
        tasks.cancel_scope.cancel()
    assert {entry.outcome for entry in application.invocations} == {Outcome.DONE, Outcome.CANCELLED}
