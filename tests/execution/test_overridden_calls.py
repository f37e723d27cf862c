"""Calls of overridden tools: checked as agents see them, sent as their servers want them."""

from __future__ import annotations

from typing import Any

import pytest

from portico.catalog.sections import ToolOverrides
from portico.domain.call import Call, Caller
from portico.domain.server import Offering
from portico.domain.tool import ToolOverride
from portico.errors import InvalidArguments, UpstreamTimeout
from portico.execution.arguments import fit_values
from portico.testing import AGENT, FakeApplication, definition, make_test_app

pytestmark = pytest.mark.requirement("P-OVERRIDES")

CREATE = definition("create", "Create an issue", title="string", project="string", priority="integer")
OVERRIDE = ToolOverride(name="open", defaults={"priority": 3}, hidden={"project": "inner"}, result_tokens=500)


def application(raw: dict[str, Any] = CREATE, override: ToolOverride = OVERRIDE) -> FakeApplication:
    made = make_test_app({"fake": []})
    publisher = made.gateway.publisher
    publisher.tool_overrides = ToolOverrides(servers={"fake": {raw["name"]: override}}, fit=fit_values)
    publisher.accept([(Offering(server="fake", tools=(raw,)), "upstream")])
    return made


async def test_defaults_and_hidden_values_are_sent_under_the_tool_s_own_name() -> None:
    made = application()
    await made.gateway.call(AGENT, Call(tool="fake.open", arguments={"title": "t"}))
    await made.gateway.call(AGENT, Call(tool="fake.open", arguments={"title": "t", "priority": "1"}))
    assert made.provider().calls == [
        ("create", {"title": "t", "priority": 3, "project": "inner"}),
        ("create", {"title": "t", "priority": 1, "project": "inner"}),
    ]
    assert [str(call.tool) for call in made.invocations] == ["fake::create"] * 2


@pytest.mark.parametrize("is_open", [True, False], ids=["open schema", "closed schema"])
async def test_a_hidden_parameter_is_unknown_to_callers(is_open: bool) -> None:
    schema = {**CREATE["inputSchema"], "additionalProperties": is_open}
    made = application({**CREATE, "inputSchema": schema})
    for arguments in ({"title": "t", "project": "mine"}, {"project": "inner"}):
        with pytest.raises(InvalidArguments) as error:
            await made.gateway.call(AGENT, Call(tool="fake.open", arguments=arguments))
        assert "unknown: project" in error.value.details
        assert "inner" not in str(error.value)
        assert error.value.next_call is not None
        assert "project" not in str(error.value.next_call.parameters)
    assert made.provider().calls == []


async def test_what_is_hidden_is_not_in_the_call_to_make_after_a_failure() -> None:
    made = application()
    made.provider().fails(UpstreamTimeout("fake.create"))
    with pytest.raises(UpstreamTimeout) as error:
        await made.gateway.call(AGENT, Call(tool="fake.open", arguments={"title": "t"}))
    assert error.value.subject == "fake.open"
    assert "inner" not in f"{error.value} {error.value.next_call}"


async def test_a_choice_between_parameters_is_kept_when_one_is_hidden() -> None:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "name": {"type": "string"}, "token": {"type": "string"}},
        "anyOf": [{"required": ["id", "token"]}, {"required": ["name", "token"]}],
    }
    made = application({**CREATE, "inputSchema": schema}, ToolOverride(hidden={"token": "inner"}))
    await made.gateway.call(AGENT, Call(tool="fake.create", arguments={"name": "n"}))
    assert made.provider().calls == [("create", {"name": "n", "token": "inner"})]
    with pytest.raises(InvalidArguments):
        await made.gateway.call(AGENT, Call(tool="fake.create", arguments={}))


def test_a_tool_s_own_limit_counts_instead_of_its_server_s() -> None:
    made = application()
    truncator = made.gateway.reader.truncator
    truncator.servers = {"fake": 5_000}
    found = made.gateway.view(AGENT).tool("fake.open")
    assert truncator.limit(AGENT, found) == 500
    assert truncator.limit(Caller(result_tokens=100), found) == 100, "what a caller asks for is still the most"
