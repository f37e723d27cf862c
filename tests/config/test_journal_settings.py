"""The keys `store` and `journal`, and the shelves that `categories` puts tools on."""

from __future__ import annotations

from pathlib import Path

import pytest

from portico.config import GatewaySettings, JournalSettings
from portico.config.edit_and_import import add_server, assign_category, server_entries
from portico.config.variables_and_masking import mask
from portico.errors import ConfigError
from portico.storage.database_interface import sqlite_file

from .conftest import Home

SECRET = "hunter2"


def read(home: Home, text: str) -> GatewaySettings:
    home.write("project/portico.yaml", text)
    settings = home.load()
    assert settings.problems == ()
    return settings


def test_without_a_word_the_store_is_sqlite_and_the_journal_batched(home: Home) -> None:
    for settings in (home.load(), read(home, "port: 1"), read(home, "store:\njournal:\n")):
        assert settings.storage.store == "sqlite"
        assert settings.storage.journal == JournalSettings(mode="batched", keep_days=90, buffer=50_000, wait_s=10)


@pytest.mark.parametrize(
    ("written", "store"),
    [
        ("sqlite", "sqlite"),
        ("memory", "memory"),
        ("sqlite:///state/portico.db", "sqlite:///{project}/state/portico.db"),
        ("sqlite:////var/lib/portico.db", "sqlite:////var/lib/portico.db"),
        ("sqlite:///~/portico.db", "sqlite:///{home}/portico.db"),
        ("postgresql://db/portico", "postgresql://db/portico"),
        ("postgres://ana@db:5433/portico?sslmode=require", "postgresql://ana@db:5433/portico?sslmode=require"),
        ("postgresql+asyncpg://db/portico", "postgresql://db/portico"),
        ("postgresql:///portico?host=/run/postgresql", "postgresql:///portico?host=/run/postgresql"),
    ],
)
def test_a_store_is_a_word_a_file_or_a_database(home: Home, written: str, store: str) -> None:
    found = read(home, f'store: "{written}"').storage.store
    assert found == store.format(project=home.project, home=home.folder)


def test_a_folder_with_signs_of_urls_in_its_name_is_the_folder_that_is_opened(home: Home) -> None:
    config = home.write("a%41?b#c/portico.yaml", 'store: "sqlite:///x%20y.db"')
    assert sqlite_file(home.load(config).storage.store, home.folder) == config.with_name("x%20y.db")


@pytest.mark.requirement("P-STORE-SECRET")
def test_the_address_of_a_database_comes_from_the_environment_and_is_never_printed(home: Home) -> None:
    home.environ["DATABASE_URL"] = f"postgresql://ana:{SECRET}@db.example.com:5432/portico?application_name={SECRET}"
    settings = read(home, 'store: "${DATABASE_URL}"')
    assert settings.storage.store == home.environ["DATABASE_URL"]
    assert settings.storage.store_shown == "postgresql://db.example.com:5432/portico"
    assert SECRET not in repr(settings)
    assert SECRET not in str(mask({"store": settings.storage.store}))
    assert GatewaySettings(home=settings.home).storage.store_shown == "sqlite"


BROKEN = {
    "punchcards": "this store is not known",
    "mysql://db/portico": "this store is not known",
    "''": "this store is not known",
    "5": "must be text",
    "[sqlite]": "must be text",
    "sqlite://portico.db": "names no file",
    "sqlite:///": "names no file",
    "'sqlite:///:memory:'": "memory needs no file",
    f"'postgresql://ana:{SECRET}/x@db/portico'": "cannot be read",
    f"'postgresql://ana:1/{SECRET}@db/portico'": "as %2F",
    f"'postgresql://ana:{SECRET}#1@db/portico'": "cannot be read",
    "'postgresql://db:port/portico'": "cannot be read",
    "${NOT_SET}": "the variable NOT_SET is not set",
}


@pytest.mark.parametrize("written", BROKEN)
def test_a_store_that_cannot_be_used_stops_the_start_with_its_line(home: Home, written: str) -> None:
    file = home.write("project/portico.yaml", f"port: 1\nstore: {written}\nservers: {{a: {{command: x}}}}\n")
    with pytest.raises(ConfigError, match=BROKEN[written]) as caught:
        home.load()
    assert (caught.value.file, caught.value.line, caught.value.where) == (str(file), 2, "store")
    assert caught.value.fix
    assert SECRET not in str(caught.value)


def test_a_journal_is_one_word_or_a_table(home: Home) -> None:
    assert read(home, "journal: durable").storage.journal == JournalSettings(mode="durable")
    table = "journal: {mode: durable, keep_days: 7, buffer: 100, wait_s: 0.5}"
    assert read(home, table).storage.journal == JournalSettings(mode="durable", keep_days=7, buffer=100, wait_s=0.5)
    assert read(home, "journal: {keep_days: 7}").storage.journal == JournalSettings(keep_days=7)


JOURNALS = {
    "durably": ("journal", "Did you mean 'durable'?"),
    "true": ("journal", "Use one of: batched, durable"),
    "[durable]": ("journal", "Use one of: batched, durable"),
    "{mode: fast}": ("journal.mode", "Use one of: batched, durable"),
    "{keep_day: 7}": ("journal.keep_day", "Did you mean 'keep_days'?"),
    "{keep_days: 0}": ("journal.keep_days", "from 1 to 36500"),
    "{buffer: 1.5}": ("journal.buffer", "not a usable number"),
    "{wait_s: 0}": ("journal.wait_s", "above 0"),
}


@pytest.mark.parametrize("written", JOURNALS)
def test_what_is_wrong_with_a_journal_is_named_and_its_default_is_in_force(home: Home, written: str) -> None:
    home.write("project/portico.yaml", f"journal: {written}\nport: 1\n")
    settings = home.load()
    (problem,) = settings.problems
    where, words = JOURNALS[written]
    assert (problem.line, problem.where) == (1, where)
    assert words in str(problem)
    assert (settings.storage.journal, settings.http.port) == (JournalSettings(), 1)


COMMENTED = """\
servers: {a: {command: x}}
# shelves
categories:
  a: maths   # by hand
  # the end
port: 1
"""


def test_a_shelf_is_written_where_it_stands_and_comments_stay(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text(COMMENTED)
    assign_category(file, "a", "numbers")
    assert file.read_text() == COMMENTED.replace("a: maths", 'a: "numbers"')
    assign_category(file, "a.add", "sums")
    assert file.read_text() == COMMENTED.replace("a: maths   # by hand\n", 'a: "numbers"   # by hand\n  a.add: sums\n')


def test_a_first_shelf_makes_the_table_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    assign_category(file, "git_*", "code")
    assert file.read_text() == "categories:\n  git_*: code\n"
    (tmp_path / "portico.json").write_text('{"servers": {}}')
    assign_category(tmp_path / "portico.json", "a", "code")
    assert (tmp_path / "portico.json").read_text() == '{"servers": {}, "categories": {"a": "code"}}'


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("portico.yaml", "categories: [a]", "must be a table"),
        (".mcp.json", '{"mcpServers": {}}', "a client's own file"),
        ("portico.toml", "port = 1", "TOML"),
    ],
)
def test_a_shelf_is_not_written_where_it_would_not_be_read(tmp_path: Path, name: str, text: str, words: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        assign_category(file, "a", "b")
    assert file.read_text() == text


def test_a_number_with_an_exponent_costs_a_file_no_comments(tmp_path: Path) -> None:
    file = tmp_path / "portico.yaml"
    file.write_text("# above\nservers: {}\n")
    entry = {"command": "x", "x-small": [1e-05, 1.5e-07, -2e16, 0.1], "x-text": '1e-05 "2e+16"'}
    add_server(file, "a", entry)
    assert file.read_text().startswith("# above\nservers: {")
    assert server_entries(file)["a"] == entry
