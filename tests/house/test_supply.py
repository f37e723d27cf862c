"""What is installed is written down without an address, and an audit that was not done is not called clean."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from maintenance.audit import CLEAN, UNCHECKED, VULNERABLE, judge
from maintenance.constraints import installed
from packaging.requirements import Requirement

from tests.house.source import ROOT

PINS = dict(
    line.split("==")
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    texts = [
        *project["project"]["dependencies"],
        *groups["examples"],
        *groups["docs"],
        *(t for t in groups["dev"] if isinstance(t, str)),
    ]
    return [Requirement(text) for text in texts]


def normal(name: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.requirement("P-CONSTRAINTS")
def test_the_constraints_are_names_and_versions_in_order():
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) for name in PINS)
    assert all(re.fullmatch(r"[0-9][0-9A-Za-z.!+]*", version) for version in PINS.values())
    assert list(PINS) == sorted(PINS)
    assert "portico" not in PINS


@pytest.mark.requirement("P-CONSTRAINTS")
def test_every_declared_dependency_is_constrained_within_its_range():
    missing = [one.name for one in declared() if normal(one.name) not in PINS]
    assert missing == []
    wrong = [
        f"{one}: {PINS[normal(one.name)]}" for one in declared() if not one.specifier.contains(PINS[normal(one.name)])
    ]
    assert wrong == []


@pytest.mark.requirement("P-CONSTRAINTS")
def test_the_list_of_what_is_installed_names_what_we_need():
    assert {"anyio", "mcp", "pytest"} <= installed().keys()


VULNERABLE_PACKAGE = {"name": "a", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}
CLEAN_PACKAGE: dict[str, Any] = {"name": "b", "version": "1", "vulns": []}
UNKNOWN_PACKAGE = {"name": "c", "skip_reason": "Dependency not found and could not be audited: c (1)"}


@pytest.mark.requirement("P-AUDIT")
@pytest.mark.parametrize(
    ("packages", "code"),
    [
        ([CLEAN_PACKAGE], CLEAN),
        ([CLEAN_PACKAGE, VULNERABLE_PACKAGE], VULNERABLE),
        ([VULNERABLE_PACKAGE, UNKNOWN_PACKAGE], VULNERABLE),
        ([CLEAN_PACKAGE, UNKNOWN_PACKAGE], UNCHECKED),
        ([], UNCHECKED),
    ],
)
def test_an_audit_is_clean_only_when_everything_was_checked(packages: list[dict[str, Any]], code: int):
    assert judge({"dependencies": packages})[0] == code


@pytest.mark.requirement("P-AUDIT")
def test_what_is_vulnerable_is_named_with_the_version_that_is_not():
    assert judge({"dependencies": [VULNERABLE_PACKAGE]})[1] == ["a 1: X-1, fixed in 2"]
