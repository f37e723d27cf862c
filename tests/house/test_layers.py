"""Imports go one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT


@pytest.mark.requirement("P-HOUSE-LAYERS", "S0-52")
def test_import_contracts_hold():
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.requirement("P-HOUSE-LAYERS")
def test_a_contract_that_is_broken_is_noticed(tmp_path):
    config = (
        (ROOT / ".importlinter")
        .read_text()
        .replace("    surfaces\n    application\n", "    application\n    surfaces\n", 1)
    )
    broken = tmp_path / "broken.ini"
    broken.write_text(config)
    lint = Path(sys.executable).with_name("lint-imports")
    command = [lint, "--no-cache", "--config", broken]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
