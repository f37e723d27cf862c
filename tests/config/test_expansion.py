"""Variables in values, in every spelling that clients have."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.config.variables_and_masking import Variables, names_in
from portico.errors import ConfigError

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name not in {"workspaceFolder", "workspaceFolderBasename", "userHome", "pathSeparator"}
)
PLAIN = st.text().filter(lambda text: "${" not in text and not text.endswith(("$", "\\")))


def variables(folder: str = "/p", **environ: str) -> Variables:
    return Variables(environ=environ, folder=Path(folder))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A}", "1"),
        ("x-${A}-${B}-y", "x-1-two-y"),
        ("${env:A}", "1"),
        ("${A:-z}", "1"),
        ("${NONE:-z}", "z"),
        ("${NONE:-}", ""),
        ("${EMPTY:-z}", "z"),
        ("${EMPTY}", ""),
        ("${NONE:-${B}}", "two"),
        ("${NONE:-${NEITHER:-deep}}!", "deep!"),
        ("${NONE:-http://h:1/x?y=$z}", "http://h:1/x?y=$z"),
        ("$${A}", "${A}"),
        ("\\${A}", "${A}"),
        ("$A and $ and {A} and $(A)", "$A and $ and {A} and $(A)"),
        ("${workspaceFolder}/x", "/p/x"),
        ("${workspaceFolderBasename}", "p"),
        ("${userHome}", "/h"),
        ("a${/}b", "a/b"),
    ],
)
def test_variables_are_put_in_place(text: str, expected: str) -> None:
    assert variables(A="1", B="two", EMPTY="", HOME="/h").expand(text) == expected


def test_the_workspace_of_an_editors_folder_is_the_project() -> None:
    assert variables("/p/.vscode").expand("${workspaceFolder}") == "/p"


def test_values_are_not_expanded_again() -> None:
    assert variables(A="${B}", B="x").expand("${A}") == "${B}"


@given(PLAIN)
def test_text_without_variables_stays_as_it_is(text: str) -> None:
    assert variables().expand(text) == text


@given(PLAIN, NAMES, st.text(), PLAIN)
def test_a_variable_is_replaced_by_its_value_whatever_that_is(before: str, name: str, value: str, after: str) -> None:
    assert variables(**{name: value}).expand(f"{before}${{{name}}}{after}") == before + value + after


@given(PLAIN, NAMES)
def test_a_missing_variable_is_named_with_two_ways_out(before: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        variables().expand(f"{before}${{{name}}}")
    assert caught.value.problem == f"the variable {name} is not set"
    assert f"Export {name}" in caught.value.fix
    assert f"${{{name}:-default}}" in caught.value.fix


@given(st.text(alphabet="${}:-\\AB env input:x", max_size=40), st.booleans())
def test_no_text_breaks_the_expansion(text: str, lenient: bool) -> None:
    answer = _answer(text, lenient)
    assert isinstance(answer, str) or answer.fix


def _answer(text: str, lenient: bool) -> str | ConfigError:
    try:
        return Variables(environ={"A": "1"}, folder=Path("/p"), lenient=lenient).expand(text)
    except ConfigError as error:
        return error


@given(st.text(alphabet="${}AB", max_size=30))
def test_an_escaped_text_expands_to_itself(text: str) -> None:
    # A dollar in front of `${` would be read as part of the escape.
    if "$${" not in text:
        assert variables().expand(text.replace("${", "$${")) == text


def test_defaults_nested_beyond_all_use_are_refused() -> None:
    with pytest.raises(ConfigError):
        variables().expand("${A:-" * 500 + "}" * 500)


def test_the_names_a_text_needs_are_listed() -> None:
    assert names_in("${A} ${B:-x} ${env:C} $${D}") == ("A", "C")
