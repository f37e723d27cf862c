"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed_by(example: str) -> str:
    """What an example prints, in a process that never loads MCP."""
    check = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__'); assert 'mcp' not in sys.modules"
    run = [sys.executable, "-c", check, str(EXAMPLES / example)]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.requirement("S0-45", "S0-49", "S0-53")
def test_the_catalog_is_used_without_mcp() -> None:
    said = printed_by("catalog_without_mcp.py")
    assert "found _local.base_tableList" in said
    assert "result: {'result': ['shop.customers', 'shop.orders']}" in said


@pytest.mark.requirement("S0-45", "S0-49", "S0-53")
def test_the_catalog_is_used_inside_another_agent_framework() -> None:
    seen, answered = printed_by("agent_framework.py").splitlines()
    assert seen == "the agent sees: call_tool, describe_tools, search_tools"
    assert answered.startswith("_local.base_tableList says: ")
    assert "shop.orders" in answered
