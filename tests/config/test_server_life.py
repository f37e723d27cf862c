"""The settings of a server's life: its limits, its breaker, its user and its container."""

from __future__ import annotations

import pytest

from portico.domain.server import Isolation, ServerLimits

from .conftest import Home


def test_every_limit_of_a_server_can_be_set(home: Home) -> None:
    home.write(
        "project/portico.yaml",
        "servers: {a: {url: 'https://x/mcp', calls_at_once: 8, queue: 0, breaker: {failures: 0, cooldown_s: 2.5}}}\n",
    )
    settings = home.load()
    assert settings.problems == ()
    assert settings.servers[0].limits == ServerLimits(calls_at_once=8, queue=0, failures=0, cooldown_s=2.5)


@pytest.mark.requirement("P-ISOLATION")
@pytest.mark.parametrize(
    ("written", "isolation"),
    [
        ("command: x, run_as: nobody", Isolation(run_as="nobody")),
        ("command: x, run_as: 1000", Isolation(run_as="1000")),
        ("command: x, run_as: '1000:50'", Isolation(run_as="1000:50")),
        ("command: x, container: 'ghcr.io/o/i:1.2'", Isolation(image="ghcr.io/o/i:1.2")),
        ("container: mcp/time", Isolation(image="mcp/time")),
        (
            "command: x, container: {image: i, network: none, volumes: ['/a:/b']}",
            Isolation(image="i", network="none", volumes=("/a:/b",)),
        ),
    ],
)
def test_a_server_may_have_a_user_or_a_container(home: Home, written: str, isolation: Isolation) -> None:
    home.write("project/portico.yaml", f"servers: {{a: {{{written}}}}}\n")
    settings = home.load()
    assert settings.problems == ()
    assert settings.servers[0].isolation == isolation
    assert settings.servers[0].transport == "stdio"


def test_paths_of_a_contained_server_are_those_of_its_image(home: Home) -> None:
    home.write("project/portico.yaml", "servers: {a: {command: ./run.sh, cwd: app, args: [x], container: i}}\n")
    (spec,) = home.load().servers
    assert (spec.command, spec.cwd, spec.args) == ("./run.sh", "app", ("x",))


@pytest.mark.requirement("P-BAD-CONFIG", "P-ISOLATION")
@pytest.mark.parametrize(
    ("written", "where"),
    [
        ("command: x, run_as: ''", "run_as"),
        ("command: x, run_as: 'a b'", "run_as"),
        ("command: x, run_as: '-1'", "run_as"),
        ("command: x, run_as: [root]", "run_as"),
        ("url: 'https://x/mcp', run_as: nobody", "run_as"),
        ("command: x, container: ''", "container"),
        ("command: x, container: '--privileged'", "container"),
        ("command: x, container: {network: none}", "container"),
        ("command: x, container: {image: i, network: '--host'}", "container.network"),
        ("command: x, container: {image: i, volume: [x]}", "container.volume"),
        ("command: x, container: [i]", "container"),
        ("url: 'https://x/mcp', container: i", "container"),
        ("command: x, container: i, run_as: nobody", "run_as"),
        ("command: x, runas: nobody", "runas"),
        ("command: x, calls_at_once: 0", "calls_at_once"),
        ("command: x, queue: -1", "queue"),
        ("command: x, breaker: 5", "breaker"),
        ("command: x, breaker: {cooldown_s: 0}", "breaker.cooldown_s"),
        ("command: x, breaker: {failure: 5}", "breaker.failure"),
    ],
)
def test_what_cannot_be_used_is_named_and_leaves_the_server_out(home: Home, written: str, where: str) -> None:
    home.write("project/portico.yaml", f"servers:\n  a: {{{written}}}\n")
    settings = home.load()
    assert settings.servers == ()
    assert f"servers.a.{where}" in {problem.where for problem in settings.problems}
    assert all(problem.fix and problem.line == 2 for problem in settings.problems)
