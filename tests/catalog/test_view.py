"""Views and filters: what passes them, what is kept of them, and what is said of a value that no tool has."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import VALUES_KEPT, CatalogPolicy
from portico.domain.call import Call, Caller, Invocation, Outcome
from portico.domain.search_answers import Query
from portico.domain.server import Offering, ServerLabels, ServerSpec, ToolFilter
from portico.domain.tool import ToolId
from portico.errors import CallError, InvalidArguments, NextCall, UnknownFilter, UnknownTool, UpstreamGone
from portico.testing import AGENT, FakeApplication, FakeIndex, definition, make_test_app


def tagged(name: str, *tags: str, reads: bool = False) -> dict[str, Any]:
    return {
        **definition(name, "Does something."),
        "annotations": {"readOnlyHint": reads},
        "_meta": {"fastmcp": {"tags": list(tags)}},
    }


@pytest.fixture
def application() -> FakeApplication:
    specs = [
        ServerSpec(name="git-hub", transport="stdio", command="x", labels=ServerLabels(category="Code")),
        ServerSpec(name="files", transport="stdio", command="x", tools=ToolFilter(deny=("secret",))),
    ]
    offered = {
        "git-hub": [tagged("list", "Issues", reads=True), tagged("create", "issues", "write")],
        "files": [tagged("read", "disk", reads=True), tagged("secret", "hidden-tag")],
    }
    return make_test_app(offered, specs=specs)


def found(application: FakeApplication, **filters: Any) -> list[str]:
    return sorted(hit.handle for hit in application.gateway.hits(AGENT, Query(text="does something", **filters)).hits)


def called(application: FakeApplication, server: str, name: str, outcome: Outcome, seconds: float) -> None:
    application.gateway.executor.journal.record(
        Invocation(tool=ToolId(server, name), spelled=name, caller="", surface="", outcome=outcome, seconds=seconds)
    )


@pytest.mark.requirement("P-FILTERS", "P-TAGS")
def test_each_filter_narrows_a_search_without_regard_to_case(application: FakeApplication) -> None:
    assert (
        found(application, server="GIT-hub")
        == found(application, server="git_hub")
        == ["git_hub.create", "git_hub.list"]
    )
    assert found(application, category="code") == ["git_hub.create", "git_hub.list"]
    assert found(application, tag="ISSUES") == ["git_hub.create", "git_hub.list"]
    assert found(application, tag="disk") == ["files.read"]
    assert found(application, read_only=True) == ["files.read", "git_hub.list"]
    assert found(application, source="upstream") == ["files.read", "git_hub.create", "git_hub.list"]
    assert found(application, tag="issues", read_only=True, server="git-hub") == ["git_hub.list"]
    assert found(application, tag="disk", category="code") == []


@pytest.mark.requirement("P-FILTERS")
def test_sources_are_told_apart() -> None:
    application = make_test_app({"up": [definition("a", "Does something.")]})
    application.gateway.publisher.accept(
        [(Offering(server="db", tools=(definition("b", "Does something."),)), "database")]
    )
    assert found(application, source="database") == ["db.b"]
    with pytest.raises(UnknownFilter, match="sources, nearest first: database, upstream"):
        found(application, source="datbase")


@pytest.mark.requirement("P-FILTERS")
@pytest.mark.parametrize(
    ("filters", "text", "mended"),
    [
        ({"server": "git"}, "servers, nearest first: git_hub, files", {"server": "git_hub"}),
        ({"category": "cod"}, "categories, nearest first: Code, files", {"category": "Code"}),
        ({"tag": "issue", "read_only": True}, "tags, nearest first: issues, ", {"tag": "issues", "read_only": True}),
        ({"source": "librarian"}, "sources, nearest first: upstream", None),
    ],
)
def test_a_value_that_no_tool_has_is_answered_with_those_that_exist(
    application: FakeApplication, filters: dict[str, Any], text: str, mended: dict[str, Any] | None
) -> None:
    with pytest.raises(UnknownFilter) as raised:
        found(application, **filters)
    assert text in str(raised.value)
    query = {"query": "does something", **mended} if mended else {"query": ""}
    assert raised.value.next_call == NextCall("search", query)


@pytest.mark.requirement("P-FILTERS", "P-HIDDEN-LOOKS-MISSING", "T17")
def test_what_only_hidden_tools_have_does_not_exist(application: FakeApplication) -> None:
    with pytest.raises(UnknownFilter) as hidden:
        found(application, tag="hidden-tag")
    with pytest.raises(UnknownFilter) as missing:
        found(application, tag="nobody-tag")
    assert str(hidden.value).replace("hidden-tag", "nobody-tag").split("\n")[0] == str(missing.value).split("\n")[0]
    assert "hidden-tag" not in str(missing.value)


@pytest.mark.requirement("P-FILTERS")
def test_many_values_are_named_up_to_ten_and_counted() -> None:
    application = make_test_app({f"server{number:03}": [definition("x")] for number in range(200)})
    with pytest.raises(UnknownFilter) as raised:
        found(application, server="server1000" + "x" * 5_000)
    assert str(raised.value).endswith(" and 190 more")
    assert len(str(raised.value)) < 400
    with pytest.raises(UnknownFilter, match="no tool has a tag"):
        found(application, tag="x")


@pytest.mark.requirement("P-FILTERS", "P-USAGE")
def test_slow_and_failing_tools_are_left_out_and_untried_ones_pass(application: FakeApplication) -> None:
    called(application, "git-hub", "list", Outcome.DONE, 0.5)
    called(application, "git-hub", "create", Outcome.DONE, 0.01)
    called(application, "git-hub", "create", Outcome.FAILED, 0.01)
    assert found(application, max_latency_ms=100) == ["files.read", "git_hub.create"]
    assert found(application, min_success=0.9) == ["files.read", "git_hub.list"]
    assert found(application, min_success=0.5, max_latency_ms=500) == ["files.read", "git_hub.create", "git_hub.list"]
    assert found(application, min_success=0.9, max_latency_ms=100) == ["files.read"]


@pytest.mark.requirement("P-FILTERS", "P-USAGE")
async def test_calls_make_the_usage_that_filters_and_descriptions_speak_of(application: FakeApplication) -> None:
    await application.gateway.call(AGENT, Call(tool="files.read", arguments={}))
    with pytest.raises(CallError):
        await application.gateway.call(AGENT, Call(tool="files.read", arguments={"nonsense": 1}))
    assert "\nperformance: 1 call, 100.0% success, " in application.gateway.describe(AGENT, ["files.read"]).text
    application.provider("files").fails(UpstreamGone("files"))
    with pytest.raises(UpstreamGone):
        await application.gateway.call(AGENT, Call(tool="files.read", arguments={}))
    assert "\nperformance: 2 calls, 50.0% success, " in application.gateway.describe(AGENT, ["files.read"]).text
    assert "files.read" not in found(application, min_success=0.6)
    assert "performance" not in application.gateway.describe(AGENT, ["git_hub.list"]).text


@pytest.mark.requirement("P-FILTERS")
@pytest.mark.parametrize("filters", [{"min_success": 95}, {"min_success": -1}, {"max_latency_ms": float("nan")}])
def test_a_number_that_cannot_be_meant_is_refused(application: FakeApplication, filters: dict[str, float]) -> None:
    with pytest.raises(InvalidArguments, match=r"min_success is a share|max_latency_ms is a number"):
        found(application, **filters)


@pytest.mark.requirement("P-FILTERS")
def test_the_index_is_asked_within_the_same_object_for_the_same_filters() -> None:
    index = FakeIndex({"a.x": 1.0})
    application = make_test_app({"a": [tagged("x", "t")], "b": [tagged("y")]}, index=index)
    for filters in ({}, {"server": "a"}, {"tag": "T", "server": "A"}, {"source": "upstream"}):
        found(application, **filters)
        found(application, **filters)
    whole, whole_again, one, one_again, two, two_again, every, every_again = index.asked
    assert whole is whole_again is every is every_again
    assert one is one_again
    assert two is two_again
    called(application, "b", "y", Outcome.FAILED, 1.0)
    found(application, min_success=0.5)
    called(application, "b", "y", Outcome.FAILED, 1.0)
    found(application, min_success=0.5)
    assert index.asked[-1] is index.asked[-2]


@pytest.mark.requirement("P-FILTERS")
def test_what_follows_from_a_visible_set_is_made_once_and_no_more_than_some_is_kept(
    application: FakeApplication,
) -> None:
    view = application.gateway.view(AGENT)
    first = view.shared.narrow(Query(server="files"), {})
    assert application.gateway.view(AGENT).shared.narrow(Query(server="files"), {}) is first
    for number in range(VALUES_KEPT):
        assert view.shared.keep(number, lambda number=number: str(number)) == str(number)  # type: ignore[misc]
    assert view.shared.keep(VALUES_KEPT - 1, lambda: "again") == str(VALUES_KEPT - 1)
    assert view.shared.keep("large", lambda: "made") == "made"
    assert view.shared.keep(0, lambda: "again") == "again", "the one that was not asked for longest is gone"


@pytest.mark.requirement("P-FILTERS")
def test_another_snapshot_makes_other_selections_and_the_old_one_is_let_go(application: FakeApplication) -> None:
    gone = weakref.ref(application.gateway.snapshot)
    assert found(application, tag="disk") == ["files.read"]
    application.gateway.publisher.accept([(Offering(server="files", tools=(tagged("other", "new"),)), "upstream")])
    assert found(application, tag="new") == ["files.other"]
    with pytest.raises(UnknownFilter):
        found(application, tag="disk")
    gc.collect()
    assert gone() is None


def test_callers_who_see_the_same_share_what_follows_from_it_and_others_do_not() -> None:
    class OwnServer(CatalogPolicy):
        def visible(self, caller: Caller, snapshot: CatalogSnapshot) -> frozenset[ToolId]:
            return frozenset(id for id in snapshot.tools if id.server == caller.name[0])

    gateway = make_test_app({"a": [definition("t")], "b": [definition("t")]}, policy=OwnServer()).gateway
    ann, abe, bob = (gateway.view(Caller(name=name)) for name in ("ann", "abe", "bob"))
    assert ann.shared is abe.shared
    assert ann.shared.number != bob.shared.number
    assert [tool.handle for tool in bob.tools] == ["b.t"]
    with pytest.raises(UnknownTool):
        ann.tool("b.t")
