"""SchemaLearner are learned from results, remembered under the tool's definition, and shown on its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from portico.domain.call import Call, Result
from portico.domain.tool import Tool, ToolId
from portico.domain.usage_and_tiers import Learned
from portico.errors import StoreError
from portico.execution.learned_schemas import SchemaLearner
from portico.testing import AGENT, FakeApplication, definition, make_test_app

ISSUES = {"issues": [{"id": 1, "title": "secret plan"}], "total": 1}


@dataclass
class Book:
    """A store in memory that can be away."""

    kept: dict[ToolId, Learned] = field(default_factory=dict)
    is_away: bool = False

    def shapes(self) -> dict[ToolId, Learned]:
        return dict(self.kept)

    def save_shapes(self, learned: Mapping[ToolId, Learned]) -> None:
        if self.is_away:
            raise StoreError("the store is away")
        self.kept.update(learned)


def tool_of(application: FakeApplication) -> Tool:
    return next(iter(application.gateway.snapshot.tools.values()))


def result(value: Any) -> Result:
    return Result({"content": [{"type": "text", "text": json.dumps(value)}]})


@pytest.mark.requirement("P-SHAPES")
async def test_a_card_shows_what_calls_have_returned_and_no_value_of_it() -> None:
    application = make_test_app({"fake": [definition("list")]})
    assert "returns" not in application.gateway.describe(AGENT, ["fake.list"]).text
    assert application.gateway.executor.learned_schemas.shape_of(tool_of(application)) is None
    application.provider().returns("list", {"content": [{"type": "text", "text": json.dumps(ISSUES)}]})
    await application.gateway.call(AGENT, Call(tool="fake.list", arguments={}))
    text = application.gateway.describe(AGENT, ["fake.list"]).text
    assert "returns: {issues: [{id: integer, title: string}], total: integer} (learned from 1 call)" in text
    assert "secret plan" not in text
    shape = application.gateway.executor.learned_schemas.shape_of(tool_of(application))
    assert shape is not None
    assert shape["properties"]["total"] == {"type": "integer"}


@pytest.mark.requirement("P-SHAPES")
async def test_a_tool_that_says_what_it_returns_is_taken_at_its_word() -> None:
    output = {"type": "object", "properties": {"a": {"type": "string"}}}
    application = make_test_app({"fake": [{**definition("list"), "outputSchema": output}]})
    application.provider().returns("list", {"content": [], "structuredContent": {"a": "b"}})
    await application.gateway.call(AGENT, Call(tool="fake.list", arguments={}))
    assert "learned" not in application.gateway.describe(AGENT, ["fake.list"]).text


@pytest.mark.requirement("P-SHAPES")
async def test_nothing_is_learned_from_errors_nor_from_plain_text() -> None:
    application = make_test_app({"fake": [definition("list")]})
    for raw in (
        {"content": [{"type": "text", "text": '{"oops": 1}'}], "isError": True},
        {"content": [{"type": "text", "text": "all is well"}]},
        {"content": [{"type": "image", "data": "", "mimeType": "image/png"}]},
    ):
        application.provider().returns("list", raw)
        await application.gateway.call(AGENT, Call(tool="fake.list", arguments={}))
    assert application.gateway.executor.learned_schemas.shape_of(tool_of(application)) is None


@pytest.mark.requirement("P-SHAPES")
def test_results_are_looked_at_ever_more_rarely() -> None:
    shapes, tool = SchemaLearner(), tool_of(make_test_app({"fake": [definition("list")]}))
    for number in range(100):
        shapes.learn(tool, result({f"name_{chr(97 + number % 26)}": number}))
    learned = shapes.known(tool)
    assert learned is not None
    assert learned.results == len([1, 2, 3, 4, 8, 16, 32, 64])


@pytest.mark.requirement("P-SHAPES")
def test_shapes_outlast_the_process_and_a_changed_definition_forgets_them() -> None:
    store, tool = Book(), tool_of(make_test_app({"fake": [definition("list")]}))
    first = SchemaLearner(store)
    first.learn(tool, result(ISSUES))
    first.close()
    second = SchemaLearner(store)
    second.recall()
    assert second.known(tool) == first.known(tool) is not None
    changed = tool_of(make_test_app({"fake": [definition("list", "Does something else")]}))
    assert second.known(changed) is None
    second.learn(changed, result([1]))
    learned = second.known(changed)
    assert learned is not None
    assert learned.shape == {"type": "array", "items": {"type": "integer"}}


@pytest.mark.requirement("P-SHAPES")
def test_what_could_not_be_written_is_written_when_the_store_is_back() -> None:
    store, tool = Book(is_away=True), tool_of(make_test_app({"fake": [definition("list")]}))
    shapes = SchemaLearner(store)
    shapes.learn(tool, result(ISSUES))
    shapes.close()
    assert not store.kept
    store.is_away = False
    shapes.close()
    assert tool.id in store.kept


@pytest.mark.requirement("P-SHAPES")
def test_a_large_result_is_looked_at_in_the_background_and_only_in_part() -> None:
    store, tool = Book(), tool_of(make_test_app({"fake": [definition("list")]}))
    shapes = SchemaLearner(store)
    shapes.learn(tool, result([{"n": n} for n in range(50_000)]))
    shapes.close()
    learned = shapes.known(tool)
    assert learned is not None
    assert learned.shape["items"]["properties"] == {"n": {"type": "integer"}}


@pytest.mark.requirement("P-SHAPES")
def test_a_changed_tool_is_learned_anew_from_its_next_result() -> None:
    shapes, tool = SchemaLearner(), tool_of(make_test_app({"fake": [definition("list")]}))
    for _ in range(20):
        shapes.learn(tool, result({"old": 1}))
    changed = tool_of(make_test_app({"fake": [definition("list", "Does something else")]}))
    shapes.learn(changed, result({"new": 1}))
    learned = shapes.known(changed)
    assert learned is not None
    assert [*learned.shape["properties"]] == ["new"]


@pytest.mark.requirement("P-SHAPES")
def test_large_results_are_looked_at_one_at_a_time_and_never_while_the_caller_waits() -> None:
    shapes, tool = SchemaLearner(), tool_of(make_test_app({"fake": [definition("list")]}))
    looking, go_on = Event(), Event()
    shapes._background.put(lambda: looking.set() or go_on.wait(5), (), seconds=5, on_failure=lambda *_: None)
    assert looking.wait(5)
    large = [{"n": [*range(100)]} for _ in range(1_000)]
    for _ in range(10):
        shapes.learn(tool, Result({"content": [], "structuredContent": {"rows": large}}))
    assert shapes.known(tool) is None
    go_on.set()
    shapes.close()
    learned = shapes.known(tool)
    assert learned is not None
    assert learned.results == 1
    shapes.learn(tool, result({"rows": []}))
    assert shapes.known(tool).results == 2  # type: ignore[union-attr]
