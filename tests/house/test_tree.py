"""What is committed speaks of the project alone and can be built anywhere."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.house.source import ROOT

FORBIDDEN = {  # ana is the person in the guides
    "a path of somebody's machine": re.compile(r"/work/|/root/|/home/(?!ana/)\w+/"),
    "the address of a registry": re.compile(r"https?://[^\s\"')]*(pypi|npmjs|pythonhosted)\.[a-z]+"),
    "a ticket that a reader cannot open": re.compile(r"\bissue #?\d+\b|\bsession \d+\b", re.IGNORECASE),
}


def committed() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy of the source is not a git checkout, so nothing says which files belong to it")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.requirement("P-HOUSE-SELF")
def test_no_file_speaks_of_a_machine_or_a_registry_address():
    found = []
    for name in committed():
        if name == "tests/house/test_tree.py":
            continue
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {what}" for what, pattern in FORBIDDEN.items() if pattern.search(text)]
    assert found == []


@pytest.mark.requirement("P-HOUSE-SELF")
def test_no_lock_file_is_committed():
    locks = {"uv.lock", "poetry.lock", "package-lock.json", "Pipfile.lock", "pdm.lock"}
    assert [name for name in committed() if name.rsplit("/", 1)[-1] in locks] == []
