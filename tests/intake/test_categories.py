"""One category per tool: explicit config, longest name prefix, the server's default, `misc`."""

from __future__ import annotations

import pytest

from portico.intake.categories import CategoryRule


@pytest.mark.requirement("S0-54", "S0-55", "S0-56", "S0-57", "S0-58", "S0-59")
@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("base_readQuery", "base"),
        ("dba_tableSpace", "dba"),
        ("fs_createDataset", "fs"),
        ("qlty_missingValues", "qlty"),
        ("sec_userRoles", "sec"),
        ("sql_opt_rewrite", "sql_opt"),
        ("baseless", "misc"),
    ],
)
def test_the_prefix_of_a_local_tool_is_its_category(name: str, category: str) -> None:
    assert CategoryRule().category("local", name, "local") == category


def test_upstream_tools_stand_on_their_servers_shelf_whatever_their_prefix() -> None:
    rule = CategoryRule(servers={"github": "code"})
    assert rule.category("github", "base_x", "upstream") == "code"
    assert rule.category("other", "base_x", "upstream") == "misc"


def test_config_wins_and_the_longest_prefix_wins_among_prefixes() -> None:
    rule = CategoryRule(
        explicit={"github.create": "one", "create_*": "two", "create_issue_*": "three", "github": "four"},
        servers={"github": "five"},
    )
    found = [rule.category("github", name, "upstream") for name in ("create", "create_x", "create_issue_x", "delete")]
    assert found == ["one", "two", "three", "four"]
