"""What the architecture says about places is so: what it names is there, and is what it says."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.source import ROOT, SOURCE, modules

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
INVENTORY = ("surfaces/capabilities/inventory.py", "surfaces/capabilities/surface.py")
"""The modules of the surface `capabilities`."""


def section(title: str) -> str:
    """One section of the architecture."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def defined(path: str) -> set[str]:
    """The names that a module gives to its functions, classes and constants."""
    found = set()
    for node in ast.parse((SOURCE / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found


def imported(path: str) -> set[str]:
    """The modules that a module imports; `.sibling` for those beside it."""
    found = set()
    for node in ast.walk(ast.parse((SOURCE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


@pytest.mark.requirement("S0-84", "S2-7")
def test_every_place_that_the_architecture_names_is_there():
    named = re.findall(r"`([\w.]+/[\w./]*)`", section("Where things live"))
    assert len(named) > 10
    assert [path for path in named if not (ROOT / path).exists()] == []
    places = re.findall(r"^  ([\w.]+(?:\.py|/))", section("Layout"), re.MULTILINE)
    assert len(places) > 20
    assert [place for place in places if not (SOURCE / place).exists()] == []


@pytest.mark.requirement("S0-84", "S0-48")
def test_the_catalog_the_proxy_tools_and_the_tool_functions_are_where_it_says():
    assert "Catalog" in defined("library.py")
    assert "DEFINITIONS" in defined("surfaces/discover/surface.py")
    assert "DEFINITIONS" in defined("surfaces/search.py")
    assert {"create_mcp_app", "App"} <= defined("server/embedded.py")
    functions = {name for path in SOURCE.glob("packaged/*.py") for name in defined(f"packaged/{path.name}")}
    assert {"handle_base_readQuery", "handle_base_tableList"} <= functions
    elsewhere = [m.name for m in modules() for f in m.functions() if f.name.startswith("handle_")]
    assert {name.partition("/")[0] for name in elsewhere} == {"packaged"}


@pytest.mark.requirement("S2-7", "S2-33")
def test_registry_inventory_and_surface_are_one_module_each():
    assert {"ToolRegistry", "create_tool_registry"} <= defined("surfaces/capabilities/inventory.py")
    assert {"Inventory", "Shelf", "Summary"} <= defined("surfaces/capabilities/inventory.py")
    assert "Capabilities" in defined("surfaces/capabilities/surface.py")
    assert "SURFACES" in defined("server/run.py")


@pytest.mark.requirement("S2-46", "S2-47", "S2-52")
def test_the_registry_needs_no_database_no_environment_and_no_new_dependency():
    used = set().union(*map(imported, INVENTORY))
    assert {"portico.domain.version", "portico.errors"} <= used
    assert not [name for name in used if name == "os" or name.startswith(("portico.storage", "portico.config"))]
    library = {name for name in used if not name.startswith((".", "portico"))}
    standard = {"__future__", "collections.abc", "dataclasses", "difflib", "time", "typing", "zlib"}
    assert library - standard == {"orjson"}


@pytest.mark.requirement("S2-41", "S2-E10")
def test_tests_stand_in_one_place():
    assert [m.name for m in modules() if re.search(r"(^|/)(tests?/|test_|conftest)|_test\.py$", m.name)] == []
    for path in (
        "surfaces/mcp/test_inventory.py",
        "surfaces/mcp/test_capabilities.py",
        "journeys/test_capabilities_surface.py",
    ):
        assert (ROOT / "tests" / path).is_file()
