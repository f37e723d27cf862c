"""Whatever the values are, the statement is the benign one, and they stand beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from registry_world import BENIGN, DIALECTS, INJECTIONS, MISFITS, parameter, registered

from portico.errors import InvalidArguments
from portico.providers.sql.registry import BoundStatement, ObjectKind, build_registry_sql
from portico.providers.sql.sql_lexer import read_statement

KINDS = {
    "postgresql": (ObjectKind.FUNCTION, ObjectKind.MACRO, ObjectKind.TABLE),
    "sqlite": (ObjectKind.FUNCTION, ObjectKind.TABLE),
    "teradata": (ObjectKind.FUNCTION, ObjectKind.MACRO, ObjectKind.TABLE),
}
CASES = [(dialect, kind, code) for dialect in DIALECTS for kind in KINDS[dialect] for code in BENIGN]

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<bytes>'[0-9A-F]*'XB)|(?P<string>'[^']*(?:''[^']*)*')|(?P<name>"[^"]*(?:""[^"]*)*")"""
    r"""|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:E[+-]?[0-9]+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign>[(),.])|(?P<other>.)""",
    re.DOTALL,
)


def tree(sql: str) -> list[str]:
    """The tokens of a statement with its literals emptied; Teradata reads quotes in this way and no other."""
    pieces = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(sql)]
    assert not [text for kind, text in pieces if kind == "other"], sql
    empty = {"string": "''", "bytes": "''XB", "number": "0"}
    return [empty.get(str(kind), text) for kind, text in pieces if kind != "space"]


def called(dialect: str, kind: ObjectKind, code: str, value: Any) -> BoundStatement:
    """The statement for one value."""
    of = "upper" if dialect == "sqlite" and kind is ObjectKind.FUNCTION else "thing"
    found = registered(kind, parameter("x", code), object=of)
    is_json = kind is ObjectKind.TABLE and code in ("jsonb", "JN")
    return build_registry_sql(found, {"filters": {"x": {"is_null": True}}} if is_json else {"x": value}, dialect)


def attempted(build: Callable[[], BoundStatement]) -> BoundStatement | None:
    """The statement, or None when the arguments were refused in words."""
    try:
        return build()
    except InvalidArguments as refused:
        told = str(refused) if refused.details else ""
    assert 0 < len(told) < 2_000
    return None


def check_same(dialect: str, kind: ObjectKind, code: str, value: Any) -> None:
    """The value is refused in words, or the statement is that of a benign value."""
    benign = called(dialect, kind, code, BENIGN[code][0])
    statement = attempted(lambda: called(dialect, kind, code, value))
    if statement is None:
        return
    if benign.values or kind is not ObjectKind.MACRO or dialect != "teradata":
        assert statement.sql == benign.sql
        assert len(statement.values) == len(benign.values)
    else:
        assert tree(statement.sql) == tree(benign.sql)
    if kind is not ObjectKind.MACRO:
        assert read_statement(statement.sql, dialect).placeholders == statement.values.keys()


@pytest.mark.requirement("S4-E1", "S4-37", "T66")
@pytest.mark.parametrize(("dialect", "kind", "code"), CASES)
def test_five_hundred_injections_change_no_statement(dialect, kind, code):
    assert len(INJECTIONS) >= 500
    for text in INJECTIONS:
        check_same(dialect, kind, code, text)


@pytest.mark.requirement("S4-E1")
@pytest.mark.parametrize(("dialect", "kind", "code"), CASES)
def test_benign_and_unfit_values_change_no_statement(dialect, kind, code):
    for value in BENIGN[code]:
        check_same(dialect, kind, code, value)
    for values in MISFITS.values():
        for value in values:
            check_same(dialect, kind, code, value)


@pytest.mark.requirement("S4-E1", "T67")
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("code", [code for code in MISFITS if code != "jsonb"])
def test_a_value_of_another_type_makes_no_statement(dialect, code):
    for value in MISFITS[code]:
        with pytest.raises(InvalidArguments):
            called(dialect, ObjectKind.TABLE, code, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("S4-E1", "F50")
@settings(max_examples=500)
@given(value=JSON, case=st.sampled_from(CASES))
def test_any_json_is_refused_in_words_or_changes_no_statement(value, case):
    if value is not None:
        check_same(*case, value)


@settings(max_examples=200)
@given(value=st.text(), dialect=st.sampled_from(DIALECTS))
def test_any_text_is_bound_exactly_as_it_is(value, dialect):
    statement = attempted(lambda: called(dialect, ObjectKind.TABLE, "CV", value))
    if statement is None:
        assert "\0" in value
        return
    assert next(iter(statement.values.values())) == value


QUESTIONS = st.dictionaries(
    st.sampled_from(["x", "filters", "columns", "group_by", "aggregates", "order_by", "limit", "ghost"]),
    JSON,
    max_size=4,
)


@settings(max_examples=300)
@given(question=QUESTIONS, dialect=st.sampled_from(DIALECTS))
def test_any_question_is_refused_in_words_or_asked_with_registered_names(question, dialect):
    found = registered(ObjectKind.TABLE, parameter("x", "CV"))
    statement = attempted(lambda: build_registry_sql(found, question, dialect))
    assert statement is None or set(re.findall(r'"([^"]*)"', statement.sql)) <= {"shop", "thing", "x"}
