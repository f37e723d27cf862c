"""Prompts, resources and documents are disclosed as tools are: found by search, described, and read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from portico.catalog.prompts_and_resources import Items, collect
from portico.config.profiles import read_pattern
from portico.domain.call import Call, Caller
from portico.domain.journal_entries import Lookup
from portico.domain.search_answers import Query
from portico.domain.server import Offering, Server, ServerSpec, ToolFilter
from portico.domain.tool import Profile
from portico.errors import InvalidArguments, UnknownItem, UpstreamError, UpstreamGone
from portico.search.item_search import ItemIndex
from portico.testing import FakeApplication, FakeProvider, definition, make_test_app
from portico.text.untrusted import fence

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("S0-P1")]

AGENT = Caller(name="agent")
REVIEW = {
    "name": "review-code",
    "description": "Review a change of code and point out mistakes.",
    "arguments": [
        {"name": "diff", "description": "the change", "required": True},
        {"name": "language", "description": "programming language"},
    ],
}
HANDBOOK = {
    "uri": "docs://handbook",
    "name": "handbook",
    "title": "Employee handbook",
    "description": "Holidays, sick leave and travel expenses.",
    "mimeType": "text/markdown",
    "size": 12_345,
}
TABLE = {"uriTemplate": "table://{name}/schema", "name": "table", "description": "Columns of a database table."}
GUIDE = "Always look up the customer number before an invoice is written.\nAmounts are in cents."


def offering(server: str = "office", **changes: Any) -> Offering:
    parts: dict[str, Any] = {
        "tools": (definition("send_mail", "Send an e-mail to someone"),),
        "prompts": (REVIEW,),
        "resources": (HANDBOOK,),
        "templates": (TABLE,),
        "instructions": GUIDE,
    }
    return Offering(server=server, **{**parts, **changes})


def house_with(*offerings: Offering, **parts: Any) -> FakeApplication:
    application = make_test_app({one.server: one.tools for one in offerings}, **parts)
    application.gateway.publisher.accept((one, "upstream") for one in offerings)
    return application


@pytest.fixture
def application() -> FakeApplication:
    return house_with(offering())


def search(application: FakeApplication, text: str, **filters: Any) -> str:
    return application.gateway.search(AGENT, Query(text=text, **filters)).text


def told(application: FakeApplication, answers: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """Let a server answer requests so; what was asked is listed."""
    provider = application.provider("office")
    asked: list[tuple[str, Mapping[str, Any]]] = []

    async def request(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        asked.append((method, params))
        answer = answers[method]
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    type(provider).request = request_of(request)  # type: ignore[method-assign]
    return asked


def request_of(request: Any) -> Any:
    async def asked(self: object, method: str, params: Mapping[str, Any], *, caller: Any) -> Mapping[str, Any]:
        return await request(method, params)  # type: ignore[no-any-return]

    return asked


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProvider, "request", FakeProvider.request)


async def read(application: FakeApplication, tool: str, **arguments: Any) -> Any:
    return await application.gateway.call(AGENT, Call(tool=tool, arguments=arguments))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("holidays and sick leave", "## docs://handbook [resource]\n| Employee handbook: Holidays, sick leave"),
        ("point out mistakes in a code change", "## office__review_code [prompt]"),
        ("columns of a database table", "## table://{name}/schema [template]"),
        ("customer number before an invoice", "## catalog://guide/office [document]\n| Always look up"),
    ],
)
def test_what_no_tool_answers_is_found_beside_the_tools(application: FakeApplication, words: str, line: str) -> None:
    assert line.replace("office__review_code", application.gateway.items.prompts[0].listed) in search(
        application, words
    )


def test_items_that_answer_as_well_as_tools_are_named_below_them() -> None:
    application = house_with(offering(tools=(definition("plan_holidays", "Plan the holidays of a team"),)))
    first, *rest = search(application, "holidays").splitlines()
    assert first.startswith("office.plan_holidays(")
    assert rest == [
        'beside tools, to be described like them, e.g. describe_tools({"names": ["docs://handbook"]}):',
        "[resource] docs://handbook Employee handbook: Holidays, sick leave and travel expenses",
    ]


def test_a_tool_that_answers_much_better_stands_alone() -> None:
    tools = (definition("send_mail", "Send an e-mail with travel expenses to someone"),)
    assert "docs://" not in search(house_with(offering(tools=tools)), "send an e-mail to someone")


def test_items_of_other_servers_and_filters_for_tools_leave_items_out() -> None:
    application = house_with(offering(), offering("other", prompts=(), resources=(), templates=(), instructions=""))
    assert "docs://handbook" in search(application, "holidays and sick leave", server="office")
    assert "docs://handbook" not in search(application, "holidays and sick leave", server="other")
    assert "docs://handbook" not in search(application, "holidays and sick leave", read_only=True)


def test_an_exact_spelling_gives_the_whole_card(application: FakeApplication) -> None:
    assert search(application, "docs://handbook") == "\n".join(
        [
            "## docs://handbook [resource]",
            "| Employee handbook: Holidays, sick leave and travel expenses.",
            "text/markdown, 12,345 bytes",
            'read: call_tool({"name": "read_resource", "arguments": {"uri": "docs://handbook"}})',
        ]
    )


def test_describe_shows_tools_and_items_side_by_side(application: FakeApplication) -> None:
    prompt = application.gateway.items.prompts[0].listed
    text = application.gateway.describe(AGENT, ["office.send_mail", prompt, "catalog://guide/office"]).text
    _, card, guide = text.split("\n\n")
    assert card.splitlines() == [
        f"## {prompt} [prompt]",
        "Review a change of code and point out mistakes.",
        "- diff (required): the change",
        "- language (optional): programming language",
        'read: call_tool({"name": "get_prompt", "arguments": {"name": "NAME", "arguments": {"diff": "..."}}})'.replace(
            "NAME", prompt
        ),
    ]
    assert guide == f"## catalog://guide/office [document]\n{fence(GUIDE)}"


async def test_a_resource_is_read_as_the_result_of_a_call(application: FakeApplication) -> None:
    asked = told(application, {"resources/read": {"contents": [{"uri": "docs://handbook", "text": "30 days"}]}})
    result = await read(application, "read_resource", uri="docs://handbook")
    assert (result.text, asked) == ("30 days", [("resources/read", {"uri": "docs://handbook"})])


async def test_what_a_template_gives_is_read_too(application: FakeApplication) -> None:
    asked = told(application, {"resources/read": {"contents": [{"uri": "table://users/schema", "text": "id int"}]}})
    assert (await read(application, "read_resource", uri="table://users/schema")).text == "id int"
    assert asked == [("resources/read", {"uri": "table://users/schema"})]


async def test_images_and_other_bytes_stay_what_they_are(application: FakeApplication) -> None:
    image = {"uri": "docs://handbook", "mimeType": "image/png", "blob": "aGk="}
    other = {"uri": "docs://handbook", "mimeType": "application/zip", "blob": "aGk="}
    told(application, {"resources/read": {"contents": [image, other]}})
    assert (await read(application, "read_resource", uri="docs://handbook")).content == [
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        {"type": "resource", "resource": other},
    ]


async def test_a_prompt_is_filled_in_as_the_result_of_a_call(application: FakeApplication) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Look at this: -a +b"}}
    picture = {"role": "user", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}}
    asked = told(application, {"prompts/get": {"messages": [message, picture]}})
    result = await read(application, "get_prompt", name="review-code", arguments={"diff": "-a +b"})
    assert result.content == [{"type": "text", "text": "user: Look at this: -a +b"}, picture["content"]]
    assert asked == [("prompts/get", {"name": "review-code", "arguments": {"diff": "-a +b"}})]


async def test_a_document_needs_no_server(application: FakeApplication) -> None:
    application.provider("office").fails(UpstreamGone("office"))
    assert (await read(application, "read_resource", uri="catalog://guide/office")).text == GUIDE


@pytest.mark.parametrize(
    ("tool", "arguments", "error", "words"),
    [
        ("read_resource", {}, InvalidArguments, "missing: uri"),
        ("read_resource", {"uri": 5}, InvalidArguments, "missing: uri"),
        ("get_prompt", {"uri": "x"}, InvalidArguments, "missing: name"),
        ("get_prompt", {"name": "review-code"}, InvalidArguments, "missing: diff"),
        ("read_resource", {"uri": "docs://nothing"}, UnknownItem, "no resource of that name"),
        ("get_prompt", {"name": "nothing"}, UnknownItem, "no prompt of that name"),
        ("read_resource", {"uri": "catalog://guide/nobody"}, UnknownItem, "no resource of that name"),
    ],
)
async def test_what_cannot_be_read_is_named(
    application: FakeApplication, tool: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        await read(application, tool, **arguments)


async def test_an_answer_that_is_none_is_the_servers_error(application: FakeApplication) -> None:
    told(application, {"resources/read": {"nothing": True}})
    with pytest.raises(UpstreamError, match="no list of contents"):
        await read(application, "read_resource", uri="docs://handbook")


async def test_a_look_at_an_item_is_in_the_journal(application: FakeApplication) -> None:
    told(application, {"resources/read": {"contents": [{"uri": "docs://handbook", "text": "30 days"}]}})
    await read(application, "read_resource", uri="docs://handbook")
    last = application.gateway.executor.journal.lookups[-1]  # type: ignore[attr-defined]
    assert isinstance(last, Lookup)
    assert "docs://handbook" in last.text
    assert last.tokens > 0


def test_a_profile_hides_items_from_every_door() -> None:
    application = house_with(
        offering(), profile=Profile(name="p", resource=(read_pattern("glossary://.*"),), prompt=())
    )
    for words in ("holidays and sick leave", "point out mistakes in a code change", "columns of a database table"):
        assert "[resource]" not in search(application, words)
        assert "[prompt]" not in search(application, words)
        assert "[template]" not in search(application, words)
    with pytest.raises(Exception, match="unknown_tool"):
        application.gateway.describe(AGENT, ["docs://handbook"])


async def test_a_template_gives_nothing_that_the_profile_hides() -> None:
    application = house_with(
        offering(), profile=Profile(name="p", resource=(read_pattern(r"table://\{name\}/schema"),))
    )
    with pytest.raises(UnknownItem):
        await read(application, "read_resource", uri="table://users/schema")


async def test_who_sees_no_tool_of_a_server_is_not_told_its_guide() -> None:
    spec = ServerSpec(name="office", transport="stdio", tools=ToolFilter(deny=("*",)))
    application = house_with(offering(prompts=(), resources=(), templates=()), specs=[spec])
    assert "Always" not in search(application, "customer number before an invoice")
    assert application.gateway.item(AGENT, "catalog://guide/office") is None
    with pytest.raises(UnknownItem):
        await read(application, "read_resource", uri="catalog://guide/office")


async def test_a_servers_own_tool_of_that_name_is_called_by_its_handle() -> None:
    application = house_with(offering(tools=(definition("read_resource", "Read"),)))
    assert (await read(application, "office.read_resource")).text == "read_resource was called"


def test_what_does_not_change_is_not_read_again() -> None:
    entries = ItemIndex()
    first, second = Server(name="a", identifier="a", resources=(HANDBOOK,)), Server(name="b", identifier="b")
    assert entries.search(collect([first, second]), "holidays", {"a", "b"}, 5)
    known = {id(tool) for _, tool in entries._read.values()}
    grown = Server(name="b", identifier="b", prompts=(REVIEW,))
    assert entries.search(collect([first, grown]), "review code", {"a", "b"}, 5)
    assert known < {id(tool) for _, tool in entries._read.values()}
    assert entries.search(Items(), "holidays", {"a"}, 5) == []


@pytest.mark.parametrize("odd", [{"arguments": "x"}, {"arguments": [1, {"name": 2}]}, {"description": 5, "title": []}])
def test_odd_definitions_are_shown_as_far_as_they_can_be_understood(odd: dict[str, Any]) -> None:
    application = house_with(offering(prompts=({**REVIEW, **odd},)))
    assert "[prompt]" in application.gateway.describe(AGENT, [application.gateway.items.prompts[0].listed]).text


def test_no_answer_exceeds_its_budget_with_many_items() -> None:
    many = tuple({**HANDBOOK, "uri": f"docs://{n}/{'x' * 200}", "description": "Holidays " * 50} for n in range(300))
    application = house_with(offering(resources=many))
    answer = application.gateway.search(AGENT, Query(text="holidays and travel expenses"))
    assert 0 < answer.tokens <= 800
