"""Every answer fits what its caller may spend; what fits is passed on as it is, and nothing is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from anyio import create_task_group, fail_after, lowlevel

from portico.domain.call import Call, Caller, Result, ResultLimits
from portico.domain.server import ClientSessionLimits, ServerLimits, ServerSpec
from portico.errors import UnknownResult
from portico.rendering.budget import TokenEstimate
from portico.testing import AGENT, FakeApplication, definition, make_test_app

COUNTER = TokenEstimate()
SMALL = Caller(name="small", surface="test", result_tokens=600)
ITEMS = {"items": [{"id": n, "name": f"item {n}"} for n in range(3_000)], "total": 3_000}
LIST = definition("list", query="string", limit="integer", offset="integer", fields="string", name="string")
LIST["inputSchema"]["required"] = []


@pytest.fixture
def application() -> FakeApplication:
    return make_test_app({"fake": [LIST]})


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


async def call(application: FakeApplication, raw: dict[str, Any], caller: Caller = SMALL, **more: Any) -> Result:
    application.provider().returns("list", raw)
    return await application.gateway.call(caller, Call(tool="fake.list", arguments=more.pop("arguments", {}), **more))


def notice(result: Result) -> str:
    mark, _, text = str(result.content[-1]["text"]).partition("\n")
    assert mark == "[portico]"
    return text


def handle(result: Result) -> str:
    found = re.search(r'read_result\(\{"id": "(r_[\w-]+)"\}\)', notice(result))
    assert found, notice(result)
    return found[1]


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_a_result_that_fits_is_the_same_object(application: FakeApplication) -> None:
    for raw in ({"content": [text("x " * 500)]}, {"content": [], "structuredContent": {"a": [1] * 200}}):
        assert (await call(application, raw)).raw is raw


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_json_is_cut_to_whole_items_and_the_notice_says_what_is_missing(application: FakeApplication) -> None:
    result = await call(application, {"content": [text(json.dumps(ITEMS))]}, arguments={"limit": 3_000, "query": "x"})
    shown = json.loads(result.content[0]["text"])
    count = len(shown["items"])
    assert shown == {"items": ITEMS["items"][:count], "total": 3_000}  # type: ignore[index]
    assert re.fullmatch(
        rf"shortened: {count} of 3,000 items \(\d+ of [\d,]+ tokens\); narrow with offset, fields;"
        r' next: read_result\(\{"id": "r_[\w-]{16}"\}\)\n'
        r"shape: \{items: \[\{id: integer, name: string\}\], total: integer\}",
        notice(result),
    )
    assert 300 < COUNTER.count(result.text) <= 600


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("tokens", [500, 2_000, 6_000])
@pytest.mark.parametrize(
    "value",
    [
        json.dumps(ITEMS),
        json.dumps(ITEMS, indent=4),
        "\n".join(f"line {n} of the log" for n in range(20_000)),
        "x" * 300_000,
        "漢字" * 30_000,
        json.dumps({f"key{n}": "v" * 50 for n in range(4_000)}),
        json.dumps([{"text": "long " * 50_000}]),
        json.dumps({"error": "\x00\u2028" * 50_000}),
    ],
)
async def test_the_whole_answer_stays_within_the_limit(application: FakeApplication, value: str, tokens: int) -> None:
    result = await call(application, {"content": [text(value)]}, Caller(result_tokens=tokens))
    assert COUNTER.count(result.text) <= tokens
    assert COUNTER.count(result.content[0]["text"]) >= tokens / 4
    handle(result)


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_text_is_cut_at_a_line_end(application: FakeApplication) -> None:
    lines = [f"{n}: something happened" for n in range(5_000)]
    result = await call(application, {"content": [text("\n".join(lines))]})
    shown = result.content[0]["text"].split("\n")
    assert shown == lines[: len(shown)]
    assert notice(result).startswith(f"shortened: {len(shown)} of 5,000 lines")


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_several_texts_keep_their_order_and_what_is_no_text_passes(application: FakeApplication) -> None:
    picture = {"type": "image", "data": "A" * 100_000, "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    blob = {"type": "resource", "resource": {"uri": "file:///y", "blob": "B" * 50_000}}
    embedded = {"type": "resource", "resource": {"uri": "file:///z", "text": "zeile\n" * 20_000}}
    content = [text("short"), picture, text("long\n" * 20_000), link, blob, embedded]
    result = await call(application, {"content": content})
    shown = result.content
    assert [block["type"] for block in shown] == [
        "text",
        "image",
        "text",
        "resource_link",
        "resource",
        "resource",
        "text",
    ]
    assert (shown[0], shown[1], shown[3], shown[4]) == (content[0], picture, link, blob)
    assert set(shown[2]["text"].split("\n")) == {"long"}
    assert shown[5]["resource"]["uri"] == "file:///z"
    assert len(shown[5]["resource"]["text"]) < 5_000
    texts = [block["text"] for block in shown if "text" in block] + [shown[5]["resource"]["text"]]
    assert COUNTER.count("\n".join(texts)) <= 600


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize(
    ("blocks", "unit"),
    [([json.dumps(item) for item in ITEMS["items"]], "items"), ([f"note {n}" for n in range(3_000)], "lines")],  # type: ignore[attr-defined]
)
async def test_a_block_for_each_item_becomes_one_list(
    application: FakeApplication, blocks: list[str], unit: str
) -> None:
    picture = {"type": "image", "data": "A", "mimeType": "image/png"}
    result = await call(
        application, {"content": [picture, *map(text, blocks)], "structuredContent": {"result": blocks}}
    )
    assert [block["type"] for block in result.content] == ["image", "text", "text"]
    shown = result.content[1]["text"]
    found = [json.dumps(item) for item in json.loads(shown)] if unit == "items" else shown.split("\n")
    assert found == blocks[: len(found)]
    assert notice(result).startswith(f"shortened: {len(found)} of 3,000 {unit}")
    assert COUNTER.count(result.text) <= 600
    page = await application.gateway.read_result(SMALL, handle(result), cursor="2999")
    assert blocks[-1].replace(" ", "") in page.text.replace(" ", "")


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_a_text_that_fits_stays_whole_where_only_the_same_as_data_does_not(application: FakeApplication) -> None:
    value = {"a": ["ö" * 3] * 60}
    raw = {"content": [text(json.dumps(value, ensure_ascii=False))], "structuredContent": {**value, "b": "word " * 40}}
    limit = COUNTER.count(raw["content"][0]["text"]) + 5
    result = await call(application, raw, Caller(result_tokens=limit))
    assert result.content == raw["content"]
    assert COUNTER.count(json.dumps(result.structured, ensure_ascii=False, separators=(",", ":"))) <= limit


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_a_tools_own_error_is_shortened_too(application: FakeApplication) -> None:
    result = await call(application, {"content": [text("bad\n" * 20_000)], "isError": True})
    assert result.is_error
    assert COUNTER.count(result.text) <= 600
    handle(result)


async def test_a_question_to_the_client_is_never_cut(application: FakeApplication) -> None:
    raw = {"resultType": "input_required", "content": [text("x " * 50_000)]}
    assert (await call(application, raw)).raw is raw


@pytest.mark.requirement("P-RESULTS-WHOLE")
async def test_a_call_that_wants_the_whole_gets_it(application: FakeApplication) -> None:
    raw = {"content": [text(json.dumps(ITEMS))], "structuredContent": ITEMS}
    assert (await call(application, raw, whole=True)).raw is raw


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_the_smaller_of_what_caller_and_server_say_is_the_limit() -> None:
    spec = ServerSpec(name="fake", transport="stdio", command="x", limits=ServerLimits(result_tokens=1_000))
    application = make_test_app({"fake": [LIST]}, specs=[spec], result_limits=ResultLimits(tokens=2_000))
    raw = {"content": [text("word " * 20_000)]}
    costs = [
        COUNTER.count((await call(application, raw, Caller(result_tokens=tokens))).text) for tokens in (0, 500, 5_000)
    ]
    assert [cost <= limit for cost, limit in zip(costs, (1_000, 500, 1_000), strict=True)] == [True] * 3
    assert costs[0] > 700
    application = make_test_app({"fake": [LIST]}, result_limits=ResultLimits(tokens=2_000))
    assert 1_500 < COUNTER.count((await call(application, raw, AGENT)).text) <= 2_000


@pytest.mark.requirement("P-CLIENT-SESSIONS", "T15")
@pytest.mark.parametrize("is_own", [True, False])
async def test_a_handle_from_a_session_of_ones_own_opens_nothing_for_another_client(is_own: bool) -> None:
    limits = ServerLimits(client_sessions=ClientSessionLimits() if is_own else None)
    spec = ServerSpec(name="fake", transport="stdio", command="x", limits=limits)
    application = make_test_app({"fake": [LIST]}, specs=[spec], result_limits=ResultLimits(tokens=600))
    raw = {"content": [text("word " * 20_000)]}
    ana, ben = (Caller(name="local", client=client) for client in ("session of ana", "session of ben"))
    found = re.search(r"r_[\w-]{16}", (await call(application, raw, ana)).text)
    assert found is not None
    assert "word" in (await application.gateway.read_result(ana, found[0])).text
    if is_own:
        with pytest.raises(UnknownResult):
            await application.gateway.read_result(ben, found[0])
    else:
        assert "word" in (await application.gateway.read_result(ben, found[0])).text


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_the_journal_counts_what_the_caller_got(application: FakeApplication) -> None:
    result = await call(application, {"content": [text(json.dumps(ITEMS))]})
    (invocation,) = application.invocations
    assert invocation.tokens_out == pytest.approx(COUNTER.count(result.text), rel=0.3)


@pytest.mark.requirement("P-RESULTS-HANDLES")
async def test_where_nothing_can_be_kept_the_notice_says_that_the_rest_is_lost() -> None:
    application = make_test_app({"fake": [LIST]}, result_limits=ResultLimits(memory_mb=0))
    result = await call(application, {"content": [text("word " * 50_000)]})
    assert "the rest is lost" in notice(result)
    assert "read_result" not in notice(result)


SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "object"}}, "total": {"type": "integer"}},
    "required": ["items", "total"],
}


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("needs_structured", [True, False])
async def test_structured_content_is_cut_where_the_cut_is_still_valid(needs_structured: bool) -> None:
    application = make_test_app({"fake": [{**LIST, "outputSchema": SCHEMA}]})
    raw = {"content": [text(json.dumps(ITEMS))], "structuredContent": ITEMS}
    found = (await call(application, raw, needs_structured=needs_structured)).structured
    assert found["total"] == 3_000
    assert found["items"] == ITEMS["items"][: len(found["items"])]  # type: ignore[index]
    assert COUNTER.count(json.dumps(found)) <= 900


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_structured_content_that_cannot_be_cut_is_left_out_or_whole_but_never_broken() -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "items": {"type": "array", "minItems": 3_000}}}  # type: ignore[dict-item]
    application = make_test_app({"fake": [{**LIST, "outputSchema": schema}]})
    raw = {"content": [text(json.dumps(ITEMS))], "structuredContent": ITEMS}
    assert "structuredContent" not in (await call(application, raw)).raw
    assert (await call(application, raw, needs_structured=True)).structured is ITEMS
    failed = await call(application, {**raw, "isError": True}, needs_structured=True)
    assert "structuredContent" not in failed.raw


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_structured_content_that_no_text_repeats_is_shown_and_kept(application: FakeApplication) -> None:
    alone = await call(application, {"content": [], "structuredContent": ITEMS})
    assert json.loads(alone.content[0]["text"])["total"] == 3_000
    beside = await call(application, {"content": [text("3,000 items were found")], "structuredContent": ITEMS})
    assert beside.content[0]["text"] == "3,000 items were found"
    found = await application.gateway.read_result(SMALL, handle(beside), path="items[2999].name")
    assert found.text == "item 2999"


@pytest.mark.requirement("P-RESULTS-READ")
async def test_the_pages_after_the_preview_are_the_rest(application: FakeApplication) -> None:
    result = await call(application, {"content": [text(json.dumps(ITEMS, indent=2))]})
    found = json.loads(result.content[0]["text"])["items"]
    id, cursor = handle(result), ""
    while True:
        page = await application.gateway.read_result(SMALL, id, cursor)
        assert page.tokens <= 600
        value = json.loads(page.text)
        if isinstance(value, dict):
            assert value == {"total": 3_000}
        else:
            found += value
        if page.next.endswith("that is all"):
            break
        cursor = json.loads(re.search(r"read_result\((.*)\)", page.next)[1])["cursor"]  # type: ignore[index]
    assert found == ITEMS["items"]


def nested(levels: int, inner: Any) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize(
    "value",
    [
        "[" * 500 + json.dumps(ITEMS) + "]" * 500,
        '{"a":' * 700 + json.dumps(ITEMS) + "}" * 700,
        "[" + " " * 300_000 + "]",
        "{" + "\n" * 300_000 + "}",
        json.dumps({"k" * 100_000: [*range(20_000)]}),
    ],
    ids=["deep lists", "deep objects", "an empty list", "an empty object", "a long name"],
)
async def test_odd_json_is_shortened_and_read_to_its_end_like_any_other(
    application: FakeApplication, value: str
) -> None:
    result = await call(application, {"content": [text(value)]})
    assert COUNTER.count(result.text) <= 600
    pages, cursor = 0, "0"
    while cursor and pages < 10:
        page = await application.gateway.read_result(SMALL, handle(result), cursor=cursor)
        assert page.tokens <= 600
        found = re.search(r'"cursor":"(\d+)"', page.next)
        pages, cursor = pages + 1, found[1] if found else ""


@pytest.mark.requirement("P-RESULTS-FIT")
@pytest.mark.parametrize("size", [1, 3_000])
async def test_structured_content_that_no_client_could_read_is_left_out_and_that_is_said(
    application: FakeApplication, size: int
) -> None:
    raw = {"content": [text("the same in words")], "structuredContent": {"a": nested(600, ["x"] * size)}}
    result = await call(application, raw)
    assert result.raw == {"content": [text("the same in words")]}
    assert "nested too deeply" in result.notes[0]


@pytest.mark.requirement("P-RESULTS-FIT", "P-RESULTS-READ")
async def test_many_embedded_texts_are_shown_as_one_list_and_all_are_kept(application: FakeApplication) -> None:
    files = [{"uri": f"file:///{n}.txt", "text": f"the words of file {n}"} for n in range(1_000)]
    result = await call(application, {"content": [{"type": "resource", "resource": file} for file in files]})
    assert COUNTER.count(result.text) <= 600
    assert [block["type"] for block in result.content] == ["text", "text"]
    shown = json.loads(result.content[0]["text"])
    assert shown == files[: len(shown)]
    assert f"{len(shown)} of 1,000 items" in notice(result)
    last = await application.gateway.read_result(SMALL, handle(result), cursor="999")
    assert json.loads(last.text) == files[999:]


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_a_parameter_with_an_endless_name_is_not_told() -> None:
    endless = definition("list", **{"limit_" + "x" * 50_000: "integer", "offset": "integer"})
    endless["inputSchema"]["required"] = []
    result = await call(make_test_app({"fake": [endless]}), {"content": [text("word " * 5_000)]})
    assert "narrow with offset;" in notice(result)
    assert COUNTER.count(result.text) <= 600


@pytest.mark.requirement("P-RESULTS-FIT")
async def test_large_results_are_read_a_few_at_a_time_and_small_ones_do_not_wait_for_them(
    application: FakeApplication,
) -> None:
    truncator = application.gateway.reader.truncator
    for _ in range(int(truncator.large.total_tokens)):
        await truncator.large.acquire_on_behalf_of(object())
    small = Call(tool="fake.list", arguments={})
    with fail_after(5):
        await call(application, {"content": [text("word " * 9_000)]})
    async with create_task_group() as tasks:
        application.provider().returns("list", {"content": [], "structuredContent": {"a": [*range(100_000)]}})
        tasks.start_soon(application.gateway.call, SMALL, small)
        with fail_after(5):
            while not truncator.large.statistics().tasks_waiting:
                await lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
