"""Journeys drive the real thing: real processes, real clients, real servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fleet.install import FLEET, install
from tests.fleet.packages import FleetUnavailable
from tests.journeys.running import portico


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def fleet_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which a client's unmodified config with eight real servers was imported."""
    try:
        missing = install()
    except FleetUnavailable as reason:
        pytest.skip(f"REAL SERVERS ARE NOT TESTED: no package registry can be reached ({reason})")
    if missing:
        pytest.skip(f"REAL SERVERS ARE NOT TESTED: {missing}")
    workspace = tmp_path_factory.mktemp("workspace")
    home = tmp_path_factory.mktemp("fleet-home")
    client_file = workspace / "claude_desktop_config.json"
    servers = {name: server.entry(workspace) for name, server in FLEET.items()}
    client_file.write_text(json.dumps({"mcpServers": servers}, indent=2))
    imported = portico(home, "import", str(client_file), "--write")
    assert imported.returncode == 0, imported.stdout + imported.stderr
    asked = portico(home, "refresh")
    assert asked.returncode == 0, asked.stdout + asked.stderr
    return home
