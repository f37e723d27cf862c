"""Moments as people write them."""

from __future__ import annotations

import pytest

from portico.domain.journal_entries import read_moment, told_time

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("15m", NOW - 900),
        ("2h", NOW - 7_200),
        (" 3D ", NOW - 259_200),
        ("1.5s", NOW - 1.5),
        ("1w", NOW - 604_800),
        ("2023-11-14", 1_699_920_000.0),
        ("2023-11-14T22:13:20", NOW),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("soon", None),
        ("15", None),
        ("-5m", None),
        ("", None),
        ("9" * 400 + "d", 0.0),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, at: float | None):
    assert read_moment(text, NOW) == at


def test_a_moment_is_told_in_utc():
    assert told_time(NOW + 0.25) == "2023-11-14T22:13:20.250Z"
    assert told_time(1e12) == ""
