"""What docstrings say of parameters, in each of the four manners."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.docstrings import parameter_texts

NAMES = {"sql", "limit", "options", "args", "kwargs"}

GOOGLE = """
    Run a query.

    Note: this is not a parameter.

    Args:
        sql (str): The text of the query,
            over two lines.
        limit (Callable[[int], str], optional): At most so many: 10, say.

            A second paragraph.
        *args: More of them.
        options:
            On its own line.

    Returns:
        sql: not this one
    """

NUMPY = """
    Run a query.

    Parameters
    ----------
    sql : str
        The text of the query,
        over two lines.
    limit, options : int, optional
        Both of them.
    *args
        More of them.

    Returns
    -------
    list
        sql : not this one
    """

REST = """
    Run a query.

    :param sql: The text of the query,
        over two lines.
    :param int limit: At most so many.
    :type limit: int
    :keyword options: Some.
    :returns: sql: not this one

    limit is said above.
    """

SEED = """
    Execute a SQL query via SQLAlchemy, bind parameters if provided.

    Arguments:
      sql - SQL text, with optional bind-parameter placeholders
            and more of it
      limit    - how many
    """


def texts(doc: str) -> dict[str, str]:
    return parameter_texts(inspect.cleandoc(doc), NAMES)


def test_google() -> None:
    assert texts(GOOGLE) == {
        "sql": "The text of the query, over two lines.",
        "limit": "At most so many: 10, say. A second paragraph.",
        "args": "More of them.",
        "options": "On its own line.",
    }


def test_numpy() -> None:
    assert texts(NUMPY) == {
        "sql": "The text of the query, over two lines.",
        "limit": "Both of them.",
        "options": "Both of them.",
        "args": "More of them.",
    }


def test_rest() -> None:
    assert texts(REST) == {
        "sql": "The text of the query, over two lines.",
        "limit": "At most so many.",
        "options": "Some.",
    }


@pytest.mark.requirement("S0-20")
def test_the_plain_list_of_names_and_texts() -> None:
    assert texts(SEED) == {
        "sql": "SQL text, with optional bind-parameter placeholders and more of it",
        "limit": "how many",
    }


@pytest.mark.parametrize(
    "doc",
    [
        "Args:\n  - sql: said",
        "Arguments:\n  `sql` - said",
        "Args:\nsql: said",
        "Parameters:\n    sql -- said",
        "Run.\n\nsql - said",
        "@param sql: said",
        "Keyword Args:\n\tsql: said",
    ],
)
def test_habits_of_authors(doc: str) -> None:
    assert texts(doc) == {"sql": "said"}


def test_only_the_functions_own_parameters_are_looked_for() -> None:
    assert parameter_texts("Args:\n  other: x\n  sql: y", {"sql"}) == {"sql": "y"}
    assert texts("sql: this line stands outside of any section") == {}
    assert texts("") == {}


@given(st.text(alphabet="abs ql-:()\n*`@=–param\t", max_size=300))
def test_no_text_upsets_the_reader(doc: str) -> None:
    assert parameter_texts(doc, NAMES).keys() <= NAMES
