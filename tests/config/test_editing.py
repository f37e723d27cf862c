"""Servers come and go in our own config; everything else stays as it was written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.config.edit_and_import import (
    add_server,
    add_servers,
    remove_server,
    server_entries,
    with_server,
    without_server,
)
from portico.documents.document import parse_document
from portico.errors import ConfigError

from .conftest import Home
from .test_documents import TABLES, TEXTS, VALUES, _commented

ENTRY = {"command": "npx", "args": ["-y", "x"], "env": {"TOKEN": "${TOKEN}"}}

COMMENTED = """\
# my servers
surface: discover   # the default

servers:            # two of them
  # the first
  github: {command: npx, args: [-y, gh]}   # pinned

  docs:   # remote
    url: "https://h/mcp"
    # a header
    headers:
      A: b
    # the end of docs

# pins come last
pins: [a]
"""


def test_a_missing_file_is_created_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "new/folder/portico.yaml"
    add_server(file, "a", ENTRY)
    assert (
        file.read_text()
        == "servers:\n  a:\n    command: npx\n    args:\n    - -y\n    - x\n    env:\n      TOKEN: ${TOKEN}\n"
    )
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_adding_to_a_commented_file_changes_only_the_new_lines(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(COMMENTED)
    add_server(file, "new", {"command": "x"})
    text = file.read_text()
    assert text == COMMENTED.replace("      A: b\n", "      A: b\n  new:\n    command: x\n")
    remove_server(file, "new")
    assert file.read_text() == COMMENTED


def test_removing_a_server_keeps_the_comments_around_it(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(COMMENTED)
    remove_server(file, "docs")
    assert file.read_text() == COMMENTED.replace(
        '  docs:   # remote\n    url: "https://h/mcp"\n    # a header\n    headers:\n      A: b\n', ""
    )
    remove_server(file, "github")
    assert "# the first" in file.read_text()
    assert server_entries(file) == {}
    add_server(file, "again", ENTRY)
    assert server_entries(file) == {"again": ENTRY}
    assert "# two of them" in file.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "port: 1",
        "servers:\n",
        "servers: # none yet\n\n# end\n",
        "servers: {}\n# end\n",
        "servers: {b: {command: c}} # inline\n",
        "servers:\n    b:\n        command: |\n            c\n            d\n\nport: 1\n",
        "mcpServers:\n  b: {command: c}\n",
        "---\nservers:\n  b: &b {command: c}\n  d: *b\n...\n",
        "{}",
        "{servers: {b: {command: c}}, port: 1}\n",
        '{"servers": {"b": {"command": "c"}}}',
        '{\n\t"servers": { // tabs\n\t\t"b": {"command": "c"}\n\t}\n}\n',
        "servers:\r\n  b:\r\n    command: c\r\nport: 1\r\n",
    ],
)
@pytest.mark.parametrize("name", ["a", "yes", "1", "with space", "dot.ted", "ünï", "a: b", "#a", "-"])
def test_a_server_added_and_removed_leaves_the_same_data(text: str, name: str) -> None:
    file = Path("portico.yaml")
    before = parse_document(text, file).data or {}
    added = with_server(text, file, name, ENTRY)
    table = "mcpServers" if "mcpServers" in before else "servers"
    assert parse_document(added, file).data == {**before, table: {**(before.get(table) or {}), name: ENTRY}}
    removed = parse_document(without_server(added, file, name), file).data
    assert {**removed, table: removed[table] or {}} == {**before, table: before.get(table) or {}}
    assert all(line.partition("# ")[2] in added for line in text.splitlines() if "# " in line)


def test_line_endings_of_a_windows_file_stay(tmp_path: Path) -> None:
    added = with_server("servers:\r\n  b: {command: c}\r\n", Path("c.yaml"), "a", ENTRY)
    assert added.count("\n") == added.count("\r\n")


JSONC = """\
{
  // mine
  "servers": {
    "a": {"command": "x"} // the first, without a comma
    /* nothing more */
  },
  "port": 1, // default
}
"""


def test_a_json_config_keeps_its_comments() -> None:
    added = with_server(JSONC, Path("portico.json"), "b", {"command": "y"})
    assert added == JSONC.replace(
        '"x"} // the first, without a comma\n',
        '"x"}, // the first, without a comma\n    "b": {\n      "command": "y"\n    }\n',
    )
    assert without_server(added, Path("portico.json"), "b") == JSONC
    assert '"a"' not in without_server(added, Path("portico.json"), "a")


@settings(max_examples=150)
@given(st.dictionaries(TEXTS, TABLES, max_size=3), TEXTS.filter(str.strip), TABLES, st.data())
def test_json_edits_give_back_the_same_data(
    servers: dict[str, Any], name: str, entry: dict[str, Any], data: st.DataObject
) -> None:
    servers.pop(name, None)
    whole = {"port": 1, "servers": servers}
    text = (
        _commented(whole, data) if data.draw(st.booleans()) else json.dumps(whole, indent=data.draw(st.integers(0, 4)))
    )
    file = Path("portico.json")
    added = with_server(text, file, name, entry)
    assert parse_document(added, file).data == {"port": 1, "servers": {**servers, name: entry}}
    assert parse_document(without_server(added, file, name), file).data == whole
    assert _comments(text) == _comments(added)


def _comments(text: str) -> int:
    return text.count("// note, with") + text.count(" * block, [")


@settings(max_examples=150)
@given(
    # An empty name is no server's, and YAML spells it in a way of its own.
    st.dictionaries(TEXTS.filter(bool), TABLES, max_size=3),
    TEXTS.filter(str.strip),
    TABLES,
    st.dictionaries(TEXTS.filter(lambda key: key not in ("servers", "mcpServers")), VALUES, max_size=2),
    st.sampled_from([None, True, False]),
    st.booleans(),
)
def test_yaml_edits_give_back_the_same_data_and_keep_comments(
    servers: dict[str, Any], name: str, entry: dict[str, Any], rest: dict[str, Any], flow: bool | None, first: bool
) -> None:
    servers.pop(name, None)
    whole = {"servers": servers, **rest} if first else {**rest, "servers": servers}
    text = yaml.safe_dump(whole, allow_unicode=True, default_flow_style=flow, sort_keys=False, width=10**6)
    text = f"# above\n{text}# below\n"
    file = Path("portico.yaml")
    added = with_server(text, file, name, entry)
    assert parse_document(added, file).data == {**whole, "servers": {**servers, name: entry}}
    removed = without_server(added, file, name)
    data = parse_document(removed, file).data
    assert {**data, "servers": data["servers"] or {}} == whole
    assert added.startswith("# above\n")
    assert "# below\n" in removed


def test_a_name_that_is_taken_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(COMMENTED)
    with pytest.raises(
        ConfigError, match=r"portico\.yaml:8: servers\.docs: .*there already\. Choose another name"
    ) as caught:
        add_servers(file, {"new": ENTRY, "docs": ENTRY})
    assert caught.value.line == 8
    assert file.read_text() == COMMENTED
    assert os.listdir(tmp_path) == ["portico.yaml"]


def test_removing_what_is_not_there_names_what_is(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(COMMENTED)
    with pytest.raises(ConfigError, match=r"there is no server 'githb'. Did you mean 'github'"):
        remove_server(file, "githb")


@pytest.mark.parametrize("text", ["servers: [a]\n", "- a\n", "servers:\n\ta: b\n"])
def test_a_broken_file_is_not_touched(tmp_path: Path, text: str) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"portico\.yaml:"):
        add_server(file, "a", ENTRY)
    assert file.read_text() == text


def test_mode_and_link_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.yaml"
    target.write_text("port: 1\n")
    target.chmod(0o640)
    link = tmp_path / "portico.yaml"
    link.symlink_to(target)
    add_server(link, "a", ENTRY)
    assert link.is_symlink()
    assert server_entries(target) == {"a": ENTRY}
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        add_server(tmp_path / "file/portico.yaml", "a", ENTRY)


def test_an_added_server_is_loaded(home: Home) -> None:
    home.environ["TOKEN"] = "t"
    add_server(home.load().home.config_file, "a", ENTRY)
    (spec,) = home.load().servers
    assert (spec.args, spec.env) == (("-y", "x"), {"TOKEN": "t"})
