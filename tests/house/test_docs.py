"""The documentation says what there is: every setting, route, command, option, tool, error and exit code."""

from __future__ import annotations

import dataclasses
import re
from functools import cache

import pytest

from portico import errors
from portico.catalog.naming import META_TOOLS, identifier
from portico.config import SURFACES
from portico.config.clients import OWN_KEYS
from portico.config.load import HTTP, SCRIPTS
from portico.config.servers import KNOWN, SESSIONS
from portico.config.settings import CapabilitiesSettings, JournalSettings, LogSettings, SearchSettings, Semantic
from portico.domain.call import ResultLimits
from portico.domain.server import DatabaseSpec, Isolation, ServerLabels, ServerLimits, ServerSpec, Timeouts, ToolFilter
from portico.surfaces import discover, search
from portico.surfaces import lua_gateway as gateway_tools
from portico.surfaces.capabilities.inventory import CAPABILITIES, TOOL_SCHEMA
from portico.surfaces.cli.app import COMMANDS, load_command
from portico.surfaces.cli.context import Exit
from tests.house.source import ROOT

DOCS = ROOT / "docs"
_TABLES = (
    ServerSpec,
    ServerLabels,
    ServerLimits,
    Isolation,
    Timeouts,
    ToolFilter,
    SearchSettings,
    CapabilitiesSettings,
    Semantic,
    JournalSettings,
    LogSettings,
    ResultLimits,
    DatabaseSpec,
)
"""The tables of a config file."""


@cache
def text(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_every_command_and_option_is_in_the_cli_reference():
    reference = text("reference/cli.md")
    missing = []
    for name, help in COMMANDS.items():
        sub = load_command(name)
        assert " ".join(sub.help.split("\n\n")[0].split()) == help
        if f"portico {name}" not in reference:
            missing.append(name)
        options = [option for param in sub.params for option in param.opts if option.startswith("--")]
        missing += [f"{name} {option}" for option in options if option != "--help" and f"`{option}" not in reference]
    assert missing == []


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_every_exit_code_is_in_the_cli_reference():
    assert [code for code in Exit if f"| {code.value} |" not in text("reference/cli.md")] == []


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_every_setting_is_in_the_config_reference():
    nested = [f.name for kind in _TABLES for f in dataclasses.fields(kind)]
    known = {*OWN_KEYS, *nested, *SCRIPTS, *HTTP, *KNOWN, *SESSIONS}
    known -= {"name", "line", "file", "labels", "limits", "disabled", "isolation", "client_sessions"}
    assert sorted(key for key in known if f"`{key}`" not in text("reference/config.md")) == []


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_every_listed_tool_and_surface_is_in_the_surfaces_page():
    page = text("reference/surfaces.md")
    listed = [d["name"] for surface in (discover, search, gateway_tools) for d in surface.DEFINITIONS]
    listed += [CAPABILITIES, TOOL_SCHEMA]
    assert [name for name in listed if f"`{name}`" not in page] == []
    assert {*map(identifier, listed)} <= META_TOOLS, "no tool of the catalog may be listed under such a name"
    paths = ["/mcp", "/livez", "/readyz", *(f"/mcp/{surface}" for surface in SURFACES)]
    assert [path for path in paths if f"`{path}`" not in page] == []


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_every_error_code_is_in_the_errors_page():
    codes = {e.code for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.PorticoError)}
    page = text("reference/errors.md")
    assert sorted(code for code in codes - {"error", "call_failed"} if f"`{code}`" not in page) == []


@pytest.mark.requirement("P-HOUSE-DOCS")
def test_links_between_the_pages_lead_somewhere():
    broken = []
    for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]:
        targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        local = [target for target in targets if not target.startswith(("http://", "https://"))]
        broken += [f"{page.relative_to(ROOT)}: {to}" for to in local if not (page.parent / to).exists()]
    assert broken == []
