"""Servers found in a real registry over HTTP, and added by name: what is shown, written, run and refused."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import anyio
import pytest

from portico.errors import UpstreamGone
from portico.surfaces.cli.context import Exit
from portico.surfaces.cli.install_commands import MOST_BYTES, AnswerFiles, KeptAnswer, RegistryApi
from tests.house.source import ROOT
from tests.journeys.running import gateway, write_config
from tests.processes import inherited

from .listing_server import META, Handler, ListingServer, listed, listing, pypi
from .shell import HOSTILE, Ended, Shell

NAME = "io.github.ana/calculator"
KEY = {"name": "CALC_KEY", "description": "The key of the sums.", "isRequired": True, "isSecret": True}
UVX = """#!{python}
import json, os, sys
open({seen!r}, "w").write(json.dumps({{"args": sys.argv[1:], "key": os.environ.get("CALC_KEY")}}))
os.execv({python!r}, [{python!r}, "-m", "portico.samples.calculator"])
"""
"""A `uvx` without a network: it writes down what it was told, and becomes a bundled sample server."""


@pytest.fixture
def registry() -> Iterator[ListingServer]:
    with listing(listed(NAME, packages=[pypi()])) as server:
        yield server


@pytest.fixture
def programs(shell: Shell) -> Path:
    """A folder for the PATH in which the real `uvx` is not: packages cannot be downloaded in a test."""
    folder = shell.home / "bin"
    folder.mkdir()
    put_program(folder / "uvx", UVX.format(python=sys.executable, seen=str(shell.home / "seen.json")))
    return folder


def put_program(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def run(shell: Shell, *arguments: str, path: Path | None = None, **environ: str) -> Ended:
    return shell.run(*arguments, PATH=os.pathsep.join(filter(None, [path and str(path), "/usr/bin:/bin"])), **environ)


def api(registry: ListingServer, folder: Path, said: list[str], *, seconds: float = 10) -> RegistryApi:
    return RegistryApi(registry.url, AnswerFiles(folder), said.append, seconds=seconds)


@pytest.mark.requirement("P-FIND-SERVER")
def test_servers_are_found_by_words_over_all_pages(shell: Shell) -> None:
    rows = [listed(f"io.example/weather-{n}", packages=[pypi()]) for n in range(7)]
    with listing(*rows, listed("io.example/other"), page=3) as registry:
        found = shell.run("find-server", "weather", "--registry", registry.url, "--limit", "5")
        assert found.out.count("io.example/weather-") == 5
        assert "io.example/weather-0 1.0.0  pypi\n    Adds numbers.\n" in found.out
        assert found.out.endswith("next: portico add NAME, which shows what it would do\n")
        assert found.out.splitlines()[-2] == "2 more: --limit 10"
        as_data = shell.run("find-server", "weather", "other", "--registry", registry.url, "--json").json
        assert len(as_data) == 8
        assert {row["registry"] for row in as_data} == {registry.url}
    assert [path for path in registry.paths if "cursor=3" in path]
    assert all("version=latest" in path and "limit=100" in path for path in registry.paths)


@pytest.mark.requirement("P-FIND-SERVER", "P-CLI-EXIT-CODES")
def test_nothing_found_says_where_it_was_looked_for(shell: Shell, registry: ListingServer) -> None:
    ended = shell.run("find-server", "zebra", "--registry", registry.url)
    assert (ended.code, ended.out) == (Exit.UNKNOWN, "")
    assert ended.err == f"error: no server fits 'zebra' in {registry.url}\n"


@pytest.mark.requirement("P-FIND-SERVER")
def test_the_config_names_registries_and_files_and_the_first_that_lists_a_server_counts(
    shell: Shell, registry: ListingServer
) -> None:
    own = shell.home / "own.json"
    own.write_text(json.dumps([listed(NAME, description="Our own.")["server"], {"no": "server"}]))
    shell.configure(json.dumps({"mcp_registries": ["own.json", registry.url]}))
    found = shell.run("find-server", "calculator", "--json").json
    assert [(row["description"], row["registry"]) for row in found] == [("Our own.", str(own))]
    registry.rows.append(listed("io.example/calculator-2"))
    registry.behaviour = Handler.fail
    # An answer that was got a moment ago is used again, without asking.
    assert len(shell.run("find-server", "calculator", "--json").json) == 1
    away = shell.run("find-server", "calculato")
    assert "HTTP 500" in away.err
    assert "Our own." in away.out


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_server_is_added_by_name_and_checked(shell: Shell, registry: ListingServer, programs: Path) -> None:
    shell.configure("# ours\nservers: {}\n")
    ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", path=programs)
    assert ended.code == 0
    assert ended.out.splitlines() == [
        f"{NAME} 1.0.0 (active)",
        "  Adds numbers.",
        f"  publisher: io.github.ana; repository: https://github.com/{NAME}",
        f"  listed by: {registry.url}",
        "  runs: uvx ana-calculator@1.0.0",
        f"  as: calculator, in {shell.home / 'portico.yaml'}",
        f"added calculator to {shell.home / 'portico.yaml'}",
        "ok  calculator: 4 tools, protocol 2026-07-28",
        "1 of 1 servers are well.",
    ]
    assert (shell.home / "portico.yaml").read_text().startswith("# ours\n")
    assert json.loads((shell.home / "seen.json").read_text())["args"] == ["ana-calculator@1.0.0"]
    called = run(shell, "call", "calculator.add", "a=5", "b=3", path=programs)
    assert (called.code, called.out) == (0, "8\n")


@pytest.mark.requirement("P-ADD-BY-NAME", "P-FIND-SERVER")
def test_the_guide_shows_what_happens(shell: Shell, programs: Path) -> None:
    """Its transcript, with this server in the place of the registry and this folder in that of the home."""
    page = (ROOT / "docs" / "guides" / "add-servers.md").read_text(encoding="utf-8")
    block = page.partition("<!-- run by: tests/surfaces/cli/test_install_by_name.py -->\n```\n")[2].partition("```")[0]
    key = {"name": "SUMS_KEY", "isRequired": True, "isSecret": True}
    with listing(
        listed(
            "io.github.ana/sums",
            version="1.2.0",
            description="Add and divide.",
            repository={"url": "https://github.com/ana/sums", "source": "github"},
            packages=[pypi("ana-sums", version="1.2.0", environmentVariables=[key])],
        )
    ) as registry:
        shell.configure(json.dumps({"mcp_registries": [registry.url]}))
        shown = block.replace("https://registry.modelcontextprotocol.io", registry.url)
        shown = shown.replace("/home/ana/.config/portico", str(shell.home))
        first, *others = shown.removeprefix("$ portico ").split("\n$ portico ")
        for step in (first, *others):
            command, _, said = step.partition("\n")
            assert run(shell, *command.split(), path=programs).out.strip() == said.strip()


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_without_a_terminal_and_without_yes_it_is_shown_and_nothing_is_written(
    shell: Shell, registry: ListingServer, programs: Path
) -> None:
    ended = run(shell, "add", NAME, "--registry", registry.url, path=programs)
    assert ended.code == Exit.USAGE
    assert "  runs: uvx ana-calculator@1.0.0\n" in ended.out
    assert ended.err == "nothing was written; look at what it would run, then say it again with --yes\n"
    assert not (shell.home / "portico.yaml").exists()
    assert not (shell.home / "seen.json").exists()


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_names_of_the_config_are_unique_or_chosen(shell: Shell, registry: ListingServer, programs: Path) -> None:
    for expected in ("calculator", "calculator-2"):
        ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", path=programs)
        assert f"added {expected} to" in ended.out
    assert ended.err == "note: calculator runs the same already\n"
    assert (
        "added sums to" in run(shell, "add", NAME, "--registry", registry.url, "-y", "--as", "sums", path=programs).out
    )
    again = run(shell, "add", NAME, "--registry", registry.url, "-y", "--as", "sums", path=programs)
    assert (again.code, "Give another name with --as" in again.err) == (Exit.CONFIG, True)


@pytest.mark.requirement("P-ADD-SECRETS")
def test_missing_values_are_all_named_with_the_command_that_gives_them(shell: Shell, programs: Path) -> None:
    region = {"name": "REGION", "isRequired": True, "choices": ["eu", "us"]}
    with listing(listed(NAME, packages=[pypi(environmentVariables=[KEY, region])])) as registry:
        ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", path=programs)
        wrong = run(shell, "add", NAME, "--registry", registry.url, "--set", "CALC_KEZ=1", path=programs)
    assert ended.code == Exit.CONFIG
    assert ended.err == (
        f"error: {NAME} needs 2 more values: CALC_KEY (secret): The key of the sums.; REGION: one of eu, us; "
        f"give them: portico add {NAME} --set CALC_KEY=VALUE --set REGION=VALUE, or --set NAME alone for ${{NAME}}\n"
    )
    assert "Did you mean 'CALC_KEY'?" in wrong.err
    assert not (shell.home / "portico.yaml").exists()


@pytest.mark.requirement("P-ADD-SECRETS")
def test_a_secret_is_kept_in_a_file_of_its_own_and_reaches_the_server(shell: Shell, programs: Path) -> None:
    with listing(listed(NAME, packages=[pypi(environmentVariables=[KEY])])) as registry:
        ended = run(
            shell, "add", NAME, "--registry", registry.url, "--set", "CALC_KEY=s'3 cr\"et#", "-y", path=programs
        )
    assert ended.code == 0
    kept = shell.home / "secrets" / "calculator.env"
    assert f"  secret: CALC_KEY, kept in {kept}\n" in ended.out
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "s'3" not in (shell.home / "portico.yaml").read_text()
    assert "3 cr" not in ended.out + ended.err
    assert f"its variables stay in {kept}; delete" in run(shell, "remove", "calculator").out
    assert json.loads((shell.home / "seen.json").read_text())["key"] == "s'3 cr\"et#"


@pytest.mark.requirement("P-ADD-SECRETS")
def test_a_secret_may_stay_in_the_environment(shell: Shell, programs: Path) -> None:
    with listing(listed(NAME, packages=[pypi(environmentVariables=[KEY])])) as registry:
        command = ("add", NAME, "--registry", registry.url, "--set", "CALC_KEY", "--yes")
        ended = run(shell, *command, path=programs, CALC_KEY="hidden-value")
    assert ended.code == 0
    assert "  env: CALC_KEY=${CALC_KEY}\n" in ended.out
    assert "hidden-value" not in ended.out + (shell.home / "portico.yaml").read_text()
    assert json.loads((shell.home / "seen.json").read_text())["key"] == "hidden-value"


@pytest.mark.requirement("P-ADD-SECRETS")
def test_on_a_terminal_values_are_asked_for_and_secrets_are_not_shown(shell: Shell, programs: Path) -> None:
    with listing(listed(NAME, packages=[pypi(environmentVariables=[KEY])])) as registry:
        told = at_terminal(
            [sys.executable, "-m", "portico", "add", NAME, "--registry", registry.url],
            {"CALC_KEY (The key of the sums.): ": "typed-in-secret\n", "Add it? [y/N]: ": "y\n"},
            shell.home,
            programs,
        )
    assert "ok  calculator: 4 tools" in told
    assert "typed-in-secret" not in told
    assert json.loads((shell.home / "seen.json").read_text())["key"] == "typed-in-secret"


def at_terminal(command: list[str], answers: dict[str, str], home: Path, programs: Path) -> str:
    """What a command says at a terminal at which somebody answers its questions."""
    ours, theirs = pty.openpty()
    environ = {**inherited("PYTHONPATH"), "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home)}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, env={**environ, "PORTICO_HOME": str(home)}
    )
    os.close(theirs)
    said, waiting, until = "", dict(answers), time.monotonic() + 60
    while time.monotonic() < until and select.select([ours], [], [], 60)[0]:
        try:
            said += os.read(ours, 65_536).decode()
        except OSError:  # the other end is closed
            break
        for question in [question for question in waiting if question in said]:
            os.write(ours, waiting.pop(question).encode())
    os.close(ours)
    assert (process.wait(30), waiting) == (0, {}), said
    return said


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_remote_is_added_with_a_header_whose_secret_is_kept_apart(shell: Shell, tmp_path: Path) -> None:
    served = tmp_path / "served"
    write_config(served, {"calculator": {"command": sys.executable, "args": ["-m", "portico.samples.calculator"]}})
    header = {
        "name": "Authorization",
        "value": "Bearer {token}",
        "isRequired": True,
        "variables": {"token": {"isSecret": True, "description": "A token."}},
    }
    with gateway(served) as running:
        remote = {"type": "streamable-http", "url": running.url, "headers": [header]}
        with listing(listed("io.example/sums", remotes=[remote])) as registry:
            ended = run(shell, "add", "io.example/sums", "--registry", registry.url, "--set", "token=tok-123456", "-y")
    assert ended.code == 0
    assert f"  connects to: {running.url}\n  headers: Authorization=Bearer ${{SUMS_TOKEN}}\n" in ended.out
    assert "ok  sums: 5 tools" in ended.out
    assert (shell.home / "secrets" / "sums.env").read_text() == "SUMS_TOKEN='tok-123456'\n"
    assert "tok-123456" not in (shell.home / "portico.yaml").read_text() + ended.out


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_program_that_is_missing_is_named_and_an_address_counts_before_that(shell: Shell) -> None:
    remote = {"type": "streamable-http", "url": "http://127.0.0.1:9/mcp"}
    only, both = listed(NAME, packages=[pypi()]), listed("io.example/both", packages=[pypi()], remotes=[remote])
    with listing(only, both) as registry:
        ended = run(shell, "add", NAME, "--registry", registry.url, path=shell.home)
        assert ended.code == Exit.CONFIG
        assert "is started by uvx, which is not on the PATH. Install uv." in ended.err
        assert (
            "connects to: http://127.0.0.1:9/mcp"
            in run(shell, "add", both["server"]["name"], "--registry", registry.url).out
        )
        wanted = run(shell, "add", NAME, "--registry", registry.url, "--package", "npm")
        assert "has no npm. It has: pypi." in wanted.err


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_an_entry_that_does_not_start_stays_and_it_is_said_how_to_take_it_out(
    shell: Shell, registry: ListingServer, programs: Path
) -> None:
    put_program(programs / "uvx", "#!/bin/sh\necho no network >&2\nexit 1\n")
    ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", path=programs)
    assert ended.code == Exit.UPSTREAM
    assert "stderr: no network" in ended.out
    assert ended.out.endswith("calculator stays in the config; to take it out: portico remove calculator\n")
    assert run(shell, "remove", "calculator").code == 0


@pytest.mark.requirement("P-ADD-BY-NAME", "P-CLI-EXIT-CODES")
def test_a_name_that_nobody_has_is_answered_with_near_ones(shell: Shell, registry: ListingServer) -> None:
    registry.rows.append(listed("io.github.bob/calculator-pro"))
    ended = shell.run("add", "io.github.anna/calculator", "--registry", registry.url)
    assert ended.code == Exit.UNKNOWN
    assert f"did you mean {NAME}" in ended.err
    short = shell.run("add", "calculator", "--yes", "--registry", registry.url)
    assert (short.code, f"say which: {NAME}" in short.err) == (Exit.UNKNOWN, True)
    assert "no server is called 'zebra'" in shell.run("add", "zebra", "--registry", registry.url).err


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_short_name_is_looked_up_and_shown_in_full(shell: Shell, registry: ListingServer, programs: Path) -> None:
    assert run(shell, "add", "calculator", "--registry", registry.url, path=programs).out.startswith(f"{NAME} 1.0.0 ")
    registry.rows.append(listed("io.evil/calculator", packages=[pypi("evil")]))
    shutil.rmtree(shell.home / "mcp_registries")  # what was answered a moment ago
    ended = run(shell, "add", "calculator", "--registry", registry.url, path=programs)
    assert f"say which: io.evil/calculator or {NAME}" in ended.err


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_deprecated_is_said_and_deleted_is_refused(shell: Shell, programs: Path) -> None:
    old = listed("io.example/old", status="deprecated", packages=[pypi()])
    old["_meta"][META]["statusMessage"] = "Use new."
    gone = listed("io.example/gone", status="deleted", packages=[pypi()])
    with listing(old, gone) as registry:
        ended = run(shell, "add", "io.example/old", "--registry", registry.url, path=programs)
        assert (ended.code, "note: it is deprecated: Use new." in ended.err) == (Exit.USAGE, True)
        refused = run(shell, "add", "io.example/gone", "--yes", "--registry", registry.url, path=programs)
        assert (refused.code, "was deleted from" in refused.err) == (Exit.CONFIG, True)
        assert "io.example/gone" not in run(shell, "find-server", "o", "--registry", registry.url).out
    assert not (shell.home / "portico.yaml").exists()


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_version_that_is_asked_for_is_the_one_that_is_pinned(shell: Shell, programs: Path) -> None:
    before = listed(NAME, latest=False, version="0.9.0", packages=[pypi(version="0.9.0")])
    with listing(listed(NAME, packages=[pypi()]), before) as registry:
        ended = run(shell, "add", NAME, "--version", "0.9.0", "--registry", registry.url, path=programs)
        assert "  runs: uvx ana-calculator@0.9.0\n" in ended.out
        unknown = run(shell, "add", NAME, "--version", "7", "--registry", registry.url, path=programs)
    assert f"no server is called '{NAME}' in version 7" in unknown.err


@pytest.mark.requirement("P-ADD-UNTRUSTED", "P-CLI-NO-CONTROL", "T28")
def test_hostile_text_reaches_no_terminal_and_no_command(shell: Shell, programs: Path) -> None:
    shown = listed(NAME, description=f"{HOSTILE}\nok  all is well", packages=[pypi()])
    hidden = listed(
        "io.example/hidden", packages=[pypi(packageArguments=[{"type": "positional", "value": "a\u202eb"}])]
    )
    no_name = listed("io.example/\x1b[31mred")
    with listing(shown, hidden, no_name) as registry:
        # The shell of these tests refuses any output with control characters.
        found = run(shell, "find-server", "io", "--registry", registry.url)
        assert "ok  all is well" not in found.out.splitlines()
        assert "red" not in found.out.replace("red screen", "").replace("[31m red", "")
        added = run(shell, "add", NAME, "--registry", registry.url, path=programs)
        assert added.code == Exit.USAGE
        refused = run(shell, "add", "io.example/hidden", "--yes", "--registry", registry.url, path=programs)
    assert (refused.code, "cannot be shown as it is" in refused.err) == (Exit.CONFIG, True)


@pytest.mark.requirement("P-ADD-UNTRUSTED", "T47")
def test_forty_arguments_with_signs_of_a_shell_run_no_shell(shell: Shell, programs: Path) -> None:
    canary = shell.home / "canary"
    attacks = [
        f"{before}touch {canary}{after}"
        for before in ("; ", "$(", "`", "| ", "& ", "&& ", "' ; ", '" ; ', "> ", "{a,", "$IFS", "\\; ", "%0a")
        for after in ("", ")", "`")
    ] + [f">{canary}"]
    assert len(attacks) == 40
    arguments = [{"type": "positional", "valueHint": f"a{n}", "isRequired": True} for n in range(20)]
    arguments += [{"type": "positional", "value": attack} for attack in attacks[20:]]
    given = [word for n in range(20) for word in ("--set", f"a{n}={attacks[n]}")]
    with listing(listed(NAME, packages=[pypi(packageArguments=arguments)])) as registry:
        ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", *given, path=programs)
    assert ended.code == 0
    assert json.loads((shell.home / "seen.json").read_text())["args"] == ["ana-calculator@1.0.0", *attacks]
    assert not canary.exists()


BROKEN: dict[str, tuple[Any, str]] = {
    "html": (Handler.speak_html, "is not JSON"),
    "500": (Handler.fail, "HTTP 500"),
    "redirect": (Handler.redirect, "redirects to http://169.254.169.254/latest/meta-data, which is not followed"),
    "flood": (Handler.flood, f"larger than {MOST_BYTES // 2**20} MB"),
    "shape": (lambda handler: handler.say({"hello": 1}), "is not a list of MCP servers"),
    "array": (lambda handler: handler.say([1]), "is not a list of MCP servers"),
    "packed": (lambda handler: handler.say(b"x", **{"Content-Encoding": "gzip"}), "compressed"),
}


@pytest.mark.requirement("P-REGISTRY-AWAY")
@pytest.mark.parametrize("kind", BROKEN)
def test_an_answer_that_is_none_is_refused_in_one_sentence(shell: Shell, registry: ListingServer, kind: str) -> None:
    registry.behaviour, said = BROKEN[kind]
    ended = shell.run("find-server", "calculator", "--registry", registry.url)
    assert ended.code == Exit.UPSTREAM
    assert said in ended.err
    assert not any("169.254" in path for path in registry.paths)


@pytest.mark.requirement("P-REGISTRY-AWAY")
def test_a_registry_that_never_answers_is_given_up(registry: ListingServer, tmp_path: Path) -> None:
    registry.behaviour = Handler.hang
    with pytest.raises(UpstreamGone, match=r"no answer within 0\.2 s"):
        anyio.run(api(registry, tmp_path, [], seconds=0.2).search, ["calculator"])


@pytest.mark.requirement("P-REGISTRY-AWAY")
def test_a_search_ends_however_many_pages_come_slowly(registry: ListingServer, tmp_path: Path) -> None:
    def slowly(handler: Handler) -> None:
        handler.told.ended.wait(0.3)
        handler.say({"servers": [], "metadata": {"nextCursor": str(len(registry.requests))}})

    registry.behaviour = slowly
    with pytest.raises(UpstreamGone, match=r"came within 4 s|no answer within 1 s"):
        anyio.run(api(registry, tmp_path, [], seconds=1).search, list("abcde"))


@pytest.mark.requirement("P-ADD-UNTRUSTED")
def test_no_server_is_added_by_name_to_a_file_that_spells_variables_otherwise(
    shell: Shell, registry: ListingServer, programs: Path
) -> None:
    file = shell.home / "opencode.json"
    text = json.dumps({"mcp": {"one": {"type": "local", "command": ["ls"]}}, "mcpServers": {"x": {"command": "ls"}}})
    file.write_text(text)
    ended = run(shell, "--config", str(file), "add", NAME, "--registry", registry.url, "--yes", path=programs)
    assert (ended.code, file.read_text()) == (Exit.CONFIG, text)


@pytest.mark.requirement("P-REGISTRY-AWAY")
def test_a_cursor_that_leads_to_itself_ends(registry: ListingServer, tmp_path: Path) -> None:
    registry.behaviour = Handler.loop
    found = anyio.run(api(registry, tmp_path, []).search, ["one"])
    assert {server.name for server in found} == {"io.example/one"}
    assert len(registry.requests) == 2


@pytest.mark.requirement("P-REGISTRY-AWAY", "P-ADD-UNTRUSTED")
def test_another_server_than_the_one_asked_for_is_refused(shell: Shell, registry: ListingServer) -> None:
    registry.behaviour = Handler.another
    ended = shell.run("add", NAME, "--yes", "--registry", registry.url)
    assert (ended.code, "another server than the one that was asked for" in ended.err) == (Exit.UPSTREAM, True)


@pytest.mark.requirement("P-ADD-UNTRUSTED")
def test_a_registry_that_is_away_is_not_stood_in_for_by_a_later_one(shell: Shell, registry: ListingServer) -> None:
    shell.configure(json.dumps({"mcp_registries": ["http://127.0.0.1:9", registry.url]}))
    ended = shell.run("add", NAME, "--yes")
    assert (ended.code, registry.requests) == (Exit.UPSTREAM, [])


@pytest.mark.requirement("P-REGISTRY-AWAY")
def test_answers_are_kept_asked_for_again_by_their_mark_and_used_while_the_registry_is_away(
    registry: ListingServer, tmp_path: Path
) -> None:
    said: list[str] = []
    asked = api(registry, tmp_path, said)
    for _ in range(2):
        assert anyio.run(asked.find, NAME, "").version == "1.0.0"
    assert len(registry.requests) == 1
    age(tmp_path, 2 * 86_400)
    assert anyio.run(asked.find, NAME, "").version == "1.0.0"
    assert registry.requests[1][1]["If-None-Match"]
    age(tmp_path, 3 * 86_400)
    registry.behaviour = Handler.fail
    assert anyio.run(asked.find, NAME, "").version == "1.0.0"
    assert said == [f"{registry.url}: it answered HTTP 500; this is what it said 3 days ago"]
    registry.behaviour, registry.rows[:] = Handler.well, []
    assert anyio.run(asked.find, NAME, "") is None
    assert list(tmp_path.iterdir()) == []


def age(folder: Path, seconds: float) -> None:
    for file in folder.iterdir():
        file.write_text(json.dumps({**json.loads(file.read_text()), "at": time.time() - seconds}))


@pytest.mark.requirement("P-REGISTRY-AWAY")
def test_kept_answers_are_bounded_and_damaged_ones_are_none(tmp_path: Path) -> None:
    files = AnswerFiles(tmp_path)
    for number in range(210):
        files.write(f"http://a/{number}", KeptAnswer(body={}, at=1.0))
    assert len(list(tmp_path.iterdir())) == 200
    assert files.read("http://a/209") == KeptAnswer(body={}, at=1.0)
    for file in tmp_path.iterdir():
        file.write_text("{")
    assert files.read("http://a/209") is None


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_a_running_gateway_takes_a_server_over_that_is_added_by_name(
    shell: Shell, registry: ListingServer, programs: Path
) -> None:
    write_config(shell.home, {})
    with gateway(shell.home) as running:
        ended = run(shell, "add", NAME, "--registry", registry.url, "--yes", path=programs)
        assert ended.code == 0
        base = running.url.removesuffix("/mcp")
        with urlopen(Request(f"{base}/api/v1/reload", method="POST"), timeout=30) as answer:  # or it does so by itself
            assert answer.status == 200
        with urlopen(f"{base}/api/v1/servers", timeout=30) as answer:
            assert "calculator" in answer.read().decode()


@pytest.mark.requirement("P-ADD-BY-NAME")
def test_adding_a_command_loads_no_http_client(shell: Shell) -> None:
    code = "import sys; from portico.__main__ import main\ntry: main()\nfinally: print('aiohttp' in sys.modules)"
    environ = {**inherited("PATH", "PYTHONPATH"), "PORTICO_HOME": str(shell.home)}
    command = [sys.executable, "-c", code, "add", "x", "--", "ls"]
    done = subprocess.run(command, env=environ, cwd=shell.home, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.splitlines()[-1] == "False", done


@pytest.mark.requirement("P-CLI-ADD")
def test_options_of_one_form_of_add_are_refused_in_the_other(shell: Shell) -> None:
    for arguments in (
        ("add", "x", "-e", "A=b"),
        ("add", "x", "--yes", "--", "ls"),
        ("add", "x", "--package", "cargo"),
        ("add", "x", "--package", "npm", "--remote"),
        ("add", "x", "--set", "=b"),
        ("add", "x", "--registry", "https://user:pw@example.com"),
        ("add", "x", "--registry", "https://["),
        ("find-server", "x", "--registry", "ftp://example.com"),
    ):
        assert shell.run(*arguments).code == Exit.USAGE
