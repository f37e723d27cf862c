"""What a server of the handshake era asks in the middle of a call reaches the client whose call it is, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from aiohttp import web
from upstream_world import Upstreams, said, until, use
from web_world import RawServer

from portico.domain.call import Caller
from portico.domain.server import Timeouts
from portico.errors import UpstreamGone, UpstreamTimeout
from portico.providers.mcp import UpstreamProvider
from portico.providers.mcp import server_questions as questions
from portico.providers.mcp.message_limits_and_errors import CAPABILITIES_KEY

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("P-ASKS-BACK")]
ALL = {"sampling": {}, "elicitation": {}, "roots": {}}
FORM = {"method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": {"type": "object"}}}
ANN, BOB = Caller(name="ann"), Caller(name="bob")
SAID = {"action": "accept", "content": {"name": "ana"}}


async def call(
    provider: UpstreamProvider,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    can: Mapping[str, Any] = ALL,
    caller: Caller = ANN,
    answers: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    with anyio.fail_after(20):
        return await provider.call(
            tool, arguments, meta={CAPABILITIES_KEY: can}, on_progress=None, answers=answers, caller=caller
        )


def answering(asked: Mapping[str, Any], given: Any = SAID) -> dict[str, Any]:
    return {
        "requestState": asked["requestState"],
        "inputResponses": dict.fromkeys(asked["inputRequests"], given),
    }


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("elicitation/create", SAID),
        ("sampling/createMessage", {"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"}),
        ("roots/list", {"roots": [{"uri": "file:///w"}]}),
    ],
)
async def test_question_is_returned_and_its_answer_goes_to_the_server(
    upstreams: Upstreams, method: str, given: dict[str, Any]
) -> None:
    provider, arguments = upstreams.stdio(), {"method": method, "params": {"n": 1}}
    asked = await call(provider, "question", arguments)
    assert asked["resultType"] == "input_required"
    assert list(asked["inputRequests"].values()) == [{"method": method, "params": {"n": 1}}]
    result = await call(provider, "question", arguments, answers=answering(asked, given))
    assert said(result) == {"result": given}


async def test_what_a_client_answers_with_an_error_is_an_error_for_the_server(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    asked = await call(provider, "question", FORM)
    refused = {"error": {"code": -1, "message": "no, thanks"}}
    assert said(await call(provider, "question", FORM, answers=answering(asked, refused))) == refused
    asked = await call(provider, "question", FORM)
    none = {"requestState": asked["requestState"]}
    assert "no answer" in said(await call(provider, "question", FORM, answers=none))["error"]["message"]


@pytest.mark.parametrize(
    ("can", "asked"),
    [
        ({"sampling": {}}, FORM),
        ({"elicitation": {}}, {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x"}}),
        ({"elicitation": {"url": {}}}, FORM),
        ({}, FORM),
        (ALL, {"method": "secrets/list"}),
    ],
)
async def test_server_is_told_what_its_client_does_not_support(
    upstreams: Upstreams, can: dict[str, Any], asked: dict[str, Any]
) -> None:
    result = said(await call(upstreams.stdio(), "question", asked, can=can))
    assert result["error"]["code"] == -32601
    assert "not support" in result["error"]["message"] or "cannot be asked" in result["error"]["message"]


async def test_client_that_takes_addresses_is_shown_them(upstreams: Upstreams) -> None:
    asked = {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x"}}
    found = await call(upstreams.stdio(), "question", asked, can={"elicitation": {"form": {}, "url": {}}})
    assert found["resultType"] == "input_required"


@pytest.mark.requirement("T18")
async def test_answer_is_bound_to_caller_tool_and_arguments_and_works_once(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    answers = answering(await call(provider, "question", FORM))
    other = {**FORM, "params": {"message": "Name?"}}
    for wrong in (
        {"caller": BOB},
        {"caller": Caller(name="ann", surface="other")},
        {"arguments": other},
        {"tool": "echo"},
        {"answers": {**answers, "requestState": "portico-call-guess"}},
    ):
        with pytest.raises(UpstreamGone, match="not waiting here"):
            await call(provider, **{"tool": "question", "arguments": FORM, "answers": answers, **wrong})  # type: ignore[arg-type]
    assert said(await call(provider, "question", FORM, answers=answers)) == {"result": SAID}
    with pytest.raises(UpstreamGone, match="not waiting here"):
        await call(provider, "question", FORM, answers=answers)


async def test_question_among_several_calls_finds_its_own(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    await use(provider, "echo")
    found: dict[str, Mapping[str, Any]] = {}

    async def one(name: str, tool: str, arguments: dict[str, Any], caller: Caller) -> None:
        found[name] = await call(provider, tool, arguments, caller=caller)

    async with anyio.create_task_group() as group:
        group.start_soon(one, "bob", "sleep", {"seconds": 0.3}, BOB)
        group.start_soon(one, "ann", "question", FORM, ANN)
    assert said(found["bob"]) == "slept"
    assert found["ann"]["resultType"] == "input_required"
    # A call that waits for its client holds up nobody.
    assert said(await call(provider, "echo", {"a": 1}, caller=BOB)) == {"a": 1}
    assert said(await call(provider, "question", FORM, answers=answering(found["ann"]))) == {"result": SAID}


async def test_many_clients_are_each_asked_their_own(upstreams: Upstreams) -> None:
    provider = upstreams.stdio()
    found, refused = {}, []

    async def one(number: int) -> None:
        arguments = {"method": "elicitation/create", "params": {"message": f"{number}?"}}
        asked = await call(provider, "question", arguments, caller=Caller(name=str(number)))
        if "content" in asked:
            refused.append(said(asked)["error"]["message"])
            return
        (question,) = asked["inputRequests"].values()
        assert question["params"]["message"] == f"{number}?"
        answers = answering(asked, {"action": "accept", "content": {"n": number}})
        found[number] = await call(provider, "question", arguments, caller=Caller(name=str(number)), answers=answers)

    async def all_at_once() -> None:
        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)

    await all_at_once()
    # Until it is known that this server asks, nobody's question can be told apart: how many come too early is chance.
    assert len(found) + len(refused) == 8
    assert found
    assert all("not clear whose" in message for message in refused)
    await all_at_once()
    assert {n: said(result)["result"]["content"]["n"] for n, result in found.items()} == {n: n for n in range(8)}


async def test_call_of_a_client_that_never_comes_back_ends(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_SECONDS", 0.05)
    provider = upstreams.stdio()
    asked = await call(provider, "question", FORM)

    def told() -> list[dict[str, Any]]:
        return [entry for entry in upstreams.logged() if entry.get("id", "").__class__ is str and "error" in entry]

    await until(told)
    await until(lambda: any(entry.get("method") == "notifications/cancelled" for entry in upstreams.logged()))
    with pytest.raises(UpstreamGone, match="not waiting here"):
        await call(provider, "question", FORM, answers=answering(asked))
    assert said(await use(provider, "echo", a=1)) == {"a": 1}


async def test_questions_of_vanished_clients_are_bounded(upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "SUSPENDED_LIMIT", 3)
    provider = upstreams.stdio()
    for _ in range(3):
        await call(provider, "question", FORM)
    assert "too many" in said(await call(provider, "question", FORM))["error"]["message"]


async def test_time_that_a_client_takes_is_not_the_servers(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(timeouts=Timeouts(start=10, call=1, total=1, idle=0))
    await use(provider, "echo")
    asked = await call(provider, "question", FORM)
    await anyio.sleep(1.1)
    assert said(await call(provider, "question", FORM, answers=answering(asked))) == {"result": SAID}
    with pytest.raises(UpstreamTimeout, match="no answer within 1 s"):
        await call(provider, "hang", {})


async def test_question_outside_of_calls_is_refused(upstreams: Upstreams) -> None:
    await call(upstreams.stdio(), "ask_later", {"after": 0.1})

    def replies() -> list[dict[str, Any]]:
        return [entry for entry in upstreams.logged() if entry.get("id") == "late"]

    await until(replies)
    assert "its call is not under way" in replies()[0]["error"]["message"]


async def test_question_at_the_start_of_a_server_is_not_the_first_calls(upstreams: Upstreams) -> None:
    provider = upstreams.stdio(asks_at_start="roots/list")
    assert said(await call(provider, "echo", {"a": 1})) == {"a": 1}
    (reply,) = [entry for entry in upstreams.logged() if entry.get("id") == "start"]
    assert "error" in reply


async def test_question_on_the_stream_of_a_call_belongs_to_that_call(raw: RawServer, upstreams: Upstreams) -> None:
    replied: dict[str, Any] = {}
    arrived = anyio.Event()

    async def asking(request: web.Request) -> web.StreamResponse:
        body = request["body"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        name = body["params"]["name"]
        if name == "ask":
            await response.write(b'data: {"jsonrpc":"2.0","id":"q","method":"roots/list"}\n\n')
            await arrived.wait()
        done = b'data: {"jsonrpc":"2.0","id":%d,"result":{"did":"%s"}}\n\n' % (body["id"], name.encode())
        await response.write(done)
        return response

    async def reply(request: web.Request) -> web.StreamResponse:
        replied.update(request["body"])
        arrived.set()
        return web.Response(status=202)

    raw.on["tools/call"], raw.on["reply"] = asking, reply
    provider = upstreams.http(raw.url)
    asked = await call(provider, "ask", {})
    assert list(asked["inputRequests"].values()) == [{"method": "roots/list"}]
    assert (await call(provider, "other", {}, caller=BOB))["did"] == "other"
    roots = {"roots": [{"uri": "file:///w"}]}
    assert (await call(provider, "ask", {}, answers=answering(asked, roots)))["did"] == "ask"
    assert replied == {"jsonrpc": "2.0", "id": "q", "result": roots}
