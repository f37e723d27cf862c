"""Overrides of single tools in a server entry: what is written, and where it stands when it cannot be used."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portico.catalog.publisher import Publisher
from portico.catalog.sections import ToolOverrides
from portico.config import GatewaySettings
from portico.config.servers import OVERRIDE
from portico.config.variables_and_masking import mask
from portico.domain.server import Offering, ServerSpec
from portico.domain.tool import Effect, ToolId, ToolOverride
from portico.execution.arguments import fit_values
from portico.search.index import build_index
from portico.testing import definition
from portico.text.redaction import certain_secrets_of, secrets_of

from .conftest import Home

pytestmark = pytest.mark.requirement("P-OVERRIDES")

HEAD = "servers:\n  tracker:\n    command: tracker\n    overrides:\n"


def load(home: Home, overrides: str) -> GatewaySettings:
    body = "".join(f"      {line}\n" for line in dedent(overrides).strip().splitlines())
    return home.load(home.write("portico.yaml", HEAD + body))


def spec(settings: GatewaySettings) -> ServerSpec:
    (found,) = settings.servers
    return found


def said(settings: GatewaySettings) -> list[str]:
    return [f"{problem.line}: {problem.where}: {problem.problem}. {problem.fix}" for problem in settings.problems]


def test_everything_can_be_written(home: Home) -> None:
    home.environ["TOKEN_OF_TRACKER"] = "s3cr3t-value"
    settings = load(
        home,
        """
        create_issue:
          name: open_ticket
          title: Open a ticket
          description: Opens a ticket
          category: support
          tags: [helpdesk, " people "]
          effect: destructive
          defaults: {priority: 3, labels: [a, {b: true}], note: null}
          hidden: {project: 12, token: "${TOKEN_OF_TRACKER}"}
          result_tokens: 900
          timeout: 20000
          x-checked: 2026-11-19
        delete_all: {enabled: false}
        """,
    )
    assert settings.problems == ()
    found = spec(settings).labels.overrides
    assert found["create_issue"] == ToolOverride(
        name="open_ticket",
        title="Open a ticket",
        description="Opens a ticket",
        category="support",
        tags=("helpdesk", "people"),
        effect=Effect.DESTRUCTIVE,
        defaults={"priority": 3, "labels": ["a", {"b": True}], "note": None},
        hidden={"project": 12, "token": "s3cr3t-value"},
        result_tokens=900,
        timeout=20.0,
    )
    assert found["delete_all"] == ToolOverride(enabled=False)
    written = found["create_issue"].written
    assert written.where == "servers.tracker.overrides.create_issue"
    assert (written.lines["name"], written.lines["hidden.token"]) == (6, 13)


def test_hidden_values_are_secrets_and_shown_nowhere(home: Home) -> None:
    home.environ["WORD"] = "from-a-variable"
    settings = load(home, 'create_issue: {hidden: {token: "abcdef-literal", area: "my-area-name", v: "${WORD}"}}')
    found = spec(settings)
    values = {"abcdef-literal", "my-area-name", "from-a-variable"}
    assert values <= {value for _, value in secrets_of(found)}
    certain = {value for _, value in certain_secrets_of(found)}
    assert "abcdef-literal" in certain
    assert "my-area-name" not in certain, "a plain word may stand in a description"
    assert not [value for value in values if value in repr(settings)]
    entry = {"overrides": {"create_issue": {"hidden": {"token": "abcdef-literal", "n": 5}, "defaults": {"n": 5}}}}
    assert mask(entry) == {
        "overrides": {"create_issue": {"hidden": {"token": "***", "n": "***"}, "defaults": {"n": 5}}}
    }


def test_the_mark_changes_with_what_is_written_but_not_with_hidden_values(home: Home) -> None:
    def mark(written: str) -> str:
        return spec(load(home, f"a: {written}")).labels.overrides["a"].mark

    first = mark("{name: b, hidden: {x: 1}}")
    assert mark("{name: b, hidden: {x: 2}}") == first
    others = {mark("{name: c, hidden: {x: 1}}"), mark("{name: b, hidden: {y: 1}}"), mark("{name: b, x-checked: today}")}
    assert first not in others
    assert len(others) == 3


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "a: {name: a tool!}",
            (
                "5: servers.tracker.overrides.a.name: this cannot be a tool's name. "
                "Write up to 128 letters, digits and the signs _ - ."
            ),
        ),
        (
            "a: {effect: reed}",
            "5: servers.tracker.overrides.a.effect: this word is not known here. Did you mean 'read'?",
        ),
        (
            "a: {result_tokens: 5}",
            (
                "5: servers.tracker.overrides.a.result_tokens: this is not a usable number. "
                "Write a whole number from 500 to 10000000."
            ),
        ),
        (
            "a: {timeout: -1}",
            "5: servers.tracker.overrides.a.timeout: this must be a number above 0. Write a plain number, such as 30.",
        ),
        ("a: {titel: x}", "5: servers.tracker.overrides.a.titel: this key is not known. Did you mean 'title'?"),
        (
            "a:\n  title: x\n  defaults: [1]",
            (
                "7: servers.tracker.overrides.a.defaults: this must be a table of parameters and values. "
                "Write it as {parameter: value}."
            ),
        ),
        (
            "a: {defaults: {x: .inf}}",
            (
                "5: servers.tracker.overrides.a.defaults: a value here is no JSON. "
                "Write texts, numbers, true, false, null, lists or tables."
            ),
        ),
        (
            "a:\n  defaults: {x: 1}\n  hidden: {x: 2}",
            (
                "6: servers.tracker.overrides.a.defaults.x: this parameter is hidden as well. "
                "Delete one; the hidden value is sent."
            ),
        ),
        (
            "a: {name: c}\nb: {name: c}",
            (
                "6: servers.tracker.overrides.b.name: 'a' is given this name too. "
                "Choose another name for one of them; 'b' keeps its own until then."
            ),
        ),
    ],
)
def test_what_cannot_be_used_is_left_out_with_its_line_and_what_to_write(
    home: Home, written: str, expected: str
) -> None:
    settings = load(home, written)
    assert said(settings) == [expected]
    assert all(override.enabled for override in spec(settings).labels.overrides.values()), "the rest holds"


@pytest.mark.parametrize(
    "written",
    ["a: off", "a: {enabled: maybe}", "a: {hiden: {x: 1}}", "a: {hidden: [x]}", 'a: {hidden: {x: "${NOT_SET}"}}'],
)
def test_a_tool_from_which_something_was_to_be_taken_is_left_out_when_that_cannot_be_read(
    home: Home, written: str
) -> None:
    settings = load(home, f"{written}\nb: {{title: B}}")
    assert settings.problems
    assert "left out" in said(settings)[-1] or "left out" in said(settings)[0]
    overrides = spec(settings).labels.overrides
    assert not overrides["a"].enabled
    assert overrides["b"] == ToolOverride(title="B"), "the server and its other tools are used"


WORDS = st.sampled_from([*OVERRIDE, "enabld", "hiden", "x-note", "${", "tool", ""])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(written=st.dictionaries(WORDS, JUNK, max_size=4))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_written_the_server_is_used(home: Home, written: dict[str, Any]) -> None:
    entry = {"command": "tracker", "overrides": written}
    found = home.load(home.write("portico.json", json.dumps({"servers": {"tracker": entry}})))
    overrides = spec(found).labels.overrides
    assert overrides.keys() == written.keys()
    made = Publisher(
        build_index=build_index,
        tool_overrides=ToolOverrides(servers={"tracker": overrides}, fit=fit_values),
    )
    tools = tuple(definition(name, name="string", tool="integer?") for name in ("tool", "name", "other"))
    snapshot = made.accept([(Offering(server="tracker", tools=tools), "upstream")])
    assert ToolId("tracker", "other") in snapshot.tools


def test_overrides_that_are_no_table_are_left_out(home: Home) -> None:
    settings = home.load(home.write("portico.yaml", "servers:\n  t: {command: t, overrides: [a]}\n"))
    assert [problem.where for problem in settings.problems] == ["servers.t.overrides"]
    assert spec(settings).labels.overrides == {}


def test_a_misspelt_key_for_overrides_leaves_the_server_out(home: Home) -> None:
    settings = home.load(home.write("portico.yaml", "servers:\n  t: {command: t, override: {a: {enabled: false}}}\n"))
    assert settings.servers == (), "it would show what was to be switched off"
