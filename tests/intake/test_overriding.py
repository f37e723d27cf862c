"""Registered tools take the place of code tools where they may, and of nothing else."""

from __future__ import annotations

import logging

import pytest

from portico.catalog.publisher import Editions
from portico.domain.server import Offering
from portico.domain.tool import ToolId
from portico.search.index import build_index
from portico.testing import definition

SOURCES = {"local": "local", "notes": "local", "warehouse": "database", "archive": "database", "github": "upstream"}


def editions(*overriding: str) -> Editions:
    return Editions(build_index=build_index, overriding=set(overriding))


def offer(made: Editions, server: str, *names: str) -> None:
    made.accept([(Offering(server=server, tools=tuple(map(definition, names))), SOURCES[server])])


def listed(made: Editions) -> dict[str, str]:
    return {f"{id.server}.{id.name}": tool.listed for id, tool in made.current.edition.tools.items()}


@pytest.mark.requirement("S4-6", "S4-E7")
def test_only_code_gives_way_whatever_comes_first() -> None:
    order = ["local", "notes", "warehouse", "archive", "github"]
    for servers in (order, order[::-1]):
        made = editions("warehouse", "archive")
        for server in servers:
            offer(made, server, *(["read", "write"] if server == "local" else ["read"]))
        found = listed(made)
        assert found.keys() == {"archive.read", "github.read", "local.write", "warehouse.read"}
        assert {found["archive.read"], found["warehouse.read"]} == {"read", "read_2"}
        assert (found["github.read"], found["local.write"]) == ("github__read", "write")


@pytest.mark.requirement("S4-E7")
def test_a_registry_that_may_not_override_is_listed_with_its_name() -> None:
    made = editions("warehouse")
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
    made = editions("warehouse")
    offer(made, "local", "read")
    with caplog.at_level(logging.WARNING):
        offer(made, "warehouse", "read")
        offer(made, "github", "other")
    assert len([line for line in caplog.messages if "takes the place of" in line]) == 1
    winner = made.current.edition.tools[ToolId("warehouse", "read")]
    assert winner.notes == ("takes the place of local.read",)
    offer(made, "warehouse")
    assert listed(made) == {"github.other": "github__other", "local.read": "read"}


def test_other_chapters_stay_the_same_objects() -> None:
    made = editions("warehouse")
    offer(made, "github", "a")
    offer(made, "local", "read")
    github = made.current.edition.chapters["github"]
    offer(made, "warehouse", "read")
    assert made.current.edition.chapters["github"] is github
    local = made.current.edition.chapters["local"]
    offer(made, "warehouse", "read", "more")
    assert made.current.edition.chapters["local"] is local
