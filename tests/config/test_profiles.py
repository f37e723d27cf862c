"""Profiles are found, merged over those that come along, chosen by name, and never misread towards more."""

from __future__ import annotations

import pytest

from portico.config import GatewaySettings, load_settings
from portico.config.profiles import PACKAGED
from portico.errors import ConfigError
from tests.config.conftest import Home

SERVERS = "servers:\n  github: {command: x}\n  docs: {command: y}\n"


def chosen(home: Home, name: str | None = None) -> GatewaySettings:
    home.trust()
    return load_settings(None, home.environ, home.project, profile=name)


def failure(home: Home, name: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        chosen(home, name)
    return caught.value


@pytest.mark.requirement("S4-46", "S4-47")
def test_the_documented_profile_comes_along(home: Home):
    profile = chosen(home, "db-registry").profile
    assert (profile.name, profile.registry) == ("db-registry", "mcp")
    assert [pattern.text for pattern in profile.tool or ()] == ["X"]
    assert not profile.permits_tool("base_readQuery", "local")
    assert profile.permits_tool("base_readQuery", "database")
    assert profile.permits_prompt("anything")


@pytest.mark.requirement("S4-46", "S4-47")
def test_a_file_of_the_documented_shape_is_read(home: Home):
    home.write(
        "project/profiles.yml",
        'mine:\n  registry: "tools_db"  # Database containing registry views\n'
        "  tool:\n    - X      # No tool loaded from source code\n  prompt:\n    - .*\n",
    )
    home.environ["DATABASE_URI"] = "sqlite:///shop.db"
    settings = chosen(home, "mine")
    assert (settings.profile.name, settings.profile.registry, settings.problems) == ("mine", "tools_db", ())
    assert not settings.profile.permits_tool("anything", "yaml")


def test_the_packaged_profiles_offer_what_they_say(home: Home):
    assert sorted(PACKAGED) == ["all", "base", "db-registry"]
    base, everything = chosen(home, "base").profile, chosen(home, "all").profile
    for name in ("base_readQuery", "qlty_missingValues", "sec_userRoles", "plot_bar_chart", "rag_x", "sql_opt_explain"):
        assert base.permits_tool(name, "local")
        assert everything.permits_tool(name, "local")
    assert not base.permits_tool("dba_x", "local")
    assert everything.permits_tool("dba_x", "local")
    assert base.wants_packaged
    assert everything.wants_packaged
    assert not chosen(home).profile.wants_packaged


@pytest.mark.requirement("S4-51")
def test_the_command_line_counts_more_than_the_environment(home: Home):
    home.environ["PROFILE"] = "all"
    assert chosen(home).profile.name == "all"
    home.environ["MCP_PROFILE"] = "db-registry"
    assert chosen(home).profile.name == "db-registry"
    assert chosen(home, "base").profile.name == "base"
    home.environ["MCP_PROFILE"] = " "
    assert chosen(home).profile.name == "all"


@pytest.mark.requirement("S4-50")
def test_the_database_of_packaged_tools_comes_from_the_environment_and_is_not_shown(home: Home):
    home.environ["DATABASE_URI"] = "teradatasql://user:pass@host/database"
    assert chosen(home).local.database_uri == "teradatasql://user:pass@host/database"
    assert "pass@" not in repr(chosen(home))


def test_an_unknown_profile_is_named_with_the_known_ones(home: Home):
    home.write("project/profiles.yml", "reader: {}\n")
    error = failure(home, "bas")
    assert (error.where, error.problem) == ("--profile", "there is no profile 'bas'")
    assert error.fix == "Did you mean 'base'? There are: all, base, db-registry, reader."
    home.environ["MCP_PROFILE"] = "zzz"
    with pytest.raises(ConfigError) as caught:
        chosen(home)
    assert (caught.value.where, caught.value.fix) == ("MCP_PROFILE", "There are: all, base, db-registry, reader.")


def test_profiles_lie_beside_the_config_in_the_folder_or_in_the_config(home: Home):
    home.write("project/profiles.yaml", "one: {registry: a}\nbase: {tool: []}\n")
    assert chosen(home, "one").profile.registry == "a"
    assert chosen(home, "base").profile.tool == (), "a file's profile takes the place of its namesake"
    home.write(".config/portico/portico.yaml", SERVERS)
    home.write(".config/portico/profiles.yml", "two: {registry: b}\n")
    assert chosen(home, "two").profile.registry == "b", "beside the config comes before the current folder"
    home.write(".config/portico/portico.yaml", "profiles: {three: {registry: c}, two: {registry: d}}\n")
    assert chosen(home, "three").profile.registry == "c"
    assert chosen(home, "two").profile.registry == "d", "the config counts more than the file beside it"
    home.write(".config/portico/more.yml", "four: {registry: e}\n")
    home.write(".config/portico/portico.yaml", "profiles: more.yml\n")
    assert chosen(home, "four").profile.registry == "e"
    assert failure(home, "two").fix == "There are: all, base, db-registry, four."


def test_a_profile_chooses_surface_pins_and_servers(home: Home):
    home.write("project/portico.yaml", "surface: discover\npins: [one]\n" + SERVERS)
    home.write("project/profiles.yml", "mine: {surface: search, pins: [two, three], servers: [git*]}\nother: {}\n")
    settings = chosen(home, "mine")
    assert (settings.surface, settings.catalog.pins) == ("search", ("two", "three"))
    assert [spec.name for spec in settings.servers] == ["github"]
    untouched = chosen(home, "other")
    assert (untouched.surface, untouched.catalog.pins, len(untouched.servers)) == ("discover", ("one",), 2)
    home.environ["PROGRESSIVE_DISCLOSURE"] = "false"
    assert chosen(home, "mine").surface == "static", "the switch counts more"


@pytest.mark.requirement("S0-67")
def test_a_packaged_profile_pins_one_tool_unless_the_config_has_pins(home: Home):
    assert [chosen(home, name).catalog.pins for name in PACKAGED] == [("base_readQuery",), ("base_readQuery",), ()]
    home.write("project/portico.yaml", "pins: [mine]\n")
    assert chosen(home, "base").catalog.pins == ("mine",)
    home.write("project/profiles.yml", "base: {tool: [x]}\n")
    assert chosen(home, "base").catalog.pins == ("mine",)


def test_a_server_that_is_probably_misspelt_is_named(home: Home):
    home.write("project/portico.yaml", SERVERS)
    home.write("project/profiles.yml", "mine: {servers: [githb, local]}\n")
    settings = chosen(home, "mine")
    assert settings.servers == ()
    (problem,) = settings.problems
    assert str(problem) == "profile 'mine': no server is called 'githb'. Did you mean 'github'?"


@pytest.mark.requirement("F37")
def test_a_bad_pattern_is_named_with_its_line_and_lets_nothing_through(home: Home):
    file = home.write("project/profiles.yml", 'mine:\n  tool:\n    - "^base_("\n    - "(a+)+"\n    - "^ok_"\n')
    settings = chosen(home, "mine")
    first, second = settings.problems
    assert str(first).startswith(f"{file}:3: mine.tool[0]: this is not a regular expression:")
    assert str(second).startswith(f"{file}:4: mine.tool[1]: this pattern repeats a group that repeats")
    assert settings.profile.permits_tool("ok_x", "local")
    assert not settings.profile.permits_tool("base_x", "local")
    home.write("project/profiles.yml", 'mine: {tool: ["("]}\n')
    assert not chosen(home, "mine").profile.permits_tool("anything", "local")


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("mine:\n  tols: [X]\n", "this key is not known", 2),
        ("mine:\n  tool: X\n", "this must be a list", 2),
        ("mine:\n  tool: {a: b}\n", "this must be a list", 2),
        ("mine:\n  tool: [[X]]\n", "this must be one text", 2),
        ("mine:\n  servers: github\n", "this must be a list", 2),
        ("mine:\n  registry: [a]\n", "this must be text", 2),
        ("mine: [X]\n", "a profile must be a table", 1),
        ("mine: text\n", "a profile must be a table", 1),
        ("- mine\n", "a file of profiles must be a table", 1),
        ("mine: {\n", "the YAML cannot be read", None),
    ],
)
def test_a_profile_that_could_offer_too_much_cannot_be_chosen(home: Home, text: str, problem: str, line: int | None):
    file = home.write("project/profiles.yml", text)
    error = failure(home, "mine")
    assert problem in error.problem
    assert error.file == str(file)
    assert error.line == line or line is None
    assert error.fix


@pytest.mark.requirement("F37")
def test_a_broken_file_never_falls_back_to_a_packaged_profile(home: Home):
    home.write("project/profiles.yml", "base: {\n")
    assert "cannot be read" in failure(home, "base").problem


def test_what_is_odd_but_harmless_is_reported_and_the_rest_is_in_force(home: Home):
    home.write("project/profiles.yml", "mine:\n  tool:\n  surface: serch\n  comment: mine\n  registry: r\n")
    home.environ["DATABASE_URI"] = "sqlite:///shop.db"
    settings = chosen(home, "mine")
    said = {(problem.where, problem.line): problem.problem for problem in settings.problems}
    assert said == {
        ("mine.tool", 2): "this is empty",
        ("mine.surface", 3): "this is not a surface",
        ("mine.comment", 4): "this key is not known",
    }
    assert settings.profile.registry == "r"
    assert settings.profile.tool == (), "an empty list is none of them"
    assert settings.surface == "discover"


def test_somebody_elses_file_of_that_name_is_left_alone(home: Home):
    home.write("project/profiles.yml", "warehouse:\n  target: dev\n  outputs: {dev: {type: postgres}}\n")
    assert chosen(home).problems == ()
    assert chosen(home, "base").problems == (), "only what is chosen is judged"


def test_profiles_in_the_config_are_judged_even_when_none_is_chosen(home: Home):
    file = home.write("project/portico.yaml", 'surface: static\nprofiles:\n  mine: {tool: ["("]}\n')
    settings = chosen(home)
    assert [(problem.file, problem.line, problem.where) for problem in settings.problems] == [
        (str(file), 3, "profiles.mine.tool[0]")
    ]
    assert settings.surface == "static"
    for wrong in ("7", "[a]"):
        home.write("project/portico.yaml", f"profiles: {wrong}\n")
        for name in ("", "base"):
            problem = failure(home, name)
            assert (problem.where, problem.problem) == ("profiles", "this must be a path or a table")
    home.write("project/portico.yaml", "profiles: nowhere.yml\n")
    for name in ("", "base"):
        assert failure(home, name).problem == "there is no such file"


def test_tools_and_hooks_of_ones_own_are_listed_in_the_config(home: Home):
    home.write(
        "project/portico.yaml",
        'python: [my_company.tools, "tools/*.py", my_company.tools]\nyaml: ["${PLACE:-tools}/*.yml"]\n'
        "hooks: [mine.py]\n",
    )
    settings = chosen(home)
    assert (settings.local.python, settings.local.yaml) == (("my_company.tools", "tools/*.py"), ("tools/*.yml",))
    assert (settings.local.hooks, settings.folder, settings.problems) == (("mine.py",), home.project, ())
    assert settings.databases == ()
    home.write("project/portico.yaml", 'python: my.tools\nyaml: [""]\n')
    wrong = chosen(home)
    assert (wrong.local.python, wrong.local.yaml) == ((), ())
    assert [(p.where, p.problem, p.line) for p in wrong.problems] == [
        ("python", "this must be a list", 1),
        ("yaml[0]", "this is empty", 2),
    ]
