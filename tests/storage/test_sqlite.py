"""The SQLite file: shared by processes, moved aside when damaged, and never a reason to stop."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from portico.domain.server import Offering
from portico.errors import StoreError, StoreRefused
from portico.storage.remembered_offerings import DatabaseDefinitions
from portico.storage.storage import open_database

OFFERING = Offering(server="s", tools=({"name": "x"},))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "portico.db"


def open_sqlite(file: Path) -> DatabaseDefinitions:
    return DatabaseDefinitions(open_database(f"sqlite:///{file}", file.parent))


def saved(file: Path) -> None:
    store = open_sqlite(file)
    store.save(OFFERING, "1")
    store.close()


def loaded(file: Path) -> dict[str, Offering]:
    store = open_sqlite(file)
    try:
        return store.load({"s": "1"})
    finally:
        store.close()


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_a_file_that_is_no_database_is_moved_aside_and_kept(file: Path) -> None:
    file.write_bytes(b"this is not a database, it is a text " * 100)
    file.with_name("portico.db-wal").write_bytes(b"an old log")
    assert loaded(file) == {}
    aside = [path for path in file.parent.glob("*corrupt*") if not path.name.endswith(("-wal", "-shm"))]
    assert [path.read_bytes()[:22] for path in aside] == [b"this is not a database"]
    saved(file)
    assert loaded(file) == {"s": OFFERING}


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_an_empty_file_becomes_a_store(file: Path) -> None:
    file.touch()
    saved(file)
    assert loaded(file) == {"s": OFFERING}


@pytest.mark.requirement("P-STORE-CORRUPT")
@pytest.mark.parametrize(
    "blob", [b"", b"not json", b"[]", b"5", b"null", b'{"server": 1, "unknown": 2}', b"\xff", b'{"tools": 5}']
)
def test_a_row_that_cannot_be_read_is_as_good_as_missing(file: Path, blob: bytes) -> None:
    saved(file)
    connection = sqlite3.connect(file)
    connection.execute("INSERT INTO offerings VALUES ('bad', '1', 0, ?)", (blob,))
    connection.commit()
    connection.close()
    store = open_sqlite(file)
    assert store.load({"s": "1", "bad": "1"}) == {"s": OFFERING}
    store.close()


@pytest.mark.requirement("P-STORE-CORRUPT")
def test_a_damaged_page_is_an_error_of_ours(file: Path) -> None:
    store = open_sqlite(file)
    for number in range(50):
        store.save(Offering(server=f"s{number}", tools=({"name": "x" * 3_000},)), "1")
    store.close()
    content = bytearray(file.read_bytes())
    half = len(content) // 2  # the first pages say which tables there are
    content[half:] = b"\xaa" * half
    file.write_bytes(content)
    damaged = open_sqlite(file)
    with pytest.raises(StoreError, match=r"did not answer.*damaged: stop Portico and move it away"):
        damaged.load({"s1": "1"})
    with pytest.raises(StoreError, match="did not answer"):
        damaged.database.check()
    damaged.close()


def test_a_sound_file_passes_its_check(file: Path) -> None:
    saved(file)
    database = open_database("sqlite", file.parent)
    database.check()
    database.close()


@pytest.mark.requirement("P-STORE-ADVICE")
def test_a_folder_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("a file")
    with pytest.raises(StoreError, match="set PORTICO_HOME to a folder that can be written"):
        open_sqlite(tmp_path / "occupied" / "portico.db")
    (tmp_path / "folder.db").mkdir()
    with pytest.raises(StoreError, match="it is not a regular file"):
        open_sqlite(tmp_path / "folder.db")


def test_an_offering_that_is_not_json_is_an_error_of_ours(file: Path) -> None:
    store = open_sqlite(file)
    with pytest.raises(StoreError, match="cannot be written as JSON"):
        store.save(Offering(server="s", tools=({"name": 10**30},)), "1")
    store.close()


def test_two_stores_on_one_file_see_each_others_work(file: Path) -> None:
    one, two = open_sqlite(file), open_sqlite(file)
    one.save(OFFERING, "1")
    assert two.load({"s": "1"}) == {"s": OFFERING}
    two.forget(["s"])
    assert one.load({"s": "1"}) == {}
    one.close()
    two.close()


def test_a_closed_store_says_so_in_our_words(file: Path) -> None:
    store = open_sqlite(file)
    store.close()
    with pytest.raises(StoreError, match="did not answer"):
        store.load({})
    with pytest.raises(StoreError, match="it is closed"):
        store.forget(["s"])


def test_a_start_that_only_reads_vectors_writes_nothing(file: Path) -> None:
    store = open_sqlite(file)
    store.save_vectors("m", {"a": b"1"})
    other = sqlite3.connect(file)
    (before,) = other.execute("PRAGMA data_version").fetchone()
    store.load_vectors("m", ["a"])
    assert other.execute("PRAGMA data_version").fetchone() == (before,)
    other.close()
    store.close()


def test_vectors_are_saved_all_or_none(file: Path) -> None:
    store = open_sqlite(file)
    with pytest.raises(StoreRefused, match="refused what it was given: NOT NULL"):
        store.save_vectors("m", {"a": b"1", "b": None})  # type: ignore[dict-item]
    assert store.load_vectors("m", ["a"]) == {}
    store.save_vectors("m", {"a": b"1"})
    store.close()
