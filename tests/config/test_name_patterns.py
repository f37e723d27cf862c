"""Patterns match as `re.match` does, and none of them can hold the gateway."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.config.profiles import NAME_LENGTHS, PATTERN_LENGTH, read_pattern

QUICK = [
    ".*",
    "^base_.*",
    "X",
    "base_(read|write)Query$",
    "[a-z]+_[a-z]+_[a-z]+",
    "(?i)^BASE_",
    "(?:abc){3}",
    "(abc)*",
    "a{2,5}",
    "a{,3}b",
    "a{}b",
    "[]x|*+]+",
    r"\(\)\*+",
    "^(?=.*read)(?!.*secret).*$",
    "(?P<kind>base|dba)_.*",
    "(base_)?read.*",
    "",
]
SLOW = [
    "(a+)+$",
    "(a*)*b",
    "(.*)*x",
    "(a|a)*$",
    "(a|aa)+$",
    "((a?)b)*c",
    "(a{1,9}){9}",
    "(?:x+x+)+y",
    "(a{,}){,}b",
    ".*.*.*.*.*=.*",
    "a?" * 30 + "a" * 30,
    "(a|ab)" * 30,
    "(?x)a # (\n",
    "(a)(?(1)b|c)",
]


@pytest.mark.parametrize("text", QUICK)
def test_what_people_write_is_taken(text: str):
    pattern = read_pattern(text)
    for name in ("base_readQuery", "abcabcabc", "X", "Y", "", "aab", "a{}b", "()*", "dba_x_y"):
        assert pattern.fits(name) == bool(re.match(text, name))


@pytest.mark.requirement("P-NO-SLOW-PATTERNS")
@pytest.mark.parametrize("text", SLOW)
def test_what_may_never_end_is_refused(text: str):
    with pytest.raises(ValueError, match=r"this pattern"):
        read_pattern(text)


@pytest.mark.parametrize("text", ["(", "[", "*", "a**", "(?P<x", "\\", "(?<=a+)b", "a{5,2}", "a{99999999999999}"])
def test_what_is_no_expression_is_named(text: str):
    with pytest.raises(ValueError, match="this is not a regular expression"):
        read_pattern(text)


def test_a_pattern_has_a_longest_text_and_a_longest_name():
    read_pattern("a" * PATTERN_LENGTH)
    with pytest.raises(ValueError, match="longer than 500 characters"):
        read_pattern("a" * (PATTERN_LENGTH + 1))
    everything = read_pattern(".*")
    assert everything.fits("a" * NAME_LENGTHS[0])
    assert not everything.fits("a" * (NAME_LENGTHS[0] + 1))
    assert read_pattern(".*a.*b.*c").longest < NAME_LENGTHS[0], "it takes more steps, and so is tried on less"


@pytest.mark.requirement("P-NO-SLOW-PATTERNS")
@given(st.text("ab.*+?|(){}[],1\\", max_size=14))
def test_whatever_is_taken_ends(text: str):
    try:
        pattern = read_pattern(text)
    except ValueError:
        return
    for letters in ("a", "ab", "b"):
        name = (letters * 512)[: pattern.longest - 1] + "!"
        assert pattern.fits(name) == bool(re.match(text, name))


def test_a_pattern_that_another_python_may_read_otherwise_is_taken_without_a_word():
    assert read_pattern("[[]").fits("[")
