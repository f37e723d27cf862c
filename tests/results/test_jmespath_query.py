"""JMESPath selects, and no expression of a few letters holds the gateway."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from portico.results.jmespath_query import PATH_LENGTH, PathError, select

DATA: Any = {"rows": [{"n": n, "name": f"row {n}"} for n in range(100)], "text": "a" * 10_000}


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("rows[0].name", "row 0"),
        ("rows[-1].n", 99),
        ("rows[?n > `97`].name", ["row 98", "row 99"]),
        ("length(rows)", 100),
        ("rows[:2].{id: n}", [{"id": 0}, {"id": 1}]),
        ("sort_by(rows, &n)[0].n", 0),
        ("rows[*].[n, name][] | [:2]", [0, "row 0"]),
        ("join(', ', rows[:2].name)", "row 0, row 1"),
        ("to_string(rows[0])", '{"n":0,"name":"row 0"}'),
        ("nothing", None),
    ],
)
def test_a_path_selects(path: str, found: Any) -> None:
    assert select(DATA, path) == found


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(
    "path",
    [
        "rows[*",
        "rows[",
        "",
        "length(text, text)",
        "no_such(rows)",
        "sum(rows)",
        "sort(rows)",
        "a" * (PATH_LENGTH + 1),
        "(" * 400 + "a" + ")" * 99,
    ],
)
def test_a_path_that_cannot_be_used_says_so_in_one_line(path: str) -> None:
    with pytest.raises(PathError) as caught:
        select(DATA, path)
    assert str(caught.value).startswith("path: ")
    assert "\n" not in str(caught.value)


@pytest.mark.requirement("P-RESULTS-READ")
@pytest.mark.parametrize(
    "path",
    [
        "|".join(["[@,@]"] * 60),
        "|".join(["{a:@,b:@}"] * 45),
        "|".join(["[@,@][]"] * 60),
        "text|" + "|".join(["join('',[@,@])"] * 30),
        "({0})==({0})".format("|".join(["[@,@]"] * 35)),
        "to_string({})".format("|".join(["[@,@]"] * 60)),
    ],
)
def test_an_expression_that_doubles_what_it_has_is_stopped(path: str) -> None:
    assert len(path) <= PATH_LENGTH
    with pytest.raises(PathError, match=r"too much|longer than"):
        select(DATA, path, steps=1_000_000)


@pytest.mark.requirement("P-RESULTS-READ")
def test_an_expression_that_takes_too_long_is_stopped() -> None:
    seconds = count()
    with pytest.raises(PathError, match="longer than"):
        select({"rows": list(range(200_000))}, "rows[*].[@]", clock=lambda: next(seconds))
