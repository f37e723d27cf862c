"""Text is taken apart as the databases do it: what looks like a second statement inside a string is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.errors import InvalidArguments, Refused
from portico.providers.sql.sql_lexer import read_statement, tokens

SQLITE, POSTGRES, MYSQL = "sqlite", "postgresql", "mysql"


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT ';'", SQLITE),
        ("SELECT 'it''s; fine'", SQLITE),
        ('SELECT 1 AS "a;b"', SQLITE),
        ("SELECT 1 AS [a;b]", SQLITE),
        ("SELECT 1 AS `a;b`", SQLITE),
        ("SELECT 1 -- ; DROP TABLE t", SQLITE),
        ("SELECT 1 /* ; DROP TABLE t */ + 1", SQLITE),
        ("SELECT 1;", SQLITE),
        ("SELECT 1 ; -- done\n ; ", SQLITE),
        ("SELECT $$;$$", POSTGRES),
        ("SELECT $tag$ ; $$ ; $tag$", POSTGRES),
        (r"SELECT E'a\'; DROP TABLE t; --'", POSTGRES),
        ("SELECT 1 /* a /* nested; */ ; */", POSTGRES),
        ("SELECT a$b$c FROM t", POSTGRES),
        ("(SELECT 1) UNION SELECT 2", POSTGRES),
        (r"SELECT 'a\'; DROP TABLE t; --'", MYSQL),
        ("SELECT 1 # ; DROP TABLE t", MYSQL),
    ],
)
def test_one_statement_is_one_whatever_its_strings_and_comments_hold(sql, dialect):
    assert read_statement(sql, dialect).text


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("SELECT 1; SELECT 2", SQLITE),
        ("SELECT ''; DELETE FROM t --'", SQLITE),
        ("SELECT 1; /* x */ COMMIT", POSTGRES),
        (r"SELECT 'a\'; DROP TABLE t; --'", POSTGRES),
        (r"SELECT 'a\'; DROP TABLE t; --'", SQLITE),
        ("SELECT 1 /* /* */ ; DROP TABLE t --*/", SQLITE),
        ("SELECT $a$ x $a$; DROP TABLE t", POSTGRES),
        ("SELECT e; DROP TABLE t", POSTGRES),
        ("SELECT 1;;;VALUES (1)", SQLITE),
    ],
)
def test_two_statements_are_refused_before_anything_is_sent(sql, dialect):
    with pytest.raises(InvalidArguments, match="more than one statement") as caught:
        read_statement(sql, dialect)
    assert "nothing was sent" in str(caught.value)
    assert "Call once for each" in str(caught.value)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("", "empty"),
        (" ; -- x", "empty"),
        ("SELECT 'open", "never closed"),
        ('SELECT "open', "never closed"),
        ("SELECT /* open", "never closed"),
        ("SELECT $x$ open", "never closed"),
        (r"SELECT E'\'", "never closed"),
        ("SELECT (1", "parenthesis"),
        ("SELECT 1) AS q; ", "parenthesis"),
        ("SELECT '\0'", "NUL"),
        ("SELECT '\ud800'", "surrogate"),
        ("SELECT " + "1," * 60_000 + "1", "characters"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_to_do(sql, says):
    with pytest.raises(InvalidArguments, match=says):
        read_statement(sql, POSTGRES)


@pytest.mark.parametrize("sql", ["DELETE FROM t", "PRAGMA x", "ATTACH 'x' AS y", "set role x", "explain select 1", "1"])
def test_a_statement_that_does_not_begin_like_a_reading_one_is_refused(sql):
    with pytest.raises(Refused, match="only SELECT, WITH and VALUES read"):
        read_statement(sql, SQLITE)


def test_words_that_write_are_refused_where_no_engine_of_ours_stops_them():
    with pytest.raises(Refused, match="'into'"):
        read_statement("SELECT * INTO OUTFILE 'x' FROM t", MYSQL)
    assert read_statement("SELECT `into` FROM t", MYSQL).text


def test_names_in_unicode_escapes_are_refused_because_they_hide_what_is_called():
    with pytest.raises(Refused, match="U&"):
        read_statement('SELECT U&"set_c\\006fnfig"(1)', POSTGRES)


def test_placeholders_are_found_outside_of_strings_only():
    found = read_statement("SELECT ':no', :yes::text, a[1:2], \"b:no\", :yes + :also -- :no", POSTGRES)
    assert found.placeholders == {"yes", "also"}


def test_functions_are_found_however_they_are_spelled():
    found = read_statement(
        'SELECT PG_Read_File (1), pg_catalog."lo_Export"/**/(2), (t).by_row, x.plain FROM t', POSTGRES
    )
    assert {"pg_read_file", "lo_Export"} <= found.called
    assert found.attributes == {("", "by_row"), ("x", "plain"), ("pg_catalog", "lo_Export")}


SQL_PIECES = st.sampled_from(
    [
        "'",
        "''",
        '"',
        "--",
        "/*",
        "*/",
        ";",
        "$$",
        "$a$",
        "E'",
        "\\",
        "\n",
        "(",
        ")",
        ":x",
        "select",
        " ",
        "1",
        "é",
        "[",
        "]",
    ]
)


@given(st.lists(SQL_PIECES, max_size=30).map("".join), st.sampled_from([SQLITE, POSTGRES, MYSQL]))
def test_the_pieces_are_the_whole_text_and_any_text_is_read_or_refused(sql, dialect):
    try:
        assert "".join(piece.text for piece in tokens(sql, dialect)) == sql
        read_statement(sql, dialect)
    except (InvalidArguments, Refused):
        pass
