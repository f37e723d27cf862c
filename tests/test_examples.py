"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.requirement("S0-45", "S0-49", "S0-53")
def test_the_catalog_is_used_without_mcp() -> None:
    check = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__'); assert 'mcp' not in sys.modules"
    run = [sys.executable, "-c", check, str(EXAMPLES / "catalog_without_mcp.py")]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "found _local.base_tableList" in ended.stdout
    assert "result: {'result': ['shop.customers', 'shop.orders']}" in ended.stdout
