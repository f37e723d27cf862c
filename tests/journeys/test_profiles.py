"""Profiles of a running gateway: chosen by option or environment, and the same on every surface and over both eras."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp import Client

from tests.journeys.kit import definition, serving
from tests.journeys.running import ERAS, gateway, portico, text_of, write_config

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(90)]

PROFILES = """
reader: {tool: ["^base_"], surface: static}
alone: {tool: [X], surface: static}
narrow: {servers: [local], surface: static}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("profiles-home")
    functions = ("base_one", "base_two", "dba_three")
    texts = [f'def handle_{name}() -> str:\n    """Does {name}."""\n    return "{name}"\n' for name in functions]
    (home / "mine.py").write_text("\n\n".join(texts))
    (home / "profiles.yml").write_text(PROFILES)
    hub = serving(home / "tools.json", [definition("echo", text="string")])
    write_config(home, {"hub": hub}, python=["mine.py"], surface="static")
    return home


async def listed(url: str, era: str) -> set[str]:
    async with Client(url, mode=ERAS[era]) as connected:
        return {tool.name for tool in (await connected.list_tools()).tools}


@pytest.mark.requirement("S4-48")
@pytest.mark.parametrize("era", ERAS)
async def test_the_option_chooses_a_profile_which_filters_code_only(home: Path, era: str):
    with gateway(home, "--profile", "alone") as running:
        assert await listed(running.url, era) == {"hub__echo"}
        async with Client(running.path("search"), mode=ERAS[era]) as connected:
            hidden = await connected.call_tool("execute_tool", {"tool_name": "base_one", "arguments": {}})
            assert "unknown_tool" in text_of(hidden)


@pytest.mark.requirement("S4-51")
@pytest.mark.parametrize(("variable", "era"), [("MCP_PROFILE", "2025-11-25"), ("PROFILE", "2026-07-28")])
async def test_the_environment_chooses_a_profile(home: Path, monkeypatch: pytest.MonkeyPatch, variable: str, era: str):
    monkeypatch.setenv(variable, "narrow")
    with gateway(home) as running:
        assert await listed(running.url, era) == {"base_one", "base_two", "dba_three"}
    assert "hub" not in portico(home, "list").stdout, "every command heeds it"


async def test_without_a_profile_everything_is_there(home: Path):
    with gateway(home) as running:
        assert await listed(running.url, "2026-07-28") == {"base_one", "base_two", "dba_three", "hub__echo"}


def test_an_unknown_profile_ends_the_command_and_names_the_known_ones(home: Path):
    done = portico(home, "serve", "--profile", "reade")
    assert done.returncode == 3
    assert "--profile: there is no profile 'reade'. Did you mean 'reader'? There are: all, alone, base" in done.stderr
    assert "Traceback" not in done.stderr
