"""Registered tools take the place of code tools where they may, and of nothing else."""

from __future__ import annotations

import logging

import pytest

from portico.catalog.publisher import Publisher
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.search.index import build_index
from portico.testing import definition

SOURCES = {"local": "local", "notes": "local", "warehouse": "database", "archive": "database", "github": "upstream"}


def publisher(*overriding: str) -> Publisher:
    return Publisher(build_index=build_index, overriding=set(overriding))


def offer(made: Publisher, server: str, *names: str) -> None:
    made.accept([(Offering(server=server, tools=tuple(map(definition, names))), SOURCES[server])])


def listed(made: Publisher) -> dict[str, str]:
    return {f"{id.server}.{id.name}": tool.listed for id, tool in made.current.snapshot.tools.items()}


@pytest.mark.requirement("S4-6", "S4-E7")
def test_only_code_gives_way_whatever_comes_first() -> None:
    order = ["local", "notes", "warehouse", "archive", "github"]
    for servers in (order, order[::-1]):
        made = publisher("warehouse", "archive")
        for server in servers:
            offer(made, server, *(["read", "write"] if server == "local" else ["read"]))
        found = listed(made)
        assert found.keys() == {"archive.read", "github.read", "local.write", "warehouse.read"}
        assert {found["archive.read"], found["warehouse.read"]} == {"read", "read_2"}
        assert (found["github.read"], found["local.write"]) == ("github__read", "write")


@pytest.mark.requirement("S4-E7")
def test_a_registry_that_may_not_override_is_listed_with_its_name() -> None:
    made = publisher("warehouse")
    offer(made, "local", "read", "write")
    offer(made, "archive", "read", "own")
    assert listed(made) == {
        "archive.own": "own",
        "archive.read": "archive__read",
        "local.read": "read",
        "local.write": "write",
    }
    offer(made, "warehouse", "read")
    found = listed(made)
    assert "local.read" not in found
    assert {found["archive.read"], found["warehouse.read"]} == {"read", "read_2"}


@pytest.mark.requirement("S4-E7")
def test_an_override_is_logged_once_noted_on_the_tool_and_undone_when_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = publisher("warehouse")
    offer(made, "local", "read")
    with caplog.at_level(logging.WARNING):
        offer(made, "warehouse", "read")
        offer(made, "github", "other")
    assert len([line for line in caplog.messages if "takes the place of" in line]) == 1
    winner = made.current.snapshot.tools[ToolId("warehouse", "read")]
    assert winner.notes == ("takes the place of local.read",)
    offer(made, "warehouse")
    assert listed(made) == {"github.other": "github__other", "local.read": "read"}


def test_other_chapters_stay_the_same_objects() -> None:
    made = publisher("warehouse")
    offer(made, "github", "a")
    offer(made, "local", "read")
    github = made.current.snapshot.sections["github"]
    offer(made, "warehouse", "read")
    assert made.current.snapshot.sections["github"] is github
    local = made.current.snapshot.sections["local"]
    offer(made, "warehouse", "read", "more")
    assert made.current.snapshot.sections["local"] is local
