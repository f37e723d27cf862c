"""Where the registry's parts are is documented once, and what is named is there under that name."""

from __future__ import annotations

import re

import pytest

from portico.providers.sql.registry.setup import setup_script
from tests.house.source import ROOT, SOURCE

DOCS = ROOT / "docs"


@pytest.mark.requirement("S4-54", "S4-E16")
def test_each_part_of_the_registry_has_one_documented_place_that_is_there() -> None:
    table = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Where things live")[2]
    line = next(row for row in table.splitlines() if row.startswith("| what makes tools of rows in a database"))
    places = re.findall(r"`([^`]+)`", line)
    assert len(places) == 4
    assert [place for place in places if not (ROOT / place).exists()] == []
    assert table.count(places[0]) == 1


@pytest.mark.requirement("S4-25", "S4-E16")
@pytest.mark.parametrize("dialect", ["postgresql", "sqlite", "teradata"])
def test_the_example_setup_is_the_sql_that_the_command_runs(dialect: str) -> None:
    file = SOURCE / "providers" / "sql" / "registry" / "setup" / f"{dialect}.sql"
    assert file.read_text(encoding="utf-8").replace("{schema}", '"mcp"') == setup_script(dialect, "mcp")
    assert "portico registry init" in (DOCS / "guides" / "registry.md").read_text(encoding="utf-8")
