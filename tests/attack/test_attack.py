"""A short run of each suite of attacks, and what the harness itself promises."""

from __future__ import annotations

import json
from itertools import islice
from random import Random

import pytest

from tests.attack import arguments, bodies
from tests.attack.run import GROWTH_MB, SUITES, Outcome, attack, main, report
from tests.attack.target import Strain

HOLDING = ["arguments", "headers", "sessions", "sql/sqlite", "sql/postgresql"]
"""Suites that are run here; this list only ever grows."""
QUIET = Strain(stall_ms=1, wall_ms=1, livez_ms=1, growth_mb=1)


@pytest.mark.timeout(180)
@pytest.mark.requirement("P-ATTACK")
@pytest.mark.parametrize("name", HOLDING)
def test_nothing_gets_through_in_a_short_run(name: str) -> None:
    outcome = attack(name, seconds=2, seed=7)
    assert outcome.attempts > 0
    assert outcome.through == {}
    assert outcome.strain.growth_mb <= GROWTH_MB
    assert outcome.strain.stall_ms <= 250, "five times what `make attack` allows, for machines that are busy"


@pytest.mark.requirement("P-ATTACK")
def test_every_suite_that_is_run_exists() -> None:
    assert set(HOLDING) <= SUITES.keys()


@pytest.mark.requirement("P-ATTACK")
@pytest.mark.parametrize("kind", [bodies._mutated, bodies._odd, bodies._deep, arguments._unknown, arguments._wrong])
def test_a_seed_gives_the_same_payloads_again(kind: object) -> None:
    assert callable(kind)
    first, second = ([kind(chance) for _ in islice(range(20), 20)] for chance in (Random(7), Random(7)))
    assert first == second
    assert first != [kind(Random(8))] * 20


@pytest.mark.requirement("P-ATTACK")
def test_what_got_through_a_stall_and_growth_each_break_a_suite(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Outcome(suite="json", attempts=9, strain=QUIET, through={})
    through = Outcome(suite="json", attempts=9, strain=QUIET, through={"HTTP 500": 2})
    costly = Strain(stall_ms=51, wall_ms=90, livez_ms=90, growth_mb=201)
    strained = Outcome(suite="json", attempts=9, strain=costly, through={})
    assert quiet.broken == []
    assert through.broken == ["HTTP 500 (2x)"]
    assert strained.broken == ["a stall of 51 ms", "201 MB of growth"]
    report([quiet, through])
    table, _, line = capsys.readouterr().out.rstrip().rpartition("\n")
    assert "| json | 9 | 1 | 1 | 1 | 1 | 0 |" in table
    assert [one["broken"] for one in json.loads(line)["attack"]] == [[], ["HTTP 500 (2x)"]]


@pytest.mark.requirement("P-ATTACK")
def test_a_suite_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "argumets"])
    assert ended.value.code == 2
    assert "there are: arguments" in capsys.readouterr().err
