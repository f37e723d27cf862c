"""Learned words through every door: stored, shared among replicas, told to operators and to clients that search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import anyio
import orjson
import pytest

from portico.domain.call import Call, Caller
from portico.domain.search_answers import Query
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import DAY_SECONDS
from portico.search.learned_words import HINT_LENGTH
from portico.storage.change_feed import ChangeFeed
from portico.storage.database_interface import Database
from portico.storage.journal import StoredJournal
from portico.storage.journal_tables import Ledger
from portico.storage.storage import Storage, open_change_feed
from portico.surfaces import static
from portico.surfaces.rest.operators_and_monitoring import StatsResponse
from portico.surfaces.static import HINT, Static
from portico.testing import AGENT, FakeApplication, definition, make_test_app
from tests.surfaces.rest.rest_app import open_rest

CLOSING = definition("run_job_17", "Runs the monthly closing of the books.")
OWN_HINT = {**definition("own", "Does something else altogether."), "_meta": {HINT: "mine", "x": 1}}
MARKED = {**definition("marked", "Does a third thing."), "_meta": {"x": 1}}
CALLERS = [Caller(name=name, surface="test") for name in ("ana", "ben", "cleo")]


def make(**parts: Any) -> FakeApplication:
    return make_test_app({"erp": [CLOSING, OWN_HINT, MARKED]}, **parts)


async def teach(application: FakeApplication, query: str, name: str, callers: list[Caller] = CALLERS) -> None:
    """Let each of some callers search for something and then call a tool."""
    for caller in callers:
        application.gateway.executor.search_rank.remember(caller, [ToolId("erp", name)], query=query)
        await application.gateway.call(caller, Call(tool=f"erp.{name}", arguments={}))


async def listed(surface: Static) -> dict[str, Mapping[str, Any]]:
    return {tool["name"]: tool for tool in await surface.tools(AGENT)}


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time by which hints are made."""
    now = [static.time()]
    monkeypatch.setattr(static, "time", lambda: now[0])
    return now


@pytest.mark.requirement("P-LEARNED-HINTS")
async def test_static_hints_at_words_that_count_for_everybody(moment: list[float]) -> None:
    application = make()
    surface = Static(application.gateway)
    before = orjson.dumps(await surface.tools(AGENT))
    for name in ("run_job_17", "own", "marked"):
        await teach(application, "monday ritual of the books", name)
        await teach(application, "private matter", name, CALLERS[:2])
    assert orjson.dumps(await surface.tools(AGENT)) == before, "the list stays what it was until the day is over"
    moment[0] += DAY_SECONDS
    found = await listed(surface)
    assert found["erp__run_job_17"]["_meta"] == {HINT: "monday ritual"}
    assert found["erp__own"]["_meta"] == {HINT: "mine", "x": 1}, "a server's own hint stays"
    assert found["erp__marked"]["_meta"] == {"x": 1, HINT: "books monday ritual"}
    assert "private" not in orjson.dumps(await surface.tools(AGENT)).decode()
    assert {k: v for k, v in found["erp__run_job_17"].items() if k != "_meta"} == {**CLOSING, "name": "erp__run_job_17"}


@pytest.mark.requirement("P-LEARNED-HINTS")
async def test_a_new_snapshot_makes_new_hints(moment: list[float]) -> None:
    application = make()
    surface = Static(application.gateway)
    assert "_meta" not in (await listed(surface))["erp__run_job_17"]
    await teach(application, " ".join(letter * 20 for letter in "bcdfghk"), "run_job_17")
    application.gateway.publisher.accept([(await application.provider("erp").offer(), "upstream")])
    application.provider("erp").tools.append(definition("new"))
    application.gateway.publisher.accept([(await application.provider("erp").offer(), "upstream")])
    hint = (await listed(surface))["erp__run_job_17"]["_meta"][HINT]
    assert 60 < len(hint) <= HINT_LENGTH


@pytest.mark.requirement("P-LEARNED-STORED", "P-LEARNED-PRIVATE")
async def test_rest_tells_what_counts_for_everybody_and_nothing_of_others() -> None:
    rest = open_rest()
    gateway = rest.application.gateway
    for number, caller in enumerate(CALLERS):
        shown = [ToolId("playwright", "browser_snapshot")]
        gateway.executor.search_rank.remember(caller, shown, query="photo of my screen")
        await gateway.call(caller, Call(tool="playwright.browser_snapshot", arguments={}))
        told = StatsResponse.model_validate_json((await rest.get("/api/v1/stats")).body, strict=True)
        assert bool(told.learned) == (number == 2)
    assert [(line.word, line.tool, line.uses, line.callers, line.is_shared) for line in told.learned] == [
        ("photo", "playwright::browser_snapshot", 3, 3, True),
        ("screen", "playwright::browser_snapshot", 3, 3, True),
    ]


@pytest.fixture
def replicas(database: Database) -> Iterator[tuple[FakeApplication, FakeApplication]]:
    """Two applications over one database, each with a journal and signals of its own."""
    journals = StoredJournal(Ledger(database)), StoredJournal(Ledger(database))
    feeds = open_change_feed(database), open_change_feed(database)

    def application(journal: StoredJournal, changes: ChangeFeed) -> FakeApplication:
        return make(storage=Storage(journal=journal, ledger=Ledger(database), changes=changes))

    with closing(journals[0]), closing(journals[1]), closing(feeds[0]), closing(feeds[1]):
        yield application(journals[0], feeds[0]), application(journals[1], feeds[1])


def journal_of(application: FakeApplication) -> StoredJournal:
    journal = application.admin.storage.journal
    assert isinstance(journal, StoredJournal)
    return journal


def answers(application: FakeApplication, caller: Caller) -> list[str]:
    found = application.gateway.search_hits(caller, Query(text="monday ritual"), nearest=False)
    return [hit.handle for hit in found.hits]


@pytest.mark.requirement("P-LEARNED-STORED", "P-LEARNED-PRIVATE", "P-LEARNED-OFF")
async def test_replicas_learn_and_forget_together(replicas: tuple[FakeApplication, FakeApplication]) -> None:
    one, other = replicas
    assert not answers(other, AGENT)
    await teach(one, "monday ritual", "run_job_17", [*CALLERS[:2]] * 3)
    assert journal_of(one).flush()
    assert answers(one, CALLERS[0]) == ["erp.run_job_17"], "before anything is read again"
    assert await anyio.to_thread.run_sync(journal_of(other).reread)
    assert answers(other, CALLERS[0]) == ["erp.run_job_17"]
    assert not answers(other, CALLERS[2])
    await teach(other, "monday ritual", "run_job_17", [CALLERS[2]])
    assert journal_of(other).flush()
    assert answers(other, AGENT) == ["erp.run_job_17"], "three callers, of two replicas"
    assert other.admin.storage.changes is not None
    before = other.admin.storage.changes.numbers()
    assert await one.admin.forget_learned() == 6
    assert not answers(one, CALLERS[0])
    after = other.admin.storage.changes.numbers()
    await other.admin.reload({topic for topic in after if after[topic] != before.get(topic, 0)})
    assert not answers(other, CALLERS[0])
    assert one.admin.storage.usage({})[ToolId("erp", "run_job_17")].calls == 7, "usage is not forgotten"
