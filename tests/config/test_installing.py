"""Portico is entered in a client's file, and taken out again, without harm to the rest."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config import CLIENTS, InstallPlan, apply, plan_install, undo
from portico.config.jsontext import drop_member, put_member
from portico.config.tomltext import drop_table, put_table
from portico.errors import ConfigError

from .conftest import Home
from .test_documents import TABLES, TEXTS

ENTRY = {"command": "portico", "args": ["serve", "--stdio"]}
URL = "http://127.0.0.1:8421/mcp"
SECRET = "ghp_abcdefghijklmnop0123456789"


def plan(home: Home, client: str, **options: Any) -> InstallPlan:
    return plan_install(client, environ=home.environ, cwd=home.project, platform="linux", **options)


def take_back(home: Home, client: str, **options: Any) -> Any:
    return undo(client, environ=home.environ, cwd=home.project, platform="linux", **options)


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
        data = tomllib.loads(text) if client == "codex" else json.loads(text)
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
    with pytest.raises(ConfigError, match=r"mcp\.json: there is no backup to go back to"):
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
