"""Allow and deny globs: deny wins, an empty allow means all, and what is filtered does not exist."""

from __future__ import annotations

import pytest

from portico.domain.call import Call
from portico.domain.server import ServerSpec, ToolFilter
from portico.errors import Refused, UnknownTool
from portico.gateway import Query
from portico.policies.globs import GlobPolicy, permits
from portico.testing import AGENT, FakeHouse, definition, furnish


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
    assert [name for name in ("read", "read_all", "write") if permits(filter, name)] == names


@pytest.fixture
def house() -> FakeHouse:
    spec = ServerSpec(name="s", transport="stdio", command="x", tools=ToolFilter(deny=("drop_*",)))
    return furnish({"s": [definition("drop_table", "Drop a table"), definition("list_tables")]}, specs=[spec])


@pytest.mark.requirement("P-HIDDEN-LOOKS-MISSING", "T45")
async def test_a_denied_tool_is_nowhere(house: FakeHouse) -> None:
    gateway = house.gateway
    assert [tool.handle for tool in gateway.listing(AGENT)] == ["s.list_tables"]
    assert [hit.name for hit in gateway.hits(AGENT, Query(text="drop table")).hits] == ["list_tables"]
    for text in ("", "s.drop_table", "drop"):
        assert "drop_table" not in gateway.search(AGENT, Query(text=text)).text.replace(f"{text!r}", "")
    assert gateway.parameters_of(AGENT, "s.drop_table") is None
    for spelling in ("s.drop_table", "s::drop_table", "drop_table", "S.DROP_TABLE", "s__drop_table", "/s/drop_table"):
        with pytest.raises(UnknownTool):
            await gateway.call(AGENT, Call(tool=spelling, arguments={}))
    assert house.provider("s").calls == []


@pytest.mark.requirement("T45")
def test_a_tool_that_slipped_through_is_still_refused(house: FakeHouse) -> None:
    policy = GlobPolicy({"s": ToolFilter(deny=("*",))})
    tool = house.gateway.listing(AGENT)[0]
    with pytest.raises(Refused):
        policy.admit(AGENT, tool, {})
