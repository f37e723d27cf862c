"""The journey of a config file: found, read, and used as far as it is good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from portico.config import load_settings
from portico.domain.server import ServerSpec, Timeouts, ToolFilter
from portico.errors import ConfigError
from portico.wiring import open_app

from .conftest import Home

DESIGN = """\
surface: discover
servers:
  github: {command: npx, args: [-y, "@modelcontextprotocol/server-github"], env: {GITHUB_TOKEN: "${GITHUB_TOKEN}"}}
  docs:   {url: "https://example.com/mcp", headers: {Authorization: "Bearer ${DOCS_TOKEN}"}}
databases:
  warehouse: {url: "postgresql+asyncpg://...", registry: mcp}
python: [my_company.tools]        # modules with handle_* functions
yaml: ["tools/*.yml"]
pins: [base_readQuery]
store: sqlite                     # or postgresql+asyncpg://...
journal: batched                  # or durable: a result waits for its commit
"""


def test_no_config_at_all_is_empty_settings(home: Home) -> None:
    settings = home.load()
    assert (settings.surface, settings.http.host, settings.http.port) == ("discover", "127.0.0.1", 8421)
    assert settings.servers == settings.problems == settings.catalog.pins == ()
    assert (settings.search.tokens, settings.search.limit) == (800, 5)
    assert settings.home.file is None


def test_the_config_of_the_design_page_is_read_whole(home: Home) -> None:
    home.write("project/portico.yaml", DESIGN)
    home.environ |= {"GITHUB_TOKEN": "ghp_1", "DOCS_TOKEN": "d2"}
    settings = home.load()
    github, docs = settings.servers
    assert github == ServerSpec(
        name="github",
        transport="stdio",
        command="npx",
        args=("-y", "@modelcontextprotocol/server-github"),
        env={"GITHUB_TOKEN": "ghp_1"},
    )
    assert (docs.transport, docs.url, docs.headers) == (
        "http",
        "https://example.com/mcp",
        {"Authorization": "Bearer d2"},
    )
    assert settings.catalog.pins == ("base_readQuery",)
    (warehouse,) = settings.databases
    assert (warehouse.name, warehouse.url, warehouse.registry) == ("warehouse", "postgresql+asyncpg://...", "mcp")
    assert (settings.local.python, settings.local.yaml) == (("my_company.tools",), ("tools/*.yml",))
    assert (settings.storage.store, settings.storage.journal.mode) == ("sqlite", "batched")
    assert settings.problems == ()


@pytest.mark.requirement("P-RENEWED")
@pytest.mark.parametrize(("written", "is_renewing"), [("", True), ("renew: true", True), ("renew: false", False)])
async def test_asking_again_can_be_switched_off(home: Home, written: str, is_renewing: bool) -> None:
    home.write("project/portico.yaml", f"store: memory\n{written}\n")
    async with open_app(home.load()) as application:
        assert application.is_renewing is is_renewing


def test_every_field_of_every_key_arrives(home: Home) -> None:
    home.write(
        "project/portico.yaml",
        """
surface: static
host: 0.0.0.0
port: "${PORT:-9000}"
categories: {github: code, base_: tables}
search: {tokens: 400, limit: 3}
profiles: {reader: {tool: ["^base_.*"]}}
x-defaults: &slow {timeouts: {start: 5, call: 10, idle: 0}}
servers:
  one:
    <<: *slow
    command: ./run
    args: [1.10, yes, 022, "x", 2024-01-01]
    env: {A: 1, B: null, C: false}
    cwd: sub
    alias: uno
    description: The first.
    category: tests
    tools: {allow: ["get_*"], deny: ["get_secret"]}
  two: {url: "http://localhost:1/sse", enabled: no}
  three: {url: "http://localhost:1/x", transport: sse, disabled: true, timeout: 900}
""",
    )
    settings = home.load()
    one, two, three = settings.servers
    assert settings.problems == ()
    assert (settings.surface, settings.http.host, settings.http.port) == ("static", "0.0.0.0", 9000)
    assert settings.catalog.categories == {"github": "code", "base_": "tables"}
    assert (settings.search.tokens, settings.search.limit) == (400, 3)
    assert (settings.databases, settings.profile.name) == ((), "")
    assert one.args == ("1.10", "yes", "022", "x", "2024-01-01")
    assert one.env == {"A": "1", "C": "false"}
    assert one.cwd == str(home.project / "sub")
    assert (one.labels.alias, one.labels.description, one.labels.category) == ("uno", "The first.", "tests")
    assert one.tools == ToolFilter(allow=("get_*",), deny=("get_secret",))
    assert one.timeouts == Timeouts(start=5, call=10, total=600, idle=0)
    assert (two.transport, two.enabled) == ("sse", False)
    assert (three.transport, three.enabled, three.timeouts.call, three.timeouts.total) == ("sse", False, 900, 900)


def test_a_half_valid_file_runs_its_good_servers(home: Home) -> None:
    home.write(
        "project/portico.yaml",
        """\
servers:
  good: {command: a}
  bad: {command: a, url: "http://b"}
  worse: 5
  token: {command: a, env: {TOKEN: "${NOT_THERE}"}}
  also-good: {url: "http://localhost/mcp"}
""",
    )
    settings = home.load()
    assert [spec.name for spec in settings.servers] == ["good", "also-good"]
    assert [(problem.line, problem.where) for problem in settings.problems] == [
        (3, "servers.bad.url"),
        (4, "servers.worse"),
        (5, "servers.token.env.TOKEN"),
    ]


def test_of_two_servers_with_one_name_the_first_keeps_running(home: Home) -> None:
    home.write("project/portico.yaml", "servers:\n  a: {command: first}\n  b: {command: b}\n  a: {command: second}\n")
    settings = home.load()
    assert [spec.command for spec in settings.servers] == ["first", "b"]
    (problem,) = settings.problems
    assert (problem.line, problem.where) == (4, "servers.a")
    assert "line 2" in str(problem)


def test_a_name_in_both_tables_is_reported_and_not_merged(home: Home) -> None:
    file = home.write("both.json", '{"mcpServers": {"a": {"command": "x"}},\n "servers": {"a": {"command": "y"}}}')
    settings = home.load(file)
    assert [spec.command for spec in settings.servers] == ["y"]
    assert [(problem.line, problem.where) for problem in settings.problems] == [(1, "mcpServers.a")]


def test_config_is_found_in_the_documented_order(home: Home) -> None:
    xdg = home.write(".config/portico/portico.yaml", "port: 1")
    assert home.load().home.file == xdg
    moved = home.write("xdg/portico/portico.yaml", "port: 2")
    home.environ["XDG_CONFIG_HOME"] = str(home.folder / "xdg")
    assert home.load().home.file == moved
    everything = home.write("all/portico.yaml", "port: 3")
    home.environ["PORTICO_HOME"] = str(home.folder / "all")
    assert home.load().home.file == everything
    here = home.write("project/portico.yaml", "port: 4")
    assert home.load().home.file == here
    variable = home.write("env.yaml", "port: 5")
    home.environ["PORTICO_CONFIG"] = str(variable)
    assert home.load().home.file == variable
    named = home.write("named.yaml", "port: 6")
    assert home.load(named).http.port == 6


def test_state_lives_in_xdg_or_under_portico_home(home: Home) -> None:
    assert home.load().home.data == home.folder / ".local/share/portico"
    home.environ["XDG_DATA_HOME"] = "relative/is/ignored"
    assert home.load().home.data == home.folder / ".local/share/portico"
    home.environ["XDG_DATA_HOME"] = "/data"
    assert home.load().home.data == Path("/data/portico")
    home.environ["PORTICO_HOME"] = "here"
    assert home.load().home.data == home.load().home.config == home.project / "here"
    assert home.load().home.config_file == home.project / "here/portico.yaml"


@pytest.mark.parametrize("way", ["argument", "variable"])
def test_a_named_config_that_is_missing_is_an_error(home: Home, way: str) -> None:
    home.environ["PORTICO_CONFIG"] = "missing.yaml" if way == "variable" else ""
    with pytest.raises(ConfigError, match=r"missing\.yaml: .*there is no such file\. Check the path"):
        home.load("missing.yaml" if way == "argument" else None)


def test_a_home_with_a_tilde_is_understood(home: Home) -> None:
    home.write("mine.yaml", "port: 7")
    assert home.load("~/mine.yaml").http.port == 7


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_an_error(home: Home) -> None:
    home.write(".config/portico/portico.yaml", "").chmod(0)
    with pytest.raises(ConfigError, match="you may not read this file"):
        home.load()


def test_a_folder_in_the_place_of_the_file_is_an_error(home: Home) -> None:
    (home.folder / ".config/portico/portico.yaml").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"portico\.yaml: this is a folder, not a file\. Name the config file"):
        home.load()


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# nothing yet\n", b"\xef\xbb\xbfport: 8421", b"servers:\n", b"---\n"])
def test_an_empty_file_or_a_byte_order_mark_is_fine(home: Home, text: bytes) -> None:
    home.write("project/portico.yaml", text)
    settings = home.load()
    assert (settings.http.port, settings.problems) == (8421, ())


def test_json_with_tabs_and_comments_may_stand_in_a_yaml_file(home: Home) -> None:
    home.write("project/portico.yaml", '{\n\t"servers": { // mine\n\t\t"a": {"command": "x"},\n\t},\n}')
    assert [spec.name for spec in home.load().servers] == ["a"]


@pytest.mark.requirement("T44")
def test_secrets_never_appear_in_messages_or_settings_repr(home: Home) -> None:
    secret = "hunter2-S3cr3t"
    home.environ["SECRET"] = secret
    home.write(
        "project/portico.yaml",
        f"""\
servers:
  a: {{command: "{secret} 'open", args: "{secret}", env: ["TOKEN={secret}"], headers: "{secret}"}}
  b: {{url: "ftp://{secret}@x", headers: {{A: "{secret}\\n"}}}}
  c: {{command: x, env: {{T: "${{TOKEN_X-{secret}}}"}}, timeout: "{secret}", enabled: "{secret}"}}
  d: {{command: x, env: {{T: "${{TOKEN_X?{secret}}}", U: "${{{secret}", V: [{secret}]}}}}
  e: {{url: "${{SECRET}}"}}
store: "postgresql://{secret}@host"
""",
    )
    settings = home.load()
    assert settings.servers == ()
    assert len(settings.problems) >= 10
    assert secret not in repr(settings)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("claude_desktop_config.json", '{"mcpServers": {"a": {"command": "x"}}, "theme": "dark"}', ("stdio", "x")),
        (".mcp.json", '{"mcpServers": {"a": {"type": "http", "url": "http://h/mcp"}}}', ("http", "http://h/mcp")),
        (
            ".claude.json",
            '{"numStartups": 3, "mcpServers": {"a": {"type": "sse", "url": "http://h"}}}',
            ("sse", "http://h"),
        ),
        (".cursor/mcp.json", '{"mcpServers": {"a": {"url": "http://h/mcp"}}}', ("http", "http://h/mcp")),
        (".vscode/mcp.json", '{"inputs": [], "servers": {"a": {"type": "stdio", "command": "x"}}}', ("stdio", "x")),
        ("Code/User/settings.json", '{"editor": 1, "mcp": {"servers": {"a": {"command": "x"}}}}', ("stdio", "x")),
        (".codex/config.toml", 'model = "o"\n[mcp_servers.a]\ncommand = "x"\n', ("stdio", "x")),
        (".gemini/settings.json", '{"mcpServers": {"a": {"url": "http://h/x"}}}', ("sse", "http://h/x")),
        ("settings.json", '{"mcpServers": {"a": {"httpUrl": "http://h/x"}}}', ("http", "http://h/x")),
        ("mcp_config.json", '{"mcpServers": {"a": {"serverUrl": "http://h/x"}}}', ("http", "http://h/x")),
        ("zed/settings.json", '{"context_servers": {"a": {"command": {"path": "x", "args": []}}}}', ("stdio", "x")),
        ("any.json", '{"mcpServers": {"a": {"command": "x"}}, "whatever": 1}', ("stdio", "x")),
        ("mcp.json", '{"servers": {"a": {"command": "x"}}}', ("stdio", "x")),
    ],
)
def test_a_clients_own_file_can_be_pointed_at(home: Home, name: str, text: str, expected: tuple[str, str]) -> None:
    settings = home.load(home.write(f"client/{name}", text))
    assert settings.problems == ()
    assert [(spec.transport, spec.command or spec.url) for spec in settings.servers] == [expected]


def test_claude_code_servers_of_this_project_are_found(home: Home) -> None:
    text = f'{{"projects": {{"{home.project}": {{"mcpServers": {{"a": {{"command": "x"}}}}}}, "/other": {{}}}}}}'
    assert [spec.name for spec in home.load(home.write(".claude.json", text)).servers] == ["a"]


def test_importing_the_config_room_brings_no_web_or_protocol_library() -> None:
    code = "import sys, portico.config; print(sorted({'mcp', 'aiohttp', 'starlette', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_settings_can_be_loaded_from_any_mapping(tmp_path: Path) -> None:
    assert load_settings(None, {}, tmp_path).surface == "discover"
