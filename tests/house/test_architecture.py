"""What the architecture page says about places is so: what it names is there, and holds what it says.

No file name stands here: each test asks the page where something is, and looks there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from portico.providers.sql.registry.registry_admin import setup_script
from tests.house.source import ROOT, SOURCE, modules

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SURFACES = "the tools that a surface lists itself"
INVENTORY = "the inventory behind `capabilities`"
REGISTRY = "what makes tools of rows in a database"


def section(title: str) -> str:
    """One section of the architecture."""
    return ARCHITECTURE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def places(what: str) -> list[Path]:
    """The files and folders that the architecture names for something, folders with the files in them."""
    (row,) = [line for line in section("Where things live").splitlines() if line.startswith(f"| {what}")]
    named = [ROOT / path for path in re.findall(r"`(\w+/[\w./]*)`", row)]
    assert named, row
    return [file for path in named for file in ([path] if path.is_file() else sorted(path.rglob("*")))]


def defined(files: Iterable[Path]) -> set[str]:
    """The names that modules give to their functions, classes and annotated constants."""
    found = set()
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body if file.suffix == ".py" else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(node.target.id)
    return found


def imported(files: Iterable[Path]) -> set[str]:
    """The modules that modules import; `.sibling` for those beside them."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
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
    listed = re.findall(r"^  ([\w.]+(?:\.py|/))", section("Layout"), re.MULTILINE)
    assert len(listed) > 20
    assert [place for place in listed if not (SOURCE / place).exists()] == []


@pytest.mark.requirement("S0-84")
def test_every_package_is_in_the_layout_of_the_architecture():
    listed = set(re.findall(r"^  ([\w.]+?)(?:\.py|/)", section("Layout"), re.MULTILINE))
    packages = {module.name.partition("/")[0].removesuffix(".py") for module in modules()}
    assert packages - listed == set()


@pytest.mark.requirement("S0-84", "S0-48")
def test_the_catalog_the_listed_tools_and_the_tool_functions_are_where_it_says():
    assert "Catalog" in defined(places("the catalog as a library"))
    assert "DEFINITIONS" in defined(places(SURFACES))
    assert {"create_mcp_app", "App", "SURFACES"} <= defined(places("the surfaces by name"))
    shipped = places("tool functions that come with Portico")
    assert {"handle_base_readQuery", "handle_base_tableList"} <= defined(shipped)
    elsewhere = {m.path for m in modules() for f in m.functions() if f.name.startswith("handle_")} - {*shipped}
    assert elsewhere == set()


@pytest.mark.requirement("S2-7", "S2-33", "S2-46", "S2-47", "S2-52")
def test_the_inventory_needs_no_database_and_no_environment():
    files = places(INVENTORY)
    assert {"ToolRegistry", "create_tool_registry", "Inventory"} <= defined(files)
    used = imported(files)
    assert {"portico.domain", "portico.errors"} <= used
    assert not [name for name in used if name == "os" or name.startswith(("portico.storage", "portico.config"))]


@pytest.mark.requirement("S2-41", "S2-E10")
def test_tests_stand_in_one_place():
    assert [m.name for m in modules() if re.search(r"(^|/)(tests?/|test_|conftest)|_test\.py$", m.name)] == []
    for subject in ("inventory", "capabilities", "capabilities_surface"):
        assert [*(ROOT / "tests").rglob(f"test_{subject}.py")] != [], subject


@pytest.mark.requirement("S4-54", "S4-E16")
def test_the_parts_of_the_registry_are_documented_in_one_row():
    assert len(places(REGISTRY)) >= 4
    assert section("Where things live").count(f"| {REGISTRY}") == 1


@pytest.mark.requirement("S4-25", "S4-E16")
@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "teradata"])
def test_the_example_setup_is_the_sql_that_the_command_runs(dialect: str) -> None:
    (file,) = [file for file in places(REGISTRY) if file.name == f"{dialect}.sql"]
    assert file.read_text(encoding="utf-8").replace("{schema}", '"mcp"') == setup_script(dialect, "mcp")
    assert "portico registry init" in (ROOT / "docs" / "guides" / "registry.md").read_text(encoding="utf-8")
