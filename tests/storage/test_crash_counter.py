"""What a killed process loses is counted, once, by whoever comes next."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path

import pytest
from tests.storage.fake_ledger import FakeLedger

from portico.errors import StoreError
from portico.storage import journal as losses
from portico.storage.journal import MARK, SUFFIX, WriterCounter


@pytest.fixture
def ledger() -> FakeLedger:
    return FakeLedger()


def settle(folder: Path, ledger: FakeLedger) -> int:
    """How many entries were found to be lost."""
    found: list[int] = []
    losses.settle(folder, ledger, found.append)
    return sum(found)


def left_behind(folder: Path, recorded: int) -> str:
    """The name of a writer that ended without notice."""
    tally = WriterCounter(folder)
    tally.numbers[0] += recorded
    tally.close(keep=True)
    return tally.writer


def test_what_an_ended_writer_had_not_stored_is_lost_and_its_file_goes(tmp_path: Path, ledger: FakeLedger) -> None:
    writer = left_behind(tmp_path, 100)
    ledger.writers[writer] = 63
    assert settle(tmp_path, ledger) == 37
    assert ledger.lost == {writer: 37}
    assert settle(tmp_path, ledger) == 0
    assert not list(tmp_path.iterdir())


def test_a_writer_that_had_stored_everything_lost_nothing_and_is_said_to_be_gone(
    tmp_path: Path, ledger: FakeLedger
) -> None:
    writer = left_behind(tmp_path, 100)
    ledger.writers[writer] = 100
    assert settle(tmp_path, ledger) == 0
    assert ledger.lost == {writer: 0}
    assert not list(tmp_path.iterdir())


def test_a_writer_that_lives_is_left_alone(tmp_path: Path, ledger: FakeLedger) -> None:
    alive = WriterCounter(tmp_path)
    alive.numbers[0] += 5
    assert alive.is_kept
    assert settle(tmp_path, ledger) == 0
    assert [path.stem for path in tmp_path.iterdir()] == [alive.writer]
    alive.close(keep=False)
    assert not list(tmp_path.iterdir())
    alive.numbers[0] += 1  # a late one disturbs nobody
    assert alive.numbers[0] == 6


def test_the_number_is_in_the_file_without_a_word_to_the_disk(tmp_path: Path) -> None:
    tally = WriterCounter(tmp_path)
    for _ in range(1_000):
        tally.numbers[0] += 1
    (file,) = tmp_path.iterdir()
    assert struct.unpack("=8sQ", file.read_bytes()) == (MARK, 1_000)
    tally.close(keep=False)


@pytest.mark.requirement("P-STORE-CORRUPT")
@pytest.mark.parametrize(
    "content", [b"", b"\0" * 8, b"garbage", b"\xff" * 16, b"\xff" * 500, MARK, MARK + b"\0" * 8, MARK + b"\xff" * 9]
)
def test_a_file_that_is_no_counter_stops_nothing_and_goes(tmp_path: Path, ledger: FakeLedger, content: bytes) -> None:
    (tmp_path / f"strange{SUFFIX}").write_bytes(content)
    writer = left_behind(tmp_path, 3)
    assert settle(tmp_path, ledger) == 3
    assert ledger.lost == {writer: 3}
    assert not list(tmp_path.iterdir())


def test_what_is_not_ours_is_left_alone(tmp_path: Path, ledger: FakeLedger) -> None:
    (tmp_path / f"folder{SUFFIX}").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"nowhere{SUFFIX}").symlink_to(tmp_path / "missing")
    assert settle(tmp_path, ledger) == 0
    assert len(list(tmp_path.iterdir())) == 3
    assert settle(tmp_path / "missing", ledger) == 0


def test_more_stored_than_recorded_is_no_loss(tmp_path: Path, ledger: FakeLedger) -> None:
    ledger.writers[left_behind(tmp_path, 5)] = 9
    assert settle(tmp_path, ledger) == 0


def test_while_the_ledger_is_away_files_stay_for_the_next_time(tmp_path: Path, ledger: FakeLedger) -> None:
    left_behind(tmp_path, 2)
    left_behind(tmp_path, 3)
    ledger.away = "gone"
    with pytest.raises(StoreError, match="gone"):
        settle(tmp_path, ledger)
    assert len(list(tmp_path.iterdir())) == 2
    ledger.away = ""
    assert settle(tmp_path, ledger) == 5


def test_a_file_that_another_has_settled_meanwhile_is_not_settled_again(
    tmp_path: Path, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_behind(tmp_path, 4)
    seen = sorted(tmp_path.iterdir())
    quicker = FakeLedger()
    lock = losses._lock

    def late(file: int) -> bool:
        monkeypatch.setattr(losses, "_lock", lock)
        assert settle(tmp_path, quicker) == 4
        return lock(file)

    monkeypatch.setattr(losses, "_lock", late)
    assert settle(tmp_path, ledger) == 0
    assert len(seen) == 1
    assert not ledger.lost


def test_a_new_file_that_was_taken_for_an_ended_writers_is_begun_again(
    tmp_path: Path, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = losses._lock

    def late(file: int) -> bool:
        monkeypatch.setattr(losses, "_lock", lock)
        assert settle(tmp_path, ledger) == 0
        return lock(file)

    monkeypatch.setattr(losses, "_lock", late)
    tally = WriterCounter(tmp_path)
    tally.numbers[0] += 7
    assert tally.is_kept
    assert [path.stem for path in tmp_path.iterdir()] == [tally.writer]
    tally.close(keep=True)
    assert settle(tmp_path, ledger) == 7


def test_where_no_file_can_be_had_nothing_is_counted_and_nothing_fails(
    tmp_path: Path, ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.DEBUG, "portico.storage.journal"):
        blocked = WriterCounter(tmp_path / "file" / "writers")
    assert len(caplog.records) == 1
    monkeypatch.setattr(losses, "fcntl", None)
    for tally in (blocked, WriterCounter(None), WriterCounter(tmp_path)):
        tally.numbers[0] += 1
        assert not tally.is_kept
        tally.close(keep=True)
        assert tally.numbers[0] == 1
    assert settle(tmp_path, ledger) == 0
    assert os.listdir(tmp_path) == ["file"]
