"""The first line that says something is the summary."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.surfaces.search import SUMMARY_LENGTH, first_line, summary
from portico.testing import definition, tool
from tests.sample_tools import handle_base_readQuery


@pytest.mark.requirement("S0-40")
def test_the_documented_docstring_gives_the_documented_summary() -> None:
    doc = inspect.getdoc(handle_base_readQuery) or ""
    assert first_line(doc) == "Execute a SQL query via SQLAlchemy, bind parameters if provided."


@pytest.mark.requirement("S0-37", "S0-39")
@pytest.mark.parametrize("text", ["\n\n  \n\t\nReads.\nMore.", "Reads.", "---\n\n***\nReads.", "```\nReads."])
def test_empty_lines_and_rules_are_skipped(text: str) -> None:
    assert first_line(text) == "Reads."


@pytest.mark.requirement("S0-38")
@pytest.mark.parametrize(
    "header", ["Arguments:", "  args:", "Returns:", "Raises:", "Example:", "Return value:", "**Usage:**", "# Anything:"]
)
def test_section_headers_are_skipped(header: str) -> None:
    assert first_line(f"{header}\n  Reads a file.\n") == "Reads a file."


@pytest.mark.requirement("S0-E7")
@pytest.mark.parametrize("line", ["Notes on format:", "Reads one of these:", "Use this when you need to:"])
def test_a_sentence_that_ends_with_a_colon_is_no_header(line: str) -> None:
    assert first_line(f"{line}\n- a\n- b") == line


def test_a_description_that_says_nothing_is_replaced_by_the_title() -> None:
    assert summary(tool(definition("x", "Arguments:\n\n") | {"title": "Read  it"})) == "Read it"
    assert summary(tool(definition("x"))) == ""


def test_a_long_line_is_cut_at_a_word() -> None:
    line = first_line("word " * 1_000)
    assert len(line) <= SUMMARY_LENGTH
    assert line.endswith("word…")


@given(st.text(max_size=400))
def test_any_text_gives_one_line(text: str) -> None:
    line = first_line(text)
    assert len(line) <= SUMMARY_LENGTH
    assert line.splitlines() in ([], [line])
