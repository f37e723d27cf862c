"""Hooks in their place: around every call of the one executor, and beside every search."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from portico import Catalog
from portico.concurrency import Workers
from portico.domain.call import Call, Outcome
from portico.domain.search_answers import Query
from portico.errors import InvalidArguments, Refused, Sent, UnknownTool, UpstreamGone
from portico.execution.hooks import hooks_of
from portico.testing import AGENT, FakeApplication, definition, make_test_app
from portico.tiers.tier_requests import TierAnswers

WEATHER = Call(tool="fake.weather", arguments={"city": "Oslo"})


def hooked(**events: Any) -> FakeApplication:
    hooks = hooks_of([SimpleNamespace(**events)], Workers())
    return make_test_app({"fake": [definition("weather", "Tell the weather", city="string")]}, hooks=hooks)


def outcomes(application: FakeApplication) -> list[Outcome]:
    return [invocation.outcome for invocation in application.invocations if hasattr(invocation, "outcome")]


@pytest.mark.requirement("P-HOOKS")
async def test_a_changed_call_is_sent_changed_and_its_result_replaced():
    seen: list[Any] = []

    def on_result(caller: Any, tool: Any, arguments: Any, result: Any) -> Any:
        seen.append((caller, tool.handle, arguments, result.text))
        return {"content": [{"type": "text", "text": "sun"}]}

    application = hooked(on_call=lambda *_: {"city": "Rome"}, on_result=on_result)
    assert (await application.gateway.call(AGENT, WEATHER)).text == "sun"
    assert application.provider().calls == [("weather", {"city": "Rome"})]
    assert seen == [(AGENT, "fake.weather", {"city": "Rome"}, "weather was called")]
    assert outcomes(application) == [Outcome.DONE]


@pytest.mark.requirement("P-HOOKS")
async def test_a_refused_call_is_not_sent_and_recorded_once():
    errors: list[Any] = []

    def on_call(*_: Any) -> None:
        raise Refused("not on Sundays")

    application = hooked(on_call=on_call, on_error=lambda *given: errors.append(given[3]))
    with pytest.raises(Refused, match="not on Sundays") as caught:
        await application.gateway.call(AGENT, WEATHER)
    assert application.provider().calls == []
    assert outcomes(application) == [Outcome.REFUSED]
    assert errors == [caught.value]


async def test_errors_are_reported_and_stay_what_they_were():
    errors: list[Any] = []
    application = hooked(on_error=lambda *given: errors.append((given[2], given[3].code)))
    with pytest.raises(InvalidArguments):
        await application.gateway.call(AGENT, Call(tool="fake.weather", arguments={}))
    application.provider().fails(UpstreamGone("fake", sent=Sent.UNKNOWN))
    with pytest.raises(UpstreamGone):
        await application.gateway.call(AGENT, WEATHER)
    with pytest.raises(UnknownTool):
        await application.gateway.call(AGENT, Call(tool="nothing", arguments={}))
    assert errors == [({}, "invalid_arguments"), ({"city": "Oslo"}, "upstream_gone")], "no tool, no hook"


async def test_arguments_that_do_not_fit_never_reach_a_guard():
    seen: list[Any] = []
    application = hooked(on_call=lambda *given: seen.append(given[2]))
    with pytest.raises(InvalidArguments):
        await application.gateway.call(AGENT, Call(tool="fake.weather", arguments={}))
    await application.gateway.call(AGENT, Call(tool="fake.weather", arguments={"city": 5}))
    assert seen == [{"city": "5"}], "it sees what would be sent"


def test_without_hooks_there_is_nothing_to_ask():
    assert make_test_app({}).gateway.executor.hooks is None


@pytest.mark.requirement("S0-78")
def test_searches_are_reported_with_what_they_found():
    told: list[Any] = []
    counted = threading.Semaphore(0)

    def on_search(caller: Any, query: str, findings: Any) -> None:
        told.append((query, [hit.tool.handle for hit in findings.hits], findings.fits))
        counted.release()

    application = hooked(on_search=on_search)
    for text in ("weather", "fake.weather", "", "zzqq"):
        application.gateway.search(AGENT, Query(text=text))
    assert all(counted.acquire(timeout=5) for _ in range(3))
    assert told[:2] == [("weather", ["fake.weather"], True), ("fake.weather", ["fake.weather"], True)]
    assert (told[2][0], told[2][2]) == ("zzqq", False)


async def test_a_catalog_takes_hooks_too():
    told = threading.Event()
    hooks = SimpleNamespace(on_call=lambda *_: {"a": 2}, on_search=lambda *_: told.set())
    catalog = Catalog(hooks=[hooks])

    def handle_twice(a: int) -> int:
        """Double a number."""
        return 2 * a

    catalog.register_tool(handle_twice)
    assert (await catalog.call("twice", {"a": 1})).structured == {"result": 4}
    catalog.search("double")
    assert told.wait(5)


@pytest.mark.requirement("P-HOOKS")
async def test_a_search_of_the_tiers_is_reported_and_browsing_them_is_not():
    told: list[Any] = []
    application = hooked(on_search=lambda caller, query, findings: told.append((query, len(findings.hits))))
    tier_answers = TierAnswers(gateway=application.gateway, standings=application.gateway.standings)
    await tier_answers.search(AGENT, Query(text="weather"))
    await tier_answers.search(AGENT, Query(text="", server="fake"))
    await tier_answers.hot(AGENT)
    application.gateway.executor.hooks.wait_until_idle()
    assert told == [("weather", 1)]
