"""One category per tool: explicit config, longest name prefix, the server's default, `misc`."""

from __future__ import annotations

import pytest
from tests.catalogue import generate, load_fleet

from portico.catalog.categories_and_order import FALLBACK, SHIPPED, CategoryRule, shelf_of, unwritten
from portico.domain.tool import Category


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
    assert rule.category("gitlab", "base_x", "upstream") == "source_control"
    assert rule.category("other", "base_x", "upstream") == "misc"


def test_config_wins_and_the_longest_prefix_wins_among_prefixes() -> None:
    rule = CategoryRule(
        explicit={"github.create": "one", "create_*": "two", "create_issue_*": "three", "github": "four"},
        servers={"github": "five"},
    )
    found = [rule.category("github", name, "upstream") for name in ("create", "create_x", "create_issue_x", "delete")]
    assert found == ["one", "two", "three", "four"]


@pytest.mark.requirement("S1-31", "S1-24", "S1-25", "S1-30", "S1-50")
def test_ten_categories_are_shipped_in_order_and_the_rest_comes_last() -> None:
    assert len(SHIPPED) == 11
    assert all(category.title and category.description for category in SHIPPED.values())
    assert sorted(SHIPPED.values(), key=lambda category: category.order) == list(SHIPPED.values())
    assert list(SHIPPED)[-1] == FALLBACK
    assert SHIPPED[FALLBACK].order > Category(name="of somebody").order


@pytest.mark.parametrize(
    ("server", "shelf"),
    [
        ("serena-mcp-server", "code_analysis"),
        ("github", "source_control"),
        ("GitHubEnterprise", "source_control"),
        ("mcp-server-git", "source_control"),
        ("playwright", "web_automation"),
        ("chrome-devtools", "web_automation"),
        ("brave-search", "knowledge"),
        ("awslabs.aws-documentation-mcp-server", "knowledge"),
        ("my_postgres", "databases"),
        ("mcp-server-filesystem", "files"),
        ("google-drive", "files"),
        ("slack", "communication"),
        ("google-calendar", "communication"),
        ("mcp-atlassian", "planning"),
        ("stripe", "planning"),
        ("k8s", "infrastructure"),
        ("azure-devops", "source_control"),
        ("google-maps", "data_analysis"),
        ("mcp-server-calculator", "data_analysis"),
    ],
)
def test_a_servers_name_speaks_of_its_shelf(server: str, shelf: str) -> None:
    assert shelf_of(server) == shelf
    assert CategoryRule().category(server, "anything", "upstream") == shelf


@pytest.mark.parametrize(
    "server", ["misc", "local", "everything", "gitlike", "mongoose", "unslack", "", "😀", "x" * 9_999]
)
def test_only_whole_words_speak(server: str) -> None:
    assert shelf_of(server) == ""
    assert CategoryRule().category(server, "anything", "upstream") == "misc"


def test_a_products_name_says_more_than_a_general_word() -> None:
    assert shelf_of("code-search-for-gitlab") == "source_control"
    assert shelf_of("postgres-files") == shelf_of("files-postgres") == "databases"


def test_the_title_speaks_where_the_name_does_not() -> None:
    assert shelf_of("internal-7", "PostgreSQL for everybody") == "databases"
    assert shelf_of("github", "PostgreSQL for everybody") == "source_control"
    assert CategoryRule().categories("internal-7", ["a"], "upstream", "Slack") == {"a": "communication"}


def test_what_the_config_says_of_a_server_counts_more_than_its_name() -> None:
    assert CategoryRule(servers={"github": "ours"}).category("github", "a", "upstream") == "ours"
    assert CategoryRule(explicit={"github": "ours"}).category("github", "a", "upstream") == "ours"


@pytest.mark.parametrize("source", ["local", "database", "library"])
def test_only_upstream_servers_are_shelved_by_name(source: str) -> None:
    assert CategoryRule().category("github", "a", source) == "misc"


def test_hardly_a_server_is_left_without_a_shelf() -> None:
    assert [server for server in generate() if not shelf_of(server)] == []
    fleet = load_fleet()
    if fleet is not None:
        assert [server for server in fleet if not shelf_of(server)] in ([], ["everything(npm)"])


@pytest.mark.requirement(
    "S0-E4", "S0-54", "S0-55", "S0-56", "S0-57", "S0-58", "S0-59", "S0-60", "S0-61", "S0-62", "S0-63", "S0-64", "S0-65"
)
@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("base_tableList", "base"),
        ("dba_tableSpace", "dba"),
        ("fs_setFeature", "fs"),
        ("qlty_missingValues", "qlty"),
        ("sec_userRoles", "sec"),
        ("tdvs_ask", "tdvs"),
        ("plot_pie_chart", "plot"),
        ("rag_searchText", "rag"),
        ("sql_opt_explain", "sql_opt"),
        ("chat_completeChat", "chat"),
        ("bar_createJob", "bar"),
        ("sales_report", "sales"),
        ("Sales_report", "sales"),
        ("report", "misc"),
        ("_private", "misc"),
        ("données_x", "données"),
    ],
)
def test_a_local_tool_stands_where_the_longest_prefix_or_else_the_first_part_of_its_name_says(
    name: str, category: str
) -> None:
    assert CategoryRule().category("local", name, "local") == category


def test_the_first_part_of_a_name_says_nothing_of_other_servers_tools() -> None:
    assert CategoryRule().category("odd", "sales_report", "upstream") == "misc"
    assert CategoryRule().category("odd", "sales_report", "library") == "misc"


@pytest.mark.parametrize("name", ["base", "qlty", "sql_opt", "sec", "plot", "rag", "dba", "fs", "tdvs", "chat", "bar"])
def test_categories_that_tools_bring_with_them_have_words_and_stand_before_empty_ones(name: str) -> None:
    category = unwritten(name)
    assert category.description
    assert category.order < min(shipped.order for shipped in SHIPPED.values())
    assert unwritten("something").description == ""
