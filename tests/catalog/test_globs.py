"""Allow and deny globs: deny wins, an empty allow means all, and what is filtered does not exist."""

from __future__ import annotations

import pytest

from portico.catalog.view import CatalogPolicy, permits_tool
from portico.domain.call import Call
from portico.domain.search_answers import Query
from portico.domain.server import ServerSpec, ToolFilter
from portico.errors import Refused, UnknownTool
from portico.testing import AGENT, FakeApplication, definition, make_test_app


@pytest.mark.parametrize(
    ("allow", "deny", "names"),
    [
        ((), (), ["read", "read_all", "write"]),
        (("read*",), (), ["read", "read_all"]),
        ((), ("read*",), ["write"]),
        (("*",), ("*_all",), ["read", "write"]),
        (("read",), ("read",), []),
        (("READ",), (), []),
        (("[wr]*",), (), ["read", "read_all", "write"]),
        (("nothing",), (), []),
    ],
)
def test_deny_wins_and_an_empty_allow_means_all(
    allow: tuple[str, ...], deny: tuple[str, ...], names: list[str]
) -> None:
    filter = ToolFilter(allow=allow, deny=deny)
    assert [name for name in ("read", "read_all", "write") if permits_tool(filter, "s", name)] == names


@pytest.fixture
def application() -> FakeApplication:
    spec = ServerSpec(name="s", transport="stdio", command="x", tools=ToolFilter(deny=("drop_*",)))
    return make_test_app({"s": [definition("drop_table", "Drop a table"), definition("list_tables")]}, specs=[spec])


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING", "T45")
async def test_a_denied_tool_is_nowhere(application: FakeApplication) -> None:
    gateway = application.gateway
    assert [tool.handle for tool in gateway.view(AGENT).tools] == ["s.list_tables"]
    assert [hit.name for hit in gateway.hits(AGENT, Query(text="drop table")).hits] == ["list_tables"]
    for text in ("", "s.drop_table", "drop"):
        assert "drop_table" not in gateway.search(AGENT, Query(text=text)).text.replace(f"{text!r}", "")
    assert gateway.parameters_of(AGENT, "s.drop_table") is None
    for spelling in ("s.drop_table", "s::drop_table", "drop_table", "S.DROP_TABLE", "s__drop_table", "/s/drop_table"):
        with pytest.raises(UnknownTool):
            await gateway.call(AGENT, Call(tool=spelling, arguments={}))
    assert application.provider("s").calls == []


@pytest.mark.requirement("T45")
def test_a_tool_that_slipped_through_is_still_refused(application: FakeApplication) -> None:
    policy = CatalogPolicy(filters={"s": ToolFilter(deny=("*",))})
    tool = application.gateway.view(AGENT).tools[0]
    with pytest.raises(Refused):
        policy.admit(AGENT, tool, {})


RENAMED = [
    "delete_repo", "delete-repo", "Delete_Repo", "DELETE-REPO", "deleteRepo", "DeleteRepo", "delete.repo",
    "delete repo", "delete/repo", "delete:repo", "delete--repo", "delete__repo",
    "del\u200bete_repo", "ｄｅｌｅｔｅ_ｒｅｐｏ", "délete_repo",
    "dеlete_repo", "delete_repо",
]  # fmt: skip
"""One tool in many spellings; the last two have a letter of another alphabet."""


@pytest.mark.requirement("P-FILTER-SPELLINGS")
@pytest.mark.parametrize(
    "glob", ["delete_repo", "delete-repo", "Delete*", "delete_*", "deleteRepo", "*_repo", "DELETE-*"]
)
@pytest.mark.parametrize("name", RENAMED)
def test_deny_holds_for_every_spelling_of_a_tool(name: str, glob: str) -> None:
    assert not permits_tool(ToolFilter(deny=(glob,)), "github", name)


@pytest.mark.requirement("P-FILTER-SPELLINGS")
@pytest.mark.parametrize(
    "glob", ["github.delete_repo", "github__delete-repo", "github::delete-repo", "/github/delete-repo", "gh.delete_*"]
)
def test_deny_understands_what_searches_and_lists_show(glob: str) -> None:
    assert not permits_tool(ToolFilter(deny=(glob,)), "github", "delete-repo", "gh.delete_repo")
    assert permits_tool(ToolFilter(deny=(glob,)), "gitlab", "delete-repo", "gitlab.delete_repo")


@pytest.mark.requirement("P-FILTER-SPELLINGS")
@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("git*", "create_issue"),
        ("get_*", "getaway"),
        ("delete", "delete_repo"),
        ("a.b", "ab"),
        ("[!a]*", "abc"),
        ("x", ""),
    ],
)
def test_deny_takes_no_other_tool_along(glob: str, name: str) -> None:
    assert permits_tool(ToolFilter(deny=(glob,)), "github", name, f"github.{name}")


@pytest.mark.requirement("P-FILTER-SPELLINGS")
@pytest.mark.parametrize("name", RENAMED[1:])
def test_allow_lets_no_other_spelling_through(name: str) -> None:
    assert permits_tool(ToolFilter(allow=("delete_repo",)), "github", "delete_repo")
    assert not permits_tool(ToolFilter(allow=("delete_repo",)), "github", name)


@pytest.mark.requirement("P-FILTER-SPELLINGS")
def test_two_names_with_one_spelling_are_both_denied_and_a_number_is_one_tool() -> None:
    tools = [definition("drop-table"), definition("drop_table"), definition("list")]

    def left(*deny: str) -> list[str]:
        spec = ServerSpec(name="s", transport="stdio", command="x", tools=ToolFilter(deny=deny))
        return [tool.id.name for tool in make_test_app({"s": tools}, specs=[spec]).gateway.view(AGENT).tools]

    assert left("drop_table") == ["list"]
    assert left("drop_table_2") == ["drop-table", "list"]
    assert left("s.drop_table_2", "LIST") == ["drop-table"]
