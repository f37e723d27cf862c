"""The key `scripts`: what scripts may use, and whether they may run at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico.config import GatewaySettings, ScriptSettings, load_settings
from portico.domain.call import ScriptLimits


def read(tmp_path: Path, text: str) -> GatewaySettings:
    file = tmp_path / "portico.yaml"
    file.write_text(text)
    return load_settings(str(file), {"PORTICO_HOME": str(tmp_path)}, tmp_path)


def test_nothing_said_means_the_defaults(tmp_path: Path):
    assert read(tmp_path, "servers: {}").scripts == ScriptSettings()


def test_every_limit_can_be_set(tmp_path: Path):
    settings = read(
        tmp_path,
        "scripts: {enabled: no, seconds: 5, max_seconds: 10, cpu_seconds: 0.5, memory_mb: 16, calls: 3, in_flight: 2,"
        " output_bytes: 500, printed_bytes: 600, source_bytes: 700, at_once: 1, pool: 2, require_hardening: true}",
    )
    assert settings.problems == ()
    limits = ScriptLimits(
        seconds=5,
        cpu_seconds=0.5,
        memory_mb=16,
        calls=3,
        in_flight=2,
        output_bytes=500,
        printed_bytes=600,
        source_bytes=700,
    )
    assert settings.scripts == ScriptSettings(
        enabled=False, limits=limits, max_seconds=10, at_once=1, pool=2, require_hardening=True
    )


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{seconds: 0}", "scripts.seconds"),
        ("{seconds: -1}", "scripts.seconds"),
        ("{seconds: many}", "scripts.seconds"),
        ("{seconds: 500}", "scripts.seconds"),
        ("{max_seconds: 0}", "scripts.max_seconds"),
        ("{memory_mb: 1}", "scripts.memory_mb"),
        ("{calls: 1.5}", "scripts.calls"),
        ("{pool: 0}", "scripts.pool"),
        ("{output_bytes: 1}", "scripts.output_bytes"),
        ("{source_bytes: 1e9}", "scripts.source_bytes"),
        ("{secconds: 5}", "scripts.secconds"),
    ],
)
def test_what_cannot_be_used_is_named_and_the_default_holds(text: str, where: str, tmp_path: Path):
    settings = read(tmp_path, f"scripts: {text}")
    (problem,) = settings.problems
    assert problem.where == where
    assert problem.line == 1
    assert problem.fix
    assert settings.scripts.limits.memory_mb == 64
    assert settings.scripts.enabled


def test_less_than_the_usual_seconds_at_most_makes_them_the_usual_ones(tmp_path: Path):
    settings = read(tmp_path, "scripts: {max_seconds: 10}")
    assert (settings.problems, settings.scripts.limits.seconds) == ((), 10)
