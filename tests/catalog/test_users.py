"""End users' rights narrow what others show, for each caller by name."""

from __future__ import annotations

import pytest

from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogPolicy
from portico.domain.call import Caller
from portico.domain.server import Offering, ToolFilter
from portico.domain.tool import ToolId
from portico.errors import Refused
from portico.testing import AGENT, FakeApplication, definition, make_test_app

ALICE, BOB = Caller(name="alice"), Caller(name="bob")


@pytest.fixture
def application() -> FakeApplication:
    application = make_test_app({"github": [definition("open")]})
    users = {"mine": ("alice",), "ours": ("alice", "bob"), "all": ("*",), "none": ()}
    tools = tuple(definition(name) for name in (*users, "unnamed"))
    application.gateway.publisher.accept([(Offering(server="warehouse", tools=tools, users=users), "database")])
    return application


def shown(policy: CatalogPolicy, caller: Caller, snapshot: CatalogSnapshot) -> set[str]:
    return {id.name for id in policy.visible(caller, snapshot)}


@pytest.mark.requirement("S4-P5", "P-REGISTRY-USERS")
def test_a_caller_sees_what_is_its_own_or_everybodys(application: FakeApplication) -> None:
    policy, snapshot = CatalogPolicy(), application.gateway.snapshot
    assert shown(policy, ALICE, snapshot) == {"open", "mine", "ours", "all"}
    assert shown(policy, BOB, snapshot) == {"open", "ours", "all"}
    assert shown(policy, AGENT, snapshot) == {"open", "all"}
    assert shown(policy, Caller(name="Alice"), snapshot) == {"open", "all"}
    assert shown(policy, Caller(name="*"), snapshot) == {"open", "all"}


@pytest.mark.requirement("P-REGISTRY-USERS", "P-POLICY-CONTRACT", "T25")
def test_what_is_not_shown_is_not_admitted_and_globs_still_narrow(application: FakeApplication) -> None:
    policy = CatalogPolicy(filters={"warehouse": ToolFilter(deny=("ours",))})
    snapshot = application.gateway.snapshot
    visible = policy.visible(ALICE, snapshot)
    for id, tool in snapshot.tools.items():
        if id in visible:
            policy.admit(ALICE, tool, {})
        else:
            with pytest.raises(Refused):
                policy.admit(ALICE, tool, {})
    assert ToolId("warehouse", "ours") not in visible


def test_equal_sets_are_one_object_and_without_rights_everybody_sees_all(application: FakeApplication) -> None:
    policy, snapshot = CatalogPolicy(), application.gateway.snapshot
    first = policy.visible(Caller(name="one"), snapshot)
    assert policy.visible(Caller(name="two"), snapshot) is first
    assert policy.visible(Caller(name="one"), snapshot) is first
    plain = make_test_app({"github": [definition("open")]}).gateway.snapshot
    assert policy.visible(ALICE, plain) == plain.tools.keys()
    for number in range(300):
        policy.visible(Caller(name=f"caller {number}"), snapshot)
    assert policy.visible(ALICE, snapshot) == policy.visible(ALICE, snapshot)


@pytest.mark.requirement("P-REGISTRY-USERS")
def test_rights_that_change_make_another_edition(application: FakeApplication) -> None:
    policy, publisher = CatalogPolicy(), application.gateway.publisher
    tools = (definition("mine"),)
    before = publisher.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("alice",)}), "database")])
    same = publisher.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("alice",)}), "database")])
    after = publisher.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("bob",)}), "database")])
    assert (same, after.number) == (before, before.number + 1)
    assert shown(policy, BOB, after) == {"open", "mine"}
    assert shown(policy, BOB, before) == {"open"}
