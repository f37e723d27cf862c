"""End users' rights narrow what others show, for each caller by name."""

from __future__ import annotations

import pytest

from portico.catalog.policies import GlobPolicy, UserPolicy
from portico.domain.call import Caller
from portico.domain.server import Offering, ToolFilter
from portico.domain.snapshot import Edition
from portico.domain.tool import ToolId
from portico.errors import Refused
from portico.testing import AGENT, FakeHouse, definition, furnish

ALICE, BOB = Caller(name="alice"), Caller(name="bob")


@pytest.fixture
def house() -> FakeHouse:
    house = furnish({"github": [definition("open")]})
    users = {"mine": ("alice",), "ours": ("alice", "bob"), "all": ("*",), "none": ()}
    tools = tuple(definition(name) for name in (*users, "unnamed"))
    house.gateway.editions.accept([(Offering(server="warehouse", tools=tools, users=users), "database")])
    return house


def shown(policy: UserPolicy, caller: Caller, edition: Edition) -> set[str]:
    return {id.name for id in policy.visible(caller, edition)}


@pytest.mark.requirement("S4-P5", "P-REGISTRY-USERS")
def test_a_caller_sees_what_is_its_own_or_everybodys(house: FakeHouse) -> None:
    policy, edition = UserPolicy(GlobPolicy()), house.gateway.edition
    assert shown(policy, ALICE, edition) == {"open", "mine", "ours", "all"}
    assert shown(policy, BOB, edition) == {"open", "ours", "all"}
    assert shown(policy, AGENT, edition) == {"open", "all"}
    assert shown(policy, Caller(name="Alice"), edition) == {"open", "all"}
    assert shown(policy, Caller(name="*"), edition) == {"open", "all"}


@pytest.mark.requirement("P-REGISTRY-USERS", "P-POLICY-CONTRACT", "T25")
def test_what_is_not_shown_is_not_admitted_and_inner_links_still_narrow(house: FakeHouse) -> None:
    inner = GlobPolicy({"warehouse": ToolFilter(deny=("ours",))})
    policy, edition = UserPolicy(inner), house.gateway.edition
    visible = policy.visible(ALICE, edition)
    for id, tool in edition.tools.items():
        if id in visible:
            policy.admit(ALICE, tool, {})
        else:
            with pytest.raises(Refused):
                policy.admit(ALICE, tool, {})
    assert ToolId("warehouse", "ours") not in visible


def test_equal_sets_are_one_object_and_without_rights_the_inner_set_is_passed_on(house: FakeHouse) -> None:
    policy, edition = UserPolicy(GlobPolicy()), house.gateway.edition
    first = policy.visible(Caller(name="one"), edition)
    assert policy.visible(Caller(name="two"), edition) is first
    assert policy.visible(Caller(name="one"), edition) is first
    plain = furnish({"github": [definition("open")]}).gateway.edition
    inner = GlobPolicy()
    assert UserPolicy(inner).visible(ALICE, plain) is inner.visible(ALICE, plain)
    for number in range(300):
        policy.visible(Caller(name=f"caller {number}"), edition)
    assert policy.visible(ALICE, edition) == policy.visible(ALICE, edition)


@pytest.mark.requirement("P-REGISTRY-USERS")
def test_rights_that_change_make_another_edition(house: FakeHouse) -> None:
    policy, editions = UserPolicy(GlobPolicy()), house.gateway.editions
    tools = (definition("mine"),)
    before = editions.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("alice",)}), "database")])
    same = editions.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("alice",)}), "database")])
    after = editions.accept([(Offering(server="warehouse", tools=tools, users={"mine": ("bob",)}), "database")])
    assert (same, after.number) == (before, before.number + 1)
    assert shown(policy, BOB, after) == {"open", "mine"}
    assert shown(policy, BOB, before) == {"open"}
