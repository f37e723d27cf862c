"""Models malform calls in known ways: each is put right once, with a note, and honest calls are left alone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.execution.arguments import Request, unwrap
from portico.testing import AGENT, definition, make_test_app

APPLICATION = make_test_app(
    {
        "github": [
            definition("create_issue", "Create", title="string", body="string?"),
            definition("ping"),
        ],
        "files": [
            definition("rename", "Rename", name="string", to="string?"),
            definition("run", "Run", arguments="object", input="string?"),
            definition("feed", "Feed", input="string", tool="string?", args="array?"),
        ],
    }
)
WANTED = {"title": "x"}
INNER = {"name": "github.create_issue", "arguments": WANTED}


def read(raw: dict[str, Any]) -> Request:
    return unwrap(raw, lambda name: APPLICATION.gateway.parameters_of(AGENT, name))


@pytest.mark.requirement("P-LENIENT")
@pytest.mark.parametrize(
    "raw",
    [
        {"name": "github.create_issue", "arguments": json.dumps(WANTED)},
        {"name": "github.create_issue", "arguments": json.dumps(json.dumps(WANTED))},
        {"name": "github.create_issue", "arguments": {"arguments": WANTED}},
        {"name": "github.create_issue", "arguments": {"arguments": {"arguments": WANTED}}},
        {"name": "github.create_issue", "arguments": {"arguments": json.dumps(WANTED)}},
        {"name": "github.create_issue", "arguments": {"input": WANTED}},
        {"name": "github.create_issue", "arguments": {"name": "github.create_issue", "arguments": WANTED}},
        {"name": "github.create_issue", "title": "x"},
        {"name": "github.create_issue", "arguments": {}, "title": "x"},
        {"name": "github.create_issue", "arguments": None, "title": "x"},
        {"name": "github.create_issue", "arguments": "", "title": "x"},
        {"arguments": {"name": "github.create_issue", "title": "x"}},
        {"arguments": INNER},
        {"arguments": json.dumps(INNER)},
        {"arguments": {"tool": "github.create_issue", "title": "x"}},
        {"name": "call_tool", "arguments": INNER},
        {"name": "call_tool", "arguments": json.dumps(INNER)},
        {"name": "call_tool", "arguments": {"name": "call_tool", "arguments": INNER}},
    ],
)
def test_a_malformed_call_is_put_right_with_a_note(raw: dict[str, Any]) -> None:
    found = read(raw)
    assert found.name == "github.create_issue"
    assert found.arguments == WANTED
    assert found.notes


@pytest.mark.requirement("P-LENIENT")
@pytest.mark.parametrize("name_key", ["name", "tool", "tool_name", "toolName", "handle"])
@pytest.mark.parametrize("argument_key", ["arguments", "args", "parameters", "params", "input", "tool_input"])
def test_other_words_for_name_and_arguments_are_understood(name_key: str, argument_key: str) -> None:
    found = read({name_key: "github.create_issue", argument_key: WANTED})
    assert (found.name, found.arguments) == ("github.create_issue", WANTED)


@pytest.mark.requirement("P-LENIENT")
@pytest.mark.parametrize(
    "spelling", ["github__create_issue", "GitHub.Create_Issue", "github::create_issue", "create_issue"]
)
def test_other_spellings_are_left_to_the_resolver(spelling: str) -> None:
    assert read({"name": spelling, "arguments": WANTED}) == Request(spelling, WANTED)


@pytest.mark.requirement("P-LENIENT-HONEST")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("files.rename", {"name": "github.create_issue"}),
        ("files.rename", {"name": "a", "to": "b"}),
        ("files.run", {"arguments": {"a": 1}}),
        ("files.run", {"arguments": {"arguments": {}}}),
        ("files.run", {"arguments": {}, "input": "x"}),
        ("files.feed", {"input": "hello"}),
        ("files.feed", {"input": '{"a": 1}'}),
        ("files.feed", {"tool": "hammer", "input": "x"}),
        ("github.ping", {}),
        ("no.such", {"a": 1}),
    ],
)
def test_a_tool_that_really_has_such_parameters_is_left_alone(name: str, arguments: dict[str, Any]) -> None:
    assert read({"name": name, "arguments": arguments}) == Request(name, arguments)


@pytest.mark.requirement("P-LENIENT-HONEST")
def test_flat_parameters_keep_those_that_look_like_wrapping() -> None:
    found = read({"name": "files.feed", "input": "hello", "tool": "hammer", "args": ["-v"]})
    assert (found.name, found.arguments) == ("files.feed", {"input": "hello", "tool": "hammer", "args": ["-v"]})


def test_a_parameter_beside_the_arguments_is_not_lost() -> None:
    found = read({"name": "github.create_issue", "arguments": {"title": "x"}, "body": "y"})
    assert found.arguments == {"title": "x", "body": "y"}
    assert found.notes


def test_what_cannot_be_read_is_shown_to_the_tool_as_it_came() -> None:
    assert read({"name": "github.create_issue", "arguments": "title=x"}).arguments == {"arguments": "title=x"}
    assert read({"name": "github.create_issue", "arguments": [1]}).arguments == {"arguments": [1]}


def test_nothing_at_all_has_no_name() -> None:
    assert read({}) == Request("", {})
    assert read({"arguments": {}}).name == ""


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["files.run", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "tool", "arguments", "args", "input", "x"]), inner, max_size=4)
        | inner.map(lambda value: json.dumps(value))
    ),
    max_leaves=10,
)


@pytest.mark.requirement("P-LENIENT")
@settings(max_examples=400)
@given(st.dictionaries(st.sampled_from(["name", "tool", "arguments", "args", "input", "title", ""]), json_values))
def test_arbitrary_json_is_read_without_an_exception(raw: dict[str, Any]) -> None:
    found = read(raw)
    assert isinstance(found.name, str)
    assert isinstance(found.arguments, dict)


def test_endless_wrapping_ends() -> None:
    raw: dict[str, Any] = WANTED
    for _ in range(50):
        raw = {"arguments": raw}
    assert read({"name": "github.create_issue", **raw}).name == "github.create_issue"
    assert read({"name": "github.create_issue", "arguments": "[" * 100_000}).name == "github.create_issue"
