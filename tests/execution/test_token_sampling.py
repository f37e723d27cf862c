"""Tokens of calls are known about right, and counted seldom."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from portico.domain.call import Result
from portico.execution.executor import EVERY, TokenSampler, text_of_arguments, text_of_result
from portico.rendering.budget import TokenEstimate
from portico.results.truncate import SAMPLED_LETTERS as SAMPLE


@dataclass
class Counting(TokenEstimate):
    """The estimate, which remembers how much it was made to read."""

    read: list[int] = field(default_factory=list)

    def count(self, text: str) -> int:
        self.read.append(len(text))
        return super().count(text)


def issues(count: int) -> str:
    return json.dumps(
        [{"id": n, "title": f"The button number {n} does nothing", "labels": ["bug"]} for n in range(count)]
    )


def test_texts_of_one_kind_are_counted_now_and_then_and_known_within_a_tenth() -> None:
    counter = Counting()
    sampler = TokenSampler(counter)
    texts = [issues(n) for n in range(20, 20 + EVERY)]
    found = [sampler.tokens("issues", text) for text in texts]
    assert len(counter.read) == 1
    for text, tokens in zip(texts, found, strict=True):
        assert tokens == pytest.approx(TokenEstimate().count(text), rel=0.1)
    sampler.tokens("issues", texts[0])
    assert len(counter.read) == 2


def test_a_long_text_is_read_in_part() -> None:
    counter = Counting()
    text = issues(5_000)
    assert TokenSampler(counter).tokens("issues", text) == pytest.approx(TokenEstimate().count(text), rel=0.1)
    assert counter.read == [SAMPLE]


def test_nothing_is_no_token_and_something_is_one_at_least() -> None:
    sampler = TokenSampler(TokenEstimate())
    assert (sampler.tokens("a", ""), sampler.tokens("a", " ")) == (0, 1)


def test_a_model_reads_the_text_of_a_result_or_else_its_structure() -> None:
    text = {"type": "text", "text": "five"}
    assert text_of_result(Result({"content": [text, text], "structuredContent": {"n": 5}})) == "five\nfive"
    assert text_of_result(Result({"content": [], "structuredContent": {"n": 5}})) == '{"n":5}'
    assert text_of_result(Result({"structuredContent": {"n": 2**70}})) == f"{{'n': {2**70}}}"
    assert text_of_result(Result({"content": [{"type": "image", "data": "aaaa"}]})) == ""


def test_arguments_are_what_the_caller_has_written() -> None:
    assert text_of_arguments({"city": "Oslo"}) == '{"city":"Oslo"}'
    assert text_of_arguments({}) == ""
    assert text_of_arguments({"n": 2**70}) == f"{{'n': {2**70}}}"
