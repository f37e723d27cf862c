"""`portico stats --export`: the journal as JSON lines, all of it, and nothing that is private beyond doubt."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from portico.domain.call import Invocation, Outcome
from portico.domain.journal_entries import Batch, Entry, Look, Lookup, entry_data
from portico.domain.tool import ToolId
from portico.storage import reports
from portico.storage.database_interface import Database
from portico.storage.journal_tables import Ledger
from portico.storage.memory import MemoryJournal
from tests.journeys.running import portico, write_config
from tests.surfaces.cli.shell import Shell

pytestmark = pytest.mark.requirement("P-JOURNAL-EXPORT")

TOKEN = "ghp_abcdef1234567890abcdef"
SECRET = "open sesame 77"
TOOLS = """
def handle_add(a: int, b: int, note: str = "") -> int:
    'Add two numbers.'
    return a + b
"""


def call(at: float, text: str = "") -> Invocation:
    tool = ToolId("s", "a")
    return Invocation(tool=tool, spelled=text, caller="c", surface="t", outcome=Outcome.DONE, seconds=0.1, at=at)


def look(at: float, text: str, look: Look = Look.SEARCH) -> Lookup:
    return Lookup(look=look, caller="c", surface="t", at=at, text=text)


def told(entries: list[Entry]) -> list[str]:
    return [entry.text if isinstance(entry, Lookup) else entry.spelled for entry in entries]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("export")
    (home / "tools.py").write_text(TOOLS)
    servers = {"away": {"command": "nothing", "enabled": False, "env": {"API_TOKEN": SECRET}}}
    write_config(home, servers, python=["tools.py"])
    assert portico(home, "search", f"add {TOKEN} numbers {SECRET}").returncode in (0, 4)
    assert portico(home, "call", "add", '{"a": 1, "b": 2, "note": "hunter2"}').returncode == 0
    assert portico(home, "call", "no_such_tool_hunter3").returncode == 4
    assert portico(home, "search", "a line\u202e\x1b[31m of another color").returncode in (0, 4)
    return home


def test_every_entry_is_a_line_the_oldest_first_without_what_was_in_calls(home: Path, tmp_path: Path):
    target = tmp_path / "run.jsonl"
    done = portico(home, "stats", "--export", str(target))
    assert (done.returncode, done.stdout) == (0, f"Wrote 4 entries of the last 7 days to {target}.\n"), done.stderr
    text = target.read_text()
    assert [word for word in ("hunter2", "hunter3", TOKEN, SECRET, "\x1b", "\u202e") if word in text] == []
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["kind"] for row in rows] == ["search", "call", "call", "search"]
    assert rows[0]["query"] == "add *** numbers [API_TOKEN]"
    assert [row["tool"] for row in rows[1:3]] == ["local::add", None]
    assert [row["outcome"] for row in rows[1:3]] == ["done", "invalid"]
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_stdout_takes_the_same_lines(home: Path, tmp_path: Path):
    portico(home, "stats", "--export", str(tmp_path / "run.jsonl"))
    assert portico(home, "stats", "--export", "-").stdout == (tmp_path / "run.jsonl").read_text()


def test_json_says_how_many_entries_there_are(home: Path, tmp_path: Path):
    target = str(tmp_path / "run.jsonl")
    done = portico(home, "stats", "--export", target, "--json")
    assert json.loads(done.stdout) == {"entries": 4, "file": target}


@pytest.mark.parametrize("target", ["there.jsonl", "no/such/folder.jsonl"])
def test_a_file_that_is_there_is_kept_and_one_that_cannot_be_made_is_named(home: Path, tmp_path: Path, target: str):
    (tmp_path / "there.jsonl").write_text("mine")
    done = portico(home, "stats", "--export", str(tmp_path / target))
    assert done.returncode == 3
    assert "--export" in done.stderr
    assert (tmp_path / "there.jsonl").read_text() == "mine"
    assert os.listdir(tmp_path) == ["there.jsonl"]


def test_nothing_is_left_of_an_export_that_fails(shell: Shell):
    (shell.home / "store.db").write_bytes(b"this is no database" * 100)
    shell.configure('{"servers": {}, "store": "sqlite:///store.db"}')
    assert shell.run("stats", "--export", "run.jsonl").code == 3
    assert not (shell.home / "run.jsonl").exists()


def test_all_entries_come_in_order_across_pages_and_equal_moments(database: Database, monkeypatch: pytest.MonkeyPatch):
    entries = [one for at in range(10, 20) for one in (call(at // 3, f"c{at}"), look(at // 3, f"l{at}"))]
    monkeypatch.setattr(reports, "PAGE", 3)
    ledger = Ledger(database, now=lambda: 5.0)
    ledger.append(Batch(writer="w", entries=tuple(entries)))
    found = list(ledger.entries(4.0))
    assert sorted(told(found)) == sorted(told([one for one in entries if 4 <= one.at <= 5]))
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert [one for one in told(found) if one.startswith("c")] == [f"c{at}" for at in range(12, 18)]


def test_an_entry_is_read_as_it_was_recorded(database: Database):
    entries = [
        Lookup(look=Look.SEARCH, caller="c", surface="t", at=1.0, seconds=0.5, text="q", shown=2, found=3, fits=False,
               tokens=4, instead=5),
        call(2.0, "text"),
    ]  # fmt: skip
    ledger = Ledger(database, now=lambda: 9.0)
    ledger.append(Batch(writer="w", entries=tuple(entries)))
    assert list(ledger.entries(0.0)) == entries


def test_a_journal_in_memory_gives_what_it_has():
    journal = MemoryJournal()
    for entry in (call(3.0, "third"), look(2.0, "second"), look(1.0, "first")):
        journal.record(entry)
    assert told(journal.entries(2.0)) == ["second", "third"]


def test_only_searches_are_told_with_their_words():
    rows = [entry_data(look(1.0, "private", kind)) for kind in Look]
    assert [row["kind"] for row in rows if "private" in row.values()] == ["search"]
