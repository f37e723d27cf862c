"""Commands for whoever runs the house, as processes of their own: what one writes down the next one knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from portico.domain.usage_and_tiers import assign_tier
from portico.surfaces.cli.context import Exit

from .shell import TINY, TOOLS, Shell

STORE = "${DATABASE_URL:-sqlite:///mine.db}"
ENTRY = {"command": sys.executable, "args": [str(TINY), json.dumps(TOOLS)], "category": "files"}
CONFIG = json.dumps({"store": STORE, "servers": {"tiny": ENTRY}, "journal": {"mode": "durable"}})


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell whose tiny server was called three times, once in vain."""
    shell = Shell(tmp_path_factory.mktemp("used"))
    shell.configure(CONFIG)
    for arguments in (["tiny.read_file", "path=x"], ["tiny.read_file", "path=y"], ["tiny.fail"]):
        shell.run("call", *arguments)
    return shell


@pytest.mark.requirement("P-UNANSWERED")
def test_stats_name_what_was_searched_and_not_found(used: Shell) -> None:
    for query in ("xylophone tuning", "Xylophone tuning", "read a file"):
        used.run("search", query)
    found = used.run("stats", "--json").json
    assert [(line["query"].lower(), line["count"]) for line in found["unanswered_searches"]] == [
        ("xylophone tuning", 2)
    ]
    assert "SEARCHED AND NOT FOUND  TIMES  LAST" in used.run("stats").out


@pytest.mark.requirement("P-LEARNED-STORED", "P-LEARNED-OFF", "P-CLI-JSON")
def test_stats_show_what_was_learned_from_use_and_forget_it(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.configure(CONFIG)
    script = '_gateway.search({ query = "read a parchment" }):await() tiny.read_file({ path = "x" }):await()'
    (tmp_path / "use.lua").write_text(script, encoding="utf-8")
    assert shell.run("run", "use.lua").code == 0
    found = shell.run("stats", "--json").json["learned"]
    assert [(line["word"], line["tool"], line["uses"], line["is_shared"]) for line in found] == [
        ("parchment", "tiny::read_file", 1, False),
        ("read", "tiny::read_file", 1, False),
    ]
    shown = shell.run("stats").out
    assert re.search(r"LEARNED WORD +TOOL +USES +WEIGHT +FOR", shown)
    assert re.search(r"parchment +tiny\.read_file +1 +1\.00 +you", shown)
    assert shell.run("stats", "--forget-learned", "--json").json == {"forgotten": 2}
    assert shell.run("stats", "--forget-learned").out == "Forgot 0 learned words.\n"
    assert shell.run("stats", "--json").json["learned"] == []
    assert shell.run("stats", "--json").json["calls"] > 0, "nothing else is forgotten"


def test_stats_know_the_calls_of_other_commands(used: Shell) -> None:
    found = used.run("stats", "--json").json
    assert (found["calls"], found["outcomes"]) == (3, {"done": 2, "failed": 1})
    assert [(line["tool"], line["calls"]) for line in found["top"]] == [("tiny::read_file", 2), ("tiny::fail", 1)]
    assert [line["tool"] for line in found["failing"]] == ["tiny::fail"]
    assert found["by_day"][-1]["calls"] == 3
    assert found["losses"] == {"dropped": 0, "lost": 0}
    shown = used.run("stats")
    assert shown.out.startswith("Last 7 days: 3 calls, 66.7% of them ended well.\n")
    assert "█" in shown.out
    plain = used.run("stats", PYTHONIOENCODING="ascii")
    assert (plain.code, "####################" in plain.out) == (0, True)


@pytest.mark.requirement("S1-74")
def test_tiers_that_one_command_works_out_are_shown_by_the_next(used: Shell) -> None:
    ended = used.run("tiers", "update")
    assert (ended.code, ended.out) == (0, "Updated tier scores for 5 tools\n")
    lines = used.run("tiers", "--json").json
    assert lines[0]["handle"] == "tiny.read_file"
    assert (lines[0]["calls"], lines[0]["calls_7d"]) == (2, 2)
    assert 0.40 <= lines[0]["score"] <= 0.60, "two calls that ended well, whatever time they took"
    assert lines[0]["tier"] == assign_tier(lines[0]["score"])


def test_a_category_stays_as_it_was_set(used: Shell) -> None:
    assert used.run("categories", "set", "files", "--display-name", "Papers", "--order", "1").code == 0
    first = used.run("categories", "--json").json[0]
    assert (first["name"], first["display_name"], first["tools"], first["from"]) == ("files", "Papers", 5, "edited")
    assert used.run("categories", "reset", "files").out == "files is as it was\n"
    assert used.run("categories", "--json").json[0]["name"] != "files"


def test_a_tool_stands_where_it_was_put(used: Shell) -> None:
    before = (used.home / "portico.yaml").read_text()
    assert used.run("categories", "assign", "tiny.send_mail", "communication").code == 0
    listed = {line["name"]: line["tools"] for line in used.run("categories", "--json").json}
    assert (listed["communication"], listed["files"]) == (1, 4)
    (used.home / "portico.yaml").write_text(before)


def test_the_budget_is_verified(used: Shell) -> None:
    ended = used.run("budget", "verify")
    assert ended.code == 0
    assert "Budget verification: T0=" in ended.out


def test_doctor_names_the_store(used: Shell) -> None:
    ended = used.run("doctor")
    assert ended.code == 0
    assert f"ok  store sqlite:///{used.home}/mine.db: journal durable\n" in ended.out


@pytest.mark.requirement("S1-74")
def test_the_same_over_postgresql(shell: Shell, postgres_url: str) -> None:
    shell.configure(CONFIG)
    assert shell.run("call", "tiny.read_file", "path=x", DATABASE_URL=postgres_url).code == 0
    assert shell.run("stats", "--json", DATABASE_URL=postgres_url).json["top"][0]["tool"] == "tiny::read_file"
    assert shell.run("tiers", "update", DATABASE_URL=postgres_url).out == "Updated tier scores for 5 tools\n"
    assert shell.run("tiers", "--json", DATABASE_URL=postgres_url).json[0]["calls"] == 1
    ended = shell.run("doctor", DATABASE_URL=postgres_url)
    assert "ok  store postgresql:///test_" in ended.out
    assert "postgres:" not in ended.out


def test_a_database_that_is_away_is_named_without_its_password(shell: Shell) -> None:
    away = "postgresql://ana:hunter2@127.0.0.1:1/portico"
    shell.configure("store: ${DATABASE_URL}")
    ended = shell.run("stats", DATABASE_URL=away)
    assert ended.code == Exit.CONFIG
    assert "127.0.0.1" in ended.err
    assert "hunter2" not in ended.out + ended.err


def test_a_store_that_forgets_has_an_empty_journal(shell: Shell) -> None:
    shell.configure("store: memory")
    ended = shell.run("stats")
    assert (ended.code, ended.out.splitlines()[0]) == (0, "The journal of the last 7 days is empty.")
    assert "the store is `memory`" in ended.out


def test_help_loads_nothing_heavy() -> None:
    heavy = "numpy sqlalchemy alembic fastapi pydantic mcp psycopg prometheus_client"
    code = (
        "import sys, portico.__main__\n"
        "sys.argv = ['portico', '--help']\n"
        "try: portico.__main__.main()\n"
        "except SystemExit: pass\n"
        f"print('loaded:', sorted(set({heavy.split()!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.endswith("loaded: []\n"), done
