"""Whether the clients of a server share one session, as the config says it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from portico.config import load_settings
from portico.domain.server import ClientSessionLimits, ServerSpec

pytestmark = pytest.mark.requirement("P-CLIENT-SESSIONS")


def read(tmp_path: Path, written: str) -> tuple[ServerSpec | None, list[str]]:
    """The server of a config, and what is wrong with it."""
    file = tmp_path / "portico.yaml"
    file.write_text(f"servers:\n  a:\n    command: x\n    {written}\n")
    settings = load_settings(str(file), {"PORTICO_HOME": str(tmp_path)}, tmp_path)
    return next(iter(settings.servers), None), [str(problem) for problem in settings.problems]


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ("sessions: shared", None),
        ("enabled: true", None),
        ("sessions: per_client", ClientSessionLimits()),
        ("sessions: {per: client}", ClientSessionLimits()),
        ("sessions: {per: client, limit: 8, idle_s: 600}", ClientSessionLimits(most=8, idle=600.0)),
        ("sessions: {per: client, idle_s: 0}", ClientSessionLimits(idle=0.0)),
    ],
)
def test_both_forms_are_understood(written: str, limits: ClientSessionLimits | None, tmp_path: Path):
    spec, problems = read(tmp_path, written)
    assert problems == []
    assert spec is not None
    assert spec.limits.client_sessions == limits


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("sessions: per-client", "neither `shared` nor `per_client`"),
        ("sessions: 3", "neither `shared` nor `per_client`"),
        ("sessions: [client]", "neither `shared` nor `per_client`"),
        ("sessions: {limit: 3}", "does not say whose"),
        ("sessions: {}", "does not say whose"),
        ("sessions: {per: user}", "not known here"),
        ("sessions: {per: client, limit: 0}", "whole number from 1 to 1000"),
        ("sessions: {per: client, idle_s: -1}", "of at least 0"),
        ("sessions: {per: client, most: 3}", "this key is not known"),
    ],
)
def test_clients_that_are_meant_to_be_apart_never_share_by_mistake(written: str, said: str, tmp_path: Path):
    spec, problems = read(tmp_path, written)
    assert spec is None, "a server whose sessions cannot be read is not used"
    assert said in problems[0]


def test_another_sharing_restarts_the_server(tmp_path: Path):
    spec, _ = read(tmp_path, "sessions: per_client")
    assert spec is not None
    limits = (None, ClientSessionLimits(most=3))
    assert not any(spec.runs_like(replace(spec, limits=replace(spec.limits, client_sessions=one))) for one in limits)
