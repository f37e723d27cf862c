"""The difference between two readings of a config: no setting is forgotten, and a line that moved is none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from portico.config import GatewaySettings, InstallationPaths, SearchSettings, Semantic, change_between
from portico.domain.server import ConfigChange, ServerLabels, ServerLimits, ServerSpec, ToolFilter

SETTINGS = GatewaySettings(home=InstallationPaths(config=Path(), data=Path()))
NOT_OF_THE_FILE = {"home", "problems", "refused", "servers", "reload", "database_uri"}
LIVE = {"pins", "categories", "examples", "mcp_registries"}
ONE = ServerSpec(name="one", transport="stdio", command="one")


def others(settings: Any) -> Iterator[tuple[str, Any]]:
    """The same settings with one value replaced, for each value that a config may change, with its name."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if field.name in NOT_OF_THE_FILE:
            continue
        if is_dataclass(value) and field.name in ("http", "local", "catalog", "storage"):
            yield from ((name, replace(settings, **{field.name: inner})) for name, inner in others(value))
        else:
            yield field.name, replace(settings, **{field.name: object()})


@pytest.mark.requirement("P-RELOAD")
def test_every_setting_is_told_as_taken_over_or_as_needing_a_restart():
    found = {name: change_between(SETTINGS, other) for name, other in others(SETTINGS) if name != "search"}
    assert {name for name, change in found.items() if change == ConfigChange()} == set()
    assert {name for name, change in found.items() if change.settings} == LIVE
    assert all(not change.restart for name, change in found.items() if name in LIVE)


@pytest.mark.requirement("P-RELOAD")
def test_a_setting_that_only_moved_in_the_file_is_not_another():
    moved = [
        replace(SETTINGS, search=SearchSettings(semantic=Semantic(model="small", line=line), limit=limit))
        for line, limit in ((3, 5), (9, 5), (9, 6))
    ]
    assert change_between(moved[0], moved[1]) == ConfigChange()
    assert change_between(moved[1], moved[2]) == ConfigChange(restart=("search",))


@pytest.mark.requirement("P-RELOAD")
@pytest.mark.parametrize(
    ("other", "is_kept"),
    [
        (replace(ONE, labels=ServerLabels(alias="uno", description="The first", category="numbers")), True),
        (replace(ONE, tools=ToolFilter(deny=("*",)), limits=ServerLimits(result_tokens=900)), True),
        (replace(ONE, env={"WORD": "other"}), False),
        (replace(ONE, args=("more",)), False),
        (replace(ONE, limits=ServerLimits(answer_values=9)), False),
    ],
)
def test_only_what_we_make_of_its_answers_leaves_a_server_its_process(other: ServerSpec, is_kept: bool):
    assert ONE.runs_like(other) is is_kept
    running, read = (replace(SETTINGS, servers=(spec,)) for spec in (ONE, other))
    assert change_between(running, read) == ConfigChange(changed=("one",))
