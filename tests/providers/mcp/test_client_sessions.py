"""A server with a session for each client: whose state is whose, how many there are, and when they end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.counting_server import URI, counting_over_http
from upstream_world import QUICK, Upstreams, said, until

from portico.domain.call import Caller
from portico.domain.server import ClientSessionLimits, ServerLimits, ServerSpec, State, Timeouts
from portico.errors import Busy, CallError, Sent
from portico.providers.mcp import UpstreamProvider

pytestmark = pytest.mark.anyio
SERVER = str(Path(__file__).parents[2] / "counting_server.py")
OWN = pytest.mark.requirement("P-CLIENT-SESSIONS")
BOUNDED = pytest.mark.requirement("P-CLIENT-SESSIONS-BOUNDED")


def client(name: object) -> Caller:
    return Caller(client=str(name))


def own_sessions(upstreams: Upstreams, url: str = "", timeouts: Timeouts = QUICK, **limits: Any) -> UpstreamProvider:
    where: dict[str, Any] = {"command": sys.executable, "args": ("-S", "-E", SERVER), "transport": "stdio"}
    if url:
        where = {"url": url, "transport": "http"}
    bounds = ServerLimits(client_sessions=ClientSessionLimits(**limits))
    return upstreams.provide(ServerSpec(name="s", **where, timeouts=timeouts, limits=bounds))


async def call(
    provider: UpstreamProvider, who: object, tool: str, meta: Mapping[str, Any] | None = None, **arguments: Any
) -> Any:
    caller = client(who) if who is not None else None
    with anyio.fail_after(20):
        result = await provider.call(tool, arguments, meta=meta or {}, on_progress=None, caller=caller)
    return said(result)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@OWN
async def test_one_session_for_all_would_show_each_client_what_the_others_did(upstreams: Upstreams) -> None:
    """The incident that this setting is for: a shared upstream session leaks state across clients."""
    spec = ServerSpec(name="s", transport="stdio", command=sys.executable, args=("-S", "-E", SERVER), timeouts=QUICK)
    shared, own = upstreams.provide(spec), own_sessions(upstreams)
    for provider, seen in ((shared, "the secret of ana"), (own, "")):
        await call(provider, "ana", "put", text="the secret of ana")
        assert await call(provider, "ben", "get") == seen
        assert await call(provider, "ana", "get") == "the secret of ana"


@OWN
@pytest.mark.requirement("T16")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_each_client_counts_for_itself(transport: str, upstreams: Upstreams) -> None:
    with counting_over_http() as served:
        provider = own_sessions(upstreams, served.url if transport == "http" else "")
        counts: dict[int, list[str]] = {number: [] for number in range(8)}

        async def count(number: int) -> None:
            for _ in range(5):
                counts[number].append(await call(provider, number, "count"))

        async with anyio.create_task_group() as tasks:
            for number in counts:
                tasks.start_soon(count, number)
        sessions = {line.split()[0] for lines in counts.values() for line in lines}
        assert len(sessions) == len(counts)
        for lines in counts.values():
            assert [line.split()[1] for line in lines] == ["1", "2", "3", "4", "5"]
            assert len({line.split()[0] for line in lines}) == 1
        assert provider.health().client_sessions == len(counts)
        await provider.aclose()
        assert served.open == {}


@OWN
async def test_what_a_server_offers_is_listed_over_a_connection_without_a_client(upstreams: Upstreams) -> None:
    with counting_over_http() as served:
        provider = own_sessions(upstreams, served.url)
        assert {tool["name"] for tool in (await provider.offer()).tools} > {"count", "put"}
        assert await call(provider, "ana", "count") == "session-2 1"
        assert await call(provider, None, "count") == "session-1 1", "a caller without a name shares that one"
        assert await call(provider, "", "count") == "session-1 2"
        assert len(served.open) == 2


@OWN
async def test_prompts_and_resources_are_those_of_the_clients_session(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams)
    for _ in range(3):
        await call(provider, "ana", "count")
    for who, count in (("ana", "3"), ("ben", "0")):
        read = await provider.request("resources/read", {"uri": URI}, caller=client(who))
        assert read["contents"][0]["text"] == count
        told = await provider.request("prompts/get", {"name": "state"}, caller=client(who))
        assert told["messages"][0]["content"]["text"].endswith(f" {count}")


@BOUNDED
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_the_session_unused_longest_gives_way(transport: str, upstreams: Upstreams) -> None:
    with counting_over_http() as served:
        provider = own_sessions(upstreams, served.url if transport == "http" else "", most=3)
        for who in ("ana", "ben", "cleo", "ana"):
            await call(provider, who, "count")
        assert (await call(provider, "dan", "count")).endswith(" 1")
        assert (await call(provider, "ana", "count")).endswith(" 3"), "it was used after the others"
        assert (await call(provider, "cleo", "count")).endswith(" 2")
        assert (await call(provider, "ben", "count")).endswith(" 1"), "it had given way, and begins again"
        assert provider.health().client_sessions == 3
        assert served.most <= 3


@BOUNDED
async def test_a_session_with_a_call_in_flight_never_gives_way(upstreams: Upstreams, tmp_path: Path) -> None:
    provider = own_sessions(upstreams, most=2)
    go_on = tmp_path / "go on"
    async with anyio.create_task_group() as tasks:
        for who in ("ana", "ben"):
            began = tmp_path / who
            waiting = {"began": str(began), "until": str(go_on)}
            tasks.start_soon(lambda who=who, given=waiting: call(provider, who, "wait", **given))  # type: ignore[misc]
            await until(began.exists)
        with pytest.raises(Busy) as caught:
            await call(provider, "cleo", "count")
        assert (caught.value.code, caught.value.sent) == ("busy", Sent.NOTHING)
        assert "all 2 are in use" in str(caught.value)
        go_on.touch()
    assert (await call(provider, "cleo", "count")).endswith(" 1")


@BOUNDED
async def test_never_more_processes_run_than_there_may_be_sessions(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams, most=2)
    pids: list[int] = []
    for number in range(8):
        pids.append(await call(provider, number, "pid"))
        assert sum(map(is_running, pids)) <= 2
    await provider.aclose()
    await until(lambda: not any(map(is_running, pids)))


@BOUNDED
async def test_many_clients_at_once_share_few_places_without_mixing(upstreams: Upstreams) -> None:
    with counting_over_http() as served:
        provider = own_sessions(upstreams, served.url, most=4)
        outcomes: list[str] = []

        async def count(number: int) -> None:
            try:
                await call(provider, number, "put", text=f"of {number}")
                outcomes.append("own" if await call(provider, number, "get") in (f"of {number}", "") else "other")
            except Busy:
                outcomes.append("busy")

        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(count, number)
        assert "other" not in outcomes
        assert len(outcomes) == 40
        assert served.most <= 4


@BOUNDED
async def test_an_unused_session_ends_while_another_goes_on(upstreams: Upstreams, tmp_path: Path) -> None:
    provider = own_sessions(upstreams, idle=0.3)
    left = await call(provider, "ana", "pid")
    go_on, began = tmp_path / "go on", tmp_path / "began"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(provider, "ben", "wait", began=str(began), until=str(go_on)))
        await until(lambda: not is_running(left))
        go_on.touch()
    await until(lambda: provider.health().client_sessions in (0, None))
    assert provider.health().state is not State.FAILED


@OWN
async def test_a_client_that_is_gone_leaves_nothing_open(upstreams: Upstreams, tmp_path: Path) -> None:
    provider = own_sessions(upstreams)
    gone, stays = await call(provider, "ana", "pid"), await call(provider, "ben", "pid")
    provider.forget_client("ana")
    provider.forget_client("nobody")
    await until(lambda: not is_running(gone))
    assert is_running(stays)
    assert await call(provider, "ben", "pid") == stays


@OWN
async def test_a_call_of_a_client_that_leaves_is_ended_first(upstreams: Upstreams, tmp_path: Path) -> None:
    provider = own_sessions(upstreams)
    pid = await call(provider, "ana", "pid")
    go_on, began, answers = tmp_path / "go on", tmp_path / "began", []

    async def wait() -> None:
        answers.append(await call(provider, "ana", "wait", began=str(began), until=str(go_on)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await until(began.exists)
        provider.forget_client("ana")
        assert is_running(pid)
        go_on.touch()
    assert answers == ["waited"]
    await until(lambda: not is_running(pid))


@OWN
async def test_all_sessions_end_together(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams)
    pids = [await call(provider, number, "pid") for number in range(6)]
    with anyio.fail_after(8):
        await provider.wait_until_idle()
        await provider.aclose()
    await until(lambda: not any(map(is_running, pids)))
    with pytest.raises(CallError) as caught:
        await call(provider, "late", "pid")
    assert caught.value.sent is Sent.NOTHING


@OWN
async def test_a_session_that_dies_is_that_clients_alone(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams)
    pids = {who: await call(provider, who, "pid") for who in ("ana", "ben")}
    os.kill(pids["ana"], 9)
    await until(lambda: provider.health().client_sessions == 1)
    assert await call(provider, "ben", "pid") == pids["ben"]
    assert await call(provider, "ana", "pid") != pids["ana"]


@OWN
async def test_health_says_how_many_sessions_are_open(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams, most=5)
    assert provider.health().state is State.UNKNOWN
    await call(provider, "ana", "count")
    health = provider.health()
    assert (health.state, health.client_sessions) == (State.RUNNING, 1)
    assert health.reason == "1 of at most 5 sessions of single clients are open"


ASKS = {"io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}, "roots": {}}}


@OWN
@pytest.mark.requirement("T16")
async def test_a_question_reaches_the_client_whose_session_it_is(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams)
    for tool in ("ask", "elicit"):
        asked: dict[str, Mapping[str, Any]] = {}

        async def begin(who: str, tool: str = tool, asked: dict[str, Mapping[str, Any]] = asked) -> None:
            given = {"text": f"for {who}"}
            asked[who] = await provider.call(tool, given, meta=ASKS, on_progress=None, caller=client(who))

        async with anyio.create_task_group() as tasks:
            for who in ("ana", "ben", "cleo"):
                tasks.start_soon(begin, who)
        for who, question in asked.items():
            assert f"for {who}" in str(question["inputRequests"])
            key, answers = next(iter(question["inputRequests"])), {"requestState": question["requestState"]}
            other = client("ben" if who == "ana" else "ana")
            taken = {**answers, "inputResponses": {key: {"said": f"by {other.client}"}}}
            with pytest.raises(CallError, match="not waiting here"):
                await provider.call(
                    tool, {"text": f"for {who}"}, meta=ASKS, on_progress=None, answers=taken, caller=other
                )
            given = {**answers, "inputResponses": {key: {"said": f"by {who}"}}}
            done = await provider.call(
                tool, {"text": f"for {who}"}, meta=ASKS, on_progress=None, answers=given, caller=client(who)
            )
            assert said(done)["result"] == {"said": f"by {who}"}


@OWN
async def test_what_a_server_asks_while_it_starts_goes_to_the_call_that_has_started_it(upstreams: Upstreams) -> None:
    limits = ServerLimits(client_sessions=ClientSessionLimits())
    provider = upstreams.provide(replace(upstreams.spec(asks_at_start="roots/list"), limits=limits))
    arguments = {"seconds": 0.5}
    asked = await provider.call("sleep", arguments, meta=ASKS, on_progress=None, caller=client("ana"))
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key]["method"] == "roots/list"
    answers = {"requestState": asked["requestState"], "inputResponses": {key: {"roots": []}}}
    done = await provider.call("sleep", arguments, meta=ASKS, on_progress=None, answers=answers, caller=client("ana"))
    assert said(done) == "slept"


@OWN
async def test_a_question_outside_of_calls_goes_to_the_client_whose_session_it_is(upstreams: Upstreams) -> None:
    asked: list[tuple[str, str]] = []

    async def ask(who: str, question: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append((who, question["params"]["message"]))
        return {"action": "accept", "content": {"who": who}}

    limits = ServerLimits(client_sessions=ClientSessionLimits())
    spec = ServerSpec(
        name="s", transport="stdio", command=sys.executable, args=("-S", "-E", SERVER), timeouts=QUICK, limits=limits
    )
    provider = upstreams.provide(spec, on_question=ask)
    now = str(upstreams.log.parent)  # which is there already
    for who in ("ana", "ben"):
        await call(provider, who, "later", until=now, text=f"for {who}")
    await until(lambda: len(asked) == 2)
    assert sorted(asked) == [("ana", "for ana"), ("ben", "for ben")]
    for who in ("ana", "ben"):
        answer = ""
        with anyio.fail_after(10):
            while not answer:
                answer = await call(provider, who, "get")
        assert who in str(answer)


@BOUNDED
async def test_a_session_whose_client_is_being_asked_never_gives_way(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams, most=1)
    asked = await provider.call("ask", {"text": "?"}, meta=ASKS, on_progress=None, caller=client("ana"))
    with pytest.raises(Busy):
        await call(provider, "ben", "count")
    key = next(iter(asked["inputRequests"]))
    answers = {"requestState": asked["requestState"], "inputResponses": {key: {"role": "assistant"}}}
    await provider.call("ask", {"text": "?"}, meta=ASKS, on_progress=None, answers=answers, caller=client("ana"))
    assert (await call(provider, "ben", "count")).endswith(" 1")


@OWN
async def test_notices_say_whose_they_are(upstreams: Upstreams) -> None:
    heard: list[tuple[Any, ...]] = []
    upstreams.news.on_notice = lambda *notice: heard.append(notice)  # type: ignore[method-assign]
    own = own_sessions(upstreams)
    for who in ("ana", "ben"):
        await call(own, who, "tell", text=f"of {who}")
    await until(lambda: len(heard) == 2)
    assert {(notice[3], notice[2]["data"].split(" ", 1)[1]) for notice in heard} == {
        ("ana", "of ana"),
        ("ben", "of ben"),
    }


@BOUNDED
async def test_a_session_that_watches_a_resource_never_gives_way(upstreams: Upstreams) -> None:
    provider = own_sessions(upstreams, most=1)
    await provider.request("resources/subscribe", {"uri": URI}, caller=client("ana"))
    with pytest.raises(Busy):
        await call(provider, "ben", "count")
    assert await provider.request("resources/unsubscribe", {"uri": URI}, caller=client("nobody")) == {}
    await provider.request("resources/unsubscribe", {"uri": URI}, caller=client("ana"))
    assert (await call(provider, "ben", "count")).endswith(" 1")
