"""What operators and monitors read: usage, servers, budgets, health and figures."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from math import inf
from typing import Any, cast

import pytest
from anyio import create_task_group, fail_after
from prometheus_client.parser import text_string_to_metric_families

from portico.admin import Admin
from portico.domain.call import Call, Invocation, Outcome
from portico.domain.journal_entries import FleetEvent, JournalState, Look, Lookup, Report, ToolLine
from portico.domain.tool import ToolId
from portico.errors import CallError, UpstreamGone
from portico.execution.executor import BOUNDS, Counts
from portico.protocols import Provider
from portico.storage.memory import MemoryJournal
from portico.storage.storage import Storage
from portico.surfaces.capabilities.surface import Capabilities
from portico.surfaces.rest import operators_and_monitoring
from portico.surfaces.rest.operators_and_monitoring import (
    BudgetResponse,
    CallsResponse,
    ClearedResponse,
    EventsResponse,
    Live,
    Ready,
    ServersResponse,
    StatsResponse,
)
from portico.testing import AGENT, FakeProvider
from portico.tiers.tier_requests import TierAnswers
from tests.fake_ledger import FakeLedger
from tests.surfaces.rest.rest_app import TOOLS, Rest, open_rest

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Troubled(MemoryJournal):
    """A journal whose store is away."""

    @property
    def state(self) -> JournalState:
        return JournalState(waiting=7, recorded=20, stored=10, dropped=2, lost=1, trouble="the database is away")


async def figures(rest: Rest) -> Samples:
    answer = await rest.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = text_string_to_metric_families(answer.body.decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


async def test_usage_is_summed_up():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 10, failed=1)
    answer = await rest.get("/api/v1/stats?days=1&limit=5")
    told = StatsResponse.model_validate_json(answer.body, strict=True)
    assert told.days == 1
    assert len(told.by_day) == 1
    for query in ("days=0", "days=401", "limit=0", "limit=101", "days=x"):
        assert (await rest.get(f"/api/v1/stats?{query}")).status == 422


async def test_usage_is_summed_up_alike_over_rest_and_on_the_command_line():
    rest = open_rest()
    await rest.application.gateway.call(AGENT, Call(tool="serena.replace_body", arguments={"body": "x"}))
    told = (await rest.get("/api/v1/stats?days=7&limit=10")).json
    report = await rest.application.admin.usage_report(days=7, limit=10)
    printed = json.loads(json.dumps(report.as_data(rest.application.gateway.spell_id)))
    assert printed == told


async def test_usage_is_told_in_the_words_and_units_of_the_tiers():
    used = ToolLine(tool=ToolId("serena-mcp-server", "find_symbol"), calls=75, done=74, mean_ms=47, p95_ms=48)
    gone = ToolLine(tool=ToolId("gone", "tool"), calls=1, done=1, mean_ms=47, p95_ms=48)
    rest = open_rest(storage=Storage(ledger=FakeLedger(summed=Report(days=7, calls=76, top=(used, gone)))))
    rest.used("serena-mcp-server", "find_symbol", 75, failed=1)
    lines = {line["tool"]: line for line in (await rest.get("/api/v1/stats")).json["top"]}
    assert lines.keys() == {"serena::find_symbol", "gone::tool"}
    told = (await rest.get(f"{TOOLS}/serena/find_symbol")).json
    line = lines["serena::find_symbol"]
    assert (line["tool"], line["server"]) == (told["tool"], told["server"])
    assert line["success_rate"] == told["performance"]["success_rate"] == 98.7


async def test_usage_is_not_asked_of_a_store_that_is_known_to_be_away():
    rest = open_rest(storage=Storage(ledger=FakeLedger(summed=Report(days=7))))
    assert (await rest.get("/api/v1/stats")).status == 200
    driver, advice = "connection failed to 10.0.0.1 " * 20, "Check that the server runs"
    rest.application.admin.note_trouble(f"the store postgresql://db did not answer: {driver}. {advice}")
    answer = await rest.get("/api/v1/stats")
    assert (answer.status, answer.error["code"]) == (503, "store_error")
    said = answer.error["message"]
    assert said.startswith("the store postgresql://db did not answer: connection failed")
    cut = said.removesuffix(f"… {advice}")
    assert cut != said
    assert cut.split()[-1] in driver.split()
    assert len(said) < 300


@pytest.mark.requirement("T44")
async def test_servers_are_told_without_their_secrets():
    rest = open_rest()
    rest.provider("playwright").fails(UpstreamGone("playwright", details=("it does not answer",)))
    answer = await rest.get("/api/v1/servers")
    told = ServersResponse.model_validate_json(answer.body)
    lines = {line.name: line for line in told.servers}
    assert (lines["serena-mcp-server"].tools, lines["serena-mcp-server"].hidden) == (3, 1)
    assert lines["playwright"].target == "https://example.com/mcp"
    assert b"hunter2" not in answer.body


@pytest.mark.requirement("S1-57", "S1-76", "S1-77", "S1-78", "S1-79")
async def test_budgets_are_verified_as_the_tiers_are_sent():
    rest = open_rest()
    answer = await rest.get("/api/v1/budget")
    told = BudgetResponse.model_validate_json(answer.body, strict=True)
    assert told.ok
    assert [(tier.tier, tier.limit) for tier in told.tiers] == [("T0", 2000), ("T1", 4000), ("T2", 8000), ("T3", 12000)]
    assert told.tiers[0].tokens == (await rest.get(f"{TOOLS}/hot")).json["tokens"]
    assert told.failures == []


@pytest.mark.requirement("P-REPORTS-KEPT")
@pytest.mark.parametrize(
    ("path", "owner", "method"), [("budget", TierAnswers, "verify"), ("stats", Admin, "usage_report")]
)
async def test_a_report_is_made_once_however_many_ask(
    path: str, owner: type, method: str, monkeypatch: pytest.MonkeyPatch
):
    rest, made = open_rest(), []
    whole = getattr(owner, method)

    async def counted(*args: Any, **options: Any) -> Any:
        made.append(path)
        return await whole(*args, **options)

    monkeypatch.setattr(owner, method, counted)
    bodies = set()

    async def ask() -> None:
        bodies.add((await rest.get(f"/api/v1/{path}")).body)

    for _ in range(3):
        async with create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
    assert (made, len(bodies)) == ([path], 1)


@pytest.mark.requirement("P-REPORTS-KEPT")
async def test_a_report_is_another_one_after_a_call():
    ledger = FakeLedger(summed=Report(days=7))
    rest = open_rest(storage=Storage(ledger=ledger))
    assert (await rest.get("/api/v1/stats")).json["calls"] == 0
    ledger.summed = Report(days=7, calls=3)
    rest.used("playwright", "browser_snapshot", 3)
    assert (await rest.get("/api/v1/stats")).json["calls"] == 3


@pytest.mark.requirement("P-CALLS-LISTED")
async def test_single_calls_are_listed_and_filtered_and_hold_no_values():
    rest = open_rest()
    call = rest.application.gateway.call
    await call(AGENT, Call(tool="serena.replace_body", arguments={"body": "hunter2"}))
    for tool in ("playwright.browser_snapshot", "serena.secret_tool"):
        with suppress(CallError):
            await call(AGENT, Call(tool=tool, arguments={}))
    answer = await rest.get("/api/v1/calls")
    assert b"hunter2" not in answer.body
    lines = CallsResponse.model_validate_json(answer.body).calls
    assert [(line.tool, line.outcome) for line in lines] == [
        (None, "invalid"),
        ("playwright::browser_snapshot", "done"),
        ("serena::replace_body", "done"),
    ]
    for query, tools in {
        "limit=1": [None],
        "tool=serena.replace_body": ["serena::replace_body"],
        "tool=serena::replace_body": ["serena::replace_body"],
        "tool=replace_body": ["serena::replace_body"],
        "server=playwright": ["playwright::browser_snapshot"],
        "outcome=invalid": [None],
        "since=1h&outcome=done&limit=1": ["playwright::browser_snapshot"],
        "since=2200-01-01": [],
        "caller=nobody": [],
        f"after={lines[1].id}": [None],
    }.items():
        told = (await rest.get(f"/api/v1/calls?{query}")).json["calls"]
        assert [line["tool"] for line in told] == tools, query
    for query in ("limit=0", "limit=1001", "outcome=odd", "since=soon", "after=-1", "colour=red"):
        assert (await rest.get(f"/api/v1/calls?{query}")).status == 422, query


@pytest.mark.requirement("P-EVENTS")
async def test_events_are_listed_and_filtered():
    rest = open_rest()
    events = rest.application.admin.storage.events
    events.start()
    events.record(FleetEvent(kind="started", server="serena"))
    events.record(FleetEvent(kind="exited", server="serena", text="it ended", stderr="no cheese\n"))
    answer = await rest.get("/api/v1/events")
    newest, *_ = lines = EventsResponse.model_validate_json(answer.body, strict=True).events
    assert [line.kind for line in lines] == ["exited", "started", "gateway_started"]
    assert (newest.server, newest.text, newest.stderr, newest.times) == ("serena", "it ended", "no cheese\n", 1)
    for query, kinds in {
        "limit=1": ["exited"],
        "kind=started": ["started"],
        "server=serena": ["exited", "started"],
        "since=2200-01-01": [],
        f"after={lines[1].id}": ["exited"],
    }.items():
        told = (await rest.get(f"/api/v1/events?{query}")).json["events"]
        assert [line["kind"] for line in told] == kinds, query
    for query in ("limit=0", "limit=1001", "since=soon", "after=-1", "colour=red"):
        assert (await rest.get(f"/api/v1/events?{query}")).status == 422, query


@pytest.mark.requirement("F52", "F01")
async def test_we_are_ready_once_every_server_was_asked_or_a_moment_has_passed(monkeypatch: pytest.MonkeyPatch):
    rest = open_rest()
    monkeypatch.setattr(operators_and_monitoring, "READY_SECONDS", inf)
    Live.model_validate_json((await rest.get("/livez")).body, strict=True)
    late = FakeProvider(server="late")
    cast(dict[str, Provider], rest.application.admin.providers)["late"] = late
    late.hold()
    with fail_after(5):
        async with create_task_group() as tasks:
            rest.application.admin.refresher.watch(tasks)
            rest.application.admin.refresher.begin("late")
            answer = await rest.get("/readyz")
            told = Ready.model_validate_json(answer.body, strict=True)
            assert (answer.status, told.ready, told.starting) == (503, False, ["late"])
            monkeypatch.setattr(operators_and_monitoring, "READY_SECONDS", 0.0)
            answer = await rest.get("/readyz")
            told = Ready.model_validate_json(answer.body, strict=True)
            assert (answer.status, told.ready, told.starting) == (200, True, ["late"])
            monkeypatch.setattr(operators_and_monitoring, "READY_SECONDS", inf)
            late.release()
            assert await rest.application.gateway.wait_until_ready() == set()
            answer = await rest.get("/readyz")
            tasks.cancel_scope.cancel()
    told = Ready.model_validate_json(answer.body, strict=True)
    assert (answer.status, told.ready, told.starting, told.store, told.degraded) == (200, True, [], "ok", False)


@pytest.mark.requirement("F52")
async def test_a_store_that_is_away_degrades_and_does_not_stop():
    rest = open_rest(storage=Storage(journal=Troubled()))
    answer = await rest.get("/readyz")
    told = Ready.model_validate_json(answer.body, strict=True)
    assert (answer.status, told.ready, told.degraded, told.store) == (200, True, True, "the database is away")
    assert told.journal.model_dump() == {"waiting": 7, "dropped": 2, "lost": 1}
    found = await figures(rest)
    assert found["portico_journal_waiting", ()] == 7
    assert found["portico_journal_recorded_total", ()] == 20
    assert found["portico_journal_stored_total", ()] == 10
    assert found["portico_journal_dropped_total", ()] == 2
    assert found["portico_journal_lost_total", ()] == 1
    assert (await rest.get(f"{TOOLS}/hot")).status == 200


@pytest.mark.requirement("S1-85", "P-METRICS")
async def test_figures_tell_calls_lookups_tokens_and_caches():
    rest = open_rest()
    call = Call(tool="serena.replace_body", arguments={"body": "x"})
    await rest.application.gateway.call(AGENT, call)
    with pytest.raises(CallError):
        await rest.application.gateway.call(AGENT, Call(tool="no.such", arguments={}))
    for _ in range(4):
        await rest.get(f"{TOOLS}/hot")
    found = await figures(rest)
    assert found["portico_calls_total", (("outcome", "done"), ("server", "serena-mcp-server"))] == 1
    assert found["portico_calls_total", (("outcome", "invalid"), ("server", ""))] == 1
    assert found["portico_call_seconds_count", (("server", "serena-mcp-server"),)] == 1
    assert found["portico_call_seconds_bucket", (("le", "+Inf"), ("server", "serena-mcp-server"))] == 1
    assert found["portico_lookups_total", (("look", "browse"),)] == 4
    assert found["portico_tokens_total", (("direction", "in"),)] > 0
    assert found["portico_tokens_total", (("direction", "lookup"),)] > 0
    assert found["portico_cache_hits_total", (("cache", "hot"),)] == 3
    assert found["portico_cache_misses_total", (("cache", "hot"),)] == 1
    assert found["portico_cache_hit_ratio", (("cache", "hot"),)] == 0.75
    assert found["portico_tools", ()] == 6
    assert found["portico_servers", (("state", "ready"),)] == 2
    assert found["portico_edition", ()] == rest.application.gateway.snapshot.number
    assert found["process_cpu_seconds_total", ()] > 0
    assert found["process_resident_memory_bytes", ()] > 0


@pytest.mark.requirement("S2-22", "P-METRICS")
async def test_figures_tell_how_often_inventories_and_schemas_were_at_hand():
    rest = open_rest()
    registry = Capabilities(rest.application.gateway).registry
    for _ in range(2):
        registry.get_capabilities()
        registry.get_tool_schema("find_symbol")
    registry.get_tool_schema("replace_body")
    found = await figures(rest)
    assert found["portico_cache_hits_total", (("cache", "inventory"),)] == 1
    assert found["portico_cache_misses_total", (("cache", "inventory"),)] == 1
    assert found["portico_cache_hits_total", (("cache", "schema"),)] == 1
    assert found["portico_cache_misses_total", (("cache", "schema"),)] == 2


@pytest.mark.requirement("S2-P1")
async def test_an_operator_clears_the_one_cache():
    rest = open_rest()
    registry = Capabilities(rest.application.gateway).registry

    async def ask() -> tuple[bytes, str]:
        return (await rest.get(f"{TOOLS}/hot")).body, registry.schema("find_symbol").text

    before = await ask()
    kept = len(rest.application.gateway.answers)
    cleared = await rest.get("/api/v1/cache", method="DELETE")
    assert ClearedResponse.model_validate_json(cleared.body, strict=True).cleared == kept >= 2
    assert len(rest.application.gateway.answers) == 0
    assert (await rest.get("/api/v1/cache", method="DELETE")).json == {"cleared": 0}
    assert await ask() == before, "nothing but time is lost"
    assert rest.application.gateway.answers.counts()["schema"] == (0, 2)
    assert (await rest.get("/api/v1/cache?what=all", method="DELETE")).error["next"] == "DELETE /api/v1/cache"


@pytest.mark.requirement("P-METRICS")
async def test_counters_never_fall_and_names_stay_few():
    rest = open_rest()
    rest.used("serena-mcp-server", "find_symbol", 3)
    await rest.get(f"{TOOLS}/hot")
    before = await figures(rest)
    rest.application.tier_answers.cache.clear()
    for number in range(50):
        with pytest.raises(CallError):
            await rest.application.gateway.call(AGENT, Call(tool=f"made.up_{number}", arguments={}))
    after = await figures(rest)
    counters = [key for key in before if key[0].endswith(("_total", "_count", "_sum", "_bucket"))]
    assert counters
    assert [key for key in counters if after[key] < before[key]] == []
    assert {dict(labels).get("server") for _, labels in after} <= {None, "", "serena-mcp-server"}


async def test_two_applications_share_no_figure():
    one, other = open_rest(), open_rest()
    one.used("playwright", "browser_snapshot", 2)
    key = ("portico_calls_total", (("outcome", "done"), ("server", "playwright")))
    assert (await figures(one))[key] == 2
    assert key not in await figures(other)


def test_latencies_fall_into_their_buckets():
    counts = Counts()
    for seconds in (0.0, BOUNDS[0], math.nextafter(BOUNDS[0], 1), 1_000.0):
        counts.observe(_done(seconds))
    counts.observe(_done(0.5, Outcome.CANCELLED))
    counts.observe(Lookup(look=Look.SEARCH, caller="a", surface="b", tokens=9))
    assert counts.latencies["s"] == [2, 1, *[0] * (len(BOUNDS) - 2), 1]
    assert counts.seconds["s"] == pytest.approx(1_000.002, abs=0.001)
    assert counts.calls == {("s", Outcome.DONE): 4, ("s", Outcome.CANCELLED): 1}
    assert (counts.lookups, counts.lookup_tokens) == ({Look.SEARCH: 1}, 9)


def _done(seconds: float, outcome: Outcome = Outcome.DONE) -> Invocation:
    return Invocation(tool=ToolId("s", "t"), spelled="t", caller="a", surface="b", outcome=outcome, seconds=seconds)
