"""Databases in the config, and the one that a profile's registry means."""

from __future__ import annotations

import pytest

from portico.config import GatewaySettings, load_settings

from .conftest import Home


def loaded(home: Home, text: str = "", **environ: str) -> GatewaySettings:
    if text:
        home.write("project/portico.yaml", text)
    home.trust()
    return load_settings(None, {**home.environ, **environ}, home.project)


@pytest.mark.requirement("S4-38")
def test_a_database_has_a_url_a_registry_and_what_its_tools_may_use(home: Home) -> None:
    text = (
        "databases:\n"
        '  warehouse: {url: "postgresql+asyncpg://u:${PW}@h/d", registry: mcp, refresh_s: 5, role: reader,\n'
        "    roles: {alice: analyst, '*': guest}, registry_override: false, writes: true, rows: 10, bytes: 5000,\n"
        "    seconds: 2.5}\n"
        "  files: {url: sqlite:///shop.db, registry: mcp}\n"
    )
    settings = loaded(home, text, PW="secret")
    assert settings.problems == ()
    warehouse, files = settings.databases
    assert warehouse.url == "postgresql+asyncpg://u:secret@h/d"
    assert (warehouse.refresh_s, warehouse.role, warehouse.roles) == (5, "reader", {"alice": "analyst", "*": "guest"})
    assert (warehouse.registry_override, warehouse.writes) == (False, True)
    assert (warehouse.rows, warehouse.bytes, warehouse.seconds) == (10, 5_000, 2.5)
    assert files.url == f"sqlite:///{home.project / 'shop.db'}"
    assert (files.registry_override, files.writes, files.roles, files.line) == (True, False, {}, 5)
    assert "secret" not in repr(settings)


@pytest.mark.requirement("P-BAD-CONFIG")
def test_what_is_wrong_with_a_database_is_named_by_line_and_the_others_are_used(home: Home) -> None:
    text = (
        "databases:\n"
        "  good: {url: sqlite:///a.db, registry: mcp}\n"
        "  no_url: {registry: mcp}\n"
        "  no_registry: {url: sqlite:///b.db}\n"
        "  odd: {url: sqlite:///c.db, registry: mcp, refesh_s: 5}\n"
        "  much: {url: sqlite:///d.db, registry: mcp, rows: 0}\n"
        "  text: sqlite:///e.db\n"
        "  busy: {url: sqlite:///f.db, registry: mcp, refresh_s: 0.0001}\n"
        "  long: {url: sqlite:///g.db, registry: mcp, seconds: 1000000000000}\n"
    )
    settings = loaded(home, text)
    assert [spec.name for spec in settings.databases] == ["good"]
    assert [(p.line, p.where) for p in settings.problems] == [
        (3, "databases.no_url.url"),
        (4, "databases.no_registry.registry"),
        (5, "databases.odd.refesh_s"),
        (6, "databases.much.rows"),
        (7, "databases.text"),
        (8, "databases.busy.refresh_s"),
        (9, "databases.long.seconds"),
    ]
    assert "Did you mean 'refresh_s'?" in settings.problems[2].fix
    (problem,) = loaded(home, "databases: [a]\n").problems
    assert problem.where == "databases"


@pytest.mark.requirement("S4-38", "S4-46", "S4-50", "S4-51")
def test_a_profile_with_a_registry_takes_the_database_of_the_environment(home: Home) -> None:
    settings = loaded(home, DATABASE_URI="postgresql://u:secret@h/d", MCP_PROFILE="db-registry")
    (spec,) = settings.databases
    assert (spec.name, spec.registry, spec.url, settings.problems) == ("mcp", "mcp", "postgresql://u:secret@h/d", ())


@pytest.mark.requirement("P-DATABASE-SUPERUSER")
def test_a_superuser_is_allowed_for_one_database_or_for_that_of_the_environment(home: Home) -> None:
    first, second = "{url: sqlite:///a.db, registry: x, allow_superuser: true}", "{url: sqlite:///b.db, registry: y}"
    text = f"databases:\n  a: {first}\n  b: {second}\n"
    assert [spec.allow_superuser for spec in loaded(home, text).databases] == [True, False]
    assert not loaded(home).local.allow_superuser
    assert loaded(home, "allow_superuser: true\n").local.allow_superuser
    uri = "postgresql://u@h/d"
    settings = loaded(home, DATABASE_URI=uri, DATABASE_ALLOW_SUPERUSER="1", MCP_PROFILE="db-registry")
    assert (settings.local.allow_superuser, settings.databases[0].allow_superuser) == (True, True)
    assert not loaded(home, "allow_superuser: true\n", DATABASE_ALLOW_SUPERUSER="false").local.allow_superuser
    wrong = loaded(home, DATABASE_ALLOW_SUPERUSER="perhaps")
    assert (wrong.local.allow_superuser, [problem.where for problem in wrong.problems]) == (
        False,
        ["DATABASE_ALLOW_SUPERUSER"],
    )


@pytest.mark.requirement("S4-10", "S4-E8")
def test_a_profile_whose_registry_has_no_database_says_so_and_nothing_else_happens(home: Home) -> None:
    settings = loaded(home, PROFILE="db-registry")
    assert settings.databases == ()
    (problem,) = settings.problems
    assert (problem.where, "DATABASE_URI" in problem.fix) == ("profile 'db-registry'", True)
    assert loaded(home).problems == ()


def test_a_database_in_the_config_may_be_the_one_that_a_profile_means(home: Home) -> None:
    text = (
        "databases:\n  warehouse: {url: sqlite:///a.db, registry: mcp}\n  other: {url: sqlite:///b.db, registry: x}\n"
    )
    settings = loaded(home, text, MCP_PROFILE="db-registry", DATABASE_URI="sqlite:///c.db")
    assert [spec.name for spec in settings.databases] == ["warehouse", "other"]
    narrowed = text + "profiles:\n  one: {servers: [other]}\n"
    assert [spec.name for spec in loaded(home, narrowed, MCP_PROFILE="one").databases] == ["other"]


@pytest.mark.requirement("S4-E13")
def test_a_pattern_that_reads_like_a_glob_is_pointed_out_and_means_what_it_says(home: Home) -> None:
    settings = loaded(home, 'profiles:\n  mine: {tool: ["^base_*", "^dba_.*"]}\n', MCP_PROFILE="mine")
    (problem,) = settings.problems
    assert (problem.where, problem.line) == ("profiles.mine.tool[0]", 2)
    assert "^base_.*" in problem.fix
    assert settings.profile.permits_tool("base_readQuery", "local")
    assert settings.profile.permits_tool("baseline", "local")
