"""The measurement of search in a crowd runs without any data, and its parts are what they say they are."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from bench.crowd_attacks import ATTACKER, Target, attack
from bench.fixed_work import cost
from bench.long_queries import PLACES, TALK, long_form
from bench.retrieval import Question

from portico.testing import definition
from tests.house.source import ROOT

pytestmark = pytest.mark.timeout(120)


def test_attacks_and_talk_are_measured_without_data_from_elsewhere():
    command = [
        sys.executable,
        str(ROOT / "bench" / "run.py"),
        "crowd",
        "--quick",
        "--part",
        "attacks",
        "--part",
        "talk",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert {row["attack"] for row in found["attacks"]} >= {"none", "clones of all tools", "a flood of words"}
    assert min(row["hit@5 also"] for row in found["attacks"]) > 0.9
    assert min(found["talk"]["generated"][place]["share"] for place in PLACES) > 0.9


def test_an_attacker_that_is_first_is_counted():
    target = Target(
        "mail",
        {"mail": [definition("send", "Send a mail.")], "files": [definition("read", "Read a file.")]},
        (Question(text="paint my house green", needs=(frozenset({"mail/send"}),)),),
    )
    rows = {(row["attack"], row["tools"]): row for row in attack(target)}
    assert rows["none", 0]["first"] == 0
    assert rows["a tool for each query", 1]["first"] == 1, "nobody else offers that"
    assert ATTACKER not in target.tools


@pytest.mark.parametrize("place", PLACES)
def test_a_request_stands_where_it_should_in_two_hundred_words(place: str):
    text = long_form("close the ticket", place, 200, random.Random(1))
    assert 190 <= len(text.split()) <= 225
    at = text.index("close the ticket.") / len(text)
    assert {"first": at == 0, "middle": 0.3 < at < 0.7, "last": at > 0.85}[place]


def test_the_talk_is_varied():
    assert len(set(TALK)) == len(TALK) >= 40


def test_a_cost_is_told_in_pieces_of_fixed_work():
    found = cost(lambda: [{f"key{number}": [number] for number in range(100_000)} for _ in range(10)])
    assert found.as_row() == {"cpu_s": found.cpu_s, "fixed_works": found.fixed_works}
    assert min(found.as_row().values()) > 0
