"""Answers as JSON that fit their budget and say what they cost."""

from __future__ import annotations

import json
import logging
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.domain.search_answers import View
from portico.domain.tool import ToolId
from portico.domain.usage_and_tiers import Usage
from portico.protocols import TokenCounter
from portico.rendering.budget import ExactTokens, TokenEstimate, Variants
from portico.rendering.cards import latency_text, performance_words, success_text
from portico.tiers.compose_tiers import TierOutline, compose
from portico.tiers.token_budgets import Allowance, Step
from portico.tiers.tools_as_json import json_variants, performance

EXACT = [ExactTokens()] if find_spec("splintr") else []
"""Its extra need not be installed."""
FORTY_SEVEN = Usage(calls=1_000, done=987, seconds=47.0, latencies={60: 1_000})
SPREAD = Usage(calls=1_000, done=987, seconds=47.0, latencies={60: 900, 80: 100})


class Letters:
    """Counts four letters as one token."""

    name = "letters"

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


def item(name: str, words: int) -> Variants:
    """An item with a description of so many words, then with half of it, then bare."""
    texts = [{"tool": name, "description": "word " * words}, {"tool": name, "description": "word " * (words // 2)}]
    return json_variants(name, lambda: texts[0], lambda: texts[1], lambda: {"tool": name})


def view(sizes: list[int], tokens: int, counter: TokenCounter | None = None, **outline: Any) -> View:
    names = [f"tool_{number}" for number in range(len(sizes))]
    given: dict[str, Any] = {
        "tier": "tool_summaries",
        "items": "tools",
        "before": {"filter": "category=files"},
        "after": {"pagination": {"page": 1}},
        "ids": [ToolId("s", name) for name in names],
        "total": len(sizes),
        "next": "/next",
        "path": lambda enough: f"/same?budget={enough}",
    }
    allowed = Allowance(step=Step.SUMMARIES, tokens=tokens, before=1_000)
    items = [item(name, size) for name, size in zip(names, sizes, strict=True)]
    return compose(TierOutline(**{**given, **outline}), items, allowed, counter or TokenEstimate())


@pytest.mark.requirement("S1-57", "S1-E16")
def test_an_answer_says_what_it_costs_as_it_is_sent():
    found = view([3, 3], 1_000)
    body = json.loads(found.body)
    assert found.body == json.dumps(body, separators=(",", ":")).encode()
    assert found.tokens == body["tokens"] == TokenEstimate().count(found.body.decode())
    assert body["budget"] == {"limit": 8_000, "cumulative": 1_000 + found.tokens, "counter": "estimate"}
    assert list(body) == "tier filter tools pagination tokens budget truncated shown total next".split()
    assert (body["truncated"], body["shown"], body["total"], body["next"]) == (False, 2, 2, "/next")


@pytest.mark.requirement("S1-E3", "S1-75")
@pytest.mark.parametrize("counter", [TokenEstimate(), Letters(), *EXACT], ids=lambda counter: counter.name)
def test_an_answer_is_counted_by_the_counter_that_it_names(counter: TokenCounter):
    found = view([3, 3], 1_000, counter)
    assert json.loads(found.body)["budget"]["counter"] == counter.name
    assert found.tokens == counter.count(found.body.decode())


@pytest.mark.requirement("S1-E17", "S1-E18", "S1-83")
def test_what_does_not_fit_is_shortened_and_then_left_out_with_a_word(caplog: pytest.LogCaptureFixture):
    shortened = json.loads(view([40] * 10, 480).body)
    assert (shortened["truncated"], shortened["shown"], shortened["next"]) == (True, 10, "/same?budget=600")
    assert "warning" not in shortened
    caplog.set_level(logging.WARNING)
    left_out = json.loads(view([40] * 50, 300).body)
    says = f"Token budget exhausted at {left_out['shown']}/50 tools. Use pagination or narrower search."
    assert 1 <= left_out["shown"] < 50
    assert left_out["warning"] == says
    assert says in caplog.messages


@pytest.mark.requirement("S1-E17")
def test_the_budget_that_is_told_suffices():
    small = json.loads(view([40] * 10, 200).body)
    enough = int(small["next"].rpartition("=")[2])
    whole = view([40] * 10, enough)
    assert (whole.truncated, len(whole.shown)) == (False, 10)


@pytest.mark.requirement("S1-E17")
def test_one_item_that_is_far_too_large_does_not_shorten_the_others():
    body = json.loads(view([10, 5_000, 10, 10], 600).body)
    assert [len(entry.get("description", "").split()) for entry in body["tools"]] == [10, 0, 10, 10]


@pytest.mark.requirement("S1-E18")
@pytest.mark.parametrize("sizes", [[10], [10_000], [40] * 50])
def test_the_smallest_budget_still_shows_one_item(sizes: list[int]):
    found = view(sizes, 50)
    body = json.loads(found.body)
    assert found.tokens <= 50
    assert body["tools"][0]["tool"] == "tool_0"
    assert (body["truncated"], body["total"]) == (True, len(sizes))
    assert body["shown"] == len(body["tools"]) == len(found.shown)


@given(
    st.lists(st.integers(0, 400), max_size=30),
    st.integers(50, 6_000),
    st.sampled_from([TokenEstimate(), Letters(), *EXACT]),
    st.sampled_from(["tools", ""]),
)
@pytest.mark.requirement("S1-E16", "S1-E17")
def test_no_answer_is_above_its_budget(sizes: list[int], tokens: int, counter: TokenCounter, items: str):
    sizes = sizes if items else (sizes[:1] or [5])
    found = view(sizes, tokens, counter, items=items)
    body = json.loads(found.body)
    assert found.tokens == body["tokens"] == counter.count(found.body.decode()) <= tokens
    assert found.cumulative == 1_000 + found.tokens
    assert body["truncated"] is found.truncated


@pytest.mark.requirement("S1-17", "S1-18", "S1-20", "S1-38", "S1-92")
def test_how_a_tool_has_done_in_words():
    assert [latency_text(ms) for ms in (47.2, 1.0, 0.96, 0.26, None)] == ["47ms", "1ms", "<1ms", "<1ms", None]
    assert (success_text(0.9871), success_text(1.0), success_text(None)) == ("98.7%", "100.0%", None)
    assert performance_words(FORTY_SEVEN) == "(47ms avg, 98.7% success)"
    assert performance_words(None) == performance_words(Usage()) == "(never called)"


@pytest.mark.requirement("S1-46", "S1-20")
def test_how_a_tool_has_done_in_numbers():
    known = performance(SPREAD)
    assert known["p95_latency_ms"] == round(SPREAD.p95_ms or 0) > 4 * known["p50_latency_ms"]
    assert known["p50_latency_ms"] == round(SPREAD.p50_ms or 0)
    assert {**known, "p50_latency_ms": 0, "p95_latency_ms": 0} == {
        "avg_latency_ms": 47,
        "p50_latency_ms": 0,
        "p95_latency_ms": 0,
        "success_rate": 98.7,
        "total_invocations": 1_000,
    }
    assert performance(None) == {
        "avg_latency_ms": None,
        "p50_latency_ms": None,
        "p95_latency_ms": None,
        "success_rate": None,
        "total_invocations": 0,
    }
