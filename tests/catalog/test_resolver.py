"""One resolver: every accepted spelling leads to its own tool or to an error that names all readings."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.snapshot import CatalogSnapshot
from portico.domain.tool import Tool
from portico.errors import AmbiguousTool, CallError, UnknownTool
from portico.testing import definition, make_test_app


def edition_of(**servers: list[str]) -> CatalogSnapshot:
    return make_test_app(
        {server: [definition(name) for name in names] for server, names in servers.items()}
    ).gateway.snapshot


def resolve(snapshot: CatalogSnapshot, spelling: str) -> Tool:
    return snapshot.resolver.resolve(spelling, snapshot.tools.keys())


def meanings(snapshot: CatalogSnapshot, spelling: str) -> str:
    """The one handle that a spelling means, or the error that names all of them."""
    try:
        return resolve(snapshot, spelling).handle
    except CallError as error:
        return error.details[0]


@pytest.mark.requirement("P-RESOLVE-SPELLINGS")
@pytest.mark.parametrize(
    "spelling",
    [
        "github.create_issue",
        "github::create-issue",
        "github::create_issue",
        "github__create-issue",
        "github__create_issue",
        "github/create-issue",
        "/github/create-issue",
        "/github/create%2Dissue",
        "create-issue",
        "create_issue",
        "GitHub.Create_Issue",
        "GITHUB__CREATE-ISSUE",
        "Create-Issue",
        "  github.create_issue\n",
    ],
)
def test_every_spelling_of_the_design_means_the_same_tool(spelling: str) -> None:
    snapshot = edition_of(github=["create-issue", "list-issues"], other=["delete"])
    assert resolve(snapshot, spelling).handle == "github.create_issue"


def test_a_path_with_a_slash_in_the_tool_name_is_percent_encoded() -> None:
    snapshot = edition_of(**{"data server": ["read/file"]})
    assert resolve(snapshot, "/data%20server/read%2Ffile").id.name == "read/file"


@pytest.mark.requirement("P-RESOLVE-AMBIGUOUS", "T30")
def test_a_shared_bare_name_lists_all_and_picks_none() -> None:
    snapshot = edition_of(a=["search"], b=["search"], c=["search"])
    with pytest.raises(AmbiguousTool) as caught:
        resolve(snapshot, "search")
    assert caught.value.details == ("3 tools have that name: a.search, b.search, c.search",)


@pytest.mark.requirement("P-RESOLVE-AMBIGUOUS", "T30")
def test_an_ambiguous_separator_lists_both_readings() -> None:
    snapshot = edition_of(**{"a": ["b::c"], "a::b": ["c"]})
    with pytest.raises(AmbiguousTool) as caught:
        resolve(snapshot, "a::b::c")
    assert "a.b__c" in caught.value.details[0]
    assert "a__b.c" in caught.value.details[0]


@pytest.mark.requirement("P-RESOLVE-AMBIGUOUS", "T29")
def test_case_is_ignored_only_where_one_tool_is_meant() -> None:
    snapshot = edition_of(a=["Read", "read"])
    assert resolve(snapshot, "a.Read").id.name == "Read"
    assert resolve(snapshot, "a.read").id.name == "read"
    with pytest.raises(AmbiguousTool):
        resolve(snapshot, "a.READ")


@pytest.mark.requirement("P-RESOLVE-AMBIGUOUS")
def test_errors_name_at_most_ten_candidates() -> None:
    snapshot = edition_of(**{f"server{number:02}": ["search"] for number in range(30)})
    with pytest.raises(AmbiguousTool) as ambiguous:
        resolve(snapshot, "search")
    assert ambiguous.value.details[0].count(".search") == 10
    assert ambiguous.value.details[0].endswith("and 20 more")
    with pytest.raises(UnknownTool) as unknown:
        resolve(snapshot, "searching")
    assert unknown.value.details[0].count(".search") == 10


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING")
@pytest.mark.parametrize(
    "spelling", ["s.delete_file", "delete_file", "s::delete-file", "/s/delete-file", "S__DELETE_FILE"]
)
def test_a_hidden_tool_looks_missing_to_the_byte(spelling: str) -> None:
    with_it = edition_of(s=["delete-file", "delete_files", "read"])
    without = edition_of(s=["delete_files", "read"])
    visible = {id for id in with_it.tools if id.name != "delete-file"}
    with pytest.raises(UnknownTool) as hidden:
        with_it.resolver.resolve(spelling, visible)
    with pytest.raises(UnknownTool) as missing:
        without.resolver.resolve(spelling, without.tools.keys())
    assert str(hidden.value) == str(missing.value)
    assert hidden.value.next_call == missing.value.next_call


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING", "T17")
def test_hidden_tools_are_no_candidates_and_make_nothing_ambiguous() -> None:
    snapshot = edition_of(a=["search"], b=["search"])
    only_a = {id for id in snapshot.tools if id.server == "a"}
    assert snapshot.resolver.resolve("search", only_a).handle == "a.search"
    with pytest.raises(UnknownTool) as caught:
        snapshot.resolver.resolve("search", set())
    assert "search" not in "".join(caught.value.details)


@pytest.mark.requirement("T29")
def test_names_that_differ_by_a_space_at_the_end_stay_two_tools() -> None:
    snapshot = edition_of(s=["read", "read "])
    assert resolve(snapshot, "s::read ").id.name == "read "
    assert resolve(snapshot, "s::read").id.name == "read"


def test_a_local_name_with_a_dot_does_not_take_over_a_handle() -> None:
    application = make_test_app({"github": [definition("create")], "local": [definition("github.create")]})
    snapshot = application.gateway.snapshot
    assert resolve(snapshot, "github.create").id.server == "github"


@pytest.mark.timeout(90)
@pytest.mark.parametrize("spelling", ["." * 1_000_000, "a/" * 500_000, "x" * 1_000_000, "__" * 500_000, ""])
def test_a_monstrous_name_is_unknown_at_once(spelling: str) -> None:
    snapshot = edition_of(**{f"server{number}": ["search", "read"] for number in range(50)})
    with pytest.raises(UnknownTool) as caught:
        resolve(snapshot, spelling)
    assert len(str(caught.value)) < 1_000


tool_names = st.sets(
    st.sampled_from(
        ["a", "b", "a__b", "b__c", "a.b", "b::c", "A", "c/d", "c%2Fd", "a b", "a_b", "a_b_2", "_a", "while"]
    )
    | st.text(alphabet="ab_.:/-% éA", min_size=1, max_size=5).filter(lambda name: name.strip() != ""),
    min_size=1,
    max_size=5,
)


@pytest.mark.requirement("P-RESOLVE-NEVER-ANOTHER")
@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(["a", "b", "a__b", "a.b", "a::b", "A", "local", "c/d"]), tool_names, min_size=1))
def test_a_spelling_leads_to_its_own_tool_or_to_an_error_that_says_so(servers: dict[str, set[str]]) -> None:
    snapshot = edition_of(**{server: sorted(names) for server, names in servers.items()})
    for tool in snapshot.tools.values():
        assert resolve(snapshot, tool.handle) is tool
        path = f"/{quote(tool.id.server, safe='')}/{quote(tool.id.name, safe='')}"
        for spelling in (tool.listed, f"{tool.id.server}::{tool.id.name}", path):
            found = meanings(snapshot, spelling)
            assert found == tool.handle or ("tools have that name" in found and tool.handle in found)


@given(st.text(max_size=40))
def test_any_text_is_resolved_or_refused_with_our_own_error(spelling: str) -> None:
    snapshot = edition_of(github=["create-issue"], a=["x"])
    assert meanings(snapshot, spelling)
