"""What the config changes of single tools is what agents see; what cannot hold is said, and never breaks a server."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.normalise import effect_of, normalise, override_definition
from portico.catalog.publisher import Publisher
from portico.catalog.sections import ToolOverrides
from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import permits_tool
from portico.domain.journal_entries import FleetEvent
from portico.domain.server import Offering, ToolFilter
from portico.domain.tool import Effect, OverriddenTool, Tool, ToolId, ToolOverride, WrittenAt
from portico.errors import UnknownTool
from portico.execution.arguments import fit_values
from portico.search.index import build_index
from portico.testing import definition

pytestmark = pytest.mark.requirement("P-OVERRIDES")

CREATE = definition("create_issue", "Create an issue", title="string", project="string", priority="integer")
LIST = definition("list_issues", "List issues", query="string?")
DROP = definition("delete_all", "Delete everything")
NAMES = st.sampled_from(["a", "b", "c", "d"])
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.just("object"),
        "required": st.lists(NAMES, unique=True),
        "properties": st.dictionaries(NAMES, st.sampled_from([{"type": "string"}, {}, True])),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True)),
        "additionalProperties": st.booleans(),
        "minProperties": st.integers(0, 3),
        "maxProperties": st.integers(0, 4),
    },
)
SCHEMAS = st.builds(
    lambda whole, options: {**whole, "anyOf": options, "type": "object"} if options else {**whole, "type": "object"},
    PARTS,
    st.lists(PARTS, max_size=3),
)


def publisher(**overrides: ToolOverride) -> Publisher:
    rules = ToolOverrides(servers={"tracker": overrides}, fit=fit_values)
    return Publisher(build_index=build_index, tool_overrides=rules)


def offer(made: Publisher, *tools: dict[str, Any], server: str = "tracker") -> CatalogSnapshot:
    return made.accept([(Offering(server=server, tools=tools), "upstream")])


def shown(*tools: dict[str, Any], **overrides: ToolOverride) -> CatalogSnapshot:
    return offer(publisher(**overrides), *(tools or (CREATE, LIST, DROP)))


def tool(snapshot: CatalogSnapshot, name: str = "create_issue") -> Tool:
    return snapshot.tools[ToolId("tracker", name)]


def problems(snapshot: CatalogSnapshot) -> list[str]:
    return [str(problem) for problem in snapshot.sections["tracker"].overrides.problems]


def resolve(snapshot: CatalogSnapshot, spelling: str) -> Tool:
    return snapshot.resolver.resolve(spelling, snapshot.tools.keys())


@given(schema=SCHEMAS, title=st.none() | st.text(max_size=5), reads=st.none() | st.booleans())
@settings(deadline=None)
def test_an_override_of_nothing_changes_nothing(schema: dict[str, Any], title: str | None, reads: bool | None) -> None:
    raw = {"name": "x", "inputSchema": schema}
    raw |= {} if title is None else {"title": title}
    raw |= {} if reads is None else {"annotations": {"readOnlyHint": reads, "title": "T"}}
    plain = normalise(raw)
    assert override_definition(plain, ToolOverride()) == plain


@given(schema=SCHEMAS, hidden=NAMES, effect=st.sampled_from(Effect), text=st.text(max_size=5))
@settings(deadline=None)
def test_what_is_overridden_is_what_a_client_that_normalises_it_again_reads(
    schema: dict[str, Any], hidden: str, effect: Effect, text: str
) -> None:
    override = ToolOverride(name="y", title=text, description=text, effect=effect, hidden={hidden: "v"})
    changed = override_definition(normalise({"name": "x", "inputSchema": schema}), override)
    again = normalise({**changed.raw, "name": "y"})
    assert (again.title, again.description, again.effect) == (text, text, effect)
    assert again.input_schema == changed.input_schema
    assert effect_of(changed.raw["annotations"]) is effect


@given(
    schema=SCHEMAS,
    fixed=st.dictionaries(NAMES, st.just("v"), max_size=2),
    arguments=st.dictionaries(NAMES, st.just("w")),
)
@settings(deadline=None)
def test_what_the_server_would_take_is_never_refused_for_what_is_hidden(
    schema: dict[str, Any], fixed: dict[str, str], arguments: dict[str, str]
) -> None:
    plain = normalise({"name": "x", "inputSchema": schema})
    hidden = {name: value for name, value in fixed.items() if name in plain.input_schema.get("properties", {})}
    asked = {name: value for name, value in arguments.items() if name not in hidden}
    changed = override_definition(plain, ToolOverride(hidden=hidden))
    if jsonschema_rs.is_valid(plain.input_schema, {**asked, **hidden}):
        assert jsonschema_rs.is_valid(changed.input_schema, asked)
    elif not {"anyOf", "dependentRequired"} & schema.keys():
        assert not jsonschema_rs.is_valid(changed.input_schema, asked), "and nothing else is taken"


def test_everything_that_agents_see_of_a_tool_can_be_changed() -> None:
    override = ToolOverride(
        name="open_ticket",
        title="Open a ticket",
        description="Opens a ticket for the support team",
        category="support",
        tags=("helpdesk",),
        effect=Effect.DESTRUCTIVE,
        defaults={"priority": 3},
        hidden={"project": "inner"},
    )
    snapshot = shown(create_issue=override)
    found = tool(snapshot)
    assert (found.id, found.name, found.handle, found.listed) == (
        ToolId("tracker", "create_issue"),
        "open_ticket",
        "tracker.open_ticket",
        "tracker__open_ticket",
    )
    assert (found.title, found.category, found.tags) == ("Open a ticket", "support", ("helpdesk",))
    assert found.effect is Effect.DESTRUCTIVE
    assert found.required == ("title",)
    assert found.properties == {"title": {"type": "string"}, "priority": {"type": "integer", "default": 3}}
    assert found.definition["name"] == "tracker__open_ticket"
    assert found.definition["inputSchema"] == found.input_schema
    assert found.complete({"title": "t"}) == {"title": "t", "priority": 3, "project": "inner"}
    assert found.complete({"title": "t", "priority": 1})["priority"] == 1
    assert "inner" not in repr(found), "hidden values may be secret"


def test_the_original_stays_known() -> None:
    found = tool(shown(create_issue=ToolOverride(name="open_ticket", hidden={"project": "inner"})))
    assert isinstance(found, OverriddenTool)
    assert found.original == tool(shown())
    off = shown(delete_all=ToolOverride(enabled=False)).sections["tracker"].switched_off
    assert [each.handle for each in off] == ["tracker.delete_all"]


def test_search_reads_what_the_override_says() -> None:
    made = publisher(
        create_issue=ToolOverride(name="open_ticket", description="Ask the helpdesk for assistance"),
        delete_all=ToolOverride(enabled=False),
    )
    snapshot = offer(made, CREATE, LIST, DROP)

    def handles(query: str) -> list[str]:
        return [hit.handle for hit in made.current.index.query(query, within=snapshot.tools.keys(), limit=1).hits]

    assert handles("ask the helpdesk") == ["tracker.open_ticket"]
    assert handles("open ticket") == ["tracker.open_ticket"]
    assert "tracker.delete_all" not in handles("delete everything")


def test_a_renamed_tool_has_the_new_spellings_and_keeps_its_old_ones_where_its_server_is_named() -> None:
    snapshot = shown(create_issue=ToolOverride(name="open_ticket"))
    found = tool(snapshot)
    for spelling in ("tracker.open_ticket", "tracker__open_ticket", "tracker::open_ticket", "open_ticket"):
        assert resolve(snapshot, spelling) is found
    for spelling in ("tracker.create_issue", "tracker::create_issue", "TRACKER__CREATE_ISSUE"):
        assert resolve(snapshot, spelling) is found, "pins, the journal and callers of before know it so"
    with pytest.raises(UnknownTool):
        resolve(snapshot, "create_issue")


def test_two_tools_can_swap_their_names() -> None:
    snapshot = shown(create_issue=ToolOverride(name="list_issues"), list_issues=ToolOverride(name="create_issue"))
    assert resolve(snapshot, "tracker.list_issues").id.name == "create_issue"
    assert resolve(snapshot, "tracker.create_issue").id.name == "list_issues"
    assert not problems(snapshot)


def test_a_tool_that_is_switched_off_is_missing_and_leaves_its_name_to_others() -> None:
    snapshot = shown(delete_all=ToolOverride(enabled=False), create_issue=ToolOverride(name="delete_all"))
    assert ToolId("tracker", "delete_all") not in snapshot.tools
    assert resolve(snapshot, "tracker.delete_all").id.name == "create_issue"
    assert not problems(snapshot)


WRITTEN = WrittenAt(file="portico.yaml", where="servers.tracker.overrides.create_issue", lines={"": 7, "name": 8})


def test_a_name_that_another_tool_has_is_left_out_and_the_rest_holds() -> None:
    override = ToolOverride(name="list_issues", description="Mine", written=WRITTEN)
    snapshot = shown(create_issue=override)
    assert (tool(snapshot).handle, tool(snapshot).description) == ("tracker.create_issue", "Mine")
    assert tool(snapshot, "list_issues").handle == "tracker.list_issues"
    (problem,) = problems(snapshot)
    assert problem == (
        "portico.yaml:8: servers.tracker.overrides.create_issue.name: this is the name of 'list_issues' too. "
        "Choose another name; 'create_issue' keeps its own until then."
    )


def test_a_tool_that_gets_its_own_name_back_takes_it_from_the_one_that_had_it() -> None:
    snapshot = shown(create_issue=ToolOverride(name="list_issues"), delete_all=ToolOverride(name="create_issue"))
    assert {each.handle for each in snapshot.tools.values()} == {
        "tracker.create_issue",
        "tracker.delete_all",
        "tracker.list_issues",
    }
    assert len(problems(snapshot)) == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (ToolOverride(defaults={"priorty": 1}), "the tool has no such parameter. Did you mean 'priority'?"),
        (ToolOverride(defaults={"priority": "high"}), 'its schema refuses this value: the value is not of type "int'),
    ],
)
def test_a_default_that_cannot_hold_is_left_out_and_said(override: ToolOverride, said: str) -> None:
    snapshot = shown(create_issue=override)
    assert tool(snapshot).properties == CREATE["inputSchema"]["properties"]
    (problem,) = problems(snapshot)
    assert said in problem


@pytest.mark.parametrize("hidden", [{"projct": "secret-value"}, {"priority": "secret-value"}])
def test_a_tool_whose_hidden_parameter_cannot_be_set_is_left_out_and_its_value_is_never_shown(
    hidden: dict[str, str],
) -> None:
    snapshot = shown(create_issue=ToolOverride(hidden=hidden, title="t"))
    assert [each.name for each in snapshot.tools.values()] == ["delete_all", "list_issues"]
    (refusal,) = snapshot.rejected
    assert refusal.name == "create_issue"
    assert "its override hides a parameter that cannot be set" in refusal.reason
    assert "secret-value" not in f"{problems(snapshot)} {refusal}"


def test_a_value_that_was_written_as_text_is_sent_as_the_schema_wants_it() -> None:
    snapshot = shown(create_issue=ToolOverride(hidden={"priority": "4", "project": "5"}))
    assert tool(snapshot).complete({}) == {"priority": 4, "project": "5"}


def test_an_override_of_a_tool_that_there_is_not_names_the_nearest() -> None:
    snapshot = shown(creat_issue=ToolOverride(name="x", written=replace(WRITTEN, where="here")))
    (problem,) = problems(snapshot)
    assert problem.startswith("portico.yaml:7: here: the server offers no such tool. Did you mean 'create_issue'")
    assert len(snapshot.tools) == 3


def test_a_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    made = publisher(nope=ToolOverride(name="x"))
    offer(made, CREATE)
    offer(made, CREATE, LIST)
    (line,) = [record.message for record in caplog.records if "no such tool" in record.message]
    assert line == "override: the server offers no such tool. There are: create_issue."


def test_a_change_upstream_is_told_until_the_override_is_written_anew(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    made, told = publisher(create_issue=ToolOverride(name="open_ticket", mark="1")), list[FleetEvent]()
    made.on_event = told.append
    assert offer(made, CREATE).sections["tracker"].overrides.changed == ()
    assert offer(made, CREATE, LIST).sections["tracker"].overrides.changed == (), "another tool has changed"
    other = {**CREATE, "description": "Creates something else"}
    changed = offer(made, other, LIST)
    assert changed.sections["tracker"].overrides.changed == ("create_issue",)
    offer(made, other)
    assert len([record for record in caplog.records if "has changed the definition" in record.message]) == 1
    (event,) = told
    assert (event.kind, event.server) == ("definition_changed", "tracker")
    assert event.text.endswith(": create_issue")
    stored = made.stamp(Offering(server="tracker", tools=(other,)))
    for mark, told in (("1", ("create_issue",)), ("2", ())):
        later = publisher(create_issue=ToolOverride(name="open_ticket", mark=mark))
        snapshot = later.accept([(stored, "upstream")])
        assert snapshot.sections["tracker"].overrides.changed == told, "it is remembered with the offering"
    offer(made, LIST)
    assert offer(made, other).sections["tracker"].overrides.changed == ("create_issue",), "it was away for a while"
    back = offer(made, CREATE)
    assert back.sections["tracker"].overrides.changed == (), "it is as it was when the override was written"


def test_unchanged_tools_of_a_server_with_overrides_are_the_same_objects() -> None:
    made = publisher(create_issue=ToolOverride(name="open_ticket"))
    first = offer(made, CREATE, LIST)
    second = offer(made, CREATE, LIST, DROP)
    assert tool(first) is tool(second)
    assert tool(first, "list_issues") is tool(second, "list_issues")


def test_filters_know_both_names_where_they_deny_and_the_original_where_they_allow() -> None:
    found = tool(shown(create_issue=ToolOverride(name="open_ticket")))

    def permits(**globs: tuple[str, ...]) -> bool:
        return permits_tool(ToolFilter(**globs), found.id.server, found.id.name, found.handle)

    assert not permits(deny=("open_*",))
    assert not permits(deny=("create_*",))
    assert permits(allow=("create_*",))
    assert not permits(allow=("open_*",))


def test_overrides_belong_to_one_server() -> None:
    made = publisher(create_issue=ToolOverride(name="open_ticket"))
    offer(made, CREATE)
    snapshot = offer(made, CREATE, server="other")
    assert sorted(each.handle for each in snapshot.tools.values()) == ["other.create_issue", "tracker.open_ticket"]
