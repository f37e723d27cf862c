"""Broken configs: each message names the file, the line, the field and what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico.config.edit_and_import import with_server
from portico.documents.document import SIZE, parse_document
from portico.errors import ConfigError

from .conftest import Home

ENTRIES = [
    # entry of the server `s` on line 3, the field that is named, a part of the problem, a part of the fix
    ("{}", "", "needs a command or a url", "command and args, or url"),
    ("null", "", "must be a table", "command and args"),
    ("npx", "", "must be a table", "command and args"),
    ("[npx]", "", "must be a table", "command and args"),
    ('{command: a, url: "http://b"}', ".url", "either a command or a url", "Delete one"),
    ("{command: 5}", ".command", "must be text", "in quotes"),
    ('{command: ""}', ".command", "command is empty", "npx"),
    ('{command: "npx \'oops"}', ".command", "quote that is never closed", "list of args"),
    ("{args: [a]}", ".args", "there is none", "Add command"),
    ("{command: a, args: b c}", ".args", "must be a list", '["one", "two"]'),
    ("{command: a, args: [b, [c]]}", ".args[1]", "must be one text", "in quotes"),
    ("{command: a, args: [null]}", ".args[0]", "must be one text", "in quotes"),
    ("{command: a, env: [A=b]}", ".env", "must be a table", 'NAME: "value"'),
    ("{command: a, env: {A: [b]}}", ".env.A", "must be one text", "in quotes"),
    ('{command: a, env: {"A=b": c}}', ".env.A=b", "not a variable's name", 'NAME: "value"'),
    ("{command: a, cwd: [b]}", ".cwd", "must be text", "in quotes"),
    (
        '{command: a, env: {A: "${NOPE}"}}',
        ".env.A",
        "variable NOPE is not set",
        "Export NOPE, or write ${NOPE:-default}",
    ),
    ('{command: a, args: ["${NOPE}"]}', ".args[0]", "variable NOPE is not set", "Export NOPE"),
    ('{command: a, env: {A: "${input:api-key}"}}', ".env.A", "asks a question in the editor", "write ${API_KEY}"),
    ('{command: a, env: {A: "${OPEN"}}', ".env.A", "never closed", "${NAME}"),
    ('{command: a, env: {A: "${x%y}"}}', ".env.A", "${x...} is not understood", "$${"),
    ("{url: example.com/mcp}", ".url", "not an http or https address", "https://host/mcp"),
    ('{url: "ws://h/mcp"}', ".url", "not an http or https address", "https://host/mcp"),
    ('{url: "http://[::1"}', ".url", "not an http or https address", "https://host/mcp"),
    ('{url: "http://h:99999/"}', ".url", "not an http or https address", "https://host/mcp"),
    ('{url: "http://h h/"}', ".url", "not an http or https address", "https://host/mcp"),
    ('{url: ""}', ".url", "not an http or https address", "https://host/mcp"),
    ('{url: "http://h", headers: {"a b": c}}', ".headers.a b", "not a header's name", "Authorization"),
    ('{url: "http://h", headers: {A: "b\\nc"}}', ".headers.A", "line break", "on one line"),
    ("{command: a, type: htpp}", ".type", "not a transport", "Did you mean 'http'"),
    ("{command: a, type: http}", ".type", "needs a url", "Delete the type"),
    ('{url: "http://h", transport: stdio}', ".transport", "needs a command", "Delete the type"),
    ('{url: "http://h", type: sse, transport: http}', ".transport", "contradict", "Keep one"),
    ("{command: a, enabled: maybe}", ".enabled", "true or false", "Write true or false"),
    ("{command: a, enabled: true, disabled: true}", ".disabled", "contradict", "Keep one"),
    ("{command: a, timeout: -1}", ".timeout", "above 0", "plain number"),
    ("{command: a, timeout: soon}", ".timeout", "above 0", "plain number"),
    ("{command: a, timeouts: {call: 0}}", ".timeouts.call", "above 0", "plain number"),
    ("{command: a, timeouts: {idle: -1}}", ".timeouts.idle", "at least 0", "plain number"),
    ("{command: a, timeouts: {start: .inf}}", ".timeouts.start", "above 0", "plain number"),
    ("{command: a, timeouts: {calls: 5}}", ".timeouts.calls", "not known", "Did you mean 'call'"),
    ("{command: a, timeouts: 5}", ".timeouts", "must be a table", "start, call, total, idle"),
    ("{comand: a}", ".comand", "not known", "Did you mean 'command'"),
    ('{command: "a\\0b"}', ".command", "zero byte", "Delete it"),
]


@pytest.mark.parametrize(("entry", "field", "problem", "fix"), ENTRIES, ids=[row[0] for row in ENTRIES])
def test_a_bad_entry_is_named_and_mended_and_the_others_run(
    home: Home, entry: str, field: str, problem: str, fix: str
) -> None:
    file = home.write("project/portico.yaml", f"servers:\n  good: {{command: a}}\n  s: {entry}\n")
    settings = home.load()
    assert [spec.name for spec in settings.servers] == ["good"]
    found = [str(one) for one in settings.problems if one.where == f"servers.s{field}"]
    assert found, [str(one) for one in settings.problems]
    assert any(text.startswith(f"{file}:3: servers.s{field}: ") and problem in text and fix in text for text in found)


TOP_LEVEL = [
    ("surfce: static", "surfce", "not known", "Did you mean 'surface'"),
    ("banana: 1", "banana", "not known", "Use one of: surface, servers"),
    ("surface: statik", "surface", "not a surface", "Did you mean 'static'"),
    ("surface: [a]", "surface", "must be text", "in quotes"),
    ("port: 70000", "port", "not a usable number", "from 0 to 65535"),
    ("port: http", "port", "not a usable number", "from 0 to 65535"),
    ("port: 1.5", "port", "not a usable number", "from 0 to 65535"),
    ('host: "${NOPE}"', "host", "variable NOPE is not set", "Export NOPE"),
    ("pins: base_readQuery", "pins", "must be a list", '["one", "two"]'),
    ("categories: [a]", "categories", "must be a table", "NAME"),
    ("search: {tokens: -5}", "search.tokens", "not a usable number", "from 1"),
    ("search: {limits: 5}", "search.limits", "not known", "Did you mean 'limit'"),
    ("mcpServers: [a]", "mcpServers", "must be a table", "a name for each server"),
    ("port: 8421", "port", "already stands on line 1", "Rename or delete one of the two"),
]


@pytest.mark.parametrize(("line", "field", "problem", "fix"), TOP_LEVEL, ids=[row[0] for row in TOP_LEVEL])
def test_a_bad_key_is_named_and_its_default_is_used(home: Home, line: str, field: str, problem: str, fix: str) -> None:
    first = "port: 8421" if line == "port: 8421" else "# first"
    file = home.write("project/portico.yaml", f"{first}\nservers: {{good: {{command: a}}}}\n{line}\n")
    settings = home.load()
    (found,) = settings.problems
    assert str(found).startswith(f"{file}:3: {field}: ")
    assert problem in str(found)
    assert fix in str(found)
    assert (settings.surface, settings.http.port, settings.http.host) == ("discover", 8421, "127.0.0.1")
    assert [spec.name for spec in settings.servers] == ["good"]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

WHOLE_FILES = [
    # name, text, line, a part of the problem, a part of the fix
    ("c.yaml", "servers:\n\tgithub: {}\n", 2, "cannot be read", "Indent with spaces"),
    ("c.yaml", "servers:\n  a: b: c\n", 2, "mapping values are not allowed", "quotes"),
    ("c.yaml", "servers:\n  a: 'open\n", 2, "end of stream", "Close the quote"),
    ("c.yaml", "servers:\n  a: {command: x\nport: 1\n", None, "cannot be read", ""),
    ("c.yaml", "servers: {a: {env: {T: ${TOKEN}}}}\n", 1, "cannot be read", 'as in "${NAME}"'),
    ("c.yaml", "a: *nope\n", 1, "alias", "Define it"),
    ("c.yaml", "a: &a [*a]\n", 1, "alias 'a' is not defined", "Define it"),
    ("c.yaml", "a: 1\n---\nb: 2\n", 2, "second document", "one document per file"),
    ("c.yaml", "a: !!python/object:os.system x\n", 1, "tag", "Delete the tag"),
    ("c.yaml", "? [a]\n: b\n", 1, "key must be plain text", "quotes"),
    ("c.yaml", "port: 1\nhost: \x07\n", 2, "character", "Delete"),
    ("c.yaml", "- a\n- b\n", 1, "must be a table", "servers:"),
    ("c.yaml", "just words\n", 1, "must be a table", "servers:"),
    ("c.yaml", "- " * 70 + "a", 1, "nested more than 64 deep", "Flatten"),
    ("c.yaml", "- " * 500_000, 1, "nested more than 64 deep", "Flatten"),
    ("c.yaml", "[" * 500_000, 1, "nested more than 64 deep", "Flatten"),
    ("c.yaml", BOMB, 6, "the file holds more than", "without aliases"),
    ("c.json", '{"servers": {\n  "a": {"command": "x"\n', 2, "never closed", "Add the missing '}'"),
    ("c.json", '{"a": 1\n "b": 2}', 1, "comma is missing", "Put a comma"),
    ("c.json", '{"a" 1}', 1, "colon is missing after 'a'", '"key": value'),
    ("c.json", "{'a': 1}", 1, "double quotes", '"key": value'),
    ("c.json", "{a: 1}", 1, "double quotes", '"key": value'),
    ("c.json", '{\n"a": "open\n}', 2, "no closing quote", 'Add the closing "'),
    ("c.json", '{"a": "\\x"}', 1, "escape", "backslash"),
    ("c.json", '{"a": "\\ud800"}', 1, "escape", "backslash"),
    ("c.json", '{"a": True}', 1, "not a JSON value", "small letters"),
    ("c.json", '{"a": NaN}', 1, "not a JSON value", "double quotes"),
    ("c.json", '{"a": 01}', 1, "not a JSON value", "double quotes"),
    ("c.json", '{"a": }', 1, "not a JSON value", "double quotes"),
    ("c.json", '{"a": 1}\n}', 2, "text after the end", "Delete it"),
    ("c.json", '{"a": 1,,}', 1, "double quotes", '"key": value'),
    ("c.json", "{ /* open", 1, "comment opened here is never closed", "*/"),
    ("c.json", "[" * 100_000, 1, "nested more than 64 deep", "Flatten"),
    ("c.json", "[1]", 1, "must be a table", "servers:"),
    ("c.toml", "a = 1\nb = \n", 2, "TOML cannot be read", 'key = "value"'),
    ("c.toml", "[mcp_servers.a]\ncommand='x'\n[mcp_servers.a]\n", 3, "TOML cannot be read", "every [table] once"),
    ("c.toml", "a = " + "[" * 5000, 1, "", ""),
]


@pytest.mark.parametrize(("name", "text", "line", "problem", "fix"), WHOLE_FILES, ids=lambda value: str(value)[:40])
def test_a_file_that_cannot_be_parsed_says_where_and_what_to_write(
    home: Home, name: str, text: str, line: int | None, problem: str, fix: str
) -> None:
    file = home.write(name, text)
    with pytest.raises(ConfigError) as caught:
        home.load(file)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line if line else ''}")
    assert problem in message
    assert fix in message
    assert caught.value.fix


def test_a_file_that_is_not_utf_8_says_so(home: Home) -> None:
    file = home.write("c.yaml", b"port: 1\nhost: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"c\.yaml:2: the file is not UTF-8 text\. Save it as UTF-8"):
        home.load(file)


def test_a_file_that_is_too_large_is_not_read(home: Home) -> None:
    file = home.write("c.yaml", b"#" * (SIZE + 1))
    with pytest.raises(ConfigError, match="larger than 4 MB"):
        home.load(file)


def test_all_problems_of_one_server_are_told_at_once(home: Home) -> None:
    home.write(
        "project/portico.yaml", 'servers:\n  s:\n    command: a\n    args: b\n    env: {A: "${X1}", B: "${X2}"}\n'
    )
    assert [problem.where for problem in home.load().problems] == [
        "servers.s.args",
        "servers.s.env.A",
        "servers.s.env.B",
    ]


def test_an_unknown_field_that_resembles_nothing_is_told_and_the_server_runs(home: Home) -> None:
    home.write("project/portico.yaml", "servers:\n  s: {command: a, wibble: 1, autoApprove: [x], x-note: y}\n")
    settings = home.load()
    assert [spec.name for spec in settings.servers] == ["s"]
    assert [problem.where for problem in settings.problems] == ["servers.s.wibble"]


def test_no_line_of_comments_takes_long_to_edit() -> None:
    text = '{"servers": {\n"a": 1 ' + "/**/" * 5000 + ' , "b": 2}}'
    assert parse_document(with_server(text, Path("c.json"), "c", {}), Path("c.json")).data["servers"]["c"] == {}


@pytest.mark.parametrize("name", ["''", '"\\x01"', "a" * 129])
def test_a_server_needs_a_usable_name(home: Home, name: str) -> None:
    home.write("project/portico.yaml", f"servers:\n  {name}: {{command: a}}\n")
    settings = home.load()
    assert settings.servers == ()
    assert settings.problems[0].line == 2
    assert "short, plain name" in str(settings.problems[0])
