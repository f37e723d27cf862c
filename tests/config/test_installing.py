"""Portico is entered in a client's file, and taken out again, without harm to the rest."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config.clients import CLIENTS
from portico.config.install import InstallPlan, apply, apply_undo, plan_install, plan_local_removal, plan_undo
from portico.documents.json_text import drop_member, put_member
from portico.documents.toml_text import drop_table, put_table
from portico.errors import ConfigError

from .conftest import Home
from .test_documents import TABLES, TEXTS

ENTRY = {"command": "portico", "args": ["serve", "--stdio"]}
URL = "http://127.0.0.1:8421/mcp"
GOOSE = {"name": "portico", "enabled": True, "timeout": 300}
GOOSE_HTTP = {"type": "streamable_http", "uri": URL}
SECRET = "ghp_abcdefghijklmnop0123456789"


def plan(home: Home, client: str, **options: Any) -> InstallPlan:
    return plan_install(client, environ=home.environ, cwd=home.project, platform="linux", **options)


def take_back(home: Home, client: str, **options: Any) -> Any:
    made = plan_undo(client, environ=home.environ, cwd=home.project, platform="linux", **options)
    return SimpleNamespace(kept=apply_undo(made), exists=made.after is not None, diff=made.diff)


@pytest.mark.parametrize(
    ("client", "stdio", "http"),
    [
        ("claude-desktop", ENTRY, None),
        ("claude-code", {"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
        ("cursor", ENTRY, {"url": URL}),
        ("vscode", {"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
        ("codex", {**ENTRY, "startup_timeout_sec": 30}, {"url": URL}),
        ("gemini", ENTRY, {"httpUrl": URL}),
        ("windsurf", ENTRY, {"serverUrl": URL}),
        ("copilot-cli", {"type": "local", **ENTRY, "tools": ["*"]}, {"type": "http", "url": URL, "tools": ["*"]}),
        (
            "opencode",
            {"type": "local", "command": ["portico", "serve", "--stdio"], "enabled": True},
            {"type": "remote", "url": URL, "enabled": True},
        ),
        ("goose", {"type": "stdio", "cmd": "portico", "args": ENTRY["args"], **GOOSE}, {**GOOSE_HTTP, **GOOSE}),
        ("zed", {**ENTRY, "source": "custom"}, {"url": URL}),
        ("cline", {"type": "stdio", **ENTRY}, {"type": "streamableHttp", "url": URL}),
        ("roo", {"type": "stdio", **ENTRY}, {"type": "streamable-http", "url": URL}),
        ("lm-studio", ENTRY, {"url": URL}),
        ("amp", ENTRY, {"url": URL}),
        ("kiro", ENTRY, {"url": URL}),
        ("warp", ENTRY, {"url": URL}),
    ],
)
def test_a_client_without_a_file_gets_one_with_portico_in_its_own_spelling(
    home: Home, client: str, stdio: dict[str, Any], http: dict[str, Any] | None
) -> None:
    for via, entry in (("stdio", stdio), ("http", http)):
        if entry is None:
            with pytest.raises(ConfigError, match=r"starts programs only.*Install it through stdio"):
                plan(home, client, via=via)
            continue
        made = plan(home, client, via=via)
        assert made.is_change
        apply(made)
        text = made.path.read_text()
        data = tomllib.loads(text) if client == "codex" else yaml.safe_load(text)
        assert data == {CLIENTS[client].table: {"portico": entry}}
        (spec,) = home.load(made.path).servers
        assert (spec.command or spec.url) in ("portico", URL)


COMMENTED = f"""{{
  // what I use
  "servers": {{
    "github": {{
      "command": "npx", // pinned
      "env": {{"GITHUB_TOKEN": "{SECRET}"}},
    }}, // keep
  }},
  "inputs": [], /* none */
}}
"""


def test_a_commented_file_keeps_everything_and_gains_one_entry(home: Home) -> None:
    file = home.write("project/.vscode/mcp.json", COMMENTED)
    file.chmod(0o644)
    made = plan(home, "vscode", scope="project")
    backup = apply(made)
    assert backup == file.with_name("mcp.json.portico-backup")
    assert backup.read_text() == COMMENTED
    added = """    "portico": {
      "type": "stdio",
      "command": "portico",
      "args": [
        "serve",
        "--stdio"
      ]
    }
"""
    assert file.read_text() == COMMENTED.replace("}, // keep\n", "}, // keep\n" + added)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [spec.name for spec in home.load(file).servers] == ["github", "portico"]


def test_the_diff_shows_the_change_and_no_secret(home: Home) -> None:
    home.write("project/.vscode/mcp.json", COMMENTED)
    made = plan(home, "vscode", scope="project", replace=True)
    assert made.removed == ("github",)
    assert '+    "portico": {' in made.diff
    assert '-    "github": {' in made.diff
    assert SECRET not in made.diff
    assert SECRET not in repr(made)
    apply(made)
    assert [spec.name for spec in home.load(made.path).servers] == ["portico"]
    assert "// what I use" in made.path.read_text()


def test_installing_twice_changes_nothing_the_second_time(home: Home) -> None:
    home.write(".cursor/mcp.json", '{"mcpServers": {"a": {"command": "x"}}}')
    apply(plan(home, "cursor"))
    again = plan(home, "cursor")
    assert (again.is_change, again.diff, apply(again)) == (False, "", None)
    assert sorted(os.listdir(home.folder / ".cursor")) == ["mcp.json", "mcp.json.portico-backup"]


def test_an_older_entry_is_updated_in_place(home: Home) -> None:
    file = home.write(
        ".cursor/mcp.json", '{\n  "mcpServers": {\n    "portico": {"command": "old"},\n    "a": {}\n  }\n}\n'
    )
    apply(plan(home, "cursor", via="http"))
    data = json.loads(file.read_text())
    assert list(data["mcpServers"].items()) == [("portico", {"url": URL}), ("a", {})]


def test_backups_are_numbered_and_undone_one_by_one(home: Home) -> None:
    file = home.write(".cursor/mcp.json", "{}")
    apply(plan(home, "cursor"))
    first = file.read_text()
    apply(plan(home, "cursor", via="http"))
    second = file.read_text()
    assert file.with_name("mcp.json.portico-backup").read_text() == "{}"
    assert file.with_name("mcp.json.portico-backup.2").read_text() == first
    done = take_back(home, "cursor")
    assert file.read_text() == first
    assert done.kept.read_text() == second
    take_back(home, "cursor")
    assert file.read_text() == "{}"
    with pytest.raises(ConfigError, match=r"mcp\.json: there is no entry 'portico' in it"):
        take_back(home, "cursor")


def test_undoing_the_creation_of_a_file_removes_it(home: Home) -> None:
    made = plan(home, "codex")
    apply(made)
    done = take_back(home, "codex")
    assert not done.exists
    assert not made.path.exists()


def test_a_backup_of_a_private_file_is_private(home: Home) -> None:
    home.write(".cursor/mcp.json", "{}").chmod(0o600)
    backup = apply(plan(home, "cursor"))
    assert backup is not None
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


def test_a_file_that_changed_after_the_plan_is_left_alone(home: Home) -> None:
    file = home.write(".cursor/mcp.json", "{}")
    made = plan(home, "cursor")
    file.write_text('{"new": 1}')
    with pytest.raises(ConfigError, match=r"changed since the plan was made. Run the command again"):
        apply(made)
    assert file.read_text() == '{"new": 1}'
    assert os.listdir(file.parent) == ["mcp.json"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"mcpServers": {', "never closed"),
        ('{"mcpServers": []}', "not a table"),
        ("[]", "not a table"),
        ('{"mcpServers": {"portico": {},\n"portico": {}}}', "already stands on line 1"),
    ],
)
def test_a_broken_client_file_is_an_error_and_nothing_is_written(home: Home, text: str, problem: str) -> None:
    file = home.write(".cursor/mcp.json", text)
    with pytest.raises(ConfigError, match=problem) as caught:
        plan(home, "cursor")
    assert caught.value.file == str(file)
    assert caught.value.line
    assert caught.value.fix
    assert os.listdir(file.parent) == ["mcp.json"]


CODEX = f"""\
model = "o"  # the best

# my server
[mcp_servers.a]
command = "x"

[mcp_servers.a.env]
TOKEN = "{SECRET}"

# how it looks
[tui]
theme = "dark"
"""


def test_codex_toml_keeps_its_comments_and_tables(home: Home) -> None:
    file = home.write(".codex/config.toml", CODEX)
    made = plan(home, "codex")
    apply(made)
    block = '[mcp_servers.portico]\ncommand = "portico"\nargs = ["serve", "--stdio"]\nstartup_timeout_sec = 30\n'
    assert file.read_text() == f"{CODEX}\n{block}"
    apply(plan(home, "codex", via="http"))
    assert file.read_text() == f'{CODEX}\n[mcp_servers.portico]\nurl = "{URL}"\n'
    replaced = plan(home, "codex", replace=True)
    assert SECRET not in replaced.diff
    apply(replaced)
    assert tomllib.loads(file.read_text()) == {
        "model": "o",
        "tui": {"theme": "dark"},
        "mcp_servers": {"portico": {**ENTRY, "startup_timeout_sec": 30}},
    }
    assert "# how it looks\n[tui]" in file.read_text()


def test_toml_that_cannot_be_edited_says_what_to_add(home: Home) -> None:
    text = 'mcp_servers = { a = { command = "x" } }\n'
    file = home.write(".codex/config.toml", text)
    with pytest.raises(
        ConfigError, match=r"config\.toml:1: mcp_servers: .*Add this table by hand: \[mcp_servers\.portico\]"
    ):
        plan(home, "codex")
    assert file.read_text() == text


def test_a_client_without_project_files_says_so(home: Home) -> None:
    with pytest.raises(ConfigError, match="Windsurf has no config file per project"):
        plan(home, "windsurf", scope="project")


def test_an_unknown_client_is_answered_with_the_nearest(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"'vs-code' is not a client we know. Did you mean 'vscode'"):
        plan(home, "vs-code")


def test_a_program_outside_the_path_can_be_named(home: Home) -> None:
    made = plan(home, "claude-desktop", command="/opt/bin/portico", args=("serve", "--stdio", "--config", "/x.yaml"))
    assert json.loads(made.after)["mcpServers"]["portico"]["command"] == "/opt/bin/portico"


@given(TABLES, TEXTS, TABLES, st.sampled_from([None, 0, 1, 2, 4, "\t"]))
def test_json_members_come_and_go_in_any_layout(
    servers: dict[str, Any], name: str, entry: dict[str, Any], indent: Any
) -> None:
    servers.pop(name, None)
    text = json.dumps({"a": 1, "servers": servers, "z": [1]}, indent=indent)
    added = put_member(text, ("servers", name), entry)
    assert json.loads(added) == {"a": 1, "servers": {**servers, name: entry}, "z": [1]}
    assert json.loads(drop_member(added, ("servers", name))) == json.loads(text)
    assert json.loads(put_member(text, ("new", "table", name), entry))["new"] == {"table": {name: entry}}


@settings(max_examples=60)
@given(TEXTS, st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS), max_size=3))
def test_toml_tables_come_and_go(name: str, entry: dict[str, Any]) -> None:
    added = put_table(CODEX, ("mcp_servers", name), entry)
    expected = tomllib.loads(CODEX)
    expected["mcp_servers"][name] = entry
    assert tomllib.loads(added) == expected
    if '"' not in name and "\\" not in name and "]" not in name and "[" not in name and name != "a":
        assert tomllib.loads(drop_table(added, ("mcp_servers", name))) == tomllib.loads(CODEX)


MINE = json.dumps({"mcpServers": {"mine": {"command": "x", "env": {"TOKEN": SECRET}}}}, indent=2) + "\n"


def add_later(home: Home, name: str, server: str) -> None:
    """Somebody adds a server to a client's file after the installation."""
    file = home.folder / name
    data = json.loads(file.read_text())
    data["mcpServers"][server] = {"command": "later"}
    file.write_text(json.dumps(data))


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_undo_takes_our_entry_alone_and_keeps_what_came_later(home: Home) -> None:
    file = home.write(".cursor/mcp.json", MINE)
    apply(plan(home, "cursor"))
    add_later(home, ".cursor/mcp.json", "later")
    done = take_back(home, "cursor")
    assert done.exists
    assert list(json.loads(file.read_text())["mcpServers"]) == ["mine", "later"]
    assert "portico" in done.diff
    assert SECRET not in done.diff
    assert done.kept is not None
    assert "portico" in done.kept.read_text()


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_undo_restores_the_file_to_the_letter_when_nothing_else_has_changed(home: Home) -> None:
    file = home.write(".cursor/mcp.json", MINE)
    apply(plan(home, "cursor"))
    take_back(home, "cursor")
    assert file.read_text() == MINE


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_a_file_that_install_created_goes_only_when_nothing_else_is_in_it(home: Home) -> None:
    made = plan(home, "cursor")
    apply(made)
    add_later(home, ".cursor/mcp.json", "later")
    assert take_back(home, "cursor").exists
    assert list(json.loads(made.path.read_text())["mcpServers"]) == ["later"]
    made.path.unlink()
    apply(plan(home, "cursor"))
    made.path.write_text(json.dumps(json.loads(made.path.read_text())))  # only its layout has changed
    assert not take_back(home, "cursor").exists
    assert not made.path.exists()


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_an_entry_that_has_changed_is_refused_until_it_is_forced(home: Home) -> None:
    file = home.write(".cursor/mcp.json", MINE)
    apply(plan(home, "cursor"))
    data = json.loads(file.read_text())
    data["mcpServers"]["portico"]["env"] = {"A": "b"}
    file.write_text(json.dumps(data))
    before = file.read_text()
    with pytest.raises(ConfigError, match=r"the entry has changed since it was installed.*--force"):
        take_back(home, "cursor")
    assert file.read_text() == before
    take_back(home, "cursor", force=True)
    assert list(json.loads(file.read_text())["mcpServers"]) == ["mine"]


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_undo_brings_back_what_replace_took_out(home: Home) -> None:
    file = home.write(".cursor/mcp.json", MINE)
    apply(plan(home, "cursor", replace=True))
    add_later(home, ".cursor/mcp.json", "later")
    take_back(home, "cursor")
    found = json.loads(file.read_text())["mcpServers"]
    assert found == {"later": {"command": "later"}, "mine": {"command": "x", "env": {"TOKEN": SECRET}}}


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_planning_an_undo_writes_nothing(home: Home) -> None:
    file = home.write(".cursor/mcp.json", MINE)
    apply(plan(home, "cursor"))
    before = file.read_text()
    made = plan_undo("cursor", environ=home.environ, cwd=home.project, platform="linux")
    assert '-    "portico": {' in made.diff
    assert file.read_text() == before


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_a_yaml_file_keeps_its_comments_through_install_and_undo(home: Home) -> None:
    text = "# mine\nGOOSE_PROVIDER: x\nextensions:\n  developer:\n    type: builtin\n    enabled: true\n"
    file = home.write(".config/goose/config.yaml", text)
    apply(plan(home, "goose"))
    assert file.read_text().startswith(text.rstrip("\n"))
    file.write_text(file.read_text() + "GOOSE_MODE: auto\n")
    take_back(home, "goose")
    assert yaml.safe_load(file.read_text()) == {**yaml.safe_load(text), "GOOSE_MODE": "auto"}
    assert "# mine" in file.read_text()


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_replace_keeps_what_portico_cannot_serve(home: Home) -> None:
    home.write(".cursor/mcp.json", '{"mcpServers": {"good": {"command": "x"}, "odd": {"sse_magic": 1}, "bad": []}}')
    made = plan(home, "cursor", replace=True)
    assert (made.removed, made.kept) == (("good",), ("odd", "bad"))
    apply(made)
    assert sorted(json.loads(made.path.read_text())["mcpServers"]) == ["bad", "odd", "portico"]


@pytest.mark.requirement("P-INSTALL-UNDO")
def test_servers_of_one_folder_are_planned_apart(home: Home) -> None:
    folder = str(home.project)
    user = {"mcpServers": {}, "projects": {folder: {"mcpServers": {"near": {"command": "n"}}, "history": [1]}}}
    file = home.write(".claude.json", json.dumps(user, indent=2))
    shared = home.write("project/.mcp.json", '{"mcpServers": {"team": {"command": "t"}}}')
    first = plan(home, "claude-code", replace=True)
    assert first.removed == ()
    plans = plan_local_removal("claude-code", environ=home.environ, cwd=home.project, platform="linux")
    assert [(one.path, one.removed) for one in plans] == [(shared, ("team",)), (file, ("near",))]
    for one in plans:
        apply(one)
    assert json.loads(shared.read_text()) == {"mcpServers": {}}
    assert json.loads(file.read_text())["projects"][folder] == {"mcpServers": {}, "history": [1]}


def test_continue_is_installed_for_a_project_only(home: Home) -> None:
    with pytest.raises(ConfigError, match="holds a list"):
        plan(home, "continue")
    made = plan(home, "continue", scope="project")
    apply(made)
    assert made.path == home.project / ".continue/mcpServers/portico.json"
    assert json.loads(made.path.read_text()) == {"mcpServers": {"portico": {"type": "stdio", **ENTRY}}}
