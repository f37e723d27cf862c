"""A profile narrows what another policy shows: code tools by name, servers by name, and nothing else."""

from __future__ import annotations

import pytest

from portico.catalog.snapshot import CatalogSnapshot
from portico.catalog.view import CatalogPolicy
from portico.config.profiles import read_pattern
from portico.domain.call import Caller
from portico.domain.server import Offering, ToolFilter
from portico.domain.tool import OPEN, Profile
from portico.errors import Refused
from portico.testing import AGENT, FakeApplication, definition, make_test_app

SOURCES = {"local": "local", "notes": "yaml", "warehouse": "database", "github": "upstream"}


def offer(application: FakeApplication, server: str, *names: str) -> None:
    tools = tuple(definition(name) for name in names)
    application.gateway.publisher.accept([(Offering(server=server, tools=tools), SOURCES[server])])


@pytest.fixture
def application() -> FakeApplication:
    application = make_test_app({})
    for server in SOURCES:
        offer(application, server, "base_read", "dba_drop")
    return application


def profile(**lists: list[str]) -> Profile:
    patterns = {key: tuple(map(read_pattern, texts)) for key, texts in lists.items() if key != "servers"}
    servers = tuple(lists["servers"]) if "servers" in lists else None
    return Profile(name="mine", servers=servers, **patterns)


def shown(policy: CatalogPolicy, snapshot: CatalogSnapshot) -> list[str]:
    return sorted(f"{id.server}.{id.name}" for id in policy.visible(AGENT, snapshot))


@pytest.mark.requirement("S4-48", "S4-49")
def test_names_are_asked_of_code_only(application: FakeApplication):
    snapshot = application.gateway.snapshot
    policy = CatalogPolicy(profile=profile(tool=["^base_"]))
    theirs = ["github.base_read", "github.dba_drop"]
    registry = ["warehouse.base_read", "warehouse.dba_drop"]
    assert shown(policy, snapshot) == sorted([*theirs, *registry, "local.base_read", "notes.base_read"])
    none = CatalogPolicy(profile=profile(tool=["X"]))
    assert shown(none, snapshot) == sorted([*theirs, *registry])
    alone = CatalogPolicy(profile=profile(tool=["X"], servers=["warehouse"]))
    assert shown(alone, snapshot) == registry


def test_servers_that_are_not_named_are_left_out(application: FakeApplication):
    policy = CatalogPolicy(profile=profile(servers=["git*", "local"]))
    assert {id.server for id in policy.visible(AGENT, application.gateway.snapshot)} == {"github", "local"}
    assert shown(CatalogPolicy(profile=profile(servers=[])), application.gateway.snapshot) == []


@pytest.mark.requirement("P-POLICY-CONTRACT", "P-PROFILES")
def test_it_only_ever_narrows(application: FakeApplication):
    snapshot = application.gateway.snapshot
    globs = {"local": ToolFilter(deny=("base_*",)), "github": ToolFilter(allow=("dba_*",))}
    inner = CatalogPolicy(filters=globs)
    policy = CatalogPolicy(filters=globs, profile=profile(tool=[".*"], servers=["*"]))
    assert policy.visible(AGENT, snapshot) == inner.visible(AGENT, snapshot)
    narrow = CatalogPolicy(filters=globs, profile=profile(tool=["^base_"]))
    assert set(narrow.visible(AGENT, snapshot)) < set(inner.visible(AGENT, snapshot))


def test_what_it_shows_is_worked_out_once_and_stays_the_same_object(application: FakeApplication):
    snapshot = application.gateway.snapshot
    policy = CatalogPolicy(profile=profile(tool=["^base_"]))
    first = policy.visible(AGENT, snapshot)
    assert policy.visible(Caller(name="another"), snapshot) is first
    offer(application, "local", "base_read", "base_write")
    assert "local.base_write" in shown(policy, application.gateway.snapshot)
    assert policy.visible(AGENT, snapshot) is first


def test_without_a_filter_everything_is_shown(application: FakeApplication):
    snapshot = application.gateway.snapshot
    assert CatalogPolicy().visible(AGENT, snapshot) == snapshot.tools.keys()
    assert OPEN.permits_tool("anything", "local")
    assert not OPEN.wants_packaged


def test_a_tool_that_slipped_through_is_still_refused(application: FakeApplication):
    tools = {f"{id.server}.{id.name}": tool for id, tool in application.gateway.snapshot.tools.items()}
    policy = CatalogPolicy(filters={"github": ToolFilter(deny=("*",))}, profile=profile(tool=["^base_"]))
    policy.admit(AGENT, tools["local.base_read"], {})
    for handle in ("local.dba_drop", "github.base_read"):
        with pytest.raises(Refused):
            policy.admit(AGENT, tools[handle], {})


def test_prompts_and_resources_are_narrowed_by_their_own_lists():
    policy = profile(prompt=["^base_"], resource=["docs://"])
    assert policy.permits_prompt("base_explain")
    assert not policy.permits_prompt("dba_explain")
    assert policy.permits_resource("docs://a/b")
    assert not policy.permits_resource("file:///etc/passwd")
    assert OPEN.permits_prompt("anything")
