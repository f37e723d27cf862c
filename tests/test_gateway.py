"""What an agent is told: text formats, pages that are complete, the map, and answers that fit their budget."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.prompts_and_resources import Item, ItemKind
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogPolicy
from portico.config import SearchSettings
from portico.domain.call import Call, Caller, Invocation, Outcome
from portico.domain.journal_entries import Look, Lookup
from portico.domain.search_answers import Budget, Disclosure, Level, Query
from portico.domain.server import Offering, ServerLabels, ServerSpec
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Standing, Tier, Usage
from portico.errors import NextCall, UnknownFilter, UnknownTool
from portico.rendering.budget import STRANGE_CURSOR, TokenEstimate
from portico.storage.memory import MemoryJournal
from portico.storage.storage import Storage
from portico.testing import AGENT, FakeApplication, FakeIndex, definition, make_test_app
from tests.catalogue import generate

ISSUE = definition("create_issue", "Create a new issue in a repository.", title="string", body="string?")
READ = {**definition("read_file", "Read a file from disk.", path="string"), "annotations": {"readOnlyHint": True}}


@pytest.fixture
def application() -> FakeApplication:
    specs = [
        ServerSpec(name="github", transport="stdio", command="x", labels=ServerLabels(category="code")),
        ServerSpec(name="files", transport="stdio", command="x"),
    ]
    return make_test_app(
        {"github": [ISSUE, definition("list_issues", "List the issues.")], "files": [READ]}, specs=specs
    )


@pytest.fixture(scope="module")
def large() -> FakeApplication:
    return make_test_app(generate(20, 300))


def handles(found: Disclosure) -> list[str]:
    return [card.handle for card in found.cards]


def cursor_of(found: Disclosure) -> str:
    match = re.search(r'"cursor": "([^"]+)"', found.next)
    return match[1] if match else ""


def tier_answers(
    application: FakeApplication, query: Query, budget: Budget | None = None, limits: Sequence[int] = ()
) -> list[str]:
    seen: list[str] = []
    for number in range(400):
        query = replace(query, limit=limits[number % len(limits)]) if limits else query
        found = application.gateway.search(AGENT, query, budget)
        assert not found.text.startswith(STRANGE_CURSOR)
        seen += handles(found)
        if not (cursor := cursor_of(found)):
            return seen
        query = replace(query, cursor=cursor)
    raise AssertionError("the pages do not end")


def test_a_hit_is_one_callable_line(application: FakeApplication) -> None:
    found = application.gateway.search(AGENT, Query(text="new issue", limit=1))
    assert found.text.split("\n")[0] == "github.create_issue(title, body?) [write] Create a new issue in a repository"
    assert application.gateway.search(AGENT, Query(text="read a file")).text == (
        "files.read_file(path) [read] Read a file from disk"
    )


def test_more_hits_are_announced_with_the_exact_next_call(application: FakeApplication) -> None:
    found = application.gateway.search(AGENT, Query(text="issue", limit=1))
    assert re.fullmatch(
        r'1 more: search_tools\(\{"query": "issue", "limit": 1, "cursor": "1:[0-9a-f]{6}"\}\)', found.next
    )
    assert found.truncated
    assert found.text.endswith(found.next)


@pytest.mark.parametrize(
    "spelling", ["github.create_issue", "github::create_issue", "create_issue", "GITHUB/create_issue"]
)
def test_an_exact_name_gives_the_full_card(application: FakeApplication, spelling: str) -> None:
    found = application.gateway.search(AGENT, Query(text=spelling))
    assert handles(found) == ["github.create_issue"]
    assert found.cards[0].level is Level.FULL
    assert '"required":["title"]' in found.text
    assert found.text.endswith('example: call_tool({"name": "github.create_issue", "arguments": {"title": "..."}})')


@pytest.mark.requirement("S1-53", "S1-54", "S1-90", "S1-91")
def test_no_words_give_the_hot_list_and_the_map(application: FakeApplication) -> None:
    assert application.gateway.search(AGENT, Query(text=" ")).text.split("\n") == [
        "1. github.create_issue(title, body?) [write] Create a new issue in a repository",
        "2. files.read_file(path) [read] Read a file from disk",
        "3. github.list_issues() [write]",
        (
            'browse by category: search_tools({"query": "", "category": "..."}), or search by intent:'
            ' search_tools({"query": "..."})'
        ),
        "3 tools on 2 servers.",
        "📁 files: Files & Documents (1 tool)",
        "📁 code (2 tools)",
        "servers:",
        "- files (1)",
        "- github (2)",
    ]


@pytest.mark.requirement("S1-9", "S1-53")
async def test_what_is_called_often_and_well_leads_the_hot_list_once_tiers_are_updated(
    application: FakeApplication,
) -> None:
    application.provider("files").returns("read_file", {"content": []})
    for _ in range(3):
        await application.gateway.call(AGENT, Call(tool="files.read_file", arguments={"path": "/a"}))
    await application.admin.update_tiers()
    assert next(tool.handle for tool in application.gateway.hot(AGENT)) == "files.read_file"


@pytest.mark.requirement("S1-90")
def test_a_new_user_is_given_ten_numbered_tools_of_one_line_each_and_two_ways_on() -> None:
    tools = [definition(f"tool_{n}", f"Do thing {n}.\n\nIn many\nlines.", path="string") for n in range(40)]
    application = make_test_app({"files": tools})
    for number in range(12):
        used(application, f"files.tool_{30 + number % 10}", 1 + number)
    lines = application.gateway.search(AGENT, Query()).text.split("\n")
    for place, line in enumerate(lines[:10], 1):
        assert re.fullmatch(rf"{place}\. files\.tool_3\d\(path\) \[write\] Do thing 3\d", line), line
    assert lines[10].startswith("browse by category: ")
    assert ", or search by intent: " in lines[10]
    assert not [line for line in lines[11:] if re.match(r"\d+\. ", line)]


@pytest.mark.requirement("S1-90")
def test_the_hot_list_has_ten_tools_and_a_small_budget_shortens_it() -> None:
    application = make_test_app({"files": [definition(f"tool_{n}", path="string") for n in range(40)]})
    whole = application.gateway.search(AGENT, Query())
    assert (whole.shown, "\n10. " in whole.text, "\n11. " in whole.text) == (10, True, False)
    for tokens in (30, 100, 200):
        short = application.gateway.search(AGENT, Query(), Budget(tokens=tokens))
        assert short.tokens <= tokens


def test_the_hot_list_is_ranked_once_for_each_edition_and_each_update_of_tiers() -> None:
    class Watched(dict[ToolId, Usage]):
        read = 0

        def get(self, *args: Any) -> Any:
            self.read += 1
            return super().get(*args)

    usage = Watched()
    journal = MemoryJournal(_usage=usage)
    application = make_test_app(
        {"files": [definition(f"tool_{n}") for n in range(40)]}, storage=Storage(journal=journal)
    )
    for _ in range(5):
        assert [tool.id.name for tool in application.gateway.hot(AGENT, 2)] == ["tool_0", "tool_1"]
    assert usage.read == 40
    application.gateway.standings.replace_tiers({ToolId("files", "tool_7"): Standing(tier=Tier.HOT, score=0.9)})
    assert [tool.id.name for tool in application.gateway.hot(AGENT, 2)] == ["tool_7", "tool_0"]
    offer(application, "files", definition("tool_1"))
    assert [tool.id.name for tool in application.gateway.hot(AGENT, 2)] == ["tool_1"]
    assert usage.read == 81


@pytest.mark.requirement("S1-E10")
def test_pins_lead_the_hot_list_and_unknown_pins_are_left_out() -> None:
    application = make_test_app({"files": [definition("a"), READ]}, pins=("files.read_file", "gone.tool"))
    lines = application.gateway.search(AGENT, Query()).text.split("\n")
    assert lines[0] == "1. files.read_file(path) [read] Read a file from disk"
    assert lines[3] == "2 tools on 1 server."
    assert [tool.handle for tool in application.gateway.view(AGENT).pinned] == ["files.read_file"]


def test_a_server_or_category_alone_lists_its_tools(application: FakeApplication) -> None:
    search = application.gateway.search
    assert handles(search(AGENT, Query(server="GitHub"))) == ["github.create_issue", "github.list_issues"]
    assert handles(search(AGENT, Query(category="Code"))) == ["github.create_issue", "github.list_issues"]
    assert handles(search(AGENT, Query(server="files", category="files"))) == ["files.read_file"]
    assert handles(search(AGENT, Query(text="issue file", server="files"))) == ["files.read_file"]


@pytest.mark.requirement("P-NOTHING-FITS")
def test_where_no_word_is_known_nothing_fits_and_the_map_is_shown(application: FakeApplication) -> None:
    nothing = application.gateway.search(AGENT, Query(text="quantum zebra"))
    lines = nothing.text.split("\n")
    assert lines[0] == "no tool fits 'quantum zebra'"
    assert (
        'next: other words for one thing to do, or all of a server: search_tools({"query": "", "server": "..."})'
    ) in lines[1:4]
    assert lines[-6:] == [
        "3 tools on 2 servers.",
        "📁 files: Files & Documents (1 tool)",
        "📁 code (2 tools)",
        "servers:",
        "- files (1)",
        "- github (2)",
    ]
    assert (nothing.cards, nothing.fits) == ((), False)


@pytest.mark.requirement("P-NOTHING-FITS")
def test_where_nothing_is_near_in_meaning_names_that_look_alike_are_named() -> None:
    application = make_test_app({"github": [ISSUE], "files": [READ]}, index=FakeIndex())
    assert "\nnearest: github.create_issue\n" in application.gateway.search(AGENT, Query(text="kreate_isue")).text
    assert "nearest" not in application.gateway.search(AGENT, Query(text="quantum zebra")).text


@pytest.mark.requirement("P-NOTHING-FITS")
def test_hits_that_do_not_fit_are_named_as_the_nearest_and_not_offered() -> None:
    index = FakeIndex({"github.create_issue": 3.0, "files.read_file": 2.0, "s.a": 1.0, "s.b": 0.5}, fits=False)
    application = make_test_app(
        {"github": [ISSUE], "files": [READ], "s": [definition("a"), definition("b")]},
        index=index,
        search=SearchSettings(tokens=60),
    )
    found = application.gateway.search(AGENT, Query(text="book a flight"))
    lines = found.text.split("\n")
    assert lines[:2] == ["no tool fits 'book a flight'", "nearest: github.create_issue, files.read_file, s.a"]
    assert "[write]" not in found.text
    assert (found.cards, found.fits) == ((), False)
    assert found.tokens <= 60
    assert [hit.handle for hit in application.gateway.nearest(AGENT, Query(text="book a flight"), 1)] == [
        "github.create_issue"
    ]


@pytest.mark.requirement("P-NOTHING-FITS", "P-FILTERS")
def test_filters_that_leave_nothing_are_named_with_the_wider_search(application: FakeApplication) -> None:
    nothing = application.gateway.search(AGENT, Query(text="issue", server="files", category="code", min_success=0.5))
    assert nothing.text.split("\n")[:2] == [
        "no tool fits 'issue' with server files, category code, min_success 0.5",
        'next: fewer filters: search_tools({"query": "issue"})',
    ]
    shelf = application.gateway.search(AGENT, Query(server="github", read_only=True))
    assert shelf.text.startswith(
        'no tool has all of this: server github, read_only\nnext: fewer filters: search_tools({"query": ""})\n3 tools'
    )
    assert not shelf.fits


@pytest.mark.requirement("P-FILTERS")
def test_an_unknown_server_is_answered_with_the_ones_that_exist(application: FakeApplication) -> None:
    with pytest.raises(UnknownFilter) as raised:
        application.gateway.search(AGENT, Query(text="issue", server="githb"))
    assert str(raised.value) == (
        "unknown_filter for server 'githb'; nothing was sent\n- servers, nearest first: github, files"
    )
    assert raised.value.next_call == NextCall("search", {"query": "issue", "server": "github"})


@pytest.mark.requirement("P-FILTERS")
def test_a_server_that_could_not_be_asked_is_not_called_unknown_without_its_reason(
    application: FakeApplication,
) -> None:
    application.gateway.refresher.failures["Slack-Server"] = "it did not start"
    with pytest.raises(UnknownFilter, match="the server 'Slack-Server' is not available: it did not start"):
        application.gateway.search(AGENT, Query(text="send", server="slack-server"))


def test_an_empty_catalog_answers_too() -> None:
    assert make_test_app({}).gateway.search(AGENT, Query()).text == "0 tools on 0 servers.\nservers:"


@pytest.mark.requirement("P-PAGES-COMPLETE")
@pytest.mark.parametrize("limit", [1, 3, 7, 50])
@pytest.mark.parametrize("tokens", [90, 250, 800])
@pytest.mark.parametrize(
    "query", [Query(text="create new invoice"), Query(server="billing"), Query(category="planning")]
)
def test_the_pages_together_are_all_hits_without_repeats(
    large: FakeApplication, query: Query, tokens: int, limit: int
) -> None:
    if query.text:
        expected = [hit.handle for hit in large.gateway.hits(AGENT, query).hits]
    else:
        listing = large.gateway.view(AGENT).tools
        expected = [
            tool.handle for tool in listing if query.server == tool.id.server or query.category == tool.category
        ]
    assert len(expected) > 5
    assert tier_answers(large, query, Budget(tokens=tokens, cards=limit)) == expected


@pytest.mark.requirement("P-PAGES-COMPLETE")
def test_a_long_query_has_complete_pages_too(large: FakeApplication) -> None:
    query = Query(text="create or update an invoice, a message, a page and a contact " * 8, limit=9)
    expected = [hit.handle for hit in large.gateway.hits(AGENT, query).hits]
    assert tier_answers(large, query) == expected


@pytest.mark.requirement("P-PAGES-COMPLETE")
@pytest.mark.parametrize("query", [Query(text="list", read_only=True), Query(server="billing")])
def test_the_limit_may_change_from_page_to_page(large: FakeApplication, query: Query) -> None:
    expected = [hit.handle for hit in large.gateway.hits(AGENT, query).hits]
    assert len(expected) > 5
    assert tier_answers(large, query, limits=[2, 1, 3]) == expected


@pytest.mark.requirement("P-PAGES-STABLE")
@pytest.mark.parametrize(
    "cursor", ["x", "0:5", "5", "5:", "5:5", ":", "999:MARK", "-1:MARK", "²:MARK", "٣:MARK", "1:MARK:"]
)
def test_a_cursor_that_was_never_given_out_is_named_and_starts_at_the_beginning(
    large: FakeApplication, cursor: str
) -> None:
    query = Query(text="create invoice")
    first = large.gateway.search(AGENT, query)
    mark = cursor_of(first).partition(":")[2]
    again = large.gateway.search(AGENT, replace(query, cursor=cursor.replace("MARK", mark)))
    assert again.text == f"{STRANGE_CURSOR}\n{first.text}"
    assert handles(again) == handles(first)


@pytest.mark.requirement("P-PAGES-STABLE")
def test_a_cursor_of_another_search_starts_at_the_beginning(large: FakeApplication) -> None:
    cursor = cursor_of(large.gateway.search(AGENT, Query(text="list")))
    for other in (Query(text="create"), Query(text="list", read_only=True), Query(server="billing")):
        first = large.gateway.search(AGENT, other)
        again = large.gateway.search(AGENT, replace(other, cursor=cursor))
        assert again.text.startswith(STRANGE_CURSOR)
        assert handles(again) == handles(first)


@pytest.mark.requirement("P-PAGES-STABLE")
def test_a_cursor_outlives_a_new_edition_as_long_as_the_list_is_the_same() -> None:
    index = FakeIndex({"github.create_issue": 3.0, "github.list_issues": 2.0, "files.file_issue": 1.0})
    application = make_test_app({"github": [ISSUE, definition("list_issues")], "files": [READ]}, index=index)
    query = Query(text="issue", limit=1)
    cursor = cursor_of(application.gateway.search(AGENT, query))
    offer(application, "files", READ, definition("write_file", "Write a file."))
    assert handles(application.gateway.search(AGENT, replace(query, cursor=cursor))) == ["github.list_issues"]
    offer(application, "files", READ, definition("file_issue", "Put an issue into a file."))
    assert application.gateway.search(AGENT, replace(query, cursor=cursor)).text.startswith(STRANGE_CURSOR)


def offer(application: FakeApplication, server: str, *definitions: dict[str, Any]) -> None:
    application.gateway.publisher.accept([(Offering(server=server, tools=definitions), "upstream")])


@pytest.mark.requirement("P-BUDGET-NEVER-OVER")
@settings(max_examples=120)
@given(
    st.sampled_from(["", "create", "search messages and files", "billing.x", "zzz", "\n", "x" * 500]),
    st.sampled_from(["", "billing", "chat"]),
    st.integers(1, 60),
    st.integers(150, 900),
)
def test_a_search_answer_stays_within_its_tokens(
    large: FakeApplication, text: str, server: str, limit: int, tokens: int
) -> None:
    found = large.gateway.search(
        AGENT, Query(text=text, server=server, limit=limit), Budget(tokens=tokens, cards=limit)
    )
    assert TokenEstimate().count(found.text) == found.tokens
    assert found.tokens <= tokens


@pytest.mark.requirement("P-BUDGET-NEVER-OVER", "T33")
def test_monstrous_definitions_do_not_make_answers_long() -> None:
    wide = definition("wide", "word " * 20_000, **{f"parameter{n}": "string" for n in range(3_000)})
    application = make_test_app({"s": [wide]})
    assert application.gateway.search(AGENT, Query(text="wide word")).tokens <= 800
    assert application.gateway.describe(AGENT, ["s.wide"]).tokens <= 6_000


def test_describe_shows_full_cards_and_answers_unknown_names_in_place(application: FakeApplication) -> None:
    found = application.gateway.describe(AGENT, ["github.create_issue", "github.create_isue", "files.read_file"])
    first, second, third = found.text.split("\n\n")
    assert first.startswith("## github.create_issue [write]\nCreate a new issue in a repository.\nparameters: {")
    assert second.startswith("## github.create_isue: unknown_tool\n- did you mean: github.create_issue")
    assert third.startswith("## files.read_file [read]")


def test_describe_with_nothing_known_is_an_error(application: FakeApplication) -> None:
    with pytest.raises(UnknownTool):
        application.gateway.describe(AGENT, ["nobody.knows", "me.neither"])


def test_describe_takes_eight_names_and_says_what_it_left_out(application: FakeApplication) -> None:
    names = ["github.create_issue", *(f"unknown{n}" for n in range(10))]
    found = application.gateway.describe(AGENT, names)
    assert found.shown == 8
    assert found.text.endswith("(3 more names left out: at most 8 a call)")
    again = application.gateway.describe(AGENT, ["github.create_issue"] * 20)
    assert (again.shown, again.next) == (1, "")


def test_describe_degrades_instead_of_overflowing(large: FakeApplication) -> None:
    names = [tool.handle for tool in large.gateway.view(AGENT).tools[:8]]
    found = large.gateway.describe(AGENT, names, tokens=300)
    assert found.tokens <= 300
    assert handles(found) == names


def test_examples_fit_their_own_schema(large: FakeApplication) -> None:
    for tool in large.gateway.view(AGENT).tools[:40]:
        line = large.gateway.describe(AGENT, [tool.handle]).text.rsplit("example: call_tool(", 1)[1]
        example: dict[str, Any] = json.loads(line[:-1])["arguments"]
        large.gateway.executor.arguments.check(tool, example)


async def test_requests_beside_tools_go_to_their_server(application: FakeApplication) -> None:
    item = Item(kind=ItemKind.PROMPT, server="github", original="greet", listed="github__greet", definition={})
    answer = await application.gateway.forward(item, "prompts/get", {"name": "greet"})
    assert answer == {"method": "prompts/get", "params": {"name": "greet"}}


def used(application: FakeApplication, handle: str, times: int) -> None:
    server, name = handle.split(".")
    for _ in range(times):
        application.gateway.executor.journal.record(
            Invocation(
                tool=ToolId(server, name), spelled=handle, caller="", surface="", outcome=Outcome.DONE, seconds=0.1
            )
        )


@pytest.mark.requirement("P-USAGE-GENTLE", "T38")
def test_usage_orders_equals_on_a_page_and_moves_no_tool_to_another_page() -> None:
    scores = {f"s.t{number}": 5.0 for number in range(7)} | {"s.t7": 4.9}
    application = make_test_app({"s": [definition(f"t{number}") for number in range(8)]}, index=FakeIndex(scores))
    query = Query(text="anything", limit=3)
    used(application, "s.t2", 9)
    used(application, "s.t6", 99)
    used(application, "s.t7", 999)
    first = application.gateway.search(AGENT, query)
    assert handles(first) == ["s.t2", "s.t0", "s.t1"]
    assert [hit.handle for hit in application.gateway.first_page(AGENT, query).hits] == handles(first)
    used(application, "s.t4", 50)
    used(application, "s.t1", 500)
    second = application.gateway.search(AGENT, replace(query, cursor=cursor_of(first)))
    third = application.gateway.search(AGENT, replace(query, cursor=cursor_of(second)))
    assert (handles(second), handles(third)) == (["s.t4", "s.t3", "s.t5"], ["s.t6", "s.t7"])


@pytest.mark.requirement("P-PAGES-STABLE", "P-USAGE")
def test_a_list_that_calls_have_changed_is_begun_again() -> None:
    scores = {f"s.t{number}": 9.0 - number for number in range(5)}
    application = make_test_app({"s": [definition(f"t{number}") for number in range(5)]}, index=FakeIndex(scores))
    query = Query(text="anything", limit=2, max_latency_ms=50)
    first = application.gateway.search(AGENT, query)
    used(application, "s.t0", 1)
    again = application.gateway.search(AGENT, replace(query, cursor=cursor_of(first)))
    assert again.text.startswith(STRANGE_CURSOR)
    assert handles(again) == ["s.t1", "s.t2"]


def test_no_words_with_a_filter_are_hits_too(application: FakeApplication) -> None:
    assert [hit.handle for hit in application.gateway.first_page(AGENT, Query(category="code", limit=1)).hits] == [
        "github.create_issue"
    ]
    assert application.gateway.first_page(AGENT, Query()).hits == ()


@pytest.mark.requirement("S1-92")
def test_whoever_asks_for_fast_tools_is_told_how_they_have_done() -> None:
    def tagged(name: str, tag: str) -> dict[str, Any]:
        return {**definition(name, f"Static analysis of code, {name}.", path="string"), "tags": [tag, "analysis"]}

    python = [tagged(f"check_{n}", "python") for n in range(30)]
    application = make_test_app({"lint": [*python, tagged("check_java", "java"), tagged("check_slowly", "python")]})
    for n in range(30):
        ended(application, ToolId("lint", f"check_{n}"), done=75, failed=1, seconds=0.047)
    ended(application, ToolId("lint", "check_java"), done=9, seconds=0.001)
    ended(application, ToolId("lint", "check_slowly"), done=9, seconds=0.9)
    query = Query(text="static analysis", tag="python", max_latency_ms=100, limit=50)
    found = application.gateway.search(AGENT, query, Budget(tokens=4_000, cards=50))
    assert found.tokens <= 4_000
    assert sorted(handles(found)) == sorted(f"lint.check_{n}" for n in range(30))
    lines = found.text.splitlines()
    assert len(lines) == 30
    assert [line for line in lines if not line.endswith(" (47ms avg, 98.7% success)")] == []
    assert "avg" not in application.gateway.search(AGENT, Query(text="static analysis")).text


def ended(application: FakeApplication, tool: ToolId, *, done: int, failed: int = 0, seconds: float) -> None:
    called = Invocation(tool=tool, spelled="", caller="", surface="", outcome=Outcome.DONE, seconds=seconds)
    for outcome in [Outcome.DONE] * done + [Outcome.FAILED] * failed:
        application.gateway.executor.journal.record(replace(called, outcome=outcome))


def listed(application: FakeApplication, caller: Caller, definitions: Sequence[Mapping[str, Any]]) -> Lookup:
    """What the journal says of a list that a client was given."""
    application.gateway.record_listing(caller, definitions)
    return cast(MemoryJournal, application.gateway.executor.journal).lookups[-1]


META = [{"name": name} for name in ("search_tools", "describe_tools", "call_tool")]


@pytest.mark.requirement("P-JOURNAL-DOORS")
@pytest.mark.parametrize("tools", [1, 3, 5])
def test_what_listing_every_tool_would_have_cost_does_not_depend_on_how_many_were_listed(tools: int) -> None:
    application = make_test_app({"a": [definition(f"t{n}", "word " * 1_000) for n in range(tools)]})
    found = listed(application, Caller(surface="discover"), META)
    assert found.tokens < 50
    assert 900 * tools < found.instead < 1_500 * tools


@pytest.mark.requirement("P-JOURNAL-DOORS")
def test_lists_of_callers_who_see_different_tools_are_counted_apart() -> None:
    class Choosy(CatalogPolicy):
        def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> frozenset[ToolId]:
            return frozenset(id for id in snapshot.tools if id.server == caller.name)

    servers = {"small": [definition("t")], "large": [definition("t", "word " * 1_000)]}
    application = make_test_app(servers, policy=Choosy())
    costs = {}
    for name in ("small", "large"):
        caller = Caller(name=name, surface="static")
        entry = listed(application, caller, [tool.definition for tool in application.gateway.view(caller).tools])
        assert entry.tokens == entry.instead
        costs[name] = entry.tokens
    assert costs["large"] > 10 * costs["small"]


def test_a_look_is_written_down_with_the_moment_at_which_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    application = make_test_app({"a": [definition("t")]})
    monkeypatch.setattr("portico.gateway.time", lambda: 1_000.0)
    monkeypatch.setattr("portico.gateway.perf_counter", lambda: 12.5)
    application.gateway.record_lookup(AGENT, Look.SEARCH, "x", Disclosure(text="", tokens=1), since=10.0)
    (entry,) = cast(MemoryJournal, application.gateway.executor.journal).lookups
    assert (entry.at, entry.seconds) == (997.5, 2.5)
