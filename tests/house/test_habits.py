"""What the repository says of itself is so: its workflow runs the make targets that a developer runs."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.house.source import ROOT

pytestmark = pytest.mark.requirement("P-HOUSE-HABITS")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def jobs() -> dict[str, Any]:
    """The jobs of the workflow."""
    found: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    return found


def test_the_workflow_runs_make_targets_and_nothing_else():
    commands = [step["run"] for job in jobs().values() for step in job["steps"] if "run" in step]
    assert {"make check", "make test"} <= set(commands)
    assert [command for command in commands if not re.fullmatch(r"make [a-z]+( [A-Z]+=\S+)*", command)] == []
    assert [command for command in commands if command.split()[1] not in TARGETS] == []


def test_the_workflow_tests_every_python_that_the_metadata_names():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named[0] == PROJECT["requires-python"].removeprefix(">=")
    for system in ("linux", "macos"):
        assert jobs()[system]["strategy"]["matrix"]["python"] == named


def test_the_license_is_the_one_that_the_metadata_names():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert PROJECT["authors"][0]["name"] in text
