"""What results may cost and how long they are kept: the key `results`, and the limits of one server."""

from __future__ import annotations

import pytest

from portico.domain.call import ResultLimits

from .conftest import Home


def test_without_a_word_the_defaults_are_in_force(home: Home) -> None:
    home.write("project/portico.yaml", "results:\nservers: {a: {command: x}}\n")
    settings = home.load()
    assert settings.problems == ()
    assert settings.storage.results == ResultLimits(tokens=6_000, expire_s=3_600, memory_mb=64, store_mb=500)
    assert settings.servers[0].limits.result_tokens == 0


def test_every_limit_can_be_set(home: Home) -> None:
    home.write(
        "project/portico.yaml",
        "results: {tokens: 2000, expire_s: 90.5, memory_mb: 0, store_mb: 10}\n"
        "servers: {a: {command: x, result_tokens: 20000, answer_values: 2000000}}\n",
    )
    settings = home.load()
    assert settings.problems == ()
    assert settings.storage.results == ResultLimits(tokens=2_000, expire_s=90.5, memory_mb=0, store_mb=10)
    assert settings.servers[0].limits.result_tokens == 20_000
    assert settings.servers[0].limits.answer_values == 2_000_000


@pytest.mark.requirement("P-BAD-CONFIG")
@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("{tokens: 0}", "results.tokens"),
        ("{tokens: -5}", "results.tokens"),
        ("{tokens: 499}", "results.tokens"),
        ("{tokens: 6000.5}", "results.tokens"),
        ("{tokens: many}", "results.tokens"),
        ("{tokens: [1]}", "results.tokens"),
        ("{expire_s: 0}", "results.expire_s"),
        ("{expire_s: -1}", "results.expire_s"),
        ("{expire_s: .inf}", "results.expire_s"),
        ("{memory_mb: -1}", "results.memory_mb"),
        ("{store_mb: lots}", "results.store_mb"),
        ("{limit: 5}", "results.limit"),
        ("6000", "results"),
    ],
)
def test_an_odd_limit_is_named_and_its_default_is_in_force(home: Home, written: str, where: str) -> None:
    home.write("project/portico.yaml", f"results: {written}\n")
    settings = home.load()
    (problem,) = settings.problems
    assert (problem.where, problem.line) == (where, 1)
    assert problem.fix
    assert settings.storage.results == ResultLimits()


@pytest.mark.requirement("P-BAD-CONFIG")
@pytest.mark.parametrize("written", ["0", "-1", "x", "1.5"])
@pytest.mark.parametrize(("key", "least"), [("result_tokens", "500"), ("answer_values", "1000")])
def test_an_odd_limit_of_a_server_is_named(home: Home, key: str, least: str, written: str) -> None:
    home.write("project/portico.yaml", f"servers:\n  a: {{command: x, {key}: {written}}}\n")
    (problem,) = home.load().problems
    assert (problem.where, problem.line) == (f"servers.a.{key}", 2)
    assert least in problem.fix
