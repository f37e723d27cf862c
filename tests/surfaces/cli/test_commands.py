"""Every command, in a process of its own: what it prints, its JSON, its exit code."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from portico.surfaces.cli.context import Exit

from .shell import TINY, TOOLS, Shell


def test_list_shows_servers_and_what_was_refused(known: Shell) -> None:
    ended = known.run("list")
    assert ended.code == 0
    assert "SERVER" in ended.out
    assert any(line.startswith("tiny") and "ready" in line for line in ended.out.splitlines())
    assert any(line.startswith("off") and "disabled" in line for line in ended.out.splitlines())
    assert "refused tiny/broken: its inputSchema is an array, not an object" in ended.err


@pytest.mark.requirement("P-CLI-JSON")
def test_list_as_data(known: Shell) -> None:
    off, tiny = known.run("list", "--json").json
    assert (off["name"], off["state"]) == ("off", "disabled")
    assert (tiny["name"], tiny["tools"], tiny["protocol"]) == ("tiny", 5, "2025-06-18")
    assert tiny["rejected"][0]["name"] == "broken"


def test_list_of_one_server_shows_its_tools(known: Shell) -> None:
    assert "tiny.send_mail  [write]  Send a mail to somebody." in known.run("list", "tiny").out
    listed = known.run("list", "tiny", "--json").json
    assert {"handle": "tiny.read_file", "name": "read_file", "effect": "read"} in listed[0]["tool_list"]


@pytest.mark.requirement("P-CLI-NO-CONTROL", "T28")
def test_a_hostile_description_reaches_no_terminal_in_any_command(known: Shell) -> None:
    for command in (["list", "tiny"], ["search", "red screen"], ["describe", "tiny.hostile"]):
        assert "Read" in known.run(*command).out
    described = known.run("describe", "tiny.hostile", "--json")
    assert described.json[0]["description"] == TOOLS[4]["description"]
    assert "\\u009b" in described.out


def test_search_finds_and_explains(known: Shell) -> None:
    assert known.run("search", "send mail", "--limit", "1").out.startswith(
        "tiny.send_mail(to: string[], urgent?: boolean) [write] Send a mail to somebody"
    )


@pytest.mark.requirement("P-EXPLAIN")
def test_explained_scores_are_the_sum_of_their_parts(known: Shell) -> None:
    lines = known.run("search", "send mail", "--explain").out.splitlines()
    score, handle = lines[0].split("  ", 1)
    assert handle == "tiny.send_mail"
    parts = []
    for line in lines[1:]:
        if not (found := re.fullmatch(r" *([\d,.]+) {4}(\S.*)", line)):
            break
        assert len(found[1]) <= len(score)
        parts.append(float(found[1].replace(",", "")))
    assert parts == sorted(parts, reverse=True)
    assert round(sum(parts), 2) == float(score)
    data = known.run("search", "send mail", "--explain", "--json").json
    assert data[0]["score"] == pytest.approx(sum(data[0]["why"].values()), abs=1e-3)


@pytest.mark.requirement("P-FILTERS")
def test_search_is_narrowed_by_options(known: Shell) -> None:
    for options in (
        ["--tag", "DISK"],
        ["--read-only"],
        ["--tag", "disk", "--source", "upstream", "--min-success", "1"],
    ):
        found = known.run("search", "", "--json", *options)
        assert (found.code, [hit["handle"] for hit in found.json]) == (0, ["tiny.read_file"])
        assert known.run("search", "", *options).out.startswith("tiny.read_file(path, limit?: integer) [read]")
    assert known.run("search", "file", "--read-only", "--max-latency-ms", "1").out.startswith("tiny.read_file(")


@pytest.mark.requirement("P-FILTERS", "P-CLI-EXIT-CODES")
def test_an_unknown_filter_names_those_that_exist(known: Shell) -> None:
    ended = known.run("search", "mail", "--server", "tinny")
    assert (ended.code, ended.out) == (Exit.UNKNOWN, "")
    assert ended.err == (
        "error unknown_filter for server 'tinny'; nothing was sent\n- servers, nearest first: tiny\n"
        'next: portico search "mail" --server tiny\n'
    )
    assert known.run("search", "mail", "--tag", "x", "--json").json["error"]["code"] == "unknown_filter"
    assert known.run("search", "mail", "--min-success", "95").code == Exit.USAGE


@pytest.mark.requirement("P-NOTHING-FITS", "P-CLI-EXIT-CODES")
def test_a_search_that_nothing_fits_says_so_and_ends_with_its_code(known: Shell) -> None:
    ended = known.run("search", "quantum zebra")
    assert ended.code == Exit.UNKNOWN
    assert ended.out.startswith("no tool fits 'quantum zebra'\n")
    assert 'or all of a server: portico search "" --server ...\n5 tools on 1 server.\n' in ended.out
    assert known.run("search", "quantum zebra", "--explain").out == ended.out
    near = known.run("search", "quantum zebra", "--json")
    assert near.code == Exit.UNKNOWN
    assert (near.json["fits"], near.json["query"]) == (False, "quantum zebra")
    assert len(near.json["nearest"]) <= 3


@pytest.mark.requirement("P-CLI-JSON")
def test_search_as_data(known: Shell) -> None:
    first = known.run("search", "send mail", "--explain", "--json").json[0]
    assert (first["handle"], first["server"], first["name"]) == ("tiny.send_mail", "tiny", "send-mail")
    assert first["why"]
    assert known.run("search", "", "--json").json == []


def test_search_without_words_is_the_hot_list_and_the_map(known: Shell) -> None:
    lines = known.run("search", "").out.splitlines()
    assert [line.partition(". ")[0] for line in lines[:5]] == list("12345")
    assert lines[5:] == [
        'browse a server: portico search "" --server ..., or search by intent: portico search "..."',
        "5 tools on 1 server.",
        "servers:",
        "- tiny (5)",
    ]


def test_describe_shows_all_there_is(known: Shell) -> None:
    assert known.run("describe", "send-mail").out.startswith("## tiny.send_mail [write]\nSend a mail to somebody.\n")
    assert known.run("describe", "tiny::send-mail", "--json").json[0]["inputSchema"] == TOOLS[1]["inputSchema"]


@pytest.mark.requirement("P-CLI-ARGUMENTS")
def test_arguments_may_be_pairs_json_a_file_or_standard_input(known: Shell) -> None:
    file = known.home / "arguments.json"
    file.write_text('{"to": ["a"], "urgent": true}')
    expected = 'send-mail {"to": ["a"], "urgent": true}\n'
    for arguments in (["to=a", "urgent=true"], ['{"to": ["a"], "urgent": true}'], [f"@{file}"], ["-"]):
        ended = known.run("call", "tiny.send_mail", *arguments, stdin=file.read_text())
        assert (ended.code, ended.out, ended.err) == (0, expected, "")


def test_a_value_may_hold_an_equals_sign_and_json(known: Shell) -> None:
    ended = known.run("call", "tiny.read_file", "path=a=b{c}", "limit=5")
    assert ended.out == 'read_file {"limit": 5, "path": "a=b{c}"}\n'


@pytest.mark.requirement("P-CLI-JSON")
def test_call_as_data_and_a_tool_that_says_no(known: Shell) -> None:
    ended = known.run("call", "tiny.fail", "--json")
    assert ended.code == Exit.FAILED
    assert ended.json["isError"] is True


@pytest.mark.requirement("P-OUTCOME")
def test_an_unknown_outcome_is_a_field_of_the_data_of_an_error(known: Shell) -> None:
    ended = known.run("call", "tiny.die", "--json")
    assert ended.code == Exit.UPSTREAM
    assert ended.json["error"]["outcome"] == "unknown_outcome"
    assert "outcome" not in known.run("call", "nobody.knows", "--json").json["error"]


def test_a_server_that_dies_is_gone_not_silent(known: Shell) -> None:
    ended = known.run("call", "tiny.die")
    assert ended.code == Exit.UPSTREAM
    assert ended.err.startswith("error upstream_gone for tiny")
    assert "whether it took effect is unknown" in ended.err


@pytest.mark.requirement("P-CLI-JSON")
def test_tokens_prints_the_bill(known: Shell) -> None:
    assert "before, all together" in known.run("tokens").out
    bill = known.run("tokens", "--json").json
    assert bill["servers"][0]["server"] == "tiny"
    assert bill["counter"] == "estimate"
    assert bill["before"] > 0 < bill["after"]


def test_doctor_says_what_is_well_and_what_is_next(known: Shell) -> None:
    ended = known.run("doctor")
    assert ended.code == 0
    assert "ok  tiny: 5 tools, protocol 2025-06-18" in ended.out
    assert "refused broken: its inputSchema is an array, not an object" in ended.out
    assert "next: set enabled: true in the config to use it" in ended.out


@pytest.mark.requirement("P-CLI-JSON")
def test_doctor_and_refresh_as_data_with_one_server_broken(shell: Shell) -> None:
    shell.serve_tiny(gone={"command": str(shell.home / "no-such-command")})
    ended = shell.run("doctor", "--json")
    assert ended.code == Exit.UPSTREAM
    gone, tiny, store, scripts = ended.json
    assert store["ok"]
    assert scripts["ok"]
    assert scripts["scripts"].startswith(("hardened", "degraded: "))
    assert (gone["ok"], gone["next"]) == (False, "mend what is said above, then: portico doctor gone")
    assert tiny["ok"]
    refreshed = shell.run("refresh", "--json")
    assert refreshed.code == Exit.UPSTREAM
    assert [report["tools"] for report in refreshed.json] == [0, 5]
    found = shell.run("call", "tiny.read_file", "path=x")
    assert (found.code, found.out) == (0, 'read_file {"path": "x"}\n')


def test_refreshing_a_disabled_server_says_that_it_is_disabled(known: Shell) -> None:
    ended = known.run("refresh", "off")
    assert (ended.code, ended.out) == (0, "off: disabled; set enabled: true in the config to use it\n")


def test_add_list_and_remove_a_server(shell: Shell) -> None:
    tools: list[Any] = [TOOLS[0]]
    added = shell.run("add", "mine", "--env", "A=b", "--", sys.executable, str(TINY), json.dumps(tools))
    assert added.code == 0
    assert added.out.startswith("added mine to ")
    assert added.out.endswith("next: portico doctor mine\n")
    assert shell.run("call", "mine.read_file", "path=x").out == 'read_file {"path": "x"}\n'
    assert shell.run("remove", "mine").code == 0
    assert shell.run("list").out.startswith("No servers yet.")
    assert shell.run("remove", "mine").code == Exit.UNKNOWN


@pytest.mark.requirement("P-CLI-JSON")
def test_import_shows_first_and_writes_when_told(shell: Shell) -> None:
    client = shell.home / "client.json"
    client.write_text(json.dumps({"mcpServers": {"mine": {"command": sys.executable, "env": {"TOKEN": "hunter2"}}}}))
    shown = shell.run("import", str(client))
    assert "+ mine: add" in shown.out
    assert "add --write to do it" in shown.out
    assert "hunter2" not in shown.out
    plan = shell.run("import", str(client), "--write", "--json")
    assert plan.json["written"] is True
    assert "hunter2" not in plan.out
    assert shell.run("import", str(client), "--json").json["items"][0]["action"] == "same"


def test_import_without_a_name_lists_the_clients(shell: Shell) -> None:
    assert "claude-code: no config file here" in shell.run("import").out
    assert shell.run("import", "--json").json["cursor"] == []


def test_install_shows_the_difference_and_undoes_it(shell: Shell) -> None:
    dry = shell.run("install", "cursor", "--dry-run")
    assert "+" in dry.out
    assert "nothing was written" in dry.err
    written = shell.run("install", "cursor")
    assert written.code == 0
    assert "wrote " in written.out
    assert "nothing to do" in shell.run("install", "cursor").out
    assert shell.run("install", "cursor", "--undo").code == 0


def test_version_help_and_completion(shell: Shell) -> None:
    assert shell.run("--version").out.startswith("portico ")
    helped = shell.run("--help")
    assert helped.code == 0
    looking = "list search describe call tokens refresh doctor stats tiers categories budget"
    for command in f"serve demo {looking} add remove import install".split():
        assert f"  {command}" in helped.out
    # Which shell the tests are started from must not matter.
    completion = shell.run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert completion.code == 0
    assert "_PORTICO_COMPLETE" in completion.out or "complete" in completion.out
