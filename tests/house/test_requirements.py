"""The requirements manifest and the tests agree, both ways."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.house.source import ROOT
from tests.requirements import GAPS, PROMISES, acceptance, expand
from tests.threat_list import PARTLY, THREATS, UNSHOWN

pytestmark = pytest.mark.requirement("P-HOUSE-MANIFEST")


@cache
def claimed() -> dict[str, set[str]]:
    """Every id that a test is marked with, and the files that do so."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requirement":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path}: an id is written out"
                    found.setdefault(str(argument.value), set()).add(path.name)
    return found


def test_every_marked_id_is_a_known_promise():
    assert sorted(claimed().keys() - set(acceptance()) - PROMISES.keys() - THREATS.keys()) == []


def test_every_promise_of_ours_has_a_test():
    assert sorted(PROMISES.keys() - claimed().keys()) == []


def test_every_behaviour_of_the_designs_has_a_test_or_is_a_named_gap():
    covered = {id for ids in GAPS for id in expand(ids)}
    assert [id for id in acceptance() if id not in claimed() and id not in covered] == []


def test_no_gap_names_what_does_not_exist_or_is_all_done():
    known, done = set(acceptance()), claimed().keys()
    assert [ids for ids in GAPS if not set(expand(ids)) <= known] == []
    assert [ids for ids in GAPS if set(expand(ids)) <= done] == []


def test_every_threat_has_a_test_or_is_a_named_gap_and_never_both():
    shown = THREATS.keys() & claimed().keys()
    assert sorted(THREATS.keys() - shown - UNSHOWN.keys()) == []
    assert sorted(shown & UNSHOWN.keys()) == []


def test_what_is_said_of_a_threat_is_said_of_one_that_exists():
    assert sorted((UNSHOWN.keys() | PARTLY.keys()) - THREATS.keys()) == []


def test_a_threat_that_is_met_in_part_has_a_test_for_that_part():
    assert sorted(PARTLY.keys() - claimed().keys()) == []
    assert sorted(PARTLY.keys() & UNSHOWN.keys()) == []


def test_the_threats_are_numbered_without_a_hole():
    assert list(THREATS) == [f"T{n:02}" for n in range(1, 82)] + [f"F{n:02}" for n in range(1, 53)]
