"""The key `http`: by which names the listener may be called, and what clients may use of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico.config import GatewaySettings, load_settings
from portico.domain.server import HttpLimits, HttpSettings


def read(tmp_path: Path, text: str) -> GatewaySettings:
    file = tmp_path / "portico.yaml"
    file.write_text(text)
    return load_settings(str(file), {"PORTICO_HOME": str(tmp_path)}, tmp_path)


def test_nothing_said_means_the_defaults(tmp_path: Path):
    assert read(tmp_path, "servers: {}").http == HttpSettings()


def test_every_limit_and_name_can_be_set(tmp_path: Path):
    settings = read(
        tmp_path,
        "http: {allowed_hosts: [Portico.Example.com, 'x.example:8443', '[fd00::1]:80'],"
        " allowed_origins: ['https://App.example.com/'], max_body: 2000, max_head: 3000, head_s: 1.5, body_s: 2,"
        " body_idle_s: 3, body_memory_mb: 4, keep_alive_s: 5.5, connections: 6, requests: 7, streams: 8, sessions: 9,"
        " session_idle_s: 10}",
    )
    assert settings.problems == ()
    limits = HttpLimits(
        max_body=2000,
        max_head=3000,
        head_s=1.5,
        body_s=2,
        body_idle_s=3,
        body_memory_mb=4,
        keep_alive_s=5.5,
        connections=6,
        requests=7,
        streams=8,
        sessions=9,
        session_idle_s=10,
    )
    hosts = ("portico.example.com", "x.example:8443", "[fd00::1]:80")
    expected = HttpSettings(allowed_hosts=hosts, allowed_origins=("https://app.example.com",), limits=limits)
    assert settings.http == expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{max_body: 0}", "http.max_body"),
        ("{max_body: 4MB}", "http.max_body"),
        ("{head_s: 0}", "http.head_s"),
        ("{connections: -1}", "http.connections"),
        ("{sessions: 1.5}", "http.sessions"),
        ("{allowed_host: x}", "http.allowed_host"),
        ("{allowed_hosts: portico.example.com}", "http.allowed_hosts"),
        ("{allowed_hosts: ['*']}", "http.allowed_hosts[0]"),
        ("{allowed_hosts: ['*.example.com']}", "http.allowed_hosts[0]"),
        ("{allowed_hosts: ['https://x.example']}", "http.allowed_hosts[0]"),
        ("{allowed_origins: ['*']}", "http.allowed_origins[0]"),
        ("{allowed_origins: [x.example]}", "http.allowed_origins[0]"),
        ("{allowed_origins: ['https://x.example/path']}", "http.allowed_origins[0]"),
        ("{allowed_origins: ['null']}", "http.allowed_origins[0]"),
        ("yes", "http"),
    ],
)
def test_what_cannot_be_used_is_named_and_the_default_holds(text: str, where: str, tmp_path: Path):
    settings = read(tmp_path, f"http: {text}")
    (problem,) = settings.problems
    assert problem.where == where
    assert problem.line == 1
    assert problem.fix
    assert settings.http == HttpSettings()
